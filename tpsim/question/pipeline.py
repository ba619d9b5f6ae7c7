"""The pipeline that a scenario asks for: its stages on one mesh axis, and the orders in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.cost.collectives import travelling
from tpsim.cost.compute import compute
from tpsim.cost.rollup import price
from tpsim.program.kinds import counted, kinds
from tpsim.program.schedules import LATER, SCHEDULES, PipelineSchedule, forward_only
from tpsim.program.stages import Chunk, Stages, balanced, even, nearly_even, stated
from tpsim.quantity.errors import At, InputError, Place, Problem, unknown
from tpsim.quantity.size import total
from tpsim.question.prices import pricer, sizes_of
from tpsim.question.scenario_file import PipelineFields, ScenarioFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model
    from tpsim.question.layout import Cut
    from tpsim.question.memo import Memo
    from tpsim.question.question import Question, Workload


Split = tuple[int, ...]
"""The layers of each chunk, in order of execution."""


def pipeline(
    file: ScenarioFile, model: Model, split: Cut, at: At, *, workload: Workload, memo: Memo
) -> tuple[PipelineSchedule | None, Split]:
    """The orders of the ranks, and the layers of their chunks; None where no mesh axis of several devices has stages.

    A balanced split begins as one that is nearly even: `balance` mends it where seconds are known.

    Raises InputError for layers or microbatches that do not suit it, and for what is not supported yet.
    """
    axes, fields = split.layout.stages, file.pipeline
    ranks = split.mesh.size(*axes)
    if fields and not axes:
        message = "a pipeline is described, and no mesh axis has its stages"
        raise InputError.one(
            "no-stages", message, at("pipeline"), "add --pp 4, in a file layout.pp: AXIS; or remove it"
        )
    fields = fields or PipelineFields(chunks=1, layers="even")
    known_schedule(fields.schedule, at("pipeline", "schedule"))
    if ranks == 1:
        return None, ()
    for problem in _refusals(file, fields, at):
        raise InputError([problem])
    try:
        layers = _layers(fields, model.layers, ranks)
        if workload.kind != "train":
            return forward_only(ranks, workload.microbatches), layers
        return memo.schedule(fields.schedule, ranks, fields.chunks, workload.microbatches), layers
    except InputError as error:
        slug = error.problems[0].slug
        often = dict.fromkeys(("microbatches-not-divisible", "too-many-actions"), ("workload", "microbatches"))
        keys = {**often, "layers-not-split": ("pipeline", "layers")}
        usual = ("mesh", axes[0]) if len(axes) == 1 else ("layout", "pp")
        raise error.at(at(*keys.get(slug, usual))) from None


def _layers(fields: PipelineFields, layers: int, ranks: int) -> Split:
    match fields.layers:
        case "even":
            return even(layers, ranks, fields.chunks)
        case "nearly-even" | "balanced":
            return nearly_even(layers, ranks, fields.chunks)
        case tuple(split):
            return stated(split, layers, ranks, fields.chunks)


def balance(question: Question, memo: Memo) -> Split:
    """The split with the fewest seconds on the slowest chunk: its kernels, and the collectives between them.

    Layers of a model's several kinds count as their mean; of those that a chunk begins with, because the practice
    recomputes them, all chunks have as many, so these tip no scale.
    """
    stack, ends = question.model.stack, {"first": False, "last": False}
    kind_of = {kind: kinds(question.practice, ((kind, 1),))[-1] for kind in counted(stack)}
    ranks, chunks = question.stages.ranks, len(question.split) // question.stages.ranks
    lowered, sizes = memo.lowered(question), sizes_of(question)
    rows = price(travelling(lowered.collectives, question.mesh.axes), sizes, pricer(question))

    def seconds(chunk: Chunk) -> float:
        alone = Stages(1, (chunk,))
        here = sizes.of_stage(alone.loops(0))
        often = [kernel for kernel in lowered.kernels if kernel.where.microbatch is not None]
        kernels = [kernel for kernel in often if alone.runs(kernel.where, 0)]
        work = compute(kernels, here, question.machine, question.products, question.matmul_efficiency).time_s
        calls = [row for row in rows if row.call.per_microbatch and row.call.where.place not in ("cut", "side")]
        moved = total(row.time_s * alone.count(row.call.where, 0) * row.call.repeats(here) for row in calls)
        return float(work + moved)

    return balanced(
        question.model.layers,
        ranks,
        chunks,
        layer_s=total(many * seconds(Chunk(0, ((kind_of[kind], 1),), **ends)) for kind, many in counted(stack).items())
        / question.model.layers,
        first_s=seconds(Chunk(0, (), first=True, last=False)),
        last_s=seconds(Chunk(0, (), first=False, last=True)),
    )


def known_schedule(name: str, place: Place | None) -> None:
    """Refuse a schedule that there is not. Raises InputError."""
    if name in LATER or name.endswith(FILES):
        noun = f"the schedule {name}" if name in LATER else "a schedule from a file"
        raise InputError.one("not-supported-yet", f"{noun} is not supported yet", place, f"take {', '.join(SCHEDULES)}")
    if name not in SCHEDULES:
        raise unknown(name, "schedule", SCHEDULES, place)


FILES = (".csv", ".yaml", ".json")
"""How the name of a file ends that could hold orders."""


def _refusals(file: ScenarioFile, fields: PipelineFields, at: At) -> Iterator[Problem]:
    """What cannot be planned with stages yet."""
    several = SCHEDULES[fields.schedule].several
    if several and fields.chunks == 1:
        message = f"the schedule {fields.schedule} takes turns among chunks, and every stage has one"
        yield Problem("too-few-chunks", message, at("pipeline"), "write chunks: 2, or more")
    if not several and fields.chunks > 1:
        names = ", ".join(name for name, maker in SCHEDULES.items() if maker.several)
        message = f"the schedule {fields.schedule} runs one chunk per stage, not {fields.chunks}"
        remedy = f"write chunks: 1, or schedule: {names}"
        yield Problem("too-many-chunks", message, at("pipeline", "chunks"), remedy)
    if file.planner == "cheapest":
        message = "the planner cheapest is not supported with stages yet"
        yield Problem("not-supported-yet", message, at("planner"), "--planner book")
