"""The step: how much communication compute can hide, what bounds the step, and where that turns over."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, ClassVar

from tpsim.cost.rollup import Row, rolled_up
from tpsim.quantity.size import largest, total
from tpsim.report.record import Number, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpsim.cost.compute import Compute
    from tpsim.cost.rollup import Total


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

    bubble_s  what the rank that it hangs on waits for others; 0 without stages
    host_s    what its actions take longer since a host launches them
    stragglers_s  and since gathers of weights wait for the last rank
    """

    told: ClassVar[tuple[str, ...]] = (
        *("time_s", "compute_s", "communication_s", "exposed_s", "bubble_s", "host_s", "stragglers_s"),
        *("bound_by", "lost"),
    )

    rows: tuple[Row, ...]
    compute: Compute
    bubble_s: Seconds = field(default=0, kw_only=True)
    host_s: Seconds = field(default=0, kw_only=True)
    stragglers_s: Seconds = field(default=0, kw_only=True)

    @cached_property
    def time_s(self) -> Seconds:
        """Compute, exposed communication and waiting, one after the other."""
        return self.compute_s + self.exposed_s + self.bubble_s + self.host_s + self.stragglers_s

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

        Communication's are those of the calls that the step's end hangs on: what runs beside them is shorter. While a
        rank waits for other stages, these do one or the other.
        """
        paced = total(row.time_s * row.pulls for row in self.rows)
        left = self.compute_s + self.exposed_s + self.bubble_s - paced
        return float(paced / left) if left > 0 else inf

    @property
    def least_bubble_s(self) -> Seconds:
        """Seconds that every rank waits for others."""
        return self.bubble_s

    @property
    def bound_by(self) -> str:
        """``compute``, ``bubble``, ``host``, ``stragglers`` or ``communication (all_reduce over tensor)``: the longest.

        What a rank waits for binds a step in which it is longer than compute and than any of these, of stages what
        even the one that waits least does; communication one in which it sets the pace more than half of what is left.
        """
        waits = {"bubble": self.least_bubble_s, "host": self.host_s, "stragglers": self.stragglers_s}
        longest = max(waits, key=lambda name: waits[name])
        if waits[longest] > max(self.compute_s, 0, *(group.exposed_s for group in self._exposed.values())):
            return longest
        return "compute" if self.pace <= 1 else f"communication ({next(iter(self._exposed))})"

    @cached_property
    def lost(self) -> list[Lost]:
        """Exposed communication, most first."""
        seconds = ((name, group.exposed_s) for name, group in self._exposed.items())
        return [Lost(name, exposed, exposed / self.time_s) for name, exposed in seconds if exposed > 0]

    @property
    def outlasting(self) -> str:
        """The collective that is exposed longest, if compute hides a part of it; else ""."""
        name, group = next(iter(self._exposed.items()), ("", None))
        return name if group and 0 < group.exposed_s < group.time_s else ""

    @cached_property
    def _exposed(self) -> Mapping[str, Total]:
        """Its collectives as ``all_reduce over tensor``, those that are exposed longest first."""
        groups = rolled_up(self.rows, by=lambda call: f"{call.kind} over {call.axis}")
        return dict(sorted(groups.items(), key=lambda item: -item[1].exposed_s))


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
