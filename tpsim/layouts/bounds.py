"""What layouts hold at their peak, exactly, and seconds that no step of theirs takes less than; as arrays.

The seconds of an action are those of the timeline; between actions only what cannot be escaped is counted: a rank
begins when the first microbatch has come to it, works all of its own, and what it did last must come back to the first
stage. Each rank says so of the step; the greatest holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.peak import Courses
from tpsim.layouts.figures import Figures, chunk_of
from tpsim.layouts.walk import alive, sort_of
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tpsim.layouts.walk import Alive, Now

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
        if key not in self._known:
            self._known[key] = found()
        return self._known[key]

    # Bytes --------------------------------------------------------------------------------------------------------

    def peak_bytes(self, cells: Any, schedule: str, p: int, v: int, layers: int) -> Any:
        """What the fullest rank holds at its peak, per cell; they have the same microbatches if these matter."""
        m = int(self.figures.microbatches[cells[0]])
        ranks = []
        for sort, most in alive(schedule, p, v, m).items():
            held = [self._held(one, layers)[cells] for one in most]
            ranks.append(
                self._once(("standing", sort), lambda sort=sort: self.figures.standing_bytes(sort))[cells]
                + np.max(held, axis=0)
            )
        return np.max(ranks, axis=0)

    def _held(self, one: Alive, layers: int) -> Any:
        """Bytes beside states where that much is alive."""
        return self._once(
            (one, layers),
            lambda: (
                self._top(one.now, layers)
                + total(
                    f * self._net((sort, "F"), layers) - (w * self._net((sort, "W"), layers) if w else 0)
                    for sort, f, w in one.beside
                    if f or w
                )
            ),
        )

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
        found = []
        for run, times in self.courses.changes(chunk_of(now[0], TRACED), now[1]):
            held, most = 0, 0  # type: Any, Any
            for _, change in run:
                held = held + change
                most = np.maximum(most, held)
            if run:
                found.append((held, most, times > 1))
        return found

    # Seconds ------------------------------------------------------------------------------------------------------

    def step_s(self, cells: Any, schedule: str, p: int, v: int, layers: int, *, blocking: bool) -> Any:
        """Seconds that no step takes less than."""

        def of(sort: str, acts: str) -> Any:
            return self._once((sort, acts, layers), lambda: self.figures.action_s(sort, acts, layers))[cells]

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
        return np.max(found, axis=0)


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
