"""What chips of layouts of one program hold from step to step, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.memory import bucket_bytes, held_in, spare_bytes
from tpsim.layouts.stacked import ANYWHERE
from tpsim.quantity.once import Once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.cost.memory import Standing
    from tpsim.layouts.figures import Figures
    from tpsim.program.keeps import BufferSize
    from tpsim.program.op import Array, Where
    from tpsim.program.stages import Chunk


@dataclass
class States(Once):
    """Bytes that stand on chips of ranks which have all layers of some chunks: [rank, cell]."""

    figures: Figures

    def least_bytes(self, ranks: Sequence[Chunk]) -> Any:
        """Of weights, what an optimizer holds of them, and gradients at least: no step need be traced to know it."""
        return self._own(ranks) + self._stacked("least gradients", self._least, self._least.gradients, ranks)

    def bytes(self, ranks: Sequence[Chunk]) -> Any:
        """Of all, gradients as they are and copies of weights among them."""
        stands, states = self.figures.lowered.standing, self._own(ranks)
        states = states + self._stacked("gradients", stands, stands.gradients, ranks)
        states = states + self._stacked("caches", stands, stands.caches, ranks) * self.figures.microbatches
        return states + self.figures.stacked("copies", self._copies, ranks) if stands.copies else states

    def on_hosts(self, ranks: Sequence[Chunk]) -> Any:
        """Of what stands on hosts."""
        stands = self.figures.lowered.standing
        return self._stacked("hosted", stands, stands.hosted, ranks)

    def _own(self, ranks: Sequence[Chunk]) -> Any:
        return self._once(("own", *ranks), lambda: self._parameters_bytes(ranks))

    def _parameters_bytes(self, ranks: Sequence[Chunk]) -> Any:
        """Of weights with their buckets, and of what an optimizer holds of them."""
        parameters = self._stacked("parameters", self._least, self._least.parameters, ranks)
        states = parameters + self._stacked("optimizer", self._least, self._least.optimizer, ranks)
        states += bucket_bytes(self.buffers, parameters, self._copied) if self.buffers else 0
        for at, rank in enumerate(ranks):
            has = tuple(kind for kind, many in rank.stack if many), rank.first, rank.last
            states[at] += self._once(("spare", *has), partial(self._spare_bytes, rank))
        return states

    @cached_property
    def _least(self) -> Standing:
        return self.figures.memo.states(self.figures.example)

    def _stacked(self, name: str, stands: Standing, some: Mapping[Array, Where], ranks: Sequence[Chunk]) -> Any:
        """Of arrays that stand; formats of blocks have shares of bytes."""

        def each() -> Iterator[tuple[Where, Any]]:
            sized = ((where, stands.bytes_each(array, self.figures.sizes)) for array, where in some.items())
            return ((where, np.asarray(size, dtype=float)) for where, size in sized)

        return self.figures.stacked(name, each, ranks)

    def _copies(self) -> Iterator[tuple[Where, Any]]:
        """Copies of weights that microbatches of stages share: none of what is gathered over axes of one device."""
        figures = self.figures
        several = figures.column(lambda case: case.mesh.size(*case.layout.stages) > 1)
        shared = {axes: figures.lowered.turnover(axes).lifetimes.shared for axes in figures.alone}
        for op in figures.lowered.program.ops:
            if any(op.output in arrays for arrays in shared.values()):
                here = np.array([op.output in shared[axes] for axes in figures.alone])[figures.on]
                size = figures.lowered.standing.bytes_each(op.output, figures.sizes)
                yield op.where.outside("microbatches"), several * here * np.asarray(size, dtype=float)

    def _spare_bytes(self, rank: Chunk) -> Any:
        example, parameters = self.figures.example, self._least.parameters
        here = {array: where for array, where in parameters.items() if ANYWHERE.times(where, rank) > 0}
        keeps, tied = dict(example.practice.keeps), example.model.tie_embeddings
        return spare_bytes(here, self.figures.sizes, keeps, last=rank.last, tied=tied)

    @cached_property
    def buffers(self) -> Mapping[BufferSize, Any]:
        """Of every size of buffers their bytes, or how many there are."""
        example = self.figures.example
        return held_in(example.practice, example.dtypes.activations)

    @cached_property
    def _copied(self) -> Any:
        """1 where devices share parameters whole, else 0."""
        layout = self.figures.example.layout
        return not layout.zero and self.figures.column(lambda case: case.mesh.size(*case.layout.data)) > 1
