"""What a lock says that a number is made with: no other constant of the machine moves it, and most of these can."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.changes import GUARDED
from tpsim.answers.plan import priced
from tpsim.guard.lock import Lock
from tpsim.guard.lock_of_plans import asked_facts, facts
from tpsim.guard.lock_of_result import recorded
from tpsim.guard.moved_numbers import Moved, moved_in
from tpsim.machine.parts import changed
from tpsim.question.memo import Memo
from tpsim.question.scenario import resolve

ASKED = {
    "two levels": ("llama3-70b-h100", ()),
    "compute that hides": ("gemma-7b-v5e", ()),
    "by the book": ("llama3-70b-h100", ("cost_model=book",)),
    "forced": ("llama3-70b-h100", ("collectives={algorithm: ring, launch: framework}",)),
    "cheapest": (str(GUARDED / "scenarios/node.yaml"), ("planner=cheapest",)),
    "demands": ("llama3-8b-v5e", ("require={step: < 1.67 s, mfu: '> 40 %', memory: < 60 GB}",)),
    "a reply": ("llama3-70b-h100-decode", ("require={ttft: < 2 s, tpot: < 20 ms}",)),
    "drafts": (
        "llama3-70b-h100-decode",
        ("workload.speculation={tokens: 2, acceptance: 0.7, draft: llama-3-8b, layout: {}}", "require.tpot=< 20 ms"),
    ),
    "pieces of prompts": (
        "llama3-70b-h100-decode",
        ("workload.step_tokens=512", "require={ttft: < 2 s, tpot: < 20 ms}"),
    ),
    "a module that drafts": (
        "deepseek-v3-h100-decode",
        ("workload.batch=2048", "workload.speculation={tokens: 1, acceptance: 0.85, draft: mtp}"),
    ),
    "servers of prompts": ("llama3-70b-h100-disaggregated", ("require={ttft: < 2 s, tpot: < 20 ms}",)),
    "its own machine": (
        "llama3-8b-v5e",
        ("hardware={extends: tpu-v5e, levels: {ici: {link: {bandwidth: 50 GB/s}}}}",),
    ),
}
FACTORS = {"two levels": (0.01, 300.0), "compute that hides": (0.01, 300.0), "demands": (0.01, 300.0)}
"""Of a constant that moves; of the others, which take longer, ten times as much."""

EVERY = {
    "by the book": 3,
    "forced": 3,
    "cheapest": 9,
    "its own machine": 3,
    "a reply": 2,
    "drafts": 3,
    "a module that drafts": 9,
    "servers of prompts": 2,
}
"""One constant in so many is moved: these ask the first case's machines, or the third's, in another way."""


@cache
def plan_of(case):
    name, overrides = ASKED[case]
    return priced(resolve(name, overrides=overrides))


def held(plan):
    """A lock of the plan, which says what its numbers are made with."""
    return asked_facts({plan.question.name: plan}, Path())


@cache
def before(case):
    return held(plan_of(case))


@cache
def constants(case):
    """The paths of a machine's constants, and those among them that the scenario states itself."""
    question = plan_of(case).question
    base = {one.path: one for one in question.base_machine.constants()}
    return [one.path for one in question.machine.constants() if base[one.path] == one]


def perturbed(case, path, factor):
    """The plan on a machine with one constant a factor larger; one that is 0 gets something."""

    def larger(one):
        return one.but(value=(one.value or 1e-3) * factor) if one.path == path else one

    question = plan_of(case).question
    machines = {name: changed(getattr(question, name), larger) for name in ("machine", "base_machine")}
    prompts = replace(question.prompts, **machines) if question.prompts else None
    return priced(replace(question, **machines, prompts=prompts), plan_of(case).memo)


def names(lock, moved):
    return {name for part in lock.made_with(moved.scenario, moved.part, moved.quantity) for name in part}


def constant(case, path):
    """What the lock calls a constant."""
    (machine,) = before(case).constants
    return f"{machine}.{path}"


@cache
def perturbations(case):
    """For every constant and factor: the numbers that moved, and the plan in which they did."""
    as_is, name = recorded(plan_of(case)), plan_of(case).question.name
    found = []
    for path in constants(case)[:: EVERY.get(case, 1)]:
        for factor in FACTORS.get(case, (10.0,)):
            plan = perturbed(case, path, factor)
            found.append((path, plan, list(moved_in(name, as_is, recorded(plan)))))
    return found


@pytest.mark.parametrize("case", ASKED)
def test_no_constant_moves_a_number_that_is_not_made_with_it(case):
    assert any(moved for _, _, moved in perturbations(case))
    for path, plan, moved in perturbations(case):
        name = constant(case, path)
        left = [one for one in moved if name not in names(before(case), one)]
        after = held(plan) if left else before(case)  # what a constant brings is made with it afterwards
        assert [one for one in left if name not in names(after, one)] == [], path


def test_what_servers_of_prompts_come_to_is_made_with_the_figures_of_their_own_machine():
    question = resolve(
        "llama3-70b-h100-disaggregated", overrides=["prefill.hardware=dgx-a100", "prefill.mesh.tensor=8"]
    )
    plan = priced(question)
    lock, machine = held(plan), question.prompts.machine
    assert {*lock.constants} == {"dgx-h100", "dgx-a100"}
    for path, quantity in (("levels.network.link.bandwidth", "transfer_s"), ("chip.memory.bandwidth", "ttft_s")):
        slower = changed(machine, lambda one, path=path: one.but(value=one.value / 10) if one.path == path else one)
        again = priced(replace(question, prompts=replace(question.prompts, machine=slower)), plan.memo)
        moved = {one.quantity: one for one in moved_in(question.name, recorded(plan), recorded(again))}
        assert {quantity, "reply_s"} == {*moved}
        assert all(f"dgx-a100.{path}" in names(lock, one) for one in moved.values())


