"""A pass over orders that interleave chunks, whose messages hold ranks up.

In steady state a rank runs a forward and a backward and then exchanges what both have made, and what the next two read:
nothing is sent or received between the two. Elsewhere there is an exchange behind every action.
Source: Megatron-LM, forward_backward_pipelining_with_interleaving without overlap_p2p_comm, which came in May 2023.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tpsim.cost.turns import Turns


class Paired(Turns):
    """The ranks in turn; those that warm up with all of their forwards have no pairs."""

    def __init__(self, *asked: Any) -> None:
        """All ranks before their first actions."""
        super().__init__(*asked)
        known: dict[tuple[int, int], tuple[int, int]] = {}
        for order, kinds in zip(self.schedule.orders, self.kinds, strict=True):
            forward = [{part.act for part in action} == {"F"} for action in order]
            if forward.index(False) == sum(forward):
                continue
            for at, both in enumerate(pairwise(forward)):
                if both == (True, False):
                    pair = kinds[at], kinds[at + 1]
                    kinds[at : at + 2] = known[pair] = known.get(pair) or self._pair(*pair)

    def _pair(self, first: int, second: int) -> tuple[int, int]:
        """Two kinds of actions as they follow each other in a pair: what both take before it, what both give behind."""
        new = len(self.gives)
        self.gives += [[], [*self.gives[first], *self.gives[second]]]
        self.takes += [[*self.takes[first], *self.takes[second]], []]
        self.seconds += [0] * (new - len(self.seconds)) + [self.seconds[first], self.seconds[second]]
        return new, new + 1
