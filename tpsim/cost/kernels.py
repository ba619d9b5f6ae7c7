"""Kernels: what a chip runs in one piece, the arrays that it reads and writes, and its FLOPs.

A matrix product is one, with the bias and the cast behind it; so are the ops that bear one kernel's name, and the
update of a part of the stack. What is made and read inside a kernel is neither stored nor moved.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tpsim.algebra.sharding import Sharding
from tpsim.cost.memory import local_bytes
from tpsim.frozen import dataclass
from tpsim.program.blocks.attention import SLOTS
from tpsim.program.layout import Practice
from tpsim.program.op import Append, Array, Bcast, Einsum, Index, Join, Leaf, Lin, Op, Program, Rename, Reshard
from tpsim.program.tokens import MASKS, TOKENS, keys_of, last_pairs, peak
from tpsim.quantity.size import over, product, total

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from tpsim.cost.sizes import Sizes
    from tpsim.program.op import Where

BATCH = frozenset({"b", "s"})


@dataclass(frozen=True)
class Kernel:
    """One traced kernel.

    reads, writes  arrays that it takes from memory, and puts there
    products       its matrix products; none: it takes as long as its bytes
    mask           that hides some of its scores; "" if it makes none
    skips          it leaves out the scores that are hidden
    joined         how many kernels without products it stands for
    shared         units of the chip without a tile of it take a part of others' depth, as for the few rows of inference
    """

    ops: tuple[Op, ...]
    reads: tuple[Array, ...]
    writes: tuple[Array, ...]
    products: tuple[Einsum, ...]
    mask: str
    skips: bool
    program: Program = field(repr=False)
    joined: int = 1
    shared: bool = False

    @property
    def where(self) -> Where:
        """Where it stands in the step."""
        return self.ops[0].where

    @property
    def fused(self) -> bool:
        """True for products and what lies between them in one kernel: attention whose scores stay on the chip."""
        return len(self.products) > 1

    @property
    def on_scores(self) -> bool:
        """True if it makes or reads attention's scores."""
        return _on_scores(self.products)

    @property
    def in_layers(self) -> bool:
        """True for a product of a layer with one of its weights."""
        return not self.on_scores and self.where.block in {"attention", "mlp", "experts", "shared"}

    def count(self, sizes: Sizes) -> Any:
        """Runs per step and device."""
        return self.program.times(self.where, sizes.loops)

    def flops(self, sizes: Sizes) -> Any:
        """FLOPs of one device and one run, replication included; of attention the whole s by s."""
        return total(op.flops(sizes.dims, sizes.axes) for op in self.products)

    def run_flops(self, sizes: Sizes) -> Any:
        """Those that are run, on the busiest device: without scores that a mask hides, of s by s; `tokens.density`."""
        if not (self.mask and self.skips):
            return self.flops(sizes)
        ring, devices = (product(sizes.axes[axis] for axis in axes) for axes in (self.ring, self.program.sharing))
        run, dims = self.seen(self.flops(sizes), sizes), sizes.dims
        if not self.ring or self.shared:  # of inference each device has as many of the tokens that are read
            return run
        return run * peak(self.mask, self.program.order, dims["s"], ring=ring, devices=devices, w=dims.get("w", 0))

    def seen(self, flops: Any, sizes: Sizes) -> Any:
        """Those of so many FLOPs that are spent on scores that its mask lets through; all of them without a mask."""
        s, t, w = (sizes.dims.get(dim, 1) for dim in "stw")
        held = sizes.dims[keys_of(self.scores.dims)] if self.mask else t
        return over(flops * last_pairs(self.mask, s, t, w), s * held) if self.mask else flops

    @cached_property
    def ring(self) -> tuple[str, ...]:
        """The axes that split the tokens of its scores."""
        return tuple(axis for dim in sorted(TOKENS & {*self.scores.dims}) for axis in self.scores.type.axes(dim))

    @property
    def scores(self) -> Array:
        """Of attention: what it has for each query and key."""
        return next(x for op in self.products for x in (*op.inputs, op.output) if keys_of(x.dims))

    def peak(self, sizes: Sizes) -> Any:
        """What the device with most rows has over the mean."""
        return sizes.peak({dim for op in self.products for x in op.inputs for dim in x.dims})

    def useful_flops(self, sizes: Sizes) -> Any:
        """FLOPs of one run of the whole products, counted once however many devices repeat them, or run them again."""
        alone = dict.fromkeys(sizes.axes, 1)
        return total(op.flops(sizes.dims, alone) for op in self.products if not op.where.again)

    @cached_property
    def sides(self) -> tuple[Sharding, Sharding, Sharding, Sharding]:
        """Of a single product: rows and columns of the result, the sum behind each of its elements, and the batch."""
        (op,) = self.products
        left, right = (dict(zip(x.dims, x.type.on, strict=True)) for x in op.inputs)
        inner = left.keys() & right.keys()
        batch = inner & {*op.output.dims}
        return (
            _part(left, left.keys() - inner),
            _part(right, right.keys() - inner),
            _part(left, inner - batch),
            _part(left, batch),
        )

    def memory_bytes(self, sizes: Sizes) -> Any:
        """Bytes read and written in one run of one device."""
        return total(local_bytes(array, sizes) * count for array, count in self._moved)

    @cached_property
    def _moved(self) -> list[tuple[Array, int]]:
        """An array of each type that is read or written, and how many there are."""
        alike: dict[Any, list[Array]] = {}
        for x in (*self.reads, *self.writes):
            alike.setdefault(repr(_shape(x)), []).append(x)
        return [(same[0], len(same)) for same in alike.values()]

    @cached_property
    def shape(self) -> Hashable:
        """What its seconds depend on: kernels of equal shape take as long at all sizes."""
        multiplied = sorted((_shape(op.output), sorted(map(_shape, op.inputs))) for op in self.products)
        moved = sorted(map(_shape, (*self.reads, *self.writes)))
        masked = self.mask and self.skips and (self.mask, self.ring)
        how = (self.fused and self.where.phase, bool(self.products) and self.in_layers, self.joined)
        return (masked, *how, repr(multiplied), repr(moved))