def test_whether_states_fit_hangs_on_the_memory_of_servers_of_prompts_too():
    question = resolve("llama3-70b-h100-disaggregated", overrides=["prefill.hardware=dgx-a100"])
    plan, path = priced(question), "chip.memory.capacity"
    less = changed(question.prompts.machine, lambda one: one.but(value=3e10) if one.path == path else one)
    again = priced(replace(question, prompts=replace(question.prompts, machine=less)), plan.memo)
    (fit,) = (one for one in moved_in(question.name, recorded(plan), recorded(again)) if one.quantity == "states_fit")
    assert (fit.old, fit.new) == (True, False)
    assert f"dgx-a100.{path}" in names(held(plan), fit)


NOT_TAKEN = ("pat", "in-switch", "tree", "flat-ring", "ll128")
"""Ways that a library weighs and leaves: their constants decide, but not by these factors."""


@pytest.mark.parametrize(("case", "most"), [("two levels", 15), ("compute that hides", 0)])
def test_most_constants_that_collectives_are_made_with_can_move_their_seconds(case, most):
    seconds = [Moved(plan_of(case).question.name, call, "time_s", 0, 0) for call in calls(case)]
    made = {name for one in seconds for name in names(before(case), one)} & {constant(case, p) for p in constants(case)}
    found = perturbations(case)
    moves = {constant(case, path) for path, _, moved in found if any(one.quantity == "time_s" for one in moved)}
    stuck = made - moves
    assert moves <= made
    assert len(stuck) <= most < len(moves)
    assert all(any(f".{way}." in name for way in NOT_TAKEN) for name in stuck)


def calls(case):
    (fact,) = before(case).scenarios.values()
    return fact.calls


@pytest.mark.parametrize("case", ASKED)
def test_every_constant_and_formula_that_a_timing_names_is_a_fact_of_the_lock(case):
    plan, memo = plan_of(case), Memo()
    lock = facts({"x": plan}, Lock.empty(), Path(), memo, texts=False)
    known, (machine,) = set(map(str, lock.facts)), lock.constants
    for row in plan.rows:
        own = [path for path in row.timing.constants if path in constants(case)]
        own_name, its_name = f".{plan.question.machine.name}.", f".{machine}."  # a lock may call it by its file
        said = {name.replace(own_name, its_name) for name in row.timing.formulas}
        assert said
        assert {f"{machine}.{path}" for path in own} | said <= known


def test_what_a_scenario_states_of_its_machine_is_no_fact_of_the_machine():
    case = "its own machine"
    path = "levels.ici.link.bandwidth"
    assert path not in constants(case)
    assert constant(case, path) not in {name for part in before(case).uses.values() for name in part}


def test_seconds_of_a_prompt_are_made_with_what_its_reply_is_not():
    """Collectives of a prompt are launched one by one, those of decoding from a graph."""
    launch = constant("a reply", "levels.nvlink.launch.threads")
    made = {
        quantity: names(before("a reply"), Moved("llama3-70b-h100-decode", None, quantity, 0, 0))
        for quantity in ("ttft_s", "reply_s", "step_s", "require.ttft", "require.tpot")
    }
    assert [quantity for quantity, used in made.items() if launch in used] == ["ttft_s", "reply_s", "require.ttft"]


def test_what_a_draft_is_made_with_is_known_of_its_tokens_and_not_of_the_step_that_verifies_them():
    """Its model's fields and its program, which is another one here: no collective is in it."""
    name, *_ = ASKED["drafts"]
    made = {quantity: names(before("drafts"), Moved(name, None, quantity, 0, 0)) for quantity in MADE}
    of_draft = {quantity: [use for use in used if use.startswith("llama-3-8b.")] for quantity, used in made.items()}
    assert [quantity for quantity, used in of_draft.items() if used] == [*MADE[2:]]
    assert "llama-3-8b.hidden" in of_draft["tpot_s"]


def test_a_lock_notices_another_acceptance_and_another_draft():
    """The step that verifies is the same; of another draft memory moves, too."""
    name, overrides = ASKED["drafts"]
    moved = {
        change: {
            number.quantity
            for number in moved_in(name, before("drafts"), held(priced(resolve(name, overrides=[*overrides, change]))))
        }
        for change in ("workload.speculation.acceptance=0.71", "workload.speculation.layout=null")
    }
    acceptance, layout = moved.values()
    assert acceptance == {"tpot_s", "reply_s"}
    assert layout == {"tpot_s", "reply_s", "parameters_bytes", "cache_bytes", "peak_bytes"}


def test_a_lock_notices_another_number_of_tokens_of_a_step():
    """A step that decodes alone is the same."""
    name, (_, *others) = ASKED["pieces of prompts"]
    new = held(priced(resolve(name, overrides=["workload.step_tokens=320", *others])))
    moved = {number.quantity for number in moved_in(name, before("pieces of prompts"), new)}
    assert moved == {"ttft_s", "tpot_s", "reply_s", "peak_bytes"}


MADE = ("ttft_s", "step_s", "tpot_s", "reply_s", "parameters_bytes", "cache_bytes", "peak_bytes", "require.tpot")
