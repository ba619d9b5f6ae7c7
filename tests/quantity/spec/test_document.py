"""Data that knows its place: lookups, changes, and one document laid on another."""

from __future__ import annotations

import pytest

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec.document import merge
from tpsim.question.edits import edited, read_override

TEXT = """\
name: m            # a comment
chip:
  peak: {bf16: 197 TFLOP/s}
levels:
  - name: ici
    shape: [16, 16]
"""


@pytest.fixture
def document():
    return spec.load(TEXT, name="m.yaml")


@pytest.mark.parametrize(
    ("keys", "line", "marked"),
    [
        (["name"], 1, "m"),
        (["chip", "peak", "bf16"], 3, "197 TFLOP/s"),
        (["chip", "peak"], 3, "{bf16: 197 TFLOP/s}"),
        (["chip"], 2, "chip"),
        (["levels", 0, "shape", 1], 6, "16"),
        (["levels", 0], 5, "name: ici"),
        (["levels"], 4, "levels"),
        (["chip", "memory", "capacity"], 2, "chip"),
    ],
)
def test_a_place_marks_the_value_or_what_is_nearest_to_it(document, keys, line, marked):
    place = document.place(*keys)
    assert place.line == line
    assert place.text[place.column - 1 : place.column - 1 + place.width] == marked


def test_a_key_has_a_place_of_its_own(document):
    assert document.key_place("chip", "peak", "bf16") == Place("m.yaml", 3, 10, "  peak: {bf16: 197 TFLOP/s}", 4)


def test_data_from_elsewhere_has_no_place():
    assert spec.Document({"a": 1}, "scenario", "", "").place("a") is None


def test_a_value_set_from_outside_points_to_where_it_was_said(document):
    said = Place("command line", 1, 7, "--hw  x", 1)
    changed = spec.with_value(document, ["chip", "peak"], {"f32": 1}, said)
    assert changed.data["chip"] == {"peak": {"f32": 1}}
    assert changed.place("chip", "peak", "f32") == said
    assert document.data["chip"] == {"peak": {"bf16": "197 TFLOP/s"}}


def test_maps_are_made_on_the_way_to_a_new_value(document):
    assert spec.with_value(document, ["a", "b"], 1, None).data["a"] == {"b": 1}


def test_an_override_of_null_takes_a_field_away(document):
    assert edited(document, [read_override("chip.peak=null")]).data["chip"] == {}
    assert edited(document, [read_override("chip.memory=")]).data["chip"]["memory"] is None  # to be judged


def test_merge_joins_maps_and_replaces_lists():
    base = {"a": {"x": 1, "y": {"z": 2}}, "list": [1, 2]}
    assert merge(base, {"a": {"y": {"w": 3}}, "list": [9]}) == {"a": {"x": 1, "y": {"z": 2, "w": 3}}, "list": [9]}


def test_a_value_does_not_inherit_the_source_of_the_value_it_replaces():
    base = spec.load("name: base\nlink: {value: 45 GB/s, source: book, note: as achieved}\n", name="base")
    over = spec.load("extends: base\nlink: {value: 50 GB/s, kind: guess}\n", name="mine")
    result = spec.extended(over, lambda *_: base)
    assert result.data["link"] == {"value": "50 GB/s", "kind": "guess"}
    assert result.place("link", "source").file == "mine"


LIBRARY = {
    "base": "name: base\nlevels: [{name: ici}, {name: dcn}]\nchip: {a: 1, b: 2}\n",
    "middle": "extends: base\nchip: {b: 3}\n",
    "loop": "extends: pool\n",
    "pool": "extends: loop\n",
}


def from_library(name, _beside=None):
    return spec.load(LIBRARY[name], name=name)


def test_extends_lays_a_file_on_the_one_it_names():
    over = spec.load("extends: middle\nname: mine\nlevels: [{link: 4}]\n", name="mine")
    result = spec.extended(over, from_library)
    assert result.data == {"name": "mine", "levels": [{"link": 4}], "chip": {"a": 1, "b": 3}}
    assert [result.place(*keys).file for keys in (["name"], ["chip", "a"], ["chip", "b"])] == ["mine", "base", "middle"]
    assert result.place("levels", 0, "name").file == "mine"


