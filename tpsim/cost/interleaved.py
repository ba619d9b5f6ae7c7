"""Passes over orders of chunks that interleave, whose messages hold ranks up in a part of the pass or in pairs.

Source: Megatron-LM, schedules.py, forward_backward_pipelining_with_interleaving with overlap_p2p_comm (`Steady`), and
without it, which came in May 2023 (`Paired`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tpsim.cost.turns import RanksInTurn
from tpsim.program.schedules import acts_of


class Steady(RanksInTurn):
    """The ranks in turn, held up in warm-up and flush alone.

    Each end of a message does as it would alone: a rank in warm-up or flush is held up by what it gives and takes, and
    what it takes there flies once it has come; in steady state it only waits for what it reads. A channel keeps its
    order.
    """

    def freely(self, rank: int) -> range:
        """The gaps of a rank in steady state.

        Warm-up is what comes before the last of the forwards that an order begins with, flush what comes behind the
        first of the backwards that it ends with.
        """
        of, examples = self.schedule.kinds.of[rank], self.schedule.kinds.examples
        until = next((at for at, kind in enumerate(of) if acts_of(examples[kind]).strip("F")), len(of))
        behind = next((at for at, kind in enumerate(reversed(of)) if "F" in acts_of(examples[kind])), len(of))
        return range(until, len(of) - behind + 2)


class Paired(RanksInTurn):
    """The ranks in turn; those that warm up with all of their forwards have no pairs.

    In steady state a rank runs a forward and a backward and then exchanges what both have made, and what the next two
    read: nothing is sent or received between the two. Elsewhere there is an exchange behind every action.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        known: dict[tuple[int, int], tuple[int, int]] = {}
        sends_on = [{part.act for part in example} == {"F"} for example in self.schedule.kinds.examples]
        for of, kinds in zip(self.schedule.kinds.of, self.kinds, strict=True):
            forward = [sends_on[kind] for kind in of]
            if forward.index(False) == sum(forward):
                continue
            for at, (first, second) in enumerate(pairwise(forward)):
                if first and not second:
                    pair = of[at], of[at + 1]
                    if pair not in known:
                        known[pair] = self._pair(*pair)
                    kinds[at], kinds[at + 1] = known[pair]

    def _pair(self, first: int, second: int) -> tuple[int, int]:
        """Two kinds of actions as they follow each other in a pair: what both take before it, what both give behind."""
        new = len(self.does)
        (takes, gives, s, due), (more_takes, more_gives, more_s, more_due) = self.does[first], self.does[second]
        self.does += [([*takes, *more_takes], [], s, due), ([], [*gives, *more_gives], more_s, more_due)]
        return new, new + 1
