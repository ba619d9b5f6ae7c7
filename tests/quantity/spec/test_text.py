"""YAML text to data: YAML 1.2 types, and hostile or mistaken text refused with its place."""

from __future__ import annotations

import json
import math
from hashlib import sha256
from io import BytesIO
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tpsim
from tpsim.answers.hw import hw_validate
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.quantity.spec import text as text_module
from tpsim.quantity.spec.catalogue import shipped


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4.5e10", 45_000_000_000),
        ("5e7", 50_000_000),
        ("4.5e0", 4.5),
        ("1e300", 1e300),
        ("8.03e9", 8_030_000_000),
        ("1e3", 1000),
        (".5", 0.5),
        ("1.", 1.0),
        ("010", 10),
        ("-7", -7),
        ("+7", 7),
        ("0o10", 8),
        ("0xff", 255),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("2026-11-20", "2026-11-20"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("45 GB/s", "45 GB/s"),
        ("< 30 s", "< 30 s"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("-.inf", -math.inf),
        ("1" * 5000, "1" * 5000),
        ("=", "="),
        ("[1, a]", [1, "a"]),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_plain_scalars_are_read_as_yaml_1_2_says(text, value):
    read = spec.load(f"x: {text}\n").data["x"]
    assert (read, type(read)) == (value, type(value))


def test_not_a_number_is_read_as_one():
    assert math.isnan(spec.load("x: .nan\n").data["x"])


def test_keys_are_strings_as_in_json():
    assert spec.load("1: a\nno: b\ntrue: c\n2026-11-20: d\n").data == {
        "1": "a",
        "no": "b",
        "true": "c",
        "2026-11-20": "d",
    }


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["C"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("abcdef"), values, max_size=4))
def test_json_is_read_as_json(data):
    assert spec.load(json.dumps(data, indent=1), name="x.json").data == data


def test_json_escapes_beyond_the_16_bit_plane_are_one_character():
    text = r'{"a": "\ud83d\ude00", "b": "\\ud83d\\ude00"}'
    assert spec.load(text, name="x.json").data == {"a": "\U0001f600", "b": r"\ud83d\ude00"}


def test_a_document_knows_its_file_and_the_hash_of_its_bytes(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    document = spec.load(path)
    assert document.data == {"a": 1, "b": 2}
    assert document.path == str(path)
    assert document.sha256 == sha256(path.read_bytes()).hexdigest()


def test_standard_input_is_a_dash(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(b"a: 1\n")))
    assert spec.load("-").data == {"a": 1}


def refused(text):
    with pytest.raises(InputError) as error:
        spec.load(text, name="f.yaml")
    return str(error.value)


def test_a_duplicate_key_is_refused_at_its_second_place():
    assert refused("a:\n  b: 1\n  c: 2\n  b: 3\n") == (
        'error[duplicate-key]: "b" is given twice\n'
        " --> f.yaml:4:3\n"
        "  |\n"
        "4 |   b: 3\n"
        "  |   ^ keep one\n"
        "  = the first one is in line 2"
    )


def test_a_tab_is_named_when_it_indents():
    assert refused("a:\n\t- 1\n") == (
        "error[bad-yaml]: a tab cannot indent YAML\n --> f.yaml:2:1\n  |\n2 | \t- 1\n  | ^ use spaces"
    )


def test_a_colon_inside_a_value_is_explained():
    assert refused("a: b: c\n") == (
        'error[bad-yaml]: a second ": " in one value\n'
        " --> f.yaml:1:5\n"
        "  |\n"
        "1 | a: b: c\n"
        "  |     ^ quote the value, or check the indentation"
    )


def test_an_unclosed_bracket_is_shown_at_the_end_of_the_text():
    assert refused("a: 1\nb: [1,\n\n") == (
        "error[bad-yaml]: did not find expected node content\n"
        " --> f.yaml:2:7\n"
        "  |\n"
        "2 | b: [1,\n"
        "  |       ^ close what is open, and quote what is text\n"
        "  = while parsing a flow node that starts in line 4"
    )


@pytest.mark.parametrize(
    ("text", "first_lines"),
    [
        ("", "error[empty-file]: the file is empty\n --> f.yaml"),
        ("# only a comment\n", "error[empty-file]: the file is empty\n --> f.yaml"),
        ("- a\n- b\n", "error[not-a-map]: the file holds a list\n --> f.yaml:1:1"),
        ("just text\n", "error[not-a-map]: the file holds a single value\n --> f.yaml:1:1"),
        ("a: 1\n---\nb: 2\n", "error[several-documents]: a second document starts here\n --> f.yaml:2:1"),
        ("a: !!python/name:os.system x\n", "error[tag]: a YAML tag stands here\n --> f.yaml:1:4"),
        ("!t a: 1\n", "error[bad-key]: this key is not a plain name\n --> f.yaml:1:1"),
        ("? [a]\n: b\n", "error[bad-key]: this key is not a plain name\n --> f.yaml:1:3"),
        ("<<: {a: 1}\n", "error[merge-key]: YAML merge keys are not read\n --> f.yaml:1:1"),
        ("a: *b\n", 'error[unknown-alias]: no "&b" stands before this\n --> f.yaml:1:4'),
        ("a: &x [*x]\n", 'error[unknown-alias]: no "&x" stands before this\n --> f.yaml:1:8'),
        (
            "a: \x01\n",
            "error[bad-yaml]: YAML forbids this character: control characters are not allowed\n --> f.yaml:1:4",
        ),
        ("a: 1\nb: @c\n", "error[bad-yaml]: found character that cannot start any token\n --> f.yaml:2:4"),
    ],
)
def test_text_that_is_no_single_map_of_plain_values_is_refused(text, first_lines):
    assert "\n".join(refused(text).splitlines()[:2]) == first_lines


def test_an_alias_stands_for_a_copy_of_its_anchor():
    document = spec.load("a: &x {n: [1]}\nb: *x\n")
    assert document.data == {"a": {"n": [1]}, "b": {"n": [1]}}
    assert document.data["a"] is not document.data["b"]
    assert document.place("b", "n").text == "b: *x"


def test_an_alias_explosion_is_refused_before_it_unfolds():
    lines = ["a0: &x0 [1, 1]"] + [f"a{n}: &x{n} [*x{n - 1}, *x{n - 1}]" for n in range(1, 45)]
    assert "aliases unfold to more than 10,000 entries" in refused("\n".join(lines))


def test_aliases_cannot_nest_deeper_than_a_file_may():
    lines = ["a0: &x0 [1]"] + [f"a{n}: &x{n} [*x{n - 1}]" for n in range(1, 300)]
    assert "aliases unfold to a file nested more than 50 deep" in refused("\n".join(lines))


BLOCKS = "".join(" " * depth + "a:\n" for depth in range(900))


@pytest.mark.parametrize("text", ["x: " + "[" * 100_000, "x: " + "{a: " * 100_000, "x:\n  " + "- " * 100_000, BLOCKS])
def test_deep_nesting_is_refused_without_a_crash(text):
    assert "the file is nested more than 50 deep" in refused(text)


def test_a_large_file_is_refused_unread(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("a: 1\n" * 300_000)
    with pytest.raises(InputError, match="the file is larger than 1 MB"):
        spec.load(path)


def test_a_file_of_too_many_entries_is_refused():
    assert "the file holds more than 100,000 entries" in refused("a: [" + "1," * 150_000 + "]")


def test_bytes_that_are_not_utf8_are_refused(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: caf\xe9\n")
    with pytest.raises(InputError) as error:
        spec.load(path)
    assert str(error.value) == (
        f"error[not-utf8]: the file is not UTF-8 text: byte 7 is not valid\n --> {path}\n  = save it as UTF-8"
    )


def test_a_missing_file_names_the_one_that_was_meant(tmp_path):
    (tmp_path / "cluster.yaml").write_text("a: 1\n")
    with pytest.raises(InputError) as error:
        spec.load(tmp_path / "clutser.yaml")
    assert str(error.value) == (
        f'error[no-such-file]: there is no file {tmp_path}/clutser.yaml\n  = did you mean "{tmp_path}/cluster.yaml"?'
    )


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="is a folder, not a file"):
        spec.load(tmp_path)


def test_a_name_with_a_null_byte_is_no_file():
    with pytest.raises(InputError, match="there is no file"):
        spec.load("a\x00.yaml")


@given(st.text(st.sampled_from("ab:- \n[]{},&*!|>'\"%@#?\t1.~<\x00\x85é深"), max_size=40))
def test_any_text_is_read_or_refused_with_a_line_that_it_has(text):
    try:
        document = spec.load(text, name="f.yaml")
    except InputError as error:
        problem = error.problems[0]
        assert problem.place.line <= len(text.splitlines()) + 1  # both ways out are right
    else:
        assert isinstance(document.data, dict)


def test_a_text_is_read_once_and_errors_stand_in_the_file_that_was_asked_for():
    first = spec.load("a: {b: [1]}\n", name="first.yaml")
    assert spec.load("a: {b: [1]}\n", name="first.yaml") is first
    assert spec.load("a: {b: [1]}\n", name="second.yaml").place("a").file == "second.yaml"
    assert spec.load("a: {b: [2]}\n", name="first.yaml").data == {"a": {"b": [2]}}


def test_no_request_changes_a_text_that_was_read():
    files = [path for kind in ("hardware", "chips", "scenarios") for path in shipped(kind).glob("*.yaml")]
    read = {path: spec.load(path) for path in files}
    hw_validate()
    tpsim.plan("llama3-70b-h100", overrides=["hardware.levels.nvlink.link.bandwidth=1 GB/s", "layout.zero=3"]).to_json()
    tpsim.plan("mixtral-8x7b-h100", hw="dgx-h200").to_json()
    for path, document in read.items():
        assert spec.load(path) is document
        assert text_module._document(path.read_bytes(), str(path), text_module.WRITTEN).data == document.data
