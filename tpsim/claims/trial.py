"""A trial: the plan of a small question, which is the claim, beside its program run on simulated devices, the fact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.answers.plan import priced
from tpsim.claims.counted import BOOK, plan_wiring
from tpsim.machine import timing
from tpsim.program.layout import layout
from tpsim.question.memo import program_of
from tpsim.question.prices import route_over
from tpsim.question.routing import routed
from tpsim.reference.execute import execute
from tpsim.reference.routing import evenly
from tpsim.reference.run import leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.answers.plan import PlanResult
    from tpsim.cost.rollup import Row
    from tpsim.program.op import Program
    from tpsim.question.question import Question
    from tpsim.reference.network import Wiring
    from tpsim.reference.run import Inputs, Run


@dataclass(frozen=True, slots=True)
class Trial:
    """What a question claims and what its run shows.

    plan     the claim
    sharded  every layer and microbatch of the step on the devices of the mesh
    whole    the same model on one device
    """

    plan: PlanResult
    sharded: Run
    whole: Run


def trial(question: Question, full: PlanResult) -> Trial:
    """Plan and run a question that is small enough (see `shrink`) by the algorithms of the plan at full size.

    Raises Stopped if devices cannot go on.
    """
    practice = question.practice
    practice = replace(practice, bucket=replace(practice.bucket, buffers=()))  # buffers do not run
    plan = priced(replace(question, practice=practice))
    pairs = _pairs(plan.every_row, full.every_row)
    plan = replace(plan, rows=tuple(_as_at_full_size(plan.question, *pair) for pair in pairs))
    sizes = {**dims_of(question), "m": question.workload.microbatches}
    inputs = leaves(sizes)
    program = _program(plan)
    beside = dict(question.practice.keeps)
    apart = bool(question.practice.rows.levels)
    even = evenly(program.order, question.mesh.size(*program.sharing), apart=apart)
    padded = question.assume.routing.drop != "none"
    options = {"schedule": question.orders, "beside": beside, "choose": even, "padded": padded}
    sharded = run(program, question.mesh, sizes, inputs, plan_wiring(plan), **options)
    return Trial(plan, sharded, execute(_unsharded(question), Mesh({}), sizes, inputs, choose=even))


def _pairs(rows: Sequence[Row], full: Sequence[Row]) -> Iterable[tuple[Row, Row]]:
    """Each row beside that of the full size; beside itself if the two plans do not send the same."""
    same = [row.call.shape for row in rows] == [row.call.shape for row in full]
    return zip(rows, full if same else rows, strict=True)


def _as_at_full_size(question: Question, row: Row, full: Row) -> Row:
    """The row by the algorithm of the full size: few bytes would choose for their latency."""
    if full.timing.algorithm in (BOOK, row.timing.algorithm) or row.call.streamed:
        return row
    route = route_over(question, row.call.parts[0].move)
    forced = timing.time(question.machine, route, row.collective, row.logical_bytes, algorithm=full.timing.algorithm)
    return replace(row, timing=forced)


class Stopped(Exception):  # noqa: N818  # a finding, not an error of the program
    """A run that could not go on: which device holds or gets what it should not."""


def run(
    program: Program,
    mesh: Mesh,
    sizes: Mapping[str, int],
    inputs: Inputs,
    wiring: Wiring | None,
    **how: Any,
) -> Run:
    """`execute` on many devices, `how` as it takes it, where what goes wrong is what was looked for. Raises Stopped."""
    try:
        return execute(program, mesh, sizes, inputs, wiring=wiring, **how)
    except ValueError as error:
        raise Stopped(str(error)) from error


def dims_of(question: Question) -> Mapping[str, int]:
    """Elements of every dim of the question's program."""
    dims, _ = routed(question, question.workload.dims(question.model), question.mesh.axes)
    return {dim: size for dim, size in dims.items() if isinstance(size, int)}


def _program(plan: PlanResult) -> Program:
    """The whole step, every layer and microbatch written out, where the plan counts one of each."""
    question = plan.question
    layers = tuple(chunk.stack for chunk in question.stages.chunks)
    return program_of(question, layers=layers, microbatches=question.workload.microbatches, path=plan.lowered.path)


def _unsharded(question: Question) -> Program:
    layers = (tuple(run for chunk in question.stages.chunks for run in chunk.stack),)
    return program_of(question, layout(), layers=layers, microbatches=question.workload.microbatches)
