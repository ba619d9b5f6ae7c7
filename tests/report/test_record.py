"""Records: attributes as exact as they were computed, items as JSON has them, and a schema made from both."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest

from tpsim.answers.plan import plan
from tpsim.cost.rollup import Row
from tpsim.report.answer import PLAIN, _record
from tpsim.report.record import Bytes, Of, Record, Seconds, names, plain

A_PLAN = "import sys, tpsim; row = tpsim.plan('llama3-70b-h100').rows[0]; row.time_s, row['payload_bytes'], row.array; "


@dataclass(frozen=True)
class Part(Record):
    """A part of a trip.

    name  what it is called,
          at length
    """

    name: str
    legs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trip(Record):
    """A trip, of which some is told.

    More than its first paragraph is for readers of the code.
    """

    told: ClassVar[tuple[str, ...]] = ("sent_bytes", "kind", "time_s", "parts", "by_name", "note?", "twice")

    sent_bytes: Bytes
    parts: tuple[Part, ...] = ()
    note: str | None = None
    hidden: object = None

    kind = Of[Literal["there", "back"]](lambda _: "there", "which way")
    time_s = Of[Seconds]("sent_bytes", "as long as it has bytes")

    @property
    def by_name(self) -> dict[str, Part]:
        """Its parts."""
        return {one.name: one for one in self.parts}

    @cached_property
    def twice(self) -> Annotated[float, ("minimum", 0)]:
        """Twice the bytes."""
        return 2 * self.sent_bytes


def test_an_attribute_is_exact_and_an_item_is_a_number_of_json():
    trip = Trip(Fraction(7, 2))
    assert (trip.sent_bytes, trip["sent_bytes"]) == (Fraction(7, 2), 3.5)
    assert repr(Trip(Fraction(8, 2))["sent_bytes"]) == "4"
    assert repr(Trip(4)["time_s"]) == "4.0", "seconds are never ints"
    assert trip.twice == 7


def test_a_record_is_a_mapping_of_what_it_tells_and_of_nothing_else():
    trip = Trip(4, (Part("out", (1, 2)),), hidden=object())
    assert list(trip) == ["sent_bytes", "kind", "time_s", "parts", "by_name", "twice"]
    assert len(trip) == len(dict(trip)) == 6
    assert trip.get("hidden") is None
    with pytest.raises(KeyError):
        trip["hidden"]
    assert list(replace(trip, note="late"))[5] == "note"
    assert trip["parts"][0].legs == (1, 2)
    assert trip["parts"][0]["legs"] == [1, 2]


def test_a_record_prints_what_it_tells_and_nothing_else():
    """A plan's step printed its rows with all their types, 4 kB."""
    assert repr(Trip(4, (Part("out"),), hidden=object())) == (
        "Trip(sent_bytes=4, kind='there', time_s=4.0, parts=[Part(name='out', legs=[])], "
        "by_name={'out': Part(name='out', legs=[])}, twice=8)"
    )


def test_a_document_is_plain_all_the_way_down():
    part = {"name": "out", "legs": [1, 2]}
    said = plain({"trip": Trip(4, (Part("out", (1, 2)),)), "rates_s": [1, Fraction(1, 2)], "ok": True})
    assert said == {
        "trip": {
            "sent_bytes": 4,
            "kind": "there",
            "time_s": 4.0,
            "parts": [part],
            "by_name": {"out": part},
            "twice": 8,
        },
        "rates_s": [1.0, 0.5],
        "ok": True,
    }
    assert json.loads(json.dumps(said)) == said


def test_a_schema_is_made_from_types_and_docstrings():
    named = {}
    made = _record(Trip, named)
    assert made["description"] == "A trip, of which some is told."
    assert made["required"] == ["sent_bytes", "kind", "time_s", "parts", "by_name", "twice"]
    fields = made["properties"]
    assert fields["kind"] == {
        "description": "Which way.",
        "enum": ["there", "back"],
        "title": "Kind",
        "type": "string",
    }
    assert fields["time_s"]["minimum"] == 0
    assert fields["sent_bytes"]["description"] == "whole if exact"
    assert fields["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert fields["by_name"]["additionalProperties"] == {"$ref": "#/$defs/Part"}
    assert fields["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert named["Part"]["properties"]["name"]["description"] == "What it is called, at length."


def test_a_type_that_json_has_not_is_refused():
    @dataclass(frozen=True)
    class Odd(Record):
        """It has a complex number."""

        number: complex

    assert complex not in PLAIN
    with pytest.raises(KeyError):
        _record(Odd, {})


def test_a_row_of_a_plan_has_the_names_of_the_interface_as_attributes_and_items():
    result = plan("llama3-70b-h100")
    told = result.to_json()["result"]["collectives"]
    for row, document in zip(result.rows, told, strict=True):
        assert {name: plain(getattr(row, name), name) for name in row} == dict(row) == document


def test_a_formula_is_not_made_before_somebody_reads_it():
    told = "print('sympy' in sys.modules)"
    code = f"{A_PLAN}{told}; row['formula']; {told}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_every_column_of_a_plan_says_in_the_schema_what_it_is():
    made = json.loads((Path(__file__).parents[2] / "schema" / "plan.json").read_text(encoding="utf-8"))
    columns = made["$defs"]["Row"]["properties"]
    assert list(columns) == list(names(Row))
    assert [name for name, one in columns.items() if not one.get("description")] == []


def test_whether_there_is_a_record_is_answered_without_working_out_what_it_may_leave_out():
    class Dear(Record):
        told: ClassVar[tuple[str, ...]] = ("sum?",)

        @property
        def sum(self) -> int:
            raise AssertionError("asked for")

    assert Dear()
