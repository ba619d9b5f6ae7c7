"""Sixteen changes of type over two axes: XLA's collectives against the book's path and the cheapest."""

from __future__ import annotations

import pytest

from tests.oracle import ours
from tests.oracle.differences import Difference, named, relation
from tests.oracle.questions import RESHARDS, SWAP

pytestmark = pytest.mark.oracle

ASKED = (*RESHARDS, SWAP)

BOOK = (
    Difference(
        "XLA permutes the shards first; the book never permutes, and gathers the axes that stand in the way",
        "less",
        "same",
        (
            "A[I_XY, J] -> A[I_Y, J]",
            "A[I_YX, J] -> A[I_X, J]",
            "A[I_XY, J] -> A[I_YX, J]",
            "A[I_XY, J] -> A[I_Y, J_X]",
            "A[I_X, J] -> A[I_Y, J]",
            "A[I_X, J] -> A[I_YX, J]",
            "A[I_X, J_Y] -> A[I_Y, J_X]",
        ),
    ),
    Difference(
        "XLA gathers the whole array, then slices; the book slices over the idle axis first and gathers half",
        "more",
        "same",
        ("A[I_X, J] -> A[I, J_Y]",),
    ),
    Difference(
        "XLA gathers one dim after the other, ours both in one call: the bytes are the same",
        "same",
        "same",
        ("A[I_X, J_Y] -> A[I, J]",),
    ),
)

CHEAPEST = (
    Difference(
        "one exchange over both axes and one back cost less than XLA's exchange over parts of them and permute",
        "more",
        "same",
        ("A[I_XY, J] -> A[I_Y, J_X]",),
    ),
    Difference(
        "a free slice over the idle axis halves the gather; XLA gathers the whole array, then slices",
        "more",
        "same",
        ("A[I_X, J] -> A[I, J_Y]",),
    ),
    Difference(
        "XLA permutes whole blocks and gathers over half of X, ours permutes half blocks and gathers over X",
        "same",
        "same",
        ("A[I_X, J] -> A[I_Y, J]",),
    ),
    Difference(
        "XLA gathers one dim after the other, ours both in one call: the bytes are the same",
        "same",
        "same",
        ("A[I_X, J_Y] -> A[I, J]",),
    ),
    Difference(
        "XLA permutes blocks between devices whatever dims they are split on; a permute of ours stays within one dim",
        "less",
        "same",
        (SWAP.expression,),
    ),
)


@pytest.mark.parametrize("question", ASKED, ids=str)
def test_xla_moves_as_the_book_or_differs_by_name(xla, question):
    theirs, by_book = xla(question), ours.book(question)
    assert relation(theirs, by_book) == named(question.expression, BOOK), f"XLA {theirs}; book {by_book}"


@pytest.mark.parametrize("question", ASKED, ids=str)
def test_xla_moves_as_cheaply_as_we_do_or_differs_by_name(xla, question):
    theirs = xla(question)
    best = ours.cheapest(question, theirs.flops)
    assert relation(theirs, best) == named(question.expression, CHEAPEST), f"XLA {theirs}; ours {best}"


def test_xla_is_better_than_the_cheapest_path_only_where_two_dims_swap_their_axes():
    better = {expression for difference in CHEAPEST if difference.wire == "less" for expression in difference.where}
    assert better == {SWAP.expression}


@pytest.mark.parametrize("differences", [BOOK, CHEAPEST], ids=["book", "cheapest"])
def test_every_difference_is_about_one_reshard_that_is_asked(differences):
    where = [expression for difference in differences for expression in difference.where]
    assert len(where) == len(set(where))
    assert set(where) < {question.expression for question in ASKED}
