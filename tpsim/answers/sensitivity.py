"""What to buy: how the best step answers to a better part of the machine, its layout held, and searched again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tpsim.answers.layout_row import Row, in_words, otherwise
from tpsim.answers.plan import priced
from tpsim.answers.planned import outcome
from tpsim.answers.ranking import Ranking, weigh
from tpsim.layouts.candidates import evaluate
from tpsim.machine.constant import Kind  # noqa: TC001 - JSON Schemas read types
from tpsim.machine.parts import changed
from tpsim.machine.timing import predicted_by_constants
from tpsim.machine.unstated import stated
from tpsim.quantity.progress import told_with, unwatched
from tpsim.report.record import Number, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.planned import By, Planned
    from tpsim.answers.search import SearchResult
    from tpsim.layouts.candidates import Evaluation
    from tpsim.layouts.family import Family
    from tpsim.machine.constant import Constant
    from tpsim.machine.parts import Machine
    from tpsim.quantity.progress import Progress
    from tpsim.question.memo import Memo

FACTOR = 1.1
"""How much better each part is made: the step per percent is told, so little hangs on it."""

LEAST = 1e-4
"""The elasticity from which on a constant is told, and the share of a step that more memory must save."""

CAPACITY = "memory capacity"

MORE_IS_BETTER, LESS_IS_BETTER = ("flops_per_s", "bytes_per_s", "bytes", "ratio"), ("seconds",)
"""What figures are of that can be better."""


def bettered(machine: Machine, factor: float, chosen: Callable[[Constant], bool]) -> Machine:
    """The machine with some figures better by a factor; its curves keep their ratios over what these predict."""

    def change(constant: Constant) -> Constant:
        value = constant.value / factor if constant.dimension in LESS_IS_BETTER else constant.value * factor
        return constant.but(value=value) if chosen(constant) else constant

    better = changed(machine, change)
    curves = (curve.scaled_to(partial(predicted_by_constants, better, curve)) for curve in machine.measured)
    return replace(better, measured=(*curves,))


@dataclass(frozen=True, slots=True)
class MachinePart:
    """Figures of a machine that a better part has together.

    name       as ``network bandwidth``
    begins     how the paths of its figures begin
    dimension  what they are
    factor     how much better they are made
    """

    name: str
    begins: str
    dimension: str
    factor: float = FACTOR

    def better(self, machine: Machine) -> Machine:
        """The machine with that part."""
        return bettered(
            machine,
            self.factor,
            lambda constant: constant.path.startswith(self.begins) and constant.dimension == self.dimension,
        )


def parts(machine: Machine) -> Iterator[MachinePart]:
    """Compute, memory, and each level's bandwidth and latency; what is measured as a curve follows the figures."""
    yield MachinePart("compute", "chip.peak.", "flops_per_s")
    yield MachinePart("memory bandwidth", "chip.memory.bandwidth", "bytes_per_s")
    yield MachinePart(CAPACITY, "chip.memory.capacity", "bytes")
    for level in machine.levels:
        yield MachinePart(f"{level.name} bandwidth", f"levels.{level.name}.", "bytes_per_s")
        yield MachinePart(f"{level.name} latency", f"levels.{level.name}.", "seconds")


@dataclass(frozen=True, slots=True)
class Moves(Record):
    """How the best step answers to one figure of the machine, its layout held.

    constant    where the figure stands
    kind        where it comes from
    today, held  what the layout comes to, today and then, by what is ranked: see `worth`
    factor      how much better it is made: so much more, or of seconds so much less
    held_s      seconds of the step then
    """

    told: ClassVar[tuple[str, ...]] = ("constant", "kind", "factor", "held_s", "elasticity")

    constant: str
    kind: Kind
    today: float
    held: float
    held_s: Seconds
    factor: Number = FACTOR

    @property
    def elasticity(self) -> Number:
        """Percent that what is ranked loses per percent that the figure is better."""
        return elasticity(self.today, self.held, self.factor)


def constants(machine: Machine) -> Iterator[tuple[Constant, Machine]]:
    """Every figure that can be better, with the machine that has it better; a share of a whole may exceed it."""
    for constant in {constant.path: constant for constant in machine.constants()}.values():
        if constant.value and constant.dimension in (*MORE_IS_BETTER, *LESS_IS_BETTER):
            yield constant, bettered(machine, FACTOR, lambda other, path=constant.path: other.path == path)  # type: ignore[misc]


def worth(planned: Planned, by: By) -> float:
    """What a layout comes to by what is ranked; of memory, which no figure changes, its step."""
    return planned.value("step" if by == "memory" else by)


def elasticity(today: float, then: float, factor: float) -> float:
    """Percent that something loses per percent that something else is better."""
    return 0 - log(then / today) / log(factor)  # of equal steps 0, not -0


