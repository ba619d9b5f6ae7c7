"""An answer is the same to the last digit on every Python that tpsim supports."""

from __future__ import annotations

import builtins
import sys

import pytest

import tpsim

SCENARIOS = ("llama3-70b-h100", "llama3-405b-h100-pipeline", "llama3-8b-v5e", "llama3-70b-v5p-slices")
"""Levels in turn, stages, a torus, and slices of it: every module that adds seconds is in one of them."""
COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "permute")
MACHINES = ("dgx-h100", "l40s-pcie", "tpu-v5e", "tpu-v5p")

python_sum = builtins.sum


def exact_sum(values, /, start=0):
    """`sum` where it is alike on all Pythons; up to 3.11 it rounds after each float, from 3.12 on at the end."""
    values = list(values)
    caller = sys._getframe(1).f_globals["__name__"]
    if caller.startswith("tpsim."):
        assert not any(isinstance(value, float) for value in values), f"{caller} sums floats by sum, not by total"
    return python_sum(values, start)


@pytest.fixture(autouse=True)
def _watched(monkeypatch):
    monkeypatch.setattr(builtins, "sum", exact_sum)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_float_of_a_plan_goes_through_a_sum_that_differs_between_pythons(scenario):
    assert tpsim.plan(scenario).to_json()["result"]["step"]["time_s"] > 0
    assert tpsim.diff(scenario, overrides=["workload.seq=512"]).verdict


def test_no_float_of_a_split_that_balances_its_stages_does():
    assert tpsim.plan("gpt3-175b-a100-pipeline", overrides=["pipeline.layers=balanced"]).question.split


@pytest.mark.parametrize("machine", MACHINES)
def test_no_float_of_a_collective_or_an_expression_does(machine):
    for collective in COLLECTIVES:
        assert tpsim.collective(collective, hw=machine, ranks=8, sizes="10kB:1GB").to_json()
    product = tpsim.shard("A[I,J_X] . B[J_Y,K] -> C[I,K]", "X=2,Y=4", dims="I=512,J=512,K=512", hw=machine)
    assert product.to_json()["result"]["total_time_s"] > 0


def test_the_watch_would_notice():
    with pytest.raises(AssertionError, match=r"tpsim\.answers\.plan sums floats"):
        exec("sum([0.1, 0.2])", {"__name__": "tpsim.answers.plan"})  # noqa: S102
