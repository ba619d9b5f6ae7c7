"""Seconds that no step of some layouts takes less than, as arrays.

The seconds of an action are those of the timeline; between actions only what cannot be escaped is counted: a rank
begins when the first microbatch has come to it, works all of its own, and what it did last must come back to the first
stage. Each rank says so of the step; the greatest holds. Where nothing makes all ranks end a step together, each begins
the next on its own: what a rank does then counts from its own start.
"""

from __future__ import annotations

from dataclasses import field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.frozen import dataclass
from tpsim.layouts.walk import splits
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from tpsim.layouts.figures import Figures
    from tpsim.layouts.sorts import Sorts
    from tpsim.program.stages import Chunk
    from tpsim.question.question import Question


@dataclass
class Bounds:
    """Seconds of layouts of one program.

    They are asked for by cells: numbers of those of `figures`, all with chunks of the same sorts.
    """

    figures: Figures
    _known: dict[Hashable, Any] = field(default_factory=dict)

    def _once(self, key: Hashable, found: Callable[[], Any]) -> Any:
        if (known := self._known.get(key)) is None:
            known = self._known[key] = found()
        return known

    def step_s(self, cells: Any, schedule: str, sorts: Sorts, *, blocking: bool, alone: bool = False) -> Any:
        """Seconds that no step takes less than; alone: of actions those of their kernels, which are quickly known."""
        figures = self.figures

        def of(chunk: Chunk, acts: str) -> Any:
            if not alone:
                return figures.action_s(cells, chunk, acts)
            return self._once((chunk, acts), lambda: figures.worked_s(chunk, acts))[cells]

        def once(rank: Chunk) -> Any:
            waits = sorts.ranks > 1 or not alone  # calls of layouts without stages may be joined otherwise
            return self._once((rank, waits), lambda: figures.once_s(rank, waits=waits))[cells]

        def each(many: Mapping[int, int], acts: str) -> Any:
            return total(n * of(sorts.chunks[sort], acts) for sort, n in many.items())

        m, p = figures.microbatches[cells], sorts.ranks
        if p == 1:
            (chunk,), (whole,) = sorts.chunks, sorts.wholes
            return m * (of(chunk, "F") + of(chunk, "BW")) + once(whole)
        hop, split = figures.calls.hop_s[cells], splits(schedule)
        back = "B" if split else "BW"
        held_up = _Gaps(m, hop) if blocking and len(sorts.of) == p else None
        found = []
        for rank in sorts.telling:
            mine, before = sorts.on(rank), sorts.before(rank)
            there = each(before, "F") + rank * hop
            home = each(before, back) + rank * hop + once(sorts.wholes[0])
            home = home + (of(sorts.chunks[0], "W") if split and rank else 0)
            late = m * each(mine, "W") if split else 0
            waits = held_up.of(rank, p) if held_up else 0
            own = late + once(sorts.wholes[rank]) - (0 if figures.example.practice.clip == "norm" else there)
            found.append(there + m * (each(mine, "F") + each(mine, back)) + waits + np.maximum(own, home))
        return reduce(np.maximum, found)

    def worked_s(self, cell: int, question: Question) -> float:
        """Seconds that the kernels of the busiest rank take, however its layers are split."""
        works = [(where, self.figures.whole(s)[cell]) for where, s in self.figures.works("FBW")]
        stages = question.stages
        ranks = (stages.of(rank) for rank in range(stages.ranks))
        each = (sum(s * stages.times(where, chunk) for chunk in rank for where, s in works) for rank in ranks)
        return float(question.workload.microbatches * max(each))


@dataclass(frozen=True)
class _Gaps:
    """Seconds that messages hold a rank up, if each lasts as long as the quickest.

    A gap between two actions has one message that is sent at most, and one that is awaited. What comes first, and what
    is sent last, is on the way from the first stage and back to it, and counted there.
    """

    microbatches: Any
    hop: Any

    def of(self, rank: int, ranks: int) -> Any:
        """Of one rank."""
        m = self.microbatches
        gaps = m if rank == 0 else m - 1 if rank == ranks - 1 else 2 * m - 1
        return gaps * self.hop
