"""Drafting ahead: a draft guesses tokens one by one, its model verifies all of them in one step of decoding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar

from tpsim.answers.plan import PlanResult, priced
from tpsim.answers.serve import alone_at_most
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.question.question import Speculation  # noqa: TC001 - JSON Schemas read types
from tpsim.question.serving import draft_of
from tpsim.report.record import Bytes, Count, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.memory import ChipMemory
    from tpsim.question.memo import Memo
    from tpsim.question.question import Inference, Question


@dataclass(frozen=True)
class Speculated(Record):
    """Drafting ahead: a draft takes a step of its own for each token, then the model verifies all of them in one."""

    told: ClassVar[tuple[str, ...]] = (
        *("tokens", "acceptance", "expected_tokens", "draft?", "draft_s", "draft_prompt_s?", "verification_s"),
        *("step_s", "plain_s", "speedup", "breakeven_acceptance?", "draft_parameters_bytes?", "draft_cache_bytes?"),
    )

    plan: PlanResult
    work: Inference
    of: Speculation

    tokens = Of[Count]("of.tokens", "drafted of a sequence in a step")
    acceptance = Of[Number]("of.acceptance", "probability that a draft is accepted where those before it are")
    expected_tokens = Of[Number]("of.expected", "of a sequence that a step gives, in the mean")

    @cached_property
    def drafting(self) -> PlanResult | None:
        """The plan of a mean step of the draft; None where tokens are drafted for nothing."""
        return priced(draft, self.plan.memo) if (draft := draft_of(self.plan.question)) else None

    @cached_property
    def plain(self) -> PlanResult:
        """The plan of the same decoding without drafts."""
        return priced(replace(self.plan.question, workload=self.work.plain), self.plan.memo)

    @property
    def draft(self) -> str | None:
        """The model that drafts; left out where tokens are drafted for nothing."""
        return self.drafting.question.model.name if self.drafting else None

    @property
    def draft_s(self) -> Seconds:
        """Of a step of the draft; 0 where tokens are drafted for nothing."""
        return float(self.drafting.step.time_s) if self.drafting else 0.0

    @property
    def draft_prompt_s(self) -> Seconds | None:
        """In which the draft reads the prompts, behind the first token; left out where none are read."""
        return float(self.drafting.prefill.step.time_s) if self.drafting and self.drafting.prefill else None

    @property
    def verification_s(self) -> Seconds:
        """Of the step that verifies."""
        return float(self.plan.step.time_s)

    @property
    def step_s(self) -> Seconds:
        """Of all drafts and the step that verifies them."""
        return self.tokens * self.draft_s + self.verification_s

    @property
    def formula(self) -> str:
        """What such a step is made of, in words."""
        draft, verification = (show(seconds, "seconds") for seconds in (self.draft_s, self.verification_s))
        return f"{f'{self.tokens} x draft {draft} + ' if self.draft else ''}verification {verification}"

    @property
    def plain_s(self) -> Seconds:
        """Of a step of the same decoding without drafts."""
        return float(self.plain.step.time_s)

    @property
    def speedup(self) -> Number:
        """Tokens per second, as a multiple of those without drafts."""
        return self.plain_s * self.expected_tokens / self.step_s

    @cached_property
    def breakeven_acceptance(self) -> Number | None:
        """From which on drafting is faster; 0 where it always is, left out where it never is."""
        due, low, high = self.step_s / self.plain_s, 0.0, 1.0
        if due > self.of.expected_at(high):
            return None
        while high - low > ROUNDED:
            middle = (low + high) / 2
            low, high = (low, middle) if self.of.expected_at(middle) >= due else (middle, high)
        return high if due > 1 else 0.0

    @property
    def draft_parameters_bytes(self) -> Bytes | None:
        """Of the draft on one chip, the fullest one of its own; left out without one."""
        return self.drafting and self.drafting.memory.parameters_bytes

    @property
    def draft_cache_bytes(self) -> Bytes | None:
        """Of the draft's cache on that chip; left out without one."""
        return self.drafting and self.drafting.memory.cache_bytes


ROUNDED = 1e-12
"""Of an acceptance: nobody knows it so well."""


def beside_draft(chips: Iterator[ChipMemory], question: Question, memo: Memo, *, peaks: bool) -> Iterator[ChipMemory]:
    """What chips hold of a model, with its draft's weights and cache: they take turns.

    peaks  True: the peak is that of the step that needs more
    """
    draft = draft_of(question)
    if draft is None:
        return chips
    own = [*alone_at_most(draft, memo.lowered(draft), memo)]
    return map(_together, chips, own if len(own) > 1 else repeat(own[0]), repeat(peaks))


def _together(chip: ChipMemory, draft: ChipMemory, peaks: bool) -> ChipMemory:
    """What a chip holds of a model and of its draft."""
    both = replace(
        chip,
        parameters_bytes=chip.parameters_bytes + draft.parameters_bytes,
        cache_bytes=total(each.cache_bytes for each in (chip, draft)),
        logits_bytes=max(chip.logits_bytes, draft.logits_bytes),
    )
    if not peaks or draft.peak.total <= chip.peak.total:
        return both
    return replace(both, peak=draft.peak, peak_action=f"draft, {draft.peak_action}")
