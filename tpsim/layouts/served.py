"""Layouts of inference: what chips hold of each, and how many sequences they have room for, as arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.layouts.family import held
from tpsim.layouts.figures import Figures
from tpsim.layouts.peaks import Peaks
from tpsim.layouts.reason import Reason, reason
from tpsim.layouts.sorts import Alike, sorts
from tpsim.quantity.room import ends
from tpsim.quantity.size import total
from tpsim.question.question import unit_of_part
from tpsim.question.serving import no_room, prefill_of
from tpsim.question.serving_file import PROMPTS, ServeFields

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tpsim.layouts.family import Measure, Weighed
    from tpsim.layouts.group import Group
    from tpsim.question.memo import Memo
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question

NEAR = 1e-9
"""Of a chip's memory: arrays, which round, are no further off than that."""

DIGITS = 11
"""Digits of seconds of arrays that no rounding reaches: layouts that take as long are told to."""


class Told(NamedTuple):
    """What arrays tell of layouts, one for each.

    peak_bytes, room_bytes  of the fullest chip: what it holds at most, and what is left
    step_s  seconds that a step does not take less than; 0 where it does not fit
    paid_s  of as many tokens those of replies with their prompts; None where prompts and replies are not asked for
    batches  the sequences of a step; 0 where there is no room for any
    may_do  False where it surely violates what the scenario requires of tokens
    sure    False where a plan has to say whether it fits, and how many sequences do
    wrong   mesh, by number -> the reason why a call has no price
    """

    peak_bytes: Any
    room_bytes: Any
    step_s: Any
    paid_s: Any
    batches: Any
    may_do: Any
    sure: Any
    wrong: Mapping[int, Reason]
    no_room: Reason

    def refused(self, mesh: int, cells: Any) -> Reason | None:
        """Why a plan refuses some on a mesh; None if it does not."""
        none = self.sure[cells].all() and not self.batches[cells].all()
        return self.no_room if none else self.wrong.get(mesh)


@dataclass
class Replied(Peaks):
    """What is held while a prompt is read, or while it is replied to, whichever is more.

    prompt  what reading it does to memory
    """

    prompt: Peaks | None = None

    @cached_property
    def _acts(self) -> Mapping[str, int]:
        return {"F": 0}

    @property
    def _ahead(self) -> int:
        return self.figures.lowered.program.ahead

    def most_bytes(self, alike: Alike) -> Any:
        """What the fullest rank holds, per layout: each runs one action, on one chunk."""
        sorts = alike.sorts
        ranks = [self._ranks[whole] for whole in sorts.ranked.values()]
        chunks = [self._chunks[sorts.chunks[sort]] for (sort,) in sorts.ranked]
        tops = [part._actions[0][chunks] for part in (self, self.prompt) if part]  # noqa: SLF001 - it is one, too
        return (self._states[ranks] + np.maximum.reduce(tops))[:, alike.cells].max(axis=0)


