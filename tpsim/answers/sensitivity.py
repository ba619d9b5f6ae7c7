"""What to buy: how the best step answers to a better part of the machine, its layout held, and searched again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, ClassVar

from tpsim.machine.parts import changed
from tpsim.report.record import Number, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.machine.parts import Constant
    from tpsim.machine.profile import Machine

FACTOR = 1.1
"""How much better each part is made: the step per percent is told, so little hangs on it."""

TWICE = 2.0
"""How much more memory is tried beside that: what it unlocks comes in steps."""

BETTER: Mapping[str, Callable[[float, float], float]] = {
    "flops_per_s": lambda value, factor: value * factor,
    "bytes_per_s": lambda value, factor: value * factor,
    "bytes": lambda value, factor: value * factor,
    "seconds": lambda value, factor: value / factor,
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
        return self._elasticity(self.held_s)

    @property
    def best_elasticity(self) -> Number | None:
        """The same, its layout searched again."""
        return None if self.best_s is None else self._elasticity(self.best_s)

    @property
    def relative(self) -> Number | None:
        """The change of the best step as a share of it, searched again."""
        return None if self.best_s is None else self.best_s / self.today_s - 1

    def _elasticity(self, then_s: float) -> float:
        return -log(then_s / self.today_s) / log(self.factor)
