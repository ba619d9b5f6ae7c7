"""Ops of one action as tasks: which kernel and which collective stands where, layers one by one.

An action is what a chunk of layers does with one microbatch: forward, backward, or one of backward's two parts. Its
tasks are kernels, products and collective calls in the order in which a framework issues them; the switches of
`Overlap` say which sorts of calls run beside compute.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.rollup import RECOMPUTED
from tpsim.cost.timeline import COMPUTE, Ran, Task, run
from tpsim.program.op import Einsum, Index, Leaf, Rename, Reshard
from tpsim.quantity.size import largest, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpsim.cost.rollup import Collective
    from tpsim.program.layout import Practice
    from tpsim.program.op import Array, Op, Where
    from tpsim.program.stages import Chunk, Stages

TENSOR, GRADIENTS, WEIGHTS = "tensor", "gradients", "weights"
LANE: Mapping[str, str] = {
    **dict.fromkeys(("activation", RECOMPUTED), TENSOR),
    "gradient": GRADIENTS,
    **dict.fromkeys(("param", "state"), WEIGHTS),
}
"""The lane of a collective by what it is for: its sort."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One traced kernel, product or collective call; it stands for as many as there are layers.

    act     what it is a part of
    ops     of a kernel or a product; of the mark at an action's end none
    call    of a collective
    blocks  True if a call holds compute up
    share   of all calls of its sort in its part of the stack
    """

    act: str = ""
    ops: tuple[Op, ...] = ()
    call: Collective | None = None
    blocks: bool = True
    share: Any = 1

    @property
    def lane(self) -> str:
        """Where it runs."""
        return LANE[self.call.op] if self.call else COMPUTE

    @property
    def beside(self) -> bool:
        """True for a call that runs beside compute."""
        return self.call is not None and not self.blocks

    @property
    def settles(self) -> bool:
        """True for a call whose result nothing in its action waits for."""
        return self.lane == GRADIENTS

    @property
    def is_product(self) -> bool:
        """True for a matrix product."""
        return any(isinstance(op, Einsum) and op.is_matmul for op in self.ops)

    @property
    def late(self) -> bool:
        """True for what only gradients of parameters need: it may stand anywhere behind what it reads."""
        return self.act == "W"

    @property
    def fetches(self) -> bool:
        """True for a gather of weights, which waits for nothing."""
        return self.lane == WEIGHTS


class Node(NamedTuple):
    """A piece in a list of tasks, with the nodes that it reads."""

    piece: Piece
    reads: tuple[int, ...]


class Part(NamedTuple):
    """One run of a part of the stack: its nodes, those that read what comes from outside, and those that lead out."""

    nodes: tuple[Node, ...]
    takes: frozenset[int]
    gives: tuple[int, ...]


class Step(NamedTuple):
    """A task without its seconds: the pieces that it runs one after the other, and what it comes after."""

    pieces: tuple[Piece, ...]
    after: tuple[int, ...]

    def task(self, seconds: Callable[[Piece], Any]) -> Task:
        """The task."""
        first = self.pieces[0]
        waits = (COMPUTE,) if first.call is None else (COMPUTE, first.lane)
        holds = (first.lane,) if first.beside else waits
        return Task(waits, holds, total(seconds(piece) for piece in self.pieces), self.after)


Segment = tuple[Step, ...]


class Length(NamedTuple):
    """A path through tasks: its seconds, and how often each call stands on it, by the call's identity."""

    seconds: Any = 0
    calls: Mapping[int, int] = {}

    def __add__(self, other: Length) -> Length:  # type: ignore[override]  # lengths are put end to end, not joined
        return Length(self.seconds + other.seconds, Counter(self.calls) + Counter(other.calls))

    def times(self, n: int) -> Length:
        """The same n times over."""
        return Length(self.seconds * n, {call: count * n for call, count in self.calls.items()})


NOTHING, NEVER = Length(), Length(-inf)


def longer(one: Length, other: Length) -> Length:
    """The longer of two paths; of arrays the seconds only."""
    seconds = largest(one.seconds, other.seconds)
    return one if seconds is one.seconds else other if seconds is other.seconds else Length(seconds)


