"""What a plan says in three lines: no word promises more than what was counted, and no change less than it brings."""

from __future__ import annotations

import json

import pytest

from tpsim.answers.changes import LEAST
from tpsim.answers.plan import plan

BASE = "llama3-70b-h100"
TIGHT = {"model": "llama-3-8b", "hw": "tpu-v5e", "tp": 4, "dp": 16, "seq": 4096, "batch": 64}
"""States of 36 GB on chips of 16 GB."""
WIDE = {"model": "gemma-7b", "hw": "dgx-h100", "dp": 8, "seq": 8192, "batch": 512, "zero": 3}
"""States of 19 GB, and logits of 268 GB, on chips of 80 GB."""
ASKED = {
    "fitting": {"scenario": BASE},
    "tight": TIGHT,
    "wide": WIDE,
    "bound by communication": {**TIGHT, "hw": "dgx-h100", "batch": 16},
    "outlasting": {"scenario": "megatron-530b-a100"},
    "a table": {"scenario": "llama2-13b-hsdp-h100"},
    "one chip": {"model": "gpt-tiny", "hw": "tpu-v5e", "batch": 1, "seq": 16},
}


def lines(answer):
    return {line.label: line.text for line in answer.lines}


@pytest.fixture(scope="module")
def answers():
    return {name: plan(**asked) for name, asked in ASKED.items()}


def test_the_verdict_is_its_lines_each_after_its_label(answers):
    for answer in answers.values():
        said = answer.verdict.splitlines()
        assert [line.split()[0] for line in said] == ["time", "memory", "change"][: len(said)]
        assert [line[8:] for line in said] == [line.text for line in answer.lines]


# Memory -------------------------------------------------------------------------------------------------------------


def test_nothing_is_said_to_fit_while_activations_are_not_counted(answers):
    assert lines(answers["fitting"])["memory"] == "states 56.23 GB of 80 GB; activations not counted"
    assert lines(answers["tight"])["memory"] == "DOES NOT FIT: states take 36.14 GB of 16 GB; activations not counted"
    assert not any(word in answer.verdict for answer in answers.values() for word in ("fits", "before activations"))


def test_fits_is_false_where_states_alone_do_not_and_null_elsewhere(answers):
    said = {name: json.loads(json.dumps(answer.to_json()))["result"]["memory"] for name, answer in answers.items()}
    assert {name for name, held in said.items() if held["fits"] is False} == {"tight"}
    assert {held["fits"] for held in said.values()} == {False, None}
    assert said["tight"]["verdict"] == lines(answers["tight"])["memory"]


def test_logits_that_do_not_fit_beside_states_are_said_to(answers):
    assert lines(answers["wide"])["memory"] == (
        "states 19.21 GB of 80 GB; logits of 268.4 GB do not fit beside them; other activations not counted"
    )
    assert [line.ok for line in answers["wide"].lines] == [True, False, True]
    assert "logits" not in lines(answers["fitting"])["memory"]


def test_a_step_that_cannot_run_is_timed_as_if_it_could(answers):
    for name, answer in answers.items():
        assert (" a step if it fitted: " in lines(answer)["time"]) == (name == "tight")


def test_a_demand_on_memory_is_held_against_states_and_broken_where_memory_stands():
    held, broken = (plan(BASE, overrides=[f"require={{memory: < {room} GB}}"]) for room in (60, 50))
    assert (held.ok, broken.ok) == (True, False)
    assert lines(broken)["memory"].endswith("; require memory < 50 GB is violated")
    assert {line.label: line.ok for line in broken.lines} == {"time": True, "memory": False}
    assert "violated" not in held.verdict + lines(broken)["time"]


# Time ---------------------------------------------------------------------------------------------------------------


def test_what_bounds_a_step_stands_with_its_share_and_what_is_lost_with_its_collective(answers):
    assert lines(answers["fitting"])["time"] == (
        "9.339 s a step: bound by compute (79.7 %), 20.3 % lost to exposed communication, "
        "mostly all_gather over tensor (10.4 %); 224,559 tokens/s, MFU 39.8 %"
    )
    assert (
        ": bound by communication, 66.2 % lost to exposed "
        "communication, mostly all_reduce over data (61.6 %);" in (lines(answers["bound by communication"])["time"])
    )


