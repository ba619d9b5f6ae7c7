"""The step of a plan as a whole: its rates, where its bound turns, and the limits that it is held to."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.answers.stages import work_of
from tpsim.cost.compute import FLOPS_COUNTED
from tpsim.cost.rollup import price
from tpsim.cost.step import Step, crossing
from tpsim.frozen import dataclass
from tpsim.program.dims import completed
from tpsim.quantity.size import total
from tpsim.question.prices import pricer
from tpsim.report.record import Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.rollup import Row
    from tpsim.question.question import Limit


@dataclass(frozen=True)
class PlanStep(Step):
    """The step as a whole."""

    told: ClassVar[tuple[str, ...]] = (
        *(*Step.told, "update_s", "tokens_per_s", "mfu", "hfu", "flops_counted", "flops_per_device", "useful_flops"),
        *("breakeven_tokens_per_chip", "breakeven", "cheapest_saves_s"),
    )

    plan: PlanResult

    flops_per_device = Of[Number]("compute.flops", "FLOPs of one chip, repeated work included")
    useful_flops = Of[Number]("compute.useful_flops", "FLOPs of all chips together, without repetition")

    @property
    def update_s(self) -> Seconds:
        """Seconds of compute_s in which the optimizer updates its weights; 0 of inference."""
        return float(self.compute.seconds.get("update", 0))

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole machine."""
        return float(self.plan.tokens / self.time_s)

    @property
    def mfu(self) -> float:
        """Useful FLOPs per second over the peak of all chips.

        Counted are the model's matrix products, attention's whole s by s among them unless `assume.mfu` is causal,
        without recompute or replication: more than 6 x parameters x tokens by what attention does.
        """
        question = self.plan.question
        peak = question.machine.peak(question.products).value
        return float(self.counted[0] / (self.time_s * self.plan.chips * peak))

    @property
    def hfu(self) -> float:
        """FLOPs per second that a chip runs over its peak: as MFU, with recompute and replication."""
        question = self.plan.question
        peak = question.machine.peak(question.products).value
        return float(self.counted[1] / (self.time_s * peak))

    @property
    def counted(self) -> tuple[Any, Any]:
        """The FLOPs that MFU counts, of all chips, and those that HFU counts, of one."""
        full = self.plan.question.assume.mfu == "full"
        return (self.compute.useful_flops, self.compute.flops) if full else self.unmasked

    @cached_property
    def unmasked(self) -> tuple[Any, Any]:
        """Useful FLOPs of all chips, and those that one runs, without what masks hide."""
        plan, useful, run = self.plan, self.compute.useful_flops, self.compute.flops
        masked, stages = [one for one in plan.lowered.kernels if one.mask], plan.question.stages
        each = [plan.sizes.of_stage(stages.loops(rank)) for rank in range(stages.ranks)]
        whole = [(one.useful_flops(plan.sizes), one, total(map(one.count, each))) for one in masked]
        own = [(one.flops(plan.sizes), one, one.count(plan.sizes)) for one in masked]
        return tuple(
            all_ - total((flops - one.seen(flops, plan.sizes)) * count for flops, one, count in hidden)
            for all_, hidden in ((useful, whole), (run, own))
        )

    @property
    def flops_counted(self) -> str:
        """What MFU and HFU count."""
        return FLOPS_COUNTED[self.plan.question.assume.mfu]

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
    def cheapest_saves_s(self) -> Seconds:
        """Seconds of the step that the planner `cheapest` would save; 0 if the book's paths are as good."""
        return float(self.time_s - self.plan.cheapest.step.time_s)


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
    """What `Step.pace` is at `scale` times the tokens: the seconds of products grow with them."""
    work = work_of(plan.question, plan.lowered, plan.sizes, rows_at(plan, scale), scale)
    only = work.step().pacing
    return Step(only.rows, only.compute).pace


def rows_at(plan: PlanResult, scale: float) -> list[Row]:
    """The rows at `scale` times the tokens: those on activations priced again, the others as they are."""
    grown = replace(plan.sizes, dims=completed({**plan.sizes.dims, "b": plan.sizes.dims["b"] * scale}))
    again = iter(price([row.call for row in plan.rows if row.call.grows], grown, pricer(plan.question)))
    return [next(again) if row.call.grows else row for row in plan.rows]
