"""Layouts ranked: plans of the most promising, until no other can be better."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tpsim.answers.memory import fullest
from tpsim.answers.plan import fitting
from tpsim.answers.planned import WITH_PROMPTS, By, Planned, per_second, planned_by
from tpsim.answers.serve import chips_at_most, filled_up, prompt_memory
from tpsim.layouts.family import Candidate, Weighed
from tpsim.program.keeps import margin
from tpsim.quantity.errors import InputError
from tpsim.quantity.progress import unwatched
from tpsim.question.serving_file import PROMPTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.layouts.candidates import Evaluation
    from tpsim.layouts.family import Family
    from tpsim.layouts.space import Space
    from tpsim.quantity.progress import Progress
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question


def weigh(question: Question, memo: Memo) -> Weighed:
    """What a chip holds of a question, and of inference, if that fits, what its plan comes to."""
    question = filled_up(question, memo)
    plan = fitting(question, memo) if question.inference else None
    most = plan.memory if plan else fullest(chips_at_most(question, memo.lowered(question), memo))
    held = Weighed(float(most.peak_bytes), float(most.room_bytes), question.workload.tokens)
    if plan is None:
        return held
    step_s, replied_s = float(plan.step.pace_s), plan.serve and plan.serve.paid_s
    paid_s = replied_s * plan.tokens / plan.serve.reply_tokens if plan.serve and replied_s else step_s
    return held._replace(step_s=step_s, paid_s=paid_s, may_do=plan.ok)


def spare_bytes(question: Question) -> float:
    """Bytes of a chip that are free in a layout that surely fits."""
    return margin(question.practice.keeps).share * float(question.machine.chip.memory.capacity.value)


def measured(pareto: str) -> By:
    """The measure of ``step,memory`` that is weighed against memory."""
    first, _, second = pareto.partition(",")
    if second != "memory" or first == "memory" or first not in get_args(By):
        raise InputError.one("bad-value", f"{pareto} is no pair of measures", remedy="write --pareto step,memory")
    return first  # type: ignore[return-value]  # one of them


def same_work(questions: Sequence[Question]) -> bool:
    """True if all steps have as many tokens, of one model; where memory decides that, each has its own."""
    first, *others = questions
    fills = any(question.inference and question.inference.fills for question in questions)
    return not fills and all(
        (other.workload.tokens, other.model) == (first.workload.tokens, first.model) for other in others
    )


def measurable(flag: str, measure: By, questions: Sequence[Question]) -> None:
    """Refuse a measure that a scenario has no figures for, or that compares unlike things. Raises InputError."""
    if measure == "money" and not all(question.price for question in questions):
        message = "a search by money needs the price of a chip hour, and none is stated"
        raise InputError.one("missing-price", message, remedy="add it: --set assume.price_per_chip_hour=2.5")
    if measure == "served_tokens_per_s_chip" and any(question.workload.kind != "serve" for question in questions):
        message = "tokens of replies with their prompts are of prompts and replies, and nothing here has both"
        remedy = "ask of both: workload.kind serve, or rank by tokens_per_s_chip"
        raise InputError.one("no-replies", message, remedy=remedy)
    if measure == "step" and not same_work(questions):
        message = "steps are not the same work where their tokens or their models differ"
        remedy = "--by tokens_per_s" if flag == "by" else "--pareto tokens_per_s,memory"
        raise InputError.one("unlike-work", message, remedy=f"compare what they get done: {remedy}")


def refuse_held(question: Question, memo: Memo) -> None:
    """Refuse servers that read prompts, which are held while others are searched, if they do not fit themselves.

    Raises InputError.
    """
    held = prompt_memory(question, memo)
    if held and held.room_bytes < 0:
        message = f"no layout helps servers that read prompts, which are held as stated: {held.brief}"
        remedy = f"give them more chips, or fewer prompts at once: {PROMPTS}.mesh, {PROMPTS}.batch"
        raise InputError.one("prompts-do-not-fit", message, question.stated.at(PROMPTS), remedy)


@dataclass(frozen=True, slots=True)
class Ranked:
    """What plans of some layouts came to.

    by         what they are ranked by
    best       the plans, the best first
    made       how many were planned to know it
    open_at    what the next of those that were not planned may come to at least; infinite if none can be better
    violating  layouts that fit and are known to violate what the scenario requires
    """

    by: By
    best: list[Planned]
    made: int
    open_at: float
    violating: int

    @property
    def complete(self) -> bool:
        """True if none that was not planned can be better than one that is listed."""
        return self.open_at == inf


@dataclass
class Ranking:
    """The layouts of a search that fit, planned where it is worth it, each once.

    most      plans that are made at most
    spare     of each space: bytes of a chip that are free in a layout that surely fits
    progress  is told how many are planned
    """

    evaluation: Evaluation
    memo: Memo
    most: int
    spare: Sequence[tuple[Space, float]] = ()
    progress: Progress = unwatched

    def __post_init__(self) -> None:
        self.known: dict[tuple[int, int], Planned] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what is known by the identity of families, which have another one where it is copied to."""
        return {**self.__dict__, "known": {}}

    def _plan(self, candidates: Sequence[Candidate]) -> list[Planned]:
        """Plans of some layouts, shared by the processes that share the search."""
        keys = [(id(candidate.family), candidate.at) for candidate in candidates]
        new = [(key, one) for key, one in zip(keys, candidates, strict=True) if key not in self.known]
        copies, planned = self.evaluation.copies, len(self.known)

        def plan(at: int) -> None:
            key, candidate = new[at]
            self.known[key] = Planned(candidate, self.memo)
            self.known[key].outcome  # noqa: B018 - worked out while the others plan theirs

        spaces = copies.state.spaces
        asked = [(spaces.index(one.space), one.layout) for _, one in new]
        told = copies.shared(
            planned_by, asked, plan, lambda begun: self.progress(planned + begun, self.most, "plans at most")
        )
        for (key, candidate), (copy, outcome) in zip(new, told, strict=True):
            if copy is not None:
                self.known[key] = Planned(candidate, self.memo, outcome)
        return [self.known[key] for key in keys]

    def _ahead(
        self, queue: Iterator[tuple[float, Candidate]], needed: Callable[[float], bool], top: int
    ) -> Iterator[tuple[float, Candidate]]:
        """The layouts of a queue; where several processes share the search they plan some before these are given."""
        processes, given = 1 + len(self.evaluation.copies), 0
        while some := [*islice(queue, 1 if processes == 1 else SEVERAL * processes if given else top)]:
            self._plan([candidate for least, candidate in some[: self.most - given] if needed(least)])
            given += len(some)
            yield from some

    def smallest(self) -> Planned | None:
        """Where no layout fits: the plan of the one that wants the least room."""
        if self.evaluation.fitting:
            return None
        most = max(_held(self.evaluation.families), key=lambda one: one.room_bytes, default=None)
        return self._plan([most])[0] if most else None

    def surely(self, family: Family) -> Any:
        """Whether each fits though its peak were off by as much as it may be."""
        spare = next(spare for space, spare in self.spare if space is family.space)
        return family.fitting & (family.room_bytes >= spare)

    def _queue(self, by: By, *, sure: bool = False) -> Iterator[tuple[float, Candidate]]:
        """Those that may meet every demand, with what they come to at least: the best first."""

        def able(family: Family) -> Any:
            return (self.surely(family) if sure else family.fitting) & family.may_do

        return _queue(self.evaluation.families, lambda family: _least(family, by), able)

    def best(self, by: By, top: int, *, sure: bool = False, under: float = inf) -> Ranked:
        """The best: planned by what they come to at least, until no other can be among them.

        sure   True: of those that surely fit
        under  what they come to less than
        """
        best: list[Planned] = []
        planned = violated = 0

        def needed(least: float) -> bool:
            return least < (best[-1].value(by) if len(best) == top else under)

        for least, candidate in self._ahead(self._queue(by, sure=sure), needed, top):
            if not needed(least) or planned == self.most:
                return Ranked(by, best, planned, least if needed(least) else inf, violated + self._unable)
            (plan,) = self._plan([candidate])
            planned += 1
            violated += not plan.outcome.ok
            taken = [plan] if plan.outcome.ok and plan.value(by) < under else []
            best = sorted([*best, *taken], key=lambda planned: planned.measures(by))[:top]
        return Ranked(by, best, planned, inf, violated + self._unable)

    @property
    def _unable(self) -> int:
        """How many fit and surely violate what the scenario requires."""
        return sum(int((family.fitting & ~family.may_do).sum()) for family in self.evaluation.families)

    def front(self, by: By) -> Ranked:
        """Those to which no other is better by one measure and holds less: the best first, then less and less."""
        planned: list[Planned] = []
        count = 0
        for least, candidate in self._queue(by):
            if any(
                other.value(by) <= least and other.candidate.peak_bytes <= candidate.peak_bytes for other in planned
            ):
                continue
            if count == self.most:
                return Ranked(by, _front(planned, by), count, least, 0)
            (plan,) = self._plan([candidate])
            count += 1
            planned += [plan] if plan.outcome.ok else []
        return Ranked(by, _front(planned, by), count, inf, 0)


