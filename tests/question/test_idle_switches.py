"""Switches of practice that can change nothing of a layout: a plan says so, and it is so."""

from __future__ import annotations

import pytest

import tpsim
from tpsim.quantity.errors import InputError

VALUES = {
    "context": "ring",
    "home": "circle",
    "order": "zigzag",
    "cotangents": "per_use",
    "cross_entropy": "gathered",
    "coalesce": "false",
    "bucket": "{of: step, elements: 1000000}",
    "zero1": "all_reduce",
    "padding": "none",
    "reshard_after_forward": "false",
    "ahead": "{layers: 2}",
    "regather": "false",
    "rows": "{dtype: fp8}",
    "latents": "stream",
    "handed": "latents",
    "qkv": "separate",
    "gradients": "per_step",
    "cast": "shards",
    "settled": "parameters",
    "units": "ends",
    "overlap.gradients": "beside",
    "overlap.weights": "beside",
    "overlap.stages": "beside",
    "ahead.layers": "2",
    "ahead.elements": "1000000",
    "ahead.since": "step",
    "bucket.elements": "1000000",
    "bucket.per_rank": "100000000",
    "bucket.first_chunk": "false",
    "rows.overlap": "beside",
    "rows.gates": "tokens",
    "causal": "whole",
}
"""Each otherwise than the bundle megatron has it."""

LAYOUTS = {
    "data": {"dp": 8},
    "ZeRO 1": {"dp": 8, "zero": 1},
    "tensor": {"tp": 8},
    "sequence parallel": {"dp": 2, "tp": 4, "sp": True, "zero": 3},
    "sequence parallel alone": {"tp": 8, "sp": True},
    "context": {"cp": 8},
    "context at ZeRO 3": {"cp": 8, "zero": 3},
    "stages": {"pp": 2},
    "stages at ZeRO 1": {"pp": 2, "dp": 4, "zero": 1},
    "stages at ZeRO 3": {"pp": 2, "dp": 4, "zero": 3},
    "copied heads": {"tp": 16},
}


def planned(layout, *overrides):
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "seq": 2048, "batch": 32, "microbatches": 4, **LAYOUTS[layout]}
    return tpsim.plan(**asked, overrides=["model.layers=2", *overrides])


def remark(name, plan):
    names = (name, name.partition(".")[0])
    said = tuple(f"practice.{one} changes nothing here" for one in names)
    return [text for text in plan.question.remarks if text.startswith(said)]


