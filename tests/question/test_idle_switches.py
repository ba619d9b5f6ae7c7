"""Switches of practice that can change nothing of a layout: a plan says so, and it is so."""

from __future__ import annotations

import pytest

import tpsim

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
}
"""Each otherwise than the bundle megatron has it."""

LAYOUTS = {
    "data": {"dp": 8},
    "ZeRO 1": {"dp": 8, "zero": 1},
    "tensor": {"tp": 8},
    "sequence parallel": {"dp": 2, "tp": 4, "sp": True, "zero": 3},
}


def planned(layout, *overrides):
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "seq": 2048, "batch": 32, "microbatches": 4, **LAYOUTS[layout]}
    return tpsim.plan(**asked, overrides=["model.layers=2", *overrides])


def remark(name, plan):
    return [text for text in plan.question.remarks if text.startswith(f"practice.{name} changes nothing here")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_switch_that_is_said_to_change_nothing_changes_nothing(layout):
    base = planned(layout)
    for name, value in VALUES.items():
        plan = planned(layout, f"practice.{name}={value}")
        if remark(name, plan):
            assert (plan.step.time_s, plan.memory.peak_bytes) == (base.step.time_s, base.memory.peak_bytes), name
            assert [row.wire_bytes_per_device for row in plan.rows] == [row.wire_bytes_per_device for row in base.rows]


@pytest.mark.parametrize(
    ("layout", "name", "lacking"),
    [
        ("data", "regather", "sequence parallelism"),
        ("data", "zero1", "ZeRO"),
        ("ZeRO 1", "reshard_after_forward", "ZeRO 3"),
        ("data", "ahead", "ZeRO"),
        ("data", "cotangents", "tensor parallelism"),
        ("tensor", "bucket", "data parallelism"),
        ("sequence parallel", "order", "context parallelism"),
        ("sequence parallel", "rows", "experts"),
        ("sequence parallel", "cast", "parameters wider than activations"),
    ],
)
def test_a_stated_switch_without_what_it_steers_is_said_to_change_nothing(layout, name, lacking):
    plan = planned(layout, f"practice.{name}={VALUES[name]}")
    said = f"practice.{name} changes nothing here, without {lacking}"
    assert remark(name, plan) == [said]
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
