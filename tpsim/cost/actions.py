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
from tpsim.cost.collectives import ROWS, Collective
from tpsim.cost.issue import Issue, bucketed, gathered
from tpsim.cost.nodes import Builder
from tpsim.cost.piece import GRADIENTS, LANE, WEIGHTS, Node, Part, Piece
from tpsim.cost.segments import Runs, grown, runs
from tpsim.cost.timed import Action
from tpsim.program.op import Array, Op, Reshard, Where
from tpsim.program.stages import Chunk, Stages
from tpsim.program.update import CLIP
from tpsim.quantity.once import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.program.kinds import Layers
    from tpsim.program.practice import Practice

FEW = 4
"""Equal layers that are issued for all: what is issued for those in the middle is the same for each by then."""


@dataclass(eq=False)
class Actions(Once):
    """All actions of a program, each made once.

    calls     its collectives, of one layer each
    practice  whose switches say how a framework issues them; `Overlap.at` its ZeRO stage
    shards    devices that share a microbatch
    elements  of a call's arrays, for switches that count them
    """

    ops: Sequence[Op]
    stages: Stages
    calls: Sequence[Collective]
    practice: Practice
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

    def beside(self, call: Collective) -> bool:
        """True if a call runs beside compute."""
        return call.streamed or self._overlap(call) != "none"

    def splits(self, call: Collective) -> bool:
        """True if products are cut to run beside a call's steps."""
        return self._overlap(call) == "split"

    def _overlap(self, call: Collective) -> str:
        """How a call of its sort runs."""
        sort = LANE[call.op]
        mode: str = self.practice.rows.overlap if sort == ROWS else getattr(self.practice.overlap, sort)
        return "none" if mode == "forward" and call.where.act in "BW" else mode

    def hides(self, call: Collective) -> bool:
        """True for a call that compute may hide."""
        return (call.per_microbatch and self.beside(call)) or self.beside_once(call)

    def beside_once(self, call: Collective) -> bool:
        """True for a call of the whole step that its first or its last microbatch runs beside compute.

        Of a norm that the update does not wait for what stages sum follows them in the next step's first microbatches.
        """
        lanes = (GRADIENTS, WEIGHTS)
        if call.shared:
            return call.block == CLIP and self.practice.clip == "deferred"
        return not call.per_microbatch and LANE[call.op] in lanes and self.beside(call)

    def counts(self, call: Collective) -> bool:
        """True for a call that may wait until so many elements are ready, or be early by so many."""
        return LANE[call.op] in (GRADIENTS, WEIGHTS)

    @property
    def gathers_once(self) -> bool:
        """True if weights are gathered beside the first microbatch, for all of them."""
        return self._has(WEIGHTS)

    def _has(self, lane: str) -> bool:
        return self._once(lane, lambda: any(self.beside_once(call) and LANE[call.op] == lane for call in self.calls))

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
        parts = [(self._part(chunk, acts, place, once=once), times) for place, times in _places(chunk, acts)]
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

    def home(self, call: Collective, chunk: Chunk, acts: str) -> str:
        """The part of the stack where a call of several parts stands: of gradients the last, else the first."""
        wheres = [self.maker[part.output].where for part in call.parts]
        places = [place for place, _ in _places(chunk, acts)]
        places_of = {_place(where) for where in wheres if self._runs(where, chunk)}
        homes = [place for place in places if place in places_of]
        return homes[-1 if LANE[call.op] == GRADIENTS else 0]

    @cached_property
    def _at(self) -> Mapping[str, list[Op]]:
        """The ops of each part of the stack."""
        by_place: defaultdict[str, list[Op]] = defaultdict(list)
        for op in self.ops:
            by_place[_place(op.where)].append(op)
        return by_place

    @cached_property
    def maker(self) -> Mapping[Array, Op]:
        """The op of every array."""
        return {op.output: op for op in self.ops}

    @cached_property
    def readers(self) -> Mapping[Array, list[Op]]:
        """The ops of microbatches that read each array."""
        by_array: defaultdict[Array, list[Op]] = defaultdict(list)
        for op in self.ops:
            for x in op.inputs if op.where.microbatch is not None else ():
                by_array[x].append(op)
        return by_array

    def _runs(self, where: Where, chunk: Chunk) -> bool:
        return bool(where.layer is not None or self.stages.times(where, chunk))

    def _added(self, op: Op, acts: str) -> bool:
        """True for a move of the whole step that is issued in this action."""
        lane = WEIGHTS if acts == "F" else GRADIENTS
        calls = self.of(op)
        return op.where.microbatch is None and any(self.beside_once(call) and LANE[call.op] == lane for call in calls)

    def of(self, op: Op) -> list[Collective]:
        """The calls that an op's moves travel in, the first first."""
        return self._calls.get(op.output, []) if isinstance(op, Reshard) else []

    @cached_property
    def _calls(self) -> Mapping[Array, list[Collective]]:
        """The calls that each array travels in, the first first."""
        by_array: defaultdict[Array, list[Collective]] = defaultdict(list)
        for call in self.calls:
            for part in call.parts:
                by_array[part.output].append(call)
        return {array: sorted(calls, key=lambda call: _order(call, array)) for array, calls in by_array.items()}


def _places(chunk: Chunk, acts: str) -> tuple[tuple[str, int], ...]:
    """The parts of a chunk in the order in which an action runs them, each with how often it follows itself.

    Of layers by their kind; entry and exit are what stands beside a cut.
    """
    places = (("entry", 1), ("embedding", 1), *chunk.stack, ("head", 1), ("exit", 1))
    return places if acts == "F" else places[::-1]


def _rows(stack: Layers) -> list[tuple[Layers, int]]:
    """A stack as rows of layers, each with how often it follows itself: of kinds that take turns one row, or each."""
    for many in range(2, len(stack) // 2 + 1):
        if stack[many:] == stack[:-many] and not len(stack) % many:
            return [(stack[:many], len(stack) // many)]
    return [(((kind, 1),), n) for kind, n in stack]


def _times(row: Layers, n: int) -> Layers:
    """A row of layers so often."""
    return row * n if len(row) > 1 else ((row[0][0], n),)


def _order(call: Collective, array: Array) -> int:
    """Where the move of an array stands among those of its op."""
    return min(part.place for part in call.parts if part.output is array)


def _place(where: Where) -> str:
    """The part of the stack that an op belongs to."""
    if where.layer is not None:
        return where.kind
    if where.place == "side":
        return ("exit", "entry")[where.chunks[0]]
    return "head" if where.place == "step" else where.place
