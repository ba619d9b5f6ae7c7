"""What layouts hold at their peak, exactly, and seconds that no step of theirs takes less than; as arrays.

The seconds of an action are those of the timeline; between actions only what cannot be escaped is counted: a rank
begins when the first microbatch has come to it, works all of its own, and what it did last must come back to the first
stage. Each rank says so of the step; the greatest holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.peak import Courses
from tpsim.layouts.walk import alive, chunk_of, sort_of
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from tpsim.layouts.figures import Figures
    from tpsim.layouts.walk import Alive, Now
    from tpsim.question.question import Question

TRACED = 3
"""Layers of a chunk whose changes of memory are read: of one that has others, what is repeated is repeated as often."""


@dataclass
class Bounds:
    """Bytes and seconds of layouts of one program.

    They are asked for by cells: numbers of those of `figures`, all with as many stages and layers to a chunk.
    """

    figures: Figures
    _known: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.courses = Courses(self.figures.lowered.program, self.figures.sizes, self.figures.example.practice.keeps)

    def _once(self, key: Hashable, found: Any) -> Any:
        if (known := self._known.get(key)) is None:
            known = self._known[key] = found()
        return known

    # Bytes --------------------------------------------------------------------------------------------------------

    def peak_bytes(self, cells: Any, schedule: str, p: int, v: int, layers: int) -> Any:
        """What the fullest rank holds at its peak, per cell."""
        m = int(self.figures.microbatches[cells[0]])
        ranks = [
            self._once(("standing", sort), lambda sort=sort: self.figures.standing_bytes(sort))
            + reduce(np.maximum, (self._held(one, layers) for one in most))
            for sort, most in alive(schedule, p, v, m).items()
        ]
        return reduce(np.maximum, ranks)[cells]

    def _held(self, one: Alive, layers: int) -> Any:
        """Bytes beside states where that much is alive."""
        return self._once(
            (one, layers),
            lambda: (
                self._top(one.now, layers)
                + total(
                    f * self._net((sort, "F"), layers) - (w * self._net((sort, "W"), layers) if alive else 0)
                    for sort, f, w, alive in self._beside(one)
                )
            ),
        )

    def _beside(self, one: Alive) -> Iterator[tuple[str, Any, Any, bool]]:
        """What stands beside an action, per cell, and whether anything does between B and W."""
        more = one.more or ((0, 0),) * len(one.beside)
        for (sort, f, w), (each_f, each_w) in zip(one.beside, more, strict=True):
            if f or w or each_f or each_w:
                others = self.figures.microbatches - 1 if one.more else 0
                yield sort, f + each_f * others, w + each_w * others, bool(w or each_w)

    def _top(self, now: Now, layers: int) -> Any:
        return self._course(now, layers)[0]

    def _net(self, now: Now, layers: int) -> Any:
        return self._course(now, layers)[1]

    def _course(self, now: Now, layers: int) -> Any:
        """Bytes where an action holds most, and those that it leaves."""
        runs = self._once(now, lambda: self._runs(now))
        return self._once((now, layers), lambda: _folded(runs, layers, len(self.figures.cells)))

    def _runs(self, now: Now) -> list[tuple[Any, Any, bool]]:
        """What each part of an action adds, where that is most, and whether all layers but one repeat it."""
        runs = self.courses.changes(chunk_of(now[0], TRACED), now[1])
        changed = (([change for _, change in run], times) for run, times in runs)
        return [(*self._summed(run), times > 1) for run, times in changed if run]

    def _summed(self, run: Sequence[Any]) -> tuple[Any, Any]:
        """What changes come to, and where that is most; chunks of all sorts have the same ones of a layer."""

        def found() -> tuple[Any, Any, Any]:
            held, most = 0, 0  # type: Any, Any
            for change in run:
                held = held + change
                most = np.maximum(most, held)
            return held, most, run  # as long as a run is kept, what it is made of is known by its identity

        held, most, _ = self._once(("run", *map(id, run)), found)
        return held, most

    # Seconds ------------------------------------------------------------------------------------------------------

    def step_s(
        self, cells: Any, schedule: str, p: int, v: int, layers: int, *, blocking: bool, alone: bool = False
    ) -> Any:
        """Seconds that no step takes less than; alone: of actions those of their kernels, which are quickly known."""
        taken = self.figures.worked_s if alone else self.figures.action_s

        def of(sort: str, acts: str) -> Any:
            return self._once((sort, acts, layers, alone), lambda: taken(sort, acts, layers))[cells]

        def once(sort: str) -> Any:
            return self._once(
                ("once", sort), lambda: np.broadcast_to(self.figures.once_s(sort), len(self.figures.cells))
            )[cells]

        m = self.figures.microbatches[cells]
        if p == 1:
            return m * (of("only", "F") + of("only", "BW")) + once("only")
        hop = self.figures.hop_s[cells]
        split = any("W" not in key for key in _acts(schedule) if key != "F")
        back = "B" if split else "BW"
        held_up = _Gaps(m, hop) if blocking and v == 1 else None
        found = []
        for rank in sorted({0, max(p - 2, 0), p - 1}):
            mine = [sort_of(chunk, p * v) for chunk in range(rank, p * v, p)]
            there = _chain(of, "F", rank, hop)
            home = _chain(of, back, rank, hop) + (of("first", "W") if split and rank else 0) + once("first")
            forth = m * total(of(sort, "F") for sort in mine)
            backs = m * total(of(sort, back) for sort in mine)
            late = m * total(of(sort, "W") for sort in mine) if split else 0
            waits = held_up.of(rank, p) if held_up else 0
            own = once(sort_of(rank, p))
            found.append(there + forth + backs + waits + np.maximum(late + own, home))
        return reduce(np.maximum, found)

    def worked_s(self, cell: int, question: Question) -> float:
        """Seconds that the kernels of the busiest rank take, whatever kinds of layers it has."""
        works = [(where, np.broadcast_to(s, len(self.figures.cells))[cell]) for where, s in self.figures.works("FBW")]
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


def _chain(of: Any, acts: str, rank: int, hop: Any) -> Any:
    """Seconds of a microbatch through all chunks before the first one of a rank, and to it."""
    if rank == 0:
        return 0
    return of("first", acts) + (rank - 1) * (of("middle", acts) if rank > 1 else 0) + rank * hop


def _acts(schedule: str) -> set[str]:
    """The acts of a schedule's actions."""
    return {"".join(part.act for part in action) for order in SCHEDULES[schedule].orders(2, 2, 2) for action in order}


def _folded(runs: Sequence[tuple[Any, Any, bool]], layers: int, cells: int) -> tuple[Any, Any]:
    """The runs one behind the other: of those that repeat alike, the highest point is in the first or in the last."""
    held, top = 0, 0  # type: Any, Any
    for net, most, repeats in runs:
        times = layers - 1 if repeats else 1
        if times:
            top = np.maximum(top, held + most + np.maximum(0, (times - 1) * net))
            held = held + times * net
    return np.broadcast_to(top, cells), np.broadcast_to(held, cells)
