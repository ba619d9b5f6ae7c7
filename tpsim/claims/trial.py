"""A trial: the plan of a small question, which is the claim, beside its program run on simulated devices, the fact.

Calls go over the wires and by the algorithms that the plan prices, and what they sent is counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import HOMEWARD
from tpsim.answers.plan import PlanResult, priced
from tpsim.cost.collectives import HOST
from tpsim.machine import timing
from tpsim.machine.groups import LevelGroup, groups
from tpsim.machine.host import COPY
from tpsim.program.layout import layout
from tpsim.quantity.errors import InputError
from tpsim.question.memo import program_of
from tpsim.question.prices import route_over
from tpsim.question.routing import routed
from tpsim.reference.collectives import Stretch
from tpsim.reference.execute import execute
from tpsim.reference.network import Network, Wiring
from tpsim.reference.routing import evenly
from tpsim.reference.run import RanCollective, Run, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.cost.collectives import Collective
    from tpsim.cost.rollup import Row
    from tpsim.fabric.placement import Placement
    from tpsim.fabric.wires import Route
    from tpsim.machine.cost import LevelStage
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import Timing
    from tpsim.program.op import Again, Phase, Program, Reshard
    from tpsim.quantity.size import Size
    from tpsim.question.question import Question


@dataclass(frozen=True, slots=True)
class Sort:
    """What tells the calls of a program apart but for layer and microbatch: the same in a plan and in a run."""

    phase: Phase
    block: str
    array: str
    dtype: str
    move: Move
    again: Again
    loops: tuple[str, ...]

    def __str__(self) -> str:
        """In words; an expression has no blocks."""
        move, again = self.move, " again" if self.again else ""
        where = f" ({self.phase}{again}, {self.block})" if self.block else ""
        return f"{move.kind} over {','.join(move.axes) or HOST} of {self.array}{where}"


def planned(call: Collective) -> list[Sort]:
    """The sort of every array that travels in a planned call."""
    where, here = call.where, (call.where.again, call.where.repeats)
    return [Sort(where.phase, part.block, part.array, part.dtype, part.move, *here) for part in call.parts]


def sort_of(op: Reshard, move: Move) -> Sort:
    """The sort of one move of a change of type in a run."""
    where, array = op.where, op.output
    return Sort(where.phase, where.block, array.name, array.dtype, move, where.again, where.repeats)


def made(run: Run) -> list[RanCollective]:
    """Every call of a run, in order; free slices and calls of one device are none."""
    axes = run.grid.mesh.axes
    calls = [ran for ran in run.causes if ran.move.kind != "slice"]
    return [ran for ran in calls if ran.move.travels or ran.move.ranks(axes) > 1]


def by_sort(calls: Iterable[RanCollective]) -> dict[Sort, list[RanCollective]]:
    """Calls by their sort, each list in order."""
    sorts: dict[Sort, list[RanCollective]] = {}
    for ran in calls:
        sorts.setdefault(sort_of(ran.op, ran.move), []).append(ran)
    return sorts


def injected(ran: RanCollective) -> Fraction:
    """Bytes that a device injects: the mean; of a permute the most, since it moves no shard that is in its place."""
    per_device = ran.call.injected.tolist()
    return Fraction(max(per_device)) if ran.move.kind == "permute" else _mean(per_device)


def sent(ran: RanCollective) -> Fraction:
    """Bytes that a device sends, on average, forwarded ones included."""
    return _mean(ran.call.sent.tolist())


def _mean(counts: Sequence[int | Fraction]) -> Fraction:
    return Fraction(sum(counts)) / len(counts)


def exact_bytes(value: Any) -> str:
    """Exactly, since a byte too few is a mistake."""
    number = Fraction(value)
    return f"{number.numerator:,} B" if number.denominator == 1 else f"{float(number):,.6g} B"


def plan_wiring(plan: PlanResult) -> Wiring:
    """The wires of the plan's placement; every move goes as the plan prices its call.

    A move that travels with others goes by the algorithm of their common call; one that the plan does not know by the
    cheapest, so that the run goes on and shows what is missing.
    """
    question = plan.question
    wiring: dict[Sort, Sequence[Stretch]] = {}
    for row in reversed(plan.rows):
        kind = row.collective
        if kind in ("send", *HOMEWARD):
            continue
        route = route_over(question, row.call.parts[0].move)
        by_book = row.timing.algorithm == BOOK
        priced = plain(question.machine, route, kind, row.logical_bytes) if by_book else row.timing
        wiring |= dict.fromkeys(planned(row.call), parts(question.machine, route, priced))
    cheapest = machine_wiring(question.machine, question.placement)

    def way(move: Move, volume: float, op: Reshard) -> Sequence[Stretch]:
        sort = sort_of(op, move)
        return wiring[sort] if sort in wiring else cheapest.parts(move, volume, op)

    return Wiring(cheapest.network, way)


BOOK = "book"
"""What a call by the book's cost model goes by, which names bandwidth terms and no algorithm."""


