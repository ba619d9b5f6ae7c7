"""Layouts ranked: plans of the most promising, until no other can be better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tpsim.answers.memory import fullest
from tpsim.answers.plan import PlanResult, fitting, priced
from tpsim.answers.serve import chips_at_most, filled_up
from tpsim.layouts.candidates import Candidate, Weighed
from tpsim.program.keeps import margin
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.layouts.candidates import Evaluation, Family
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question

By = Literal["step", "tokens_per_s", "tokens_per_s_chip", "money", "memory"]
"""What the best layout has the least of, or the most."""


def weigh(question: Question, memo: Memo) -> Weighed:
    """What a chip holds of a question, and of inference, if that fits, what its plan comes to."""
    question = filled_up(question, memo)
    plan = fitting(question, memo) if question.inference else None
    most = plan.memory if plan else fullest(chips_at_most(question, memo.lowered(question), memo))
    held = Weighed(float(most.peak_bytes), float(most.room_bytes), question.workload.tokens)
    if plan is None:
        return held
    paid_s = plan.run.step_s * plan.tokens / plan.run.step_tokens if plan.run else 0.0
    return held._replace(step_s=float(plan.step.time_s), paid_s=paid_s, may_do=plan.ok)


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
    if measure == "step" and not same_work(questions):
        message = "steps are not the same work where their tokens or their models differ"
        remedy = "--by tokens_per_s" if flag == "by" else "--pareto tokens_per_s,memory"
        raise InputError.one("unlike-work", message, remedy=f"compare what they get done: {remedy}")


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

    most   plans that are made at most
    spare  by the identity of a space: bytes of a chip that are free in a layout that surely fits
    """

    evaluation: Evaluation
    memo: Memo
    most: int
    spare: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known: dict[tuple[int, int], Planned] = {}

    def _plan(self, candidate: Candidate) -> Planned:
        key = id(candidate.family), candidate.at
        if key not in self.known:
            question = candidate.space.question(candidate.layout, self.memo)
            self.known[key] = Planned(candidate, priced(question, self.memo, briefly=True))
        return self.known[key]

    def smallest(self) -> Planned | None:
        """Where no layout fits: the plan of the one that wants the least room."""
        if self.evaluation.fitting:
            return None
        queue = _queue(
            self.evaluation.families,
            lambda family: (-family.room_bytes, family.step_s),
            lambda family: family.room_bytes < 0,
        )
        return next((self._plan(candidate) for _, candidate in queue), None)

    def surely(self, family: Family) -> Any:
        """Whether each fits though its peak were off by as much as it may be."""
        return family.fitting & (family.room_bytes >= self.spare[id(family.space)])

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
        for least, candidate in self._queue(by, sure=sure):
            enough = (best[-1].value(by) if len(best) == top else under) <= least
            if enough or planned == self.most:
                return Ranked(by, best, planned, inf if enough else least, violated + self._unable)
            plan = self._plan(candidate)
            planned += 1
            violated += not plan.plan.ok
            taken = [plan] if plan.plan.ok and plan.value(by) < under else []
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
            plan = self._plan(candidate)
            count += 1
            planned += [plan] if plan.plan.ok else []
        return Ranked(by, _front(planned, by), count, inf, 0)


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
            family.bound()
            left = left[able(family)[left]]
        measures = least(family)
        rows[number] = left = left[np.lexsort([measure[left] for measure in measures[::-1]])]
        if left.size:
            first, second = (float(measure[left[0]]) for measure in measures)
            heapreplace(queue, (first, second if family.nearer is None else -inf, number))
        else:
            heappop(queue)


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
    seconds = family.step_s if by != "money" or family.paid_s is None else family.paid_s
    return seconds * _per_second(by, family.tokens, family.chips, family.price), family.peak_bytes


def _per_second(by: By, tokens: int, chips: int, price: float) -> float:
    """What a second of a step counts for, in a step of so many tokens; price: of all chips, of a second."""
    weights = {"tokens_per_s": 1, "tokens_per_s_chip": chips, "money": price}
    return 1 if by == "step" else weights[by] / tokens


@dataclass(frozen=True)
class Planned:
    """A layout that was planned."""

    candidate: Candidate
    plan: PlanResult

    def value(self, by: By) -> float:
        """What it comes to; less is better."""
        if by == "memory":
            return float(self.plan.memory.peak_bytes)
        if by == "money":
            return float(self.plan.run.price_per_step) / self.plan.run.step_tokens  # type: ignore[union-attr, arg-type]  # stated
        return float(self.plan.step.time_s) * _per_second(by, self.plan.tokens, self.plan.chips, 0)

    def measures(self, by: By) -> tuple[float, float]:
        """What it comes to, and what decides between those that are equal: the peak, or of equal peaks the step."""
        return self.value(by), self.value("step" if by == "memory" else "memory")

    @cached_property
    def parts(self) -> dict[str, float]:
        """The seconds of its step: compute, exposed communication by role, the bubble, what its rank waits besides."""
        return _parts(self.plan)


def _parts(plan: PlanResult) -> dict[str, float]:
    names = {axis: WORDS[role] for role, axes in plan.question.layout.roles.items() for axis in axes if role in WORDS}
    whole = {"compute": plan.step.compute_s, "bubble": plan.step.bubble_s, **plan.step.waits}
    parts = {name: float(seconds) for name, seconds in whole.items()}
    for axis, row in plan.totals["by_axis"].items():
        roles = dict.fromkeys(names.get(name, name) for name in axis.split(","))
        name = WORDS["dp"] if roles.keys() == SHARDS else " and ".join(roles)
        parts[name] = parts.get(name, 0) + float(row.exposed_s)
    return parts


WORDS: Mapping[str, str] = {"tp": "tensor", "dp": "data", "pp": "stages", "cp": "context"}
"""Roles of mesh axes, as losses name them."""

SHARDS = {WORDS["dp"], WORDS["cp"]}
"""Over what gradients are reduced together: all that have tokens of their own."""
