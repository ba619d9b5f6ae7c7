"""Deliberate faults, one at a time: each is noticed by the judge named with it, for the reason named with it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.faults import carried, counted, sent, timed
from tests.faults.fault import wrap
from tests.faults.judges import ALONE, JUDGES, SP, findings
from tpsim.algebra import moves
from tpsim.program import dtypes
from tpsim.quantity.size import over
from tpsim.reference import functions

FAULTS = [*sent.FAULTS, *counted.FAULTS, *carried.FAULTS, *timed.FAULTS]
pytestmark = pytest.mark.usefixtures("anew")


@pytest.mark.parametrize("judge", ALONE)
def test_without_a_fault_the_judge_finds_nothing(judge):
    assert findings(JUDGES[judge]) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_wrong_function_is_noticed_by_the_judge_that_is_named(monkeypatch, fault):
    wrap(monkeypatch, fault.place, fault.wrong)
    said = findings(JUDGES[fault.judge])
    assert [line for line in said if fault.says in line], said


def test_every_judge_notices_something():
    assert JUDGES.keys() - {fault.judge for fault in FAULTS} == {"a_dtype_has_the_bits_of_its_name"}


# Tables ----------------------------------------------------------------------------------------------------------


def test_a_vocabulary_range_short_by_one_is_noticed_by_verify(monkeypatch):
    def short(_sizes, _b, _s, v, ids):
        return (v == ids) * (v < np.max(v))

    monkeypatch.setitem(functions.INDEX, "one_hot", short)
    (values, *_) = findings(JUDGES[f"verify {SP}"])
    assert values.startswith("values: embedding.out")


def test_a_wrong_size_of_a_dtype_is_noticed_by_its_name(monkeypatch):
    monkeypatch.setitem(dtypes.DTYPE_BYTES, "f32", 2)
    assert findings(JUDGES["a_dtype_has_the_bits_of_its_name"]) == ["broken: f32"]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("all_reduce", lambda V, n: over(V * (n - 1), n)),
        ("all_gather", lambda V, n: V * n // n),
        ("reduce_scatter", lambda V, n: V * (n - 1)),
    ],
)
def test_a_wrong_wire_of_a_move_is_noticed_by_verify(monkeypatch, kind, wrong):
    monkeypatch.setitem(moves.WIRE, kind, wrong)
    said = findings(JUDGES[f"verify {SP}"])
    assert [line for line in said if line.startswith("collectives:") and "wire planned" in line]


def test_a_wrong_wire_of_an_exchange_is_noticed_by_verify(monkeypatch):
    monkeypatch.setitem(moves.WIRE, "all_to_all", lambda V, n: V * (n - 1) / n)
    assert findings(JUDGES["verify exchange beside another axis"])
