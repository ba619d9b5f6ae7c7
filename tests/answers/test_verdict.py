"""What a plan says in three lines: no word promises more than what was counted, and no change less than it brings."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module

import pytest

from tpsim.answers.changes import LEAST, _settings, _states_s
from tpsim.answers.plan import plan
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.scenario_file import Overheads

BASE = "llama3-70b-h100"
LARGE = "hardware={extends: dgx-h100, chip: {memory: {capacity: 2 TB}}}"
"""Chips on which everything fits."""
TIGHT = {"model": "llama-3-8b", "hw": "tpu-v5e", "tp": 4, "dp": 16, "seq": 4096, "batch": 64}
"""States of 36 GB on chips of 17 GB."""
WIDE = {"model": "gemma-7b", "hw": "dgx-h100", "dp": 8, "seq": 8192, "batch": 512, "zero": 3}
"""States of 19 GB, and logits of 268 GB, on chips of 80 GB."""
SHARDED = {
    "tpsim": "scenario/1",
    "model": "megatron-530b",
    "hardware": "dgx-a100",
    "mesh": {"data": 32, "tensor": 8},
    "placement": {"data": "network", "tensor": "nvlink"},
    "layout": {"tp": "tensor", "dp": "data", "zero": 3, "sequence_parallel": True},
    "workload": {"global_batch": 256, "seq": 2048, "microbatches": 2, "dtype": "bf16", "grad_dtype": "f32"},
    "practice": {"base": "megatron", "overlap": {"gradients": "beside", "weights": "beside"}},
}
"""530B with its weights sharded over 32 nodes."""
ASKED = {
    "fitting": {"scenario": BASE, "overrides": [LARGE]},
    "tight": TIGHT,
    "wide": WIDE,
    "bound by communication": {**TIGHT, "hw": "dgx-h100", "batch": 16},
    "outlasting": {"scenario": SHARDED},
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
        assert [line.split()[0] for line in said] == ["time", "memory", "band", "change"][: len(said)]
        assert [line[8:] for line in said] == [line.text for line in answer.lines]


# Memory -------------------------------------------------------------------------------------------------------------


def test_memory_is_said_with_its_peak_and_what_that_is_made_of(answers):
    for answer in answers.values():
        held = answer.memory
        peak, states, kept, working = (
            show(float(size), "bytes")
            for size in (held.peak_bytes, held.static_bytes, held.kept_bytes, held.working_bytes)
        )
        made = f"(states {states}, kept {kept}, working {working})"
        assert lines(answer)["memory"].endswith(f": peak {peak} of {show(held.capacity_bytes, 'bytes')} {made}")
        assert held.peak_bytes == held.static_bytes + held.kept_bytes + held.working_bytes
        assert sum(held.working.values()) == held.working_bytes
        assert "before activations" not in answer.verdict
    assert lines(answers["fitting"])["memory"].startswith("fits: peak ")
    assert lines(answers["tight"])["memory"].startswith("DOES NOT FIT: peak ")


def test_fits_is_true_or_false_where_that_can_be_told(answers):
    said = {name: json.loads(json.dumps({**answer.memory})) for name, answer in answers.items()}
    assert {name for name in ("fitting", "tight", "wide") if said[name]["fits"]} == {"fitting"}
    assert said["tight"]["fits"] is said["wide"]["fits"] is False
    assert said["tight"]["verdict"] == lines(answers["tight"])["memory"]


@pytest.mark.parametrize(
    ("room", "overheads", "fit", "fits"),
    [
        (1.3, 0, "fits", True),
        (1.05, 0, "too close to say", None),
        (0.96, 0, "too close to say", None),
        (0.8, 0, "does not fit", False),
        (1.3, 0.5, "fits only without the assumed overheads", None),
        (1.55, 0.5, "too close to say", None),
        (1.5, 0.2, "fits", True),
    ],
)
def test_the_verdict_on_memory_has_four_words(answers, room, overheads, fit, fits):
    """As near as 6 % of what is known of Megatron's; overheads as a share of the peak."""
    held = answers["fitting"].memory
    assert held.margin == 0.05
    peak = float(held.peak_bytes)
    asked = replace(held, capacity_bytes=room * peak, overheads=Overheads(fragmentation=overheads or None))
    assert (asked.fit, asked.fits) == (fit, fits)
    assert asked.overhead_bytes == pytest.approx(overheads * peak)


