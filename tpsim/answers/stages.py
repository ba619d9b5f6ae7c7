"""A plan in stages: what messages between them take, the step from their orders, and what is said of each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tpsim.cost.clock import Clock
from tpsim.cost.collectives import singles
from tpsim.cost.early import begin_together
from tpsim.cost.pipeline import Pipelined, Work
from tpsim.quantity.errors import InputError
from tpsim.question.prices import route_of, sent
from tpsim.report.record import Bytes, Count, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.answers.memory import ChipMemory
    from tpsim.cost.rank_work import Stage
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes
    from tpsim.program.schedules import Blocking, PipelineSchedule
    from tpsim.question.memo import Lowered
    from tpsim.question.question import Question


@dataclass(frozen=True, slots=True)
class AlikeStages(Record):
    """Ranks of the pipeline that are alike: their five seconds are the step together.

    in_flight   microbatches of the rank between forward and backward, at most
    held_bytes  parameters, gradients and optimizer of a chip
    kept_bytes, peak_bytes  where it holds most: arrays that later actions read, and all together
    """

    ranks: str
    layers: Count
    compute_s: Seconds
    exposed_s: Seconds
    bubble_s: Seconds
    host_s: Seconds
    stragglers_s: Seconds
    in_flight: Number
    held_bytes: Bytes
    kept_bytes: Bytes
    peak_bytes: Bytes


@dataclass(frozen=True, slots=True)
class Pipeline(Record):
    """How stages take turns, and what the step hangs on.

    orders  of the ranks
    blocking  whether both stages wait for a message on its way
    each    what a chip of each rank holds
    rows    every collective once, with its calls on the rank that has most layers
    """

    told: ClassVar[tuple[str, ...]] = (
        *("schedule", "ranks", "chunks", "microbatches", "sends", "pacing_rank"),
        *("bubble_s", "bubble_share", "formula", "parts_s"),
    )

    orders: PipelineSchedule
    blocking: Blocking
    step: Pipelined
    each: tuple[ChipMemory, ...]
    rows: tuple[Row, ...]

    schedule = Of[str]("orders.name", "in which order a rank works")
    ranks = Of[Count]("orders.ranks", "stages of the pipeline")
    chunks = Of[Count]("orders.chunks", "of layers on each rank")
    microbatches = Of[Count]("orders.microbatches", "that go through")
    pacing_rank = Of[Count]("step.pacing.rank", "the rank that the step hangs on: sums of the plan are its own")
    bubble_s = Of[Seconds]("step.pacing.bubble_s", "what this rank waits for others")
    formula = Of[str]("step.told.formula", "how often each pass, and each send, stands on the critical path")
    parts_s = Of[Mapping[str, Seconds]]("step.told.seconds", "seconds of one of each")

    @property
    def sends(self) -> Literal["blocking", "blocking in warm-up and flush", "beside compute"]:
        """Whether both stages wait for a message on its way."""
        if self.blocking == "steady":
            return "blocking in warm-up and flush"
        return "blocking" if self.blocking else "beside compute"

    @property
    def bubble_share(self) -> Number:
        """The bubble as a share of the step."""
        return self.bubble_s / self.step.time_s

    @property
    def alike(self) -> list[AlikeStages]:
        """One for each run of ranks that are alike."""
        runs = groupby(zip(self.step.told.stages, self.each, strict=True), key=lambda pair: _figures(*pair))
        return [AlikeStages(listed([stage.rank for stage, _ in run]), *figures) for figures, run in runs]

    @property
    def elsewhere(self) -> tuple[Row, ...]:
        """The collectives that the rank which sets the pace has no part in."""
        ids = {id(row.call.single) for row in self.step.pacing.rows}
        return tuple(replace(row, exposed_s=0) for row in self.rows if id(row.call.single) not in ids)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What a plan in stages takes for granted."""
        manner = {
            "blocking": "hold up both stages, which exchange what goes either way at once",
            "beside compute": "run beside compute and delay only who waits for them",
            "blocking in warm-up and flush": "hold up stages in warm-up and flush, and delay others where they wait",
        }
        apart = self.step.ended_s > self.step.time_s and not begin_together(self.step.work.actions)
        why = "which takes longest: each begins the next step as it ends its own" if apart else "which ends last"
        return (
            f"sends between stages {manner[self.sends]}",
            f"sums and the step are those of rank {self.pacing_rank}, {why}",
        )


