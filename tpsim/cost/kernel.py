"""A kernel: what a chip runs in one piece, its arrays, its FLOPs, and those that cost alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tpsim.algebra.sharding import Sharding
from tpsim.cost.memory import local_bytes
from tpsim.program.dims import BUSY, EXPERTS, HELD, RAGGED
from tpsim.program.tokens import (
    INDEXER,
    SELECTED,
    TOKENS,
    Counted,
    keys_of,
    peak,
    read_keys,
    seen_pairs,
    selected_keys,
    wide_keys,
)
from tpsim.quantity.size import over, product, total

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from tpsim.cost.sizes import Sizes
    from tpsim.program.op import Array, Home, Op, Program, Where


@dataclass(frozen=True)
class Kernel:
    """One traced kernel.

    reads, writes  arrays that it takes from memory, and puts there
    products       its matrix products; none: it takes as long as its bytes
    mask           that hides some of its scores; "" if it makes none
    skips          it leaves out the scores that are hidden
    shared         units of the chip without a tile of it take a part of others' depth, as for the few rows of inference
    passes         kernels that follow it, of gradients that it makes, weights that it reads, chunks of tokens, or
                   scores to choose by, of which no more is held at once than of some queries: what each moves
    """

    ops: tuple[Op, ...]
    reads: tuple[Array, ...]
    writes: tuple[Array, ...]
    products: tuple[Op, ...]
    mask: str
    skips: bool
    program: Program = field(repr=False)
    shared: bool = False
    passes: tuple[tuple[Array, ...], ...] = ()

    @property
    def where(self) -> Where:
        """Where it stands in the step."""
        return self.ops[0].where

    @property
    def home(self) -> Home:
        """Where it runs: where what it makes lives."""
        return self.ops[0].output.home

    @property
    def fused(self) -> bool:
        """True for products and what lies between them in one kernel: attention whose scores stay on the chip."""
        return len(self.products) > 1 and not self.in_chunks

    @property
    def in_chunks(self) -> bool:
        """True for the recurrence of linear attention, which is worked out in chunks of tokens."""
        return bool(self.products) and self.products[0].in_chunks

    @cached_property
    def on_scores(self) -> bool:
        """True if it makes or reads attention's scores."""
        return of_scores(self.products)

    @cached_property
    def on_latents(self) -> bool:
        """True for attention whose keys are its values: a cache that two of its products read."""
        cached = [x for op in self.products for x in op.inputs if x.role == "cache"]
        return len({*cached}) < len(cached)

    @property
    def in_layers(self) -> bool:
        """True for a product of a layer with one of its weights, and for that of an indexer."""
        if self.where.kernel == INDEXER:  # whose keys are stored in as few bits
            return True
        return not (self.on_scores or self.in_chunks) and self.where.block in {"attention", "mlp", "experts", "shared"}

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """The loops in which it stands; that of layers by their kind."""
        return self.where.repeats

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
        if not self.mask:
            return flops
        dims = {"t": 1, "w": 1, **sizes.dims}
        return over(flops * seen_pairs(self.mask, dims), dims["s"] * dims[keys_of(self.scores.dims)])

    def counted(self, flops: Any, sizes: Sizes, by: Counted) -> Any:
        """Those of so many FLOPs that shares of peak count: of attention what its mask lets through, or s by s.

        Of a window no keys are counted that no token of it reads, whichever way later ones are.
        """
        if by == "causal" or not self.mask:
            return self.seen(flops, sizes)
        keys = keys_of(self.scores.dims)
        return over(flops * wide_keys(self.mask, sizes.dims), sizes.dims["t"]) if keys == "t" else flops

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
        """FLOPs of one run of the whole products, counted once however many devices repeat them, or run them again.

        Rows that pad an expert to its capacity are of no use.
        """
        dims, alone = sizes.unpadded, dict.fromkeys(sizes.axes, 1)
        return total(op.flops(dims, alone) for op in self.products if not op.where.again)

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
        return total(self._used(local_bytes(x, sizes) * count, x.dims, sizes) for x, count in self._moved)

    def local_elements(self, side: Sharding, sizes: Sizes) -> Any:
        """Elements along a side of its product, on the device with most rows: experts that have some, rows of each."""
        elements = self._used(sizes.local_elements(side), side.dims, sizes) * sizes.peak(side.dims)
        of_each = RAGGED in side.dims and EXPERTS not in side.dims
        return over(elements, sizes.dims.get(BUSY, 1)) if of_each else elements

    def _used(self, whole: Any, dims: Sequence[str], sizes: Sizes) -> Any:
        """What it works with of an array: of experts those that have rows, of a cache what is read."""
        if self._on_rows and EXPERTS in dims and RAGGED not in dims:
            return product((whole, sizes.dims.get(BUSY, 1)))
        if self._of_chunk and HELD in dims and "s" not in dims:
            return product((whole, over(read_keys(sizes.dims), sizes.dims[HELD])))
        if self.mask == SELECTED and "t" in dims and "s" not in dims:
            return product((whole, over(selected_keys(sizes.dims), sizes.dims["t"])))
        return whole

    @property
    def _of_chunk(self) -> bool:
        """True if it reads a chunk's cache, which may have begun anew."""
        return self.mask == "held_chunk_mask"

    @cached_property
    def _on_rows(self) -> bool:
        return any(RAGGED in x.dims for x in (*self.reads, *self.writes))

    def passed_bytes(self, sizes: Sizes) -> Any:
        """Bytes that the kernels behind it move in one run."""
        return total(local_bytes(array, sizes) for moved in self.passes for array in moved)

    @cached_property
    def _moved(self) -> list[tuple[Array, int]]:
        """An array of each type that is read or written, and how many there are."""
        alike: dict[Any, list[Array]] = {}
        for x in (*self.reads, *self.writes):
            alike.setdefault(_shape(x), []).append(x)
        return [(same[0], len(same)) for same in alike.values()]

    @cached_property
    def shape(self) -> Hashable:
        """What its seconds depend on: kernels of equal shape take as long at all sizes."""
        multiplied = sorted((_shape(op.output), tuple(sorted(map(_shape, op.inputs)))) for op in self.products)
        moved = sorted(map(_shape, (*self.reads, *self.writes)))
        masked = self.mask and self.skips and (self.mask, self.ring)
        behind = tuple(tuple(map(_shape, arrays)) for arrays in self.passes)
        flags = (
            self.home,
            self.fused and self.where.phase,
            bool(self.products) and self.in_layers,
            self._of_chunk,
            self.mask == SELECTED,
            behind,
        )
        return (masked, *flags, tuple(multiplied), tuple(moved))


def _part(shards: Mapping[str, tuple[str, ...]], dims: Iterable[str]) -> Sharding:
    """The type of an array with some dims of another."""
    kept = tuple(sorted(dims))
    return Sharding(kept, tuple(shards[dim] for dim in kept))


def _shape(array: Array) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    return *array.type.portion, array.dtype


def of_scores(products: Iterable[Op]) -> bool:
    """True if these products make or read attention's scores."""
    return any(keys_of(x.dims) for op in products for x in (*op.inputs, op.output))