def test_communication_that_hides_and_yet_sets_the_pace_is_named(answers):
    said = lines(answers["outlasting"])["time"]
    assert ": bound by communication (all_gather over data outlasts the compute beside it), 14.1 % lost to " in said


def test_without_communication_nothing_is_lost(answers):
    assert "bound by compute (100 %), nothing lost to communication; " in lines(answers["one chip"])["time"]


def test_what_is_lost_adds_up_to_what_is_exposed(answers):
    for answer in answers.values():
        step = answer.to_json()["result"]["step"]
        assert sum(one["exposed_s"] for one in step["lost"]) == pytest.approx(step["exposed_s"])
        assert sum(one["share"] for one in step["lost"]) == pytest.approx(step["exposed_s"] / step["time_s"])


def test_most_of_what_is_lost_is_said_by_name(answers):
    for answer in answers.values():
        lost = answer.to_json()["result"]["step"]["lost"]
        named = [one for one in lost if one["collective"] in lines(answer)["time"]]
        assert 2 * sum(one["share"] for one in named) >= sum(one["share"] for one in lost)


# Change -------------------------------------------------------------------------------------------------------------


def test_the_change_comes_to_what_set_then_comes_to(answers):
    for name in ("tight", "wide", "bound by communication"):
        change, asked = answers[name].change, dict(ASKED[name])
        again = plan(asked.pop("scenario", None), overrides=[change.set], **asked)
        assert answers[name].to_json()["result"]["change"] == {
            "set": change.set,
            "time_s": again.step.time_s,
            "relative": again.step.time_s / answers[name].step.time_s - 1,
            "static_bytes": again.memory.static_bytes,
        }


def test_the_change_is_the_fastest_of_those_that_fit():
    base = plan(BASE, zero=3)
    stages = {stage: plan(BASE, zero=stage) for stage in (0, 1, 2)}
    assert stages[0].step.time_s < stages[1].step.time_s <= stages[2].step.time_s < base.step.time_s
    assert not stages[0].memory.states_fit
    assert lines(base)["change"] == "--set layout.zero=1: 9.339 s a step (-21.9 %), states 56.23 GB"


def test_a_change_says_what_is_not_counted_in_it():
    assert lines(plan(BASE, overrides=["workload.microbatches=8"]))["change"] == (
        "--set workload.microbatches=4: 9.339 s a step (-1.98 %), activations (not counted) 2 times as large"
    )


def test_what_does_not_fit_is_bettered_by_what_makes_it_fit(answers):
    assert lines(answers["tight"])["change"] == "--set layout.zero=1: states 13.55 GB, 2.439 s a step (-3.95 %)"
    assert (
        lines(answers["wide"])["change"] == "--set workload.microbatches=8: logits 33.55 GB, 61.68 s a step (+2.09 %)"
    )


def test_where_nothing_is_better_no_change_is_named(answers):
    for name in ("a table", "one chip"):
        assert "change" not in lines(answers[name])
        assert answers[name].to_json()["result"]["change"] is None


def test_a_change_that_saves_next_to_nothing_is_not_worth_a_word():
    slightly = plan(BASE, overrides=["workload.microbatches=2"])
    faster = plan(BASE, overrides=["workload.microbatches=1"])
    assert -LEAST < faster.step.time_s / slightly.step.time_s - 1 < 0
    assert slightly.change is None


def test_a_change_that_is_not_legal_is_none():
    """Hidden 5120 is not divisible by 48, which every stage of ZeRO would split it over."""
    asked = {"model": "llama-2-13b", "hw": "dgx-h100", "dp": 48, "seq": 4096, "batch": 48}
    assert not plan(**asked).memory.states_fit
    assert plan(**asked).change is None
    assert plan(**{**asked, "dp": 64, "batch": 64}).change.set == "layout.zero=2"


def test_a_change_keeps_the_demands_that_the_plan_meets():
    asked = ("llama3-70b-h100", ["layout.zero=3", "require={memory: < 50 GB}"])
    assert plan(asked[0], overrides=asked[1]).change.set == "layout.zero=2"


def test_a_scenario_that_no_file_holds_is_changed_too():
    data = {
        "tpsim": "scenario/1",
        "model": "llama-3-8b",
        "hardware": "dgx-h100",
        "mesh": {"data": 8},
        "layout": {"dp": "data"},
        "workload": {"global_batch": 8, "seq": 4096},
    }
    assert plan(data).change.set == "layout.zero=1"