def merged(found: Iterable[Kernel]) -> tuple[tuple[Kernel, int], ...]:
    """The kernels with those that cost alike counted, and those that only move bytes joined where they repeat alike."""
    groups: dict[Hashable, list[Kernel]] = {}
    for one in found:
        where = one.where
        repeats = (where.phase, frozenset(where.repeats))
        groups.setdefault((repeats, one.shape if one.products else ()), []).append(one)
    return tuple((same[0], len(same)) if same[0].products else (_joined(same), 1) for same in groups.values())


def _joined(several: Sequence[Kernel]) -> Kernel:
    reads, writes = (tuple(x for one in several for x in getattr(one, way)) for way in ("reads", "writes"))
    return replace(several[0], reads=reads, writes=writes, joined=len(several))


def _part(shards: Mapping[str, tuple[str, ...]], dims: Iterable[str]) -> Sharding:
    """The type of an array with some dims of another."""
    kept = tuple(sorted(dims))
    return Sharding(kept, tuple(shards[dim] for dim in kept))


def _shape(array: Array) -> Any:
    return sorted(array.dims), sorted(array.type.sharded_axes), array.dtype


def is_matrix_product(op: Op) -> bool:
    """True for a product whose operands each have a dim that the other has not: rows and columns.

    A sum of elementwise products (a gain's gradient, softmax backward) is pointwise work.
    """
    if not isinstance(op, Einsum) or not op.is_matmul:
        return False
    left, right = (set(array.dims) for array in op.inputs)
    return bool(left - right and right - left)


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

    def kernels(self) -> Iterator[Kernel]:
        """All of them, in order."""
        for op in self.program.ops:
            self._place(op)
        reads = [self._reads(number) for number in range(len(self.groups))]
        skips = self.practice.causal == "skip" and self.practice.attention == "fused"
        masks = {op.where.kind: x.name for op in self.program.ops for x in op.inputs if x.name in MASKS}
        for number, arrays in enumerate(reads):
            for x in arrays:
                self.readers.setdefault(x, set()).add(number)
        shared = any(op.output.role == "cache" for op in self.program.ops)
        for x in self.program.results.values():
            self.readers.setdefault(self._source(x), set()).add(OUTSIDE)
        for number, (ops, read) in enumerate(zip(self.groups, reads, strict=True)):
            products = tuple(op for op in ops if isinstance(op, Einsum) and is_matrix_product(op))
            writes = tuple(self._writes(number))
            added = tuple(x for x in writes if x in self.summed)
            mask = masks.get(ops[0].where.kind, "") if _on_scores(products) else ""
            yield Kernel(tuple(ops), (*read, *added), writes, products, mask, skips, self.program, shared=shared)

    def _place(self, op: Op) -> None:
        """Put an op into the kernel that runs it; views, leaves and collectives are in none."""
        if isinstance(op, Leaf | Index):
            return
        if isinstance(op, Reshard | Join) and (isinstance(op, Join) or op.moves):
            for x in map(self._source, op.inputs):
                self._read_outside(x, op)
            return
        if isinstance(op, Rename | Reshard | Bcast) or _selects_slots(op):
            (x, *_) = (x for x in op.inputs if x.role != "index") if _selects_slots(op) else op.inputs
            if SLOTS & {*x.dims} - {*op.output.dims}:  # a part of what is made: that is made whole
                self.readers.setdefault(self._source(x), set()).add(OUTSIDE)
            else:
                self.source[op.output] = self._source(x)
            if op.where.index("microbatches") is None:
                self._read_outside(self._source(x), op)
            return
        if isinstance(op, Append):
            self.source[op.output] = self._source(op.inputs[0])
        number = self._number(op)
        self._added_inside(op, number)
        self.groups[number].append(op)
        self.maker[op.output] = number
        for x in map(self._source, op.inputs):
            self._summed(x, op)

    def _added_inside(self, op: Op, number: int) -> None:
        """Terms of a sum that another kernel makes leave it added up."""
        first: dict[int, Array] = {}
        for x in map(self._source, op.inputs if isinstance(op, Lin) else ()):
            made = self.maker.get(x, number)
            if made != number and x is not first.setdefault(made, x) and x.type == first[made].type:
                self.source[x] = first[made]

    def _read_outside(self, x: Array, op: Op) -> None:
        self.readers.setdefault(x, set()).add(OUTSIDE)
        self._summed(x, op)

    def _summed(self, x: Array, op: Op) -> None:
        """What is made in every microbatch and read behind them is added up."""
        made = self.maker.get(x)
        once = op.where.index("microbatches") is None
        if made is not None and once and self.groups[made][0].where.index("microbatches") is not None:
            self.summed.add(x)

    def _source(self, x: Array) -> Array:
        return self.source.get(x, x)

    def _number(self, op: Op) -> int:
        """The kernel of an op: that of its name if it goes on there, that of what it finishes, or one of its own."""
        where = op.where
        place = (where.act, where.place, where.loops, where.chunks)
        if where.act == "U":
            return self._known(("update", where.kernel, place))
        if where.kernel and not self._alone(op):
            key = ("kernel", where.kernel, place)
            if self.numbers.get(key) == len(self.groups) - 1 and self.groups:
                return len(self.groups) - 1
            return self._new(key)
        finished = self._finished(op)
        return self._new(("op", op)) if finished is None else finished

    def _alone(self, op: Op) -> bool:
        """A product of attention that is not fused."""
        return self.practice.attention == "plain" and is_matrix_product(op)

    def _finished(self, op: Op) -> int | None:
        """The kernel that makes what an op only casts, scales, or adds parameters to."""
        if not isinstance(op, Lin) or any(self._source(x).role != "param" for x in op.inputs[1:]):
            return None
        made = self.maker.get(self._source(op.inputs[0]))
        return made if made is not None and {*self.groups[made][0].where.loops} == {*op.where.loops} else None

    def _known(self, key: Hashable) -> int:
        return self.numbers[key] if key in self.numbers else self._new(key)

    def _new(self, key: Hashable) -> int:
        self.numbers[key] = len(self.groups)
        self.groups.append([])
        return self.numbers[key]

    def _reads(self, number: int) -> tuple[Array, ...]:
        """What a kernel takes from memory: of a lookup as much as it finds."""
        found: dict[Array, None] = {}
        for op in self.groups[number]:
            lookup = isinstance(op, Einsum) and any(x.role == "index" and x.dims for x in op.inputs)
            for x in map(self._source, op.inputs[1:] if isinstance(op, Append) else op.inputs):
                if x.role == "index" or self.maker.get(x) == number:
                    continue
                looked_up = lookup and x.role == "param" and not op.where.kernel
                found |= dict.fromkeys([op.output if looked_up else x])
        return tuple(found)

    def _writes(self, number: int) -> Iterator[Array]:
        """What a kernel puts into memory: what others read, and what takes the place of a state."""
        for op in self.groups[number]:
            if isinstance(op, Append):
                yield op.inputs[1]
            others = self.readers.get(op.output, set()) - {number}
            if others or (op.where.act == "U" and op.inputs[0].role == "state"):
                yield op.output


OUTSIDE = -1


def _on_scores(products: Iterable[Einsum]) -> bool:
    return any(keys_of(x.dims) for op in products for x in (*op.inputs, op.output))


def _selects_slots(op: Op) -> bool:
    """A product with an index array that depends on no token: a part of an array, or the place of a part in it."""
    return isinstance(op, Einsum) and any(x.role == "index" and not BATCH & set(x.dims) for x in op.inputs)
