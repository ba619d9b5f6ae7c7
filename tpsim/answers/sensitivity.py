"""What to buy: how the best step answers to a better part of the machine, its layout held, and searched again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import log
from typing import TYPE_CHECKING, ClassVar

from tpsim.answers.layout_row import Row, in_words
from tpsim.answers.plan import priced
from tpsim.answers.ranking import Ranking, held_at_peak
from tpsim.frozen import dataclass
from tpsim.layouts.weighed import weigh
from tpsim.machine.constant import Kind  # noqa: TC001 - JSON Schemas read types
from tpsim.machine.parts import changed
from tpsim.report.record import Number, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.search import SearchResult
    from tpsim.machine.constant import Constant
    from tpsim.machine.profile import Machine
    from tpsim.question.shelf import Shelf

FACTOR = 1.1
"""How much better each part is made: the step per percent is told, so little hangs on it."""

TWICE = 2.0
"""How much more memory is tried beside that: what it unlocks comes in steps."""

LEAST = 1e-4
"""The elasticity from which on a constant is told."""

BETTER: Mapping[str, Callable[[float, float], float]] = {
    "flops_per_s": lambda value, factor: value * factor,
    "bytes_per_s": lambda value, factor: value * factor,
    "bytes": lambda value, factor: value * factor,
    "seconds": lambda value, factor: value / factor,
    "ratio": lambda value, factor: value * factor,
}
"""A better figure, by what it is one of."""


@dataclass(frozen=True, slots=True)
class Part:
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

        def change(one: Constant) -> Constant:
            mine = one.path.startswith(self.begins) and one.dimension == self.dimension
            return replace(one, value=BETTER[self.dimension](one.value, self.factor)) if mine else one

        return replace(changed(machine, change), measured=())


def parts(machine: Machine) -> Iterator[Part]:
    """Compute, memory, and each level's bandwidth and latency; what is measured as a curve follows the figures."""
    yield Part("compute", "chip.peak.", "flops_per_s")
    yield Part("memory bandwidth", "chip.memory.bandwidth", "bytes_per_s")
    yield Part("memory capacity", "chip.memory.capacity", "bytes")
    yield Part("memory capacity", "chip.memory.capacity", "bytes", TWICE)
    for level in machine.levels:
        yield Part(f"{level.name} bandwidth", f"levels.{level.name}.", "bytes_per_s")
        yield Part(f"{level.name} latency", f"levels.{level.name}.", "seconds")


@dataclass(frozen=True, slots=True)
class Moves(Record):
    """How the best step answers to one figure of the machine, its layout held.

    constant    where the figure stands
    kind        where it comes from
    factor      how much better it is made: so much more, or of seconds so much less
    held_s      seconds of the step then
    elasticity  percent that the step loses per percent that the figure is better
    """

    told: ClassVar[tuple[str, ...]] = ("constant", "kind", "factor", "held_s", "elasticity")

    constant: str
    kind: Kind
    today_s: float
    held_s: Seconds
    factor: Number = FACTOR

    @property
    def elasticity(self) -> Number:
        """Percent that the step loses per percent that the figure is better."""
        return elasticity(self.today_s, self.held_s, self.factor)


def constants(machine: Machine) -> Iterator[tuple[Constant, Machine]]:
    """Every figure that can be better, with the machine that has it better; a share of a whole may exceed it."""
    for one in {one.path: one for one in machine.constants()}.values():
        if one.value and one.dimension in BETTER:
            yield one, replace(changed(machine, partial(_bettered, one.path)), measured=())


def _bettered(path: str, one: Constant) -> Constant:
    return replace(one, value=BETTER[one.dimension](one.value, FACTOR)) if one.path == path else one


def elasticity(today_s: float, then_s: float, factor: float) -> float:
    """Percent that a step loses per percent that something is better."""
    return -log(then_s / today_s) / log(factor)


@dataclass(frozen=True, slots=True)
class Answered(Record):
    """How the best step answers to a better part.

    part      of the machine
    factor    how much better it is: so much more, or of a latency so much less
    held_s    seconds of the step in the layout that is best today
    best_s    in the layout that is best then; null where none meets what the scenario requires any more
    layout    that layout, if it is another one
    elasticity       percent that the step loses in its layout, per percent that the part is better
    best_elasticity  the same, searched again
    """

    told: ClassVar[tuple[str, ...]] = (
        *("part", "factor", "held_s", "elasticity", "best_s", "best_elasticity", "relative", "layout?"),
    )

    part: str
    factor: Number
    today_s: float
    held_s: Seconds
    best_s: Seconds | None = None
    layout: str | None = None

    @property
    def elasticity(self) -> Number:
        """Percent that the step loses per percent that the part is better, its layout held."""
        return elasticity(self.today_s, self.held_s, self.factor)

    @property
    def best_elasticity(self) -> Number | None:
        """The same, its layout searched again."""
        return None if self.best_s is None else elasticity(self.today_s, self.best_s, self.factor)

    @property
    def relative(self) -> Number | None:
        """The change of the best step as a share of it, searched again."""
        return None if self.best_s is None else self.best_s / self.today_s - 1


def answered(found: SearchResult, plans: int, shelf: Shelf) -> Iterator[Answered]:
    """The best step with each part of its machine better: in its layout, and searched again."""
    if found.best is None:
        return
    best, space, today = found.best, found.best.planned.weighed.space, found.best.plan
    for part in parts(today.question.machine):
        machine = part.better(today.question.machine)
        held = priced(replace(today.question, machine=machine), shelf)
        weighing = weigh([replace(space, machine=machine)], shelf, held_at_peak)
        one = Answered(part.name, part.factor, float(today.step.time_s), float(held.step.time_s))
        for again in Ranking(weighing, shelf, plans).best(found.by, 1).best:
            other = again.weighed.layout != best.planned.weighed.layout
            layout = in_words(Row(1, again, again, found.by)) if other else None
            one = replace(one, best_s=float(again.plan.step.time_s), layout=layout)
        yield one


def moves(found: SearchResult, shelf: Shelf) -> list[Moves]:
    """The best step with each figure of its machine better, of those that make a difference: what does most first."""
    if found.best is None:
        return []
    question, today_s = found.best.plan.question, float(found.best.plan.step.time_s)
    made = [
        Moves(one.path, one.kind, today_s, float(priced(replace(question, machine=machine), shelf).step.time_s))
        for one, machine in constants(question.machine)
    ]
    return sorted((one for one in made if abs(one.elasticity) >= LEAST), key=lambda one: -abs(one.elasticity))