@dataclass(frozen=True, slots=True)
class Timed:
    """Tasks as one: from (compute, lane of gradients) free to free.

    through  from compute to compute, which waits for no gradient
    busy     from the lane of gradients to itself: all calls on it
    tail     from compute to the lane of gradients; -inf where nothing runs there
    exposed  seconds of compute's waiting, by call
    settled  seconds of the calls on the lane of gradients, the first first
    """

    through: Length = NOTHING
    busy: Length = NOTHING
    tail: Length = NEVER
    exposed: Mapping[int, Any] = field(default_factory=dict)
    settled: tuple[tuple[int, Any], ...] = ()

    def then(self, other: Timed) -> Timed:
        """Both, one behind the other."""
        return Timed(
            self.through + other.through,
            self.busy + other.busy,
            longer(self.through + other.tail, self.tail + other.busy),
            added(self.exposed, other.exposed),
            self.settled + other.settled,
        )

    def times(self, n: int) -> Timed:
        """The same n times over: the lane of gradients is bound by its first call, or by its last."""
        behind = longer(self.through, self.busy).times(n - 1)
        exposed = {call: seconds * n for call, seconds in self.exposed.items()}
        return Timed(self.through.times(n), self.busy.times(n), self.tail + behind, exposed, self.settled * n)


def added(one: Mapping[int, Any], other: Mapping[int, Any]) -> dict[int, Any]:
    """Sums by key."""
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


@dataclass(frozen=True, slots=True)
class Action:
    """The tasks of an action, cut where all that was issued has been waited for: equal segments are run once.

    runs  segments in order, each with how often it follows itself
    """

    runs: tuple[tuple[Segment, int], ...]

    def timed(self, seconds: Callable[[Piece], Any], *, attributed: bool = True) -> Timed:
        """Its seconds.

        attributed  False where only sums are wanted, as of arrays
        """
        known: dict[Segment, Timed] = {}
        whole = Timed()
        for segment, count in self.runs:
            if segment not in known:
                known[segment] = _timed(segment, seconds, attributed=attributed)
            whole = whole.then(known[segment].times(count))
        return whole


def _timed(segment: Segment, seconds: Callable[[Piece], Any], *, attributed: bool) -> Timed:
    """One segment, run when all lanes are free."""
    tasks = [step.task(seconds) for step in segment]
    ran = run(tasks)
    settling = [place for place, step in enumerate(segment) if step.pieces[0].beside and step.pieces[0].settles]
    last = max((place for place, task in enumerate(tasks) if COMPUTE in task.holds), default=None)
    worked = 0 if last is None else ran.ends[last]
    busy, tail = total(tasks[place].seconds for place in settling), ran.ends[settling[-1]] if settling else -inf
    if not attributed:
        return Timed(Length(worked), Length(busy), Length(tail))
    named = [id(step.pieces[0].call) if step.pieces[0].call else 0 for step in segment]
    return Timed(
        Length(worked, _path(ran, named, last)),
        Length(busy, Counter(named[place] for place in settling)),
        Length(tail, _path(ran, named, settling[-1])) if settling else NEVER,
        _exposed(ran, tasks, named),
        tuple((named[place], tasks[place].seconds) for place in settling),
    )


def _path(ran: Ran, named: Sequence[int], at: int | None) -> Mapping[int, int]:
    """The calls that a task's end hangs on, each with how often."""
    counts: Counter[int] = Counter()
    while at is not None:
        if named[at]:
            counts[named[at]] += 1
        at = ran.bound(at)
    return counts


def _exposed(ran: Ran, tasks: Sequence[Task], named: Sequence[int]) -> dict[int, Any]:
    """Seconds in which nothing computes, each the call's that was waited for: walked back from the end of each gap."""
    found: defaultdict[int, Any] = defaultdict(int)
    before: Any = 0
    for place, task in enumerate(tasks):
        if COMPUTE not in task.holds:
            continue
        if named[place]:
            found[named[place]] += task.seconds
        end, at = ran.starts[place], ran.bound(place)
        while end > before and at is not None:
            start = max(ran.starts[at], before)
            found[named[at]] += end - start
            end, at = start, ran.bound(at)
        before = ran.ends[place]
    return dict(found)


