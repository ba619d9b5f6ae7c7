"""Collectives over several axes or levels: one after another, or all axes of a torus at once in rotated parts.

Small schedules are placed in a large one. A device's rank is its coordinates along the axes as one number, the first
axis slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations, product
from math import lcm, prod
from typing import TYPE_CHECKING

from tpsim.quantity.errors import InputError
from tpsim.reference.schedule import RankPlace, Schedule, Share, Step, at_once, lifted

if TYPE_CHECKING:
    from tpsim.algebra.moves import MoveKind

Small = Callable[["MoveKind"], Schedule]
"""The schedule of a move along one axis alone."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the group: its devices, the segments that it crosses and how it runs a move."""

    n: int
    along: tuple[int, ...]
    small: Small


@dataclass(frozen=True, slots=True)
class Axes:
    """All axes of a group, and the share of every block that moves over them."""

    all: Sequence[Axis]
    share: Share

    @property
    def n(self) -> int:
        """Devices of the group."""
        return prod(axis.n for axis in self.all)

    def stride(self, at: int) -> int:
        """How far ranks of neighbours along an axis are apart."""
        return prod(axis.n for axis in self.all[at + 1 :])

    def offsets(self, places: Sequence[int]) -> list[int]:
        """What coordinates along these axes add to a rank: every combination, in order."""
        ranges = [range(0, self.all[at].n * self.stride(at), self.stride(at)) for at in places]
        return [sum(combination) for combination in product(*ranges)]

    def others(self, at: int) -> list[int]:
        """Every axis but one."""
        return [other for other in range(len(self.all)) if other != at]

    def part(self, rank: int, places: Sequence[int]) -> int:
        """What a device's coordinates along these axes add to its rank."""
        return sum(rank // self.stride(at) % self.all[at].n * self.stride(at) for at in places)

    def stage(self, at: int, small: Schedule, blocks: Callable[[int], Callable[[int], list[int]]]) -> tuple[Step, ...]:
        """All rows of one axis run `small`; `blocks` says for a row's first device what a small block stands for.

        Every row has a switch of its own: what it has summed stays there.
        """
        runs, first = [], self.n + sum(self.n // axis.n for axis in self.all[:at])
        for row, base in enumerate(self.offsets(self.others(at))):
            ranks = [base + place * self.stride(at) for place in range(self.all[at].n)] + [first + row]
            runs.append(lifted(small, RankPlace(ranks, self.all[at].along, blocks(base), self.share)))
        return at_once(runs)

    def reducing(self, at: int, kind: MoveKind, gathered: Sequence[int]) -> tuple[Step, ...]:
        """A gather, scatter or all-reduce along one axis of the blocks of every device along those `gathered`."""
        free, stride = self.offsets(gathered), self.stride(at)
        fixed = [other for other in self.others(at) if other not in gathered]

        def blocks(base: int) -> Callable[[int], list[int]]:
            first = self.part(base, fixed)
            return lambda block: [first + block * stride + offset for offset in free]

        return self.stage(at, self.all[at].small(kind), blocks)

    def exchanging(self, at: int, done: Sequence[int]) -> tuple[Step, ...]:
        """An all-to-all along one axis; along those that are `done` every chunk is where it belongs."""
        waiting = [other for other in self.others(at) if other not in done]
        sources, targets = self.offsets(done), self.offsets(waiting)
        n, all_of_them, stride = self.all[at].n, self.n, self.stride(at)

        def blocks(base: int) -> Callable[[int], list[int]]:
            source, target = self.part(base, waiting), self.part(base, done)
            return lambda block: [
                (source + block // n * stride + start) * all_of_them + target + block % n * stride + other
                for start in sources
                for other in targets
            ]

        return self.stage(at, self.all[at].small("all_to_all"), blocks)


AxisStage = tuple[int, "MoveKind", Sequence[int]]
"""An axis, what runs along it, and the axes that have gathered before it (for an all-to-all: exchanged)."""


def stages(kind: MoveKind, order: Sequence[int]) -> list[AxisStage]:
    """A move as moves along one axis after another.

    order  gathers run in this order, the first axis on the smallest part; scatters run the other way round. In an
           all-reduce the first axis reduces, all others scatter before it and gather after it.
    """
    first: list[AxisStage] = [(at, kind, order[:place]) for place, at in enumerate(order)]
    if kind == "reduce_scatter":
        return first[::-1]
    if kind != "all_reduce":
        return first
    scatters: list[AxisStage] = [(at, "reduce_scatter", before) for at, _, before in first[:0:-1]]
    gathers: list[AxisStage] = [(at, "all_gather", before) for at, _, before in first[1:]]
    return [*scatters, first[0], *gathers]


def in_order(axes: Axes, stages: Sequence[AxisStage]) -> tuple[Step, ...]:
    """The steps of all stages."""
    return tuple(step for at, kind, before in stages for step in _stage(axes, at, kind, before))


def _stage(axes: Axes, at: int, kind: MoveKind, before: Sequence[int]) -> tuple[Step, ...]:
    return axes.exchanging(at, before) if kind == "all_to_all" else axes.reducing(at, kind, before)


def nested(axes: Sequence[Axis], kind: MoveKind, order: Sequence[int]) -> Schedule:
    """The schedule of a move along one axis after another, all of the array together."""
    runs = stages(kind, order)
    units = small_units(axes, runs)
    whole = Axes(axes, Share(units, 0, units))
    return collected(whole, kind, in_order(whole, runs))


def small_units(axes: Sequence[Axis], stages: Sequence[AxisStage]) -> int:
    """Units in which every stage can cut its blocks."""
    return lcm(*(axes[at].small(kind).units for at, kind, _ in stages))


def collected(axes: Axes, kind: MoveKind, steps: tuple[Step, ...]) -> Schedule:
    """The steps as a schedule of the whole group."""
    n = axes.n
    ranks = max((max(send.source, send.target) for step in steps for send in step), default=0)
    return Schedule(n, n * n if kind == "all_to_all" else n, axes.share.units, steps, max(ranks + 1 - n, 0))


AxisOrder = tuple[int, ...]


def in_turn(axes: Sequence[Axis], closed: Sequence[bool], kind: MoveKind) -> Schedule:
    """One axis after another; those with open ends gather first, on the smallest parts."""
    if kind == "all_reduce":
        return in_turn(axes, closed, "reduce_scatter").then(in_turn(axes, closed, "all_gather"))
    return nested(axes, kind, open_first(closed))


def open_first(closed: Sequence[bool]) -> AxisOrder:
    """The axes in the order in which they gather."""
    return tuple(sorted(range(len(closed)), key=lambda at: closed[at]))


def rotated(axes: Sequence[Axis], closed: Sequence[bool], kind: MoveKind) -> Schedule:
    """Parts of every block that take the axes in different orders, all at once.

    The parts of a gather are weighted by the shape, such that every link is equally busy over the whole run; those of
    an all-to-all are equal.
    """
    if kind == "all_reduce":
        return rotated(axes, closed, "reduce_scatter").then(rotated(axes, closed, "all_gather"))
    order = open_first(closed)
    equal = dict.fromkeys(_turned(order), Fraction(1, len(order)))
    parts = equal if kind == "all_to_all" else dict(weighted(axes, closed))
    shares = lcm(*(share.denominator for share in parts.values()))
    units = shares * small_units(axes, stages(kind, order))
    runs, start = [], 0
    for order, share in parts.items():
        stop = start + int(share * units)
        part = Axes(axes, Share(units, start, stop))
        runs.append(in_order(part, stages(kind, order)))
        start = stop
    return collected(Axes(axes, Share(units, 0, units)), kind, at_once(runs))


def weighted(axes: Sequence[Axis], closed: Sequence[bool]) -> list[tuple[AxisOrder, Fraction]]:
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


def _turned(order: Sequence[int]) -> list[AxisOrder]:
    """Every rotation of the order."""
    return [(*order[first:], *order[:first]) for first in range(len(order))]


def _candidates(busy: Sequence[int]) -> Iterator[Sequence[AxisOrder]]:
    """As many orders as axes: first the rotations of one, then any."""
    yield _turned(busy)
    yield from combinations(permutations(busy), len(busy))


def _loads(axes: Sequence[Axis], closed: Sequence[bool], busy: Sequence[int], order: AxisOrder) -> list[Fraction]:
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
