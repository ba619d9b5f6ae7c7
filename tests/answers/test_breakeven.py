"""Where two costs change places."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import tpsim
from tpsim.answers.breakeven import breakeven
from tpsim.quantity.errors import InputError

B, D, X = sympy.symbols("B D X", positive=True)
Y = sympy.Symbol("Y")


def refused(*args, **options):
    with pytest.raises(InputError) as error:
        breakeven(*args, **options)
    return str(error.value)


def test_costs_of_two_regimes_meet_where_bisection_on_numbers_says():
    assert tpsim.breakeven(100 / Y, sympy.Max(5, Y), "Y") == 10


def test_a_matmul_turns_compute_bound_at_peak_over_bandwidth():
    flops, stream = 1.97e14, 8.2e11
    assert breakeven(2 * B * 64 / flops, 2 * 64 / stream, B) == pytest.approx(flops / stream, rel=1e-11)


def test_the_answer_is_whole_where_that_makes_the_costs_equal():
    found = breakeven(2 * B * 4096, 4096 * 4096, "B")
    assert (found, type(found)) == (2048, int)
    assert breakeven(lambda batch: 2 * batch * 4096, lambda _: 4096 * 4096, "batch") == 2048


@given(st.floats(1e-20, 1e20), st.floats(0.25, 4))
def test_powers_that_cross_once_are_found_wherever_they_do(meet, power):
    found = breakeven(lambda n: (n / meet) ** power, lambda n: (meet / n) ** 0.5, "n")
    assert found == pytest.approx(meet, rel=1e-9)


def test_functions_of_numbers_and_expressions_in_symbols_have_one_break_even():
    step = sympy.Heaviside(X - 6, 0)
    assert breakeven(2 * sympy.Max(X, 4), sympy.Piecewise((9, X > 6), (10, True)) + step, "X") == 5
    assert breakeven(lambda n: 2 * max(n, 4), lambda n: 9 + (n > 6) if n > 6 else 10, "n") == 5


def test_symbols_that_both_costs_have_as_factors_do_not_matter():
    flops, stream = 1.97e14, 8.2e11
    assert breakeven(2 * B * D * X / flops, 2 * D * X / stream, B) == pytest.approx(flops / stream, rel=1e-11)


def test_where_a_step_lies_between_the_first_value_beyond_it_is_taken():
    assert breakeven(sympy.floor(X), 2.5, "X") == 3


def test_several_break_evens_are_all_named_and_one_can_be_asked_for():
    assert refused(B**2 + 6, 5 * B, B) == (
        "error[several-breakevens]: B**2 + 6 and 5*B change places 2 times: at B = 2, 3\n"
        "  = say which one: the first is between=(1, 2.44949)"
    )
    assert breakeven(B**2 + 6, 5 * B, B, between=(1, 2.44949)) == 2
    assert breakeven(B**2 + 6, 5 * B, B, between=(2.5, 100)) == 3


def test_costs_that_never_meet_are_refused_with_what_was_looked_at():
    assert refused(B + 2, B + 1, B) == (
        "error[no-breakeven]: B + 2 and B + 1 do not change places: B + 2 is above or equal to B + 1 at all 3,201 "
        "values of B from 7.9e-31 to 1.3e+30 that were looked at\n"
        "  = look closer with between=(low, high) if they might meet twice within a few percent"
    )


def test_costs_that_touch_do_not_change_places():
    found = refused(lambda batch: abs(batch - 1), lambda _: 0, "batch", between=(0.25, 4))
    assert "<lambda> is above or equal to <lambda> at all 3,201 values of batch from 0.25 to 4" in found


def test_costs_without_values_are_refused():
    for cost in (sympy.log(-B), sympy.sqrt(-B), 1 / (B - B)):
        assert "have no value together at any positive B" in refused(cost + 0 * B, lambda batch: batch, B)


def test_a_symbol_that_neither_side_has_is_refused_with_those_that_they_have():
    assert refused(B * D, 7, "Q") == ("error[unknown-symbol]: Q occurs in neither B*D nor 7\n  = symbols here: B, D")


def test_other_unknowns_are_refused_by_name():
    assert refused(B * D * X, 7, "X") == (
        "error[several-unknowns]: where B*D*X equals 7 depends on B, D too\n"
        "  = put numbers in place of all but X: a break-even is found on numbers"
    )


def test_a_range_of_nothing_is_refused():
    assert refused(B, 7, B, between=(5, 2)).startswith("error[bad-range]: there is nothing between 5 and 2")
