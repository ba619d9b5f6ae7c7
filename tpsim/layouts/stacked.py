"""What chunks run of what stands at places of a program, as arrays: their ends, and layers as often as they have."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.program.kinds import counted
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.once import Once
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from tpsim.program.op import Where

ANYWHERE = Stages(1, ())
"""What runs at a place of a chunk hangs on the chunk alone."""


@dataclass
class Stacked(Once):
    """Seconds, or bytes, in so many cells."""

    cells: int

    def of(self, name: str, figures: Callable[[], Iterable[tuple[Where, Any]]], chunks: Sequence[Chunk]) -> Any:
        """Of what stands at some places all that chunks run, [chunk, cell]; name: of those, told once."""
        layers, others = self._once(name, lambda: _by_place(figures()))

        def around(chunk: Chunk) -> Any:
            ends = Chunk(0, (), chunk.first, chunk.last)
            of_ends = partial(total, [each * ANYWHERE.times(where, ends) for where, each in others])
            return self._once((name, chunk.first, chunk.last), of_ends)

        counts, stacks = [counted(chunk.stack) for chunk in chunks], np.zeros((len(chunks), self.cells))
        for kind, each in layers.items():
            stacks += np.array([[count.get(kind, 0)] for count in counts]) * each
        for at, chunk in enumerate(chunks):
            stacks[at] += around(chunk)
        return stacks


def _by_place(figures: Iterable[tuple[Where, Any]]) -> tuple[Mapping[str, Any], list[tuple[Where, Any]]]:
    """What stands in layers of each kind, as one, and what stands at each other place."""
    layers: defaultdict[str, Any] = defaultdict(int)
    others: dict[Hashable, tuple[Where, Any]] = {}
    for where, each in figures:
        if where.layer is not None:
            layers[where.kind] = layers[where.kind] + each
        else:
            place = where.place, where.act, where.chunks
            others[place] = where, others.get(place, (where, 0))[1] + each
    return layers, [*others.values()]