def test_states_that_outgrow_the_chip_never_fit_however_little_is_known(answers):
    held = answers["fitting"].memory
    assert replace(held, capacity_bytes=float(held.static_bytes) - 1, margin=9).fit == "does not fit"


def test_a_stack_that_nobody_looked_at_is_judged_with_more_room():
    known, unknown = (plan(BASE, overrides=[LARGE, f"practice={name}"]).memory for name in ("megatron", "xla"))
    assert (known.margin, unknown.margin) == (0.05, 0.2)


def test_overheads_are_assumed_with_a_kind_and_stand_in_the_verdict():
    stated = "assume.memory={context: {value: 2 GB, kind: measured}, workspace: 1 GB, fragmentation: 10 %}"
    answer = plan(BASE, overrides=[LARGE, stated])
    held = answer.memory
    assert held.overhead_bytes == pytest.approx(3e9 + 0.1 * float(held.peak_bytes))
    assert f" and overheads of {show(float(held.overhead_bytes), 'bytes')} of 2 TB (" in held.verdict
    said = {one["text"]: one["kind"] for one in answer.to_json()["assumptions"]}
    assert said["memory beside arrays: context 2 GB"] == "stated"
    assert said["memory beside arrays: workspace 1 GB"] == "guess"
    assert said["memory beside arrays: fragmentation 10 % of the arrays"] == "guess"
    assert answer.to_json()["resolved"]["assume"]["memory"]["context_bytes"] == 2e9
    assert plan(BASE, overrides=[LARGE]).memory.overhead_bytes == 0


def test_an_overhead_without_a_unit_is_refused():
    with pytest.raises(InputError) as error:
        plan(BASE, overrides=["assume.memory.context=2"])
    assert str(error.value).splitlines()[0] == "error[missing-unit]: memory.context: 2 has no unit"


def test_a_step_that_cannot_run_is_timed_as_if_it_could(answers):
    for answer in answers.values():
        assert (" a step if it fitted: " in lines(answer)["time"]) == (answer.memory.fits is False)


def test_a_demand_on_memory_is_held_against_states_and_broken_where_memory_stands():
    held, broken = (plan(BASE, overrides=[LARGE, f"require={{memory: < {room} GB}}"]) for room in (60, 50))
    assert (held.ok, broken.ok) == (True, False)
    assert lines(broken)["memory"].endswith("; require memory < 50 GB is violated")
    assert {line.label: line.ok for line in broken.lines} == {
        "time": True,
        "memory": False,
        "band": True,
        "change": True,
    }
    assert "violated" not in held.verdict + lines(broken)["time"]


def test_a_demand_on_the_peak_is_held_against_all_arrays(answers):
    peak = float(answers["fitting"].memory.peak_bytes) / 1e9
    held, broken = (plan(BASE, overrides=[LARGE, f"require={{peak: < {peak + by} GB}}"]) for by in (1, -1))
    assert (held.ok, broken.ok) == (True, False)
    assert held.require[0].value == float(held.memory.peak_bytes)
    assert " is violated" in lines(broken)["memory"]


# Time ---------------------------------------------------------------------------------------------------------------


def test_what_bounds_a_step_stands_with_its_share_and_what_is_lost_with_its_collective(answers):
    assert lines(answers["fitting"])["time"] == (
        "9.689 s a step: bound by compute (78.5 %), 19.6 % lost to exposed communication, "
        "mostly all_gather over tensor (10 %); 216,439 tokens/s, MFU 38.4 %"
    )
    assert (
        ": bound by communication, 54.3 % lost to exposed "
        "communication, mostly all_reduce over data (50.5 %);" in (lines(answers["bound by communication"])["time"])
    )


def test_communication_that_hides_and_yet_sets_the_pace_is_named(answers):
    said = lines(answers["outlasting"])["time"]
    assert ": bound by communication (reduce_scatter over data outlasts the compute beside it), 28.2 % lost to " in said


