"""What was asked, as columns of a plan's tidy rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpsim.answers.plan import PlanResult


def asked_columns(plan: PlanResult) -> dict[str, Any]:
    """One value each, so that rows of several plans can be put together."""
    question, layout = plan.question, plan.question.layout
    return {
        "scenario": question.name,
        "model": question.model.name,
        "hardware": question.machine.name,
        "chips": plan.chips,
        "mesh": ",".join(f"{axis}={size}" for axis, size in question.mesh.axes.items()),
        "placement": "; ".join(" ".join(line.split()) for line in question.placement.describe()),
        "zero": layout.zero,
        "sequence_parallel": layout.sequence_parallel,
        "global_batch": question.workload.global_batch,
        "seq": question.workload.seq,
        "microbatches": question.workload.microbatches,
        "cost_model": question.cost_model,
        "planner": question.planner,
        "guesses": question.guesses,
        "tpsim": plan.tpsim,
    }
