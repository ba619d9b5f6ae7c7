"""Layouts of inference: what chips hold of each, and how many sequences they have room for, as arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.layouts.figures import Figures
from tpsim.layouts.peaks import Peaks
from tpsim.layouts.sorts import Sorts, sorts
from tpsim.quantity.room import most
from tpsim.question.serving import prefill_of, unit_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tpsim.layouts.group import Group
    from tpsim.layouts.walk import Now
    from tpsim.question.memo import Memo
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question

NEAR = 1e-9
"""Of a chip's memory: arrays, which round, are no further off than that."""


class Known(NamedTuple):
    """What memory tells of layouts.

    peak_bytes, room_bytes  of the fullest chip: what it holds at most, and what is left; 0 where it may fit
    batches  where a scenario asks for it, the most sequences with room; 0: none, -1: not known
    """

    peak_bytes: Any
    room_bytes: Any
    batches: Any


@dataclass
class Replied(Peaks):
    """What is held while a prompt is read, or while it is replied to, whichever is more.

    prompt  what reading it does to memory
    """

    prompt: Peaks | None = None

    def _tops(self, sorts: Sorts, nows: tuple[Now, ...]) -> Any:
        own = super()._tops(sorts, nows)
        return own if self.prompt is None else np.maximum(own, self.prompt._tops(sorts, nows))  # noqa: SLF001 - alike


@dataclass(frozen=True)
class Served:
    """The layouts of one program of inference; arrays have a number of each of its group's cells."""

    group: Group
    memo: Memo
    prices: dict[Hashable, Any]

    @cached_property
    def known(self) -> Known:
        """What memory tells of each; nothing where plans choose paths of their own, and hold what these make."""
        count, base = len(self.group.on), self.group.base
        if base.planner == "cheapest":
            return Known(np.zeros(count), np.zeros(count), None)
        if base.inference and base.inference.fills:
            return Known(np.zeros(count), np.zeros(count), self._largest())
        peak_bytes, room_bytes = self._held()
        return Known(peak_bytes, np.where(room_bytes < -self._near, room_bytes, 0), None)

    @cached_property
    def _cells(self) -> Mapping[Sorts, Any]:
        """The cells whose stages have layers alike."""
        question, group = self.group.example, self.group
        cells: defaultdict[tuple[Split, int], list[Any]] = defaultdict(list)
        for turns in group.turns:
            cells[turns.split or (question.model.layers,), group.sites[turns.mesh].ways.pp].append(turns.cells)
        alike = question.practice, question.model.stack
        return {sorts(*asked, *alike): np.concatenate(some) for asked, some in cells.items()}

    def _held(self, batch: Any = None) -> tuple[Any, Any]:
        """What the fullest chip holds at most, and what that leaves of it; batch: sequences, if others are asked of."""
        question = self.group.example
        if batch is not None:
            question = replace(question, workload=replace(question.workload, global_batch=batch))
        prompt = self._peaks(prefill_of(question)) if question.workload.kind == "serve" else None
        peaks = self._peaks(replace(question, workload=question.workload.at_peak), prompt)
        peak_bytes = np.zeros(len(self.group.on))
        for alike, cells in self._cells.items():
            peak_bytes[cells] = peaks.peak_bytes(cells, "", alike)
        beside = question.assume.memory.beside(peak_bytes)
        return peak_bytes, self._capacity - (peak_bytes + beside)

    def _peaks(self, question: Question, prompt: Peaks | None = None) -> Peaks:
        group = self.group
        figures = Figures(question, group.meshes, group.on, group.microbatches, self.memo, self.prices)
        return Replied(figures, [*self._cells], prompt)

    @property
    def _capacity(self) -> float:
        return float(self.group.example.machine.chip.memory.capacity.value)

    @property
    def _near(self) -> float:
        """Bytes: arrays round, and are no further off; where they are nearer to a limit they do not tell."""
        return NEAR * self._capacity

    def _largest(self) -> Any:
        """The most sequences with room, as `plan` finds them; -1 where it has to be asked."""
        units = most(self._rooms)
        left, lacks = self._rooms(np.maximum(units, 1)), self._rooms(units + 1)
        sure = np.minimum(abs(left), abs(lacks)) > self._near
        return np.where(sure, units * self._units, -1).astype(int)

    def _rooms(self, units: Any) -> Any:
        return self._held(units * self._units)[1]

    @cached_property
    def _units(self) -> Any:
        """What a layout splits sequences into."""
        return np.array([unit_of(case) for case in self.group.meshes], dtype=float)[self.group.on]
