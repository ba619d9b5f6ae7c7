"""What actions of one program wait for the last rank at least, as arrays.

Ranks wait where a layer's weights are gathered, and where its gradients are summed; what stands at the ends of the
stack may be joined with layers, and is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.piece import GRADIENTS, WEIGHTS
from tpsim.machine.chip_seconds import late_s
from tpsim.quantity.once import Once
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.layouts.calls import Sent
    from tpsim.machine.parts import Machine
    from tpsim.program.stages import Chunk


@dataclass
class Stragglers(Once):
    """Of one program.

    sent     its calls
    call_s   seconds of one, in every cell
    works_s  seconds of the kernels of a chunk, in some acts
    ranks    that wait for each other, in every cell
    """

    machine: Machine
    sent: Sequence[Sent]
    call_s: Callable[[Sent], Any]
    works_s: Callable[[Chunk, str], Any]
    ranks: Any

    def late_s(self, chunk: Chunk, acts: str, *, once: bool = False) -> Any:
        """Seconds that an action waits; once: more, where the first one gathers, or the last one sums."""

        def waits() -> Any:
            meetings = total(many * self._meetings(kind, acts, once=once) for kind, many in chunk.stack)
            met = np.any(meetings)
            return late_s(self.machine, self.works_s(chunk, acts), meetings, self.ranks) if met else 0

        return self._once((chunk, acts, once), waits)

    def _meetings(self, kind: str, acts: str, *, once: bool) -> Any:
        """How often a layer of a kind meets in an action."""
        return self._once((kind, acts, once), lambda: self._at_ends(kind, acts) if once else self._often(acts, kind))

    def _often(self, acts: str, *kinds: str) -> Any:
        """How often a layer of some kinds, or of any, meets in every microbatch: over weights, and over gradients."""
        often = [sent for sent in self.sent if sent.often and sent.act in acts]
        here = [sent for sent in often if not kinds or sent.call.where.kind in kinds]
        return total(self._any([sent for sent in here if sent.lane == lane]) for lane in (WEIGHTS, GRADIENTS))

    def _at_ends(self, kind: str, acts: str) -> Any:
        """Likewise once, in the first microbatch or the last one: not where any do in all, as these do then, too."""
        lane = WEIGHTS if acts == "F" else GRADIENTS if "W" in acts else ""
        sent = [sent for sent in self.sent if sent.beside and not sent.often and sent.lane == lane]
        met = self._any([sent for sent in sent if sent.call.per_layer and sent.call.where.kind == kind])
        return met * (self._often(acts) == 0)

    def _any(self, sent: Sequence[Sent]) -> Any:
        """1 in cells where any of some calls has somebody to talk to, else 0."""
        return np.any([self.call_s(each) > 0 for each in sent], axis=0) * 1.0 if sent else 0
