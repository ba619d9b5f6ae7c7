"""What a question's collectives take on its machine: their wires, their seconds, the sizes that they are priced at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.cost.sizes import Sizes
from tpsim.machine import timing
from tpsim.question.routing import routed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.cost.rollup import Pricer
    from tpsim.fabric.wires import Route
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.quantity.size import Size
    from tpsim.question.question import Question

PAIR = 2
"""The devices of a message: a permute of two."""


def sizes_of(question: Question) -> Sizes:
    """The numbers that the question's program is evaluated at, its loops as a device runs them.

    b is sequences per microbatch over all data shards.
    """
    workload = question.workload
    dims = workload.dims(question.model)
    dims, peaks = routed(question, dims, question.mesh.axes)
    stages, chunks = question.stages, question.schedule.chunks if question.schedule else 1
    most = max(range(stages.ranks), key=stages.layers)
    loops = {**stages.loops(most), "microbatches": workload.microbatches, "chunks": chunks}
    stack = question.model.layers if question.schedule else 0
    return Sizes(dims, question.mesh.axes, loops, question.layout.roles, stack, peaks=peaks)


def pricer(question: Question) -> Pricer:
    """Seconds of a collective on the question's machine, over the wires that its mesh axes are placed on.

    An algorithm that is forced is taken by the collectives that know it.
    """
    machine, force = question.machine, question.force

    def seconds(move: Move, volume: Size) -> timing.Timing:
        if move.kind == "send" and question.schedule:
            return slowest_send(question, question.schedule, move.axes, volume)
        route = route_over(question, move)
        known = (
            not move.streamed
            and force.algorithm is not None
            and force.algorithm in timing.algorithms(machine, route, move.kind)
        )
        return timing.time(
            machine,
            route,
            move.kind,
            volume,
            cost_model=question.cost_model,
            launch=force.launch,
            algorithm=force.algorithm if known or (question.cost_model == "book" and not move.streamed) else None,
            protocol=force.protocol,
            change=question.placement.change(move),
            streamed=move.streamed,
        )

    return seconds


def route_over(question: Question, move: Move) -> Route:
    """The wires of a collective; of what two stages have together, those between these two."""
    if move.members and question.schedule:
        last = question.mesh.size(*question.layout.stages) - 1
        return question.placement.hop(move.axes, 0, 1 if move.kind == "send" else last)
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
    return max((sent(question, route, volume) for route in routes), key=lambda timing: timing.time_s)
