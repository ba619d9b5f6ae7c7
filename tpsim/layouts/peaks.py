"""What layouts hold at their peak, exactly, as arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tpsim.cost.peak import Activations, Courses
from tpsim.layouts.states import States
from tpsim.layouts.walk import SPLIT, named, ordered, together
from tpsim.program.stages import Chunk
from tpsim.quantity.once import Once

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from tpsim.cost.peak import Changes
    from tpsim.layouts.figures import Figures
    from tpsim.layouts.sorts import Alike, Sorts
    from tpsim.program.kinds import Layers

T = TypeVar("T")

CELLS = 2048
"""Cells whose courses are worked out at once: as many as a processor keeps at hand."""

NOTHING: Changes = ()

MORE = 2
"""Layers of a kind, beyond those that are gathered ahead, whose changes of memory are read: the others do alike."""


@dataclass
class Peaks(Once):
    """Bytes of layouts of one program; what is asked of several is told as one array, of one behind the other.

    every  all that are asked for
    """

    figures: Figures
    every: Sequence[Alike]

    def least_bytes(self, some: Sequence[Alike]) -> Any:
        """What the fullest rank holds from step to step at least, per layout: no step need be traced to know it."""
        return self._fullest(self._least, some)

    def active_bytes(self, other: Peaks, some: Sequence[Alike]) -> Any:
        """What it holds at its peak at least, per layout, by activations of a program that is alike but for ZeRO."""
        return np.concatenate([self._level(alike, self._least, *other.activations) for alike in some])

    def states_bytes(self, some: Sequence[Alike]) -> Any:
        """What the fullest rank holds from step to step, per layout: at its peak it holds no less."""
        return self._fullest(self._states, some)

    def host_bytes(self, some: Sequence[Alike]) -> Any:
        """What the rank that has most on its host has there, per layout."""
        return self._fullest(self._stand.on_hosts([*self._ranks]), some)

    def _fullest(self, states: Any, some: Sequence[Alike]) -> Any:
        known = {
            sorts: states[[self._ranks[whole] for whole in sorts.ranked.values()]].max(axis=0)
            for sorts in dict.fromkeys(alike.sorts for alike in some)
        }
        return np.concatenate([known[alike.sorts][alike.cells] for alike in some])

    def peak_bytes(self, some: Sequence[Alike]) -> Any:
        """What the fullest rank holds at its peak, per layout."""
        return np.concatenate([self._level(alike, self._states, *self._actions) for alike in some])

    def _level(self, alike: Alike, states: Any, tops: Any, left: Any) -> Any:
        """What the fullest rank holds where that is most, by what stands there and what actions hold and leave.

        states  [rank, cell]
        tops    of actions: [action, cell]; all chunks of an act stand side by side
        left    by a microbatch behind F, in every chunk; then, where backward is split, behind B, which W takes
        """
        schedule, sorts, cells = alike
        p, many = sorts.ranks, self.figures.microbatches[cells]
        orders, of = ordered(schedule, p, len(sorts.of) // p, many)
        places = together(schedule, p, orders, sorts.of)
        chunks, (rank, now) = np.array([self._chunks[chunk] for chunk in sorts.chunks]), places.at
        ranks = np.array([self._ranks[sorts.ranked[sort]] for sort in places.ranks])
        nows = np.array([self._acts[acts] * len(self._chunks) + chunks[sort] for sort, acts in places.nows])
        columns = [*chunks, *(chunks + len(self._chunks) if named(schedule) == SPLIT else ())]
        level = states[ranks[rank][:, None], cells] + tops[nows[now][:, None], cells]
        left = left[np.array(columns)[:, None], cells]
        level = level + _beside(places.counts, left, of) - places.never[:, of]
        if places.more is not None:
            level = level + _beside(places.more, left, of) * (many - 1)
        return level.max(axis=0)

    # What stands there ---------------------------------------------------------------------------------------------

    @cached_property
    def _sorts(self) -> list[Sorts]:
        """All that are asked for."""
        return [*dict.fromkeys(alike.sorts for alike in self.every)]

    @cached_property
    def _ranks(self) -> Mapping[Chunk, int]:
        """All chunks of a rank as one, each with its number."""
        return _numbered(whole for sorts in self._sorts for whole in sorts.ranked.values())

    @cached_property
    def _chunks(self) -> Mapping[Chunk, int]:
        """The chunks, each with its number: those that are traced alike stand side by side."""
        return _numbered(chain.from_iterable(self._traced.values()))

    @cached_property
    def _traced(self) -> Mapping[Chunk, list[Chunk]]:
        """The chunks by how they are traced: with so few layers."""
        traced: defaultdict[Chunk, list[Chunk]] = defaultdict(list)
        for chunk in dict.fromkeys(chunk for sorts in self._sorts for chunk in sorts.chunks):
            few = _some(chunk.stack)
            if self._repeats(few):
                few = tuple((kind, self._ahead + MORE) for kind, _ in few)
            traced[Chunk(0, few, chunk.first, chunk.last)].append(chunk)
        return traced

    def _repeats(self, stack: Layers) -> bool:
        """True where layers of a kind gather alike: not where some do for another kind that is not the next layer."""
        ahead = self._ahead
        return ahead <= 1 or (len(stack) == 1 and stack[0][1] >= ahead)

    @cached_property
    def _acts(self) -> Mapping[str, int]:
        """The acts of their actions, each with its number."""
        return _numbered(acts for alike in self.every for acts in named(alike.schedule))

    @cached_property
    def _stand(self) -> States:
        return States(self.figures)

    @cached_property
    def _least(self) -> Any:
        """What ranks hold from step to step at least: [rank, cell]."""
        return self._stand.least_bytes([*self._ranks])

    @cached_property
    def _states(self) -> Any:
        """What ranks hold from step to step: [rank, cell]."""
        return self._stand.bytes([*self._ranks])

    @property
    def actions(self) -> tuple[Hashable, ...]:
        """What tells its actions from those of other programs."""
        return *self._chunks, *self._acts

    # What actions do -----------------------------------------------------------------------------------------------

    @cached_property
    def courses(self) -> Mapping[frozenset[str], Courses]:
        """What the actions of its program change, by the axes that are of one device."""
        figures = self.figures
        keeps = figures.example.practice.keeps
        return {
            axes: Courses(figures.lowered.turnover(axes), figures.sizes, keeps, self._stand.buffers)
            for axes in dict.fromkeys(figures.alone)
        }

    @property
    def _ahead(self) -> int:
        return self.figures.example.practice.layers_ahead

    @cached_property
    def _actions(self) -> tuple[Any, Any]:
        """What all of them hold at most, and what they leave, as of `_level`."""
        return self._of_actions(self.courses)

    @cached_property
    def activations(self) -> tuple[Any, Any]:
        """The same of activations alone."""
        figures = self.figures
        keeps = figures.example.practice.keeps
        courses = {axes: Activations(figures.lowered.turnover(axes), figures.sizes, keeps) for axes in self.courses}
        return self._of_actions(courses)

    def _of_actions(self, courses: Mapping[frozenset[str], Courses]) -> tuple[Any, Any]:
        known = {axes: at for at, axes in enumerate(courses)}
        here = np.array([known[axes] for axes in self.figures.alone])[self.figures.on]
        folded = zip(*map(self._folded, courses.values()), strict=True)
        tops, left = (np.choose(here, each) for each in folded)
        many = len(self._chunks)
        split = [-left[at * many :][:many] for acts, at in self._acts.items() if acts == SPLIT[-1]]
        forward = self._acts[SPLIT[0]] * many
        return tops, np.concatenate([left[forward:][:many], *split])

    def _folded(self, courses: Courses) -> tuple[Any, Any]:
        """Where actions hold most, and what they leave: [action, cell].

        The parts of each stand one behind the other: where one repeats, its highest point is in its first or last.
        """
        every = [part for acts in self._acts for part in self._parts_of(courses, acts)]
        most = max(len(runs) for runs, _ in every)
        unlike = {id(run): run for runs, _ in every for run in (*runs, NOTHING)}
        numbers = {key: number for number, key in enumerate(unlike)}
        parts = [[numbers[id(run)] for run in (*runs, *[NOTHING] * (most - len(runs)))] for runs, _ in every]
        which = np.repeat(parts, [len(times) for _, times in every], axis=0).T
        often = np.array([[*times, *[0] * (most - len(times))] for _, alike in every for times in alike]).T
        sums = [self._summed(courses, run) for run in unlike.values()]
        nets, mosts = (
            np.stack([self.figures.whole(each) for each in some]).astype(float) for some in zip(*sums, strict=True)
        )
        few = (slice(start, start + CELLS) for start in range(0, len(self.figures.on), CELLS))
        folded = [_fold(nets[:, cells], mosts[:, cells], which, often[:, :, None]) for cells in few]
        tops, left = (np.concatenate(each, axis=1) for each in zip(*folded, strict=True))
        return tops, left

    def _parts_of(self, courses: Courses, acts: str) -> Iterator[tuple[list[Changes], list[list[int]]]]:
        """What an action changes before its layers, in each kind of these, and behind them: of chunks traced alike.

        Then of every chunk how often each of that follows itself.
        """
        for few, chunks in self._traced.items():
            runs = courses.changes(few, acts)
            before, behind = ([*chain.from_iterable(run for run, _ in some)] for some in (runs[:3], runs[-2:]))
            layers, as_traced = zip(*runs[3:-2], strict=True) if runs[3:-2] else ((), ())
            often = (self._often(_some(chunk.stack), acts) or as_traced for chunk in chunks)
            yield [before, *layers, behind], [[1, *times, 1] for times in often]

    def _often(self, stack: Layers, acts: str) -> list[int]:
        """How often parts of layers follow themselves where these gather alike."""
        many, ahead = [many for _, many in (stack if acts == "F" else stack[::-1])], self._ahead
        alike = many if self._repeats(stack) else ()
        return [times for n in alike for times in ((n - ahead, ahead) if ahead else (n,))]

    def _summed(self, courses: Courses, run: Changes) -> tuple[Any, Any]:
        """What changes come to, and where that is most."""
        level, most, grows = 0, 0, False  # type: Any, Any, bool
        for what, sign in run:
            if sign > 0:
                level = level + courses.bytes_of(what)
            else:  # before what grows shrinks again it is most
                most = np.maximum(most, level) if grows else most
                level = level - courses.bytes_of(what)
            grows = sign > 0
        return level, np.maximum(most, level) if grows else most


def _fold(nets: Any, mosts: Any, which: Any, often: Any) -> tuple[Any, Any]:
    """Where parts one behind the other hold most, and what they come to: [chunk, cell].

    nets, mosts   of each: [run, cell]
    which, often  of every chunk its parts in turn, and how often each follows itself: [part, chunk]
    """
    level, top = 0, 0  # type: Any, Any
    for part, times in zip(which, often, strict=True):
        net, highest = nets[part], level + mosts[part]
        if (times > 1).any():
            highest += np.maximum(times - 1, 0) * np.maximum(net, 0)
        if (times != 1).any():
            highest *= times > 0
            net *= times
        top, level = np.maximum(top, highest), level + net
    return top, level


def _beside(counts: Any, left: Any, of: Any) -> Any:
    """Bytes of what stands beside an action, [place, cell]; of: the order of each cell."""
    return np.einsum("pcs,sc->pc", counts[:, of, : len(left)], left)


def _some(stack: Layers) -> Layers:
    """The kinds of which there are any."""
    return tuple((kind, many) for kind, many in stack if many)


def _numbered(some: Iterable[T]) -> dict[T, int]:
    """Each of what is told, with its number."""
    return {one: number for number, one in enumerate(dict.fromkeys(some))}
