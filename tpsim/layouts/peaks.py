"""What layouts hold at their peak, exactly, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.peak import Courses
from tpsim.layouts.figures import Once
from tpsim.layouts.walk import SPLIT, named, ordered, together
from tpsim.program.stages import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.cost.peak import Changes
    from tpsim.layouts.figures import Figures
    from tpsim.layouts.sorts import Sorts

TRACED = 3
"""Layers of a kind whose changes of memory are read: what is repeated among them is repeated as often as it is."""


@dataclass
class Peaks(Once):
    """Bytes of layouts of one program.

    They are asked for by cells: numbers of those of `figures`, all with chunks of the same sorts.
    """

    figures: Figures

    @cached_property
    def courses(self) -> Courses:
        """What the actions of its program change."""
        figures, lowered = self.figures, self.figures.lowered
        keeps = figures.example.practice.keeps
        return Courses(lowered.turnover, figures.sizes, keeps, figures.buffers)

    def peak_bytes(self, cells: Any, schedule: str, sorts: Sorts) -> Any:
        """What the fullest rank holds at its peak, per cell."""
        many = self.figures.microbatches[cells]
        orders, of = ordered(schedule, sorts.ranks, len(sorts.of) // sorts.ranks, many)
        left = self._left(sorts.chunks, split=named(schedule) == SPLIT)[:, cells]
        places = together(schedule, sorts.ranks, orders, sorts.of)
        ranked, now = places.at
        states = np.stack([self._states(sorts.ranked[rank]) for rank in places.ranks])[:, cells]
        tops = np.stack([self._course(sorts.chunks[sort], acts)[0] for sort, acts in places.nows])[:, cells]
        level = states[ranked] + tops[now] + _beside(places.counts, left, of) - places.never[:, of]
        if places.more is not None:
            level = level + _beside(places.more, left, of) * (many - 1)
        return level.max(axis=0)

    def least_bytes(self, cells: Any, sorts: Sorts) -> Any:
        """What the fullest rank holds from step to step, per cell: at its peak it holds no less."""
        return reduce(np.maximum, map(self._states, sorts.ranked.values()))[cells]

    def _states(self, whole: Chunk) -> Any:
        return self._once(("states", whole), partial(self.figures.standing_bytes, whole))

    def _left(self, chunks: tuple[Chunk, ...], *, split: bool) -> Any:
        """What a microbatch of each sort leaves behind F; then, where backward is split, behind B, which W takes."""

        def compute() -> Any:
            forward = [self._course(chunk, "F")[1] for chunk in chunks]
            return np.stack([*forward, *(-self._course(chunk, "W")[1] for chunk in chunks if split)])

        return self._once((chunks, split), compute)

    def _course(self, chunk: Chunk, acts: str) -> tuple[Any, Any]:
        """Bytes where an action holds most, and those that it leaves."""
        return self._once((chunk, acts), partial(self._folded, chunk, acts))  # type: ignore[no-any-return]  # put there

    def _folded(self, chunk: Chunk, acts: str) -> tuple[Any, Any]:
        """The parts of an action one behind the other: where one repeats, its highest point is in the first or last."""
        alike = self.courses.turnover.ahead == 1  # of more, what is gathered hangs on how many layers there are
        traced = tuple((kind, TRACED if alike else many) for kind, many in chunk.stack if many)
        few = Chunk(chunk.rank, traced, chunk.first, chunk.last)
        runs = self._once(("runs", few, acts), lambda: [*self._runs(few, acts)])
        stack = [many for _, many in chunk.stack if many] if alike else []
        layers = [times for many in (stack if acts == "F" else stack[::-1]) for times in (many - 1, 1)]
        often = [1, 1, 1, *layers, 1, 1] if alike else [times for *_, times in runs]
        level, top = 0, 0  # type: Any, Any
        for (net, most, _), times in zip(runs, often, strict=True):
            if times and most is not None:
                top = np.maximum(top, level + (most if times == 1 else most + np.maximum(0, (times - 1) * net)))
                level = level + times * net
        return self.figures.whole(top), self.figures.whole(level)

    def _runs(self, chunk: Chunk, acts: str) -> Iterator[tuple[Any, Any, int]]:
        """What each part of an action adds, where that is most, and how often it follows itself; none without ops."""
        for run, times in self.courses.changes(chunk, acts):
            net, most = self._once(("run", id(run)), partial(self._summed, run))[:2] if run else (0, None)
            yield net, most, times

    def _summed(self, changes: Changes) -> tuple[Any, Any, Changes]:
        """What changes come to, where that is most, and they: as long as they live, their identity is theirs."""
        level, most = 0, 0  # type: Any, Any
        for what, sign in changes:
            if sign > 0:
                level = level + self.courses.bytes_of(what)
                most = np.maximum(most, level)
            else:
                level = level - self.courses.bytes_of(what)
        return level, most, changes


def _beside(counts: Any, left: Any, of: Any) -> Any:
    """Bytes of what stands beside an action, [place, cell]; of: the order of each cell."""
    return np.einsum("pcs,sc->pc", counts[:, of, : len(left)], left)
