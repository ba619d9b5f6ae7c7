"""Time as max and plus: tasks on lanes, in the order in which they are issued.

A task starts when the lanes that it waits for are free and what it comes after has ended; the lanes that it holds are
free again when it ends. A device has a lane ``compute`` and one per sort of collective. Every collective waits for
``compute`` as it stands where it is issued, and holds it only if it blocks: all overlap of all frameworks is that bit,
and the place in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tpsim.quantity.size import largest

COMPUTE = "compute"


class Task(NamedTuple):
    """Seconds of work that waits for lanes, holds lanes, and comes after earlier tasks, which are named by number."""

    waits: tuple[str, ...]
    holds: tuple[str, ...]
    seconds: Any
    after: tuple[int, ...] = ()


class Timeline(NamedTuple):
    """Tasks as they ran: start and end of each, what each had to wait for, and when every lane is free."""

    starts: list[Any]
    ends: list[Any]
    before: list[list[int]]
    free: Mapping[str, Any]

    def bound(self, task: int) -> int | None:
        """The task whose end a task started upon, the first of several; None if it waited for none."""
        start = self.starts[task]
        for earlier in self.before[task]:
            if self.ends[earlier] == start:
                return earlier
        return None


def run(tasks: Iterable[tuple[Any, ...]], free: Mapping[str, Any] | None = None) -> Timeline:
    """When tasks start and end, for numbers and for arrays.

    tasks  (waits, holds, seconds, after) each, in the order of issue
    free   lane -> when it is free at first; 0 where nothing is said
    """
    starts: list[Any] = []
    ends: list[Any] = []
    befores: list[list[int]] = []
    now, last = dict(free or {}), {}  # type: dict[str, Any], dict[str, int]
    for place, (waits, holds, seconds, after) in enumerate(tasks):
        ready = [now[lane] for lane in waits if lane in now]
        before = [last[lane] for lane in waits if lane in last]
        for earlier in after:
            ready.append(ends[earlier])
            before.append(earlier)
        start = largest(*ready) if len(ready) > 1 else ready[0] if ready else 0
        end = start + seconds
        starts.append(start)
        ends.append(end)
        befores.append(before)
        for lane in holds:
            now[lane] = end
            last[lane] = place
    return Timeline(starts, ends, befores, now)
