"""A pass over orders whose messages hold ranks up in warm-up and flush alone.

Each end of a message does as it would alone: a rank in warm-up or flush is held up by what it gives and takes, and what
it takes there flies once it has come; in steady state it only waits for what it reads. A channel keeps its order.
Source: Megatron-LM, schedules.py, forward_backward_pipelining_with_interleaving with overlap_p2p_comm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.cost.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.cost.turns import Way


class Steady(Turns):
    """The ranks in turn."""

    def __init__(self, *asked: Any) -> None:
        """All ranks before their first actions.

        Warm-up is what comes before the last of the forwards that an order begins with, flush what comes behind the
        first of the backwards that it ends with.
        """
        super().__init__(*asked)
        acts = [{part[0] for part in example} for example in self.schedule.kinds.examples]
        for rank, of in enumerate(self.schedule.kinds.of):
            until = next((at for at, kind in enumerate(of) if acts[kind] != {"F"}), len(of))
            since = max((at for at, kind in enumerate(of) if "F" in acts[kind]), default=-1) + 3
            self.held[rank] = [at < until or at >= since for at in range(len(of) + 1)]
            for kind, held in zip(self.kinds[rank], self.held[rank], strict=True):
                for way, _ in self.takes[kind]:
                    way.caught.append(held)

    def opener(self) -> Callable[[int, int], None]:
        """What opens a gap of a rank."""
        return self._open

    def lacks(self, way: Way, sign: int) -> bool:
        """True if a rank in a gap waits for a message that it gives (1) or takes (-1)."""
        return bool(way.given) if sign > 0 else way.ahead < 0

    def _open(self, rank: int, place: int) -> None:
        """A gap opens: what can leaves, and what the rank needs before its next action is waited for."""
        kinds, held, start, here = self.kinds[rank], self.held[rank][place], self.opened[rank], (rank, place - 1)
        gives, takes = self.gives[kinds[place - 1]], self.takes[kinds[place]]
        self.places[rank], missing = place, len(gives) if held else 0
        for way, _ in takes:
            way.ahead -= 1
            missing += way.ahead < 0
            if held:
                way.there.append((start, here))
        self.missing[rank] = missing
        if not missing:
            self.ready.append(rank)
        for way, flight in gives:
            way.given.append((start, here, flight, held))
            self._let_off(way)
        for way, _ in takes:
            if way.given:
                self._let_off(way)

    def _let_off(self, way: Way) -> None:
        """What has been given sets off, in order, but what its taker must have come for."""
        given, caught, there = way.given, way.caught, way.there
        while given and (there or not caught[0]):
            start, place, flight, held = given.popleft()
            if caught.popleft():
                come, taker = there.popleft()
                if come > start:
                    start, place = come, taker
            self.set_off(way, flight, start, place)
            way.ahead += 1
            if way.ahead <= 0:
                self.released(way.channel.receiver)
            if held:
                self.released(way.channel.sender)
