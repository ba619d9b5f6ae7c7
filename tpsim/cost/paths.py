"""Paths through tasks: how long they are, and which calls stand on them."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.quantity.size import largest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.cost.timeline import Ran


class Length(NamedTuple):
    """A path through tasks: its seconds, and how often each call stands on it, by the call's identity."""

    seconds: Any = 0
    calls: Mapping[int, int] = {}

    def __add__(self, other: Length) -> Length:  # type: ignore[override]  # lengths are put end to end, not joined
        calls = Counter(self.calls) + Counter(other.calls) if self.calls and other.calls else self.calls or other.calls
        return Length(self.seconds + other.seconds, calls)

    def times(self, n: int) -> Length:
        """The same n times over."""
        return Length(self.seconds * n, {call: count * n for call, count in self.calls.items()})


NOTHING, NEVER = Length(), Length(-inf)


def longer(one: Length, other: Length) -> Length:
    """The longer of two paths; of arrays the seconds only."""
    seconds = largest(one.seconds, other.seconds)
    return one if seconds is one.seconds else other if seconds is other.seconds else Length(seconds)


def path(ran: Ran, named: Sequence[int], at: int | None) -> Mapping[int, int]:
    """The calls that a task's end hangs on, each with how often, by the name of the task's call; 0 is none."""
    counts: Counter[int] = Counter()
    while at is not None:
        if named[at]:
            counts[named[at]] += 1
        at = ran.bound(at)
    return counts
