"""The pipeline that a scenario asks for: its stages on one mesh axis, and the orders in which they run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.program.schedules import LATER, SCHEDULES, pipeline_schedule
from tpsim.program.stages import linear
from tpsim.quantity.errors import InputError, unknown
from tpsim.question.scenario_file import PipelineFields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.quantity.errors import Place
    from tpsim.question.cut import Cut
    from tpsim.question.divides import At
    from tpsim.question.question import Workload
    from tpsim.question.scenario_file import ScenarioFile


def pipeline(file: ScenarioFile, model: Model, workload: Workload, split: Cut, at: At) -> PipelineSchedule | None:
    """The orders of the ranks; None where no mesh axis of several devices has stages.

    Raises InputError for layers or microbatches that do not suit it, and for what is not supported yet.
    """
    axes, fields = split.layout.stages, file.pipeline
    ranks = split.mesh.size(*axes)
    if fields and not axes:
        message = "a pipeline is described, and no mesh axis has its stages"
        raise InputError.one("no-stages", message, at("pipeline"), "add layout.pp: AXIS, or remove it")
    fields = fields or PipelineFields(chunks=1)
    _known_schedule(fields, at("pipeline", "schedule"))
    if ranks == 1:
        return None
    for place, slug, message, remedy in _refusals(file, fields, axes, at):
        raise InputError.one(slug, message, place, remedy)
    try:
        linear(model.layers, ranks, fields.chunks)
        return pipeline_schedule(fields.schedule, ranks, fields.chunks, workload.microbatches)
    except InputError as error:
        place = at("workload", "microbatches") if error.problems[0].slug.startswith("microbatches") else None
        stages = at("layout", "pp") if len(axes) > 1 else at("mesh", axes[0])
        raise InputError([replace(one, place=place or stages) for one in error.problems]) from None


def _known_schedule(fields: PipelineFields, place: Place | None) -> None:
    name = fields.schedule
    if name in LATER or name.endswith(FILES):
        what = f"the schedule {name}" if name in LATER else "a schedule from a file"
        raise InputError.one("not-supported-yet", f"{what} is not supported yet", place, f"take {', '.join(SCHEDULES)}")
    if name not in SCHEDULES:
        raise InputError([replace(one, place=place) for one in unknown(name, "schedule", SCHEDULES).problems])


FILES = (".csv", ".yaml", ".json")
"""How the name of a file ends that could hold orders."""


def _refusals(
    file: ScenarioFile, fields: PipelineFields, axes: tuple[str, ...], at: At
) -> Iterator[tuple[Place | None, str, str, str]]:
    """What cannot be planned with stages yet: place, slug, message, remedy."""
    several, later = SCHEDULES[fields.schedule].several, "not-supported-yet"
    if fields.layers != "even":
        message = "a split of layers over stages that is not even is not supported yet"
        yield at("pipeline", "layers"), later, message, "write layers: even, or leave it out"
    if len(axes) > 1:
        yield (
            at("layout", "pp"),
            later,
            "stages over several mesh axes are not supported yet",
            "give layout.pp one axis",
        )
    if several and fields.chunks == 1:
        yield (
            at("pipeline"),
            "too-few-chunks",
            f"the schedule {fields.schedule} takes turns among chunks, and every stage has one",
            "write chunks: 2, or more",
        )
    if not several and fields.chunks > 1:
        names = ", ".join(name for name, maker in SCHEDULES.items() if maker.several)
        message = f"the schedule {fields.schedule} runs one chunk per stage, not {fields.chunks}"
        yield at("pipeline", "chunks"), "too-many-chunks", message, f"write chunks: 1, or schedule: {names}"
    if file.planner == "cheapest":
        message = "the planner cheapest is not supported with stages yet"
        yield at("planner"), later, message, "--planner book"
