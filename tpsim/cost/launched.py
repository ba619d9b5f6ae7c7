"""Time as max and plus: tasks that a host launches one by one, in the order of issue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.cost.timed import NEVER, NOTHING, Length, longer, path
from tpsim.cost.timeline import COMPUTE, Task, run
from tpsim.frozen import dataclass
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST = "host"
"""The lane that launches: a task waits until it has been launched, and the host goes on to the next."""


@dataclass(frozen=True, slots=True)
class Launched:
    """Tasks as one, from (host, compute) free to free.

    issue    from the host to itself: all launches
    led      from the host to compute; -inf where nothing is launched
    through  from compute to compute, which waits for no launch
    """

    issue: Length = NOTHING
    led: Length = NEVER
    through: Length = NOTHING

    def then(self, other: Launched) -> Launched:
        """Both, one behind the other."""
        led = longer(self.led + other.through, self.issue + other.led)
        return Launched(self.issue + other.issue, led, self.through + other.through)

    def times(self, n: int) -> Launched:
        """The same n times over: the host leads by its first launches, or until its last."""
        led = self.led + longer(self.through, self.issue).times(n - 1)
        return Launched(self.issue.times(n), led, self.through.times(n))


def launched(tasks: Sequence[Task], issued: Sequence[Any], named: Sequence[int]) -> Launched:
    """Tasks in the order of issue.

    issued  seconds in which the host launches each
    named   its call, by identity; 0 for none
    """
    last = max((place for place, task in enumerate(tasks) if COMPUTE in task.holds), default=None)
    if last is None:
        return Launched(Length(total(issued)))
    alone = run(tasks)
    both: list[Task] = []
    for task, s in zip(tasks, issued, strict=True):
        after = tuple(2 * one + 1 for one in task.after)
        both += [Task((HOST,), (HOST,), s), task._replace(after=(len(both), *after))]
    late = max(alone.ends)  # a host that begins when all could have ended: it alone is waited for
    ran = run(both, {HOST: late})
    end = 2 * last + 1
    calls = [name for one in named for name in (0, one)]
    through = Length(alone.ends[last], path(alone, named, last))
    return Launched(Length(total(issued)), Length(ran.ends[end] - late, path(ran, calls, end)), through)
