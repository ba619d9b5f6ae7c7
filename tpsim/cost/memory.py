"""Bytes that one chip holds: parameters, gradients and optimizer state from step to step, and what forward keeps.

What is kept for backward, and by backward for gradients of parameters, is read off the ops of a program.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.algebra.sharding import Sharding, unpacked
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.layout import Layout
from tpsim.program.lifetimes import BUFFERS, Lifetimes, is_fetched, is_gather, is_view, lifetimes
from tpsim.program.op import Array, Join, Leaf, Op, Program, Reshard, Role, Where
from tpsim.program.text import READ
from tpsim.program.update import CAST
from tpsim.quantity.size import largest, over, product, smallest, total, where_many
from tpsim.report.record import Bytes, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.algebra.moves import Axes
    from tpsim.cost.sizes import Sizes
    from tpsim.program.keeps import BufferSize, Extra
    from tpsim.program.practice import Practice


GRADIENT = "grad."
"""What the names of a program's gradient results begin with."""


@dataclass(frozen=True, slots=True)
class Memory(Record):
    """Bytes of one chip.

    parameters_bytes, gradients_bytes, optimizer_bytes  held from step to step; of parameters with copies of them
    logits_bytes  of the widest array over the vocabulary within a step, beside what is held
    cache_bytes   of keys and values that inference keeps; none in training
    host_bytes    that it holds on its host; none where nothing is offloaded
    """

    told: ClassVar[tuple[str, ...]] = (
        "parameters_bytes",
        "gradients_bytes",
        "optimizer_bytes",
        "cache_bytes?",
        "static_bytes",
        "logits_bytes",
        "host_bytes?",
    )

    parameters_bytes: Bytes
    gradients_bytes: Bytes
    optimizer_bytes: Bytes
    logits_bytes: Bytes
    cache_bytes: Bytes | None
    host_bytes: Bytes | None

    @property
    def static_bytes(self) -> Bytes:
        """All that is held from step to step."""
        cache = 0 if self.cache_bytes is None else self.cache_bytes
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + cache


@dataclass(frozen=True, slots=True)
class Standing:
    """What of a program stands on one chip from step to step, whatever the sizes: arrays, with where each is made.

    wide     of activations those with both a batch and a vocabulary dim
    copies   of parameters, cast or gathered, those that microbatches of stages share
    hosted   what stands on its host: states, and what is stored there, of which a device may keep its own
    waiting  gradient -> what several microbatches add up in its place, in the format in which it is sent
    """

    program: Program
    parameters: Mapping[Array, Where]
    gradients: Mapping[Array, Where]
    optimizer: Mapping[Array, Where]
    caches: Mapping[Array, Where]
    wide: Mapping[Array, Where]
    copies: Mapping[Array, Where]
    hosted: Mapping[Array, Where]
    waiting: Mapping[Array, Array]

    def on(self, here: Callable[[Where], bool]) -> Standing:
        """What of it stands on a stage of a pipeline; here: what that runs."""
        every = self.parameters, self.gradients, self.optimizer, self.caches, self.wide, self.copies, self.hosted
        own = [{x: where for x, where in some.items() if here(where)} for some in every]
        parameters, gradients, optimizer, caches, wide, copies, hosted = own
        return Standing(self.program, parameters, gradients, optimizer, caches, wide, copies, hosted, self.waiting)

    @property
    def widest(self) -> Array | None:
        """Of the wide ones the one that is least sharded."""
        return min(self.wide, key=lambda array: len(array.type.sharded_axes), default=None)

    def memory(self, sizes: Sizes) -> Memory:
        """The bytes of all of it."""
        return Memory(
            parameters_bytes=self.parameters_bytes(sizes) + self._held(self.copies, sizes),
            gradients_bytes=self._held(self.gradients, sizes),
            optimizer_bytes=self._held(self.optimizer, sizes),
            logits_bytes=local_bytes(self.widest, sizes) if self.widest else 0,
            cache_bytes=self._held(self.caches, sizes) if self.caches else None,
            host_bytes=self._held(self.hosted, sizes) if self.hosted else None,
        )

    def parameters_bytes(self, sizes: Sizes) -> Any:
        """Of parameters as they are stored."""
        return self._held(self.parameters, sizes)

    def bytes_each(self, array: Array, sizes: Sizes) -> Any:
        """Bytes on one device of an array that stands."""
        if array not in self.waiting:
            return local_bytes(array, sizes)
        formats = (DTYPE_BYTES[one.dtype] for one in (self.waiting[array], array))
        return product((sizes.local_elements(array.type), where_many(sizes.loops["microbatches"], *formats)))

    def _held(self, homes: Mapping[Array, Where], sizes: Sizes) -> Any:
        """Of all layers that a traced one stands for."""
        alike = {where.repeats: where for where in homes.values()}
        runs = {loops: self.program.times(where, sizes.loops) for loops, where in alike.items()}
        return total(self.bytes_each(array, sizes) * runs[where.repeats] for array, where in homes.items())


