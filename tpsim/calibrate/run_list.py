"""Steps that were measured, as a user lists them: a CSV file of scenarios, seconds and, if they are known, peaks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tpsim.calibrate.logs.log import Log, load
from tpsim.quantity.errors import InputError, Place, suggest
from tpsim.quantity.units import Dimension, UnitError, parse

COLUMNS: Mapping[str, bool] = {"scenario": True, "seconds": True, "memory": False}
"""What a list has, and whether it must."""

EXAMPLE = "scenario,seconds,memory"
_CELL = re.compile(r'\s*("(?:[^"]|"")*"|[^,"]*?)\s*(?:,|$)')
_BARE = r"[\d.eE+-]+"

MANY = 10_000
"""Nobody measured more steps than so many."""


@dataclass(frozen=True, slots=True)
class CsvCell:
    """What stands between two commas, and where."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Listed:
    """One measured step.

    scenario    as the list names it: of the library, or a path from the list's folder
    stated      what the list says of the seconds of a step
    seconds     of a step
    peak_bytes  of a chip; None if it was not measured
    """

    scenario: CsvCell
    stated: CsvCell
    seconds: float
    peak_bytes: float | None

    @property
    def bare(self) -> bool:
        """True for seconds without a unit."""
        return re.fullmatch(_BARE, self.stated.text) is not None


def folder(path: str) -> Path:
    """The folder from which a list names scenarios."""
    return Path() if path == "-" else Path(path).parent


def read(path: Path | str) -> tuple[Log, list[Listed]]:
    """The runs of a list, and the file that they stand in; ``-`` is standard input.

    Raises InputError for what is no such list.
    """
    log = load(path)
    lines = [(at, line) for at, line in enumerate(log.lines, 1) if line.strip() and not line.startswith("#")]
    if len(lines) > MANY:
        log.refuse("file-too-large", f"the list has more than {MANY:,} lines", 0, "give the runs of one machine")
    if len(lines) <= 1:
        log.refuse("no-runs", "the list holds no run", 0, f"write a first line {EXAMPLE} and a line for each run")
    (first, _), *others = lines
    names = _names(list(_cells(log, first)))
    return log, [_listed(dict(zip(names, _row(log, at, len(names)), strict=True))) for at, _ in others]


def _cells(log: Log, at: int) -> Iterator[CsvCell]:
    line, end = log.lines[at - 1], 0
    while end <= len(line):
        match = _CELL.match(line, end)
        if match is None:
            place = Place(log.path, at, end + 1, line)
            raise InputError.one("bad-list", "a quote is not closed, or text stands behind one", place, 'close it: "')
        text = match[1].strip('"').replace('""', '"') if match[1].startswith('"') else match[1]
        yield CsvCell(text, Place(log.path, at, match.start(1) + 1, line, max(1, len(match[1]))))
        end = match.end() if match[0].endswith(",") else len(line) + 1


def _names(heads: list[CsvCell]) -> list[str]:
    """The columns, each known and stated once."""
    for at, head in enumerate(heads):
        if head.text not in COLUMNS:
            near, apart = suggest(head.text, COLUMNS), any(mark in head.text for mark in ";\t|")
            remedy = f'did you mean "{near}"?' if near and not apart else f"write a first line {EXAMPLE}"
            _wrong("unknown-column", f'"{head.text}" is no column of a list of runs', head, remedy)
        if head.text in (cell.text for cell in heads[:at]):
            _wrong("duplicate-column", f"the column {head.text} stands twice", head, "drop one of them")
    names = [head.text for head in heads]
    for name, must in COLUMNS.items():
        if must and name not in names:
            _wrong("missing-column", f"the list has no column {name}", heads[0], f"write a first line {EXAMPLE}")
    return names


def _row(log: Log, at: int, columns: int) -> list[CsvCell]:
    """As many cells as there are columns; those that are missing at the end are empty."""
    cells = list(_cells(log, at))
    if len(cells) > columns:
        problem = f"the line has {len(cells)} cells, the first line {columns}"
        _wrong("bad-list", problem, cells[columns], "drop what is too much, or put quotes around a cell with a comma")
    return [*cells, *[CsvCell("", cells[-1].place)] * (columns - len(cells))]


def _listed(row: Mapping[str, CsvCell]) -> Listed:
    scenario, memory = row["scenario"], row.get("memory")
    if not scenario.text:
        _wrong("no-scenario", "the line names no scenario", scenario, "name one of the library, or a .yaml")
    stated = row["seconds"]
    seconds = _quantity(stated, "seconds")
    return Listed(scenario, stated, seconds, _quantity(memory, "bytes") if memory and memory.text else None)


def _quantity(cell: CsvCell, dimension: Dimension) -> float:
    """A quantity of a cell; a bare number of seconds is one."""
    text = cell.text
    try:
        if dimension == "seconds" and re.fullmatch(_BARE, text):
            text = f"{text} s"
        return parse(text, dimension)
    except UnitError as error:
        _wrong(error.slug, error.message, cell, error.remedy)


def _wrong(slug: str, message: str, cell: CsvCell, remedy: str) -> NoReturn:
    raise InputError.one(slug, message, cell.place, remedy)
