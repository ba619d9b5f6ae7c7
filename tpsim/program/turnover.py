"""What actions make and free, in turn, whatever the sizes: memory over time without its bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress, groupby, zip_longest
from math import inf
from typing import TYPE_CHECKING, Literal

from tpsim.program.lifetimes import Lifetimes, is_fetched, lifetimes
from tpsim.program.op import Array, Op, Program, Reshard
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.once import Once

if TYPE_CHECKING:
    from tpsim.program.kinds import Layers

Purpose = Literal["kept", "weights", "logits", "received", "gradients", "buckets", "activations"]
"""What bytes beside states are of: arrays that a later action reads; else gathered weights, arrays over the vocabulary,
what another stage sent, gradients on their way to where they are added up, buffers that these or weights lie in, all
other arrays of an action."""

Ops = tuple[Op, ...]

Changes = Sequence[tuple[Array, int]]
"""One after the other: an array, and 1 where it is made or comes, -1 where it is freed."""


def turnover(program: Program) -> Turnover:
    """Of a program with one traced layer and cut."""
    return Turnover(lifetimes(program), program.ahead)


@dataclass(eq=False)
class Turnover(Once):
    """What the kinds of actions of a program make and free.

    lifetimes  the arrays of its microbatches
    ahead      layers whose weights are gathered before they are needed
    """

    lifetimes: Lifetimes
    ahead: int

    def runs(self, chunk: Chunk, acts: str) -> Sequence[tuple[Changes, int]]:
        """What changes, in order, and how often that repeats: what is received, ends, layers, ends, what is sent.

        acts  that run as one, of one microbatch through a chunk: F, B, W or BW

        A layer reads what the one before it hands on, and that is as large as what it is handed itself: so its own
        changes, repeated, are those of all layers.
        """
        key = "runs", chunk.stack, chunk.first, chunk.last, acts
        return self._once(key, partial(self._runs, chunk, acts))

    def _runs(self, chunk: Chunk, acts: str) -> Sequence[tuple[Changes, int]]:
        before, after = self._around(chunk.first, chunk.last, tuple([kind for kind, _ in chunk.stack]), acts)
        came, gone = self._messages(chunk.first, chunk.last, acts)
        inside = self._once(("inside", chunk.stack, acts), partial(self._inside, chunk.stack, acts))
        return [(came, 1), (self._changed(before, acts), 1), *inside, (self._changed(after, acts), 1), (gone, 1)]

    def _inside(self, stack: Layers, acts: str) -> Sequence[tuple[Changes, int]]:
        """What changes while layers run."""
        layers = [(self.layer(kind, acts), times) for kind, times in (stack if acts == "F" else stack[::-1]) if times]
        return [(self._changed(ops, acts), times) for ops, times in _in_turn(layers, self.ahead)]

    def _changed(self, ops: Ops, acts: str) -> Changes:
        """What ops change, one object for all chunks that run them."""
        return self._once((ops, acts), partial(self._changes, ops, acts))

    def layer(self, kind: str, acts: str) -> tuple[Ops, Ops]:
        """The casts and gathers of a layer's weights, and its other ops, in turn."""

        def split() -> tuple[Ops, Ops]:
            ops = [op for op in self._parts[kind] if op.where.act in acts]
            gathers = [is_fetched(op) for op in ops]
            return tuple(compress(ops, gathers)), tuple(op for op, flag in zip(ops, gathers, strict=True) if not flag)

        return self._once(("layer", kind, acts), split)

    def purpose(self, array: Array, acts: str) -> Purpose:
        """What an array is for, to acts that run as one."""
        return self._once(("purpose", array, acts), partial(self._purpose, array, acts))

    def _purpose(self, array: Array, acts: str) -> Purpose:
        roles: Mapping[str, Purpose] = {"param": "weights", "gradient": "gradients"}
        if array.role in roles or array not in self.lifetimes.makers:  # as what kernels of one op hand each other
            return roles.get(array.role, "activations")
        maker, readers = self.lifetimes.makers[array], self.lifetimes.readers[array]
        if self.lifetimes.handed_on(array):
            return "kept" if maker.where.act == "F" and self._has_backward else "activations"
        if any(op.where.act != maker.where.act and {op.where.act, maker.where.act} != set(acts) for op in readers):
            return "kept"
        if isinstance(maker, Reshard) and maker.where.place == "cut":
            return "received"
        return "logits" if {"b", "v"} <= set(array.dims) else "activations"

    @cached_property
    def _has_backward(self) -> bool:
        """False for a step of inference."""
        return any(op.where.act != "F" for op in self.lifetimes.turns)

    @cached_property
    def _parts(self) -> Mapping[str, list[Op]]:
        """The ops of each part of the stack in turn: of layers by their kind, of the ends of the stack, of cuts."""
        parts: dict[str, list[Op]] = defaultdict(list)
        for op in self.lifetimes.turns:
            where = op.where
            parts[where.kind if where.layer is not None else "cut" if where.place == "cut" else "ends"].append(op)
        return parts

    def _around(self, first: bool, last: bool, kinds: tuple[str, ...], acts: str) -> tuple[Ops, Ops]:
        """The ops of the ends that a chunk has: those before its layers, and those behind them."""

        def split() -> tuple[Ops, Ops]:
            here, turns = self._ends(first, last, acts), self.lifetimes.turns
            begin = min((turns[run[0]] for kind in kinds for run in self.layer(kind, acts) if run), default=(inf,))
            ahead = [_is_ahead(op, traced=turns[op] < begin) for op in here]
            return tuple(compress(here, ahead)), tuple(op for op, flag in zip(here, ahead, strict=True) if not flag)

        return self._once(("around", first, last, kinds, acts), split)

    def _ends(self, first: bool, last: bool, acts: str) -> list[Op]:
        """The ops of the ends that a chunk has."""

        def compute() -> list[Op]:
            alone = Stages(1, (Chunk(0, (), first, last),))
            return [op for op in self._parts["ends"] if op.where.act in acts and alone.runs(op.where, 0)]

        return self._once(("ends", first, last, acts), compute)

    def _messages(self, first: bool, last: bool, acts: str) -> tuple[Changes, Changes]:
        """What comes over the cuts over which a chunk receives, and what is freed at those over which it sends."""

        def compute() -> tuple[Changes, Changes]:
            cuts = [op for op in self._parts["cut"] if op.where.act in acts]
            forward, backward = ([op for op in cuts if (op.where.act == "F") == ahead] for ahead in (True, False))
            got = *([] if first else forward), *([] if last else backward)
            sent = *([] if last else forward), *([] if first else backward)
            came = self._once(("came", got), lambda: [(op.output, 1) for op in got])
            return came, self._once(("gone", sent, acts), partial(self._changes, sent, acts, freed=True))

        return self._once(("messages", first, last, acts), compute)

    def _changes(self, ops: Ops, acts: str, *, freed: bool = False) -> Changes:
        """What ops make and free, in whatever chunk they run; freed: that alone."""
        each = (self._frees if freed else self._each)("BW" if {*"BW"} <= {*acts} else "")
        return [change for op in ops for change in each.get(op, ())]

    def _each(self, fused: str) -> Mapping[Op, Changes]:
        """What every op makes and frees, if it does; fused: acts that run as one."""

        def compute() -> Mapping[Op, Changes]:
            frees, each = self._frees(fused), {**self._frees(fused)}
            for array, maker in self.lifetimes.makers.items():
                unread = () if self.lifetimes.readers[array] else ((array, -1),)
                handed = [*((x, 1) for x in maker.inside), *((x, -1) for x in maker.inside)]
                each[maker] = [(array, 1), *handed, *frees.get(maker, ()), *unread]
            return each

        return self._once(("each", fused), compute)

    def _frees(self, fused: str) -> Mapping[Op, Changes]:
        """The same of what it reads as the last one, alone."""

        def compute() -> Mapping[Op, Changes]:
            frees: dict[Op, list[tuple[Array, int]]] = defaultdict(list)
            for array, readers in self.lifetimes.readers.items():
                if readers:
                    frees[self._last(array, fused)].append((array, -1))
            return {**frees}

        return self._once(("frees", fused), compute)

    def _last(self, array: Array, fused: str) -> Op:
        """The reader that comes last: where acts do not run as one, each is behind all of the one before."""
        readers, turn = self.lifetimes.readers[array], {"F": 0, "B": 1, "W": 1 if fused else 2}
        ends = [self.lifetimes.ends.get(op, op) for op in readers]
        if len(ends) == 1:
            return ends[0]
        return max(ends, key=lambda op: (turn[op.where.act], self.lifetimes.turns[op]))


def _in_turn(layers: Sequence[tuple[tuple[Ops, Ops], int]], ahead: int) -> Iterator[tuple[Ops, int]]:
    """The ops of layers, and how often they follow themselves: each gathers for the layer so many behind it, too."""
    row = [at for at, (_, times) in enumerate(layers) for _ in range(times)]
    gathers, own = ([kind[sort] for kind, _ in layers] for sort in (0, 1))
    yield tuple(op for at in row[:ahead] for op in gathers[at]), 1
    for (at, behind), alike in groupby(zip_longest(row, row[ahead:])):
        yield (*(gathers[behind] if behind is not None else ()), *own[at]), len(list(alike))


def _is_ahead(op: Op, traced: bool) -> bool:
    """True for what stands before the layers of its chunk: as traced, but for the sides of a cut, which is one."""
    where = op.where
    return (where.act == "F") == (where.chunks[0] > 0) if where.place == "side" else traced
