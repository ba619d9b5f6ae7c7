"""Which rank of a pipeline has which layers: the stack cut into chunks, chunks laid on the ranks of a mesh axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from tpsim.program.op import Where


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the stack.

    rank    of the pipeline that runs it
    layers  how many it has
    first   True if it has the embedding; last: the final norm, the head and the loss
    """

    rank: int
    layers: int
    first: bool
    last: bool


@dataclass(frozen=True, slots=True)
class Stages:
    """The chunks of a stack in order of execution; one without a pipeline."""

    ranks: int
    chunks: tuple[Chunk, ...]

    def of(self, rank: int) -> tuple[Chunk, ...]:
        """The chunks of a rank."""
        return tuple(chunk for chunk in self.chunks if chunk.rank == rank)

    def times(self, where: Where, chunk: Chunk) -> int:
        """How often a chunk runs, per microbatch, what stands at `where` in a program of one traced layer and cut.

        There chunk 0 has the embedding and the layer, chunk 1 the head.
        """
        if where.index("layers") is not None:
            return chunk.layers
        ends = (chunk.first, chunk.last)
        return int(any(ends[one] for one in where.chunks))

    def runs(self, where: Where, rank: int) -> bool:
        """True if a rank runs it."""
        return any(self.times(where, chunk) for chunk in self.of(rank))

    def handed_on(self, where: Where, rank: int) -> int:
        """How often a rank sends at a cut, per microbatch: once per chunk that has another one behind or before it."""
        return sum(not (chunk.last if where.act == "F" else chunk.first) for chunk in self.of(rank))


def linear(layers: int, ranks: int, chunks: int) -> Stages:
    """The stack in ranks x chunks equal pieces, piece k on rank k mod ranks.

    Raises InputError where they cannot be equal, with the numbers that would do.
    """
    pieces = ranks * chunks
    if layers % pieces:
        fitting = [n for n in range(1, layers + 1) if not layers % (n * chunks)]
        several = "" if chunks == 1 else f" of {chunks} chunks each"
        raise InputError.one(
            "layers-not-divisible",
            f"{layers} layers cannot be split evenly over {ranks} stages{several}",
            remedy=f"stages that would do: {', '.join(map(str, fitting))}",
            note="other splits than even ones are not supported yet",
        )
    each = layers // pieces
    return Stages(ranks, tuple(Chunk(k % ranks, each, k == 0, k == pieces - 1) for k in range(pieces)))
