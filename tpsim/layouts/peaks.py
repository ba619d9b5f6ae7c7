"""What layouts hold at their peak, exactly, as arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.peak import Courses
from tpsim.layouts.walk import SPLIT, named, ordered, together
from tpsim.program.stages import Chunk
from tpsim.quantity.once import Once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.cost.peak import Changes
    from tpsim.layouts.figures import Figures
    from tpsim.layouts.sorts import Sorts
    from tpsim.layouts.walk import Now
    from tpsim.program.kinds import Layers

MORE = 2
"""Layers of a kind, beyond those that are gathered ahead, whose changes of memory are read: the others do alike."""


@dataclass
class Peaks(Once):
    """Bytes of layouts of one program.

    They are asked for by cells: numbers of those of `figures`, all with chunks of the same sorts.

    sorts  all that are asked for
    """

    figures: Figures
    sorts: Iterable[Sorts]

    @cached_property
    def courses(self) -> Mapping[frozenset[str], Courses]:
        """What the actions of its program change, by the axes that are of one device."""
        figures = self.figures
        keeps = figures.example.practice.keeps
        return {
            axes: Courses(figures.lowered.turnover(axes), figures.sizes, keeps, figures.buffers)
            for axes in dict.fromkeys(figures.alone)
        }

    @property
    def _ahead(self) -> int:
        return self.figures.lowered.program.ahead

    def peak_bytes(self, cells: Any, schedule: str, sorts: Sorts) -> Any:
        """What the fullest rank holds at its peak, per cell."""
        many = self.figures.microbatches[cells]
        orders, of = ordered(schedule, sorts.ranks, len(sorts.of) // sorts.ranks, many)
        left = self._left(sorts, split=named(schedule) == SPLIT)[:, cells]
        places = together(schedule, sorts.ranks, orders, sorts.of)
        ranked, now = places.at[:, :, None]
        states, tops = self._states(sorts)[ranked, cells], self._tops(sorts, places.nows)[now, cells]
        level = states + tops + _beside(places.counts, left, of) - places.never[:, of]
        if places.more is not None:
            level = level + _beside(places.more, left, of) * (many - 1)
        return level.max(axis=0)

    def least_bytes(self, cells: Any, sorts: Sorts) -> Any:
        """What the fullest rank holds from step to step, per cell: at its peak it holds no less."""
        return self._states(sorts)[:, cells].max(axis=0)

    def _states(self, sorts: Sorts) -> Any:
        """What ranks hold from step to step, [rank that differs, cell]."""

        def each(whole: Chunk) -> Any:
            return self._once(("states", whole), partial(self.figures.standing_bytes, whole))

        return self._once(("states", sorts), lambda: np.stack([*map(each, sorts.ranked.values())]))

    def _tops(self, sorts: Sorts, nows: tuple[Now, ...]) -> Any:
        """What actions hold at most, [action, cell]."""
        return np.stack([self._course(acts)[0][self._numbers[sorts.chunks[sort]]] for sort, acts in nows])

    def _left(self, sorts: Sorts, *, split: bool) -> Any:
        """What a microbatch of each sort leaves behind F; then, where backward is split, behind B, which W takes."""

        def compute() -> Any:
            numbers = [self._numbers[chunk] for chunk in sorts.chunks]
            left = self._course("F")[1][numbers]
            return np.concatenate([left, -self._course("W")[1][numbers]]) if split else left

        return self._once((sorts, split), compute)

    def _course(self, acts: str) -> tuple[Any, Any]:
        """Bytes where an action holds most, and those that it leaves: [chunk, cell]."""

        def course(courses: Courses) -> list[Any]:
            folded = [self._folded(courses, few, stacks, acts) for few, stacks in self._traced.items()]
            return [np.concatenate(each) for each in zip(*folded, strict=True)]

        def compute() -> Any:
            known = {axes: at for at, axes in enumerate(self.courses)}
            here = np.array([known[axes] for axes in self.figures.alone])[self.figures.on]
            return [np.choose(here, each) for each in zip(*map(course, self.courses.values()), strict=True)]

        return self._once(acts, compute)  # type: ignore[no-any-return]  # two of them

    @cached_property
    def _traced(self) -> Mapping[Chunk, list[Layers]]:
        """As chunks are traced, with so few layers, the stacks that they have."""
        traced: defaultdict[Chunk, list[Layers]] = defaultdict(list)
        for chunk in dict.fromkeys(chunk for sorts in self.sorts for chunk in sorts.chunks):
            few = tuple((kind, many) for kind, many in chunk.stack if many)
            if self._repeats(few):
                few = tuple((kind, self._ahead + MORE) for kind, _ in few)
            traced[Chunk(0, few, chunk.first, chunk.last)].append(chunk.stack)
        return traced

    def _repeats(self, stack: Layers) -> bool:
        """True where layers of a kind gather alike: not where some do for another kind that is not the next layer."""
        ahead = self._ahead
        return ahead <= 1 or (len(stack) == 1 and stack[0][1] >= ahead)

    @cached_property
    def _numbers(self) -> Mapping[Chunk, int]:
        """The number of every chunk."""
        every = ((few, stack) for few, stacks in self._traced.items() for stack in stacks)
        return {Chunk(0, stack, few.first, few.last): number for number, (few, stack) in enumerate(every)}

    def _folded(self, courses: Courses, few: Chunk, stacked: Sequence[Layers], acts: str) -> tuple[Any, Any]:
        """The parts of an action one behind the other: where one repeats, its highest point is in the first or last.

        Both of chunks with such stacks: [chunk, cell].
        """
        stacks = [[many for _, many in stack if many] for stack in stacked]
        many = np.array(stacks).T[:, :, None]
        runs = [*self._runs(courses, few, acts)]
        often = [times for *_, times in runs]
        if self._repeats(few.stack):
            ahead, kinds = self._ahead, many if acts == "F" else many[::-1]
            often[3:-2] = [times for n in kinds for times in ((n - ahead, ahead) if ahead else (n,))]
        level, top = 0, 0  # type: Any, Any
        for (net, most, _), times in zip(runs, often, strict=True):
            if most is not None:
                highest = np.maximum(top, level + most)
                if np.ndim(times) or times > 1:
                    last = level + (times - 1) * net + most
                    highest = np.where(times > 0, np.maximum(highest, last), top)
                level, top = level + times * net, highest
        shape = len(stacks), len(self.figures.on)
        return np.broadcast_to(top, shape), np.broadcast_to(level, shape)

    def _runs(self, courses: Courses, chunk: Chunk, acts: str) -> Iterator[tuple[Any, Any, int]]:
        """What each part of an action adds, where that is most, and how often it follows itself; none without ops."""
        for run, times in courses.changes(chunk, acts):
            net, most = self._once(("run", id(run)), partial(self._summed, courses, run))[:2] if run else (0, None)
            yield net, most, times

    def _summed(self, courses: Courses, changes: Changes) -> tuple[Any, Any, Changes]:
        """What changes come to, where that is most, and they: as long as they live, their identity is theirs."""
        level, most, grows = 0, 0, False  # type: Any, Any, bool
        for what, sign in changes:
            if sign > 0:
                level = level + courses.bytes_of(what)
            else:  # before what grows shrinks again it is most
                most = np.maximum(most, level) if grows else most
                level = level - courses.bytes_of(what)
            grows = sign > 0
        return level, np.maximum(most, level) if grows else most, changes


def _beside(counts: Any, left: Any, of: Any) -> Any:
    """Bytes of what stands beside an action, [place, cell]; of: the order of each cell."""
    return np.einsum("pcs,sc->pc", counts[:, of, : len(left)], left)
