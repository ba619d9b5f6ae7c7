"""The calls that ranks of layouts make alone, as arrays: each layer's own, and those that layers send together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.cost.buckets import Buckets, layers_of
from tpsim.quantity.once import Once
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.cost.collectives import Collective
    from tpsim.layouts.calls import Calls
    from tpsim.program.op import Where
    from tpsim.program.practice import Practice
    from tpsim.program.stages import Chunk


class Sent(NamedTuple):
    """A call of ranks alone.

    often   True if it runs in every microbatch
    beside  True if it runs beside compute
    inside  True if it is the same without stages: those at the ends may be joined otherwise there
    """

    call: Collective
    lane: str
    act: str
    often: bool
    beside: bool
    inside: bool


@dataclass
class SentCalls(Once):
    """Of one program.

    calls  what one takes, in every cell
    shards  devices that share a microbatch, in every cell
    """

    calls: Calls
    sent: Sequence[Sent]
    practice: Practice
    shards: Any

    @cached_property
    def buckets(self) -> Buckets:
        """Which calls layers send together, in every cell."""
        elements = self.calls.lowered.collectives, self.practice, self.shards
        return Buckets(*elements, lambda call: call.elements(self.calls.sizes))

    def own_s(
        self, acts: str, lane: str = "", *, ends: bool, beside: bool | None = None, place: str = ""
    ) -> Iterator[tuple[Where, Any]]:
        """Where calls stand that each layer sends for itself, and their seconds; of a place alone; see `chosen`."""
        calls = (sent.call for sent in self.chosen(acts, lane, ends=ends, beside=beside))
        return ((call.where, self.alone_s(call)) for call in calls if place in ("", call.where.place))

    def alone_s(self, call: Collective) -> Any:
        """Seconds of one call; none of what layers send together, which is counted by the chunk."""
        return 0 if self.buckets.joins(call) else self.calls.call_s(call)

    def fills_s(self, axis: str, *, ends: bool) -> Iterator[tuple[Where, Any]]:
        """Where calls stand, and seconds of a step in which they fill the links of a level, or of an axis."""
        return ((sent.call.where, seconds) for sent, seconds in self.filling_s[axis] if ends or sent.inside)

    @cached_property
    def filling_s(self) -> Mapping[str, list[tuple[Sent, Any]]]:
        """By the level, or axis, of links: the calls that fill them, and for how long; not those of several layers."""
        by_axis: defaultdict[str, list[tuple[Sent, Any]]] = defaultdict(list)
        for sent in self.sent:
            filled = {} if self.buckets.joins(sent.call) else self.calls.wires_s(sent.call)
            for axis, seconds in filled.items():
                by_axis[axis].append((sent, seconds * (self.calls.microbatches if sent.often else 1)))
        return by_axis

    def joined_s(self, chunk: Chunk, acts: str, lane: str = "", *, beside: bool | None = None) -> Any:
        """Seconds of the calls that layers of a chunk send together; see `chosen`."""
        return total(self.bucketed_s(call, chunk) for call in self.joined(acts, lane, beside=beside))

    def joined(self, acts: str, lane: str = "", *, beside: bool | None = None) -> list[Collective]:
        """The calls that layers send together, of one layer each; see `chosen`."""

        def calls() -> list[Collective]:
            chosen = (sent.call for sent in self.chosen(acts, lane, beside=beside))
            return [call for call in chosen if self.buckets.joins(call)]

        return self._once(("joined", acts, lane, beside), calls)

    def chosen(self, acts: str, lane: str = "", *, ends: bool = False, beside: bool | None = None) -> Iterator[Sent]:
        """Calls of such acts; acts: "" for those that are once per step.

        lane    of theirs alone; "" for all
        ends    True: what stands at both ends of a stack, too
        beside  those that run beside compute, or those that do not; None for both
        """
        for sent in self.sent:
            inside = sent.act in acts if sent.often else not acts
            if inside and lane in ("", sent.lane) and beside in (None, sent.beside) and (ends or sent.inside):
                yield sent

    def bucketed_s(self, call: Collective, chunk: Chunk) -> Any:
        """Seconds of such a call of all layers of a chunk."""

        def seconds() -> Any:
            layers, full = layers_of(call, chunk), self.buckets.full(call, chunk)
            left = layers % full
            rest = self.calls.call_s(call, np.maximum(left, 1)) if np.any(left) else 0
            return layers // full * self.calls.call_s(call, full) + (left > 0) * rest

        return self._once((id(call), chunk), seconds) if layers_of(call, chunk) else 0
