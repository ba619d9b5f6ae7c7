"""The step of a plan as a whole: its rates, where its bound turns, its limits, and what a run of such steps takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.answers.stages import work_of
from tpsim.cost.compute import flops_counted
from tpsim.cost.kernel import Kernel
from tpsim.cost.rollup import price
from tpsim.cost.step import Step, crossing
from tpsim.program.dims import completed
from tpsim.quantity.size import over, total
from tpsim.quantity.units import HOUR_S, show
from tpsim.question.prices import pricer
from tpsim.report.record import Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult
    from tpsim.program.tokens import Counted
    from tpsim.question.requirements import Limit


@dataclass(frozen=True)
class PlanStep(Step):
    """The step as a whole."""

    told: ClassVar[tuple[str, ...]] = (
        *(*Step.told, "update_s", "tokens_per_s", "mfu", "hfu", "flops_counted", "flops_per_device", "useful_flops"),
        *("breakeven_tokens_per_chip", "breakeven", "cheapest_saves_s"),
    )

    plan: PlanResult

    flops_per_device = Of[Number](
        lambda step: step.counted[1], "FLOPs of a chip that HFU counts, the mean of all, repeated work included"
    )
    useful_flops = Of[Number](lambda step: step.counted[0], "FLOPs of all chips that MFU counts, without repetition")

    @property
    def update_s(self) -> Seconds:
        """Seconds of compute_s in which the optimizer updates its weights; 0 of inference."""
        return float(self.compute.seconds.get("update", 0))

    @cached_property
    def least_bubble_s(self) -> Seconds:
        """Seconds that every rank waits for others: what the one does that waits least."""
        return min((stage.bubble_s for stage in self.plan.stages or ()), default=self.bubble_s)

    @property
    def waits(self) -> dict[str, Any]:
        """Seconds that its rank waits for its host, and for stragglers."""
        return {"host": self.host_s, "stragglers": self.stragglers_s}

    @property
    def all_waits(self) -> str:
        """What its rank waits for as terms of the step: others first, with stages, then its host and stragglers."""
        bubble = f" + bubble {show(float(self.bubble_s), 'seconds')}" if self.plan.pipeline else ""
        return f"{bubble}{self.own_waits}"

    @property
    def own_waits(self) -> str:
        """These as terms of the step: `` + host 3 ms``."""
        return "".join(f" + {name} {show(float(s), 'seconds')}" for name, s in self.waits.items() if s)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole machine."""
        return float(self.plan.tokens / self.pace_s)

    @property
    def ended_s(self) -> Any:
        """Seconds from its first start until its last rank has ended: with stages the next step may begin before."""
        return self.plan.pipeline.step.ended_s if self.plan.pipeline else self.time_s

    @cached_property
    def pace_s(self) -> Any:
        """Seconds of the plan's tokens: of the step, or of what a token takes with drafts, or beside prompts."""
        if mixed := self.plan.serve and self.plan.serve.mixed:
            return mixed.tpot_s
        ahead = self.plan.serve and self.plan.serve.speculation
        return ahead.step_s / ahead.expected_tokens if ahead else self.time_s

    @property
    def mfu(self) -> float:
        """Useful FLOPs per second over the peak of all chips.

        Counted are the model's matrix products, attention's whole s by s among them unless `assume.mfu` is causal (of a
        window s by as many keys as it has), without recompute or replication: more than 6 x parameters x tokens by what
        attention does, and more than is run where kernels leave out what a mask hides.
        """
        question = self.plan.question
        peak = question.machine.peak(question.products).value
        return float(self.counted[0] / (self.time_s * self.plan.chips * peak))

    @property
    def hfu(self) -> float:
        """FLOPs per second that a chip runs over its peak, in the mean: as MFU, with recompute and replication."""
        question = self.plan.question
        peak = question.machine.peak(question.products).value
        return float(self.counted[1] / (self.time_s * peak))

    @cached_property
    def counted(self) -> tuple[Any, Any]:
        """The FLOPs that MFU counts, of all chips, and those that HFU counts, of one in the mean."""
        return self.counted_by(self.plan.question.assume.mfu)

    def counted_by(self, by: Counted) -> tuple[Any, Any]:
        """The same where `assume.mfu` says this of attention."""
        ways, works = (Kernel.useful_flops, Kernel.flops), self.plan.works
        useful, run = (total(work.counted(flops, by) for work in works) for flops in ways)
        return useful, over(run, len(works))

    @property
    def flops_counted(self) -> str:
        """What MFU and HFU count."""
        return flops_counted(self.plan.question.assume.mfu, self.plan.sizes.dims)

    @cached_property
    def breakeven_tokens_per_chip(self) -> float | None:
        """Tokens per chip and step above which compute outlasts the exposed communication; null if none does.

        With stages it is not worked out, and of inference, whose weights are read for however many tokens.
        """
        if self.plan.pipeline or self.plan.question.inference:
            return None
        scale = crossing(partial(pace_at, self.plan))
        return None if scale is None else scale * self.plan.tokens / self.plan.chips

    @property
    def breakeven(self) -> str:
        """The break-even in words."""
        if self.plan.pipeline:
            return "where the bound turns is not worked out with stages"
        if self.plan.question.inference:
            return "where the bound turns is not worked out for inference"
        tokens = self.breakeven_tokens_per_chip
        if tokens is not None:
            return f"compute outlasts exposed communication above {tokens:,.0f} tokens per chip and step"
        return f"bound by {self.bound_by.partition(' ')[0]} at any number of tokens"

    @cached_property
    def cheapest_saves_s(self) -> Seconds | None:
        """Seconds that the planner `cheapest` would save; 0 if the book is as good, null over too many axes."""
        cheapest = self.plan.cheapest
        return None if cheapest is None else float(self.time_s - cheapest.step.time_s)


