"""Whole steps of large models against published ones.

The dgx-a100 profile's shares of peak and of memory bandwidth were fitted to several published sets of step times, these
two among them: how near they come is no forecast of a new machine. With one set left out the fit gave 0.745 to 0.758
and 0.71 to 0.82.

Dropout is not priced: on plain attention's scores it would add 15 bytes each, 1 to 10 % of Narayanan's steps.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

import tpsim

ROWS = yaml.safe_load((Path(__file__).parent / "data" / "published_steps.yaml").read_text())
SEQ, VOCAB = 2048, 51200

RUNS = [(row["name"], recompute) for row in ROWS for recompute in ("full", "selective") if recompute in row] + [
    (row["name"], "full") for row in ROWS if "rate" in row
]
FITTED = (0.75, 0.77)


def row_of(name):
    return next(row for row in ROWS if row["name"] == name)


def measured_s(name, recompute):
    """Seconds of a step; a rate is of 96 B s l h^2 (1 + s/6h + V/16lh) FLOPs per step (Narayanan, 5.1)."""
    row = row_of(name)
    if "rate" not in row:
        return row[recompute]
    h, layers = row["hidden"], row["layers"]
    flops = 96 * row["batch"] * SEQ * layers * h**2 * (1 + SEQ / (6 * h) + VOCAB / (16 * layers * h))
    return flops / (row["tensor"] * row["pipe"] * row["data"] * row["rate"] * 1e12)


def model(row):
    h, heads = row["hidden"], row["heads"]
    sizes = {"hidden": h, "layers": row["layers"], "heads": heads, "kv_heads": heads, "head_dim": h // heads}
    return {"extends": "megatron-22b", "name": "gpt", **sizes, "ffn": {"kind": "gelu", "hidden": 4 * h}, "params": None}


def scenario(row, recompute, efficiencies):
    """Each of 8 GPUs sends its share of what a stage hands on, Megatron's default since February 2021.

    Sums over tensor run beside products since August 2021 (NVIDIA/Megatron-LM, cf7efd4): not in the older paper.
    """
    products, memory = efficiencies
    beside = "beside" if row["table"] == "korthikanti" else "none"
    layout = {"dp": "data", "tp": "tensor", "sequence_parallel": recompute == "selective"}
    mesh = {"data": row["data"], "tensor": row["tensor"]}
    placement = {"data": "network", "tensor": "nvlink"}
    asked = {}
    if row["pipe"] > 1:
        mesh, layout["pp"], placement["pipe"] = {"pipe": row["pipe"], **mesh}, "pipe", "network"
        asked["pipeline"] = {"schedule": "interleaved" if row["chunks"] > 1 else "1f1b", "chunks": row["chunks"]}
        if recompute == "full":
            layout["cut"] = {"s": "tensor"}
    if row["tensor"] == 8:
        asked["placement"] = placement
    workload = {"global_batch": row["batch"], "seq": SEQ, "microbatches": row["batch"] // row["data"] // row["each"]}
    return {
        "tpsim": "scenario/1",
        "model": model(row),
        "mesh": mesh,
        "layout": layout,
        "recompute": recompute,
        **asked,
        "hardware": {
            "extends": "dgx-a100",
            "chip": {"matmul_efficiency": products, "memory_efficiency": memory},
        },
        "practice": {"base": "megatron", "attention": "plain", "overlap": {"tensor": beside}},
        "workload": {**workload, "dtype": "bf16", "grad_dtype": "f32"},
    }


@cache
def planned_s(name, recompute, efficiencies=FITTED):
    return float(tpsim.plan(scenario(row_of(name), recompute, efficiencies)).step.time_s)


def errors(table, efficiencies=FITTED):
    """In percent."""
    runs = [run for run in RUNS if row_of(run[0])["table"] == table]
    return np.array([100 * (planned_s(*run, efficiencies) / measured_s(*run) - 1) for run in runs])


def test_the_shares_are_those_of_the_shipped_profile():
    chip = tpsim.plan("megatron-22b-a100").question.machine.chip
    assert (chip.matmul_efficiency.value, chip.memory_efficiency.value) == FITTED


@pytest.mark.parametrize("table", ["korthikanti", "narayanan"])
def test_the_steps_of_a_table_are_within_6_percent_in_the_mean(table):
    assert np.abs(errors(table)).mean() < 6


@pytest.mark.parametrize("table", ["korthikanti", "narayanan"])
def test_with_a_set_left_out_of_the_fit_they_are_within_9_percent(table):
    """At the highest shares that the fit came to with one left out; at the lowest both are nearer than as shipped."""
    assert np.abs(errors(table, (0.758, 0.82))).mean() < 9


@pytest.mark.parametrize("name", [row["name"] for row in ROWS if {"full", "selective"} <= row.keys()])
def test_what_selective_recompute_saves_over_full_is_within_3_percent(name):
    ratio, seen = (times(name, "selective") / times(name, "full") for times in (planned_s, measured_s))
    assert ratio == pytest.approx(seen, rel=0.03)


def test_eight_copies_that_sum_gradients_beside_nothing_take_1_to_5_percent_more():
    """Measured are 3.5 %; the sum alone, of 5 or 10 GB of gradients (2 or 4 bytes each), is not told apart."""
    alone, eight = (planned_s(name, "selective") for name in ("530B", "530B on 2240"))
    assert 1.01 < eight / alone < 1.05
