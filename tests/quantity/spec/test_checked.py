"""A file read against its format: every mistake with place, caret and remedy."""

from __future__ import annotations

from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.quantity.spec.fields import noun
from tpsim.question.edits import edited, read_override

LEVEL = """\
levels:
  - name: ici
    topology: torus
    shape: [16, 16]
    link: {bandwidth: 45 GB/s, hop_latency: 1 us}
"""


def test_a_file_is_read_into_si_values(machine):
    file, document = machine(LEVEL)
    level = file.levels[0]
    assert (level.link.bandwidth, level.link.hop_latency, level.shape) == (45e9, 1e-6, (16, 16))
    assert document.path == "m.yaml"


def test_a_misspelled_field_is_one_error_though_it_is_also_missing(refusal):
    assert refusal("levels:\n  - name: ici\n    link:\n      bandwith: 45 GB/s\n") == (
        'error[unknown-field]: "bandwith" is not a field of a link\n'
        " --> m.yaml:6:7\n"
        "  |\n"
        "6 |       bandwith: 45 GB/s\n"
        '  |       ^^^^^^^^ did you mean "bandwidth"?\n'
        "  = fields here: bandwidth, hop_latency"
    )


def test_a_missing_field_is_asked_for_with_an_example(refusal):
    assert refusal("levels:\n  - name: ici\n    link: {hop_latency: 1 us}\n") == (
        'error[missing-field]: a link needs "bandwidth"\n'
        " --> m.yaml:5:5\n"
        "  |\n"
        "5 |     link: {hop_latency: 1 us}\n"
        "  |     ^^^^ add bandwidth: 45 GB/s"
    )


def test_a_bare_number_where_a_unit_is_due_is_refused(refusal):
    assert refusal("levels: [{name: a, link: {bandwidth: 45}}]\n") == (
        "error[missing-unit]: link.bandwidth: 45 has no unit\n"
        " --> m.yaml:3:38\n"
        "  |\n"
        "3 | levels: [{name: a, link: {bandwidth: 45}}]\n"
        "  |                                      ^^ write 45 GB/s or 360 Gbit/s"
    )


def test_a_foreign_name_is_answered_with_tpsims(refusal):
    foreign = {"num_devices": "chips", "machine_name": "name"}
    assert refusal("num-devices: 8\n", foreign=foreign) == (
        'error[foreign-name]: "num-devices" is not a field of a machine\n'
        " --> m.yaml:3:1\n"
        "  |\n"
        "3 | num-devices: 8\n"
        "  | ^^^^^^^^^^^ tpsim calls this chips\n"
        "  = fields here: tpsim, name, levels, chips, efficiency, closed, mesh, model"
    )
    assert refusal("machine_name: m\n", head="tpsim: machine/1\n", foreign=foreign).count("error[") == 1


def test_a_number_where_a_name_is_due_is_given_quotes_not_an_example(refusal):
    assert 'write "12"' in refusal("name: 12\n", head="tpsim: machine/1\n")


@pytest.mark.parametrize(
    ("written", "remedy"),
    [("2k", "2048, or 2000"), ("2M", "2097152, or 2000000"), ("2_048", "2048"), ("12,048,000", "12048000")],
)
def test_a_whole_number_that_is_written_otherwise_is_answered_with_its_digits(refusal, written, remedy):
    assert f"write {remedy}" in refusal(f"chips: {written}\n").splitlines()[-1]


@pytest.mark.parametrize(
    ("body", "slug", "place", "said"),
    [
        ("levels: [{name: a, topology: tours, link: {bandwidth: 1 B/s}}]", "unknown-value", "3:30", 'mean "torus"?'),
        ("chips: many", "bad-value", "3:8", 'chips is "many", not a whole number'),
        ('chips: "8"', "bad-value", "3:8", 'chips is "8", not a whole number'),
        ("chips: 1.5", "bad-value", "3:8", "chips is 1.5, not a whole number"),
        ("chips: true", "bad-value", "3:8", "chips is true, not a whole number"),
        ("chips: ", "bad-value", "3:7", "chips is empty, not a whole number"),
        ("chips: 0", "bad-value", "3:8", "it must be more than 0"),
        ("efficiency: 1.5", "bad-value", "3:13", "it must be at most 1"),
        ("efficiency: .nan", "bad-value", "3:13", "efficiency is nan"),
        ("closed: no", "bad-value", "3:9", 'closed is "no", not true or false'),
        ("levels: {name: a}", "bad-value", "3:9", "levels is a map, not a list"),
        ("levels: [ici]", "bad-value", "3:10", 'levels[0] is "ici", not a map of fields'),
        ("mesh: [a, b]", "bad-value", "3:7", "mesh is a list, not a map of fields"),
        ("mesh: {a: 1, b: x}", "bad-value", "3:17", 'mesh.b is "x", not a whole number'),
        ("model: 3", "bad-value", "3:8", "model is 3, not text or a map of fields"),
    ],
)
def test_a_value_that_its_field_cannot_take_is_refused_where_it_stands(refusal, body, slug, place, said):
    text = refusal(body + "\n")
    assert text.startswith(f"error[{slug}]: ")
    assert f"--> m.yaml:{place}\n" in text
    assert said in text
    assert text.count("error[") == 1


