"""Worked problems of How to Scale Your Model, answered by tpsim's public functions and shipped profiles.

An answer matches the exact value to 1e-9 under the cost model named beside it, and the printed one within its stated
tolerance. Answers that the book computed from rounded values are held against the printed value only. Who answers what
stands in tests/worked/answers.py; what cannot be answered yet in tests/data/pending_problems.yaml.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sympy

from tests.worked.answer import MODELS
from tests.worked.answers import ANSWERS
from tpsim.quantity import spec

DATA = Path(__file__).parent / "data"
PROBLEMS = {problem["id"]: problem for problem in json.loads((DATA / "worked_problems.json").read_text())["problems"]}
STATED = {(name, answer["name"]): answer for name, problem in PROBLEMS.items() for answer in problem["answers"]}
ASKED = {(name, answer): how for name, found in ANSWERS.items() for answer, how in found.items()}
EXACT, COMPARED = 1e-9, 0.1
"""Relative tolerance against the exact value; tolerances of the printed value above which it is not compared."""


@pytest.fixture(scope="module")
def waiting():
    return spec.load(DATA / "pending_problems.yaml").data


def spread(names):
    """Problems and single answers as (problem, answer) pairs."""
    pairs = []
    for name in names:
        problem, _, answer = name.partition(".")
        pairs += [(problem, answer)] if answer else [pair for pair in STATED if pair[0] == problem]
    return pairs


def held(waiting):
    names = [name for capability in waiting["pending"].values() for name in capability]
    return spread(names) + spread(waiting["rounded"]) + spread(waiting["measured"])


@pytest.mark.parametrize(("problem", "answer"), ASKED, ids=[".".join(pair) for pair in ASKED])
def test_the_answer_is_the_exact_one_and_near_the_printed_one(problem, answer):
    stated, how = STATED[problem, answer], ASKED[problem, answer]
    found = how.ask()
    if how.formula is not None:
        assert equals(found, how.formula)
    elif how.says is not None:
        assert found == how.says
    elif isinstance(stated["exact"], bool | list):
        assert found == stated["exact"]
    else:
        agrees(float(found), stated)


def equals(found, formula):
    """True if two formulas, or two lists of them, agree for all sizes."""
    if isinstance(formula, list):
        return all(map(equals, found, formula))
    return sympy.simplify(found / formula).equals(1) or abs(sympy.simplify(found / formula) - 1) < EXACT


def agrees(found, stated):
    exact, book, tolerance = stated["exact"], stated["book"], stated.get("book_tol_rel", 0)
    if not stated.get("from_rounded"):
        assert found == pytest.approx(exact, rel=EXACT)
    if book is not None and tolerance <= COMPARED:
        assert abs(found - book) <= (tolerance + EXACT) * abs(found)


def test_every_answer_is_given_measured_or_waits_for_something(waiting):
    waits = held(waiting)
    assert len(waits) == len(set(waits))
    assert not set(waits) & set(ASKED)
    assert set(waits) | set(ASKED) == set(STATED)


def test_what_waits_may_only_become_less(waiting):
    pending = spread(name for capability in waiting["pending"].values() for name in capability)
    assert len(pending) == waiting["most"]


def test_measured_readings_have_no_exact_value_and_are_asked_of_nobody(waiting):
    measured = spread(waiting["measured"])
    assert all(STATED[pair]["exact"] is None and "symbolic" not in STATED[pair] for pair in measured)
    assert [
        pair for pair in ASKED if STATED[pair]["exact"] is None and not (ASKED[pair].says or ASKED[pair].formula)
    ] == []


def test_every_answer_names_its_cost_model():
    assert {how.model for how in ASKED.values()} == MODELS
