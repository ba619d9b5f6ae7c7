"""A layout that was planned, and what a search reads of its plan: all that another process tells of one it made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tpsim.answers.plan import PlanResult, priced
from tpsim.answers.plan_step import MILLION, TrainingRun
from tpsim.answers.serve import filled_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.layouts.candidates import Shared
    from tpsim.layouts.family import Candidate
    from tpsim.layouts.layout import Layout
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question

By = Literal["step", "tokens_per_s", "tokens_per_s_chip", "served_tokens_per_s_chip", "money", "memory"]
"""What the best layout has the least of, or the most."""

WITH_PROMPTS: tuple[By, ...] = ("money", "served_tokens_per_s_chip")
"""What counts of replies their prompts, too."""


class Outcome(NamedTuple):
    """What a plan comes to, by the names of its parts.

    ok     True if every requirement holds
    served  new tokens of replies per second and chip, prompts and all chips counted; None where nobody replies
    parts  the seconds of its step: compute, exposed communication by role, the bubble, what its rank waits besides
    """

    ok: bool
    tokens: int
    chips: int
    step_s: Any
    tokens_per_s: float
    compute_s: Any
    exposed_s: Any
    bubble_s: Any
    mfu: float
    peak_bytes: Any
    fits: bool | None
    run: TrainingRun | None
    parts: dict[str, float]
    served: float | None


def outcome(plan: PlanResult) -> Outcome:
    """What that plan comes to."""
    step, memory = plan.step, plan.memory
    took = step.pace_s, step.tokens_per_s, *_spent(plan), step.mfu
    served = plan.serve.served_tokens_per_s_chip if plan.serve else None
    held = memory.peak_bytes, memory.fits
    return Outcome(plan.ok, plan.tokens, plan.chips, *took, *held, plan.run, _parts(plan), served)


def _spent(plan: PlanResult) -> tuple[Any, Any, Any]:
    """Seconds of kernels, of exposed communication, and of waiting for stages; with drafts by the token, theirs too.

    Beside prompts they are those of a step that decodes alone.
    """
    spent = plan.step.compute_s, plan.step.exposed_s, plan.step.bubble_s
    ahead = plan.serve and plan.serve.speculation
    if not ahead:
        return spent
    drafts = _spent(ahead.drafting) if ahead.drafting else (0, 0, 0)
    compute, exposed, bubble = (
        (one + ahead.tokens * other) / ahead.expected_tokens for one, other in zip(spent, drafts, strict=True)
    )
    return compute, exposed, bubble


@dataclass(frozen=True)
class Planned:
    """A layout that was planned; told: what that came to, if another process did it."""

    candidate: Candidate
    memo: Memo
    told: Outcome | None = None

    @cached_property
    def question(self) -> Question:
        """What it is of."""
        return filled_up(self.candidate.space.question(self.candidate.layout, self.memo), self.memo)

    @cached_property
    def plan(self) -> PlanResult:
        """The plan itself."""
        return priced(self.question, self.memo, briefly=True)

    @cached_property
    def outcome(self) -> Outcome:
        """What it comes to."""
        return self.told or outcome(self.plan)

    def value(self, by: By) -> float:
        """What it comes to; less is better."""
        of = self.outcome
        if by == "memory":
            return float(of.peak_bytes)
        if by == "money":
            return float(of.run.price_per_step) / of.run.step_tokens  # type: ignore[union-attr, arg-type]  # stated
        if by == "served_tokens_per_s_chip":
            return 1 / of.served  # type: ignore[operator]  # of replies
        return float(of.step_s * per_second(by, of.tokens, of.chips, 0))

    def spent(self, by: By, best: Outcome) -> dict[str, float]:
        """What the parts of its step come to, so that those of two layouts can be compared.

        By money that of a million tokens, prompts a part of their own; else seconds of as many tokens as the best's,
        by tokens of a chip on as many chips.
        """
        of = self.outcome
        if by in WITH_PROMPTS:
            steps, output = (getattr(self.question.stated.file.workload, name, 1) for name in ("steps", "output"))
            of_best = best.tokens / best.chips
            whole = (MILLION if by == "money" else of_best * output) * self.value(by)
            each = whole / of.run.step_s if of.run and by == "money" else of_best * of.chips / of.tokens
            parts = {name: seconds * steps * each for name, seconds in of.parts.items()}
            prompts = whole - each * steps * float(of.step_s)
            return {**parts, "prompts": prompts} if steps > 1 else parts
        alike = best.tokens / of.tokens * (of.chips / best.chips if by == "tokens_per_s_chip" else 1)
        return {name: seconds * alike for name, seconds in of.parts.items()}

    def measures(self, by: By) -> tuple[float, float]:
        """What it comes to, and what decides between those that are equal: the peak, or of equal peaks the step."""
        return self.value(by), self.value("step" if by == "memory" else "memory")


def planned_by(shared: Shared, space: int, layout: Layout) -> Outcome:
    """What the plan of a layout comes to, where a process is asked that shares the search."""
    return outcome(priced(shared.spaces[space].question(layout, shared.memo), shared.memo, briefly=True))


def per_second(by: By, tokens: int, chips: int, price: float) -> float:
    """What a second of a step counts for, in a step of so many tokens; price: of all chips, of a second."""
    weights = {"tokens_per_s": 1, "tokens_per_s_chip": chips, "served_tokens_per_s_chip": chips, "money": price}
    return 1 if by == "step" else weights[by] / tokens


def _parts(plan: PlanResult) -> dict[str, float]:
    names = {axis: WORDS[role] for role, axes in plan.question.layout.roles.items() for axis in axes if role in WORDS}
    whole = {"compute": plan.step.compute_s, "bubble": plan.step.bubble_s, **plan.step.waits}
    parts = {name: float(seconds) for name, seconds in whole.items()}
    for axis, row in plan.totals["by_axis"].items():
        roles = dict.fromkeys(names.get(name, name) for name in axis.split(","))
        name = WORDS["dp"] if roles.keys() == SHARDS else " and ".join(roles)
        parts[name] = parts.get(name, 0) + float(row.exposed_s)
    if ahead := plan.serve and plan.serve.speculation:
        parts = {**parts, "drafts": ahead.tokens * ahead.draft_s}
        return {name: seconds / ahead.expected_tokens for name, seconds in parts.items()}
    if plan.serve and plan.serve.mixed:
        parts["prompts beside"] = float(plan.step.pace_s - plan.step.time_s)
    return parts


WORDS: Mapping[str, str] = {"tp": "tensor", "dp": "data", "pp": "stages", "cp": "context"}
"""Roles of mesh axes, as losses name them."""

SHARDS = {WORDS["dp"], WORDS["cp"]}
"""Over what gradients are reduced together: all that have tokens of their own."""
