"""Which rank of a pipeline has which layers: the stack cut into chunks, chunks laid on the ranks of a mesh axis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tpsim.program.kinds import ALIKE, ONE, Layers, counted, stack
from tpsim.program.practice import Practice
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from tpsim.program.op import Where


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the stack.

    rank    of the pipeline that runs it
    stack   its layers by their kinds; the first and the last chunk may have none
    first   True if it has the embedding; last: the final norm, the head and the loss
    """

    rank: int
    stack: Layers
    first: bool
    last: bool

    @property
    def layers(self) -> int:
        """How many it has, of all kinds."""
        return sum(count for _, count in self.stack)


@dataclass(frozen=True, slots=True)
class Stages:
    """The chunks of a stack in order of execution; one without a pipeline."""

    ranks: int
    chunks: tuple[Chunk, ...]
    _of: dict[int, tuple[Chunk, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _counts: dict[Hashable, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def stack(self) -> Layers:
        """The layers of all chunks by their kinds."""
        return tuple(run for chunk in self.chunks for run in chunk.stack)

    def of(self, rank: int) -> tuple[Chunk, ...]:
        """The chunks of a rank, which every op is asked for: looked for once."""
        if rank not in self._of:
            self._of[rank] = tuple(chunk for chunk in self.chunks if chunk.rank == rank)
        return self._of[rank]

    def chunk_layers(self, rank: int) -> tuple[int, ...]:
        """The layers of each chunk of a rank."""
        return tuple(chunk.layers for chunk in self.of(rank))

    def layers(self, rank: int) -> int:
        """The layers of a rank."""
        return sum(self.chunk_layers(rank))

    def loops(self, rank: int) -> Mapping[str, int]:
        """The layers of a rank, all of them and those of each kind that the stack has."""
        layers = ((kind, many if chunk.rank == rank else 0) for chunk in self.chunks for kind, many in chunk.stack)
        return {**counted(tuple(layers)), ALIKE: self.layers(rank)}

    def times(self, where: Where, chunk: Chunk) -> int:
        """How often a chunk runs, per microbatch, what stands at `where` in a program of one traced layer and cut.

        There chunk 0 has the embedding, a layer of each kind, and the side before the cut; chunk 1 the side behind
        it, and the head. A message is its sender's. What is of the step alone the first chunk of each rank runs.
        """
        if where.place == "step":
            return int(next((of_stage for of_stage in self.chunks if of_stage.rank == chunk.rank), chunk) is chunk)
        if where.layer is not None:
            return sum(count for kind, count in chunk.stack if kind == where.kind)
        if where.place == "cut":
            return int(not (chunk.last if where.act == "F" else chunk.first))
        if where.place == "side":
            return int(not (chunk.last, chunk.first)[where.chunks[0]])
        return int((chunk.first and 0 in where.chunks) or (chunk.last and 1 in where.chunks))

    def count(self, where: Where, rank: int) -> int:
        """How often a rank runs it, per microbatch: in each of its layers, at each of its cuts, or where it is."""
        kind = "" if where.layer is None else where.kind
        key = rank, where.place, where.act, where.chunks, kind
        if key not in self._counts:
            self._counts[key] = sum(self.times(where, chunk) for chunk in self.of(rank))
        return self._counts[key]

    def runs(self, where: Where, rank: int) -> bool:
        """True if a rank runs it."""
        return self.count(where, rank) > 0


def linear(layers: Sequence[int], ranks: int, practice: Practice = Practice(), of: Layers = ONE) -> Stages:  # noqa: B008 - frozen
    """Chunks of so many layers each in order of execution, chunk k on rank k mod ranks; the practice tells kinds.

    of  the stack as the model has it
    """
    last = len(layers) - 1
    stacks = (stack(practice, count, of, sum(layers[:k])) for k, count in enumerate(layers))
    return Stages(ranks, tuple(Chunk(k % ranks, stack, k == 0, k == last) for k, stack in enumerate(stacks)))


CutBy = Literal["even", "nearly-even", "balanced"]
"""Rules that cut a stack into chunks, as the functions of that name do."""

ENDS = 2
"""Chunks with something to do beside layers: the first has the embedding, the last the head."""


def even(layers: int, ranks: int, chunks: int) -> tuple[int, ...]:
    """The layers of each of ranks x chunks chunks that are alike.

    Raises InputError where they cannot be, with the numbers that would do.
    """
    pieces = ranks * chunks
    if layers % pieces:
        fitting = [n for n in range(1, layers + 1) if not layers % (n * chunks)]
        several = "" if chunks == 1 else f" of {chunks} chunks each"
        stages = f"stages that would do: {', '.join(map(str, fitting))}"
        others = f"no number of stages does; chunks that would do: {', '.join(map(str, divisors(layers)))}"
        raise InputError.one(
            "layers-not-divisible",
            f"{layers} layers cannot be split evenly over {ranks} stages{several}",
            remedy=stages if fitting else others,
            note=f"or pipeline.layers: nearly-even, balanced, or a list of {pieces} numbers"
            if pieces <= layers + ENDS
            else "",
        )
    return (layers // pieces,) * pieces


def nearly_even(layers: int, ranks: int, chunks: int) -> tuple[int, ...]:
    """The layers of each of ranks x chunks chunks: alike where they can be; elsewhere as nearly as they can be.

    Then the embedding and the head count as a layer each, so that the first chunk, whose rank holds most, and the last
    have fewer: as torchtitan splits every model, and Megatron one whose ends are to be accounted for.

    Raises InputError where there are too few layers.
    """
    if not layers % (ranks * chunks):
        return even(layers, ranks, chunks)
    return balanced(layers, ranks, chunks, layer_s=1, first_s=1, last_s=1)


def stated(split: Sequence[int], layers: int, ranks: int, chunks: int) -> tuple[int, ...]:
    """The layers of each chunk as they are stated, in order of execution.

    Raises InputError for another number of chunks or of layers, and for an empty chunk without embedding and head.
    """
    pieces, problem, remedy = ranks * chunks, "", ""
    named = f"{ranks} stages" + ("" if chunks == 1 else f" of {chunks} chunks each")
    empty = [str(k) for k, count in enumerate(split) if not count and 0 < k < len(split) - 1]
    if len(split) != pieces:
        problem, remedy = f"a split into {len(split)} chunks is given, and there are {named}", f"list {pieces} numbers"
    elif sum(split) != layers:
        problem = f"the split adds up to {sum(split)} layers, and the model has {layers}"
        more = layers - sum(split)
        remedy = f"{'add' if more > 0 else 'take away'} {abs(more)}"
    elif empty:
        problem = f"chunk{'' if len(empty) == 1 else 's'} {', '.join(empty)} of the split would have nothing to do"
        remedy = "only the first chunk, which has the embedding, and the last, which has the head, may have none"
    if problem:
        raise InputError.one("layers-not-split", problem, remedy=remedy)
    return tuple(split)


def balanced(layers: int, ranks: int, chunks: int, *, layer_s: float, first_s: float, last_s: float) -> tuple[int, ...]:
    """The layers of each chunk such that the slowest takes the fewest seconds.

    layer_s          of a layer, one microbatch
    first_s, last_s  of what the first chunk has beside layers (the embedding), and the last one (the head)

    All but these two have a layer at least. Layer after layer goes to the chunk that is then the least slow, of equal
    ones to the first: a rank that is slow delays the step less the earlier it stands.

    Raises InputError where there are too few.
    """
    pieces = ranks * chunks
    if pieces > layers + ENDS:
        message = f"{layers} layers are too few for {pieces} chunks: only the first and the last may have none"
        raise InputError.one("too-few-layers", message, remedy=f"pp x pipeline.chunks may be {layers + ENDS} at most")
    split = [int(0 < k < pieces - 1) for k in range(pieces)]
    seconds = [count * layer_s for count in split]
    seconds[0] += first_s
    seconds[-1] += last_s
    for _ in range(layers - sum(split)):
        least = min(range(pieces), key=seconds.__getitem__)
        seconds[least] += layer_s
        split[least] += 1
    return tuple(split)
