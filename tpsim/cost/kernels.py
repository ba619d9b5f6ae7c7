"""Kernels: what a chip runs in one piece, the arrays that it reads and writes, and its FLOPs.

Passes over gradients and gathered weights are kernels of a framework's own, beside its products and collectives.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpsim.cost.kernel import Kernel, of_scores
from tpsim.program.blocks.attention import SLOTS
from tpsim.program.op import (
    Append,
    Array,
    Bcast,
    Einsum,
    Index,
    Join,
    Leaf,
    Lin,
    Map,
    Op,
    Program,
    Rename,
    Reshard,
    Where,
    is_cast,
    is_matrix_product,
)
from tpsim.program.practice import Practice
from tpsim.program.tokens import INDEXER, MASKS

MADE, SENT = "made", "sent"
"""As backward makes a gradient, in the format of activations; as it is added up and sent."""

PASSES: Mapping[str, Sequence[Sequence[str]]] = {
    "fused": (),
    "added": ((MADE, SENT, SENT),),
    "cast": ((MADE, SENT), (SENT, SENT, SENT)),
    "flat": ((MADE, MADE), (MADE, SENT), (SENT, SENT)),
    "each": ((MADE, SENT),),
}
"""`Practice.copies` -> the kernels behind what makes a parameter's gradient, each with the arrays that it moves.

added  a gradient is added to those of other microbatches (Megatron-LM, model/distributed.py: param.main_grad.add_)
cast   it is cast to what is sent, and that is added (DeepSpeed, bf16_optimizer.py: update_hp_grads)
flat   it is laid into the line of its module's, cast to what is sent, and divided by a part of the ranks (PyTorch FSDP:
       SplitBackward, _runtime_utils.py: _reduce_grad, _div_if_needed)