SEVERAL = 3
"""Layouts that each process plans, once as many are known as are listed, before it is asked whether any is worth it."""

MANY = 16
"""Families of which is worked out at once what they hold, where none fits."""

NEAR, EACH = 16, 2
"""Families of which some are looked at nearer beside the one whose turn it is, if other processes know them."""

Measures = Callable[["Family"], tuple[Any, Any]]
"""What the layouts of a family come to at least, and what decides between those that are equal."""


def _queue(
    families: Sequence[Family], least: Measures, able: Callable[[Family], Any]
) -> Iterator[tuple[float, Candidate]]:
    """The layouts that are able, the least first: a family whose turn it is is looked at nearer before."""
    queue = [
        (float(least(family)[0][some].min()), -inf, at)
        for at, family in enumerate(families)
        if (some := able(family)).any()
    ]
    heapify(queue)
    rows: dict[int, Any] = {}
    while queue:
        bound, _, number = queue[0]
        family, left = families[number], rows.get(number)
        if left is None:
            left = np.flatnonzero(able(family))
        elif family.nearer is None:
            yield bound, Candidate(family, int(left[0]))
            left = left[1:]
        else:
            bounded = _at_once(families, number, [at for *_, at in queue[1:NEAR]])
            for at in bounded:
                rows.pop(at, None)
            left = np.flatnonzero(able(family))
        measures = least(family)
        rows[number] = left = left[np.lexsort([measure[left] for measure in measures[::-1]])]
        if left.size:
            first, second = (float(measure[left[0]]) for measure in measures)
            heapreplace(queue, (first, second if family.nearer is None else -inf, number))
        else:
            heappop(queue)