@dataclass(frozen=True, slots=True)
class Actions:
    """All actions of a program, each made once.

    calls     the collectives that are priced
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
    _known: dict[Any, Any] = field(default_factory=dict)

    def action(self, chunk: Chunk, acts: str, *, first: bool = False, last: bool = False) -> Action:
        """What a chunk does in one microbatch.

        acts   "F", "B", "W" or "BW"
        first  True for the microbatch that waits for new weights where these are gathered beside compute
        last   True for the one whose gradients are complete
        """
        key = (chunk.layers, chunk.first, chunk.last, acts, first and self._has(WEIGHTS), last and self._has(GRADIENTS))
        if key not in self._known:
            self._known[key] = self._action(chunk, acts, once=key[-2] if acts == "F" else key[-1])
        return self._known[key]  # type: ignore[no-any-return]  # put there above

    def beside(self, call: Collective) -> bool:
        """True if a call runs beside compute."""
        return bool(getattr(self.practice.overlap, LANE[call.op]) == "beside")

    def hides(self, call: Collective) -> bool:
        """True for a call that compute may hide."""
        return (call.per_microbatch and self.beside(call)) or self.beside_once(call)

    def beside_once(self, call: Collective) -> bool:
        """True for a call of the whole step that its first or its last microbatch runs beside compute."""
        lanes = (GRADIENTS, WEIGHTS)
        return not call.per_microbatch and not call.shared and LANE[call.op] in lanes and self.beside(call)

    def _has(self, lane: str) -> bool:
        return any(self.beside_once(call) and LANE[call.op] == lane for call in self.calls)

    def _action(self, chunk: Chunk, acts: str, *, once: bool) -> Action:
        """The tasks: parts of the stack in a row, in the order of issue, with buckets and what is gathered ahead."""
        nodes: list[Node] = []
        starts: list[int] = []
        gives: tuple[int, ...] = ()
        for place in _places(acts):
            part = self._part(chunk, acts, place, once=once)
            for _ in range(chunk.layers if place == "layer" else 1):
                if part.nodes:
                    starts.append(base := len(nodes))
                    nodes += [
                        Node(piece, (*(one + base for one in reads), *(gives if at in part.takes else ())))
                        for at, (piece, reads) in enumerate(part.nodes)
                    ]
                    gives = tuple(one + base for one in part.gives)
        bucket, ahead = self.practice.bucket, self.practice.ahead
        order = _Issue(nodes).order()
        limit = bucket.limit(shards=self.shards, first=chunk.first)
        order = list(_bucketed(nodes, order, limit, self._size(bucket.elements is not None)))
        order = list(_gathered(nodes, order, ahead.limit, self._size(ahead.elements is not None)))
        return Action(tuple(_runs(nodes, order, starts)))

    def _size(self, in_elements: bool) -> Callable[[Piece], Any]:
        return lambda piece: self.elements(piece.call) if in_elements and piece.call else piece.share

    def _part(self, chunk: Chunk, acts: str, place: str, *, once: bool) -> Part:
        key = (chunk.first, chunk.last, acts, place, once)
        if key not in self._known:
            mine = [op for op in self.ops if _stands(op.where, place) and self._runs(op.where, chunk)]
            often = [op for op in mine if op.where.act in acts and op.where.index("microbatches") is not None]
            added = [op for op in mine if once and self._once(op, acts)]
            self._known[key] = _Builder(self, chunk, acts, place, often, added).part(self.ops)
        return self._known[key]  # type: ignore[no-any-return]  # put there above

    def home(self, call: Collective, chunk: Chunk, acts: str) -> str:
        """The part of the stack where a call of several parts stands: of gradients the last, else the first."""
        maker = self.maker()
        wheres = [maker[part.output].where for part in call.parts]
        homes = [place for place in _places(acts) if any(_stands(w, place) and self._runs(w, chunk) for w in wheres)]
        return homes[-1 if LANE[call.op] == GRADIENTS else 0]

    def maker(self) -> dict[Array, Op]:
        """The op of every array."""
        if "maker" not in self._known:
            self._known["maker"] = {op.output: op for op in self.ops}
        return self._known["maker"]  # type: ignore[no-any-return]  # put there above

    def _runs(self, where: Where, chunk: Chunk) -> bool:
        return bool(where.index("layers") is not None or self.stages.times(where, chunk))

    def _once(self, op: Op, acts: str) -> bool:
        """True for a move of the whole step that is issued in this action."""
        lane = WEIGHTS if acts == "F" else GRADIENTS
        calls = self.of(op)
        return op.where.index("microbatches") is None and any(
            self.beside_once(call) and LANE[call.op] == lane for call in calls
        )

    def of(self, op: Op) -> list[Collective]:
        """The calls that an op's moves travel in, the first first."""
        if "calls" not in self._known:
            found: defaultdict[Array, list[Collective]] = defaultdict(list)
            for call in self.calls:
                for part in call.parts:
                    found[part.output].append(call)
            self._known["calls"] = {
                array: sorted(calls, key=lambda call: _order(call, array)) for array, calls in found.items()
            }
        return self._known["calls"].get(op.output, []) if isinstance(op, Reshard) else []


