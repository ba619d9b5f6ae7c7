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
from tpsim.layouts.served import Served, planned_alone
from tpsim.layouts.sorts import sorts
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from tpsim.layouts.family import Measure, Weighed
    from tpsim.layouts.group import Group
    from tpsim.layouts.layout import Order
    from tpsim.layouts.served import Told
    from tpsim.layouts.sorts import Sorts
    from tpsim.question.memo import Memo
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question


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
            yield from self._of_inference()
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
        """Layouts whose layers seconds split: each is asked for itself, and kernels are the bound."""
        asked = [self._asked(int(cell), order) for cell in cells]
        steps = np.array([self.bounds.worked_s(*each) for each in zip(cells, asked, strict=True)])
        weighed = [self.measure(question, self.memo)._replace(step_s=0, paid_s=0) for question in asked]
        family = self._each(order, cells, weighed)
        family.step_s = family.paid_s = steps
        return family

    def _of_inference(self) -> Iterator[Family]:
        """Layouts of inference; where plans alone tell, or arrays are not sure, each is asked for itself."""
        served = Served(self.group, self.memo, self.prices)
        told = None if planned_alone(self.group.base) else served.told()
        for mesh, order, _, cells in self.group.turns:
            if told and (reason := told.refused(mesh, cells)):
                self.refused[reason] += len(cells)
            elif told and told.sure[cells].all():
                yield self._told(order, cells, told)
            else:
                try:
                    weighed = [self.measure(self._asked(int(cell), order), self.memo) for cell in cells]
                    yield self._each(order, cells, weighed)
                except InputError as error:
                    self.refused[error.problems[0].slug] += len(cells)

    def _told(self, order: Order, cells: Any, told: Told) -> Family:
        """Layouts that arrays tell of."""
        tokens = int(told.batches[cells[0]]) * self.group.base.workload.seq
        held, able = (told.peak_bytes[cells], told.room_bytes[cells]), np.ones(len(cells), dtype=bool)
        paid_s = None if told.paid_s is None else told.paid_s[cells]
        family = Family(self.group, order, cells, np.zeros(len(cells)), *held, able, tokens, paid_s)
        family.nearer = lambda _: told.step_s[cells][family.fitting]
        family.bound()
        family.may_do &= told.may_do[cells]
        return family

    def _asked(self, cell: int, order: Order) -> Question:
        return self.group.spaces[int(self.group.on[cell])].question(self.group.layout(cell, order), self.memo)

    def _each(self, order: Order, cells: Any, weighed: Sequence[Weighed]) -> Family:
        peak_bytes, room, _, steps, paid, may_do = map(np.array, zip(*weighed, strict=True))
        return Family(self.group, order, cells, steps, peak_bytes, room, may_do, weighed[0].tokens, paid)
