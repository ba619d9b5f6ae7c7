"""What forward keeps for backward, and backward for gradients of parameters: read off the ops of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim.cost.memory import local_bytes
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.lifetimes import BUFFERS, lifetimes
from tpsim.quantity.size import largest, over, product, smallest, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.cost.sizes import Sizes
    from tpsim.program.keeps import Extra
    from tpsim.program.lifetimes import Lifetimes
    from tpsim.program.op import Array, Op, Program


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
        return self.reader.where.index("layers") is not None


def kept(program: Program, sizes: Sizes, keeps: Sequence[Extra] = ()) -> tuple[Kept, ...]:
    """What forward keeps for backward, and backward for gradients of parameters, as if these two ran apart.

    keeps  what the stack keeps beside what its kernels need
    """
    alive = lifetimes(program)
    pairs = ((array, op, alive.readers[array]) for array, op in alive.makers.items())
    return tuple(
        Kept(array, op, _last(readers), held_bytes(array, sizes, keeps, alive))
        for array, op, readers in pairs
        if any(reader.where.act != op.where.act for reader in readers)
    )


def held_bytes(array: Array, sizes: Sizes, keeps: Sequence[Extra], alive: Lifetimes) -> Any:
    """Bytes of an array on one device, with what the stack keeps as long as it is there; of a streamed one blocks.

    A list that frees an array of bf16 frees a narrower one, too, and no more than that.
    """
    streamed, names = alive.streamed.get(array, ()), alive.names(array)
    more = largest(total(extra.bytes_each for extra in keeps if extra.of in names), -DTYPE_BYTES[array.dtype])
    array_bytes = local_bytes(array, sizes) + (more * sizes.local_elements(array.type) if more else 0)
    ways = product(sizes.axes[axis] for axis in streamed)
    return over(array_bytes * smallest(BUFFERS, ways), ways) if streamed else array_bytes


def _last(readers: Sequence[Op]) -> Op:
    return max(readers, key=lambda op: "FBW".index(op.where.act))