def test_without_communication_nothing_is_lost(answers):
    assert "bound by compute (100 %), nothing lost to communication; " in lines(answers["one chip"])["time"]


def test_what_is_lost_adds_up_to_what_is_exposed(answers):
    for answer in answers.values():
        step = answer.step
        assert sum(one.exposed_s for one in step.lost) == pytest.approx(step.exposed_s)
        assert sum(one.share for one in step.lost) == pytest.approx(step.exposed_s / step.time_s)


def test_most_of_what_is_lost_is_said_by_name(answers):
    for answer in answers.values():
        lost = answer.step.lost
        named = [one for one in lost if one.collective in lines(answer)["time"]]
        assert 2 * sum(one.share for one in named) >= sum(one.share for one in lost)


# Change -------------------------------------------------------------------------------------------------------------


def test_the_change_comes_to_what_set_then_comes_to(answers):
    for name in ("fitting", "bound by communication"):
        change, asked = answers[name].change, dict(ASKED[name])
        room = asked.pop("overrides", [])
        again = plan(asked.pop("scenario", None), overrides=[*room, change.set], **asked)
        assert answers[name].to_json()["result"]["change"] == {
            "set": change.set,
            "time_s": again.step.time_s,
            "relative": again.step.time_s / answers[name].step.time_s - 1,
            "static_bytes": again.memory.static_bytes,
            "peak_bytes": again.memory.peak_bytes,
        }


def test_the_change_is_the_fastest_of_those_that_fit():
    base = plan(BASE, overrides=[LARGE], zero=3)
    stages = {stage: plan(BASE, overrides=[LARGE], zero=stage) for stage in (0, 1, 2)}
    assert stages[0].step.time_s < stages[1].step.time_s < stages[2].step.time_s < base.step.time_s
    assert base.change.set == "layout.zero=0"
    tight = LARGE.replace("2 TB", f"{float(stages[1].memory.peak_bytes) / 1e9 + 1} GB")
    assert plan(BASE, overrides=[tight], zero=0).memory.fits is False
    change = plan(BASE, overrides=[tight], zero=3).change
    assert change.set == "layout.zero=1"
    assert lines(change.old)["change"].endswith(f", peak {show(change.peak_bytes, 'bytes')}")


def test_a_change_says_the_peak_that_it_brings(answers):
    change = answers["fitting"].change
    assert change.set == "layout.zero=0"
    assert change.peak_bytes > answers["fitting"].memory.peak_bytes
    step = f"{100 * change.relative:+.3g} %"
    assert lines(answers["fitting"])["change"].endswith(f" a step ({step}), peak {show(change.peak_bytes, 'bytes')}")


def test_a_change_of_what_a_flag_states_is_said_by_the_flag():
    """Appended to the same command line, --set would contradict it; of a flag that is given twice the last holds."""
    by_flag, by_set = plan("qwen2-7b-h100", zero=3), plan("qwen2-7b-h100", overrides=["layout.zero=3"])
    assert by_flag.change.set == by_set.change.set == "layout.zero=0"
    assert lines(by_flag)["change"].startswith("--zero 0: 1.935 s a step ")
    assert lines(by_set)["change"].startswith("--set layout.zero=0: 1.935 s a step ")
    for words, change in (("--sp", "layout.sequence_parallel=true"), ("--recompute full", "recompute=full")):
        stated = plan("qwen2-7b-h100", sp=False, recompute="none")
        assert replace(by_flag.change, old=stated, set=change).words == words
        assert replace(by_flag.change, set=change).words == f"--set {change}"


def test_what_does_not_fit_is_bettered_by_what_makes_it_fit():
    short = {**TIGHT, "seq": 256}
    change = plan(**short).change
    assert change.set == "layout.zero=2"
    assert lines(change.old)["change"].startswith(f"--set layout.zero=2: peak {show(change.peak_bytes, 'bytes')}, ")
    assert change.old.memory.room_bytes < 0 <= change.new.memory.room_bytes


