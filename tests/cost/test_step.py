"""What bounds a step, and where it turns over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpsim.cost.collectives import collectives
from tpsim.cost.compute import Compute
from tpsim.cost.rollup import price
from tpsim.cost.sizes import Sizes
from tpsim.cost.step import Step, crossing


@pytest.fixture
def rows(program, sizes, pricer):
    """Every call blocks."""
    found = price(collectives(program, coalesce=False), sizes, pricer)
    return [replace(row, pulls=row.count) for row in found]


def work(backward: float) -> Compute:
    seconds = {"forward": backward / 2, "backward": backward, "update": 0.0}
    return Compute(seconds, (), Sizes({}, {}, {}))


def test_the_bound_names_the_collective_that_is_exposed_longest(rows):
    assert Step(rows, work(1e6)).bound_by == "compute"
    assert Step(rows, work(1e-3)).bound_by == "communication (all_reduce over tensor)"


def test_a_step_is_compute_exposed_communication_and_waiting(rows):
    whole = Step(rows, work(3.0), bubble_s=0.5)
    assert whole.time_s == whole.compute_s + whole.exposed_s + 0.5
    assert whole.host_s == 0


def test_what_runs_beside_longer_compute_does_not_bind_the_step(rows):
    """No call stands on the path to the end, however long they are busy together."""
    assert Step([replace(row, pulls=0) for row in rows], work(1e-3)).pace == 0


def test_crossing_finds_where_a_falling_function_is_one():
    assert crossing(lambda x: 3 / x) == pytest.approx(3, rel=1e-5)
    assert crossing(lambda _: 2.0) is None
