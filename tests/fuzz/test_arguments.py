"""No argument gets an answer to another question than the one asked, a traceback, or a file that is half written."""

from __future__ import annotations

import re
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.verdict import ran

COMMANDS: dict[str, list[str]] = {
    "plan": ["plan", "--model", "gpt-tiny", "--hw", "tpu-v5e", "--seq", "8", "--tp", "2", "--dp", "2", "--batch", "8"],
    "plan of a scenario": ["plan", "gpt2-xl-a100-dp"],
    "collective": ["collective", "all-gather", "--hw", "dgx-h100", "--ranks", "8", "--sizes", "8MB"],
    "shard": ["shard", "A[I_X,J] -> A[I,J_X]", "--mesh", "X=4", "--dims", "I=64,J=32", "--hw", "tpu-v5e"],
}
"""A command line of each verb that computes."""

OPTIONS: dict[str, list[str]] = {
    "plan": [
        *("--model", "--hw", "--seq", "--tp", "--dp", "--chips", "--mesh", "--zero", "--batch", "--microbatches"),
        *("--dtype", "--placement", "--practice", "--cost-model", "--planner", "--set"),
    ],
    "plan of a scenario": ["--tp", "--chips", "--set"],  # what is read beside a file's own
    "collective": [
        *("--hw", "--ranks", "--level", "--sizes", "--dtype", "--cost-model", "--algorithm", "--protocol", "--launch")
    ],
    "shard": ["--mesh", "--dims", "--hw", "--placement", "--dtype", "--planner", "--cost-model"],
}
NUMBERS = ["0", "-1", "3", "1e30", "9" * 40, "9" * 5000, "nan", "inf", "1.5", "0x10", "1_000", "٤", " 4 ", ""]
LONG = "9" * 5000
TEXTS = [
    f"X={LONG}",
    f"data={LONG},tensor=2",
    "X=_",
    "X=1__0",
    "X=8_",
    "xyzzy",
    ",",
    "=",
    "X=",
    "=4",
    "X=4,X=4",
    "X=0",
    "X=-1",
    "X=1e3",
    "X=4;Y=2",
    "X" * 3000,
    "\x1b[31m",
    "é",
    "-",
    "--",
]
SIZES = ["0 B", "1 B", "8 MB:1 kB", "8 mB", "1e300 B", "1 B:1e300 B", "8 MB,,", "7 us", "1 us", "-1 us", "1e300 s"]
PATHS = [
    "workload.seq",
    "workload.seq=",
    "=3",
    "workload.seq.x=1",
    "workload..seq=1",
    "mesh.data=0",
    "mesh.data=[1",
    "x=1",
]
SETS = [
    "workload.seq=1e3",
    "workload.seq=true",
    "workload.seq=128",
    "layout.tp=xyzzy",
    "model.hidden=-1",
    "tpsim=scenario/2",
]
VALUES = [*NUMBERS, *TEXTS, *SIZES, *PATHS, *SETS]

SAME = {
    ("plan of a scenario", "--zero", "0"),
    ("plan", "--zero", "0"),
    ("plan", "--chips", " 4 "),
    ("plan", "--chips", "٤"),
}
"""What the command line says already."""

CASES = [
    (command, option, value)
    for command in COMMANDS
    for at, option in enumerate(OPTIONS[command])
    for value in VALUES[at % 2 :: 2]
    if (command, option, value) not in SAME
]
"""Every other value: options beside each other have those that the other has not."""


def complaint(args: list[str], shown: str) -> str:
    """What is wrong with the outcome of a command line; `shown` is what the one without the last option answers."""
    code, out, err = ran(*args, "-f", "csv", "-o", "answer.txt")
    written = Path("answer.txt").exists()
    if written:
        Path("answer.txt").unlink()
    if code == 2:
        refused = re.match(r"error\[[a-z0-9-]+\]: \S", err) and ("^ " in err or " = " in err) and len(err) < 6000
        return "" if refused and not out and not written else f"a poor refusal: {err}"
    if code not in (0, 1):
        return f"exit code {code}: {err}"
    return "" if written and out != shown else f"an answer that does not show it: {out[:100]}"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO()))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_argument_is_refused_or_shown_in_the_answer(command):
    shown = ran(*COMMANDS[command], "-f", "csv")[1]
    assert shown
    found = {
        (option, value[:40]): wrong
        for verb, option, value in CASES
        if verb == command and (wrong := complaint([*COMMANDS[command], option, value], shown))
    }
    assert found == {}


def test_the_judge_sees_an_option_that_is_not_read():
    shown = ran(*COMMANDS["plan"], "-f", "csv")[1]
    assert "does not show it" in complaint([*COMMANDS["plan"], "--color", "never"], shown)