def _places(acts: str) -> tuple[str, ...]:
    """The parts of a chunk in the order in which an action runs them; entry and exit: what stands beside a cut."""
    places = ("entry", "embedding", "layer", "head", "exit")
    return places if acts == "F" else places[::-1]


def _order(call: Collective, array: Array) -> int:
    """Where the move of an array stands among those of its op."""
    return min(part.place for part in call.parts if part.output is array)


def _stands(where: Where, place: str) -> bool:
    """True if an op belongs to that part of the stack."""
    if where.index("layers") is not None:
        return place == "layer"
    if where.place == "side":
        return place == ("exit", "entry")[where.chunks[0]]
    return place == ("head" if where.place == "step" else where.place)


@dataclass(slots=True)
class _Builder:
    """The nodes of one run of a part of the stack in one action.

    place  which part
    often  its ops
    once   moves of the whole step that are issued in it: of gradients, or of new weights
    """

    actions: Actions
    chunk: Chunk
    acts: str
    place: str
    often: Sequence[Op]
    once: Sequence[Op]
    pieces: list[Piece] = field(default_factory=list)
    reads: list[set[int]] = field(default_factory=list)
    takes: set[int] = field(default_factory=set)
    made: dict[Array, frozenset[int]] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    kernels: dict[tuple[str, str, str], int] = field(default_factory=dict)
    new: dict[str, frozenset[int]] = field(default_factory=dict)

    def part(self, ops: Sequence[Op]) -> Part:
        """All of it; `ops` are the program's."""
        producer = self.actions.maker()
        if self.acts == "F":
            for op in self.once:
                self.new[op.output.name.removeprefix("new.")] = self._moves(op, frozenset())
        for op in (*self.often, *(self.once if self.acts != "F" else ())):
            self._add(op, producer)
        lanes = Counter(piece.lane for piece in self.pieces)
        shared = [replace(piece, share=Fraction(1, lanes[piece.lane])) for piece in self.pieces]
        nodes = tuple(Node(piece, tuple(sorted(reads))) for piece, reads in zip(shared, self.reads, strict=True))
        return Part(nodes, frozenset(self.takes), self._gives(ops))

    def _gives(self, ops: Sequence[Op]) -> tuple[int, ...]:
        """The nodes whose results another part of the stack reads in the same phase."""
        if not self.often:
            return ()
        phase, mine = self.often[0].where.phase, set(map(id, self.often))
        outside = (
            op
            for op in ops
            if op.where.phase == phase and op.where.index("microbatches") is not None and id(op) not in mine
        )
        found = {node for op in outside for x in op.inputs for node in self.made.get(x, ())}
        return tuple(sorted(node for node in found if self.acts == "W" or not self.pieces[node].late))

    def _add(self, op: Op, producer: Mapping[Array, Op]) -> None:
        reads = frozenset(node for x in op.inputs for node in self._made(x))
        outside = any(self._comes_from_outside(x, producer) for x in op.inputs)
        if calls := self.actions.of(op):
            made = self._moves(op, reads)
            if outside:
                self.takes |= {self.calls[id(call)] for call in calls if id(call) in self.calls}
        elif isinstance(op, Leaf | Index | Rename | Reshard):
            made = reads
        else:
            made = frozenset([self._work(op, reads)])
        if outside and not isinstance(op, Reshard):
            self.takes |= made
        self.made[op.output] = made

    def _made(self, x: Array) -> frozenset[int]:
        if x in self.made:
            return self.made[x]
        return self.new.get(x.name, frozenset()) if x.role == "param" else frozenset()

    def _comes_from_outside(self, x: Array, producer: Mapping[Array, Op]) -> bool:
        maker = producer[x].where
        inside = maker.act in self.acts or maker.place == "cut"
        return x not in self.made and x.role != "param" and inside and maker.index("microbatches") is not None

    def _moves(self, op: Op, reads: frozenset[int]) -> frozenset[int]:
        """The calls of an op, each behind the one before it; those that travel together are one node."""
        for call in self.actions.of(op):
            key = id(call)
            if self.actions.home(call, self.chunk, self.acts) != self.place:
                continue
            if key not in self.calls:
                self.calls[key] = self._new(Piece(op.where.act, (), call, not self.actions.beside(call)), frozenset())
            node = self.calls[key]
            if LANE[call.op] != WEIGHTS:
                self.reads[node] |= reads - {node}
            reads = frozenset([node])
        return reads

    def _work(self, op: Op, reads: frozenset[int]) -> int:
        """The node of a product or a kernel; what a kernel reads is there before all of it."""
        where, reads = op.where, frozenset(node for node in reads if not self.pieces[node].settles)
        key, at = (where.kernel, where.act, where.again), -1
        if where.kernel and key in self.kernels:
            at = self.kernels[key]
            if all(node <= at or self.pieces[node].fetches for node in reads):
                self.pieces[at] = replace(self.pieces[at], ops=(*self.pieces[at].ops, op))
                self.reads[at] |= reads - {at}
                return at
        self.kernels[key] = at = self._new(Piece(where.act, (op,)), reads)
        return at

    def _new(self, piece: Piece, reads: frozenset[int]) -> int:
        self.pieces.append(piece)
        self.reads.append(set(reads))
        return len(self.pieces) - 1


