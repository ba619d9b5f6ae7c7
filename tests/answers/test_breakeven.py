"""Where two costs are equal."""

from __future__ import annotations

import pytest
import sympy

from tpsim.answers.breakeven import breakeven
from tpsim.quantity.errors import InputError

B, D, F, C, W = sympy.symbols("B D F C W", positive=True)


def test_a_matmul_turns_compute_bound_at_peak_over_bandwidth():
    flops, stream = 1.97e14, 8.2e11
    assert float(breakeven(2 * B * D * F / flops, 2 * D * F / stream, B)) == pytest.approx(flops / stream)


def test_the_answer_is_exact_where_the_costs_are():
    assert breakeven(2 * B * 4096, 4096 * 4096, "B") == 2048


def test_the_answer_keeps_other_symbols():
    assert breakeven(B * D * F / C, B * D / W, F) == C / W


def test_the_least_positive_solution_is_taken():
    assert breakeven(B**2 + 6, 5 * B, B) == 2


def test_costs_that_never_meet_are_refused():
    with pytest.raises(InputError) as error:
        breakeven(B + 2, B + 1, B)
    assert "no positive B makes B + 2 equal B + 1" in str(error.value)


def test_a_symbol_that_neither_side_has_is_refused_with_those_that_they_have():
    with pytest.raises(InputError) as error:
        breakeven(B * D, 7, "Q")
    assert "symbols here: B, D" in str(error.value)
