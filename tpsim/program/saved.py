"""What backward finds of forward: what was kept, and what is made again because it was not, moves included.

A fused kernel keeps some of its inside for backward, which makes the rest again inside its own kernel. Inputs of a
kernel and what others read of it stand outside: they are kept wherever backward reads them. Nothing else of a kernel
is stored, or moves through memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tpsim.program.kinds import FURTHER, keeps_all
from tpsim.program.op import (
    Again,
    Array,
    Index,
    Leaf,
    Op,
    Rename,
    Reshard,
    Where,
    is_cast,
    is_matrix_product,
)
from tpsim.program.practice import FULL, Practice

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from tpsim.program.trace import Trace


STATISTIC = "f32"
"""The dtype of sums and statistics that a kernel keeps, whatever its arrays are."""

KEEPS: Mapping[str, tuple[str, ...]] = {
    "norm": ("mean", "variance"),
    "rotary": (),
    "activation": (),
    "add": ("mask",),
    "router": ("exp", "score", "total"),
    "loss": ("exp", "sum_exp"),
    "convolution": (),
    "gates": (),
    "recurrence": ("inverse", "products"),
}
"""Kind of kernel -> the last words of the names of what it keeps.

Norms keep two numbers per token (PyTorch's and Apex's mean and inverse deviation; RMSNorm one), cross entropy the
softmax of its logits as it is summed (Korthikanti et al. 2022, 4.3), an add with dropout its mask, a router its scores
and their sum. A recurrence keeps what a chunk is solved by, and of decays by key dim products of queries and keys, too
(flash-linear-attention, ops/gated_delta_rule/chunk.py and ops/kda/chunk.py: save_for_backward).
"""

ATTENTION: Mapping[str, tuple[str, ...]] = {"fused": ("logsum",), "plain": ("exp", "sum_exp", "mask", "dropped")}
"""What attention keeps: one number per head and token (Dao 2023), or its weights as they are summed.

