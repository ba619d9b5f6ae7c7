"""The step: how much communication compute can hide, what bounds the step, and where that turns over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.cost.rollup import Row, rolled_up
from tpsim.quantity.size import largest, over, smallest, total
from tpsim.report.record import Number, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tpsim.cost.compute import Compute
    from tpsim.cost.rollup import Collective
    from tpsim.program.op import Phase


@dataclass(frozen=True, slots=True)
class Lost(Record):
    """What the calls of one kind over the same axes cost the step.

    collective  such as all_gather over tensor
    share       of the step
    """

    collective: str
    exposed_s: Seconds
    share: Number


@dataclass(frozen=True)
class Step(Record):
    """One training step on one chip: matrix products, and collectives whose exposed seconds are known.

    bubble_s  with stages: what the rank that sets the pace waits for others
    """

    told: ClassVar[tuple[str, ...]] = (
        *("time_s", "compute_s", "communication_s", "exposed_s", "bubble_s?", "bound_by", "lost"),
    )

    rows: tuple[Row, ...]
    compute: Compute
    bubble_s: Seconds = field(default=None, kw_only=True)

    @cached_property
    def time_s(self) -> Seconds:
        """Compute, exposed communication and waiting, one after the other."""
        busy = self.compute_s + self.exposed_s
        return busy if self.bubble_s is None else busy + self.bubble_s

    @cached_property
    def compute_s(self) -> Seconds:
        """Seconds of matrix products."""
        return self.compute.time_s

    @cached_property
    def communication_s(self) -> Seconds:
        """Seconds of collectives, as if nothing were hidden."""
        return total(largest(row.busy_s, row.exposed_s) for row in self.rows)  # messages that are received, too

    @cached_property
    def exposed_s(self) -> Seconds:
        """Of those, seconds that no compute hides."""
        return total(row.exposed_s for row in self.rows)

    @cached_property
    def pace(self) -> float:
        """Seconds in which communication sets the pace over those in which compute does.

        Communication's are all seconds of a collective that is exposed at all: the part of it that runs beside compute
        lasts longer than that compute. One that is hidden whole sets no pace.
        """
        paced = total(row.busy_s for row in self.rows if row.exposed_s > 0)
        left = self.compute_s + self.exposed_s - paced
        return float(paced / left) if left > 0 else inf

    @property
    def bound_by(self) -> str:
        """``compute``, ``bubble``, or ``communication (all_reduce over tensor)``: the one with most exposed seconds.

        The bubble binds a step in which it is longer than compute and than any of these; communication one in which it
        sets the pace more than half of the time that is left.
        """
        busiest = max(self.compute_s, 0, *exposed_by_name(self.rows).values())
        if self.bubble_s is not None and self.bubble_s > busiest:
            return "bubble"
        return "compute" if self.pace <= 1 else f"communication ({next(iter(exposed_by_name(self.rows)))})"

    @cached_property
    def lost(self) -> list[Lost]:
        """Exposed communication, most first."""
        seconds = exposed_by_name(self.rows).items()
        return [Lost(name, exposed, exposed / self.time_s) for name, exposed in seconds if exposed > 0]

    @property
    def outlasting(self) -> str:
        """The collective that is longest busy of those that compute hides in part; "" if it hides all or nothing."""
        groups = rolled_up((row for row in self.rows if 0 < row.exposed_s < row.busy_s), by=_name)
        return max(groups, key=lambda name: groups[name].time_s, default="")


@dataclass(frozen=True, slots=True)
class Budget:
    """Compute of one phase behind which collectives may hide.

    seconds  of the whole phase
    one_s    of one microbatch: all that a once-per-step collective can hide behind, since gradients are complete only
             in the last backward, and new weights are wanted by the first forward
    """

    seconds: Any
    one_s: Any


def budgets(seconds: Mapping[Phase, Any], microbatches: Any) -> dict[Phase, Budget]:
    """What each phase can hide."""
    return {phase: Budget(s, over(s, microbatches)) for phase, s in seconds.items()}


HIDING: Mapping[str, tuple[Phase, ...]] = {
    "none": (),
    "forward": ("forward",),
    "backward": ("backward",),
    "both": ("forward", "backward"),
}
"""The phases whose compute an overlap statement offers."""


def beside(collective: Collective) -> Phase:
    """The phase whose compute can run beside it: its own, for the update the one that makes or needs its arrays.

    Gradients settle for the optimizer while backward still makes others; new weights come home while the next
    forward begins.
    """
    phase = collective.where.phase
    if phase != "update":
        return phase
    return "backward" if collective.op == "gradient" else "forward"


def may_hide(collective: Collective, overlap: Mapping[str, str]) -> bool:
    """True if the scenario states, for each of its axes, that such collectives hide behind compute."""
    return all(beside(collective) in HIDING[overlap.get(axis, "none")] for axis in collective.axes)


def _hiders(rows: Sequence[Row], phase: Phase, overlap: Mapping[str, str]) -> list[int]:
    """Places of the rows that may hide behind `phase`."""
    return [place for place, row in enumerate(rows) if beside(row.call) == phase and may_hide(row.call, overlap)]


def hidden_s(rows: Iterable[Row], budget: Budget) -> tuple[Any, Any]:
    """Seconds hidden of the rows of one phase that may hide: once-per-step ones, per-microbatch ones.

    The once-per-step ones go first: they have the least compute to hide behind.
    """
    rows = tuple(rows)
    once = smallest(total(row.busy_s for row in rows if not row.call.per_microbatch), budget.one_s)
    often = smallest(total(row.busy_s for row in rows if row.call.per_microbatch), budget.seconds - once)
    return once, often


def expose(rows: Sequence[Row], compute: Compute, microbatches: int, overlap: Mapping[str, str]) -> tuple[Row, ...]:
    """The rows with the seconds that nothing hides; rows that share a budget share it by their busy seconds."""
    exposed = list(rows)
    for phase, budget in budgets(compute.seconds, microbatches).items():
        able = _hiders(rows, phase, overlap)
        once, often = hidden_s((rows[place] for place in able), budget)
        for per_microbatch, hidden in ((False, once), (True, often)):
            group = [place for place in able if rows[place].call.per_microbatch == per_microbatch]
            busy = total(rows[place].busy_s for place in group)
            for place in group:
                share = over(hidden, busy) if busy else 0
                exposed[place] = replace(rows[place], exposed_s=rows[place].busy_s * (1 - share))
    return tuple(exposed)


def exposed_s(rows: Sequence[Row], seconds: Mapping[Phase, Any], microbatches: Any, overlap: Mapping[str, str]) -> Any:
    """Seconds of communication that nothing hides: the sum that `expose` spreads over rows, for arrays too."""
    hidden = (
        total(hidden_s((rows[place] for place in _hiders(rows, phase, overlap)), budget))
        for phase, budget in budgets(seconds, microbatches).items()
    )
    return total(row.busy_s for row in rows) - total(hidden)


def exposed_by_name(rows: Iterable[Row]) -> dict[str, Any]:
    """Exposed seconds by ``all_reduce over tensor``, most first."""
    groups = {name: one.exposed_s for name, one in rolled_up(rows, by=_name).items()}
    return dict(sorted(groups.items(), key=lambda item: -item[1]))


def _name(collective: Collective) -> str:
    return f"{collective.kind} over {collective.axis}"


def turning_scale(
    repriced: Callable[[float], Sequence[Row]], compute: Compute, microbatches: int, overlap: Mapping[str, str]
) -> float | None:
    """How many times today's tokens make a step bound by compute just as much as by communication; None if no number.

    repriced  the rows at a multiple of today's tokens
    The seconds of forward and backward grow with the tokens; launches, steps, the update, and what moves parameters do
    not. So the
    pace of communication falls as tokens grow, and halving finds where it is one.
    """

    def at(scale: float) -> float:
        work = replace(
            compute, seconds={phase: s * (1 if phase == "update" else scale) for phase, s in compute.seconds.items()}
        )
        return Step(expose(repriced(scale), work, microbatches, overlap), work).pace

    return crossing(at)


FARTHEST = 2.0**20
"""Beyond this many times today's tokens, or below its inverse, a turning point means nothing."""


def crossing(falling: Callable[[float], float]) -> float | None:
    """Where a falling function of a positive number is one, to 6 digits; None if it is not within `FARTHEST`.

    >>> round(crossing(lambda x: 3 / x), 4)
    3.0
    """
    low, high = 1 / FARTHEST, FARTHEST
    if falling(high) > 1 or falling(low) <= 1:
        return None
    while high / low > 1 + PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if falling(middle) > 1 else (low, middle)
    return high


PRECISION = 1e-6
