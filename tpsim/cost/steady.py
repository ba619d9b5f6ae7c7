"""A pass over orders whose messages hold ranks up in warm-up and flush alone.

Each end of a message does as it would alone: a rank in warm-up or flush is held up by what it gives and takes, and what
it takes there flies once it has come; in steady state it only waits for what it reads. A channel keeps its order.
Source: Megatron-LM, schedules.py, forward_backward_pipelining_with_interleaving with overlap_p2p_comm.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.orders import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.cost.orders import Place, Way


class _Given(NamedTuple):
    """A message that has not set off: from when on it could, its seconds on the way, and whether its rank waits."""

    start: Any
    place: Place
    flight: Any
    held: bool


class Steady(Turns):
    """The ranks in turn.

    until   the gap of each rank up to which it is held up; `since`: and from which on
    caught  of each channel in order, whether a message is taken where its rank is held up
    there   when ranks have come to take such messages, and `given` those that have not set off
    """

    def __init__(self, *asked: Any) -> None:
        """All ranks before their first actions.

        Warm-up is what comes before the last of the forwards that an order begins with, flush what comes behind the
        first of the backwards that it ends with.
        """
        super().__init__(*asked)
        self.caught = defaultdict[Any, deque[bool]](deque)
        self.there = defaultdict[Any, deque[tuple[Any, Any]]](deque)
        self.given = defaultdict[Any, deque[_Given]](deque)
        acts = [[{part[0] for part in action} for action in order] for order in self.schedule.orders]
        self.until = [next((at for at, each in enumerate(one) if each != {"F"}), len(one)) - 1 for one in acts]
        self.since = [max((at for at, each in enumerate(one) if "F" in each), default=-1) + 3 for one in acts]
        for rank, kinds in enumerate(self.kinds):
            for place, kind in enumerate(kinds):
                for way, _ in self.takes[kind]:
                    self.caught[way.channel].append(self.holds(rank, place))

    def opener(self) -> Callable[[int, int], None]:
        """What opens a gap of a rank."""
        return self._open

    def holds(self, rank: int, place: int) -> bool:
        """True for a gap in which a rank is held up by what it gives."""
        return place <= self.until[rank] or place >= self.since[rank]

    def lacks(self, way: Way, sign: int) -> bool:
        """True if a rank in a gap waits for a message that it gives (1) or takes (-1)."""
        return bool(self.given[way.channel]) if sign > 0 else way.ahead < 0

    def _open(self, rank: int, place: int) -> None:
        """A gap opens: what can leaves, and what the rank needs before its next action is waited for."""
        kinds, held, here = self.kinds[rank], self.holds(rank, place), (self.opened[rank], (rank, place - 1))
        gives, takes = self.gives[kinds[place - 1]], self.takes[kinds[place]]
        self.places[rank], missing = place, len(gives) if held else 0
        for way, _ in takes:
            way.ahead -= 1
            missing += way.ahead < 0
            if held:
                self.there[way.channel].append(here)
        self.missing[rank] = missing
        if not missing:
            self.ready.append(rank)
        for way, flight in gives:
            self.given[way.channel].append(_Given(*here, flight, held))
        for way, _ in (*gives, *takes):
            self._let_off(way)

    def _let_off(self, way: Way) -> None:
        """What has been given sets off, in order, but what its taker must have come for."""
        given, caught, there = self.given[way.channel], self.caught[way.channel], self.there[way.channel]
        while given and (not caught[0] or there):
            one = given.popleft()
            start, place = there.popleft() if caught.popleft() else (one.start, one.place)
            late = (start, place) if start > one.start else (one.start, one.place)
            self.set_off(way, one.flight, *late)
            way.ahead += 1
            if way.ahead <= 0:
                self.released(way.channel.receiver)
            if one.held:
                self.released(way.channel.sender)
