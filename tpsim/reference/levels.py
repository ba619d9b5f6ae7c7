"""Collectives over several axes or levels, one after another: small schedules placed in a large one.

A device's rank is its coordinates along the axes as one number, the first axis slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from tpsim.reference.schedule import RankPlace, Schedule, Step, at_once, common, lifted

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
class Share:
    """The stretch [start, stop) of every block, of `units`, that a run moves."""

    units: int
    start: int
    stop: int


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
            where = RankPlace(
                ranks, self.all[at].along, blocks(base), self.share.units, self.share.start, self.share.stop
            )
            runs.append(lifted(small, where))
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


Stage = tuple[int, "MoveKind", Sequence[int]]
"""An axis, what runs along it, and the axes that have gathered before it (for an all-to-all: exchanged)."""


def stages(kind: MoveKind, order: Sequence[int]) -> list[Stage]:
    """A move as moves along one axis after another.

    order  gathers run in this order, the first axis on the smallest part; scatters run the other way round. In an
           all-reduce the first axis reduces, all others scatter before it and gather after it.
    """
    first: list[Stage] = [(at, kind, order[:place]) for place, at in enumerate(order)]
    if kind == "reduce_scatter":
        return first[::-1]
    if kind != "all_reduce":
        return first
    scatters: list[Stage] = [(at, "reduce_scatter", before) for at, _, before in first[:0:-1]]
    gathers: list[Stage] = [(at, "all_gather", before) for at, _, before in first[1:]]
    return [*scatters, first[0], *gathers]


def in_order(axes: Axes, stages: Sequence[Stage]) -> tuple[Step, ...]:
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


def small_units(axes: Sequence[Axis], stages: Sequence[Stage]) -> int:
    """Units in which every stage can cut its blocks."""
    return common(*(axes[at].small(kind).units for at, kind, _ in stages))


def collected(axes: Axes, kind: MoveKind, steps: tuple[Step, ...]) -> Schedule:
    """The steps as a schedule of the whole group."""
    n = axes.n
    ranks = max((max(send.source, send.target) for step in steps for send in step), default=0)
    return Schedule(n, n * n if kind == "all_to_all" else n, axes.share.units, steps, max(ranks + 1 - n, 0))
