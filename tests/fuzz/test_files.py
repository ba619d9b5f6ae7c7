"""No file that is wrong in one field gets an answer that hides it.

``TPSIM_FUZZ=all python -m pytest tests/fuzz/test_files.py`` tries every mutation of every field (about six minutes of
one core). Otherwise a field of the format is tried in the first file that has it, and one in 240 of all
fields of all files beside that; each gets one of its mutations, another one in each file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from tests.fuzz.mutations import OTHER_CHOICE, Keys, Mutation, fields, mutations
from tests.fuzz.test_suggestions import FORMATS, models
from tests.fuzz.verdict import ROOT, Subject, complaint, planned, probe, subjects
from tpsim.quantity.spec import Strict
from tpsim.question.question import Workload
from tpsim.question.scenario_file import ScenarioFile

if TYPE_CHECKING:
    from collections.abc import Iterator

CURVES = Subject(ROOT / "tests" / "data" / "with_curves.yaml", "hardware")
"""No machine that tpsim ships has measured curves."""

SUBJECTS = [*subjects(), CURVES]
ALL = os.environ.get("TPSIM_FUZZ") == "all"


NAMED = {name for top in FORMATS.values() for fields in models(top).values() for name in fields}
"""Every field of every format; what else stands as a key is a name that the file gives, or a place in a list."""

FILES, ONE_IN = 1, 240


@cache
def drawn() -> frozenset[tuple[str, Keys]]:
    """The fields that are tried, by file: of each that the format knows a few, and a sample of the rest."""
    chosen, seen = set(), Counter[tuple[str, ...]]()
    for subject in SUBJECTS:
        for keys in fields(subject.head):
            place = (subject.kind, *(str(key) if key in NAMED else "*" for key in keys))
            seen[place] += 1
            if seen[place] <= FILES or _number(subject, keys) % ONE_IN == 0:
                chosen.add((subject.name, keys))
    return frozenset(chosen)


def _number(subject: Subject, keys: Keys) -> int:
    return crc32(f"{subject.name} {keys}".encode())


def tried(subject: Subject) -> Iterator[Mutation]:
    """All mutations, or one of each field drawn, by the names of file and field, and another choice if it has some."""
    for keys, group in groupby(mutations(subject.head), lambda mutation: mutation.keys):
        every = list(group)
        one = every[_number(subject, keys) // ONE_IN % len(every)]
        chosen = [other for other in every if other.name == OTHER_CHOICE and keys[-1] != "kind" and other != one]
        yield from every if ALL else [one, *chosen] if (subject.name, keys) in drawn() else ()


def complaints(subject: Subject, folder) -> list[str]:
    found = ((mutation, complaint(subject, mutation, folder)) for mutation in tried(subject))
    return [f"{mutation.field}, {mutation.name}: {wrong}" for mutation, wrong in found if wrong]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_wrong_field_is_refused_at_its_place_or_shown_in_the_answer(subject, tmp_path):
    assert complaints(subject, tmp_path) == []


def test_every_field_of_every_format_that_some_file_has_is_tried():
    tried_ones = {keys[-1] for _, keys in drawn() if keys[-1] in NAMED}
    assert tried_ones == {keys[-1] for subject in SUBJECTS for keys in fields(subject.head)} & NAMED
    assert len(drawn()) > 400


def subject_of(name: str) -> Subject:
    return next(one for one in subjects() if one.name == name)


SCENARIO = "scenarios/llama3-70b-h100.yaml"


def cases(name: str, *keys: str) -> list[Mutation]:
    return [one for one in mutations(subject_of(name).head) if one.keys == keys]


def outcomes(name: str, tmp_path, *keys: str) -> dict[str, str]:
    subject = subject_of(name)
    return {one.name: complaint(subject, one, tmp_path) for one in cases(name, *keys)}


def test_the_question_that_is_put_to_every_machine_is_answered_by_those_that_tpsim_ships():
    for subject in subjects():
        if subject.kind == "hardware":
            assert planned(probe(subject.path))


UNSEEN = "nothing of the answer shows it"


def test_the_judge_sees_a_field_that_is_ignored(tmp_path, monkeypatch):
    honest = Strict.model_validate_json.__func__

    def careless(model, text, **how):
        data = {key: value for key, value in json.loads(text).items() if key in model.model_fields}
        return honest(model, json.dumps(data), **how)

    monkeypatch.setattr(ScenarioFile, "model_validate_json", classmethod(careless))
    assert outcomes(SCENARIO, tmp_path, "mesh")["unknown beside"] == UNSEEN


def test_the_judge_sees_a_silent_default(tmp_path, monkeypatch):
    always = Workload(global_batch=512, seq=4096, microbatches=4)
    monkeypatch.setattr("tpsim.question.scenario._workload", lambda *_: always)
    assert outcomes(SCENARIO, tmp_path, "workload", "seq")["twice"] == UNSEEN


def test_the_judge_sees_a_traceback(tmp_path, monkeypatch):
    def falls_over(*_args, **_kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr("tests.fuzz.verdict.priced", falls_over)
    found = outcomes(SCENARIO, tmp_path, "workload", "seq")
    assert "ZeroDivisionError: " in set(found.values())
