"""The rows of a table as nccl-tests prints it, put together again where debug lines tore them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.api.logs.log import Log

TIMES = ("time", "cputime")
WRONG = ("#wrong", "error")
"""What the count of wrong values is called; releases before 2.13 print the largest deviation under ``error``."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What stands in a row: whether the root is printed, and the figures, once per placement of the result.

    groups  labels of the figures out of place and in place; one group where only the latter is measured
    """

    root: bool
    groups: tuple[tuple[str, ...], ...]

    @property
    def figures(self) -> int:
        """Figures in a whole row."""
        return sum(map(len, self.groups))


def columns(labels: Sequence[str]) -> Columns:
    """The columns that the labels of a table name.

    >>> columns("size count type redop root time algbw busbw #wrong time algbw busbw #wrong".split()).figures
    8
    """
    starts = [at for at, label in enumerate(labels) if label in TIMES]
    ends = [*starts[1:], len(labels)]
    groups = [tuple(label for label in labels[a:b] if label != "timestamp") for a, b in zip(starts, ends, strict=True)]
    return Columns("root" in labels, tuple(groups))


@dataclass(frozen=True, slots=True)
class Row:
    """One size: its figures by label, out of place (None if not measured) and in place (None likewise)."""

    size: int
    redop: str
    line: int
    out_of_place: Mapping[str, str] | None
    in_place: Mapping[str, str] | None

    @property
    def figures(self) -> Mapping[str, str]:
        """Those to use: out of place where measured."""
        return self.out_of_place or self.in_place or {}


def rows(log: Log, first: int, last: int, known: Columns) -> Iterator[Row]:
    """The rows within those lines of a log, both ends included.

    Raises InputError for a row that is not whole.
    """
    started: _Started | None = None
    for number in range(first, last + 1):
        line = log.lines[number - 1]
        head = _HEAD.match(line)
        if head:
            yield from _finished(log, started, known)
            started = _Started(int(head[1]), head[3] or "", number)
            started.take(_after_root(head[4], known), known)
        elif started and not line.startswith("#"):
            started.take(line, known)
    yield from _finished(log, started, known)


# Size, count, type, and the operation if one is printed; a debug line may be glued to the root.
_HEAD = re.compile(r"\s*(\d+)\s+(\d+)\s+[a-z]\w*(\s+[a-z]+)?(\s.*|)$")
_ROOT = re.compile(r"\s+-?\d+")
_FIGURE = re.compile(r"\s*(N/A|nan|inf|-?[\d.]+(?:e[-+]?\d+)?)(?=\s|$|[A-Za-z\[])")


def _after_root(text: str, known: Columns) -> str:
    return _ROOT.sub("", text, count=1) if known.root else text


@dataclass(slots=True)
class _Started:
    """A row of which some is read: debug output may stand between its head, its two halves and its end."""

    size: int
    redop: str
    line: int
    figures: list[str] = field(default_factory=list)

    def take(self, text: str, known: Columns) -> None:
        """Read on from `text`, as far as there are figures and the row lacks some."""
        while len(self.figures) < known.figures and (match := _FIGURE.match(text)):
            self.figures.append(match[1])
            text = text[match.end() :]


def _finished(log: Log, row: _Started | None, known: Columns) -> Iterator[Row]:
    if row is None:
        return
    if len(row.figures) == known.figures:
        halves = _halves(row.figures, known)
    elif len(row.figures) == len(known.groups[-1]):
        halves = [None, dict(zip(known.groups[-1], row.figures, strict=True))]
    else:
        message = f"the row of {row.size} bytes has {len(row.figures)} of {known.figures} figures"
        log.refuse("torn-row", message, row.line, "take the row out, or the log anew")
    yield Row(row.size, row.redop.strip(), row.line, *halves)


def _halves(figures: Sequence[str], known: Columns) -> list[Mapping[str, str] | None]:
    """The figures by label, out of place and in place."""
    found: list[Mapping[str, str] | None] = []
    for labels in known.groups:
        found.append(dict(zip(labels, figures, strict=False)))
        figures = figures[len(labels) :]
    return found if len(found) > 1 else [None, *found]
