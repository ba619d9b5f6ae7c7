"""What weighs the layouts of one program: bytes of each, and seconds that its step does not take less than."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.layouts.bounds import Bounds
from tpsim.layouts.family import Family
from tpsim.layouts.figures import Figures
from tpsim.layouts.orders import BALANCED
from tpsim.layouts.peaks import Peaks
from tpsim.layouts.sorts import sorts
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from tpsim.layouts.family import Measure
    from tpsim.layouts.group import Group
    from tpsim.layouts.layout import Order
    from tpsim.layouts.sorts import Sorts
    from tpsim.question.memo import Memo
    from tpsim.question.pipeline import Split


@dataclass
class Evaluator:
    """What weighs the layouts of one program, and counts those that have no price."""

    group: Group
    memo: Memo
    prices: dict[Hashable, Any]
    refused: Counter[str]
    measure: Measure

    def __post_init__(self) -> None:
        group = self.group
        if group.base.inference:
            return  # a plan takes milliseconds: all are asked for
        self.figures = Figures(group.example, group.meshes, group.on, group.microbatches, self.memo, self.prices)
        self.figures.calls.price_all()
        self.bounds = Bounds(self.figures)

    def families(self) -> Iterator[Family]:
        """All of them."""
        if self.group.base.inference:
            for _, order, _, cells in self.group.turns:
                try:
                    yield self._one_by_one(order, cells)
                except InputError as error:
                    self.refused[error.problems[0].slug] += len(cells)
            return
        alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for mesh, order, split, cells in self.group.turns:
            if reason := self.figures.calls.refused(mesh, around=order.chunks > 1):
                self.refused[reason] += len(cells)
            elif order.layers == BALANCED:  # which is not what layers alone say
                yield self._one_by_one(order, cells)
            else:
                pp, space = self.group.sites[mesh].ways.pp, id(self.group.spaces[mesh])
                alike[space, order, pp, split or (self.group.example.model.layers,)].append(cells)
        several = [self._sorts(pp, split) for *_, pp, split in alike]
        peaks = Peaks(self.figures, several)
        for ((_, order, *_), members), each in zip(alike.items(), several, strict=True):
            yield self._family(order, each, np.concatenate(members), peaks)

    def _sorts(self, pp: int, split: Split) -> Sorts:
        question = self.group.example
        key = ("sorts", pp, split, question.practice.recompute_layers, question.model.stack)
        if key not in self.prices:
            self.prices[key] = sorts(split, pp, question.practice, question.model.stack)
        return self.prices[key]  # type: ignore[no-any-return]  # put there above

    def _family(self, order: Order, sorts: Sorts, cells: Any, peaks: Peaks) -> Family:
        schedule, overlap = order.schedule, self.group.example.practice.overlap
        blocking = bool(schedule) and overlap.blocks_stages(usual=SCHEDULES[schedule].blocking) is True
        least = peaks.least_bytes(cells, sorts)

        def seconds(some: Any) -> Any:
            return self.bounds.step_s(some, schedule, sorts, blocking=blocking)

        family = Family(
            self.group,
            order,
            cells,
            np.zeros(len(cells)),
            *self._held(least),
            np.ones(len(cells), dtype=bool),
            self.group.base.workload.tokens,
            None,
            seconds,
            lambda: self._held(peaks.peak_bytes(cells, schedule, sorts)),
        )
        if family.fitting.any():
            family.hold()
        if (fits := family.fitting).any():
            family.step_s[fits] = self.bounds.rough_s(cells[fits], schedule, sorts)
            if self.group.example.limits:
                family.bound()
        return family

    def _held(self, peak_bytes: Any) -> tuple[Any, Any]:
        """What a chip holds, and what that leaves of it."""
        question = self.group.example
        beside = question.assume.memory.beside(peak_bytes)
        return peak_bytes, float(question.machine.chip.memory.capacity.value) - (peak_bytes + beside)

    def _one_by_one(self, order: Order, cells: Any) -> Family:
        """Layouts that are each asked for itself; of training, where seconds split layers, kernels are the bound."""
        layouts = (self.group.layout(int(cell), order) for cell in cells)
        space = self.group.spaces[int(self.group.on[cells[0]])]
        asked = [space.question(layout, self.memo) for layout in layouts]
        weighed = [self.measure(question, self.memo) for question in asked]
        peak_bytes, room, _, steps, paid, may_do = map(np.array, zip(*weighed, strict=True))
        if not self.group.base.inference:
            steps = paid = np.array([self.bounds.worked_s(*each) for each in zip(cells, asked, strict=True)])
        known = steps, peak_bytes, room, may_do, weighed[0].tokens, paid
        return Family(self.group, order, cells, *known)
