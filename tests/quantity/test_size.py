"""One arithmetic: exact ints, arrays and symbols agree."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from tpsim.quantity.size import (
    by_least,
    ceil_over,
    floor_over,
    largest,
    log2_ceil,
    over,
    product,
    root,
    smallest,
    where_many,
    where_positive,
)

sizes = st.integers(1, 10**6)

TWO = [over, floor_over, ceil_over, largest, smallest, where_many]


@pytest.mark.parametrize("formula", TWO)
@given(a=sizes, b=sizes)
def test_ints_arrays_and_symbols_give_one_answer(formula, a, b):
    x, y = sympy.symbols("x y", positive=True, integer=True)
    exact = formula(a, b)
    assert float(exact) == pytest.approx(float(formula(np.array([a], float), np.array([b], float))[0]), rel=1e-15)
    assert sympy.sympify(formula(x, y)).subs({x: a, y: b}) == sympy.Rational(exact)


@given(sizes, sizes)
def test_two_ints_divide_exactly(a, b):
    quotient = over(a, b)
    assert isinstance(quotient, int | Fraction)
    assert quotient * b == a


@given(sizes)
def test_log2_ceil_is_the_number_of_doublings_that_reach_n(n):
    k = log2_ceil(n)
    assert 2**k >= n
    assert k == 0 or 2 ** (k - 1) < n
    assert log2_ceil(np.array([n], float))[0] == log2_ceil(float(n)) == log2_ceil(Fraction(n)) == k


def test_log2_ceil_of_a_symbol_is_a_formula():
    n = sympy.Symbol("n", positive=True)
    assert log2_ceil(n).subs(n, 9) == 4


def test_a_launch_is_paid_only_with_somebody_to_talk_to():
    assert where_many(1, 3.0) == 0
    assert where_many(2, 3.0) == 3.0
    assert list(where_many(np.array([1.0, 2.0]), 3.0)) == [0, 3]
    n = sympy.Symbol("n")
    assert [where_many(n, 3).subs(n, size) for size in (1, 2)] == [0, 3]


def test_what_chooses_among_sizes_knows_no_symbols():
    """Bytes and steps are formulas; a way is chosen by seconds, which are numbers."""
    x = sympy.Symbol("x", positive=True)
    for refused in (lambda: where_positive(x - 8, 3), lambda: by_least([x, 8]), lambda: root(x)):
        with pytest.raises(TypeError):
            refused()


def test_what_lies_beyond_a_limit_pays_and_the_limit_itself_does_not():
    assert [where_positive(x - 8, 3.0) for x in (7, 8, 9)] == [0, 0, 3]
    assert list(where_positive(np.array([7.0, 8.0, 9.0]) - 8, 3.0)) == [0, 0, 3]


def test_arrays_are_compared_element_by_element():
    assert list(largest(np.array([1.0, 5.0]), 3)) == [3, 5]
    assert list(smallest(np.array([1.0, 5.0]), 3, np.array([2.0, 2.0]))) == [1, 2]


def test_mixed_exact_and_float_values_compare_plainly():
    assert largest(2, Fraction(7, 2), 3.0) == Fraction(7, 2)
    assert smallest(7) == 7


def test_the_value_of_the_least_key_is_the_same_for_numbers_and_arrays():
    keys, values = (3, 1, 2), (10, 20, 30)
    assert by_least(keys)(values) == 20
    arrays = [np.array([key, 4.0 - key]) for key in keys]
    assert list(by_least(arrays)([np.array([value, value]) for value in values])) == [20, 10]


def test_a_product_of_nothing_is_one():
    assert product([]) == 1
    assert product([2, Fraction(1, 2), 3]) == 3


def test_beside_arrays_a_fraction_is_a_float():
    sizes, third = np.array([2.0, 4.0]), Fraction(1, 3)
    for found in (product((sizes, third)), over(sizes, 1 / third), over(third, sizes)):
        assert found.dtype == np.float64
    assert product((2, third)) == Fraction(2, 3)
