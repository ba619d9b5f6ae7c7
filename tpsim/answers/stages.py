"""A plan in stages: what messages between them take, the step from their orders, and what is said of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tpsim.cost.memory import Memory, memory
from tpsim.cost.pipeline import Pipelined, Stage, Work
from tpsim.machine import timing
from tpsim.program.schedules import DEFAULT, PipelineSchedule, pipeline_schedule
from tpsim.report.record import Bytes, Count, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.cost.rollup import Collective, Row
    from tpsim.cost.sizes import Sizes
    from tpsim.fabric.wires import Route
    from tpsim.question.question import Question
    from tpsim.question.shelf import Lowered

PAIR = 2
"""The devices of a message: a permute of two."""


@dataclass(frozen=True, slots=True)
class AlikeStages(Record):
    """Ranks of the pipeline that are alike: compute, exposed communication and bubble are the step together.

    in_flight   microbatches of the rank between forward and backward, at most
    held_bytes  parameters, gradients and optimizer of a chip
    """

    ranks: str
    layers: Count
    compute_s: Seconds
    exposed_s: Seconds
    bubble_s: Seconds
    in_flight: Number
    held_bytes: Bytes


@dataclass(frozen=True, slots=True)
class Pipeline(Record):
    """How stages take turns, and what the step hangs on.

    orders  of the ranks
    each    what a chip of each rank holds
    capacity_bytes  of a chip's memory
    rows    every collective once, with its calls on a rank in the middle that has it
    """

    told: ClassVar[tuple[str, ...]] = (
        *("schedule", "ranks", "chunks", "microbatches", "sends", "pacing_rank"),
        *("bubble_s", "bubble_share", "formula", "parts_s"),
    )

    orders: PipelineSchedule
    step: Pipelined
    each: tuple[Memory, ...]
    capacity_bytes: float
    rows: tuple[Row, ...]

    schedule = Of[str]("orders.name", "in which order a rank works")
    ranks = Of[Count]("orders.ranks", "stages of the pipeline")
    chunks = Of[Count]("orders.chunks", "of layers on each rank")
    microbatches = Of[Count]("orders.microbatches", "that go through")
    pacing_rank = Of[Count]("step.pacing.rank", "the rank that ends last: sums of the plan are its own")
    bubble_s = Of[Seconds]("step.pacing.bubble_s", "what this rank waits for others")
    formula = Of[str]("step.formula", "how often each pass, and each send, stands on the critical path")
    parts_s = Of[Mapping[str, Seconds]]("step.seconds", "seconds of one of each")

    @property
    def sends(self) -> Literal["blocking", "beside compute"]:
        """Whether both stages wait for a message on its way."""
        return "blocking" if self.orders.blocking else "beside compute"

    @property
    def bubble_share(self) -> Number:
        """The bubble as a share of the step."""
        return self.bubble_s / self.step.time_s

    @property
    def alike(self) -> list[AlikeStages]:
        """One for each run of ranks that are alike."""
        runs = groupby(zip(self.step.stages, self.each, strict=True), key=lambda pair: _figures(*pair))
        return [AlikeStages(_listed([stage.rank for stage, _ in run]), *figures) for figures, run in runs]

    @property
    def fullest(self) -> int:
        """The rank with the least room: by its states where these outgrow the chip, else with its logits."""
        states = max(range(len(self.each)), key=lambda rank: self.each[rank].static_bytes)
        if self.each[states].static_bytes > self.capacity_bytes:
            return states
        return max(range(len(self.each)), key=lambda rank: self.each[rank].static_bytes + self.each[rank].logits_bytes)

    @property
    def elsewhere(self) -> tuple[Row, ...]:
        """The collectives that the rank which sets the pace has no part in."""
        mine = {id(row.call) for row in self.step.pacing.rows}
        return tuple(replace(row, exposed_s=0) for row in self.rows if id(row.call) not in mine)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What a plan in stages takes for granted."""
        how = "hold up both stages, which exchange what goes either way at once"
        beside = "run beside compute and delay only who waits for them"
        return (
            f"sends between stages {how if self.orders.blocking else beside}, as {self.orders.name} is run",
            f"sums and the step are those of rank {self.pacing_rank}, which ends last",
        )


