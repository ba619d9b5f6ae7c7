"""Costs made of several: levels in turn, two halves, one as often as it runs, the least of those on offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf
from typing import Any

from tpsim.machine.cost import Derived, LevelStage, Way
from tpsim.quantity.size import Size, by_least, largest, total, where_many, where_positive


def chained(costs: Sequence[Way], name: str, levels: Sequence[str], pipelined: float = 0.0) -> Way:
    """Ways on different links one after another: launched once, the busiest link is on one of them.

    levels     the level of each: ways on one level are waited for in turn
    pipelined  share of the shorter ways' bandwidth time that is hidden behind the longest one's
    """

    def of(number: str) -> Any:
        values = [getattr(cost, number) for cost in costs]
        if number in {"stages", "fills"}:
            return tuple(chain.from_iterable(values))
        if number == "link_serial":
            return by_level(values, levels)
        if number in JOINTLY:
            return largest(*values)
        if number == "work_s" and pipelined:
            shares = [cost.bandwidth_s for cost in costs]
            return total(values) - pipelined * (total(shares) - largest(*shares))
        return total(values)

    return Derived(name, costs[0].protocol, of, excess=most_excess(cost.excess for cost in costs))


def most_excess(each: Iterable[Any]) -> Any:
    """The most by which a message of some part is larger than those that are sent so; None: of any size."""
    limited = [excess for excess in each if excess is not None]
    return largest(*limited) if limited else None


JOINTLY = frozenset({"launch_s", "pipelined_s", "link_total", "uplink"})
"""Numbers that of several ways one after another are those of the one that has most: the others add up."""


def by_level(serial: Sequence[Any], levels: Sequence[str]) -> Any:
    """What is waited for on the level where that is most."""
    sums: dict[str, Any] = {}
    for seconds, level in zip(serial, levels, strict=True):
        sums[level] = sums.get(level, 0) + seconds
    return largest(*sums.values())


def twice(cost: Way, link_total: Callable[[], Any]) -> Way:
    """A way run two times on the same links, launched once: what is waited for doubles.

    link_total  what the busiest link carries in both: a link may be the busiest one in only one of them
    """

    def of(number: str) -> Any:
        if number == "link_total":
            return link_total()
        if number == "uplink":
            return 0 if cost.link is None else cost.link.uplink(link_total())
        if number == "stages":
            return tuple(_twice(stage, link_total()) for stage in cost.stages)
        if number == "fills":
            return _full(cost, 2)
        once = getattr(cost, number)
        return once if number == "launch_s" else 2 * once

    return Derived(cost.algorithm, cost.protocol, of)


def repeated(cost: Way, times: Size) -> Way:
    """A way run so many times on the same links, launched each time."""
    figures = ("steps", "wire", "carried", "link_total", "link_serial")

    def again(stage: LevelStage) -> LevelStage:
        traffic = stage.traffic._replace(**{name: times * getattr(stage.traffic, name) for name in figures})
        seconds = (times * stage.latency_s, times * stage.bandwidth_s, times * stage.work_s)
        return LevelStage(stage.level, stage.algorithm, traffic, *seconds)

    def of(number: str) -> Any:
        if number == "fills":
            return _full(cost, times)
        return tuple(map(again, cost.stages)) if number == "stages" else times * getattr(cost, number)

    return Derived(cost.algorithm, cost.protocol, of, time=True)


def _full(cost: Way, times: Size) -> tuple[tuple[str, Any], ...]:
    """What a way fills that is run so many times."""
    return tuple((level, times * seconds) for level, seconds in cost.fills)


def _twice(stage: LevelStage, link_total: Any) -> LevelStage:
    traffic = stage.traffic.then(stage.traffic)._replace(link_total=link_total)
    seconds = (2 * stage.latency_s, 2 * stage.bandwidth_s, 2 * stage.work_s)
    return LevelStage(stage.level, stage.algorithm, traffic, *seconds)


def least(costs: Sequence[Way]) -> Way:
    """The way that takes least, element by element for arrays; of equal ones the first."""
    return costs[0] if len(costs) == 1 else by_keys([cost.time_s for cost in costs], costs, by_time=True)


def by_keys(keys: Sequence[Any], costs: Sequence[Way], *, by_time: bool = False) -> Way:
    """The way whose key is the least, element by element for arrays; of equal ones the first.

    by_time  True: the keys are the ways' seconds
    """
    if all(isinstance(key, int | float) for key in keys):
        return costs[keys.index(min(keys))]
    times = keys if by_time else [cost.time_s for cost in costs]
    return _by_field(by_least(keys), costs, times, _any([cost.algorithm for cost in costs]))


def _any(names: Sequence[str]) -> str:
    """A name, or several of which the sizes decide."""
    different = list(dict.fromkeys(names))
    return different[0] if len(different) == 1 else f"least of {', '.join(different)}"


def lifted(cost: Way, lift: Any) -> Way:
    """A way that takes so many seconds more for its bytes."""
    if not isinstance(cost, Derived):
        return cost._replace(work_s=cost.work_s + lift, ramp_s=cost.ramp_s + lift)

    def of(number: str) -> Any:
        value = getattr(cost, number)
        return value + lift if number in {"work_s", "ramp_s", "time_s"} else value

    return Derived(cost.algorithm, cost.protocol, of, time=True)


def within_limits(costs: Sequence[Way]) -> list[Way]:
    """The ways whose messages are not larger than those that are sent so; the others are out, or take infinitely long.

    A way that is the only one has no limit. One that is out stays out for more bytes, so that the least never falls.
    """
    beyond = [cost.excess for cost in costs]
    if all(excess is not None for excess in beyond):
        return list(costs)
    if all(excess is None or isinstance(excess, int | float) for excess in beyond):
        return [cost for cost, excess in zip(costs, beyond, strict=True) if excess is None or excess <= 0]
    return [
        cost if excess is None else lifted(cost, where_positive(excess, inf))
        for cost, excess in zip(costs, beyond, strict=True)
    ]


def where_more(n: Size, many: Way, few: Way) -> Way:
    """`many` where n > 1, else `few`."""
    if isinstance(n, int):
        return many if where_many(n, 1) else few
    return _by_field(
        lambda values: where_many(n, values[0], values[1]),
        (many, few),
        (many.time_s, few.time_s),
        f"{many.algorithm} or {few.algorithm}",
    )


def _by_field(pick: Callable[[Sequence[Any]], Any], costs: Sequence[Way], times: Sequence[Any], name: str) -> Way:
    """A cost whose every number is picked from those of `costs`; which stages it has depends on the element.

    times  the seconds of each
    """

    def of(number: str) -> Any:
        if number in {"stages", "fills"}:
            return ()
        values = times if number == "time_s" else [getattr(cost, number) for cost in costs]
        return values[0] if all(value is values[0] for value in values) else pick(values)

    return Derived(name, _any([cost.protocol for cost in costs]), of, time=True)
