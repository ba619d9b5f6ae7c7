"""GPT-3 175B on eight chips of tensor parallelism: the figures that everybody quotes, from the verb `plan`.

h 12288, s 2048, one sequence per microbatch, bf16. Source of the counts: Shoeybi et al. 2019 (f and g), Korthikanti et
al. 2022 (sequence parallelism); of the finite factor (t-1)/t: ring all-reduce.
"""

from __future__ import annotations

from collections import Counter

import pytest

import tpsim

ALL_REDUCE = {"logical_bytes": 50_331_648, "wire_bytes_per_device": 88_080_384}
LAYER_WIRE = 352_321_536


def planned(sequence_parallel=False, **practice):
    switches = [f"practice.{name}={value}" for name, value in practice.items()]
    base = ["practice.base=ideal", f"layout.sequence_parallel={str(sequence_parallel).lower()}"]
    return tpsim.plan("gpt3-175b-a100-tp8", overrides=[*base, *switches])


def streams(plan):
    """Collectives of activations in one layer and microbatch: how often each occurs."""
    rows = [row for row in plan.collectives if row["layer"] == "0-95" and row["op"] == "activation"]
    return Counter(
        {
            name: sum(r["count"] for r in rows if r["collective"] == name) // 96
            for name in {row["collective"] for row in rows}
        }
    )


def small_sums(plan):
    """All-reduces of parameter gradients per layer and step, as (arrays, bytes each at f32)."""
    rows = [row for row in plan.collectives if row["layer"] == "0-95" and row["op"] == "gradient"]
    return sum(row["count"] for row in rows) // 96, {row["logical_bytes"] for row in rows}


@pytest.mark.parametrize("qkv", ["fused", "separate"])
def test_a_tensor_parallel_layer_is_four_all_reduces_of_bsh(qkv):
    plan = planned(qkv=qkv)
    assert streams(plan) == {"all_reduce": 4}
    layer = [row for row in plan.collectives if row["layer"] == "0-95"]
    assert all(row[key] == value for row in layer for key, value in ALL_REDUCE.items())
    assert plan.per_layer["total"].wire_bytes_per_device == LAYER_WIRE
    assert plan.per_layer["total"].payload_bytes == 4 * ALL_REDUCE["logical_bytes"]
    assert plan.per_layer["total"].formula == "16*b*h*s*(t - 1)/t"


def test_settling_per_use_is_six_all_reduces():
    assert streams(planned(cotangents="per_use", qkv="separate")) == {"all_reduce": 6}
    assert streams(planned(cotangents="per_use", qkv="fused")) == {"all_reduce": 4}


def test_kept_sequence_parallelism_is_four_gathers_and_four_scatters_of_the_same_wire():
    plan = planned(sequence_parallel=True)
    assert streams(plan) == {"all_gather": 4, "reduce_scatter": 4}
    assert plan.per_layer["total"].wire_bytes_per_device == LAYER_WIRE
    assert plan.per_layer["total"].formula == "16*b*h*s*(t - 1)/t"


def test_regathered_sequence_parallelism_is_six_gathers_and_four_scatters():
    plan = planned(sequence_parallel=True, regather="true")
    assert streams(plan) == {"all_gather": 6, "reduce_scatter": 4}
    assert plan.per_layer["total"].wire_bytes_per_device * 8 == LAYER_WIRE * 10
    assert plan.per_layer["total"].formula == "20*b*h*s*(t - 1)/t"


def test_parameters_used_on_the_sharded_stream_owe_six_small_sums_per_layer_and_step():
    assert small_sums(planned(sequence_parallel=True)) == (6, {12288 * 4})
    assert small_sums(planned()) == (0, set())


def test_the_loss_is_three_all_reduces_of_bs_and_gathering_it_moves_the_logits():
    rows = [row for row in planned().collectives if row["block"] == "loss"]
    assert [(row["collective"], row["logical_bytes"]) for row in rows] == [("all_reduce", 2048 * 4)] * 3
    gathered = planned(cross_entropy="gathered")
    rows = [row for row in gathered.collectives if row["block"] == "loss"]
    assert [(row["collective"], row["logical_bytes"]) for row in rows] == [("all_gather", 2048 * 51200 * 2)]
    assert gathered.memory.logits_bytes > planned().memory.logits_bytes


def test_embedding_and_output_each_move_one_bsh():
    rows = [row for row in planned().collectives if row["block"] in ("embedding", "head")]
    assert [(row["phase"], row["block"]) for row in rows] == [("forward", "embedding"), ("backward", "head")]
    assert all(row["logical_bytes"] == ALL_REDUCE["logical_bytes"] and row["count"] == 1 for row in rows)