@dataclass(frozen=True, slots=True)
class Requirement(Record):
    """One limit of the scenario, and what came out.

    value  SI; of memory what is held from step to step, of peak all arrays where they are most; of the bubble its share
    """

    told: ClassVar[tuple[str, ...]] = ("name", "required", "value", "ok")

    limit: Limit
    value: Number

    name = Of[str]("limit.name", "what is limited")
    required = Of[str]("limit.text", "the limit as it is stated")

    @property
    def ok(self) -> bool:
        """True if it holds."""
        return self.limit.holds(self.value)


def pace_at(plan: PlanResult, scale: float) -> float:
    """What `Step.pace` is at `scale` times the tokens: every kernel and every call has that many."""
    grown = replace(plan.sizes, dims=completed({**plan.sizes.dims, "b": plan.sizes.dims["b"] * scale}))
    rows = price([row.call for row in plan.rows], grown, pricer(plan.question))
    only = work_of(plan.question, plan.lowered, grown, rows).step(briefly=True).pacing
    return Step(only.rows, only.compute).pace


HOURS_A_DAY = 24
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class TrainingRun(Record):
    """Steps one after the other, without a pause; of prompts and replies a step is both, of a whole batch.

    step_tokens  that a step reads in training, or in a prompt alone; else those that it makes
    tokens      of the run, if they are stated
    chips       that are paid for, idle ones of a slice among them
    chip_hours  of a step, per million tokens, of the run
    price       of a chip hour, in whatever money it is stated
    """

    told: ClassVar[tuple[str, ...]] = (
        *("chip_hours_per_million_tokens", "tokens?", "days?", "chip_hours?"),
        *("price_per_chip_hour?", "price_per_step?", "price_per_million_tokens?", "price?"),
    )

    step_s: float
    chips: int
    step_tokens: int
    tokens: Number | None
    price_per_chip_hour: Number | None
    of: str = "tokens"

    @property
    def chip_hours_per_million_tokens(self) -> Number:
        """Hours of chips that a million tokens take."""
        return MILLION * self._step_chip_hours / self.step_tokens

    @property
    def days(self) -> Number | None:
        """Of the run; left out where its tokens are not stated."""
        return None if self.tokens is None else self.tokens / self.step_tokens * self.step_s / HOUR_S / HOURS_A_DAY

    @property
    def chip_hours(self) -> Number | None:
        """Of the run; left out where its tokens are not stated."""
        return None if self.tokens is None else self.chip_hours_per_million_tokens * self.tokens / MILLION

    @property
    def price_per_step(self) -> Number | None:
        """Money for a step; left out where a chip hour has no price."""
        return self._priced(self._step_chip_hours)

    @property
    def price_per_million_tokens(self) -> Number | None:
        """Money for a million tokens; left out where a chip hour has no price."""
        return self._priced(self.chip_hours_per_million_tokens)

    @property
    def price(self) -> Number | None:
        """Money for the run; left out where its tokens or the price of a chip hour are not stated."""
        return self._priced(self.chip_hours)

    @property
    def _step_chip_hours(self) -> float:
        return self.chips * self.step_s / HOUR_S

    def _priced(self, chip_hours: float | None) -> float | None:
        return None if chip_hours is None or self.price_per_chip_hour is None else chip_hours * self.price_per_chip_hour

    @property
    def text(self) -> str:
        """In words: ``15e12 tokens in 23.4 days, 1.1e6 chip hours, ...``."""
        parts = []
        if self.tokens is not None:
            parts.append(f"{self.tokens:.4g} tokens in {self.days:.4g} days, {self.chip_hours:,.0f} chip hours")
        if self.price_per_chip_hour is not None:
            whole = "" if self.price is None else f"{self.price:,.0f}, "
            price = f"{self.price_per_million_tokens:.4g} per million {self.of}"
            parts.append(f"{whole}{price} at {self.price_per_chip_hour:g} a chip hour")
        return "; ".join(parts)


def run_of(plan: PlanResult) -> TrainingRun | None:
    """The run of a plan; None where neither its tokens nor a price are stated."""
    price, tokens = plan.question.price, getattr(plan.question.stated.file.workload, "run_tokens", None)
    if price is None and tokens is None:
        return None
    each, chips = price and price.value, int(plan.chips / plan.question.placement.share)
    if plan.serve and plan.serve.paid_s is not None:
        made, of = plan.serve.reply_tokens, "tokens of replies with their prompts"
        return TrainingRun(plan.serve.paid_s, chips, made, tokens, each, of)
    return TrainingRun(float(plan.step.pace_s), chips, plan.tokens, tokens, each)
