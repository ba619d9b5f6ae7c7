"""Ops of one action as tasks: which kernel and which collective stands where, layers one by one.

An action is what a chunk of layers does with one microbatch: forward, backward, or one of backward's two parts. Its
tasks are kernels, products and collective calls in the order in which a framework issues them; the switches of
`Overlap` say which sorts of calls run beside compute.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.cost.buckets import Buckets
from tpsim.cost.collectives import GRADIENTS, WEIGHTS
from tpsim.cost.issue import Issue, bucketed, gathered
from tpsim.cost.nodes import Builder, Calls, place_of, places_of
from tpsim.cost.piece import Node, Part, Piece
from tpsim.cost.segments import Runs, grown, runs
from tpsim.cost.timed import Action
from tpsim.program.stages import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.cost.collectives import Collective
    from tpsim.program.kinds import Layers
    from tpsim.program.op import Op

FEW = 4
"""Equal layers that are issued for all: what is issued for those in the middle is the same for each by then."""


@dataclass(eq=False)
class Actions(Calls):
    """All actions of a program, each made once.

    shards    devices that share a microbatch
    elements  of a call's arrays, for switches that count them
    """

    shards: int
    elements: Callable[[Collective], Any]

    def action(
        self, chunk: Chunk, acts: str, *, first: bool = False, last: bool = False, early: bool = False
    ) -> Action:
        """What a chunk does in one microbatch.

        acts   "F", "B", "W" or "BW"
        first  True for the microbatch that waits for new weights where these are gathered beside compute
        last   True for the one whose gradients are complete
        early  True if all gathers are begun before anything else
        """
        lane = WEIGHTS if acts == "F" else GRADIENTS
        once = (first if acts == "F" else last and "W" in acts) and self._has(lane)
        key = ("action", chunk.stack, chunk.first, chunk.last, acts, once, early)
        return self._once(key, partial(self._action, chunk, acts, once=once, early=early))

    def layer(self, kind: str, acts: str) -> Part:
        """One run of a layer of a kind."""
        return self._part(Chunk(0, ((kind, 1),), first=False, last=False), acts, kind, once=False)

    @property
    def gathers_once(self) -> bool:
        """True if weights are gathered beside the first microbatch, for all of them."""
        return self._has(WEIGHTS)

    def _has(self, lane: str) -> bool:
        return self._once(lane, lambda: any(self.beside_once(call) and call.sort == lane for call in self.calls))

    def _action(self, chunk: Chunk, acts: str, *, once: bool, early: bool) -> Action:
        """The tasks in the order of issue; of many equal layers a few are issued, if one more of them tells the rest.

        What is issued for a layer hangs on those that are near: on what is gathered ahead, and is not yet awaited.
        """
        rows = _rows(chunk.stack)
        leasts = [max(2, FEW // sum(n for _, n in row)) for row, _ in rows]
        few = [n if n <= least + 1 else least for least, (_, n) in zip(leasts, rows, strict=True)]

        def issued(times: Sequence[int]) -> Runs:
            stack = tuple(layers for (row, _), n in zip(rows, times, strict=True) for layers in _times(row, n))
            key = ("issued", stack, chunk.first, chunk.last, acts, once, early)
            return self._once(key, partial(self._issued, replace(chunk, stack=stack), acts, once=once, early=early))

        whole = issued(few)
        for at, (_, n) in enumerate(rows):
            if many := n - few[at]:
                more = issued([*few[:at], few[at] + 1, *few[at + 1 :]])
                if (longer := grown(whole, more, many)) is None:
                    return Action(issued([n for _, n in rows]))
                whole = longer
        return Action(whole)

    def _issued(self, chunk: Chunk, acts: str, *, once: bool, early: bool) -> Runs:
        """Segments of a chunk, each with how often it follows itself, with buckets and what is gathered ahead."""
        nodes: list[Node] = []
        starts: list[int] = []
        gives: tuple[int, ...] = ()
        parts = [(self._part(chunk, acts, place, once=once), times) for place, times in places_of(chunk, acts)]
        sent = {piece for part, _ in parts for piece, _ in part.nodes if piece.call}
        for part, times in parts:
            for _ in range(times if part.nodes else 0):
                starts.append(base := len(nodes))
                nodes += [
                    Node(piece, (*[read + base for read in reads], *(gives if at in part.takes else ())))
                    for at, (piece, reads) in enumerate(part.nodes)
                ]
                gives = tuple(index + base for index in part.gives)
        bucket, ahead = self.practice.bucket, self.practice.ahead
        if any(piece.call and self.buckets.joins(piece.call) for piece in sent):
            nodes, starts = self.buckets.joined(nodes, starts, chunk)
        order = Issue(nodes, frozenset(starts)).order()
        if any(piece.settles for piece in sent):
            order = list(bucketed(nodes, order, self.buckets.limit(chunk), self._size(bucket.elements is not None)))
        if any(piece.fetches for piece in sent):
            limit = inf if early else ahead.limit
            order = list(gathered(nodes, order, limit, self._size(ahead.elements is not None)))
        return runs(nodes, order, starts)

    @cached_property
    def buckets(self) -> Buckets:
        """Which calls layers send together."""
        return Buckets(self.calls, self.practice, self.shards, self.elements)

    def _size(self, in_elements: bool) -> Callable[[Piece], Any]:
        return lambda piece: self.elements(piece.call) if in_elements and piece.call else piece.share

    def _part(self, chunk: Chunk, acts: str, place: str, *, once: bool) -> Part:
        def built() -> Part:
            ops = [op for op in self._at.get(place, ()) if self._runs(op.where, chunk)]
            often = [op for op in ops if op.where.act in acts and op.where.microbatch is not None]
            added = [op for op in ops if once and self._added(op, acts)]
            return Builder(self, chunk, acts, place, often, added).part()

        ends = () if any(kind == place for kind, _ in chunk.stack) else (chunk.first, chunk.last)
        return self._once(("part", *ends, acts, place, once), built)

    @cached_property
    def _at(self) -> Mapping[str, list[Op]]:
        """The ops of each part of the stack."""
        by_place: defaultdict[str, list[Op]] = defaultdict(list)
        for op in self.ops:
            by_place[place_of(op.where)].append(op)
        return by_place

    def _added(self, op: Op, acts: str) -> bool:
        """True for a move of the whole step that is issued in this action."""
        lane = WEIGHTS if acts == "F" else GRADIENTS
        calls = self.of(op)
        return op.where.microbatch is None and any(self.beside_once(call) and call.sort == lane for call in calls)


def _rows(stack: Layers) -> list[tuple[Layers, int]]:
    """A stack as rows of layers, each with how often it follows itself: of kinds that take turns one row, or each."""
    for many in range(2, len(stack) // 2 + 1):
        if stack[many:] == stack[:-many] and not len(stack) % many:
            return [(stack[:many], len(stack) // many)]
    return [(((kind, 1),), n) for kind, n in stack]


def _times(row: Layers, n: int) -> Layers:
    """A row of layers so often."""
    return row * n if len(row) > 1 else ((row[0][0], n),)
