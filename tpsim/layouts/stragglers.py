"""What actions of one program wait for the last rank at least, as arrays.

Ranks wait where a layer's weights are gathered, and where its gradients are summed; what stands at the ends of the
stack may be joined with layers, and is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.collectives import GRADIENTS, WEIGHTS
from tpsim.machine.chip_seconds import late_s
from tpsim.program.kinds import counted
from tpsim.quantity.once import Once
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.cost.buckets import Buckets
    from tpsim.cost.collectives import Collective
    from tpsim.layouts.sent import Sent
    from tpsim.machine.parts import Machine
    from tpsim.program.stages import Chunk


@dataclass
class Stragglers(Once):
    """Of one program.

    sent     its calls
    call_s   seconds of a call, in every cell
    works_s  seconds of the kernels of a chunk, in some acts
    buckets  which calls layers send together: they meet once
    ranks    that wait for each other, in every cell
    """

    machine: Machine
    sent: Sequence[Sent]
    call_s: Callable[[Collective], Any]
    works_s: Callable[[Chunk, str], Any]
    buckets: Buckets
    ranks: Any

    def late_s(self, chunk: Chunk, acts: str, *, once: bool = False) -> Any:
        """Seconds that an action waits; once: more, where the first one gathers, or the last one sums."""

        def waits() -> Any:
            meetings = total(self._meetings(kind, chunk, acts, once=once) for kind in counted(chunk.stack))
            met = np.any(meetings)
            return late_s(self.machine, self.works_s(chunk, acts), meetings, self.ranks) if met else 0

        return self._once((chunk, acts, once), waits)

    def _meetings(self, kind: str, chunk: Chunk, acts: str, *, once: bool) -> Any:
        """How often the layers of a kind meet in an action: in every microbatch, or once more."""
        return self._at_ends(kind, chunk, acts) if once else self._often(acts, kind, chunk)

    def _often(self, acts: str, kind: str, chunk: Chunk) -> Any:
        """How often the layers of a kind meet in every microbatch: over weights, and over gradients."""
        often = [sent for sent in self._in_all(acts) if sent.call.per_layer and sent.call.where.kind == kind]
        lanes = ([sent for sent in often if sent.lane == lane] for lane in (WEIGHTS, GRADIENTS))
        return total(self._met(sent, kind, chunk) for sent in lanes)

    def _at_ends(self, kind: str, chunk: Chunk, acts: str) -> Any:
        """Likewise once, in the first microbatch or the last one: not where any do in all, as these do then, too."""
        lane = WEIGHTS if acts == "F" else GRADIENTS if "W" in acts else ""
        sent = [sent for sent in self.sent if sent.beside and not sent.often and sent.lane == lane]
        here = [sent for sent in sent if sent.call.per_layer and sent.call.where.kind == kind]
        over = [sent for sent in self._in_all(acts) if sent.lane in (WEIGHTS, GRADIENTS)]
        return self._met(here, kind, chunk) * (self._any(over) == 0)

    def _in_all(self, acts: str) -> list[Sent]:
        return [sent for sent in self.sent if sent.often and sent.act in acts]

    def _met(self, sent: Sequence[Sent], kind: str, chunk: Chunk) -> Any:
        """In how many layers of a kind any of some calls is sent: in each, or where a bucket is full."""
        layers = counted(chunk.stack)[kind]
        often = (self._any([each]) * self._often_sent(each.call, layers, chunk) for each in sent)
        return reduce(np.maximum, often, 0) if layers else 0

    def _often_sent(self, call: Collective, layers: int, chunk: Chunk) -> Any:
        return -(-layers // self.buckets.full(call, chunk)) if self.buckets.joins(call) else layers

    def _any(self, sent: Sequence[Sent]) -> Any:
        """1 in cells where any of some calls has somebody to talk to, else 0."""

        def met() -> Any:
            return np.any([self.call_s(each.call) > 0 for each in sent], axis=0) * 1.0 if sent else 0

        return self._once(("any", *[id(each.call) for each in sent]), met)