def _at_once(families: Sequence[Family], first: int, others: Sequence[int]) -> list[int]:
    """Look nearer at the first of some families, and at others where another process has one to look at meanwhile.

    Gives their numbers.
    """
    by: defaultdict[int | None, list[int]] = defaultdict(list, {families[first].copy: [first]})
    for at in others:
        own = by[families[at].copy]
        if families[at].nearer and at != first and len(own) < EACH:
            own.append(at)
    some = [at for copy in sorted(by, key=lambda copy: copy is not None) for at in by[copy]]
    if len(by) == 1:
        some = [first]
    for at in some:
        families[at].begin()
    for at in some:
        families[at].bound()
    return some


def _held(families: Sequence[Family]) -> Iterator[Candidate]:
    """Of some families the layouts that may have the most room: one of each that may have more than those before."""
    most, left = -inf, deque(sorted(families, key=lambda family: family.room_bytes.max(), reverse=True))
    while left and left[0].room_bytes.max() >= most:
        several = [left.popleft() for _ in range(min(MANY, len(left)))]
        for family in several:
            family.begin_to_hold()
        for family in sorted(several, key=lambda family: family.copy is not None):
            family.hold()
        yield from (Candidate(family, int(family.room_bytes.argmax())) for family in several)  # whoever held it first
        most = max(most, *(family.room_bytes.max() for family in several))


def _front(planned: list[Planned], by: By) -> list[Planned]:
    """Of some plans those that no other surpasses."""
    front: list[Planned] = []
    for plan in sorted(planned, key=lambda plan: (plan.value(by), plan.candidate.peak_bytes)):
        if not front or plan.candidate.peak_bytes < front[-1].candidate.peak_bytes:
            front.append(plan)
    return front


def _least(family: Family, by: By) -> tuple[Any, Any]:
    """What layouts come to at least, and what decides between those that are equal."""
    if by == "memory":
        return family.peak_bytes, family.step_s
    seconds = family.step_s if by not in WITH_PROMPTS or family.paid_s is None else family.paid_s
    if by == "served_tokens_per_s_chip" and (base := family.group.base).prompts:
        fields: Any = base.stated.file.workload  # prompts in it are weighed by money: what decodes is a bound, too
        seconds = family.step_s * fields.steps / fields.output
    return seconds * per_second(by, family.tokens, family.chips, family.price), family.peak_bytes