def test_a_peak_of_activations_is_bettered_by_more_microbatches():
    roomy = {"model": "gemma-7b", "hw": "dgx-h100", "dp": 8, "seq": 512, "batch": 1024, "zero": 3}
    change = plan(**roomy).change
    assert change.set.startswith("workload.microbatches=")
    assert change.old.memory.room_bytes < 0 <= change.new.memory.room_bytes


def test_where_nothing_is_better_no_change_is_named(answers):
    assert "change" not in lines(answers["one chip"])
    assert answers["one chip"].change is None


def test_a_change_that_saves_next_to_nothing_is_not_worth_a_word():
    prompt = LARGE.replace("chip: {", "chip: {interruption: 0 s, ")
    slightly, faster = (
        plan(BASE, overrides=[prompt, "layout.zero=0", f"workload.microbatches={many}"]) for many in (2, 1)
    )
    assert -LEAST < faster.step.time_s / slightly.step.time_s - 1 < 0
    assert slightly.change is None


EIGHT = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 2, "dp": 4, "seq": 1024, "batch": 64, "microbatches": 4}


@pytest.mark.parametrize("how", [{"dp": 8}, {"pp": 2, "schedule": "1f1b"}, {"overrides": ["practice.base=xla"]}])
def test_another_stage_of_zero_saves_at_most_what_hangs_on_parameters_and_gradients(how):
    stages = [plan(**{**EIGHT, **how, "zero": stage}) for stage in range(4)]
    for one in stages:
        most = _states_s(one)
        assert all(one.step.time_s - other.step.time_s <= most * (1 + 1e-12) for other in stages)
    assert max(map(_states_s, stages)) > LEAST * stages[0].step.time_s  # the bound says something, and not too much
    assert max(_states_s(one) / one.step.time_s for one in stages) < 1


def test_a_stage_of_zero_that_could_save_next_to_nothing_is_not_priced():
    assert list(_settings(plan("gpt3-175b-a100-pipeline"))) == [
        "layout.sequence_parallel=true",
        "workload.microbatches=192",
    ]


def test_a_change_that_is_not_legal_is_none():
    """Hidden 5120 is not divisible by 48, which every stage of ZeRO would split it over."""
    whole = ("practice.padding=none",)
    asked = {"model": "llama-2-13b", "hw": "dgx-h100", "dp": 48, "seq": 256, "batch": 48, "overrides": whole}
    assert not plan(**asked).memory.states_fit
    assert plan(**asked).change is None
    assert plan(**{**asked, "dp": 64, "batch": 64}).change.set == "layout.zero=2"


def test_a_change_keeps_the_demands_that_the_plan_meets():
    asked = ["layout.zero=3", "require={memory: < 50 GB}"]
    assert plan(BASE, overrides=[LARGE, *asked]).change.set == "layout.zero=2"


def test_a_scenario_that_no_file_holds_is_changed_too():
    data = {
        "tpsim": "scenario/1",
        "model": "llama-3-8b",
        "hardware": "dgx-h100",
        "mesh": {"data": 8},
        "layout": {"dp": "data"},
        "workload": {"global_batch": 8, "seq": 256},
    }
    assert plan(data).change.set == "layout.zero=2"


def test_a_change_that_outgrows_the_chip_is_dropped_before_it_is_timed(monkeypatch):
    timed = []
    module = import_module("tpsim.answers.plan")
    price = module._priced
    monkeypatch.setattr(module, "_priced", lambda *asked, **how: timed.append(asked[0]) or price(*asked, **how))
    assert module.plan("gpt-neox-20b-a100").change.set == "recompute=full"
    assert len(timed) == 2  # what it is, and the one that fits


def test_a_peak_that_neither_states_nor_microbatches_bring_down_is_bettered_by_recompute():
    change = plan("llama3-405b-h100").change
    assert change.set == "recompute=full"
    assert change.old.memory.room_bytes < 0 <= change.new.memory.room_bytes


def test_states_that_are_updated_by_every_replica_are_split_though_nothing_is_exposed():
    base = plan("gpt2-xl-a100-dp")
    assert base.step.exposed_s < LEAST * base.step.time_s
    assert base.change.set == "layout.zero=1"
    assert base.change.time_s < plan("gpt2-xl-a100-dp", microbatches=1).step.time_s
