"""From when to when arrays of a microbatch live: who makes each, who reads it last, and which have bytes of their own.

What stands from step to step (weights, gradients, optimizer) is none of them: gradients are added up and weights
updated where they lie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from tpsim.program.keeps import GRADIENTS
from tpsim.program.op import Append, Array, Bcast, Einsum, Index, Leaf, Lin, Op, Program, Rename, Reshard, Where
from tpsim.program.tokens import SELECTED

BUFFERS = 2
"""Blocks of a streamed array that a device has: the one that is worked on and the one that comes (ring attention)."""

SLOT = "_slot"
"""How the names of index functions end that select from the slots of a fused projection."""


RENAMES = (Rename, Bcast)

Turn = tuple[int, bool, int]
"""When an op runs, beside the others of its rank and action: they compare."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The arrays of a program's microbatches that have bytes.

    makers   array with bytes of its own -> the op that makes it
    readers  the same -> the ops that read it, through views too, in turn
    turns    op of a microbatch -> when it has its turn, beside the others of its rank; in turn
    streamed array that comes, or leaves, block after block -> the axes whose devices have a block each: `BUFFERS` of
             them are there at once
    added    what products make of gradients of weights, which is only cast into what is added up; an embedding is
             looked up, and no product makes its gradient
    shared   weights, cast or gathered, that microbatches of stages keep for backward: one array for all of them, which
             stands from step to step and is none of the others
    ends     op of a fused kernel -> the one with which that ends: until then all is there that the kernel reads
    """

    makers: Mapping[Array, Op]
    readers: Mapping[Array, tuple[Op, ...]]
    turns: Mapping[Op, Turn]
    streamed: Mapping[Array, tuple[str, ...]] = field(default_factory=dict)
    added: frozenset[Array] = frozenset()
    shared: frozenset[Array] = frozenset()
    ends: Mapping[Op, Op] = field(default_factory=dict)

    def names(self, array: Array) -> set[str]:
        """What a list of what a stack keeps may call it."""
        return {array.name, GRADIENTS} if array in self.added else {array.name}

    def handed_on(self, array: Array) -> bool:
        """True for the stream, or its cotangent, between parts of the stack: every layer hands on one like it."""
        return any(_stands(op) != _stands(self.makers[array]) for op in self.readers[array])


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Whose bytes ops of microbatches make and read.

    homes   array -> the array whose bytes it has, its own or those that it is a view of; none for what has no bytes
    makers  array with bytes of its own -> the op that makes it
    reads   op -> the arrays with bytes that it reads; a view reads nothing
    inside  what microbatches read themselves
    """

    homes: dict[Array, Array] = field(default_factory=dict)
    makers: dict[Array, Op] = field(default_factory=dict)
    reads: dict[Op, Iterable[Array]] = field(default_factory=dict)
    inside: set[Array] = field(default_factory=set)

    def take(self, op: Op) -> None:
        """The next op."""
        homes, out, view = self.homes, op.output, is_view(op)
        read = [homes[x] for x in op.inputs if x in homes]
        if (home := _home(op, read, view=view)) is not None:
            homes[out] = home
        if home is out:
            self.makers[out] = op
        if home is out or home is None:
            self.reads[op] = dict.fromkeys(read)
        if not view:
            self.inside.update(read)


