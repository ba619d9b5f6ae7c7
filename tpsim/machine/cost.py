"""Seconds and bytes of one way to run a collective, and how ways are chained, compared and switched between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpsim.machine.profile import Level, Tuning
from tpsim.quantity.size import Size, by_least, largest, over, where_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.machine.algorithms import Traffic


@dataclass(frozen=True, slots=True)
class Stage:
    """One algorithm on one level: what moves there and how long it takes."""

    level: str
    algorithm: str
    traffic: Traffic
    latency_s: Any
    bandwidth_s: Any
    work_s: Any


@dataclass(frozen=True, slots=True)
class Cost:
    """One way to run a collective.

    launch_s     what is paid once per call
    work_s       stages one after another; `pipelined_s`: the longest stage alone, as if all levels worked at once
    link_total, link_serial  of the level whose links carry most
    """

    algorithm: str
    launch_s: Any
    latency_s: Any
    bandwidth_s: Any
    work_s: Any
    pipelined_s: Any
    steps: Any
    carried: Any
    link_total: Any
    link_serial: Any
    stages: tuple[Stage, ...] = ()

    @property
    def time_s(self) -> Any:
        """Launch and work."""
        return self.launch_s + self.work_s


FREE = Cost("none", 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""What a move among one device costs."""


@dataclass(frozen=True, slots=True)
class Link:
    """A level's figures as one algorithm meets them, in SI units."""

    level: Level
    tuning: Tuning

    @property
    def bandwidth(self) -> float:
        """Bytes per second that large messages reach on one link in one direction."""
        share = self.tuning.efficiency or self.level.efficiency
        return self.level.bandwidth.value * (1.0 if share is None else share.value)

    @property
    def hop_s(self) -> float:
        """Seconds of one step."""
        hop = self.tuning.hop_latency or self.level.hop_latency
        return 0.0 if hop is None else hop.value

    def seconds(self, steps: Any, total: Any, serial: Any) -> tuple[Any, Any, Any]:
        """Latency, bandwidth and both together, by how the level's steps follow each other.

        Lock-step: every step pays its latency and its bytes. Streamed: H chunks c follow each other through H hops,
        H*max(a, c/w) + min(a, c/w).
        """
        latency = steps * self.hop_s
        if self.level.steps == "lockstep":
            bandwidth = over(serial, self.bandwidth)
            return latency, bandwidth, latency + bandwidth
        bandwidth = over(total, self.bandwidth)
        longer = largest(latency, bandwidth)
        return latency, bandwidth, longer + over(latency + bandwidth - longer, largest(steps, 1))


def single(level: Level, algorithm: str, traffic: Traffic, launch_s: Any) -> Cost:
    """One algorithm on one level."""
    link = Link(level, level.algorithms.get(algorithm, Tuning()))
    latency, bandwidth, work = link.seconds(traffic.steps, traffic.link_total, traffic.link_serial)
    stage = Stage(level.name, algorithm, traffic, latency, bandwidth, work)
    totals = (traffic.steps, traffic.carried, traffic.link_total, traffic.link_serial)
    return Cost(algorithm, launch_s, latency, bandwidth, work, work, *totals, (stage,))


def chained(costs: Sequence[Cost], name: str) -> Cost:
    """Ways on different links one after another: launched once, the busiest link is on one of them."""
    if len(costs) == 1:
        return costs[0]
    return Cost(
        name,
        largest(*(cost.launch_s for cost in costs)),
        sum(cost.latency_s for cost in costs),
        sum(cost.bandwidth_s for cost in costs),
        sum(cost.work_s for cost in costs),
        largest(*(cost.pipelined_s for cost in costs)),
        sum(cost.steps for cost in costs),
        sum(cost.carried for cost in costs),
        largest(*(cost.link_total for cost in costs)),
        largest(*(cost.link_serial for cost in costs)),
        tuple(stage for cost in costs for stage in cost.stages),
    )


def twice(cost: Cost) -> Cost:
    """A way run two times on the same links, launched once: what it loads them with doubles."""
    return Cost(
        cost.algorithm,
        cost.launch_s,
        2 * cost.latency_s,
        2 * cost.bandwidth_s,
        2 * cost.work_s,
        2 * cost.pipelined_s,
        2 * cost.steps,
        2 * cost.carried,
        2 * cost.link_total,
        2 * cost.link_serial,
        2 * cost.stages,
    )


def least(costs: Sequence[Cost]) -> Cost:
    """The way that takes least, element by element for arrays; of equal ones the first."""
    if len(costs) == 1:
        return costs[0]
    keys = [cost.time_s for cost in costs]
    if all(isinstance(key, int | float) for key in keys):
        return costs[keys.index(min(keys))]
    names = list(dict.fromkeys(cost.algorithm for cost in costs))
    return _by_field(by_least(keys), costs, f"least of {', '.join(names)}")


def where_more(n: Size, many: Cost, one: Cost) -> Cost:
    """`many` where n > 1, else `one`."""
    if isinstance(n, int):
        return many if where_many(n, 1) else one
    return _by_field(
        # Exact: the way not taken is subtracted from itself, never from the other one.
        lambda values: where_many(n, values[0]) + (values[1] - where_many(n, values[1])),
        (many, one),
        f"{many.algorithm} or {one.algorithm}",
    )


def _by_field(pick: Callable[[Sequence[Any]], Any], costs: Sequence[Cost], name: str) -> Cost:
    """A cost whose every number is picked from those of `costs`; which stages it has depends on the element."""
    return Cost(
        name,
        pick([cost.launch_s for cost in costs]),
        pick([cost.latency_s for cost in costs]),
        pick([cost.bandwidth_s for cost in costs]),
        pick([cost.work_s for cost in costs]),
        pick([cost.pipelined_s for cost in costs]),
        pick([cost.steps for cost in costs]),
        pick([cost.carried for cost in costs]),
        pick([cost.link_total for cost in costs]),
        pick([cost.link_serial for cost in costs]),
    )
