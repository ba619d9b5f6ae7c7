"""A collective as a list of steps, each saying what every device sends to whom: values only, nothing is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

Piece = tuple[int, int]
"""A stretch of the array, ``[start, stop)`` in the schedule's units."""


def unit(at: int) -> Piece:
    """The single unit that begins at `at`."""
    return at, at + 1


class Send(NamedTuple):
    """One message over one hop.

    source, target  ranks of the group; ranks from `Schedule.n` on are switches that reduce or multicast
    along           index of the segment that it crosses
    way             +1 or -1 on a ring or line, 0 through a switch
    add             True if the target adds the pieces to its own, False if it keeps them as they come
    """

    source: int
    target: int
    pieces: tuple[Piece, ...]
    along: int = 0
    way: int = 0
    add: bool = False

    @property
    def size(self) -> int:
        """Units that travel."""
        size = 0
        for start, stop in self.pieces:
            size += stop - start
        return size


Step = tuple[Send, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What the devices of one group send, step by step; every step uses only what was there before it.

    n         devices
    blocks    equal parts of the array: one per device, or for an all-to-all one per pair (source*n + target)
    units     equal parts of a block: the array has ``blocks * units`` of them
    steps     sends that wait for those of the step before; within a step switches pass on what they have just got
    switches  how many switches take part, as ranks n, n+1, ...
    """

    n: int
    blocks: int
    units: int
    steps: tuple[Step, ...]
    switches: int = 0

    def then(self, other: Schedule) -> Schedule:
        """This one followed by another one of the same devices and blocks; both in the finer units."""
        units = lcm(self.units, other.units)
        first, second = (run.in_units(units) for run in (self, other))
        return Schedule(self.n, self.blocks, units, first + second, max(self.switches, other.switches))

    def in_units(self, units: int) -> tuple[Step, ...]:
        """The steps with pieces counted in `units` per block, a multiple of the present ones."""
        factor = units // self.units
        if factor == 1:
            return self.steps
        return tuple(tuple(_finer(send, factor) for send in step) for step in self.steps)

    def backwards(self) -> Schedule:
        """Every message the other way, the last one first, and added: a gather becomes a reduce-scatter."""
        return Schedule(
            self.n,
            self.blocks,
            self.units,
            tuple(
                tuple(Send(to, at, pieces, along, -way, add=True) for at, to, pieces, along, way, _ in step)
                for step in reversed(self.steps)
            ),
            self.switches,
        )


def _finer(send: Send, factor: int) -> Send:
    return send._replace(pieces=tuple((start * factor, stop * factor) for start, stop in send.pieces))


def joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same stretches in order, those that touch made one."""
    runs: list[Piece] = []
    for start, stop in sorted(pieces):
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], stop)
        elif stop > start:
            runs.append((start, stop))
    return tuple(runs)


def at_once(runs: Sequence[Sequence[Step]]) -> tuple[Step, ...]:
    """Runs that start together and do not wait for each other."""
    longest = max((len(run) for run in runs), default=0)
    return tuple(tuple(send for run in runs if at < len(run) for send in run[at]) for at in range(longest))


@dataclass(frozen=True, slots=True)
class Share:
    """The stretch [start, stop) of every block, of `units`, that a run moves."""

    units: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a small schedule's ranks and blocks lie in a large one.

    ranks  rank of each device, then of each switch
    along  index of each segment
    share  of every large block, that the small schedule moves
    """

    ranks: Sequence[int]
    along: Sequence[int]
    blocks: Callable[[int], Sequence[int]]
    share: Share


def lifted(small: Schedule, place: RankPlace) -> tuple[Step, ...]:
    """The steps of a small schedule as part of a large one; each of its blocks is several blocks there."""
    return tuple(
        tuple(
            Send(
                place.ranks[send.source],
                place.ranks[send.target],
                joined(piece for cut in send.pieces for piece in _spread(cut, small.units, place)),
                place.along[send.along],
                send.way,
                send.add,
            )
            for send in step
        )
        for step in small.steps
    )


def _spread(piece: Piece, units: int, place: RankPlace) -> Iterator[Piece]:
    """The stretches of the large array that one stretch of the small one stands for."""
    share = place.share
    width = (share.stop - share.start) // units
    for block in range(piece[0] // units, -(-piece[1] // units)):
        low = max(piece[0] - block * units, 0) * width + share.start
        high = min(piece[1] - block * units, units) * width + share.start
        for base in place.blocks(block):
            yield base * share.units + low, base * share.units + high
