"""Every product over one axis: the collectives of XLA's partitioner against the book's plan and the cheapest."""

from __future__ import annotations

import pytest

from tests.oracle import ours
from tests.oracle.differences import Difference, named, relation
from tests.oracle.questions import PRODUCTS

pytestmark = pytest.mark.oracle

BOOK = (
    Difference(
        "XLA slices an operand that every device holds whole; the book multiplies it whole and slices the result",
        "same",
        "less",
        (
            "A[I, J] . B[J, K] -> C[I_X, K]",
            "A[I, J] . B[J, K] -> C[I, K_X]",
            "A[I, J] . B[J_X, K] -> C[I_X, K]",
            "A[I, J_X] . B[J, K] -> C[I, K_X]",
        ),
    ),
    Difference(
        "XLA slices A for free and pays for the sum; the book gathers B and every device repeats the product",
        "more",
        "less",
        ("A[I, J] . B[J_X, K] -> C[I, K]",),
    ),
    Difference(
        "XLA exchanges the operand's split for the one that the result is wanted in; the book gathers it, then slices",
        "less",
        "less",
        ("A[I, J] . B[J_X, K] -> C[I, K_X]", "A[I, J_X] . B[J, K] -> C[I_X, K]"),
    ),
    Difference(
        "XLA lets A give way and exchanges B; the book gathers B, then exchanges the result, which is larger than B/X",
        "less",
        "same",
        ("A[I_X, J] . B[J_X, K] -> C[I, K_X]",),
    ),
    Difference(
        "XLA gathers an operand so that the product comes out as wanted; the book exchanges the split of the result",
        "more",
        "same",
        (
            "A[I, J] . B[J, K_X] -> C[I_X, K]",
            "A[I_X, J] . B[J, K] -> C[I, K_X]",
            "A[I, J_X] . B[J, K_X] -> C[I_X, K]",
        ),
    ),
)

CHEAPEST = (
    Difference(
        "an exchange of B's split and a gather of the result cost less than XLA's all-reduce",
        "more",
        "same",
        ("A[I, J] . B[J_X, K] -> C[I, K]",),
    ),
    Difference(
        "an exchange of the operand's split and one of the result's cost less than XLA's gather of the operand",
        "more",
        "same",
        ("A[I, J] . B[J_X, K] -> C[I_X, K]", "A[I, J_X] . B[J, K] -> C[I, K_X]"),
    ),
    Difference(
        "an exchange of the result's split costs less than XLA's gather of an operand",
        "more",
        "same",
        ("A[I, J] . B[J, K_X] -> C[I_X, K]", "A[I_X, J] . B[J, K] -> C[I, K_X]"),
    ),
    Difference(
        "a gather of A and an exchange of the result cost less than XLA's gather of B and exchange of A",
        "more",
        "same",
        ("A[I, J_X] . B[J, K_X] -> C[I_X, K]",),
    ),
)


@pytest.mark.parametrize("question", PRODUCTS, ids=str)
def test_xla_inserts_the_books_collectives_or_differs_by_name(xla, question):
    theirs, by_book = xla(question), ours.book(question)
    assert relation(theirs, by_book) == named(question.expression, BOOK), f"XLA {theirs}; book {by_book}"


@pytest.mark.parametrize("question", PRODUCTS, ids=str)
def test_xla_inserts_the_cheapest_collectives_or_ours_are_cheaper_by_name(xla, question):
    theirs = xla(question)
    best = ours.cheapest(question, theirs.flops)
    assert relation(theirs, best) == named(question.expression, CHEAPEST), f"XLA {theirs}; ours {best}"


def test_xla_is_never_better_than_the_cheapest_plan():
    assert not any("less" in (difference.wire, difference.work) for difference in CHEAPEST)


@pytest.mark.parametrize("differences", [BOOK, CHEAPEST], ids=["book", "cheapest"])
def test_every_difference_is_about_one_product_that_is_asked(differences):
    where = [expression for difference in differences for expression in difference.where]
    assert len(where) == len(set(where))
    assert set(where) < {question.expression for question in PRODUCTS}