@dataclass(frozen=True)
class Served:
    """The layouts of one program of inference; arrays have a number of each of its group's cells."""

    group: Group
    memo: Memo
    prices: dict[Hashable, Any]
    measure: Measure

    def told(self) -> Told:
        """What is known of each without a plan."""
        question, count = self.group.example, len(self.group.on)
        sure, prices = np.ones(count, dtype=bool), self.prices
        batches = np.full(count, question.workload.global_batch)
        if question.inference and question.inference.fills:
            batches, sure = self._largest()
            question, prices = _of(question, np.maximum(batches, 1)), {}  # each with its own batch
        peak_bytes, room_bytes = self._held(question)
        sure &= (batches == 0) | (abs(room_bytes) > self._near)
        fits = (batches > 0) & ~(sure & (room_bytes < 0))
        priced = self._figures(question, prices)
        step_s, paid_s, may_do, wrong = np.zeros(count), None, ~fits, priced.calls.wrong
        if fits.any():
            step_s, prompt_s = self._step_s(priced), self._step_s(priced, ended=True)
            if question.prompts:
                prompt_s, paid_s = self._beside(question, step_s * fits)
            elif isinstance(fields := question.stated.file.workload, ServeFields):
                of_prompt = self._figures(prefill_of(question), prices.setdefault("prompt", {}))
                prompt_s, wrong = self._step_s(of_prompt, ended=True), wrong | of_prompt.calls.wrong
                paid_s = (prompt_s + fields.steps * step_s) * question.workload.seq / fields.output * fits
            may_do |= _may_do(question, step_s, prompt_s)
        return Told(
            peak_bytes,
            room_bytes,
            step_s * fits,
            paid_s,
            batches,
            may_do,
            sure,
            wrong,
            reason(no_room(self.group.base)),
        )

    def _beside(self, question: Question, step_s: Any) -> tuple[Any, Any]:
        """Of servers that read prompts alone, the same for all layouts: seconds of one, and with them those paid for.

        Steps that take none are not paid for.
        """
        from tpsim.question.prompts import weight

        fields: Any = question.stated.file.workload
        if PROMPTS not in self.prices:
            self.prices[PROMPTS] = self.measure(prefill_of(question), self.memo)
        read: Weighed = self.prices[PROMPTS]
        weights = np.array([weight(case) for case in self.group.meshes])[self.group.on]
        prompts_s = read.step_s * weights * question.workload.global_batch * fields.prompt / read.tokens
        both_s = (prompts_s + fields.steps * step_s) * (step_s > 0)
        return np.full(len(step_s), read.step_s), both_s * question.workload.seq / fields.output

    def _step_s(self, figures: Figures, *, ended: bool = False) -> Any:
        """Seconds that a step does not take less than: each part of a batch goes through all stages, and all by each.

        ended  True: until its last part has gone through all stages behind the others, as prompts do
        """
        step_s = np.zeros(len(self.group.on))
        for _, cut, cells in self._alike:
            each = [figures.least_s(chunk, "F", ends=True) for chunk in cut.chunks]
            sent_s, m = figures.calls.hop_s, self.group.microbatches
            alone_s = total(each[sort] for sort in cut.of) + (cut.ranks - 1) * sent_s
            turn_s = np.maximum.reduce(each) + (cut.ranks > 1) * sent_s
            in_turn_s = alone_s + (m - 1) * turn_s if ended else np.maximum(alone_s, m * turn_s)
            step_s[cells] = np.where(m > 1, in_turn_s, alone_s)[cells]
        digit = 10.0 ** (np.floor(np.log10(step_s)) - DIGITS)
        return (np.floor(step_s / digit) - 1) * digit

    def _figures(self, question: Question, prices: dict[Hashable, Any]) -> Figures:
        group = self.group
        return Figures(question, group.meshes, group.on, group.microbatches, self.memo, prices)

    @cached_property
    def _alike(self) -> list[Alike]:
        """The layouts whose stages have layers alike."""
        question, group = self.group.example, self.group
        cells: defaultdict[tuple[Split, int], list[Any]] = defaultdict(list)
        for turns in group.turns:
            cells[turns.split or (question.model.layers,), group.sites[turns.mesh].ways.pp].append(turns.cells)
        alike = question.practice, question.model.stack
        return [Alike("", sorts(*asked, *alike), np.concatenate(some)) for asked, some in cells.items()]

    def _held(self, question: Question) -> tuple[Any, Any]:
        """What the fullest chip holds at most, and what that leaves of it."""
        beside = question.workload.kind == "serve" and not question.prompts
        prompt = self._peaks(prefill_of(question)) if beside else None
        peaks = self._peaks(replace(question, workload=question.workload.at_peak), prompt)
        peak_bytes = np.zeros(len(self.group.on))
        for alike in self._alike:
            peak_bytes[alike.cells] = peaks.most_bytes(alike)
        return held(question, peak_bytes)

    def _peaks(self, question: Question, prompt: Peaks | None = None) -> Replied:
        return Replied(self._figures(question, {}), self._alike, prompt)

    @property
    def _near(self) -> float:
        """Bytes: arrays round, and are no further off; where they are nearer to a limit they do not tell."""
        return NEAR * float(self.group.example.machine.chip.memory.capacity.value)

    def _largest(self) -> tuple[Any, Any]:
        """The most sequences with room, as `plan` finds them, and whether that is sure."""
        units, left, lacks = ends(self._rooms)
        return (units * self._units).astype(int), np.minimum(abs(left), abs(lacks)) > self._near

    def _rooms(self, units: Any) -> Any:
        return self._held(_of(self.group.example, units * self._units))[1]

    @cached_property
    def _units(self) -> Any:
        """What a layout splits sequences into."""
        parts = np.array([unit_of_part(case) for case in self.group.meshes], dtype=float)[self.group.on]
        return parts * self.group.microbatches


def planned_alone(question: Question) -> bool:
    """True of inference where a plan alone tells: paths, whether a forced algorithm can be, drafts, mixed steps."""
    work, forced = question.inference, question.force.algorithm is not None and question.cost_model != "book"
    return work is not None and (forced or question.planner == "cheapest" or bool(work.drafted or work.budget))


def _may_do(question: Question, step_s: Any, prompt_s: Any) -> Any:
    """False where demands on tokens cannot hold: steps, and the first token, take no less than that."""
    least = {"<": {"tpot": step_s, "ttft": prompt_s}, ">": {"tokens_per_s_user": question.workload.seq / step_s}}
    known = ((limit, least.get(limit.relation[0], {}).get(limit.name)) for limit in question.limits)
    return np.logical_and.reduce([step_s > 0, *(limit.holds(s) for limit, s in known if s is not None)])


def _of(question: Question, batch: Any) -> Question:
    """The question of so many sequences."""
    return replace(question, workload=replace(question.workload, global_batch=batch))
