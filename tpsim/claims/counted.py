"""The calls of a plan on simulated devices: over which wires and by which algorithm each goes, and what was counted."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.machine import timing
from tpsim.machine.groups import Group, groups
from tpsim.quantity.errors import InputError
from tpsim.question.prices import route_over
from tpsim.reference.collectives import Part
from tpsim.reference.network import Network, Wiring

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.collectives import Collective
    from tpsim.fabric.placement import Placement
    from tpsim.fabric.wires import Route
    from tpsim.machine.cost import Stage
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import Timing
    from tpsim.program.op import Again, Phase, Reshard, Where
    from tpsim.quantity.size import Size
    from tpsim.reference.calls import Call
    from tpsim.reference.run import Run


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
        return f"{move.kind} over {','.join(move.axes)} of {self.array}{where}"


def planned(call: Collective) -> list[Sort]:
    """The sort of every array that travels in a planned call."""
    where, here = call.where, _here(call.where)
    return [Sort(where.phase, part.block, part.array, part.dtype, part.move, *here) for part in call.parts]


def sort_of(op: Reshard, move: Move) -> Sort:
    """The sort of one move of a change of type in a run."""
    where, array = op.where, op.output
    return Sort(where.phase, where.block, array.name, array.dtype, move, *_here(where))


def _here(where: Where) -> tuple[Again, tuple[str, ...]]:
    return where.again, where.repeats


class RanCall(NamedTuple):
    """A call that devices made: the op that caused it, which of its moves, and what was sent."""

    op: Reshard
    move: Move
    call: Call


def made(run: Run) -> list[RanCall]:
    """Every call of a run, in order; free slices and calls of one device are none."""
    moves = {cause.op: iter(cause.op.moves) for cause in run.causes}
    made_calls = [RanCall(cause.op, next(moves[cause.op]), cause.call) for cause in run.causes]
    axes = run.grid.mesh.axes
    return [call for call in made_calls if call.call.kind != "slice" and call.move.ranks(axes) > 1]


def by_sort(calls: Iterable[RanCall]) -> dict[Sort, list[Call]]:
    """Calls by their sort, each list in order."""
    sorts: dict[Sort, list[Call]] = {}
    for call in calls:
        sorts.setdefault(sort_of(call.op, call.move), []).append(call.call)
    return sorts


def injected(call: Call) -> Fraction:
    """Bytes that a device injects: the mean; of a permute the most, since it moves no shard that is in its place."""
    per_device = list(map(Fraction, call.injected))
    return Fraction(max(per_device)) if call.kind == "permute" else Fraction(sum(per_device), len(per_device))


def sent(call: Call) -> Fraction:
    """Bytes that a device sends, on average, forwarded ones included."""
    return Fraction(sum(map(Fraction, call.sent)), len(call.sent))


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
    wiring: dict[Sort, Sequence[Part]] = {}
    for row in reversed(plan.rows):
        kind = row.collective
        if kind == "send":
            continue
        route = route_over(question, row.call.parts[0].move)
        by_book = row.timing.algorithm == BOOK
        priced = plain(question.machine, route, kind, row.logical_bytes) if by_book else row.timing
        wiring |= dict.fromkeys(planned(row.call), parts(question.machine, route, priced))
    cheapest = machine_wiring(question.machine, question.placement)

    def way(move: Move, volume: float, op: Reshard) -> Sequence[Part]:
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

    def way(move: Move, volume: float, _: Reshard) -> Sequence[Part]:
        route = placement.route(move.axes)
        change = placement.change(move)
        return parts(machine, route, timing.time(machine, route, move.kind, volume, change=change))

    return Wiring(Network.of(placement), way)


def parts(machine: Machine, route: Route, priced: Timing) -> tuple[Part, ...]:
    """The algorithm of a priced call, level by level: what `reference` runs.

    A call without stages runs over all its levels at once.
    """
    if not priced.stages:
        segments = [segment for group in groups(machine, route) for segment in group.segments]
        return (Part(tuple(segments), priced.algorithm),)
    return tuple(Part(group.segments, stage.algorithm) for group, stage in staged(machine, route, priced))


def staged(machine: Machine, route: Route, priced: Timing) -> tuple[tuple[Group, Stage], ...]:
    """The stage of a priced call on every group of wires, innermost first."""
    return tuple(zip(groups(machine, route), priced.stages, strict=True))