def lifetimes(program: Program, *, interiors: bool = False) -> Lifetimes:
    """Read off the ops of a program, whole or with one traced layer.

    interiors  True to count what never leaves the fused kernel that makes it, too: it is neither stored nor moved
    """
    ops, found = [op for op in program.ops if in_microbatch(op.where)], _Bytes()
    for op in ops:
        found.take(op)
    turns, makers = _turns(ops, program.ahead), found.makers
    readers: dict[Array, list[Op]] = {home: [] for home in makers}
    for op in turns:
        for home in found.reads.get(op, ()):
            readers[home].append(op)
    if program.units != "arrays":
        readers.update(_as_units(program.units, [op for op in makers.values() if is_gather(op)], readers, turns))
    sums = _added_up(program, found)
    shared = frozenset(_shared(makers.values(), readers) if program.pipe else ())
    nowhere = sums | shared
    if not interiors:
        nowhere = nowhere.union(home for home, op in makers.items() if _never_leaves(op, readers[home], program))
    here = [home for home in makers if home not in nowhere]
    casts = {op for op in ops if op.output in sums and op.output.role == "gradient" and isinstance(op, Lin)}
    return Lifetimes(
        {home: makers[home] for home in here},
        {home: tuple(readers[home]) for home in here},
        turns,
        {
            op.output if move.kind == "all_gather" else op.inputs[0]: move.axes
            for op in ops
            if isinstance(op, Reshard)
            for move in op.moves
            if move.streamed
        },
        frozenset(
            home
            for home, op in makers.items()
            if readers[home] and casts.issuperset(readers[home]) and op.where.block != "embedding"
        ),
        shared,
        _ends(turns, program),
    )


IN_PLACE = "loss"
"""The fused kernel whose output takes the place of what it reads: the gradient of logits that of their softmax."""


def _ends(turns: Iterable[Op], program: Program) -> dict[Op, Op]:
    """Of every op of a fused kernel the last one of that; what plain attention runs are kernels of their own."""
    keys = {op: (_runs_in(op.where), op.where.place, op.where.kind) for op in turns if _is_fused(op.where, program)}
    last = {key: op for op, key in keys.items()}
    return {op: last[key] for op, key in keys.items()}


def _is_fused(where: Where, program: Program) -> bool:
    kernel = where.kernel.partition(".")[0]
    return kernel not in {"", IN_PLACE, "attention" if program.plain else ""}


def _shared(makers: Iterable[Op], readers: Mapping[Array, Sequence[Op]]) -> Iterator[Array]:
    """Weights that a microbatch keeps for its backward, which has the same of them as any other that is in flight."""
    for op in makers:
        if is_fetched(op) and any(reader.where.act != op.where.act for reader in readers[op.output]):
            yield op.output


def microbatches(program: Program) -> tuple[tuple[Op, ...], frozenset[Array]]:
    """All that lifetimes are read off: the ops of microbatches, and what is read of them behind them."""
    ops = tuple([op for op in program.ops if op.where.microbatch is not None])
    read = {x for op in program.ops if op.where.microbatch is None for x in op.inputs}
    return ops, frozenset(read.union(program.results.values()).intersection([op.output for op in ops]))


def _stands(op: Op) -> tuple[str, int | None]:
    """The part of the stack that an op belongs to, and its layer."""
    return op.where.place, op.where.layer


def in_microbatch(where: Where) -> bool:
    """True for what runs once per microbatch, or more often."""
    return where.microbatch is not None


def is_view(op: Op) -> bool:
    """True for an op whose output has no bytes of its own: the same numbers under another name, or in place.

    A sum over devices is taken where its operand lies; a slot of a fused projection is a part of it.
    """
    if isinstance(op, Reshard):
        in_place = {"all_reduce", "slice"} if op.inputs[0].role == "param" else {"all_reduce"}
        return all(move.kind in in_place for move in op.moves)
    if isinstance(op, Einsum):
        return any(x.role == "index" and x.name.endswith(SLOT) for x in op.inputs)
    return isinstance(op, RENAMES)


def _home(op: Op, read: Sequence[Array], *, view: bool) -> Array | None:
    """Whose bytes the output of an op has; None for parameters, their views, and what indices alone decide.

    Nor for a cache: it is held from step to step; nor for what an indexer chooses, a few numbers of every query.
    read  whose bytes its inputs have
    """
    if isinstance(op, Append) or op.output.name == SELECTED:
        return None
    if view or isinstance(op, Index) or (op.output.role == "index" and not isinstance(op, Leaf)):
        return read[0] if read else None
    return op.output