def route_over(question: Question, move: Move) -> Route:
    """The wires of a collective; of what two stages have together, those between these two."""
    if move.members and question.schedule:
        return question.placement.hop(move.axes, 0, 1 if move.kind == "send" else question.schedule.ranks - 1)
    return question.placement.route(move.axes)


def route_of(question: Question, axes: Sequence[str], source: int, target: int) -> Route:
    """The wires between a device of one rank and its like on another."""
    return question.placement.hop(axes, source, target)


def sent(question: Question, route: Route, volume: Any) -> timing.Timing:
    """A message of `volume` bytes to one other device."""
    return timing.time(
        question.machine,
        route,
        "permute",
        PAIR * volume,
        cost_model=question.cost_model,
        launch=question.force.launch,
        protocol=question.force.protocol,
    )


def hops(schedule: PipelineSchedule) -> Iterator[tuple[int, int]]:
    """The pairs of ranks that send to each other."""
    yield from ((rank, rank + 1) for rank in range(schedule.ranks - 1))
    if schedule.chunks > 1:
        yield schedule.ranks - 1, 0


def slowest_send(question: Question, schedule: PipelineSchedule, axes: Sequence[str], volume: Any) -> timing.Timing:
    """A message over the cut where it takes longest."""
    routes = {route_of(question, axes, *pair) for pair in hops(schedule)}
    return max((sent(question, route, volume) for route in routes), key=lambda one: one.time_s)


def work_of(question: Question, lowered: Lowered, sizes: Sizes, rows: Sequence[Row], scale: float = 1) -> Work:
    """What the ranks of a question do, one without stages; without a cut that is sent over nothing is on its way.

    scale  times which products take, as with so many more tokens
    """
    axes = question.layout.stages
    volume = next((row.logical_bytes for row in rows if row.call.where.place == "cut"), 0)
    stages = question.practice.overlap.stages

    @cache
    def hop(source: int, target: int) -> Any:
        return sent(question, route_of(question, axes, source, target), volume).time_s

    return Work(
        question.schedule or pipeline_schedule(DEFAULT, 1, 1, question.workload.microbatches),
        question.stages,
        sizes,
        rows,
        lowered.products,
        lowered.actions(question, sizes, [row.call for row in rows]),
        question.machine,
        question.products,
        question.matmul_efficiency,
        hop,
        None if stages == "auto" else stages == "none",
        scale,
    )


def in_stages(question: Question, lowered: Lowered, sizes: Sizes, rows: Sequence[Row]) -> Pipeline:
    """The pipeline of a question that has one: its step, and what every rank holds from step to step."""
    stages, capacity = question.stages, question.machine.chip.memory_capacity.value
    each = tuple(memory(lowered.program, sizes, partial(stages.runs, rank=rank)) for rank in range(stages.ranks))
    if question.schedule is None:
        raise ValueError(question.name)
    rows = [replace(row, stage=ranks_of(question, row.call)) for row in rows]
    whole = work_of(question, lowered, sizes, rows).step()
    return Pipeline(question.schedule, whole, each, float(capacity), tuple(rows))


def ranks_of(question: Question, one: Collective) -> str | None:
    """The ranks that a collective runs on, as ``0-6`` or ``0,7``; None for all."""
    stages, where = question.stages, one.where
    runs = stages.handed_on if where.place == "cut" else stages.runs
    ranks = [rank for rank in range(stages.ranks) if runs(where, rank)]
    return None if len(ranks) == stages.ranks else _listed(ranks)


def calls_of_all(question: Question, one: Collective, count: Any) -> Any:
    """The calls of all stages together, given those of one in the middle that has them."""
    stages, where = question.stages, one.where
    if where.place == "cut":
        return question.workload.microbatches * sum(stages.handed_on(where, rank) for rank in range(stages.ranks))
    return count if len(where.chunks) > 1 else count * sum(stages.runs(where, rank) for rank in range(stages.ranks))


def _listed(ranks: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _figures(stage: Stage, holds: Memory) -> tuple[Any, ...]:
    seconds = (stage.compute.time_s, stage.exposed_s, stage.bubble_s)
    return (stage.layers, *seconds, stage.in_flight, holds.static_bytes)