@dataclass(slots=True)
class _Issue:
    """The order in which nodes are issued: it knows no seconds.

    What the stream's cotangent needs (B) goes in traced order, its moves as soon as their inputs are there. Before
    something reads a move that is in flight, all that only gradients of parameters need (W) if it can, is run; a
    gather that only this reads goes before the product ahead of it. So B's moves run beside W's products.
    """

    nodes: Sequence[Node]
    out: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    flying: set[int] = field(default_factory=set)
    pending: list[int] = field(default_factory=list)
    readers: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def order(self) -> list[int]:
        """All nodes but the gathers of weights."""
        for at, (piece, reads) in enumerate(self.nodes):
            if piece.call and (piece.settles or not piece.late):
                for one in reads:
                    self.readers[one].append(at)
        for at, (piece, reads) in enumerate(self.nodes):
            if at in self.done or piece.fetches or (piece.settles and reads):
                continue
            if piece.late:
                self.pending.append(at)
                continue
            if self.flying.intersection(reads):
                self._group()
                self.flying.difference_update(reads)
            self._emit(at)
        while self.pending:
            self._group()
            self.flying.clear()
        return self.out

    def _emit(self, at: int) -> None:
        piece = self.nodes[at].piece
        self.out.append(at)
        self.done.add(at)
        if piece.beside and not piece.settles:
            self.flying.add(at)
        for one in self.readers[at]:
            if one not in self.done and all(self._there(read) for read in self.nodes[one].reads):
                self._emit(one)

    def _there(self, at: int) -> bool:
        return at in self.done or self.nodes[at].piece.fetches

    def _group(self) -> None:
        """All of W that could run now."""
        start, left, early = len(self.out), [], set()
        for at in self.pending:
            piece, reads = self.nodes[at]
            if not all(self._there(read) and (read not in self.flying or read in early) for read in reads):
                left.append(at)
            elif piece.call:
                self._fetch(at, start)
                early.add(at)
            else:
                self._emit(at)
        self.flying -= early
        self.pending = left

    def _fetch(self, at: int, start: int) -> None:
        """A gather goes before the last product ahead of the group, if what it reads is there by then."""
        place = next((one for one in range(start - 1, -1, -1) if self.nodes[self.out[one]].piece.is_product), start)
        if set(self.out[place:start]).intersection(self.nodes[at].reads):
            place = start
        self._emit(at)
        self.out.remove(at)
        self.out.insert(place, at)


