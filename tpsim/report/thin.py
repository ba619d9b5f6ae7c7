"""Pictures made thin: what nobody could see is drawn together, so that a report of a thousand lanes stays small."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tpsim.report.picture import Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_SPANS = 6000
"""Spans that a picture has room for, whatever its lanes are."""

IN_TURN = "several in turn"
"""The sort of a stretch in which several sorts lie, each too short to be seen."""


def thinned(lane: Sequence[Span], whole: float, cells: int) -> list[Span]:
    """A lane as it is, or of more spans than cells what lies in each cell: equal neighbours are one span.

    whole  seconds of all lanes, which the cells share
    """
    if len(lane) <= cells:
        return list(lane)
    sorts: dict[int, set[str]] = {}
    for start, end, sort, _ in lane:
        first = int(start / whole * cells)
        for at in range(first, max(first + 1, round(end / whole * cells))):
            sorts.setdefault(at, set()).add(sort)
    cell = whole / cells
    alone = {at: here.pop() if len(here) == 1 else IN_TURN for at, here in sorts.items()}
    seen = [(at, IN_TURN if _is_between(alone, at) else sort) for at, sort in sorted(alone.items())]
    runs = (list(run) for _, run in groupby(enumerate(seen), key=lambda one: (one[1][0] - one[0], one[1][1])))
    return [Span(run[0][1][0] * cell, min((run[-1][1][0] + 1) * cell, whole), run[0][1][1]) for run in runs]


def _is_between(cells: Mapping[int, str], at: int) -> bool:
    """True for a cell between two in which several sorts lie."""
    return cells.get(at - 1) == cells.get(at + 1) == IN_TURN