Of dropout plain attention keeps the mask and what multiplies the values (Korthikanti et al. 2022, 4.1); a fused kernel
draws the mask again.
"""


def kind(kernel: str) -> str:
    """``norm`` of ``norm.attention``."""
    return kernel.partition(".")[0]


def keeps(kernel: str, x: Array, practice: Practice) -> bool:
    """True if `kernel` keeps `x`, which it makes."""
    of = kind(kernel)
    return x.name.rpartition(".")[2] in (ATTENTION[practice.attention] if of == "attention" else KEEPS[of])


MADE_AGAIN: Mapping[Again, str] = {
    "gather": "gathered again because it was not kept",
    "kernel": "made again because its kernel keeps nothing of it",
    "replay": "recomputed because it was not kept",
}
"""Why a move runs a second time, by `Where.again`."""


@dataclass(slots=True)
class Saved:
    """The forward of one microbatch, as its backward has it.

    forward  its ops
    again    array and why it is made a second time -> the array that then is
    outside  of the outputs of its ops those that leave the kernel that makes them
    """

    trace: Trace
    practice: Practice
    forward: Sequence[Op]
    again: dict[tuple[Array, Again], Array]
    outside: set[Array] = field(init=False)
    _kernels: dict[Op, tuple[str, Hashable]] = field(default_factory=dict, init=False, repr=False)
    _whys: dict[Op, Again] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        producer, kernel = self.trace.producer, self.kernel
        self.outside = {x for op in self.forward for x in op.inputs if kernel(producer[x]) != kernel(op)}

    def of(self, x: Array) -> Array:
        """`x` as backward finds it: kept, or made again because it was not."""
        x = self.trace.instead.get(x, x)
        op = self.trace.producer[x]
        why = self._why(op)
        return self._again(op, why) if why else x

    def _why(self, op: Op) -> Again:
        """Why what an op makes is made again; it is not, if it is kept."""
        if op not in self._whys:
            why: Again = "kernel" if self._inside(op) else "gather" if self._gathered(op) else ""
            self._whys[op] = why or ("replay" if self._recomputed(op) else "")
        return self._whys[op]

    def _inside(self, op: Op) -> bool:
        """True for what a fused kernel neither gives away nor keeps."""
        kernel, _ = self.kernel(op)
        return bool(kernel) and op.output not in self.outside and not keeps(kernel, op.output, self.practice)

    def _gathered(self, op: Op) -> bool:
        """True for what was gathered and the practice drops; rows that travelled to their experts are kept.

        Only a gather that runs again asks for the cast of what it gathers, which then runs again, too.
        """
        if is_cast(op):
            return True
        if not isinstance(op, Reshard) or op.output.filled or not any(move.kind == "all_gather" for move in op.moves):
            return False
        if self.streamed(op.output):
            return True  # nobody ever has all of it
        if op.inputs[0].role != "param":
            return self.practice.regather
        drops = self.practice.reshard_after_forward
        resharded = ("layer", "embedding") if self.practice.units == "ends" else ("layer",)
        return op.where.place in resharded if drops == "layers" else drops

    def streamed(self, x: Array) -> bool:
        """True for what comes block after block to who reads it."""
        op = self.trace.producer[x]
        return isinstance(op, Reshard) and any(move.streamed for move in op.moves)

    def circles(self, x: Array) -> bool:
        """True for what comes so if sums of its cotangents go all the way round."""
        return self.practice.home == "circle" and self.streamed(x)

    def _recomputed(self, op: Op) -> bool:
        """True for what the recompute drops; a view is dropped with what it shows, a choice with its scores."""
        dropped, where = self._dropped(op.where), op.where
        if not dropped or isinstance(op, Leaf) or not op.inputs or op.inputs[0].role == "param":
            return False
        if isinstance(op, Reshard) and is_edge(self.trace, op):
            return False
        if FULL in dropped and in_layer(where):
            return True
        if isinstance(op, Rename | Index) or (isinstance(op, Reshard) and not op.moves):
            return self._recomputed(self.trace.producer[op.inputs[0]])
        kernel, _ = self.kernel(op)
        named = bool(kernel) and not {kernel, kind(kernel)}.isdisjoint(dropped)
        return op.output.name in dropped or (named and keeps(kernel, op.output, self.practice))

    def _dropped(self, where: Where) -> tuple[str, ...]:
        """What is not kept there: nothing of a kind of layers that keeps all."""
        return () if keeps_all(where.kind) else self.practice.recompute

    def missing(self, op: Op, read: Iterable[Array]) -> Iterator[Array]:
        """What backward of an op in a fused kernel needs and does not find: it is recomputed before the kernel begins.

        read  what it reads itself
        """
        if self.practice.recompute and not (
            kind(op.where.kernel) == "attention" and self.practice.attention == "plain"
        ):
            for x in (self.trace.instead.get(x, x) for x in read):
                maker = self.trace.producer[x]
                if self._inside(maker):
                    yield from self.missing(maker, maker.inputs)
                elif self._replayed_for(maker):
                    yield x

    def _replayed_for(self, op: Op) -> bool:
        """True for what is recomputed, or gathered again of what is."""
        return self._recomputed(op) or (self._gathered(op) and self._replayed_for(self.trace.producer[op.inputs[0]]))

    def _again(self, op: Op, why: Again) -> Array:
        """What `op` makes, made once more, after all that backward does not find either."""
        if (op.output, why) not in self.again:
            for member in self._together(op) if why == "replay" else (op,):
                self.again[member.output, why] = self._repeated(member, why)
        return self.again[op.output, why]

    def _together(self, op: Op) -> list[Op]:
        """What is recomputed in one go with `op`: its layer, or its kernel, if the practice replays them whole.

        Where it replays what is needed: what is dropped of a kernel, which does not stop for what comes from outside.
        """
        where, needed = op.where, self.practice.replay == "needed"
        if FULL in self._dropped(where) and in_layer(where) and not needed:
            layer = [other for other in self.forward if in_layer(other.where) and other.where.loops == where.loops]
            return [other for other in layer if self._inside(other) or self._recomputed(other)]
        kernel = self.kernel(op)
        if not kernel[0] or (needed and self._alone(op)):
            return [op]
        whole = [other for other in self.forward if self.kernel(other) == kernel]
        run = self._leading_to(op, whole) if needed else whole
        for x in (x for other in run for x in other.inputs if self.kernel(self.trace.producer[x]) != kernel):
            self._replayed(x)
        return run

    def _alone(self, op: Op) -> bool:
        """True for what plain attention runs, in kernels of its own."""
        return kind(op.where.kernel) == "attention" and self.practice.attention == "plain"

    def _leading_to(self, op: Op, kernel: Sequence[Op]) -> list[Op]:
        """Of a kernel what makes `op`, and all else that is dropped of what it gives away or keeps.

        All of one that multiplies more than once: what lies between its products stays on the chip, whatever is read.
        """
        if len([other for other in kernel if is_matrix_product(other)]) > 1:
            return [*kernel]
        ends = {other.output for other in kernel if not self._inside(other) and self._recomputed(other)}
        wanted, run = {op.output, *ends}, []
        for other in reversed(kernel):
            if other.output in wanted:
                run.append(other)
                wanted.update(x for x in other.inputs if self._why(self.trace.producer[x]) in {"kernel", "replay"})
        return run[::-1]

    def _repeated(self, op: Op, why: Again) -> Array:
        """`op` emitted again, as it was, on its inputs as backward finds them; a kernel that is replayed runs whole."""
        where = self.trace.where.but(again=why, kernel="") if why == "gather" else op.where.but(act="B", again=why)
        if why == "replay" and where.kernel:
            where = where.but(kernel=f"{where.kernel}.again")
        inputs = tuple(self._replayed(x) if why == "replay" else self.of(x) for x in op.inputs)
        because = f"{op.because}; {MADE_AGAIN[why]}" if op.because else op.because
        return self.trace.emit(replace(op, inputs=inputs, output=replace(op.output), where=where, because=because))

    def _replayed(self, x: Array) -> Array:
        """An input of what is recomputed: recomputed too, with the inside of its kernel, or kept."""
        op = self.trace.producer[x]
        return self._again(op, "replay") if self._inside(op) or self._recomputed(op) else self.of(x)

    def kernel(self, op: Op) -> tuple[str, Hashable]:
        """The kernel instance that an op is a part of; what a kernel makes and settles is its own, moves included."""
        if op not in self._kernels:
            settles = isinstance(op, Reshard) and op.output.type == op.inputs[0].type.owing(()) != op.inputs[0].type
            maker = self.trace.producer[op.inputs[0]] if settles else op
            self._kernels[op] = maker.where.kernel, op.where.loops
        return self._kernels[op]


def in_layer(where: Where) -> bool:
    """True for what a layer makes, and a module that predicts a token further on."""
    return where.place == "layer" or where.kind.startswith(FURTHER)


def is_edge(trace: Trace, op: Reshard) -> bool:
    """True where an activation enters another part of the stack: one cotangent is handed back there."""
    (x,) = op.inputs
    producer = trace.producer[x].where
    parted = (producer.place, producer.kind, producer.layer) != (op.where.place, op.where.kind, op.where.layer)
    return parted and x.active and x.role != "param"
