"""How calls are issued, and the ops of a part of an action as nodes: kernels, products, calls, and what each reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tpsim.cost.collectives import GRADIENTS, ROWS, WEIGHTS, Collective
from tpsim.cost.piece import Cut, Node, Part, Piece
from tpsim.program.op import Array, Index, Leaf, Op, Rename, Reshard, Where
from tpsim.program.update import CLIP
from tpsim.quantity.once import Once
from tpsim.quantity.size import over

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.program.practice import Practice
    from tpsim.program.stages import Chunk, Stages


@dataclass(eq=False)
class Calls(Once):
    """The collectives of a program as a framework issues them: what they move, where they stand, what they run beside.

    calls     of one layer each
    practice  whose switches say how a framework issues them; `Overlap.at` its ZeRO stage
    """

    ops: Sequence[Op]
    stages: Stages
    calls: Sequence[Collective]
    practice: Practice

    def beside(self, call: Collective) -> bool:
        """True if a call runs beside compute."""
        return call.streamed or self._overlap(call) != "none"

    def splits(self, call: Collective) -> bool:
        """True if products are cut to run beside a call's steps."""
        return self._overlap(call) == "split"

    def _overlap(self, call: Collective) -> str:
        """How a call of its sort runs."""
        sort = call.sort
        mode: str = self.practice.rows.overlap if sort == ROWS else getattr(self.practice.overlap, sort)
        return "none" if mode == "forward" and call.where.act in "BW" else mode

    def hides(self, call: Collective) -> bool:
        """True for a call that compute may hide."""
        return (call.per_microbatch and self.beside(call)) or self.beside_once(call)

    def beside_once(self, call: Collective) -> bool:
        """True for a call of the whole step that its first or its last microbatch runs beside compute.

        Of a norm that the update does not wait for what stages sum follows them in the next step's first microbatches.
        """
        if call.shared:
            return call.block == CLIP and self.practice.clip == "deferred"
        return not call.per_microbatch and self.counts(call) and self.beside(call)

    def counts(self, call: Collective) -> bool:
        """True for a call that may wait until so many elements are ready, or be early by so many."""
        return call.sort in (GRADIENTS, WEIGHTS)

    def home(self, call: Collective, chunk: Chunk, acts: str) -> str:
        """The part of the stack where a call of several parts stands: of gradients the last, else the first."""
        wheres = [self.maker[part.output].where for part in call.parts]
        places = [place for place, _ in places_of(chunk, acts)]
        here = {place_of(where) for where in wheres if self._runs(where, chunk)}
        homes = [place for place in places if place in here]
        return homes[-1 if call.sort == GRADIENTS else 0]

    def _runs(self, where: Where, chunk: Chunk) -> bool:
        return bool(where.layer is not None or self.stages.times(where, chunk))

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


def _order(call: Collective, array: Array) -> int:
    """Where the move of an array stands among those of its op."""
    return min(part.place for part in call.parts if part.output is array)


def places_of(chunk: Chunk, acts: str) -> tuple[tuple[str, int], ...]:
    """The parts of a chunk in the order in which an action runs them, each with how often it follows itself.

    Of layers by their kind; entry and exit are what stands beside a cut.
    """
    places = (("entry", 1), ("embedding", 1), *chunk.stack, ("head", 1), ("exit", 1))
    return places if acts == "F" else places[::-1]


def place_of(where: Where) -> str:
    """The part of the stack that an op belongs to."""
    if where.layer is not None:
        return where.kind
    if where.place == "side":
        return ("exit", "entry")[where.chunks[0]]
    return "head" if where.place == "step" else where.place


