"""The verb `plan`: what a step of training or inference sends, computes and holds, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

from tpsim.answers.changes import FieldChange, best_change
from tpsim.answers.memory import ChipMemory, fullest
from tpsim.answers.plan_step import PlanStep, Requirement, TrainingRun, run_of
from tpsim.answers.serve import Serve, chips_at_most, chips_in_step, filled_up, prompt_memory
from tpsim.answers.stages import AlikeStages, Pipeline, in_stages, work_of
from tpsim.answers.trust import Band, assumed, band, not_modelled, unbucketed
from tpsim.answers.verdict import bars, verdict_lines
from tpsim.cost.collectives import travelling
from tpsim.cost.rollup import KEYS, Row, SumKey, Total, price, rolled_up
from tpsim.quantity.errors import InputError
from tpsim.question.inputs import asked
from tpsim.question.memo import Lowered, Memo, lowered
from tpsim.question.prices import pricer, refuse_unknown_algorithm, shown_where_forced, sizes_of
from tpsim.question.question import Question, relaunched
from tpsim.question.resolved import columns
from tpsim.question.scenario import resolve
from tpsim.question.serving import prefill_of
from tpsim.report.answer import Answer, Assumption
from tpsim.report.record import Of, names

if TYPE_CHECKING:
    from tpsim.cost.compute import Compute
    from tpsim.cost.rank_work import Stage
    from tpsim.cost.sizes import Sizes
    from tpsim.quantity.spec import Document
    from tpsim.question.edits import Flags
    from tpsim.question.requirements import Limit
    from tpsim.report.picture import Picture
    from tpsim.report.table import Bar, Line


def plan(
    scenario: str | Path | Document | Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    **flags: Unpack[Flags],
) -> PlanResult:
    """Price one step of training, or of inference.

    scenario   a file, a library name, its content as a mapping, or None for flags alone
    overrides  ``path=value`` each, as ``--set`` takes them
    flags      the command line's options by name: tp=8, batch=512, cost_model="book"; see `tpsim.question.edits`
    Raises InputError for everything that the scenario says wrongly.

    Of what comes back ``print`` shows the verdict; names end in their unit: ``step.time_s`` in seconds,
    ``memory.peak_bytes`` of the fullest chip. ``rows`` are the collectives, ``to_frame()`` those as a pandas DataFrame,
    ``to_json()`` all of it as plain data.
    """
    memo = Memo()
    return priced(resolve(scenario, overrides=overrides, flags=flags, memo=memo), memo)


def priced(
    question: Question, memo: Memo | None = None, book: PlanResult | None = None, *, briefly: bool = False
) -> PlanResult:
    """The plan of a resolved question.

    memo  programs that other questions of the same request have lowered
    book   its plan by the planner ``book``, if it is known
    briefly  stages that the step does not hang on are worked out when they are asked for

    The planner ``cheapest`` chooses per array and cannot see which arrays will travel together; where that makes the
    step slower than the book's paths, these are taken.
    """
    question = filled_up(question, memo := memo or Memo())
    with shown_where_forced(question.stated):
        if question.planner == "cheapest":
            from tpsim.answers.cheapest import CheapestPath, refuse_too_many

            refuse_too_many(question)
            # First the book's: the other takes what cannot be priced for a path that there is not, whatever the reason.
            book = replace(book or priced(replace(question, planner="book"), memo), question=question)
            free = lowered(question, path := CheapestPath(question))
            plans = (_priced(question, free, memo), book) if path.differs else (book,)
            return min(plans, key=lambda plan: plan.step.time_s)
        return _priced(question, memo.lowered(question), memo, briefly=briefly)


def fitting(question: Question, memo: Memo) -> PlanResult | None:
    """The plan of a question if its step fits the chip: memory is asked first, for seconds take longer to find.

    Where other servers read prompts theirs has to fit, too.
    """
    question = filled_up(question, memo)
    if (beside := prompt_memory(question, memo)) and beside.room_bytes < 0:
        return None
    if question.planner == "cheapest":
        plan = priced(question, memo)
        return plan if plan.memory.room_bytes >= 0 else None
    lowered = memo.lowered(question)
    chips = [*takewhile(lambda chip: chip.room_bytes >= 0, chips_at_most(question, lowered, memo))]
    return _priced(question, lowered, memo, (*chips,), briefly=True) if len(chips) == question.stages.ranks else None


def _priced(
    question: Question,
    lowered: Lowered,
    memo: Memo,
    chips: tuple[ChipMemory, ...] | None = None,
    *,
    briefly: bool = False,
) -> PlanResult:
    sizes = sizes_of(question)
    calls = travelling(lowered.collectives, question.mesh.axes)
    refuse_unknown_algorithm(question, calls)
    buckets = lowered.actions(question, sizes, calls).buckets
    rows = price(buckets.priced(question.stages), sizes, pricer(question))
    chips = chips or tuple(chips_at_most(question, lowered, memo))
    pipeline = in_stages(question, lowered, sizes, rows, chips, briefly=briefly) if question.schedule else None
    step = pipeline.step if pipeline else work_of(question, lowered, sizes, rows).step(briefly=True)
    stage_sizes = sizes.of_stage(question.stages.loops(step.pacing.rank))
    own = [rank.compute for rank in step.work.own]
    plan = PlanResult(question, stage_sizes, step.pacing, own, fullest(chips), lowered, memo, pipeline)
    if not isfinite(plan.step.time_s):
        message = f"a step takes {plan.step.time_s} s on {question.machine.name}, which is no number"
        remedy = f"look for a slip in its figures: tpsim hw show {asked('hardware', question.machine.path)}"
        raise InputError.one("no-number", message, remedy=remedy)
    return plan


@dataclass(frozen=True)
class PlanResult(Answer):
    """A priced step. Bytes are of one chip, seconds of one step, unless a name says otherwise.

    pacing   the rank that the step hangs on
    works    what every rank computes
    memory   see `tpsim.cost`
    lowered  the program
    memo    what the request has read and lowered, for what is asked beside it
    pipeline  with stages: then rows, compute and step are those of the rank that it hangs on, and memory is that of
              the rank with the least room

    What is worked out once and asks the plan holds a copy: a plan that held itself would outlive its last user.
    """

    schema = "tpsim.plan/2"
    told: ClassVar[tuple[str, ...]] = (
        *("verdict", "collectives", "per_layer", "totals", "memory", "step", "pipeline?", "stages?"),
        *("band?", "change", "require", "run?", "serve?"),
    )

    question: Question
    sizes: Sizes
    pacing: Stage
    works: Sequence[Compute]
    memory: ChipMemory
    lowered: Lowered
    memo: Memo
    pipeline: Pipeline | None = None

    rows = Of[tuple[Row, ...]]("pacing.rows", "every collective of that rank with its numbers")
    tokens = Of[int]("question.workload.tokens", "tokens of one step, over all chips")
    chips = Of[int]("question.mesh.devices", "chips of the mesh")
    files = Of[Sequence[tuple[str, str]]]("question.inputs", "path and sha256 of every file that was read")
    resolved = Of[Mapping[str, Any]]("question.resolved", "what files, flags and defaults came to")
    run = Of[TrainingRun | None](run_of, "the whole run, where its tokens or a price are stated")

    @property
    def compute(self) -> Compute:
        """The kernels of that rank."""
        return self.pacing.compute

    @cached_property
    def collectives(self) -> tuple[Row, ...]:
        """The rows, and those of other ranks: none of these is exposed to the rank that the step hangs on."""
        return (*self.rows, *(self.pipeline.elsewhere if self.pipeline else ()))

    @property
    def every_row(self) -> tuple[Row, ...]:
        """Every collective once; of a pipeline with its calls on the rank that has most layers."""
        return self.pipeline.rows if self.pipeline else self.rows

    @property
    def each(self) -> tuple[ChipMemory, ...]:
        """What a chip of every rank holds."""
        return self.pipeline.each if self.pipeline else (self.memory,)

    @property
    def each_in_step(self) -> tuple[ChipMemory, ...]:
        """The same over the step that is drawn: of a prompt and its reply one of decoding, whichever needs more."""
        apart = self.prefill or self.question.draft
        return tuple(chips_in_step(self.question, self.lowered, self.memo)) if apart else self.each

    @property
    def stages(self) -> list[AlikeStages] | None:
        """With stages: those of the pipeline, in the order of its ranks."""
        return self.pipeline.alike if self.pipeline else None

    @cached_property
    def per_layer(self) -> Mapping[Literal["forward", "backward", "total"], Total]:
        """One layer and one microbatch, of what runs in every one of them; the rest is in totals only.

        Of layers of several kinds it is the mean of those of the rank.
        """
        repeated = tuple(row for row in self.rows if row.call.per_layer and row.call.per_microbatch)
        forward, backward = (tuple(r for r in repeated if r.phase == phase) for phase in ("forward", "backward"))
        return {"forward": Total(forward, True), "backward": Total(backward, True), "total": Total(repeated, True)}

    @property
    def layer(self) -> str:
        """What `per_layer` is of, in words."""
        stages, rank = self.question.stages, self.pipeline.pacing_rank if self.pipeline else 0
        if len({kind for chunk in stages.of(rank) for kind, _ in chunk.stack}) == 1:
            return "one layer"
        return f"a mean layer of rank {rank}" if self.pipeline else "a mean layer"

    @cached_property
    def totals(self) -> Mapping[SumKey, Mapping[str, Total]]:
        """Sums over the step, each per key."""
        return {name: rolled_up(self.rows, by) for name, by in KEYS.items()}

    @cached_property
    def step(self) -> PlanStep:
        """Seconds, what bounds them and the rates that follow."""
        waits = self.pipeline.bubble_s if self.pipeline else 0
        own = {"host_s": self.pacing.host_s, "stragglers_s": self.pacing.stragglers_s}
        return PlanStep(self.rows, self.compute, replace(self), bubble_s=waits, **own)

    @cached_property
    def change(self) -> FieldChange | None:
        """The best of a few changes that were priced; null if none is better."""
        return best_change(replace(self), fitting)

    @cached_property
    def require(self) -> list[Requirement]:
        """What the scenario requires, and whether it holds."""
        if not self.question.limits:
            return []  # a band with a guessed launch prices the step twice more
        values = {
            "step": self.step.time_s,
            **({"step_low": self.band.low_s, "step_high": self.band.high_s} if self.band else {}),
            "exposed": self.step.exposed_s,
            "bubble": self.step.bubble_s / self.step.time_s,
            "memory": self.memory.static_bytes,
            "peak": self.memory.peak_bytes,
            "mfu": self.step.mfu,
            "tokens_per_s": self.step.tokens_per_s,
            **(self.serve.demanded if self.serve else {}),
        }
        return [Requirement(limit, float(values[limit.name])) for limit in self.question.limits]

    @cached_property
    def band(self) -> Band | None:
        """Where eight of ten published runs like it would lie; left out of inference."""
        question, memo = self.question, self.memo
        if question.inference:
            return None
        return band(question, float(self.step.time_s), lambda s: priced(relaunched(question, s), memo).step.time_s)

    @cached_property
    def serve(self) -> Serve | None:
        """What a step of inference comes to; left out of one of training."""
        return Serve(replace(self), work) if (work := self.question.inference) else None

    @cached_property
    def prefill(self) -> PlanResult | None:
        """Of a prompt and its reply the plan of the prompt."""
        both = self.question.workload.kind == "serve"
        return priced(prefill_of(self.question), self.memo) if both else None

    @property
    def broken(self) -> list[Limit]:
        """The requirements that do not hold."""
        return [demand.limit for demand in self.require if not demand.ok]

    @property
    def ok(self) -> bool:
        """True if every requirement holds."""
        return not self.broken

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The answer in lines: time, memory, and a change where one is better."""
        return tuple(verdict_lines(self))

    @property
    def bars(self) -> tuple[Bar, ...]:
        """The step, and the peak of memory beside what the chip has."""
        return tuple(bars(self))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """A layer, the ranks and their memory over time, see `tpsim.answers.pictures`."""
        from tpsim.answers.pictures import of_plan

        return tuple(of_plan(self))

    @property
    def cheapest(self) -> PlanResult | None:
        """The plan of the planner `cheapest`; none where there are more ways than it can look at."""
        from tpsim.answers.cheapest import too_many

        if too_many(self.question):
            return None
        book = self if self.question.planner == "book" else None
        return priced(replace(self.question, planner="cheapest"), self.memo, book)

    @property
    def assumptions(self) -> list[Assumption]:
        """What the plan rests on: the scenario's own assumptions, the measured curves used, then every plan's."""
        return [*self.question.assumptions, *assumed(self)]

    @property
    def not_modelled(self) -> Sequence[str]:  # type: ignore[override]  # of every other answer it is one list
        """What the plan leaves out."""
        return (*not_modelled(self.question), *unbucketed(self))

    @property
    def columns(self) -> Sequence[str]:
        """What a frame and CSV have above no rows: one chip sends nothing."""
        return (*(name for name, always in names(Row).items() if always), *columns(self.question))

    def to_yaml(self, folder: Path = Path()) -> str:
        """The scenario that asks for this plan, as ``--save`` writes it; paths in it hold from a file in `folder`."""
        from tpsim.question.save import scenario_text

        return scenario_text(self.question, folder)

    def to_trace(self) -> dict[str, Any]:
        """The step as a trace for chrome://tracing and Perfetto, see `tpsim.answers.course`."""
        from tpsim.answers.course import trace

        return trace(self)

    def shown(self) -> list[dict[str, Any]]:
        """The collectives without formulas, which would load sympy, and reasons."""
        return [{name: row[name] for name in row if name not in ("formula", "because")} for row in self.collectives]

    def records(self) -> list[dict[str, Any]]:
        """Tidy rows for CSV and frames: what a row is first, then what it costs, with formulas.

        Each ends with what was asked, so that rows of several plans can be put together.
        """
        asked = columns(self.question)
        return [{**row, **asked} for row in self.collectives]
