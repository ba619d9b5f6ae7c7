"""What may be done to an array that owes: every row of the table, and the sentence of each refusal."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from tests.arrays import parse_array
from tpsim.algebra.legality import RULES, OwedError, owed_after, state

ARRAYS = {"sum": "A[I]{U_X}", "max": "A[I]{M_X}", "sharded": "A[I_X]", "whole": "A[I]"}
STATES = ("sum", "max", "sharded", "whole")


def named(state_, name):
    return name, parse_array(ARRAYS[state_].replace("A", name)).type


@pytest.mark.parametrize(("operation", "states"), list(RULES), ids=str)
def test_each_row_of_the_table_holds_in_either_order(operation, states):
    rule = RULES[operation, states]
    operands = [named(each, name) for each, name in zip(states, "AB", strict=False)]
    for ordered in (operands, operands[::-1]):
        if rule.legal:
            assert owed_after(operation, ordered) == {("X", "sum")}
        else:
            with pytest.raises(OwedError) as error:
                owed_after(operation, ordered)
            assert "owes a " in str(error.value)
            assert str(error.value).endswith("over X first")


def test_the_table_answers_every_combination_in_which_something_is_owed():
    unary = {(operation, (each,)) for operation in ("linear", "nonlinear", "pullback") for each in ("sum", "max")}
    pairs = [pair for pair in combinations_with_replacement(STATES, 2) if pair[0] in ("sum", "max")]
    assert set(RULES) == unary | {(operation, pair) for operation in ("add", "multiply") for pair in pairs}


def test_a_complete_array_may_go_anywhere():
    for operation in ("linear", "nonlinear", "pullback"):
        assert owed_after(operation, [named("sharded", "A")]) == frozenset()
    assert owed_after("multiply", [named("whole", "A"), named("sharded", "B")]) == frozenset()


def test_sums_over_different_axes_multiply_and_both_stay_owed():
    operands = [("A", parse_array("A[I]{U_X}").type), ("B", parse_array("B[I]{U_Y}").type)]
    assert owed_after("multiply", operands) == {("X", "sum"), ("Y", "sum")}


def test_the_four_states_of_an_array_on_an_axis():
    assert [state(named(each, "A")[1], "X") for each in STATES] == list(STATES)


def refusal(operation, *operands):
    with pytest.raises(OwedError) as error:
        owed_after(operation, operands)
    return str(error.value)


def test_a_nonlinear_function_of_an_owed_sum_is_refused():
    assert refusal("nonlinear", named("sum", "z")) == (
        "z[I]{U_X} owes a sum over X: "
        "a nonlinear function of a sum is not the sum of the functions; settle z over X first"
    )


def test_an_owed_sum_plus_a_complete_array_is_refused():
    assert refusal("add", named("whole", "bias"), named("sum", "y")) == (
        "y[I]{U_X} owes a sum over X: bias would be added once per device of X; settle y over X first"
    )


def test_an_owed_sum_times_an_array_sharded_over_the_same_axis_is_refused():
    assert refusal("multiply", named("sum", "A"), named("sharded", "B")) == (
        "A[I]{U_X} owes a sum over X: "
        "each device would multiply its part of A by another block of B; settle A over X first"
    )


def test_an_owed_max_in_a_product_is_refused():
    assert refusal("multiply", named("max", "A"), named("whole", "B")) == (
        "A[I]{M_X} owes a max over X: a max must be known before it is multiplied; settle A over X first"
    )
