"""Thirty sums owed over two axes: how XLA settles them, against the book's plan and the cheapest."""

from __future__ import annotations

import pytest

from tests.oracle import ours
from tests.oracle.differences import Difference, named, relation
from tests.oracle.questions import OWED, SHORT

pytestmark = pytest.mark.oracle


def over(axes: str, *wanted: str) -> tuple[str, ...]:
    """The products whose sum is owed over these axes and wanted so."""
    return tuple(f"A[I, J_{axes}] . B[J_{axes}, K] -> C[{c}]" for c in wanted)


SPLIT = ("I_X, K_Y", "I_Y, K_X")

BOOK = (
    Difference(
        "XLA slices an operand over the axis that idles; the book multiplies it whole and slices the result",
        "same",
        "less",
        (*over("X", "I_Y, K", "I, K_Y", *SPLIT), *over("Y", "I_X, K", "I, K_X", *SPLIT)),
    ),
    Difference(
        "XLA sums the whole array, then slices over the axis that idles; the book slices first",
        "more",
        "same",
        (*over("X", "I_YX, K"), *over("Y", "I_XY, K", "I, K_XY")),
    ),
    Difference(
        "XLA halves the product over half of the idle axis, all-reduces what it should scatter, and permutes",
        "more",
        "less",
        over("Y", "I_Y, K", "I, K_Y"),
    ),
)

CHEAPEST = (
    Difference(
        "an operand sliced over the idle axis makes the sum smaller: ours scatters that, then gathers or exchanges",
        "more",
        "more",
        (
            *over("X", "I, K", "I_X, K", "I, K_X", "I_XY, K", "I, K_XY"),
            *over("Y", "I_Y, K", "I, K_Y", "I_YX, K"),
        ),
    ),
    Difference(
        "as before, and the sum comes out as wanted: XLA sums the whole array, then slices",
        "more",
        "more",
        (*over("X", "I_YX, K"), *over("Y", "I_XY, K", "I, K_XY")),
    ),
    Difference(
        "as before; scatter and gather move what XLA's all-reduce moves, of a quarter of the work",
        "same",
        "more",
        over("Y", "I, K"),
    ),
)


@pytest.mark.parametrize("question", OWED, ids=str)
def test_xla_settles_as_the_book_or_differs_by_name(xla, question):
    theirs, by_book = xla(question), ours.book(question)
    assert relation(theirs, by_book) == named(question.expression, BOOK), f"XLA {theirs}; book {by_book}"


@pytest.mark.parametrize("question", OWED, ids=str)
def test_xla_settles_as_cheaply_as_we_do_or_ours_is_cheaper_by_name(xla, question):
    theirs = xla(question)
    best = ours.cheapest(question, theirs.flops)
    assert relation(theirs, best) == named(question.expression, CHEAPEST), f"XLA {theirs}; ours {best}"


def test_xla_is_never_better_than_the_cheapest_plan():
    assert not any("less" in (difference.wire, difference.work) for difference in CHEAPEST)


def test_sums_that_xla_promotes_are_counted_as_asked(xla, texts):
    assert "f32[64,128]{1,0} all-reduce(" in texts[str(SHORT)]
    assert xla(SHORT) == xla(OWED[0])


@pytest.mark.parametrize("differences", [BOOK, CHEAPEST], ids=["book", "cheapest"])
def test_every_difference_is_about_one_sum_that_is_asked(differences):
    where = [expression for difference in differences for expression in difference.where]
    assert len(where) == len(set(where))
    assert set(where) < {question.expression for question in OWED}