def test_a_number_where_text_is_due_is_to_be_quoted(refusal):
    assert refusal("name: 3\n", head="tpsim: machine/1\n") == (
        'error[bad-value]: name is 3, not text\n --> m.yaml:2:7\n  |\n2 | name: 3\n  |       ^ write "3"'
    )


def test_a_wrong_choice_lists_the_choices(refusal):
    assert refusal("levels: [{name: a, topology: cube, link: {bandwidth: 1 B/s}}]").endswith(
        "= values: torus, ring, switch"
    )


def test_every_mistake_of_a_file_is_told_at_once_in_the_order_of_its_lines(refusal):
    text = refusal("chips: 0\nclosed: 3\nfoo: 1\nmesh: 4\n")
    assert [line for line in text.splitlines() if "-->" in line] == [
        f" --> m.yaml:{line}:{column}" for line, column in [(3, 8), (4, 9), (5, 1), (6, 7)]
    ]


@pytest.mark.parametrize(
    ("head", "message", "remedy"),
    [
        ("name: m\n", "error[missing-header]: the file does not say what it is", "its first line is tpsim: machine/1"),
        (
            "tpsim: model/1\n",
            "error[wrong-kind]: this is a model file where a machine file is due",
            "name a machine file",
        ),
        (
            "tpsim: machine/2\n",
            "error[newer-version]: this is version 2 of the machine format; this tpsim reads version 1",
            "update tpsim",
        ),
        ("tpsim: machne/1\n", 'error[bad-header]: "machne/1" is not a kind of file', "write tpsim: machine/1"),
        ("tpsim: 1\n", 'error[bad-header]: "1" is not a kind of file', "write tpsim: machine/1"),
    ],
)
def test_the_header_is_checked_before_anything_else(refusal, head, message, remedy):
    lines = refusal("nonsense: 1\n", head=head).splitlines()
    assert lines[0] == message
    assert lines[-1].endswith(f"^ {remedy}")


def test_a_mistake_in_an_override_points_to_the_override():
    document = spec.load("tpsim: machine/1\nname: m\nchips: 4\n", name="m.yaml")
    from_flag = edited(document, [read_override("chips=four")])

    class MachineFile(spec.Strict):
        tpsim: str
        name: str
        chips: int

    with pytest.raises(InputError) as error:
        spec.read(from_flag, MachineFile)
    assert str(error.value) == (
        'error[bad-value]: chips is "four", not a whole number\n'
        " --> command line:1:13\n"
        "  |\n"
        "1 | --set chips=four\n"
        "  |             ^^^^ write a whole number"
    )


def test_read_follows_extends_when_the_format_has_it(machine):
    base = "tpsim: machine/1\nname: base\nchips: 8\nmesh: {a: 1}\n"
    file, document = machine("extends: base\nmesh: {b: 2}\n", extends=lambda name, _: spec.load(base, name=name))
    assert (file.name, file.chips, file.mesh) == ("m", 8, {"a": 1, "b": 2})
    assert document.place("chips").file == "base"


def test_the_schema_says_how_a_quantity_is_written(machine):
    model = type(machine("")[0])
    schema = spec.schema_of(model, "machine.json")
    link = schema["$defs"]["LinkFields"]["properties"]
    assert schema["$id"] == "machine.json"
    assert link["bandwidth"]["examples"] == ["45 GB/s", "400 Gbit/s"]
    assert "|GB/s|" in link["bandwidth"]["pattern"]
    assert "bandwidth" in schema["$defs"]["LinkFields"]["required"]


def test_a_ratio_may_be_a_number_or_a_percentage():
    class RunFields(spec.Strict):
        share: Annotated[float, spec.Quantity("ratio")]

    assert [spec.read(spec.load(f"share: {text}\n"), RunFields)[0].share for text in ("0.5", "50 %")] == [0.5, 0.5]
    assert spec.schema_of(RunFields, "x")["properties"]["share"]["anyOf"][0] == {"type": "number"}


def test_messages_call_a_map_by_a_noun_of_the_domain():
    class LinkFields(spec.Strict): ...

    class AssumeFile(spec.Strict): ...

    class FeedForwardFields(spec.Strict):
        noun = "the feed-forward"

    assert [noun(model) for model in (LinkFields, AssumeFile, FeedForwardFields)] == [
        "a link",
        "an assume",
        "the feed-forward",
    ]


TEXT = "tpsim: machine/1\nname: m\nchips: 8\nmesh: {data: 4, tensor: 2}\n" + LEVEL


@settings(max_examples=200)
@given(st.integers(0, len(TEXT) - 1), st.sampled_from(["", "x", ":", " ", "\n", "0", "-", "{", "\t", '"']))
def test_a_mutated_file_is_refused_with_a_place_or_is_another_valid_file(machine, at, letter):
    text = TEXT[:at] + letter + TEXT[at + 1 :]
    try:
        file, _ = machine(text, head="")
    except InputError as error:
        places = [problem.place for problem in error.problems]
    else:
        places = []
        assert file.tpsim == "machine/1"
    assert all(place and place.line >= 1 for place in places)


class Pace(spec.Value):
    steps: int = 1


def test_a_value_of_a_file_is_changed_unchecked_but_in_its_own_fields_alone():
    assert Pace(steps=2).but(steps=[2, 3]).steps == [2, 3]
    with pytest.raises(TypeError, match="Pace has no step"):
        Pace().but(step=2)
