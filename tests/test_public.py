"""The Python API: the verbs as functions, typed and documented, each with a frame and a document."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import yaml

import tpsim
from tests.models import SMALL_SCENARIO
from tpsim.cli.main import tpsim as group
from tpsim.quantity.errors import InputError

LOGS = Path(__file__).parent / "data" / "logs"
GROUPS = ("scenario", "hw", "model")
FUNCTIONS = {
    **{name: getattr(tpsim, name) for name in tpsim.ROOMS},
    **{
        f"{name}.{word}": getattr(getattr(tpsim, name), word)
        for name in GROUPS
        for word in getattr(tpsim, name).__all__
    },
}


def test_every_verb_is_a_function_or_a_module_of_its_words():
    ctx = click.Context(group)
    verbs = {name: group.get_command(ctx, name) for name in group.list_commands(ctx)}
    assert set(verbs) <= set(dir(tpsim))
    words = {name: list(verb.commands) for name, verb in verbs.items() if isinstance(verb, click.Group)}
    assert {name: sorted(getattr(tpsim, name).__all__) for name in GROUPS} == {n: sorted(w) for n, w in words.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_has_a_type_and_is_documented(name):
    function = FUNCTIONS[name]
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    untyped = [one.name for one in signature.parameters.values() if one.annotation is inspect.Parameter.empty]
    words = set(re.findall(r"\w+", function.__doc__))
    assert (untyped, [one for one in signature.parameters if one not in words]) == ([], [])


def test_one_name_is_no_list_of_letters():
    assert [one.name for one in tpsim.hw.validate("dgx-h100").profiles] == ["dgx-h100"]
    assert tpsim.check(Path("scenarios/gpt2-xl-a100-dp.yaml")).ok


def test_importing_tpsim_loads_none_of_its_rooms():
    code = "import sys, tpsim; print([name for name in sys.modules if name.startswith('tpsim.')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_types_reach_who_installs_tpsim():
    assert (Path(tpsim.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("verb", ["plan", "search", "explain", "verify", "diff"])
def test_one_text_where_a_list_of_overrides_is_due_is_answered_with_the_list(verb):
    """Each of its letters was taken for an override: "l" sets nothing."""
    asked = {"explain": ("mfu", "qwen2-7b-h100")}.get(verb, ("qwen2-7b-h100",))
    with pytest.raises(InputError, match=r'write overrides=\["layout.zero=3"\]'):
        getattr(tpsim, verb)(*asked, overrides="layout.zero=3")


def test_one_text_where_a_list_of_what_varies_is_due_is_answered_with_the_list():
    with pytest.raises(InputError, match=r'write vary=\["zero=1,3"\]'):
        tpsim.search("qwen2-7b-h100", vary="zero=1,3")


TYPED = {
    "collective": {"name": "all-reduce", "hw": "dgx-h100", "ranks": 8},
    "search": {"scenario": "qwen2-7b-h100", "tp": 4, "dp": 16},
    "sweep": {"scenario": "qwen2-7b-h100", "folder": "runs"},
    "shard": {"expr": "A[I, J_X]"},
    "verify_expression": {"expr": "A[I, J_X]"},
    "explain": {"name": "all_reduce"},
    "schema": {"name": "plan"},
    "check": {},
    "hw.show": {"name_or_path": "dgx-h100"},
    "hw.validate": {},
    "hw.fit": {"base": "dgx-h100"},
    "model.show": {"name_or_path": "llama-3-8b"},
}
"""What else each function needs, of those that take numbers, texts or switches."""
WRONG = {
    "int": [("8", "a whole number", "8, without quotes"), (8.0, "a whole number", "8"), (True, "a whole number", None)],
    "bool": [("no", "True or False", None)],
    "str": [(3, "text", None), (["a", "b"], "text", '{}="a,b"'), ({"a": 1}, "text", '{}="a=1"')],
}


def typed():
    for name, function in FUNCTIONS.items():
        for one in inspect.signature(function).parameters.values():
            kind = one.annotation.removesuffix(" | None").removesuffix(" | Path")
            for value, due, write in WRONG.get(kind, ()):
                yield pytest.param(name, one.name, value, due, write, id=f"{name}-{one.name}-{type(value).__name__}")


@pytest.mark.parametrize(("name", "argument", "value", "due", "write"), list(typed()))
def test_an_argument_of_another_type_is_refused_by_name_with_what_to_write(name, argument, value, due, write):
    """Most ended in what Python says of two values that cannot be compared, and names no argument."""
    with pytest.raises(InputError) as error:
        FUNCTIONS[name](**{**TYPED[name], argument: value})
    (problem,) = error.value.problems
    assert problem.message.startswith(f"{argument} is ")
    assert problem.message.endswith(f", not {due}")
    assert problem.remedy == f"write {due if write is None else write.format(argument)}"


def test_what_is_raised_on_purpose_can_be_caught_by_a_public_name():
    with pytest.raises(tpsim.InputError):
        tpsim.plan("no-such-scenario")
    with pytest.raises(tpsim.TpsimError):
        tpsim.shard("A[I")
    assert issubclass(tpsim.InputError, tpsim.TpsimError)
    assert {"InputError", "TpsimError"} < set(dir(tpsim))


def test_a_mapping_without_a_header_is_not_called_a_file():
    """It was told of a first line."""
    with pytest.raises(tpsim.InputError) as error:
        tpsim.plan({"model": "llama-3-8b"})
    (problem,) = error.value.problems
    assert (problem.message, problem.remedy) == (
        "the mapping does not say what it is",
        'add "tpsim": "scenario/1"',
    )


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("set", r'write overrides=\["layout.zero=3"\]'),
        ("save", r"plan\.to_yaml\(\)"),
        ("sweep", r"tpsim\.sweep\("),
        ("format", r"to_frame\(\) and to_json\(\)"),
    ],
)
def test_an_option_that_is_no_argument_is_told_what_is_instead(option, told):
    """`set=` was told `did you mean --seq?`, the others nothing."""
    with pytest.raises(tpsim.InputError, match=told):
        tpsim.search("qwen2-7b-h100", chips=64, **{option: "x"})


def test_an_answer_and_a_text_are_no_scenario_and_told_what_is():
    """An answer was told to have no header, a text to be no file."""
    made = tpsim.plan(model="gpt-tiny", hw="dgx-h100", seq=16, batch=2, dp=2)
    for given, told in ((made, "a PlanResult is an answer"), (made.step, "a PlanStep is an answer")):
        with pytest.raises(tpsim.InputError, match=f"{told}, not a scenario"):
            tpsim.plan(given)
    with pytest.raises(tpsim.InputError, match="a scenario's text stands where its file or its name is due"):
        tpsim.plan(made.to_yaml())
    assert tpsim.plan(yaml.safe_load(made.to_yaml())).step.time_s == made.step.time_s


def test_the_best_of_a_search_is_asked_for_again_by_its_own_scenario(tmp_path):
    best = tpsim.search("qwen2-7b-h100", chips=64, tp=2, recompute="none", top=1).best
    assert best is not None
    (tmp_path / "best.yaml").write_text(best.plan.to_yaml(tmp_path), encoding="utf-8")
    assert tpsim.plan(tmp_path / "best.yaml").step.time_s == best.step_s


def test_frames_of_layouts_can_be_grouped_joined_and_told_apart():
    """Their meshes were maps, which pandas cannot hash."""
    frame = tpsim.search("qwen2-7b-h100", chips=64, tp=2, recompute="none", top=3).to_frame()
    assert frame["mesh"].unique().tolist() == ["data=32,tensor=2"]
    assert len(frame.drop_duplicates()) == len(frame) == 3
    assert tpsim.plan("qwen2-7b-h100", tp=2, dp=32).to_frame()["mesh"].unique().tolist() == ["data=32,tensor=2"]


def test_whole_numbers_of_numpy_and_paths_are_taken():
    told = tpsim.collective("all-reduce", hw=Path("hardware/dgx-h100.yaml"), ranks=np.int64(8), sizes=np.array([1e6]))
    assert told.rows[0].ranks == 8


@pytest.mark.parametrize("sizes", [["1MB", "8MB"], [], [None], float("nan"), float("inf"), {}, 0.5])
def test_sizes_that_are_no_whole_numbers_are_refused(sizes):
    with pytest.raises(InputError, match="is not a whole number of bytes"):
        tpsim.collective("all-reduce", hw="dgx-h100", ranks=8, sizes=sizes)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mesh": {"X": "4"}}, r'mesh\.X is "4", not a whole number'),
        ({"mesh": {"X": -1}}, r"mesh\.X is -1\n  = it must be at least 1"),
        ({"mesh": {"X": 4.0}}, r"mesh\.X is 4\.0, not a whole number\n  = write 4"),
        ({"mesh": ["X=4"]}, r'mesh is a list, not text or a map of sizes\n  = write mesh="X=4,Y=2"'),
        ({"dims": {"I": "8", "J": 8}}, r'dims\.I is "8", not a whole number'),
        ({"dims": {"I": -8, "J": 8}}, r"dims\.I is -8\n  = it must be at least 1"),
        ({"placement": ["X=nvlink"], "hw": "dgx-h100"}, r'placement is a list.*\n  = write placement="X=nvlink"'),
    ],
)
@pytest.mark.parametrize("verb", ["shard", "verify_expression"])
def test_the_sizes_of_an_expression_are_whole_numbers(verb, asked, said):
    """A mesh of -1 devices was answered with a way over it."""
    with pytest.raises(InputError, match=said):
        getattr(tpsim, verb)("A[I, J_X]", **asked)


@pytest.mark.parametrize("values", ["x", {}, None, [None], [float("nan")], [float("inf")]])
@pytest.mark.parametrize("argument", ["batches", "contexts"])
def test_a_grid_is_of_numbers(argument, values):
    with pytest.raises(InputError, match=rf"{argument} are not numbers\n  = write {argument}=\[8, 16\]"):
        tpsim.grid("deepseek-v3-h100-decode", **{"batches": [8], "contexts": [8], argument: values})


def test_chips_as_text_are_refused_beside_a_size_too():
    """They were compared with a number; of a file, too, whose chips stand in quotes."""
    for scenario, flags in (("qwen2-7b-h100", {"chips": "64"}), ({**SMALL_SCENARIO, "chips": "64"}, {})):
        with pytest.raises(InputError, match='chips is "64", not a whole number'):
            tpsim.plan(scenario, tp=4, **flags)


@pytest.mark.parametrize("flag", ["mesh", "placement"])
def test_a_map_where_a_flag_is_text_is_refused_with_the_text(flag):
    with pytest.raises(InputError, match=rf'{flag} is a map, not text\n  = write {flag}="tensor=8"'):
        tpsim.plan("qwen2-7b-h100", **{flag: {"tensor": 8}})


@pytest.mark.parametrize("verb", ["plan", "search", "explain", "verify", "diff"])
def test_overrides_as_a_map_are_refused_with_the_list(verb):
    """Their values went unread: vary={"zero": [1, 3]} searched all stages of ZeRO."""
    asked = {"explain": ("mfu", "qwen2-7b-h100")}.get(verb, ("qwen2-7b-h100",))
    with pytest.raises(InputError, match=r'write overrides=\["layout.zero=3"\]'):
        getattr(tpsim, verb)(*asked, overrides={"layout.zero": 3})
    for nothing in (None, [3]):
        with pytest.raises(InputError, match="overrides is a list of texts"):
            getattr(tpsim, verb)(*asked, overrides=nothing)


def test_what_varies_as_a_map_is_refused_with_the_list():
    with pytest.raises(InputError, match=r'write vary=\["zero=1,3", "tp=4"\]'):
        tpsim.search("qwen2-7b-h100", vary={"zero": [1, 3], "tp": 4})
