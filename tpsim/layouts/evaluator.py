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
from tpsim.layouts.sorts import Alike, sorts
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tpsim.layouts.family import Held, Measure
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
        several = [
            Alike(order.schedule, self._sorts(pp, split), np.concatenate(members))
            for (_, order, pp, split), members in alike.items()
        ]
        yield from self._together([order for _, order, *_ in alike], several)

    def _together(self, orders: Sequence[Order], several: Sequence[Alike]) -> list[Family]:
        """Families of layouts whose stages take turns so: bytes, and least seconds of those that fit, at once."""
        peaks = Peaks(self.figures, several)
        states = self._held(peaks.least_bytes, several)
        families = [self._family(*each, peaks) for each in zip(orders, several, states, strict=True)]
        able = [at for at, family in enumerate(families) if family.fitting.any()]
        for at, held in zip(able, self._held(peaks.peak_bytes, [several[at] for at in able]), strict=True):
            families[at].hold(held)
        able = [at for at in able if families[at].fitting.any()]
        for at, step_s in zip(able, _each(self.bounds.rough_s, [several[at] for at in able]), strict=True):
            fits = families[at].fitting
            families[at].step_s[fits] = step_s[fits]
            if self.group.example.limits:
                families[at].bound()
        return families

    def _sorts(self, pp: int, split: Split) -> Sorts:
        question = self.group.example
        key = ("sorts", pp, split, question.practice.recompute_layers, question.model.stack)
        if key not in self.prices:
            self.prices[key] = sorts(split, pp, question.practice, question.model.stack)
        return self.prices[key]  # type: ignore[no-any-return]  # put there above

    def _family(self, order: Order, alike: Alike, states: Held, peaks: Peaks) -> Family:
        """One of which is known what it holds from step to step."""
        schedule, sorts, cells = alike
        overlap = self.group.example.practice.overlap
        blocking = bool(schedule) and overlap.blocks_stages(usual=SCHEDULES[schedule].blocking) is True

        def seconds(some: Any) -> Any:
            return self.bounds.step_s(some, schedule, sorts, blocking=blocking)

        may_do, tokens = np.ones(len(cells), dtype=bool), self.group.base.workload.tokens
        known = np.zeros(len(cells)), *states, may_do, tokens, None
        return Family(self.group, order, cells, *known, seconds, lambda: next(self._held(peaks.peak_bytes, [alike])))

    def _held(self, bytes_of: Callable[[Sequence[Alike]], Any], some: Sequence[Alike]) -> Iterator[Held]:
        """Of each of some what a chip holds, and what that leaves of it."""
        question = self.group.example
        capacity = float(question.machine.chip.memory.capacity.value)
        for held in _each(bytes_of, some):
            yield held, capacity - (held + question.assume.memory.beside(held))

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


def _each(of: Callable[[Sequence[Alike]], Any], some: Sequence[Alike]) -> list[Any]:
    """What is asked of several at once, of each of them."""
    return np.split(of(some), np.cumsum([len(alike.cells) for alike in some])[:-1]) if some else []