@pytest.mark.parametrize("base", ["megatron", "fsdp2", "deepspeed"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_switch_that_is_said_to_change_nothing_changes_nothing(layout, base):
    """Sums of gradients over tokens of a sequence, or over tp, were told as none: only data parallelism had any."""
    practice = f"practice.base={base}"
    base = planned(layout, practice)
    for name, value in VALUES.items():
        try:
            plan = planned(layout, practice, f"practice.{name}={value}")
        except InputError:  # refused, which is said as well
            continue
        if remark(name, plan):
            assert (plan.step.time_s, plan.memory.peak_bytes) == (base.step.time_s, base.memory.peak_bytes), name
            assert [row.wire_bytes_per_device for row in plan.rows] == [row.wire_bytes_per_device for row in base.rows]


@pytest.mark.parametrize(
    ("layout", "name", "lacking"),
    [
        ("data", "regather", "sequence parallelism"),
        ("data", "zero1", "ZeRO"),
        ("ZeRO 1", "reshard_after_forward", "ZeRO 3"),
        ("data", "ahead", "weights that ZeRO gathers beside compute"),
        ("data", "cotangents", "tensor parallelism"),
        ("tensor", "bucket", "gradients that devices add up"),
        ("tensor", "overlap.gradients", "gradients that devices add up"),
        ("data", "overlap.weights", "ZeRO"),
        ("data", "overlap.stages", "stages"),
        ("ZeRO 1", "ahead.layers", "weights that ZeRO gathers beside compute"),
        ("sequence parallel", "rows.gates", "experts"),
        ("data", "bucket.per_rank", "gradients beside compute, which first_chunk cuts"),
        ("sequence parallel", "order", "context parallelism"),
        ("sequence parallel", "rows", "experts"),
        ("sequence parallel", "cast", "parameters wider than activations"),
    ],
)
def test_a_stated_switch_without_what_it_steers_is_said_to_change_nothing(layout, name, lacking):
    plan = planned(layout, f"practice.{name}={VALUES[name]}")
    (said,) = remark(name, plan)
    assert said.partition(" changes nothing here, without ")[::2][1] == lacking
    assert said in [assumption.text for assumption in plan.assumptions]


def test_gradients_that_are_sent_as_parameters_are_stored_are_held_so_anyway():
    plan = planned("data", "practice.settled=parameters", "workload.grad_dtype=bf16")
    said = "practice.settled changes nothing here, without gradients that are sent as no parameter is stored"
    assert remark("settled", plan) == [said]


def test_nothing_is_said_of_a_switch_that_changes_the_plan_or_that_nobody_stated():
    assert not remark("qkv", planned("data", "practice.qkv=separate"))
    assert planned("data", "practice.qkv=separate").step.time_s != planned("data").step.time_s
    assert not remark("", planned("data"))
    assert not remark("settled", planned("data", "practice.settled=parameters"))
    assert not remark("cast", planned("sequence parallel", "practice.cast=shards", "workload.param_dtype=f32"))


def test_a_number_that_another_switch_leaves_no_use_for_is_said():
    said = "practice.bucket.per_rank changes nothing here, without practice.bucket.elements"
    assert said in planned("data", "practice=fsdp2", "practice.bucket.per_rank=1000000").question.remarks
    since = planned("sequence parallel", "practice=fsdp2", "practice.ahead.since=step").question.remarks
    assert "practice.ahead.since changes nothing here, without stages" in since
    whole = planned("data", "practice=fsdp2", "practice.bucket={of: step, elements: 1000000}").question.remarks
    assert "practice.bucket.elements changes nothing here, without buckets of less than a step" in whole
    recompute = planned("data", "recompute.replay=whole").question.remarks
    assert "recompute.replay changes nothing here, without recompute" in recompute
    full = planned("data", "recompute={base: full, drop: [mlp.act]}").question.remarks
    assert "recompute.drop changes nothing here, without anything that full recompute keeps" in full


def test_of_inference_what_only_backward_has_is_said():
    rows = {"rows": {"gates": "tokens"}, "overlap": {"gradients": "beside", "tensor": "split"}}
    asked = {"kind": "decode", "context": 1024}
    for model, lacking in (
        ("llama-3-8b", "rows changes nothing here, without experts"),
        ("mixtral-8x7b", "rows.gates changes nothing here, without backward"),
    ):
        scenario = {"tpsim": "scenario/1", "model": model, "hardware": "dgx-h100", "mesh": {"tensor": 8}}
        plan = tpsim.plan({**scenario, "layout": {"tp": "tensor"}, "practice": rows, "workload": asked})
        said = [text.removeprefix("practice.") for text in plan.question.remarks if " changes nothing " in text]
        assert sorted(said) == sorted([lacking, "overlap.gradients changes nothing here, without backward"])


@pytest.mark.parametrize(
    ("stated", "lacking"),
    [
        ("layout.sequence_parallel=true", "tensor parallelism"),
        ("layout.sequence_parallel=false", ""),
        ("layout.cut={s: data}", "stages"),
    ],
)
def test_a_split_of_what_no_axis_splits_is_said(stated, lacking):
    path = stated.partition("=")[0]
    said = [text for text in planned("data", stated).question.remarks if text.startswith("layout.")]
    assert said == ([f"{path} changes nothing here, without {lacking}"] if lacking else [])


def test_a_cache_that_no_axis_splits_is_said():
    scenario = {"tpsim": "scenario/1", "model": "llama-3-8b", "hardware": "dgx-h100", "mesh": {"data": 2, "tensor": 2}}
    layout = {"dp": ["data", "tensor"], "cache": "sequence"}
    asked = {**scenario, "workload": {"kind": "decode", "context": 1024, "batch": 4}}
    said = "layout.cache changes nothing here, without tensor parallelism"
    assert said in tpsim.plan({**asked, "layout": layout}).question.remarks
    assert said not in tpsim.plan({**asked, "layout": {**layout, "dp": "data", "tp": "tensor"}}).question.remarks