each   it is copied into the buffer that is sent (FSDP2, _fsdp_collectives.py: foreach_reduce_scatter_copy_in)
"""


def behind(
    copies: str, op: Op, reads: Iterable[Array], writes: Iterable[Array], gathered: set[Array]
) -> Iterator[tuple[Array, ...]]:
    """What each kernel behind one moves that makes gradients, or is the first to read weights that FSDP2 gathered.

    op        the first of its ops
    gathered  weights that no kernel has read yet; those that this one reads are taken out
    """
    if copies == "fused" or op.where.microbatch is None:
        return
    for x in [x for x in reads if x in gathered]:
        gathered.remove(x)
        if copies == "each":
            yield (x, x)  # out of the buffer of its module (foreach_all_gather_copy_out)
    for x in (x for x in writes if x.role == "gradient"):
        dtypes = {MADE: _made(op), SENT: x.dtype}
        for names in PASSES[copies]:
            if names != (MADE, SENT) or copies == "each" or dtypes[MADE] != x.dtype:  # else there is nothing to cast
                yield tuple(replace(x, dtype=dtypes[name]) for name in names)


def as_made(copies: str, op: Op, writes: tuple[Array, ...]) -> tuple[Array, ...]:
    """What a kernel writes: gradients as it makes them, where it does not add them up."""
    if copies == "fused" or op.where.microbatch is None:
        return writes
    return tuple(replace(x, dtype=_made(op)) if x.role == "gradient" else x for x in writes)


def _made(op: Op) -> str:
    """The format in which an op makes a gradient: that of the cotangent that it reads."""
    return next((x.dtype for x in op.inputs if x.role != "index"), op.output.dtype)


BATCH = frozenset({"b", "s"})


def kernels(program: Program, practice: Practice | None = None) -> tuple[Kernel, ...]:
    """Every kernel of `program`, in the order in which they begin.

    practice  says whether attention is one kernel, and whether it leaves out what its mask hides; none: `Practice()`
    """
    return tuple(_Gathering(program, practice or Practice()).kernels())


@dataclass(slots=True)
class _Gathering:
    """The ops of a program by the kernel that runs them, and who reads what.

    source  a view -> the array whose bytes it shows
    maker   array -> the kernel that makes it, by its number
    gathered  weights that come from other devices
    latest   the kernel that has begun last, but for casts of weights: these come ahead of who reads them
    readers  array -> the kernels that read it; OUTSIDE for collectives, results, and what is added up over microbatches
    """

    program: Program
    practice: Practice
    groups: list[list[Op]] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    source: dict[Array, Array] = field(default_factory=dict)
    maker: dict[Array, int] = field(default_factory=dict)
    readers: dict[Array, set[int]] = field(default_factory=dict)
    summed: set[Array] = field(default_factory=set)
    gathered: set[Array] = field(default_factory=set)
    latest: int = -1

    def kernels(self) -> Iterator[Kernel]:
        """All of them, in order."""
        for op in self.program.ops:
            self._place(op)
        reads = [self._reads(number) for number in range(len(self.groups))]
        skips = self.practice.causal == "skip" and self.practice.attention == "fused"
        masks = {op.where.kind: x.name for op in self.program.ops for x in op.inputs if x.name in MASKS}
        for number, arrays in enumerate(reads):
            for x in arrays.values():
                self.readers.setdefault(x, set()).add(number)
        shared = any(op.output.role == "cache" for op in self.program.ops)
        for x in self.program.results.values():
            self.readers.setdefault(self._source(x), set()).add(OUTSIDE)
        for number, (ops, read) in enumerate(zip(self.groups, reads, strict=True)):
            products = tuple([op for op in ops if is_matrix_product(op) or op.in_chunks])
            writes = tuple(self._writes(number))
            passes = tuple(behind(self.practice.copies, ops[0], read, writes, self.gathered))
            if ops[0].where.kernel == INDEXER:
                passes = ((ops[-1].output, ops[-1].output),)
            if products and products[0].in_chunks:
                from tpsim.program.recurrence import passed_on

                passes = (*passes, *passed_on(products))
            writes = as_made(self.practice.copies, ops[0], writes)
            added = tuple(x for x in writes if x in self.summed)
            own = (x.name for op in ops for x in op.inputs if x.name in MASKS)
            mask = next(own, masks.get(ops[0].where.kind, "")) if of_scores(products) else ""
            yield Kernel(
                tuple(ops), (*read, *added), writes, products, mask, skips, self.program, shared=shared, passes=passes
            )

    def _place(self, op: Op) -> None:
        """Put an op into the kernel that runs it; views, leaves and collectives are in none."""
        if isinstance(op, OUTER):
            return
        if isinstance(op, Join) or (isinstance(op, Reshard) and op.moves):
            self._move(op)
        elif isinstance(op, VIEWS) or _selects_slots(op):
            self._show(op)
        elif isinstance(op, Map) and (op.fn, op.partial) == ("div", None) and self._is_plain(op):
            self.source[op.output] = self._source(op.inputs[0])  # a softmax leaves its weights divided, and once
        else:
            self._run(op)

    def _run(self, op: Op) -> None:
        if isinstance(op, Append):
            self.source[op.output] = self._source(op.inputs[0])
        number = self._number(op)
        if isinstance(op, Lin):
            self._added_inside(op, number)
        if not is_cast(op):
            self.latest = max(self.latest, number)
        self.groups[number].append(op)
        self.maker[op.output] = number
        if op.where.microbatch is None:
            for x in op.inputs:
                self._summed(self._source(x))

    def _move(self, op: Op) -> None:
        """What a collective moves is read outside of kernels."""
        if op.output.role == "param":
            self.gathered.add(op.output)
        for x in op.inputs:
            self._read_outside(self._source(x), op)

    def _show(self, op: Op) -> None:
        """What a view shows is where it was; a part of what is made is made whole."""
        (x, *_) = (x for x in op.inputs if x.role != "index") if _selects_slots(op) else op.inputs
        if not SLOTS.isdisjoint({*x.dims} - {*op.output.dims}):
            self.readers.setdefault(self._source(x), set()).add(OUTSIDE)
        else:
            self.source[op.output] = self._source(x)
        if op.where.microbatch is None:
            self._read_outside(self._source(x), op)

    def _added_inside(self, op: Lin, number: int) -> None:
        """Terms of a sum that another kernel makes leave it added up."""
        first: dict[int, Array] = {}
        for x in map(self._source, op.inputs):
            maker = self.maker.get(x, number)
            if maker != number and x is not first.setdefault(maker, x) and x.type == first[maker].type:
                self.source[x] = first[maker]

    def _read_outside(self, x: Array, op: Op) -> None:
        self.readers.setdefault(x, set()).add(OUTSIDE)
        if op.where.microbatch is None:
            self._summed(x)

    def _summed(self, x: Array) -> None:
        """What is made in every microbatch and read behind them is added up."""
        maker = self.maker.get(x)
        if maker is not None and self.groups[maker][0].where.microbatch is not None:
            self.summed.add(x)

    def _source(self, x: Array) -> Array:
        return self.source.get(x, x)

    def _number(self, op: Op) -> int:
        """The kernel of an op: that of its name if it goes on there, that of what it finishes, or one of its own."""
        where = op.where
        if where.act == "U":
            return self._known(("update", where.kernel, op.output.home, _stands(where)))
        if is_cast(op):
            return self._known(("cast", _stands(where)))
        if where.kernel and not self.program.is_alone(op):
            key = ("kernel", where.kernel, _stands(where), self._is_plain(op) and _drops(op))
            return self.latest if self.numbers.get(key) == self.latest else self._new(key)
        finished = self._finished(op)
        return self._new(("op", op)) if finished is None else finished

    def _is_plain(self, op: Op) -> bool:
        """True for what attention runs in kernels of its own: its products, the softmax, dropout.

        Source: Megatron-LM, dot_product_attention.py: a fused softmax, then a dropout.
        """
        return self.practice.attention == "plain" and op.where.kernel.partition(".")[0] == "attention"

    def _finished(self, op: Op) -> int | None:
        """The kernel that makes what an op only casts, scales, or adds parameters to, or all of what it adds up.

        Parts are joined in another kernel, even if they are made in one.
        """
        if not isinstance(op, Lin):
            return None
        first, *others = map(self._source, op.inputs)
        made = (first, *(x for x in others if x.role != "param"))
        maker, *more = {self.maker.get(x) for x in made}
        if more or maker is None or any(SLOTS & {*op.output.dims} - {*x.dims} for x in made):
            return None
        return maker if {*self.groups[maker][0].where.loops} == {*op.where.loops} else None

    def _known(self, key: Hashable) -> int:
        return self.numbers[key] if key in self.numbers else self._new(key)

    def _new(self, key: Hashable) -> int:
        self.numbers[key] = len(self.groups)
        self.groups.append([])
        return self.numbers[key]

    def _reads(self, number: int) -> dict[Array, Array]:
        """What a kernel takes from memory, and the array that it is of: of a lookup as much as it finds."""
        reads: dict[Array, Array] = {}
        for op in self.groups[number]:
            for x in map(self._source, op.inputs[1:] if isinstance(op, Append) else op.inputs):
                if x.role != "index" and self.maker.get(x) != number:
                    reads[op.output if _looks_up(op, x) else x] = x
        return reads

    def _writes(self, number: int) -> Iterator[Array]:
        """What a kernel puts into memory: what others read, and what takes the place of a state.

        Of what runs once more as a whole what it ends in, too, which nobody reads again.
        """
        inside = {self._source(x) for op in self.groups[number] for x in op.inputs}
        for op in self.groups[number]:
            if isinstance(op, Append):
                yield op.inputs[1]
            others, ends = self.readers.get(op.output, set()) - {number}, op.where.again and op.output not in inside
            if others or ends or (op.where.act == "U" and op.inputs[0].role == "state"):
                yield op.output


OUTSIDE = -1

OUTER, VIEWS = (Leaf, Index), (Rename, Reshard, Bcast)
"""Ops that no kernel runs: of what comes from outside, and of what shows other arrays, or moves them."""


def _stands(where: Where) -> Hashable:
    """What kernels do not reach beyond."""
    return where.act, where.place, where.loops, where.chunks


def _drops(op: Op) -> bool:
    """True for what makes a mask of dropout, or applies one."""
    return any(x.name.rpartition(".")[::2] == ("attention", "mask") for x in (op.output, *op.inputs))


def _looks_up(op: Op, x: Array) -> bool:
    """True if an op finds in `x` what an index array names: rows of a table, or some of its tokens."""
    if not isinstance(op, Einsum) or op.where.kernel:
        return False
    indices = [index for index in op.inputs if index.role == "index" and index.dims]
    summed = {*x.dims} - {*op.output.dims}
    return bool(indices) and (x.role == "param" or any({*index.dims} <= summed for index in indices))


def _selects_slots(op: Op) -> bool:
    """A product with an index array that depends on no token: a part of an array, or the place of a part in it."""
    return isinstance(op, Einsum) and any(x.role == "index" and not BATCH & set(x.dims) for x in op.inputs)
