"""The moves: who takes part, how many bytes, and what a device must inject."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arrays import parse_array
from tpsim.algebra.moves import MOVES, wire
from tpsim.algebra.reshard import book_path

DIMS, AXES = {"I": 64, "J": 32}, {"X": 4, "Y": 2}
volumes, ranks = st.integers(1, 10**12), st.integers(1, 1024)


def only_move(before, after):
    (move,) = book_path(parse_array(before).type, parse_array(after).type, tuple(AXES))
    return move


@pytest.mark.parametrize(
    ("before", "after", "volume"),
    [
        ("A[I_X, J]", "A[I, J]", 64 * 32),
        ("A[I_X, J_Y]", "A[I, J_Y]", 64 * 32 // 2),
        ("A[I_XY, J]", "A[I_X, J]", 64 * 32 // 4),
        ("A[I, J]{U_X}", "A[I, J]", 64 * 32),
        ("A[I, J_Y]{U_X}", "A[I_X, J_Y]", 64 * 32 // 2),
        ("A[I_X, J]", "A[I, J_X]", 64 * 32),
    ],
)
def test_the_volume_is_the_full_array_per_shard_of_the_other_axes(before, after, volume):
    assert only_move(before, after).logical_elements(DIMS, AXES) == volume


def test_all_axes_of_a_move_take_part_together():
    assert only_move("A[I_XY]", "A[I]").ranks(AXES) == 8


@given(volume=volumes, n=ranks)
def test_an_all_reduce_injects_what_a_reduce_scatter_and_an_all_gather_do(volume, n):
    assert wire("all_reduce", volume, n) == wire("reduce_scatter", volume, n) + wire("all_gather", volume, n)


@given(volume=volumes)
def test_one_device_injects_nothing(volume):
    assert {kind: wire(kind, volume, 1) for kind in MOVES} == dict.fromkeys(MOVES, 0)


@given(volume=volumes, n=ranks)
def test_an_all_to_all_injects_one_nth_of_an_all_gather(volume, n):
    assert wire("all_to_all", volume, n) == Fraction(wire("all_gather", volume, n)) / n


def test_the_formulas_are_the_same_lines_for_symbols():
    sympy = pytest.importorskip("sympy")
    volume, n = sympy.symbols("V n", positive=True)
    shown = {kind: str(sympy.factor(wire(kind, volume, n))) for kind in MOVES}
    assert shown == {
        "all_gather": "V*(n - 1)/n",
        "reduce_scatter": "V*(n - 1)/n",
        "all_reduce": "2*V*(n - 1)/n",
        "all_to_all": "V*(n - 1)/n**2",
        "permute": "Piecewise((V/n, n > 1), (0, True))",
        "slice": "0",
    }
