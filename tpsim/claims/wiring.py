"""How the moves of a plan run on simulated devices: over the wires and by the algorithms that the plan prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.claims.counted import planned, sort_of
from tpsim.machine import timing
from tpsim.machine.groups import Group, groups
from tpsim.quantity.errors import InputError
from tpsim.question.prices import route_over
from tpsim.reference.collectives import Part
from tpsim.reference.network import Network
from tpsim.reference.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.answers.plan import PlanResult
    from tpsim.claims.counted import Sort
    from tpsim.fabric.placement import Placement
    from tpsim.fabric.wires import Route
    from tpsim.machine.cost import Stage
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import Timing
    from tpsim.program.op import Reshard
    from tpsim.quantity.size import Size


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
