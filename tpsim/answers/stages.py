"""A plan in stages: what messages between them take, the step from their orders, and what is said of each rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tpsim.answers.plan_record import number
from tpsim.cost.memory import Memory, memory
from tpsim.cost.pipeline import Pipelined, Stage, Work
from tpsim.machine import timing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.cost.rollup import Collective, Row, Sizes
    from tpsim.fabric.wires import Route
    from tpsim.program.op import Program
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.question.question import Question
    from tpsim.question.shelf import Lowered

PAIR = 2
"""The devices of a message: a permute of two."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The pipeline of a plan.

    each      what a chip of each rank holds
    capacity  bytes of a chip's memory
    rows      every collective once, with its calls on a rank in the middle that has it
    """

    schedule: PipelineSchedule
    step: Pipelined
    each: tuple[Memory, ...]
    capacity: float
    rows: tuple[Row, ...]

    @property
    def ranks_of(question: Question, one: Collective) -> str | None:
    """The ranks that a collective runs on, as ``0-6`` or ``0,7``; None for all."""
    stages, where = question.stages, one.where
    runs = stages.handed_on if where.place == "cut" else stages.runs
    return _listed([rank for rank in range(stages.ranks) if runs(where, rank)], stages.ranks)


def calls_of_all(question: Question, one: Collective, count: Any) -> Any:
    """The calls of all stages together, given those of one in the middle that has them."""
    stages, where = question.stages, one.where
    if where.place == "cut":
        return question.workload.microbatches * sum(stages.handed_on(where, rank) for rank in range(stages.ranks))
    return count if len(where.chunks) > 1 else count * sum(stages.runs(where, rank) for rank in range(stages.ranks))


def _listed(ranks: Sequence[int], of: int) -> str | None:
    if len(ranks) == of:
        return None
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def pipeline_record(schedule: PipelineSchedule, step: Pipelined) -> dict[str, Any]:
    """The pipeline as a document says it; the bubble is that of the rank that sets the pace."""
    bubble_s = step.pacing.bubble_s
    return {
        "schedule": schedule.name,
        "ranks": schedule.ranks,
        "chunks": schedule.chunks,
        "microbatches": schedule.microbatches,
        "sends": "blocking" if schedule.blocking else "beside compute",
        "pacing_rank": step.pacing.rank,
        "bubble_s": float(bubble_s),
        "bubble_share": float(bubble_s / step.time_s),
        "formula": step.formula,
        "parts_s": {name: float(seconds) for name, seconds in step.seconds.items()},
    }


def stage_records(step: Pipelined, each: Sequence[Memory]) -> list[dict[str, Any]]:
    """One record per run of ranks that are alike."""
    found: list[tuple[list[int], dict[str, Any]]] = []
    for stage, holds in zip(step.stages, each, strict=True):
        record = _stage_record(stage, holds)
        if found and found[-1][1] == record:
            found[-1][0].append(stage.rank)
        else:
            found.append(([stage.rank], record))
    return [{"ranks": _listed(ranks, 0), **record} for ranks, record in found]


def _stage_record(stage: Stage, holds: Memory) -> dict[str, Any]:
    return {
        "layers": stage.layers,
        "compute_s": float(stage.compute.time_s),
        "exposed_s": float(stage.exposed_s),
        "bubble_s": float(stage.bubble_s),
        "in_flight": stage.in_flight,
        "held_bytes": number(holds.static),
    }
