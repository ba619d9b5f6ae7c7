"""What a question's collectives take on its machine: wires, seconds, the sizes priced at, and what is forced."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from tpsim.cost.sizes import Sizes
from tpsim.fabric.wires import joined
from tpsim.machine import timing
from tpsim.machine.algorithms import ALGORITHMS, HIERARCHICAL, NCCL
from tpsim.machine.cost import SIMPLE
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.units import UnitError, parse, show
from tpsim.question.routing import routed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.cost.collectives import Collective
    from tpsim.cost.rollup import Pricer
    from tpsim.fabric.wires import Route
    from tpsim.machine.additive import Choice
    from tpsim.machine.parts import Machine
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.quantity.size import Size
    from tpsim.question.question import Question
    from tpsim.question.stated import Stated


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


def always_priced(question: Question) -> bool:
    """True where every collective has a price: each device reaches every other one, and nothing is forced."""
    everywhere = all(joined(level.topology) for level in question.machine.levels)
    return everywhere and question.cost_model == "additive" and not any(question.force)


def pricer(question: Question) -> Pricer:
    """Seconds of a collective on the question's machine, over the wires that its mesh axes are placed on.

    An algorithm that is forced is taken by the collectives that know it.
    """
    machine, force = question.machine, question.force

    def seconds(move: Move, volume: Size) -> timing.Timing:
        if move.kind == "send" and question.schedule:
            routes = {route_of(question, move.axes, *pair) for pair in hops(question.schedule)}
            return max((sent(question, route, volume) for route in routes), key=lambda timing: timing.time_s)
        if move.travels:
            return timing.time(machine, (), move.kind, volume, cost_model=question.cost_model)
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
            protocol=_forced(question, route, "permute" if move.streamed else move.kind),
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
        protocol=_forced(question, route, "permute"),
    )


def _forced(question: Question, route: Route, kind: MoveKind) -> str | None:
    """The protocol that is forced, where that reaches what moves."""
    protocol = question.force.protocol
    free = protocol is None or (
        question.cost_model == "additive" and not timing.reaches(question.machine, route, kind, protocol)
    )
    return None if free else protocol


def hops(schedule: PipelineSchedule) -> Iterator[tuple[int, int]]:
    """The pairs of ranks that send to each other."""
    yield from ((rank, rank + 1) for rank in range(schedule.ranks - 1))
    if schedule.chunks > 1:
        yield schedule.ranks - 1, 0


REFUSALS: Mapping[str, str] = {
    "foreign-name": "algorithm",
    "unknown-algorithm": "algorithm",
    "unknown-protocol": "protocol",
    "unknown-launch": "launch",
    "no-such-way": "algorithm",
}
"""What of a choice a refusal is about, by its slug."""


@contextmanager
def shown_where_forced(stated: Stated) -> Iterator[None]:
    """Refusals of a choice, which pricing finds far from the scenario, point at where it stands there."""
    try:
        yield
    except InputError as error:
        places = {name: stated.at("collectives", name) for name, value in stated.file.collectives if value is not None}
        placed = [(problem, places.get(REFUSALS.get(problem.slug, ""))) for problem in error.problems]
        raise InputError(replace(problem, place=problem.place or place) for problem, place in placed) from None


def refuse_foreign(algorithm: str | None) -> None:
    """Refuse NCCL's name of an algorithm that tpsim calls otherwise, with tpsim's. Raises InputError."""
    ours = NCCL.get((algorithm or "").lower(), algorithm)
    if ours != algorithm:
        raise InputError.one("foreign-name", f"{algorithm} is NCCL's name", remedy=f"tpsim calls this {ours}")


def refuse_unheard(machine: Machine, choice: Choice) -> None:
    """Refuse a name that no collective on a machine could have, whatever is laid out on it. Raises InputError."""
    if choice.algorithm not in {None, HIERARCHICAL, *ALGORITHMS}:
        raise unknown(str(choice.algorithm), "algorithm", [*ALGORITHMS, HIERARCHICAL])
    named = dict.fromkeys(name for level in machine.levels for name in level.protocols or (SIMPLE,))
    if choice.protocol not in {None, *named}:
        raise unknown(str(choice.protocol), f"protocol of {machine.name}", named)
    if isinstance(choice.launch, str) and not any(level.launched(choice.launch) for level in machine.levels):
        known = dict.fromkeys(name for level in machine.levels for name in level.launch)
        raise unknown(choice.launch, f"launch of {machine.name}", known)


def refuse_unknown_algorithm(question: Question, collectives: Iterable[Collective]) -> None:
    """Refuse an algorithm that none of the plan's collectives could take."""
    wanted = question.force.algorithm
    if wanted is None or question.cost_model == "book":
        return
    moves = [move for call in collectives if (move := call.parts[0].move).kind != "send" and move.axes]
    known = [timing.algorithms(question.machine, route_over(question, move), move.kind) for move in moves]
    names = list(dict.fromkeys(chain.from_iterable(known)))
    if wanted not in names:
        raise unknown(wanted, "algorithm of this plan's collectives", names)


def written(force: Choice) -> dict[str, Any]:
    """Each choice that is forced, seconds with their unit; nothing if nothing is."""
    stated = {name: value for name, value in force._asdict().items() if value is not None}
    return {name: show(value, "seconds") if isinstance(value, int | float) else value for name, value in stated.items()}


def in_words(force: Choice) -> str:
    """The same behind what else steers prices: ``; with launch graph, algorithm tree``; "" if nothing is.

    >>> from tpsim.machine.additive import Choice
    >>> in_words(Choice(launch=15e-6, algorithm="tree")), in_words(Choice())
    ('; with launch 15 us, algorithm tree', '')
    """
    stated = ", ".join(f"{name} {value}" for name, value in written(force).items())
    return f"; with {stated}" if stated else ""


def read_launch(text: str) -> str | float:
    """A harness by its name, or seconds.

    Raises InputError for a time without a unit, or with one of another dimension.
    """
    if not text[:1].isdigit():
        return text
    try:
        return parse(text, "seconds", zero=True)
    except UnitError as error:
        raise InputError.one(error.slug, f"--launch {text}: {error.message}", remedy=error.remedy) from None