def plain(machine: Machine, route: Route, kind: MoveKind, V: Size) -> Timing:
    """A call by a ring where there is one, else by the cheapest algorithm: the least bytes that any injects."""
    try:
        return timing.time(machine, route, kind, V, algorithm="ring")
    except InputError:
        return timing.time(machine, route, kind, V)


def machine_wiring(machine: Machine, placement: Placement) -> Wiring:
    """The wires of a placement; every move goes by the algorithm that is the cheapest for its bytes."""

    def way(move: Move, volume: float, _: Reshard) -> Sequence[Stretch]:
        route = placement.route(move.axes)
        change = placement.change(move)
        return parts(machine, route, timing.time(machine, route, move.kind, volume, change=change))

    return Wiring(Network.of(placement), way)


def parts(machine: Machine, route: Route, priced: Timing) -> tuple[Stretch, ...]:
    """The algorithm of a priced call, level by level: what `reference` runs.

    A call without stages runs over all its levels at once.
    """
    if not priced.stages:
        segments = [segment for group in groups(machine, route) for segment in group.segments]
        return (Stretch(tuple(segments), priced.algorithm),)
    return tuple(Stretch(group.segments, stage.algorithm) for group, stage in staged(machine, route, priced))


def staged(machine: Machine, route: Route, priced: Timing) -> tuple[tuple[LevelGroup, LevelStage], ...]:
    """The stage of a priced call on every group of wires, innermost first."""
    return tuple(zip(groups(machine, route), priced.stages, strict=True))


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
    practice = replace(question.practice, buffers=())  # buffers do not run
    plan = priced(replace(question, practice=practice), full.memo)
    pairs = _pairs(plan.every_row, full.every_row)
    rows = tuple(_as_at_full_size(plan.question, *pair) for pair in pairs)
    plan = replace(plan, pacing=replace(plan.pacing, rows=rows))
    sizes = {**dims_of(question), "m": question.workload.microbatches}
    inputs = leaves(sizes)
    program = _program(plan)
    apart = bool(question.practice.levels)
    parts = {op.output.filled.chosen.type.axes("s") for op in program.ops if op.output.filled}
    ways = max((question.mesh.size(*axes) for axes in parts), default=1)
    even = evenly(program.order, question.mesh.size(*program.sharing), apart=apart, ways=ways)
    wiring, padded = plan_wiring(plan), question.assume.routing.drop != "none"
    with on_devices():
        sharded = execute(
            program,
            question.mesh,
            sizes,
            inputs,
            wiring=wiring,
            schedule=question.orders,
            beside=dict(question.practice.keeps),
            choose=even,
            padded=padded,
        )
    layers, microbatches = (question.stages.stack,), question.workload.microbatches
    unsharded = program_of(question, layout(), layers=layers, microbatches=microbatches)
    return Trial(plan, sharded, execute(unsharded, Mesh({}), sizes, inputs, choose=even))


def _pairs(rows: Sequence[Row], full: Sequence[Row]) -> Iterable[tuple[Row, Row]]:
    """Each row beside that of the full size; beside itself if the two plans do not send the same."""
    same = [row.call.single.shape for row in rows] == [row.call.single.shape for row in full]
    return zip(rows, full if same else rows, strict=True)


def _as_at_full_size(question: Question, row: Row, full: Row) -> Row:
    """The row by the algorithm of the full size: few bytes would choose for their latency."""
    if full.timing.algorithm in (BOOK, COPY, row.timing.algorithm) or row.call.streamed:
        return row
    route = route_over(question, row.call.parts[0].move)
    forced = timing.time(question.machine, route, row.collective, row.logical_bytes, algorithm=full.timing.algorithm)
    return replace(row, timing=forced)


class Stopped(Exception):  # noqa: N818  # a finding, not an error of the program
    """A run that could not go on: which device holds or gets what it should not."""


@contextmanager
def on_devices() -> Iterator[None]:
    """Where many devices run, and what goes wrong is what was looked for. Raises Stopped."""
    try:
        yield
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