def memory(program: Program, sizes: Sizes, here: Callable[[Where], bool] = lambda _: True) -> Memory:
    """What one chip holds under `program`'s layout.

    here  what its stage of a pipeline has; without one all of it

    A traced layer's arrays are held by every layer it stands for; microbatches share one buffer, but that
    each has a cache of its own.
    """
    return standing(program).on(here).memory(sizes)


def standing(program: Program, alive: Callable[[Program], Lifetimes] = lifetimes) -> Standing:
    """What of `program` stands on one chip that has all of it; alive: gives the lifetimes of its arrays."""
    buffers = _gradients(program)
    arrays: defaultdict[Role, dict[Array, Where]] = defaultdict(dict)
    wide: dict[Array, Where] = {}
    hosted: dict[Array, Where] = {}
    for op in program.ops:
        x = op.output
        if x.home == "host":
            hosted |= {x: stands_at(op)} if isinstance(op, Leaf | Reshard) else {}
        elif (isinstance(op, Leaf) and x.name not in program.borrowed) or x in buffers:
            arrays["gradient" if x in buffers else x.role][x] = stands_at(op)
        if x.role == "activation" and {"b", "v"} <= {*x.dims}:
            wide[x] = op.where
    waiting = {x: waits for x, waits in buffers.items() if waits is not x}
    fetched = program.pipe and any(is_fetched(op) for op in program.ops)
    shared = alive(program).shared if fetched else frozenset[Array]()
    copies = {op.output: op.where.outside("microbatches") for op in program.ops if op.output in shared}
    every = arrays["param"], arrays["gradient"], arrays["state"], arrays["cache"], wide, copies, hosted
    return Standing(program, *every, waiting=waiting)


def stands_at(op: Op) -> Where:
    """Where what an op makes stands from step to step: in every microbatch its own cache, of all else one for all."""
    return op.where.inside("microbatches", 0) if op.output.role == "cache" else op.where.outside("microbatches")


def _gradients(program: Program) -> Mapping[Array, Array]:
    """The gradient buffers, what microbatches add up in before the end of the step moves it; what waits for that."""
    makers, data = {op.output: op for op in program.ops}, Layout(program.table).data
    results = [x for name, x in program.results.items() if name.startswith(GRADIENT)]
    return dict(pair for x in results for pair in _added_up_in(x, makers, data))


def _added_up_in(x: Array, makers: Mapping[Array, Op], data: Axes) -> list[tuple[Array, Array]]:
    """The buffers of one; where it is brought to another format it is one itself, unless what waits is sharded less.

    A shard of it that waits for a sum over others of its data axes keeps its own format until then.
    """
    op = makers[x]
    if op.where.microbatch is None and (isinstance(op, Reshard | Join) or op.where.kernel == CAST):
        before = [pair for y in op.inputs for pair in _added_up_in(y, makers, data)]
        finer = all(len(buffer.type.sharded_axes) >= len(x.type.sharded_axes) for buffer, _ in before)
        if op.where.kernel != CAST or not finer:
            return before
        shards = (y for y, _ in before if y.type.owing(()) == x.type and {*data} & {*x.type.sharded_axes})
        return [(x, next((y for y in shards if {*data} & y.type.owed_axes), x))]
    return [(x, x)]


def local_bytes(array: Array, sizes: Sizes) -> Any:
    """Bytes of `array` on one device, the fullest one; an owed array is held whole."""
    type_, dtype = array.type, array.dtype
    return sizes.once(
        (type_.portion, dtype),
        lambda: product((sizes.local_elements(type_), DTYPE_BYTES[dtype], sizes.peak(type_.dims))),
    )


def spare_bytes(
    parameters: Mapping[Array, Where], sizes: Sizes, keeps: Mapping[str, Any], *, last: bool, tied: bool
) -> Any:
    """Bytes that a stack holds all the time, of what `STANDING` names.

    parameters  of a rank, with where each is made
    keeps       bytes per element, by what they are of
    last        True for the rank that has the head, which a tied embedding stands for
    """
    per_element = keeps.get("weights", 0)
    if not per_element:
        return 0
    head = "E" if tied else "O"
    layers = {x.name: x for x, where in parameters.items() if where.layer is not None and _multiplies(x, where)}
    once = [*layers.values(), *(x for x in parameters if x.name == head and last)]
    return per_element * total(_of_one_expert(x.type, sizes) for x in once)


