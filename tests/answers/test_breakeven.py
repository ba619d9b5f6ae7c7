"""Where two costs change places."""

from __future__ import annotations

from functools import cache
from math import floor, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tpsim
from tpsim.answers.breakeven import breakeven
from tpsim.quantity.errors import InputError


def refused(*args, **options):
    with pytest.raises(InputError) as error:
        breakeven(*args, **options)
    return str(error.value)


def test_costs_of_two_regimes_meet_where_bisection_on_numbers_says():
    assert tpsim.breakeven(lambda ranks: 100 / ranks, lambda ranks: max(5, ranks), "ranks") == 10


def test_a_matmul_turns_compute_bound_at_peak_over_bandwidth():
    flops, stream = 1.97e14, 8.2e11
    found = breakeven(lambda batch: 2 * batch * 64 / flops, lambda _: 2 * 64 / stream, "batch")
    assert found == pytest.approx(flops / stream, rel=1e-11)


def test_the_answer_is_whole_where_that_makes_the_costs_equal():
    found = breakeven(lambda batch: 2 * batch * 4096, lambda _: 4096 * 4096, "batch")
    assert (found, type(found)) == (2048, int)


@given(st.floats(1e-20, 1e20), st.floats(0.25, 4))
def test_powers_that_cross_once_are_found_wherever_they_do(meet, power):
    found = breakeven(lambda n: (n / meet) ** power, lambda n: (meet / n) ** 0.5, "n")
    assert found == pytest.approx(meet, rel=1e-9)


def test_a_cost_of_cases_has_one_break_even():
    assert breakeven(lambda n: 2 * max(n, 4), lambda n: 9 + (n > 6) if n > 6 else 10, "n") == 5


def test_where_a_step_lies_between_the_first_value_beyond_it_is_taken():
    assert breakeven(floor, lambda _: 2.5, "n") == 3


def test_the_seconds_of_a_gather_and_of_its_product_meet_at_peak_over_bandwidth():
    """Seconds are asked at numbers: of `shard` at each batch, as of any function."""

    @cache
    def steps(batch):
        dims, options = {"B": batch, "D": 4096, "F": 4096}, {"planner": "book", "cost_model": "book"}
        return tpsim.shard("A[B,D] . W[D_X,F] -> Z[B,F]", "X=16", dims=dims, hw="tpu-v5e", **options).steps

    def step(at, field):
        return lambda batch: getattr(steps(round(batch))[at], field)

    found = breakeven(step(1, "time_s"), step(0, "bandwidth_s"), "batch", between=(2150, 2230))
    assert found == pytest.approx(197e12 / 90e9, rel=1e-3)


def test_several_break_evens_are_all_named_and_one_can_be_asked_for():
    costs = (lambda batch: batch**2 + 6, lambda batch: 5 * batch, "batch")
    assert refused(*costs) == (
        "error[several-breakevens]: the two costs change places 2 times: at batch = 2, 3\n"
        "  = say which one: the first is between=(1, 2.44949)"
    )
    assert breakeven(*costs, between=(1, 2.44949)) == 2
    assert breakeven(*costs, between=(2.5, 100)) == 3


def test_costs_that_never_meet_are_refused_with_what_was_looked_at():
    assert refused(lambda batch: batch + 2, lambda batch: batch + 1, "batch") == (
        "error[no-breakeven]: the two costs do not change places: the first is above or equal to the second at all "
        "3,201 values of batch from 7.9e-31 to 1.3e+30 that were looked at\n"
        "  = look closer with between=(low, high) if they might meet twice within a few percent"
    )


def test_costs_that_touch_do_not_change_places():
    found = refused(lambda batch: abs(batch - 1), lambda _: 0, "batch", between=(0.25, 4))
    assert "the first is above or equal to the second at all 3,201 values of batch from 0.25 to 4" in found


def test_costs_without_values_are_refused():
    for cost in (lambda n: log(-n), lambda n: (-n) ** 0.5, lambda n: 1 / (n - n)):
        assert "have no value together at any positive n" in refused(cost, lambda n: n, "n")


def test_a_range_of_nothing_is_refused():
    assert refused(lambda n: n, lambda _: 7, "n", between=(5, 2)).startswith(
        "error[bad-range]: there is nothing between 5 and 2"
    )