def test_a_map_in_the_place_of_named_items_changes_those_that_it_names():
    over = spec.load("extends: wide\nlevels:\n  dcn: {link: {speed: 4}}\n", name="mine")
    base = spec.load("name: wide\nlevels: [{name: ici, a: 1}, {name: dcn, link: {speed: 3, hop: 1}}]\n", name="wide")
    result = spec.extended(over, lambda *_: base)
    assert result.data["levels"] == [
        {"name": "ici", "a": 1},
        {"name": "dcn", "link": {"speed": 4, "hop": 1}},
    ]
    places = [result.place("levels", *keys) for keys in ([0, "a"], [1, "link", "hop"], [1, "link", "speed"])]
    assert [place.file for place in places] == ["wide", "wide", "mine"]
    assert (places[2].line, places[2].column) == (3, 23)


def test_an_item_that_the_other_file_has_not_is_answered_with_the_nearest_one():
    with pytest.raises(InputError) as error:
        spec.extended(spec.load("extends: base\nlevels:\n  dcm: {}\n", name="mine"), from_library)
    assert str(error.value) == (
        'error[unknown-item]: "dcm" is not an item of levels of base\n'
        " --> mine:3:3\n"
        "  |\n"
        "3 |   dcm: {}\n"
        '  |   ^^^ did you mean "dcn"?\n'
        "  = known: ici, dcn"
    )


def test_extends_that_goes_round_is_refused():
    with pytest.raises(InputError) as error:
        spec.extended(from_library("loop"), from_library)
    assert str(error.value) == (
        "error[circular-extends]: extends goes round in a circle: loop -> pool -> loop\n"
        " --> pool:1:10\n"
        "  |\n"
        "1 | extends: loop\n"
        "  |          ^^^^ break the circle"
    )


def test_extends_is_one_name():
    with pytest.raises(InputError, match="extends is not a name"):
        spec.extended(spec.load("extends: [a, b]\n"), from_library)


def test_overrides_are_yaml_values_at_a_path(document):
    texts = "chip.peak.bf16=1 PFLOP/s", "levels.0.shape=[4, 4]", "name=no", "new.flag=true"
    changed = edited(document, map(read_override, texts))
    assert changed.data["chip"] == {"peak": {"bf16": "1 PFLOP/s"}}
    assert changed.data["levels"] == [{"name": "ici", "shape": [4, 4]}]
    assert (changed.data["name"], changed.data["new"]) == ("no", {"flag": True})
    assert changed.place("levels", 0, "shape", 1) == Place("command line", 1, 26, "--set levels.0.shape=[4, 4]", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "layout.zero",
            (
                'error[bad-override]: "layout.zero" sets nothing\n'
                " --> command line:1:7\n"
                "  |\n"
                "1 | --set layout.zero\n"
                "  |       ^^^^^^^^^^^ write path=value: layout.zero=1"
            ),
        ),
        (
            "name.x=1",
            (
                "error[bad-override]: name has no fields\n"
                " --> command line:1:14\n"
                "  |\n"
                "1 | --set name.x=1\n"
                "  |              ^ set name itself"
            ),
        ),
        (
            "levels.7=1",
            (
                "error[bad-override]: levels is a list of 1\n"
                " --> command line:1:16\n"
                "  |\n"
                "1 | --set levels.7=1\n"
                "  |                ^ set levels itself"
            ),
        ),
        (
            "name=[1",
            (
                "error[bad-yaml]: did not find expected ',' or ']'\n"
                " --> command line:1:12\n"
                "  |\n"
                "1 | --set name=[1\n"
                "  |            ^^ close what is open, and quote what is text"
            ),
        ),
    ],
)
def test_an_override_that_cannot_be_made_is_refused(document, text, message):
    with pytest.raises(InputError) as error:
        edited(document, [read_override(text)])
    assert str(error.value) == message