@dataclass(slots=True)
class Builder:
    """The nodes of one run of a part of the stack in one action.

    place  which part
    often  its ops
    once   moves of the whole step that are issued in it: of gradients, or of new weights
    streaming  the kernels to which arrays come block after block
    fused  of kernels the ops behind their first
    """

    actions: Calls
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
    streaming: set[str] = field(default_factory=set)
    fused: defaultdict[int, list[Op]] = field(default_factory=lambda: defaultdict(list))

    def part(self) -> Part:
        """All of it."""
        producer = self.actions.maker
        come = {op.output for op in self.often if any(call.streamed for call in self.actions.of(op))}
        self.streaming = {op.where.kernel for op in self.often if op.where.kernel and come.intersection(op.inputs)}
        if self.acts == "F":
            for op in self.once:
                name = op.output.name.removeprefix("new.")
                self.new[name] = self._moves(op, self.new.get(name, frozenset()))
        for op in (*self.often, *(self.once if self.acts != "F" else ())):
            self._add(op, producer)
        for node, ops in self.fused.items():
            self.pieces[node] = replace(self.pieces[node], ops=(*self.pieces[node].ops, *ops))
        lanes = Counter(piece.lane for piece in self.pieces)
        shares = {lane: over(1, many) for lane, many in lanes.items()}
        shared = [replace(piece, share=shares[piece.lane]) if piece.call else piece for piece in self.pieces]
        nodes = tuple(Node(piece, tuple(sorted(reads))) for piece, reads in zip(shared, self.reads, strict=True))
        return Part(nodes, frozenset(self.takes), self._gives())

    def _gives(self) -> tuple[int, ...]:
        """The nodes whose results another part of the stack reads in the same phase."""
        if not self.often:
            return ()
        phase, ids, readers = self.often[0].where.phase, set(map(id, self.often)), self.actions.readers
        gives = {
            node
            for x, nodes in self.made.items()
            if nodes and any(op.where.phase == phase and id(op) not in ids for op in readers.get(x, ()))
            for node in nodes
        }
        return tuple(sorted(node for node in gives if self.acts == "W" or not self.pieces[node].late))

    def _add(self, op: Op, producer: Mapping[Array, Op]) -> None:
        reads = frozenset(node for x in op.inputs for node in self._made(x))
        outside = any(self._comes_from_outside(x, producer) for x in op.inputs)
        if calls := self.actions.of(op):
            moved = self._moves(op, reads)
            if outside:
                self.takes |= {self.calls[id(call)] for call in calls if id(call) in self.calls}
        elif isinstance(op, Leaf | Index | Rename | Reshard):
            if outside and not reads:
                return  # nothing is made here: whoever reads it reads what another part gives
            moved = reads
        else:
            first, last = self._work(op, reads)
            moved = frozenset([last])
            self.takes |= {first, last} if outside else set()
        self.made[op.output] = moved

    def _made(self, x: Array) -> frozenset[int]:
        if x in self.made:
            return self.made[x]
        return self.new.get(x.name, frozenset()) if x.role == "param" else frozenset()

    def _comes_from_outside(self, x: Array, producer: Mapping[Array, Op]) -> bool:
        maker = producer[x].where
        inside = maker.act in self.acts or maker.place == "cut"
        return x not in self.made and x.role != "param" and inside and maker.microbatch is not None

    def _moves(self, op: Op, reads: frozenset[int]) -> frozenset[int]:
        """The calls of an op, each behind the one before it; those that travel together are one node."""
        for call in self.actions.of(op):
            key = id(call)
            if self.actions.home(call, self.chunk, self.acts) != self.place:
                continue
            rest = frozenset[int]()
            if key not in self.calls:
                rest = self._cut_before(call, op, reads)
                self.calls[key] = self._new(Piece(op.where.act, (), call, not self.actions.beside(call)), frozenset())
            node = self.calls[key]
            if call.streamed and call.kind == "reduce_scatter":
                rest = reads  # it goes along with the kernel that makes what it sums
            else:
                awaited = {read for read in reads if call.sort != WEIGHTS or self._brings(read)}
                self.reads[node] |= awaited - {node}
            reads = frozenset([node]) | rest
        return reads

    def _brings(self, node: int) -> bool:
        """True for what a gather of weights waits for: their cast, or what brings them from their host."""
        call = self.pieces[node].call
        return self.pieces[node].casts or bool(call and call.parts[0].move.travels)

    def _work(self, op: Op, reads: frozenset[int]) -> tuple[int, int]:
        """The first and the last node of a product or a kernel; what a kernel reads is there before all of it."""
        where, reads = op.where, frozenset(node for node in reads if not self.pieces[node].settles)
        brought = self._cuts_behind(op, reads)
        again = "" if where.kernel in self.streaming else where.again
        key, at = (where.kernel, where.act, again), -1
        if where.kernel and key in self.kernels:
            at = self.kernels[key]
            last = at + (self.pieces[at].cut is not None)
            if all(node <= last or self.pieces[node].fetches or self.pieces[node].casts for node in reads):
                for node in {at, last}:
                    self.fused[node].append(op)
                self.reads[at] |= reads - {at, last, *brought}
                self.reads[last] |= {*brought}
                self._start_with(at, last, brought)
                return at, last
        beside = self._beside(op, reads - {*brought})
        self.kernels[key] = at = self._new(Piece(where.act, (op,)), reads - {*brought})
        for call in [call for node in brought if (call := self.pieces[node].call)][:1]:
            self.pieces[at] = replace(self.pieces[at], cut=Cut(call, alone=False))
            self._new(Piece(where.act, (op,), cut=Cut(call, alone=True)), frozenset({at, *brought, *beside}))
        self._start_with(at, at + bool(brought), brought)
        return at, at + bool(brought)

    def _start_with(self, kernel: int, last: int, brought: Sequence[int]) -> None:
        """Blocks travel from when a kernel begins, whose first block is its own."""
        streams = [node for node in brought if self.pieces[node].streamed]
        first = [self.reads[node] for node in self.reads[last] if self.pieces[node].streamed]
        for node in streams:
            self.reads[node] |= {read for read in self.reads[kernel].union(*first) if read < node}

    def _cuts_behind(self, op: Op, reads: frozenset[int]) -> tuple[int, ...]:
        """The gathers whose steps a product, or a kernel, is cut to run beside: its last part needs all of them.

        What several products of an act read is gathered whole, once for all of them.
        Source: openxla/xla, xla/service/spmd/dot_handler.cc: check_users_sharding.
        """
        calls = [(node, self.pieces[node].call) for node in sorted(reads)]
        if op.where.kernel:
            return tuple(node for node, call in calls if call and call.streamed)
        gathers = tuple(node for node, call in calls if call and self._cuts(call, "all_gather"))
        if not gathers or not Piece(op.where.act, (op,)).may_be_cut or any(self._alike(op, x) for x in op.inputs):
            return ()
        return gathers[:1]

    def _alike(self, op: Op, x: Array) -> bool:
        """True if other products of its act read `x` as well."""
        where = op.where
        others = (other for other in self.actions.readers.get(x, ()) if other is not op)
        return any(
            (other.where.act, other.where.again) == (where.act, where.again) and Piece(where.act, (other,)).is_product
            for other in others
        )

    def _beside(self, op: Op, reads: frozenset[int]) -> list[int]:
        """The sums of blocks that travel beside the kernel that makes them, issued with its first part."""
        where, nodes = op.where, list[int]()
        if where.kernel not in self.streaming:
            return nodes
        same = [other for other in self.often if other.where.act == where.act]
        outputs = {other.output for other in same if other.where.kernel == where.kernel}
        for reader in (other for other in same if other.inputs and other.inputs[0] in outputs):
            for call in self.actions.of(reader):
                if call.streamed and call.kind == "reduce_scatter" and id(call) not in self.calls:
                    self.calls[id(call)] = self._new(Piece(where.act, (), call, blocks=False), reads)
                    nodes.append(self.calls[id(call)])
        return nodes

    def _cut_before(self, call: Collective, op: Op, reads: frozenset[int]) -> frozenset[int]:
        """Cuts the product whose sum a call scatters: it waits for the first part alone. The node of the rest."""
        at = min(reads, default=-1)
        if len(reads) != 1 or not self._cuts(call, "reduce_scatter") or not self.pieces[at].may_be_cut:
            return frozenset()
        whole = self.pieces[at]
        self.pieces[at] = replace(whole, cut=Cut(call, alone=True))
        rest = self._new(replace(whole, cut=Cut(call, alone=False)), frozenset(self.reads[at]))
        self.takes |= {rest} if at in self.takes else set()
        self.made |= {x: self.made[x] | {rest} for x in op.inputs}
        return frozenset({rest})

    def _cuts(self, call: Collective, kind: MoveKind) -> bool:
        return call.kind == kind and self.actions.splits(call)

    def _new(self, piece: Piece, reads: frozenset[int]) -> int:
        self.pieces.append(piece)
        self.reads.append(set(reads))
        return len(self.pieces) - 1
