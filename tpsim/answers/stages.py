"""A plan in stages: what messages between them take, the step from their orders, and what is said of each rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
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
    def fullest(self) -> int:
        """The rank with the least room: by its states where these outgrow the chip, else with its logits."""
        states = max(range(len(self.each)), key=lambda rank: self.each[rank].static)
        if self.each[states].static > self.capacity:
            return states
        return max(range(len(self.each)), key=lambda rank: self.each[rank].static + self.each[rank].logits)

    @property
    def elsewhere(self) -> tuple[Row, ...]:
        """The collectives that the rank which sets the pace has no part in."""
        mine = {id(row.collective) for row in self.step.pacing.rows}
        return tuple(replace(row, exposed_s=0) for row in self.rows if id(row.collective) not in mine)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What a plan in stages takes for granted."""
        how = "hold up both stages, which exchange what goes either way at once"
        beside = "run beside compute and delay only who waits for them"
        return (
            f"sends between stages {how if self.schedule.blocking else beside}, as {self.schedule.name} is run",
            f"sums and the step are those of rank {self.step.pacing.rank}, which waits least and so sets the pace",
        )

    def record(self) -> dict[str, Any]:
        """What a document says of it."""
        return {"pipeline": pipeline_record(self.schedule, self.step), "stages": stage_records(self.step, self.each)}


def route_over(question: Question, move: Move) -> Route:
    """The wires of a collective; of one that the first and last stage have together, those between these two."""
    if move.members and question.schedule:
        return question.placement.hop(move.axes, 0, question.schedule.ranks - 1)
    return question.placement.route(move.axes)


def route_of(question: Question, axes: Sequence[str], source: int, target: int) -> Route:
    """The wires between a device of one rank and its like on another."""
    return question.placement.hop(axes, source, target)


def sent(question: Question, route: Route, volume: Any) -> timing.Timing:
    """A message of `volume` bytes to one other device."""
    timed = timing.time(
        question.machine,
        route,
        "permute",
        PAIR * volume,
        cost_model=question.cost_model,
        launch=question.force.launch,
        protocol=question.force.protocol,
    )
    return replace(timed, algorithm="direct")


def hops(schedule: PipelineSchedule) -> Iterator[tuple[int, int]]:
    """The pairs of ranks that send to each other."""
    yield from ((rank, rank + 1) for rank in range(schedule.ranks - 1))
    if schedule.chunks > 1:
        yield schedule.ranks - 1, 0


def slowest_send(question: Question, schedule: PipelineSchedule, axes: Sequence[str], volume: Any) -> timing.Timing:
    """A message over the cut where it takes longest."""
    routes = {route_of(question, axes, *pair) for pair in hops(schedule)}
    return max((sent(question, route, volume) for route in routes), key=lambda one: one.time_s)


def pipelined(
    question: Question, schedule: PipelineSchedule, lowered: Lowered, sizes: Sizes, rows: Sequence[Row]
) -> Pipelined:
    """The step from the orders of the schedule; without a cut that is sent over nothing is on its way."""
    axes = question.layout.stages
    volume = next(row.logical_bytes for row in rows if row.collective.where.place == "cut")

    @cache
    def hop(source: int, target: int) -> Any:
        return sent(question, route_of(question, axes, source, target), volume).time_s

    return Work(
        schedule,
        question.stages,
        sizes,
        rows,
        lowered.products,
        question.machine,
        question.products,
        question.matmul_efficiency,
        hop,
    ).step()


def in_stages(question: Question, lowered: Lowered, sizes: Sizes, rows: Sequence[Row]) -> Staged:
    """The pipeline of a question that has one: its step, and what every rank holds from step to step."""
    stages, capacity = question.stages, question.machine.chip.memory_capacity.value
    each = tuple(memory(lowered.program, sizes, partial(stages.runs, rank=rank)) for rank in range(stages.ranks))
    if question.schedule is None:
        raise ValueError(question.name)
    whole = pipelined(question, question.schedule, lowered, sizes, rows)
    return Staged(question.schedule, whole, each, float(capacity), tuple(rows))


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
