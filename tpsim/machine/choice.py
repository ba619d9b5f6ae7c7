"""The way that a library takes: the least by what it counts, which is not always what takes least."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.frozen import dataclass
from tpsim.machine.combined import by_keys, least, lifted, within_limits
from tpsim.quantity.size import largest, over, smallest, where_many, where_positive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.machine.cost import Cost, Count
    from tpsim.quantity.size import Size

    Ways = Sequence[tuple[Cost, Count]]


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """What the ways are for.

    V      bytes of the whole array
    n      devices
    wire   bytes per byte of V that each device must inject, whatever the way
    again  a way's cost for other bytes
    """

    V: Size
    n: Size
    wire: Size
    again: Callable[[Cost, Size], Cost]


def taken(ways: Sequence[Cost], question: ChoiceQuestion) -> Cost:
    """What a library takes of these ways: what it counts least for, or what takes least where it counts nothing."""
    free = within_limits([way for way in ways if way.counted is None])
    counted = [(way, way.counted) for way in ways if way.counted is not None]
    return least([_by_count(counted, question), *free] if counted else free)


def _by_count(ways: Ways, question: ChoiceQuestion) -> Cost:
    """The way that is counted least; it never takes less than another one did for fewer bytes.

    A library that leaves a way too late gets faster with more bytes. No plan should lean on that: time never falls.
    """
    sent = question.wire * question.V
    best = by_keys([offered.latency_s + over(sent, offered.bandwidth) for _, offered in ways], [way for way, _ in ways])
    floor = largest(0, *(_before(way, offered, ways, question) for way, offered in ways))
    lift = largest(0, floor - best.time_s)
    return lifted(best, lift)


def _before(way: Cost, mine: Count, ways: Ways, question: ChoiceQuestion) -> Any:
    """The most that a way took before another one was counted less; 0 while it is in use, and if it never is."""
    first, last = _in_use(mine, [offered for _, offered in ways], question)
    if last is None:
        return 0
    reached = where_positive(smallest(question.V - last, last - first), 1)
    if isinstance(reached, int) and not reached:
        return 0
    return reached * question.again(way, largest(last, 0)).time_s


def _in_use(mine: Count, every: Sequence[Count], question: ChoiceQuestion) -> tuple[Any, Any]:
    """From how many bytes on a way is counted least, and up to how many; None if no other one follows."""
    wire = where_many(question.n, question.wire, 1)

    def meets(other: Count) -> Any:
        """Bytes for which both are counted alike."""
        return over(other.latency_s - mine.latency_s, wire * (1 / mine.bandwidth - 1 / other.bandwidth))

    faster = [meets(other) for other in every if other.bandwidth > mine.bandwidth]
    if not faster:
        return 0, None
    slower = [meets(other) for other in every if other.bandwidth < mine.bandwidth]
    alike = [other for other in every if other is not mine and other.bandwidth == mine.bandwidth]
    never = [where_positive(mine.latency_s - other.latency_s, inf) for other in alike]
    return largest(0, *slower, *never), smallest(*faster)
