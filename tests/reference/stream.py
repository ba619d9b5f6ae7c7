"""A schedule run in many small pieces that wait only for their data and for free links: how long that takes.

Store and forward: a piece goes on when all of it is there. A link carries one piece at a time, of those that wait the
first one, in its earliest step; a switch keeps what the port to its target cannot take yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tpsim.fabric.wires import Segment
    from tpsim.reference.schedule import Schedule, Send

Link = tuple[int, int, int]
"""A directed link: the segment's index, the device, and the way; out of a port 1, into it -1."""


@dataclass(slots=True)
class _Hop:
    """One stretch of the array over one link, and what must have come before.

    rank  the step that it belongs to
    """

    link: Link
    size: int
    rank: int
    after: Sequence[int]


def makespan(plan: Schedule, segments: Sequence[Segment], pieces: int) -> Fraction:
    """How long a run takes whose every message is cut in `pieces`, in the time that V takes over one link.

    For segments without stride, of rings, lines and switches.
    """
    hops = list(_hops(plan, segments))
    return Fraction(_Run(hops, pieces).finished(), plan.blocks * plan.units * pieces)


def _hops(plan: Schedule, segments: Sequence[Segment]) -> Iterator[_Hop]:
    """Every stretch that travels over every link, in the order of the schedule."""
    bounds = sorted({end for step in plan.steps for send in step for piece in send.pieces for end in piece})
    came: dict[tuple[int, int], tuple[int, ...]] = defaultdict(tuple)
    number = 0
    for rank, step in enumerate(plan.steps):
        for from_switch in (False, True):
            arrived = []
            for send in (one for one in step if (one.source >= plan.n) == from_switch):
                for place in _places(send, bounds):
                    after = came[send.source, place]
                    for link in _links(send, segments, plan.n):
                        yield _Hop(link, bounds[place + 1] - bounds[place], rank, after)
                        after, number = (number,), number + 1
                    arrived.append((send, place, after))
            for send, place, last in arrived:
                came[send.target, place] = came[send.target, place] + last if send.add else last


def _places(send: Send, bounds: Sequence[int]) -> Iterator[int]:
    """The stretches that a message consists of."""
    for start, stop in send.pieces:
        yield from range(bisect_left(bounds, start), bisect_left(bounds, stop))


def _links(send: Send, segments: Sequence[Segment], n: int) -> Iterable[Link]:
    if segments[send.along].topology != "switch":
        return [(send.along, send.source, send.way)]
    ports = [(send.along, send.source, 1), (send.along, send.target, -1)]
    return [port for port in ports if port[1] < n]


class _Run:
    """Hops, each in as many pieces; piece p of hop h has the number h * pieces + p."""

    def __init__(self, hops: Sequence[_Hop], pieces: int) -> None:
        self.hops, self.pieces = hops, pieces
        self.missing = [len(hop.after) for hop in hops for _ in range(pieces)]
        self.then: list[list[int]] = [[] for _ in hops]
        for number, hop in enumerate(hops):
            for before in hop.after:
                self.then[before].append(number)
        self.waiting: dict[Link, list[tuple[int, int, int]]] = defaultdict(list)
        self.busy: set[Link] = set()
        self.events: list[tuple[int, int]] = []

    def finished(self) -> int:
        """When the last piece is there."""
        for number, hop in enumerate(self.hops):
            if not hop.after:
                for piece in range(self.pieces):
                    self._wait(number, piece)
        self._start(list(self.waiting), 0)
        now = 0
        while self.events:
            now = self.events[0][0]
            touched: set[Link] = set()
            while self.events and self.events[0][0] == now:
                touched |= self._arrive(heappop(self.events)[1])
            self._start(touched, now)
        return now

    def _wait(self, number: int, piece: int) -> None:
        hop = self.hops[number]
        heappush(self.waiting[hop.link], (piece, hop.rank, number))

    def _start(self, links: Iterable[Link], now: int) -> None:
        """Free links take what waits for them."""
        for link in links:
            if link not in self.busy and self.waiting[link]:
                piece, _, number = heappop(self.waiting[link])
                self.busy.add(link)
                heappush(self.events, (now + self.hops[number].size, number * self.pieces + piece))

    def _arrive(self, done: int) -> set[Link]:
        """A piece has come: its link is free, and what waited for it may go. Returns the links to look at."""
        number, piece = divmod(done, self.pieces)
        link = self.hops[number].link
        self.busy.remove(link)
        touched = {link}
        for other in self.then[number]:
            self.missing[other * self.pieces + piece] -= 1
            if not self.missing[other * self.pieces + piece]:
                self._wait(other, piece)
                touched.add(self.hops[other].link)
        return touched
