"""Products, changes of type and sums owed: XLA's collectives against the book's plan and the cheapest."""

from __future__ import annotations

import pytest

from tests.oracle import ours, owed_sums, products, reshards
from tests.oracle.differences import named, relation
from tests.oracle.questions import OWED, PRODUCTS, RESHARDS, SHORT, SWAP

pytestmark = pytest.mark.oracle

ASKED = {products: PRODUCTS, reshards: (*RESHARDS, SWAP), owed_sums: OWED}
"""The questions that each table is about."""

QUESTIONS = [
    pytest.param(table, question, id=str(question)) for table, questions in ASKED.items() for question in questions
]
TABLES = [pytest.param(table, id=table.__name__.rpartition(".")[2]) for table in ASKED]


@pytest.mark.parametrize(("table", "question"), QUESTIONS)
def test_xla_does_as_the_book_or_differs_by_name(xla, table, question):
    theirs, by_book = xla(question), ours.book(question)
    assert relation(theirs, by_book) == named(question.expression, table.BOOK), f"XLA {theirs}; book {by_book}"


@pytest.mark.parametrize(("table", "question"), QUESTIONS)
def test_xla_does_as_cheaply_as_we_do_or_differs_by_name(xla, table, question):
    theirs = xla(question)
    best = ours.cheapest(question, theirs.flops)
    assert relation(theirs, best) == named(question.expression, table.CHEAPEST), f"XLA {theirs}; ours {best}"


@pytest.mark.parametrize("table", TABLES)
def test_xla_is_better_than_the_cheapest_plan_only_where_two_dims_swap_their_axes(table):
    better = [one.where for one in table.CHEAPEST if "less" in (one.wire, one.work)]
    assert better == ([(SWAP.expression,)] if table is reshards else [])


def test_sums_that_xla_promotes_are_counted_as_asked(xla, texts):
    assert "f32[64,128]{1,0} all-reduce(" in texts[str(SHORT)]
    assert xla(SHORT) == xla(OWED[0])


@pytest.mark.parametrize("against", ["BOOK", "CHEAPEST"])
@pytest.mark.parametrize("table", TABLES)
def test_every_difference_is_about_one_question_that_is_asked(table, against):
    where = [expression for difference in getattr(table, against) for expression in difference.where]
    assert len(where) == len(set(where))
    assert set(where) < {question.expression for question in ASKED[table]}