def _added_up(program: Program, found: _Bytes) -> set[Array]:
    """What is read outside the microbatches alone: it is added up in what is held for the whole step.

    An activation that is a result, what inference samples from, is handed out as it is made and held by nothing else.
    """
    outside = {x for x in program.results.values() if x.role != "activation"}
    outside.update(x for op in program.ops if not in_microbatch(op.where) for x in op.inputs)
    return {found.homes[x] for x in outside if x in found.homes} - found.inside


def _never_leaves(maker: Op, readers: Sequence[Op], program: Program) -> bool:
    """True if all readers are of one kernel with the maker."""
    here = maker.where
    if not here.kernel or any(op.where is not here and _runs_in(op.where) != _runs_in(here) for op in readers):
        return False
    return not any(map(program.is_alone, (maker, *readers)))


def _runs_in(where: Where) -> Hashable:
    """The kernel instance."""
    return where.kernel, where.act, where.loops, where.chunks


def is_gather(op: Op) -> bool:
    """True for weights that are brought together where they are used."""
    return isinstance(op, Reshard) and is_fetched(op)


def is_fetched(op: Op) -> bool:
    """True for weights that are cast, or brought together, where they are used."""
    return op.output.role == "param" and not isinstance(op, Leaf) and not is_view(op)


def _as_units(
    units: str, gathers: Sequence[Op], readers: Mapping[Array, Sequence[Op]], turns: Mapping[Op, Turn]
) -> dict[Array, list[Op]]:
    """Readers of weights that are freed at once, of a layer or of what is around these: the last one of all has all.

    What is gathered behind that, since nobody reads it, is freed by itself.
    """
    members: dict[Hashable, list[Op]] = defaultdict(list)
    for op in gathers:
        where = op.where
        end = where.layer is None and units == "ends" and where.place
        kind = where.kind if where.layer is not None else ""  # what is around the layers is one unit
        members[end, kind, where.layer, where.microbatch, where.phase, where.chunks].append(op)

    def turn(op: Op) -> tuple[int, Turn]:
        return "FBW".index(op.where.act), turns[op]

    freed: dict[Array, list[Op]] = {}
    for unit in members.values():
        last = max((reader for op in unit for reader in readers[op.output]), key=turn, default=None)
        for op in unit:
            own = readers[op.output]
            freed[op.output] = [*own, *([last] if last and last not in own and turn(last) > turn(op) else [])]
    return freed


def _turns(ops: Sequence[Op], ahead: int) -> dict[Op, Turn]:
    """An op has its turn as it is written, but what becomes of a gradient as soon as it is made, and weights earlier.

    Those of a layer are cast and gathered when the layer begins that runs so many before it, or the first of its chunk.
    """
    begins: dict[Hashable, int] = {}
    for place, op in enumerate(ops):
        if not place or op.where is not ops[place - 1].where:
            begins.setdefault(_run_of(op.where), place)
    begun_at: dict[Array, int] = {}
    turns = {}
    for place, op in enumerate(ops):
        at, early = place, op.where.layer is not None and is_fetched(op)
        if early:
            runs = (_run_of(op.where, before=n) for n in range(min(ahead, len(begins)), -1, -1))
            at = next(begins[run] for run in runs if run in begins)
        elif op.output.role == "gradient":
            at = max((begun_at[x] for x in op.inputs if x in begun_at), default=place)
        begun_at[op.output] = at
        turns[op] = (at, not early, place)
    return dict(sorted(turns.items(), key=itemgetter(1)))


def _run_of(where: Where, *, before: int = 0) -> Hashable:
    """The run of a layer that an op stands in, or one before it: layers run backward from the last to the first."""
    layer = where.layer
    if layer is not None:
        layer += -before if where.act == "F" else before
    return layer, where.microbatch, where.phase, where.chunks
