"""The way that a library takes: the least by what it counts, which is not always what takes least."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpsim.machine.cost import by_keys, least, within_limits
from tpsim.quantity.size import largest, over, smallest, where_many, where_positive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.machine.cost import Cost, Counted
    from tpsim.quantity.size import Size


@dataclass(frozen=True, slots=True)
class Question:
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


def taken(ways: Sequence[Cost], question: Question) -> Cost:
    """What a library takes of these ways: what it counts least for, or what takes least where it counts nothing."""
    free = within_limits([way for way in ways if way.counted is None])
    counted = [way for way in ways if way.counted is not None]
    if len(counted) < 2:  # noqa: PLR2004  nothing to choose between
        return least([*counted, *free])
    return least([_by_count(counted, question), *free])


def _by_count(ways: Sequence[Cost], question: Question) -> Cost:
    """The way that is counted least; it never takes less than another one did for fewer bytes.

    A library that leaves a way too late gets faster with more bytes. No plan should lean on that: time never falls.
    """
    each_s = [_counted_s(way.counted, question) for way in ways]
    best = by_keys(each_s, ways)
    floor = largest(0, *(_before(way, ways, question) for way in ways))
    lift = largest(0, floor - best.time_s)
    return replace(best, work_s=best.work_s + lift, ramp_s=best.ramp_s + lift)


def _counted_s(counted: Counted | None, question: Question) -> Any:
    assert counted is not None  # noqa: S101  only these are compared
    return counted.latency_s + over(question.wire * question.V, counted.bandwidth)


def _before(way: Cost, ways: Sequence[Cost], question: Question) -> Any:
    """The most that a way took before another one was counted less; 0 while it is in use, and if it never is."""
    first, last = _in_use(way, ways, question)
    if last is None:
        return 0
    reached = where_positive(smallest(question.V - last, last - first), 1)
    if isinstance(reached, int) and not reached:
        return 0
    return reached * question.again(way, largest(last, 0)).time_s


def _in_use(way: Cost, ways: Sequence[Cost], question: Question) -> tuple[Any, Any]:
    """From how many bytes on a way is counted least, and up to how many; None if no other one follows."""
    mine, wire = way.counted, where_many(question.n, question.wire, 1)
    assert mine is not None  # noqa: S101
    first: list[Any] = [0]
    last: list[Any] = []
    for other in (one.counted for one in ways if one is not way and one.counted is not None):
        if other.bandwidth == mine.bandwidth:
            continue
        per_byte = wire * (1 / mine.bandwidth - 1 / other.bandwidth)
        (last if other.bandwidth > mine.bandwidth else first).append(over(other.latency_s - mine.latency_s, per_byte))
    return largest(*first), smallest(*last) if last else None
