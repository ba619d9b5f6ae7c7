"""Collectives on a torus: one axis after another, or in rotated parts that keep all axes busy at once."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from tpsim.quantity.errors import InputError
from tpsim.reference.levels import Axes, Axis, Share, collected, in_order, nested, small_units, stages
from tpsim.reference.schedule import Schedule, at_once, common

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import MoveKind

Order = tuple[int, ...]


def in_turn(axes: Sequence[Axis], closed: Sequence[bool], kind: MoveKind) -> Schedule:
    """One axis after another; those with open ends gather first, on the smallest parts."""
    if kind == "all_reduce":
        return in_turn(axes, closed, "reduce_scatter").then(in_turn(axes, closed, "all_gather"))
    return nested(axes, kind, open_first(closed))


def open_first(closed: Sequence[bool]) -> Order:
    """The axes in the order in which they gather."""
    return tuple(sorted(range(len(closed)), key=lambda at: closed[at]))


def rotated(axes: Sequence[Axis], closed: Sequence[bool], kind: MoveKind) -> Schedule:
    """Parts of every block that take the axes in different orders, all at once.

    The parts of a gather are weighted by the shape, such that every link is equally busy over the whole run; those of
    an all-to-all are equal.
    """
    if kind == "all_reduce":
        return rotated(axes, closed, "reduce_scatter").then(rotated(axes, closed, "all_gather"))
    parts = dict(_equal(open_first(closed)) if kind == "all_to_all" else weighted(axes, closed))
    shares = common(*(share.denominator for share in parts.values()))
    units = shares * small_units(axes, stages(kind, open_first(closed)))
    runs, start = [], 0
    for order, share in parts.items():
        stop = start + int(share * units)
        part = Axes(axes, Share(units, start, stop))
        runs.append(in_order(part, stages(kind, order)))
        start = stop
    return collected(Axes(axes, Share(units, 0, units)), kind, at_once(runs))


def weighted(axes: Sequence[Axis], closed: Sequence[bool]) -> list[tuple[Order, Fraction]]:
    """Orders of the axes with their shares of the array, such that all links are equally busy.

    Raises InputError if no shares do that, as for two devices joined twice beside a longer line.
    """
    busy = [at for at, axis in enumerate(axes) if axis.n > 1]
    if len(busy) < 2:  # noqa: PLR2004
        return [(tuple(range(len(axes))), Fraction(1))]
    for orders in _candidates(busy):
        shares = _solved([_loads(axes, closed, busy, order) for order in orders])
        if shares is not None and min(shares) >= 0:
            idle = tuple(at for at, axis in enumerate(axes) if axis.n == 1)
            return [((*order, *idle), share) for order, share in zip(orders, shares, strict=True) if share]
    wires = " x ".join(f"{axis.n} ({'ring' if ring else 'line'})" for axis, ring in zip(axes, closed, strict=True))
    raise InputError.one("no-schedule", f"no shares keep all links of {wires} equally busy")


def _equal(order: Order) -> list[tuple[Order, Fraction]]:
    return [(turned, Fraction(1, len(order))) for turned in _turned(order)]


def _turned(order: Sequence[int]) -> list[Order]:
    """Every rotation of the order."""
    return [(*order[first:], *order[:first]) for first in range(len(order))]


def _candidates(busy: Sequence[int]) -> Iterator[Sequence[Order]]:
    """As many orders as axes: first the rotations of one, then any."""
    yield _turned(busy)
    yield from combinations(permutations(busy), len(busy))


def _loads(axes: Sequence[Axis], closed: Sequence[bool], busy: Sequence[int], order: Order) -> list[Fraction]:
    """Chunks over one link of each axis when the axes gather in this order."""
    loads = {}
    gathered = 1
    for at in order:
        loads[at] = Fraction(gathered * (axes[at].n - 1), 2 if closed[at] else 1)
        gathered *= axes[at].n
    return [loads[at] for at in busy]


def _solved(loads: Sequence[Sequence[Fraction]]) -> list[Fraction] | None:
    """Shares that sum to 1 and load all axes alike; None if there are no such, or more than one."""
    k = len(loads)
    rows = [[loads[part][axis] - loads[part][0] for part in range(k)] + [Fraction(0)] for axis in range(1, k)]
    rows.append([Fraction(1)] * (k + 1))
    for column in range(k):
        pivot = next((row for row in range(column, k) if rows[row][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for row in range(k):
            if row != column:
                factor = rows[row][column]
                rows[row] = [value - factor * own for value, own in zip(rows[row], rows[column], strict=True)]
    return [row[-1] for row in rows]