@dataclass(frozen=True, eq=False)
class Hops:
    """Seconds of a message between two ranks of a pipeline, of each way worked out once.

    volume  bytes of what is cut
    """

    question: Question
    volume: Any
    known: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __call__(self, source: int, target: int) -> Any:
        """From one rank to another."""
        ranks = source, target
        if ranks not in self.known:
            route = route_of(self.question, self.question.layout.stages, source, target)
            if route not in self.known:
                self.known[route] = sent(self.question, route, self.volume).time_s
            self.known[ranks] = self.known[route]
        return self.known[ranks]


def work_of(
    question: Question, lowered: Lowered, sizes: Sizes, rows: Sequence[Row], *, attributed: bool = True
) -> Work:
    """What the ranks of a question do, one without stages; without a cut that is sent over nothing is on its way.

    attributed  False of arrays, of which only sums are wanted
    """
    actions = lowered.actions(question, sizes, singles(row.call for row in rows))
    volume = next((row.logical_bytes for row in rows if row.call.where.place == "cut"), 0)

    hop = Hops(question, volume)
    clock = Clock(
        rows,
        lowered.kernels,
        sizes,
        question.machine,
        question.products,
        question.matmul_efficiency,
        question.assume.kernel_launch_s,
        question.tied,
        attributed,
    )
    return Work(question.orders, question.stages, clock, actions, hop, question.blocking)


def in_stages(
    question: Question,
    lowered: Lowered,
    sizes: Sizes,
    rows: Sequence[Row],
    chips: tuple[ChipMemory, ...],
    *,
    briefly: bool = False,
) -> Pipeline:
    """The pipeline of a question that has one: its step beside what `chips` rank holds.

    briefly  ranks that the step does not hang on are worked out when they are asked for
    """
    work = work_of(question, lowered, sizes, rows)
    rows = [_staged(row, work) for row in rows]
    work = replace(work, clock=replace(work.clock, rows=rows))
    try:
        whole = work.step(briefly=briefly)
    except InputError as error:  # a schedule that deadlocks, which knows no file
        raise error.at(question.stated.at("pipeline", "schedule") or question.stated.at("pipeline")) from None
    return Pipeline(question.orders, question.blocking, whole, chips, tuple(rows))


def _staged(row: Row, work: Work) -> Row:
    """A row with the ranks that make its calls, as ``0-6`` or ``0,7``, None for all; of buckets the calls of one."""
    stages, buckets, call = work.stages, work.actions.buckets, row.call
    often = {rank: calls for rank in range(stages.ranks) if (calls := buckets.often(call, stages, rank))}
    most = often.get(max(range(stages.ranks), key=stages.layers), 0)
    count = most * call.repeats(row.sizes) if buckets.joins(call) else row.count
    return replace(row, count=count, stage=None if len(often) == stages.ranks else listed([*often]))


def listed(ranks: Sequence[int]) -> str:
    """Ranks in words.

    >>> listed([0, 1, 2, 7])
    '0-2,7'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def names(ranks: str | None, rank: int) -> bool:
    """True if ranks in words, as `listed` says them, have this one among them; None is all.

    >>> names("0-2,7", 1), names("0-2,7", 3), names(None, 3)
    (True, False, True)
    """
    runs = [run.partition("-") for run in (ranks or f"{rank}").split(",")]
    return any(int(first) <= rank <= int(last or first) for first, _, last in runs)


def _figures(stage: Stage, holds: ChipMemory) -> tuple[Any, ...]:
    seconds = (stage.compute.time_s, stage.exposed_s, stage.bubble_s, stage.host_s, stage.stragglers_s)
    return (stage.layers, *seconds, stage.in_flight, holds.static_bytes, holds.kept_bytes, holds.peak_bytes)