@dataclass(frozen=True, slots=True)
class Answered(Record):
    """How the best step answers to a better part.

    part      of the machine
    factor    how much better it is: so much more, or of a latency so much less
    today, held, best  what is ranked (`worth`): today, with the part in that layout, and in the one that is best then
    held_s    seconds of the step in the layout that is best today
    best_s    in the layout that is best then; null where none meets what the scenario requires any more
    layout    that layout, if it is another one
    unlocks   of memory as large as another machine has it: what that layout has otherwise
    """

    told: ClassVar[tuple[str, ...]] = (
        *("part", "factor", "held_s", "elasticity", "best_s", "best_elasticity", "relative", "layout?", "unlocks?"),
    )

    part: str
    factor: Number
    today: float
    held: float
    held_s: Seconds
    best: float | None = None
    best_s: Seconds | None = None
    layout: str | None = None
    unlocks: str | None = None

    @property
    def elasticity(self) -> Number:
        """Percent that what is ranked loses per percent that the part is better, its layout held."""
        return elasticity(self.today, self.held, self.factor)

    @property
    def best_elasticity(self) -> Number | None:
        """The same, its layout searched again."""
        return None if self.best is None else elasticity(self.today, self.best, self.factor)

    @property
    def relative(self) -> Number | None:
        """The change of what is ranked as a share of it, searched again."""
        return None if self.best is None else self.best / self.today - 1


def _on(machine: Machine, planned: Planned, memo: Memo) -> Planned:
    """A layout as it is planned on another machine."""
    return replace(planned, told=outcome(priced(planned.question.on(machine), memo)))


def answered(
    result: SearchResult, plans: int, memo: Memo, workers: int = 1, progress: Progress = unwatched
) -> Iterator[Answered]:
    """The best step with each part of its machine better: in its layout, and searched again; with more memory last."""
    if result.best is None:
        return
    best, space, today = result.best, result.best.planned.candidate.space, worth(result.best.planned, result.by)
    question = result.best.plan.question
    for part in parts(question.machine):
        machine = part.better(question.machine)
        held = _on(machine, best.planned, memo)
        tell = partial(told_with, progress, f"with better {part.name}")
        evaluation = evaluate([replace(space, machine=machine)], memo, weigh, workers, tell)
        answer = Answered(part.name, part.factor, today, worth(held, result.by), float(held.outcome.step_s))
        for again in Ranking(evaluation, memo, plans, progress=tell).best(result.by, 1).best:
            other = again.candidate.layout != best.planned.candidate.layout
            layout = in_words(Row(1, again, again, result.by)) if other else None
            then = worth(again, result.by)
            answer = replace(answer, best=then, best_s=float(again.outcome.step_s), layout=layout)
        yield answer
    yield from filter(None, [unlocked(result, plans, memo, workers, progress)])


def unlocked(
    result: SearchResult, plans: int, memo: Memo, workers: int = 1, progress: Progress = unwatched
) -> Answered | None:
    """The least memory that a shipped machine has in which a layout is better that does not fit today, and the best."""
    if result.best is None or result.by == "memory":
        return None
    today = result.best.planned
    tell = partial(told_with, progress, f"with more {CAPACITY}")
    for factor, evaluation in _with_more(result, memo, workers, tell):
        ranking = Ranking(evaluation, memo, plans, progress=tell)
        for again in ranking.best(result.by, 1, under=today.value(result.by) * (1 - LEAST)).best:
            row, now = Row(1, again, again, result.by), worth(today, result.by)
            steps = float(today.outcome.step_s), worth(again, result.by), float(again.outcome.step_s)
            return Answered(CAPACITY, factor, now, now, *steps, in_words(row), otherwise(row, result.best))
    return None


def _with_more(
    result: SearchResult, memo: Memo, workers: int, progress: Progress
) -> Iterator[tuple[float, Evaluation]]:
    """For memories of shipped machines, the least first: by how much they are more, and what fits in none before.

    Layouts are evaluated once, in the most; where each has as many sequences as there is room for, in every one.
    """
    space, question = result.best.planned.candidate.space, result.best.plan.question  # type: ignore[union-attr]
    capacity = float(question.machine.chip.memory.capacity.value)
    sizes = [capacity, *(size for size in memories() if size > capacity)]

    def evaluated(size: float) -> Evaluation:
        larger = MachinePart(CAPACITY, "chip.memory.capacity", "bytes", size / capacity).better(question.machine)
        return evaluate([replace(space, machine=larger)], memo, weigh, workers, progress)

    if any(asked.inference and asked.inference.fills for asked in result.questions):
        yield from ((size / capacity, evaluated(size)) for size in sizes[1:])
        return
    evaluation = evaluated(sizes[-1])
    for before, size in pairwise(sizes):
        families = [_fitting_first(family, sizes[-1] - size, sizes[-1] - before) for family in evaluation.families]
        yield size / capacity, replace(evaluation, families=families)


def _fitting_first(family: Family, least: float, most: float) -> Family:
    """Its layouts with room that is at least so much, and less than `most`: no other fits."""
    first = (family.room_bytes >= least) & (family.room_bytes < most)
    return replace(family, room_bytes=np.where(first, family.room_bytes - least, -1))


def memories() -> list[float]:
    """Bytes of memory that chips of shipped machines have, the least first."""
    return stated(("chip", "memory", "capacity"), "bytes")


def moves(result: SearchResult, memo: Memo, progress: Progress = unwatched) -> list[Moves]:
    """The best step with each figure of its machine better, of those that make a difference: what does most first."""
    if result.best is None:
        return []
    best, today = result.best.planned, worth(result.best.planned, result.by)
    moved, every = [], [*constants(result.best.plan.question.machine)]
    for done, (constant, machine) in enumerate(every):
        progress(done, len(every), "figures of the machine made better")
        held = _on(machine, best, memo)
        step_s = float(held.outcome.step_s)
        moved.append(Moves(constant.path, constant.kind, today, worth(held, result.by), step_s))
    return sorted((move for move in moved if abs(move.elasticity) >= LEAST), key=lambda move: -abs(move.elasticity))
