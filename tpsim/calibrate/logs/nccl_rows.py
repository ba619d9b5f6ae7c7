"""The rows of a table as nccl-tests prints it, put together again where debug lines tore them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.calibrate.logs.log import Log

TIMES = ("time", "cputime")
WRONG = ("#wrong", "error")
"""What the count of wrong values is called; releases before 2.13 print the largest deviation under ``error``."""


FIGURES = frozenset({*TIMES, *WRONG, "algbw", "busbw", "i_min", "i_max", "i_p99", "i_cv%"})
"""Labels of numbers; a time stamp, or rccl-tests' algorithm, may stand after the last one."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What stands in a row: whether the root is printed, and the figures, once per placement of the result.

    groups         labels of the figures out of place and in place; one group where only one of them is measured, none
                   where no column is a time
    only_in_place  which one that is
    """

    root: bool
    groups: tuple[tuple[str, ...], ...]
    only_in_place: bool = False

    @property
    def figures(self) -> int:
        """Figures in a whole row."""
        return sum(map(len, self.groups))


def columns(labels: Sequence[str], above: str = "") -> Columns:
    """The columns that the labels of a table name; `above` is the line that says which are of results in place.

    >>> columns("size count type redop root time algbw busbw #wrong time algbw busbw #wrong".split()).figures
    8
    """
    starts = [at for at, label in enumerate(labels) if label in TIMES]
    ends = [*starts[1:], len(labels)]
    groups = [tuple(label for label in labels[a:b] if label in FIGURES) for a, b in zip(starts, ends, strict=False)]
    return Columns("root" in labels, tuple(groups), "in-place" in above and "out-of-place" not in above)


@dataclass(frozen=True, slots=True)
class Row:
    """One size: its figures by label, out of place (None if not measured) and in place (None likewise).

    redop  the operation; "" or "none" for a collective that only moves
    root   the rank that it starts or ends at; -1 for none
    """

    size: int
    redop: str
    root: int
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
            root, rest = _root(head[4], known)
            started = _Started(int(head[1]), (head[3] or "").strip(), root, number)
            started.take(rest, known)
        elif started and line[:1].isspace():
            started.take(line, known)
    yield from _finished(log, started, known)


# Size, count, type, and the operation if one is printed; a debug line may be glued to the root.
_HEAD = re.compile(r"\s*(\d+)\s+(\d+)\s+[a-z]\w*(\s+[a-z]+)?(\s.*|)$")
_ROOT = re.compile(r"\s+-?\d+")
# As printf writes it: no zero before a digit, so that a host's name may be glued to a zero. Atomic: all of it or none.
_FIGURE = re.compile(r"\s*((?>N/A|nan|inf|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[-+]?\d+)?))(?=\s|$|[0-9A-Za-z\[])")


def _root(text: str, known: Columns) -> tuple[int, str]:
    """The root, and what follows it."""
    match = _ROOT.match(text) if known.root else None
    return (int(match[0]), text[match.end() :]) if match else (-1, text)


@dataclass(slots=True)
class _Started:
    """A row of which some is read: debug output may stand between its head, its two halves and its end."""

    size: int
    redop: str
    root: int
    line: int
    figures: list[str] = field(default_factory=list)

    def take(self, text: str, known: Columns) -> None:
        """Read on from `text`, as far as there are figures and the row lacks some."""
        glued = False
        while not glued and len(self.figures) < known.figures and (match := _FIGURE.match(text)):
            self.figures.append(match[1])
            text = text[match.end() :]
            glued = bool(text) and not text[0].isspace()


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
    yield Row(row.size, row.redop, row.root, row.line, *halves)


def _halves(figures: Sequence[str], known: Columns) -> list[Mapping[str, str] | None]:
    """The figures by label, out of place and in place."""
    found: list[Mapping[str, str] | None] = []
    for labels in known.groups:
        found.append(dict(zip(labels, figures, strict=False)))
        figures = figures[len(labels) :]
    if len(found) > 1:
        return found
    return [None, *found] if known.only_in_place else [*found, None]
