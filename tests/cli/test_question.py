"""The flags that ask a question: one declaration, the same for `plan`, `diff`, `verify` and `explain`."""

from __future__ import annotations

import json
import shlex

import click
import pytest

from tpsim.cli.main import tpsim as group
from tpsim.cli.options import FLAGS
from tpsim.question.edits import Flags

VERBS = ("plan", "diff", "verify", "explain")
SMALL = "gpt3-175b-a100-tp8"


def options(verb):
    """The options of a verb by their first name, with all that help says of them."""
    command = group.get_command(click.Context(group), verb)
    with click.Context(command) as ctx:
        return {one.name: (one.opts, one.secondary_opts, one.get_help_record(ctx)) for one in command.params}


def test_every_verb_that_takes_a_scenario_has_every_flag_under_the_same_name_with_the_same_help():
    of_plan = {name: option for name, option in options("plan").items() if name in (*FLAGS, "overrides")}
    assert len(of_plan) == len(FLAGS) + 1
    for verb in VERBS:
        assert of_plan.items() <= options(verb).items(), verb


def test_python_has_the_flags_of_the_command_line():
    assert list(Flags.__annotations__) == list(FLAGS)


CHANGED = [("--zero", "3"), ("--no-sp",), ("--hw", "dgx-h100"), ("--microbatches", "2", "--cost-model", "book")]


@pytest.mark.parametrize("flags", CHANGED, ids=" ".join)
def test_a_flag_of_diff_changes_the_new_side_as_it_changes_a_plan(tpsim, flags):
    moved = tpsim("diff", "gpt2-xl-a100-dp", *flags, "-f", "json")
    assert moved.code == 0, moved.err
    assert json.loads(moved.out)["resolved"]["new"] == shlex.join(["gpt2-xl-a100-dp", *flags])
    old, new = (step_s(tpsim("plan", "gpt2-xl-a100-dp", *more, "-f", "json")) for more in ((), flags))
    changes = json.loads(moved.out)["result"]["changes"]
    assert [(one["old"], one["new"]) for one in changes if one["quantity"] == "step_s"] == [(old, new)] * (old != new)


def step_s(ran):
    return json.loads(ran.out)["result"]["step"]["time_s"]


@pytest.mark.parametrize("flag", ["--zero=3", "--tp=2"])
@pytest.mark.parametrize("side", ["plan.json", "tpsim.lock"])
def test_a_flag_of_diff_is_refused_for_a_side_that_is_saved(tpsim, flag, side):
    ran = tpsim("diff", "gpt2-xl-a100-dp", side, flag)
    assert (ran.code, ran.out) == (2, "")
    saved = "result" if side.endswith(".json") else "lock"
    name = flag.partition("=")[0]
    assert ran.err == (
        f"error[nothing-to-set]: {name} changes a scenario, and {side} is a saved {saved}\n  = name the scenario\n"
    )


def test_verify_runs_what_the_flags_make_of_a_scenario(tpsim):
    ran = tpsim("verify", SMALL, "--sp", "--zero", "1", "--tp", "4", "--dp", "2", "--batch", "2")
    assert ran.code == 0, ran.err
    assert "stands for  data 2 x tensor 4, 96 layers, 1 microbatch" in ran.out
    assert "reduce_scatter" in tpsim("plan", SMALL, "--sp").out
    assert ran.out.splitlines()[-1] == f"next: tpsim plan {SMALL} --tp 4 --dp 2 --sp --zero 1 --batch 2"


ALONE = ("--model", "gpt-tiny", "--hw", "tpu-v5e", "--tp", "2", "--dp", "2", "--sp", "--batch", "8", "--seq", "16")


@pytest.mark.parametrize("verb", [("plan",), ("verify",), ("explain", "step.time_s")], ids=" ".join)
def test_flags_alone_ask_every_verb_and_the_next_command_keeps_them(tpsim, verb):
    ran = tpsim(*verb, *ALONE)
    assert ran.code == 0, ran.err
    following = shlex.split(ran.out.splitlines()[-1].removeprefix("next: tpsim "))
    assert [word for word in following if word in ALONE] == list(ALONE)
    assert tpsim(*following).code == 0


def test_a_flag_that_no_expression_takes_is_refused_and_dims_of_a_scenario_too(tpsim):
    ran = tpsim("verify", "A[I_X,J] -> A[I,J]", "--tp", "4")
    assert ran.err.startswith("error[bad-usage]: --tp belongs to scenarios\n  = write: tpsim verify ")
    ran = tpsim("verify", SMALL, "--dims", "I=4")
    assert ran.err == "error[bad-usage]: --dims belongs to an expression\n  = use --set for scenarios\n"


def test_an_expression_takes_several_placements(tpsim):
    asked = ("A[I_XY,J] -> A[I_X,J]", "--mesh", "X=2,Y=2", "--hw", "tpu-v5p")
    apart = tpsim("verify", *asked, "--placement", "X=ici.0", "--placement", "Y=ici.1")
    assert apart.code == 0, apart.err
    assert apart.out == tpsim("verify", *asked, "--placement", "X=ici.0,Y=ici.1").out