RUN = ["verify", "A[I_X,J] -> A[I,J_X]", "--mesh", "X=4", "--dims", "I=64,J=32"]
RUN_OPTIONS = ["--mesh", "--dims", "--hw", "--placement", "--dtype"]


@pytest.mark.parametrize("option", RUN_OPTIONS)
def test_a_wrong_argument_of_a_run_is_refused_or_shown_in_what_was_run(option):
    shown = ran(*RUN, "-f", "json")[1]
    outcomes = {value[:40]: ran(*RUN, option, value, "-f", "json") for value in VALUES}
    assert {value: out for value, (code, out, _) in outcomes.items() if code in (0, 1) and out == shown} == {}
    assert {value: err for value, (code, _, err) in outcomes.items() if code not in (0, 1) and not refused(err)} == {}


@cache
def unchanged(*command: str) -> str:
    """What a command line answers without an edit."""
    return ran(*command, "-f", "json")[1]


@pytest.mark.parametrize(
    "command",
    [["explain", "mfu", "gpt2-xl-a100-dp"], ["diff", "gpt2-xl-a100-dp", "--set", "layout.zero=1"]],
    ids=" ".join,
)
@pytest.mark.parametrize("value", [*PATHS, *SETS, *TEXTS])
def test_a_wrong_edit_is_refused_or_shown_by_every_verb_that_takes_one(command, value):
    code, out, err = ran(*command, "--set", value, "-f", "json")
    assert refused(err) if code == 2 else code in (0, 1) and out != unchanged(*command), err


@pytest.mark.parametrize("value", NUMBERS)
def test_a_least_change_is_a_number_or_refused(value):
    code, out, err = ran("diff", "gpt2-xl-a100-dp", "--set", "layout.zero=1", "--min-change", value, "-f", "json")
    assert refused(err) if code == 2 else code == 0 and '"min_change"' in out, err


VERBS = ["plan", "explain", "verify", "check", "diff", "collective", "shard", "schema"]
NAMED = [
    *([verb] for verb in VERBS),
    ["hw", "show"],
    ["hw", "validate"],
    ["hw", "fit"],
    ["model", "show"],
    ["hw"],
    ["model"],
]


@pytest.mark.parametrize("command", NAMED, ids=" ".join)
def test_a_name_that_nothing_bears_is_refused_by_every_verb(command):
    names = [name for name in [*NUMBERS, *TEXTS, *PATHS] if not name.startswith("-")]
    outcomes = {name[:40]: ran(*command, name) for name in names}
    assert {name: err for name, (code, out, err) in outcomes.items() if code != 2 or out or not refused(err)} == {}


def refused(err: str) -> bool:
    """True for a refusal of the one shape, with a place or a remedy, and not the length of what was given."""
    return bool(re.match(r"error\[[a-z0-9-]+\]: \S", err) and ("^ " in err or " = " in err) and len(err) < 6000)


NOTATION = st.text(st.sampled_from("ABCXYIJK_{},.[]->·→ U'0189=∂é\t"), max_size=30)
"""Texts of the letters that expressions are made of."""

PIECES = st.lists(
    st.sampled_from(
        ["A", "B", "C", "[", "]", "I", "J", "K", "_X", "_Y", "_XY", ",", " ", "{U_X}", "{U_Y}", " . ", " -> "]
    ),
    max_size=24,
).map("".join)


@given(NOTATION | PIECES)
def test_any_expression_is_answered_or_shown_with_a_caret(expression):
    code, out, err = ran("shard", "--mesh", "X=4,Y=2", "--", expression)
    refused = code == 2 and not out and err.startswith("error[") and "^ " in err
    assert (code == 0 and out) or refused, (code, err)


@given(NOTATION, st.sampled_from(["--mesh", "--dims", "--placement"]))
def test_any_sizes_beside_an_expression_are_read_or_refused(text, option):
    code, out, err = ran(*COMMANDS["shard"], option, text)
    assert (code == 0 and out) or (code == 2 and not out and err.startswith("error[")), (code, err)


@given(st.text(st.sampled_from("0189kMGKiB:x+,| .-e"), max_size=16))
def test_any_sizes_of_a_collective_are_read_or_refused(text):
    code, out, err = ran(*COMMANDS["collective"], "--sizes", text)
    assert (code == 0 and out) or (code == 2 and not out and err.startswith("error[")), (code, err)


@given(st.text(st.sampled_from("layout.zerpdtpmshwk=:[]{}#&*!|>-0189'\" \n"), max_size=24))
def test_any_override_is_applied_or_refused(text):
    code, out, err = ran(*COMMANDS["plan"], "--set", text, "-q")
    assert (code in (0, 1) and out) or (code == 2 and not out and err.startswith("error[")), (code, err)
