"""What weighs the layouts of one program: bytes of each, and seconds that its step does not take less than."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.layouts.bounds import Bounds
from tpsim.layouts.family import Family, held
from tpsim.layouts.figures import Figures
from tpsim.layouts.orders import BALANCED
from tpsim.layouts.peaks import Peaks
from tpsim.layouts.reason import Reason, reason
from tpsim.layouts.served import Served, planned_alone
from tpsim.layouts.sorts import Alike, sorts
from tpsim.program.schedules import SCHEDULES
from tpsim.quantity.errors import InputError
from tpsim.question.memo import structure
from tpsim.question.prices import always_priced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tpsim.layouts.family import Held, Measure, Weighed
    from tpsim.layouts.group import Group
    from tpsim.layouts.layout import Order
    from tpsim.layouts.served import Told
    from tpsim.layouts.sorts import Sorts
    from tpsim.question.memo import Memo
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question

    BytesOf = Callable[[Sequence[Alike]], Any]


FEW = 1024
"""Cells of a program of which it is quicker to look at what they hold of another one than to trace their own."""


@dataclass
class Evaluator:
    """What weighs the layouts of one program, and counts those that have no price.

    alike  what is held of programs that are alike but for ZeRO: who traces one tells of the others
    """

    group: Group
    memo: Memo
    prices: dict[Hashable, Any]
    refused: Counter[Reason]
    measure: Measure
    alike: dict[Hashable, Peaks]

    def __post_init__(self) -> None:
        group = self.group
        if group.base.inference:
            return  # a plan takes milliseconds: all are asked for
        self.figures = Figures(group.example, group.meshes, group.on, group.microbatches, self.memo, self.prices)
        self._priced = always_priced(group.example)
        self.bounds = Bounds(self.figures)

    def families(self) -> Iterator[Family]:
        """All of them."""
        if self.group.base.inference:
            yield from self._of_inference()
            return
        alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for mesh, order, split, cells in self.group.turns:
            if not self._priced and (why := self.figures.calls.refused(mesh, around=order.chunks > 1)):
                self.refused[why] += len(cells)
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
        """Families of layouts whose stages take turns so: bytes, and least seconds of those that fit, at once.

        Those that hold too much from step to step, whatever a step does, are not traced where all have a price; nor are
        those that hold too much with the activations of a program that is.
        """
        peaks = Peaks(self.figures, several)
        first, *others = (peaks.least_bytes, peaks.states_bytes, peaks.peak_bytes)[not self._priced :]
        held = self._held(first, several)
        families = [self._family(*each, peaks) for each in zip(orders, several, held, strict=True)]
        if len(self.group.on) <= FEW and any(family.fitting.any() for family in families):
            traced = self.alike.setdefault(self._but_for_zero(peaks), peaks)
            others = [partial(peaks.active_bytes, traced), *others]
        for bytes_of in others:
            able = [at for at, family in enumerate(families) if family.fitting.any()]
            hosts = self._hosts(peaks) if bytes_of is others[-1] else None
            for at, known in zip(able, self._held(bytes_of, [several[at] for at in able], hosts), strict=True):
                families[at].hold(known, peaked=bytes_of is others[-1])
        able = [at for at, family in enumerate(families) if family.fitting.any()]
        for at, step_s in zip(able, _apart(self.bounds.rough_s, [several[at] for at in able]), strict=True):
            fits = families[at].fitting
            families[at].step_s[fits] = step_s[fits]
            if self.group.example.limits:
                families[at].bound()
        return families

    def _but_for_zero(self, peaks: Peaks) -> Hashable:
        """What tells its activations from those of other programs."""
        group = self.group
        example = replace(group.example, layout=group.example.layout.at_zero(0))
        cells = tuple(group.sites), group.on.tobytes(), group.microbatches.tobytes()
        return *structure(example), *cells, *peaks.actions

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

        def peaked() -> Held:
            return next(self._held(peaks.peak_bytes, [alike], self._hosts(peaks)))

        return Family(self.group, order, cells, *known, seconds, peaked)

    def _held(self, bytes_of: BytesOf, some: Sequence[Alike], hosts: BytesOf | None = None) -> Iterator[Held]:
        """Of each of some what a chip holds, and what that leaves of it, or of its host."""
        on_hosts = _apart(hosts, some) if hosts else repeat(None)
        each = zip(_apart(bytes_of, some), on_hosts, strict=False)
        return (held(self.group.example, own, host) for own, host in each)

    def _hosts(self, peaks: Peaks) -> BytesOf | None:
        """What gives the bytes that a chip has on its host; None where it has none."""
        return peaks.host_bytes if self.group.example.practice.offload else None

    def _one_by_one(self, order: Order, cells: Any) -> Family:
        """Layouts whose layers seconds split: each is asked for itself, and kernels are the bound."""
        asked = [self._asked(int(cell), order) for cell in cells]
        steps = np.array([self.bounds.worked_s(*each) for each in zip(cells, asked, strict=True)])
        weighed = [self.measure(question, self.memo)._replace(step_s=0, paid_s=0) for question in asked]
        family = self._alone(order, cells, weighed)
        family.step_s = family.paid_s = steps
        return family

    def _of_inference(self) -> Iterator[Family]:
        """Layouts of inference; where plans alone tell, or arrays are not sure, each is asked for itself."""
        served = Served(self.group, self.memo, self.prices, self.measure)
        told = None if planned_alone(self.group.base) else served.told()
        for mesh, order, _, cells in self.group.turns:
            if told and (why := told.refused(mesh, cells)):
                self.refused[why] += len(cells)
            elif told and told.sure[cells].all():
                yield self._told(order, cells, told)
            else:
                try:
                    weighed = [self.measure(self._asked(int(cell), order), self.memo) for cell in cells]
                    yield self._alone(order, cells, weighed)
                except InputError as error:
                    self.refused[reason(error)] += len(cells)

    def _told(self, order: Order, cells: Any, told: Told) -> Family:
        """Layouts that arrays tell of."""
        tokens = int(told.batches[cells[0]]) * self.group.base.workload.seq
        told_of, able = (told.peak_bytes[cells], told.room_bytes[cells]), np.ones(len(cells), dtype=bool)
        paid_s = None if told.paid_s is None else told.paid_s[cells]
        family = Family(self.group, order, cells, np.zeros(len(cells)), *told_of, able, tokens, paid_s)
        family.nearer = lambda _: told.step_s[cells][family.fitting]
        family.bound()
        family.may_do &= told.may_do[cells]
        return family

    def _asked(self, cell: int, order: Order) -> Question:
        return self.group.spaces[int(self.group.on[cell])].question(self.group.layout(cell, order), self.memo)

    def _alone(self, order: Order, cells: Any, weighed: Sequence[Weighed]) -> Family:
        """Layouts of which each was asked for itself."""
        peak_bytes, room, _, steps, paid, may_do = map(np.array, zip(*weighed, strict=True))
        return Family(self.group, order, cells, steps, peak_bytes, room, may_do, weighed[0].tokens, paid)


def _apart(of: Callable[[Sequence[Alike]], Any], some: Sequence[Alike]) -> list[Any]:
    """What is asked of several at once, of each of them."""
    return np.split(of(some), np.cumsum([len(alike.cells) for alike in some])[:-1]) if some else []
