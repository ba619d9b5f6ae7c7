"""Passes over orders of chunks that interleave, whose messages hold ranks up in a part of the pass or in pairs.

Source: Megatron-LM, schedules.py, forward_backward_pipelining_with_interleaving with overlap_p2p_comm (`Steady`), and
without it, which came in May 2023 (`Paired`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tpsim.cost.turns import RanksInTurn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.cost.turns import ChannelState


class Steady(RanksInTurn):
    """The ranks in turn, held up in warm-up and flush alone.

    Each end of a message does as it would alone: a rank in warm-up or flush is held up by what it gives and takes, and
    what it takes there flies once it has come; in steady state it only waits for what it reads. A channel keeps its
    order.
    """

    def __init__(self, *args: Any, **begun: Any) -> None:
        """All ranks before their first actions.

        Warm-up is what comes before the last of the forwards that an order begins with, flush what comes behind the
        first of the backwards that it ends with.
        """
        super().__init__(*args, **begun)
        acts = [{part[0] for part in example} for example in self.schedule.kinds.examples]
        for rank, of in enumerate(self.schedule.kinds.of):
            until = next((at for at, kind in enumerate(of) if acts[kind] != {"F"}), len(of))
            since = max((at for at, kind in enumerate(of) if "F" in acts[kind]), default=-1) + 3
            self.holds[rank] = [at < until or at >= since for at in range(len(of) + 1)]
            for kind, holds in zip(self.kinds[rank], self.holds[rank], strict=True):
                for way, _ in self.takes[kind]:
                    way.caught.append(holds)

    def opener(self) -> Callable[[int, int], None]:
        """What opens a gap of a rank."""
        return self._open

    def lacks(self, way: ChannelState, sign: int) -> bool:
        """True if a rank in a gap waits for a message that it gives (1) or takes (-1)."""
        return bool(way.given) if sign > 0 else way.ahead < 0

    def _open(self, rank: int, place: int) -> None:
        """A gap opens: what can leaves, and what the rank needs before its next action is waited for."""
        kinds, holds, start = self.kinds[rank], self.holds[rank][place], self.opened[rank]
        gives, takes = self.gives[kinds[place - 1]], self.takes[kinds[place]]
        self.places[rank], missing = place, len(gives) if holds else 0
        for way, _ in takes:
            way.ahead -= 1
            missing += way.ahead < 0
            if holds:
                way.there.append((start, rank))
        self.missing[rank] = missing
        if not missing:
            self.ready.append(rank)
        for way, flight in gives:
            way.given.append((start, rank, flight, holds))
            self._let_off(way)
        for way, _ in takes:
            if way.given:
                self._let_off(way)

    def _let_off(self, way: ChannelState) -> None:
        """What has been given sets off, in order, but what its taker must have come for."""
        given, caught, there = way.given, way.caught, way.there
        while given and (there or not caught[0]):
            start, rank, flight, holds = given.popleft()
            if caught.popleft():
                come, taker = there.popleft()
                if come > start:
                    start, rank = come, taker
            self.set_off(way, flight, start, rank)
            way.ahead += 1
            if way.ahead <= 0:
                self.released(way.channel.receiver)
            if holds:
                self.released(way.channel.sender)


class Paired(RanksInTurn):
    """The ranks in turn; those that warm up with all of their forwards have no pairs.

    In steady state a rank runs a forward and a backward and then exchanges what both have made, and what the next two
    read: nothing is sent or received between the two. Elsewhere there is an exchange behind every action.
    """

    def __init__(self, *args: Any, **begun: Any) -> None:
        super().__init__(*args, **begun)
        known: dict[tuple[int, int], tuple[int, int]] = {}
        sends_on = [{part.act for part in example} == {"F"} for example in self.schedule.kinds.examples]
        for of, kinds in zip(self.schedule.kinds.of, self.kinds, strict=True):
            forward = [sends_on[kind] for kind in of]
            if forward.index(False) == sum(forward):
                continue
            for at, (first, second) in enumerate(pairwise(forward)):
                if first and not second:
                    pair = of[at], of[at + 1]
                    kinds[at : at + 2] = known[pair] = known.get(pair) or self._pair(*pair)

    def _pair(self, first: int, second: int) -> tuple[int, int]:
        """Two kinds of actions as they follow each other in a pair: what both take before it, what both give behind."""
        new = len(self.gives)
        self.gives += [[], [*self.gives[first], *self.gives[second]]]
        self.takes += [[*self.takes[first], *self.takes[second]], []]
        self.seconds += [0] * (new - len(self.seconds)) + [self.seconds[first], self.seconds[second]]
        self.due |= {new + at: self.due[kind] for at, kind in enumerate((first, second)) if kind in self.due}
        return new, new + 1
