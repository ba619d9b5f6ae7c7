"""The rows of a table as nccl-tests prints it, put together again where debug lines tore them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpsim.calibrate.logs.log import stretches

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
    parts = stretches(starts, len(labels) - 1)
    groups = tuple(tuple(label for label in labels[a : b + 1] if label in FIGURES) for a, b in parts)
    return Columns("root" in labels, groups, len(groups) == 1 and "in-place" in above and "out-of-place" not in above)


@dataclass(frozen=True, slots=True)
class Row:
    """One size.

    redop     the operation; "" or "none" for a collective that only moves
    root      the rank that it starts or ends at; -1 for none
    halves    its figures by label: out of place and in place, as far as both were measured
    in_place  True if there are none out of place
    """

    size: int
    redop: str
    root: int
    line: int
    halves: tuple[Mapping[str, str], ...]
    in_place: bool

    @property
    def figures(self) -> Mapping[str, str]:
        """Those to use: out of place where measured."""
        return self.halves[0]


# Size, count, type, and the operation if one is printed; a debug line may be glued to the root.
_HEAD = re.compile(r"^\s*(\d+)\s+(\d+)\s+[a-z]\w*(\s+[a-z]+)?(\s.*|)$")
_ROOT = re.compile(r"\s+-?\d+")
# As printf writes it: no zero before a digit, so that a host's name may be glued to a zero. Atomic: all of it or none.
_FIGURE = re.compile(r"\s*((?>N/A|nan|inf|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[-+]?\d+)?))(?=\s|$|[0-9A-Za-z\[])")


def rows(log: Log, first: int, last: int, known: Columns) -> Iterator[Row]:
    """The rows within those lines of a log, both ends included.

    Debug output may stand between a row's head, its two halves and its end.

    Raises InputError for a row that is not whole.
    """
    heads = dict(log.found(_HEAD, first, last))
    for line, end in stretches(heads, last):
        size, head = int(heads[line][1]), heads[line]
        root = _ROOT.match(head[4]) if known.root else None
        texts = [head[4][root.end() if root else 0 :], *(text for text in log.lines[line:end] if text[:1].isspace())]
        figures = [figure for text in texts for figure in _figures(text)][: known.figures]
        groups = known.groups if len(figures) == known.figures else known.groups[-1:]
        if len(figures) != sum(map(len, groups)):
            message = f"the row of {size} bytes has {len(figures)} of {known.figures} figures"
            log.refuse("torn-row", message, line, "take the row out, or the log anew")
        numbers = iter(figures)
        halves = tuple({label: next(numbers) for label in labels} for labels in groups)
        in_place = known.only_in_place or len(groups) < len(known.groups)
        yield Row(size, (head[3] or "").strip(), int(root[0]) if root else -1, line, halves, in_place)


def _figures(text: str) -> Iterator[str]:
    """The figures that a text begins with."""
    while match := _FIGURE.match(text):
        yield match[1]
        text = text[match.end() :]
        if text and not text[0].isspace():
            return