def _multiplies(parameter: Array, where: Where) -> bool:
    """True for weights of products that add gradients up themselves: all but biases, gains and routers'."""
    dims = {*unpacked(parameter.type).dims}
    return where.block != "router" and any({read} < dims for read in READ)


def _of_one_expert(type_: Sharding, sizes: Sizes) -> Any:
    """Elements on one device of weights, without the dim of experts."""
    here = sizes.local_elements(type_)
    experts = over(sizes.dims["n"], product(sizes.axes[axis] for axis in type_.axes("n"))) if "n" in type_.dims else 1
    return over(here, experts)


def bucket_bytes(buffers: Mapping[BufferSize, Any], parameters_bytes: Any, copied: Any) -> Any:
    """Bytes of buffers that are there all the time.

    buffers           as `held_in` has them
    parameters_bytes  of the rank
    copied            1 where devices share parameters whole, whose gradients they reduce; else 0
    """
    return buffers.get("standing", 0) + buffers.get("parameters", 0) * parameters_bytes * copied


def held_in(practice: Practice, dtype: str) -> dict[BufferSize, Any]:
    """Of every size of buffers their bytes, where its buckets state their elements; else how many there are.

    dtype  of activations
    """
    sized = {"bucket": (practice.bucket.elements or 0) * DTYPE_BYTES[dtype]}
    sized["standing"] = sized["bucket"]
    return {buffer.of: buffer.many * sized.get(buffer.of, 1) for buffer in practice.buffers}


def moved_bytes(op: Op, sizes: Sizes) -> Any:
    """Bytes of weights that an op of a layer gathers in forward, or of a gradient that it scatters; else 0."""
    if is_gather(op):
        return local_bytes(op.output, sizes) if op.where.act == "F" else 0
    scattered = isinstance(op, Reshard) and op.inputs[0].role == "gradient" and not is_view(op)
    return local_bytes(op.inputs[0], sizes) if scattered else 0


@dataclass(frozen=True, slots=True)
class Kept:
    """An array of forward or backward that a later part of the step reads.

    maker, reader  the op that makes it, and the last one that reads it
    bytes_each     of one microbatch and, within a layer, of one layer
    """

    array: Array
    maker: Op
    reader: Op
    bytes_each: Any

    def __str__(self) -> str:
        """As ``attention.mixed[b, s, g, r, d] bf16: from forward (attention) to backward (W of d.Wo)``."""
        maker, read = self.maker.where, self.reader.where
        return f"{self.array} {self.array.dtype}: {maker.act} of {maker.block} to {read.act}, {self.reader.output.name}"

    @property
    def per_layer(self) -> bool:
        """True if every layer keeps one: what is kept belongs to where it is read last."""
        return self.reader.where.layer is not None


def kept(program: Program, sizes: Sizes, keeps: Sequence[Extra] = ()) -> tuple[Kept, ...]:
    """What forward keeps for backward, and backward for gradients of parameters, as if these two ran apart.

    keeps  what the stack keeps beside what its kernels need
    """
    alive = lifetimes(program)
    pairs = ((array, op, alive.readers[array]) for array, op in alive.makers.items())
    return tuple(
        Kept(array, op, max(readers, key=lambda op: "FBW".index(op.where.act)), held_bytes(array, sizes, keeps, alive))
        for array, op, readers in pairs
        if any(reader.where.act != op.where.act for reader in readers)
    )


def held_bytes(array: Array, sizes: Sizes, keeps: Sequence[Extra], alive: Lifetimes) -> Any:
    """Bytes of an array on one device, with what the stack keeps as long as it is there; of a streamed one blocks.

    A list that frees an array of bf16 frees a narrower one, too, and no more than that.
    """
    array_bytes, names = local_bytes(array, sizes), alive.names(array) if keeps else ()
    if beside := [extra.bytes_each for extra in keeps if extra.of in names]:
        more = largest(total(beside), -DTYPE_BYTES[array.dtype])
        array_bytes = array_bytes + more * sizes.local_elements(array.type)
    if array not in alive.streamed:
        return array_bytes
    ways = product(sizes.axes[axis] for axis in alive.streamed[array])
    return over(array_bytes * smallest(BUFFERS, ways), ways)