def _bucketed(nodes: Sequence[Node], order: Iterable[int], limit: Any, size: Callable[[Piece], Any]) -> Iterator[int]:
    """Calls on gradients beside compute wait until those that are ready reach the limit, or the action ends."""
    bucket: list[int] = []
    held: Any = 0
    for at in order:
        piece = nodes[at].piece
        if not (piece.settles and piece.beside):
            yield at
            continue
        bucket.append(at)
        held += size(piece)
        if held >= limit:
            yield from bucket
            bucket, held = [], 0
    yield from bucket


def _gathered(nodes: Sequence[Node], order: Sequence[int], limit: Any, size: Callable[[Piece], Any]) -> Iterator[int]:
    """Gathers of weights stand at the first product at which those not yet begun to be read are within the limit.

    At the latest one stands before what reads it first. Those that block are not issued early: it would gain nothing.
    """
    fetched = [at for at, node in enumerate(nodes) if node.piece.fetches]
    first: dict[int, int] = {}
    for place, at in enumerate(order):
        for read in nodes[at].reads:
            if nodes[read].piece.fetches:
                first.setdefault(read, place)
    queue = sorted((at for at in fetched if at in first), key=lambda at: (first[at], at))
    ahead, next_ = 0, 0
    for place, at in enumerate(order):
        for read in queue[:next_]:
            if first[read] == place:
                ahead -= size(nodes[read].piece)
        while next_ < len(queue) and first[queue[next_]] == place:
            yield queue[next_]
            next_ += 1
        while next_ < len(queue) and nodes[at].piece.is_product:
            piece = nodes[queue[next_]].piece
            if not piece.beside or ahead + size(piece) > limit:
                break
            ahead += size(piece)
            yield queue[next_]
            next_ += 1
        yield at


def _runs(nodes: Sequence[Node], order: Sequence[int], starts: Sequence[int]) -> Iterator[tuple[Segment, int]]:
    """Segments and how often each follows itself."""
    segments = list(_segments(nodes, order, starts))
    for segment, alike in groupby(segments):
        yield segment, len(list(alike))


def _segments(nodes: Sequence[Node], order: Sequence[int], starts: Sequence[int]) -> Iterator[Segment]:
    """The tasks, cut behind each part of the stack as soon as compute has waited for all that is in flight."""
    steps: list[Step] = []
    numbers: dict[int, int] = {}
    flying: dict[int, None] = {}
    layer = cut = bisect_right(starts, order[0]) if order else 0
    for place, at in enumerate(order):
        piece, reads = nodes[at]
        waited = [read for read in reads if nodes[read].piece.call and not nodes[read].piece.settles]
        after = tuple(sorted(numbers[read] for read in waited if read in numbers))
        if not piece.call and not after and steps and steps[-1].pieces[0].call is None:
            steps[-1] = Step((*steps[-1].pieces, piece), steps[-1].after)
        else:
            steps.append(Step((piece,), after))
        numbers[at] = len(steps) - 1
        if piece.beside:
            if not piece.settles:
                flying[at] = None
            continue
        for read in (
            waited if not piece.call else [*waited, *(one for one in flying if nodes[one].piece.lane == piece.lane)]
        ):
            _land(nodes, flying, read)
        if place + 1 < len(order):
            layer = max(layer, bisect_right(starts, order[place + 1]))
            if layer > cut and not flying:
                yield tuple(steps)
                steps, numbers, cut = [], {}, layer
    if flying:
        steps.append(Step((END,), tuple(sorted(numbers[at] for at in flying))))
    if steps:
        yield tuple(steps)


END = Piece()
"""What stands behind all that an action waits for."""


def _land(nodes: Sequence[Node], flying: dict[int, None], at: int) -> None:
    """A call has been waited for, and with it those before it on its lane and those that it reads."""
    if at in flying:
        before = [one for one in flying if nodes[one].piece.lane == nodes[at].piece.lane]
        for one in before[: before.index(at) + 1]:
            flying.pop(one, None)
            for read in nodes[one].reads:
                _land(nodes, flying, read)
