"""What compute can hide, and where the step turns over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.models import LLAMA
from tpsim.cost.compute import Compute
from tpsim.cost.rollup import collectives, price
from tpsim.cost.step import Step, beside, crossing, expose, exposed_s, may_hide, turning_scale
from tpsim.program.layout import PRACTICES, Dtypes, layout
from tpsim.program.lower import lower


@pytest.fixture
def rows(program, sizes, pricer):
    return price(collectives(program, coalesce=False), sizes, pricer)


def work(backward: float) -> Compute:
    return Compute(1, 1, {"forward": backward / 2, "backward": backward, "update": 0.0})


def again(program, sizes, pricer_for):
    """The rows at a multiple of today's tokens."""

    def repriced(scale):
        grown = replace(sizes, dims={**sizes.dims, "b": sizes.dims["b"] * scale})
        return price(collectives(program, coalesce=False), grown, pricer_for(grown))

    return repriced


def gradient_seconds(rows) -> float:
    return float(sum(r.busy_s for r in rows if r.call.op == "gradient"))


def test_nothing_is_hidden_unless_stated(rows):
    seen = expose(rows, work(1e6), 2, {})
    assert [r.exposed_s for r in seen] == [r.busy_s for r in seen]


def test_gradients_stated_to_overlap_hide_behind_enough_backward(rows):
    seen = expose(rows, work(1e6), 2, {"data": "backward"})
    assert [r.exposed_s == 0 for r in seen] == [False, False, True, True]


def test_a_once_per_step_reduction_hides_only_behind_the_last_microbatch(rows):
    busy = gradient_seconds(rows)
    seen = expose(rows, work(busy), 2, {"data": "backward"})
    left = sum(r.exposed_s for r in seen if r.call.op == "gradient")
    assert left == pytest.approx(busy / 2)


def test_what_compute_hides_is_never_more_than_the_phase_computes(rows):
    seen = expose(rows, work(0.5), 1, {"data": "both", "tensor": "both"})
    hidden = sum(r.busy_s - r.exposed_s for r in seen)
    assert hidden == pytest.approx(0.75)


def test_a_collective_in_forward_does_not_hide_behind_backward(rows):
    seen = expose(rows, work(1e6), 2, {"tensor": "backward"})
    assert [r.exposed_s == 0 for r in seen] == [False, True, False, False]


def test_the_sum_of_exposed_rows_is_the_exposed_sum(rows):
    for overlap in ({}, {"data": "backward"}, {"data": "both", "tensor": "forward"}):
        seen = expose(rows, work(1.5), 2, overlap)
        assert float(sum(r.exposed_s for r in seen)) == pytest.approx(
            float(exposed_s(rows, work(1.5).seconds, 2, overlap))
        )


def test_the_bound_names_the_collective_that_is_exposed_longest(rows):
    assert Step(rows, work(1e6)).bound_by == "compute"
    assert Step(rows, work(1e-3)).bound_by == "communication (all_reduce over tensor)"


def test_a_step_is_compute_and_exposed_communication(rows):
    seen = expose(rows, work(3.0), 2, {"data": "backward"})
    whole = Step(seen, work(3.0))
    assert whole.time_s == whole.compute_s + whole.exposed_s
    assert whole.communication_s > whole.exposed_s


def test_at_the_turning_scale_communication_equals_compute(rows, program, sizes, pricer_for):
    busy = work(100.0)
    scale = turning_scale(again(program, sizes, pricer_for), busy, 2, {})
    growing = [r for r in rows if r.call.op == "activation"]
    moved = sum(r.timing.bandwidth_s * r.count for r in growing)
    fixed = float(sum(r.busy_s for r in rows) - moved)
    assert scale == pytest.approx(fixed / (busy.time_s - float(moved)), rel=1e-5)


def test_hidden_communication_binds_the_step_once_it_outlasts_the_compute_that_hides_it(rows):
    busy = float(sum(r.busy_s for r in rows))
    everywhere = {"data": "both", "tensor": "both"}
    for backward, bound in ((busy, "compute"), (busy / 2, "communication (all_reduce over tensor)")):
        assert Step(expose(rows, work(backward), 1, everywhere), work(backward)).bound_by == bound


def test_communication_that_grows_faster_than_compute_has_no_turning_point(program, sizes, pricer_for):
    assert turning_scale(again(program, sizes, pricer_for), work(1e-3), 2, {}) is None


def test_crossing_finds_where_a_falling_function_is_one():
    assert crossing(lambda x: 3 / x) == pytest.approx(3, rel=1e-5)
    assert crossing(lambda _: 2.0) is None


def lowered(zero):
    """Collectives of a real step with a sharded optimizer, and of one whose gradients owe over two axes at once."""
    where = layout(tp=("tensor",), dp=("data",), zero=zero, sequence_parallel=True)
    return collectives(lower(LLAMA, where, PRACTICES["ideal"], Dtypes(), ("data", "tensor")), coalesce=False)


def test_a_collective_over_two_axes_hides_only_if_both_are_stated():
    (joint, *_) = [one for one in lowered(0) if one.axes == ("data", "tensor")]
    assert not may_hide(joint, {"data": "backward"})
    assert not may_hide(joint, {"tensor": "backward"})
    assert may_hide(joint, {"data": "backward", "tensor": "backward"})


def test_the_update_s_gradients_run_beside_backward_and_its_new_weights_beside_the_next_forward():
    update = [one for one in lowered(1) if one.where.phase == "update" and one.axes == ("data",)]
    assert {(one.kind, beside(one)) for one in update} == {("reduce_scatter", "backward"), ("all_gather", "forward")}
