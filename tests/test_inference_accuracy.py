"""Plans of inference against published latencies; the whole page is written by benchmarks/inference.py."""

from __future__ import annotations

from statistics import median

import pytest

import inference


@pytest.fixture(scope="module")
def replies():
    """Long replies of a GPT of 20e9 parameters on 1, 2, 4 and 8 A100: 12 of 148, for all of them take seconds."""
    return inference.runs(["GPT-20B"], [(80, 200)])


def test_twice_the_chips_are_as_much_faster_as_was_measured(replies):
    errors = [abs(error) for each in inference.ratios(replies).values() for error in each]
    assert len(errors) == 9
    assert median(errors) < 0.15
    assert max(errors) < 0.3


def test_levels_are_nearer_than_bytes_and_flops_times_a_constant(replies):
    said = inference.levels(replies)
    plan, scaled, bare = (size for size, _ in said.values())
    assert plan < 0.25
    assert scaled < bare
