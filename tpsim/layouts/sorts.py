"""The chunks of a stack told apart by what they hold and run: those that are alike are one sort, looked at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.program.kinds import counted
from tpsim.program.stages import Chunk, linear

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.program.kinds import Layers
    from tpsim.program.practice import Practice


@dataclass(frozen=True, eq=False)
class Sorts:
    """The chunks of a pipeline, or the only one of a stack that is not cut.

    ranks   that the chunks lie on in turn
    chunks  one of each sort, in order of first appearance
    of      the sort of each chunk, in order of execution
    """

    ranks: int
    chunks: tuple[Chunk, ...]
    of: tuple[int, ...]

    @cached_property
    def wholes(self) -> tuple[Chunk, ...]:
        """All chunks of each rank as one."""
        return tuple(_whole(self.on_rank(rank)) for rank in range(self.ranks))

    def on_rank(self, rank: int) -> tuple[Chunk, ...]:
        """The chunks of a rank."""
        return tuple(self.chunks[k] for k in self.of[rank :: self.ranks])

    @cached_property
    def all(self) -> Chunk:
        """All chunks as one."""
        return _whole(self.wholes)

    @cached_property
    def ahead(self) -> Chunk:
        """Those that a microbatch goes through before it comes to the last rank, as one."""
        return _whole([self.chunks[k] for k in self.of[: self.ranks - 1]])

    @cached_property
    def ranked(self) -> Mapping[tuple[int, ...], Chunk]:
        """All chunks of a rank as one, by their sorts: ranks with the same ones hold the same states."""
        return {self.of[rank :: self.ranks]: whole for rank, whole in enumerate(self.wholes)}

    @cached_property
    def telling(self) -> tuple[int, ...]:
        """The ranks of which one has the most to do, and comes to it last: all that differ, of those alike the last."""
        return tuple(sorted({whole: rank for rank, whole in enumerate(self.wholes)}.values()))

    @cached_property
    def on(self) -> Any:
        """How many chunks of each sort lie on each rank that tells."""
        return self._count(lambda rank: self.of[rank :: self.ranks])

    @cached_property
    def before(self) -> Any:
        """How many of each sort a microbatch goes through before it comes to such a rank for the first time."""
        return self._count(lambda rank: self.of[:rank])

    @cached_property
    def after(self) -> Any:
        """How many it goes through from then on."""
        return self._count(lambda rank: self.of[rank:])

    @cached_property
    def until(self) -> Any:
        """How many it goes through until it has left such a rank for the last time."""
        return self._count(lambda rank: self.of[: len(self.of) - self.ranks + rank + 1])

    @cached_property
    def behind(self) -> Any:
        """How many it goes through when it has left such a rank for the last time."""
        return self._count(lambda rank: self.of[len(self.of) - self.ranks + rank + 1 :])

    def _count(self, some: Callable[[int], Sequence[int]]) -> Any:
        """Of some chunks for each rank that tells those of every sort, [rank, sort]."""
        return np.array([np.bincount(some(rank), minlength=len(self.chunks)) for rank in self.telling])


class Alike(NamedTuple):
    """Layouts whose stages take turns alike, with chunks of the same sorts; cells: their numbers."""

    schedule: str
    sorts: Sorts
    cells: Any


def sorts(layers: Sequence[int], ranks: int, practice: Practice, stack: Layers) -> Sorts:
    """The sorts of a stack that is cut into chunks of so many layers each.

    stack  as the model has it
    """
    chunks = [Chunk(0, chunk.stack, chunk.first, chunk.last) for chunk in linear(layers, ranks, practice, stack).chunks]
    numbers = {chunk: number for number, chunk in enumerate(dict.fromkeys(chunks))}
    return Sorts(ranks, tuple(numbers), tuple(numbers[chunk] for chunk in chunks))


def _whole(chunks: Sequence[Chunk]) -> Chunk:
    layers = counted(tuple(layer for chunk in chunks for layer in chunk.stack))
    ends = any(chunk.first for chunk in chunks), any(chunk.last for chunk in chunks)
    return Chunk(0, tuple(layers.items()), *ends)
