"""What is forced on collectives instead of chosen: as a scenario writes it, and in words."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from tpsim.machine import timing
from tpsim.machine.algorithms import NCCL
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.units import show
from tpsim.question.prices import route_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tpsim.cost.collectives import Collective
    from tpsim.machine.additive import Choice
    from tpsim.question.question import Question
    from tpsim.question.stated import Stated


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


def refuse_unknown_algorithm(question: Question, collectives: Iterable[Collective]) -> None:
    """Refuse an algorithm that none of the plan's collectives could take."""
    wanted = question.force.algorithm
    if wanted is None or question.cost_model == "book":
        return
    moves = [move for call in collectives if (move := call.parts[0].move).kind != "send"]
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
