"""Seconds and bytes of one way to run a collective, and how ways are chained, compared and switched between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.machine.profile import Level, Tuning
from tpsim.quantity.size import Size, by_least, largest, over, root, smallest, total, where_many, where_positive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.machine.algorithms import Traffic
    from tpsim.machine.profile import Rendezvous


SIMPLE = "simple"
"""The protocol of a level that names none."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One algorithm on one level: what moves there and how long it takes; of a scatter and a gather both together."""

    level: str
    algorithm: str
    traffic: Traffic
    latency_s: Any
    bandwidth_s: Any
    work_s: Any


@dataclass(frozen=True, slots=True)
class Count:
    """What a library counts for a way when it chooses: seconds before the first byte, and bytes per second after it."""

    latency_s: Any
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Cost:
    """One way to run a collective.

    launch_s     what is paid once per call, by the harness and by the protocol
    ramp_s       what bytes cost beyond the links' bandwidth: the own share that goes through memory, and chunks
    work_s       stages one after another, less what is hidden; `pipelined_s`: the longest stage alone, as if all levels
                 worked at once
    link_total, link_serial  of the level whose links carry most
    link         the level as it is met by a way of one algorithm on one level
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
    ramp_s: Any = 0
    protocol: str = SIMPLE
    link: Link | None = None

    @property
    def time_s(self) -> Any:
        """Launch and work."""
        return self.launch_s + self.work_s

    @property
    def counted(self) -> Count | None:
        """By what the library chooses; None: it takes what takes least."""
        return None if self.link is None else self.link.counted(self.steps)

    @property
    def excess(self) -> Any:
        """By how many bytes a message is larger than those that are sent so; None: of any size."""
        return None if self.link is None else self.link.excess(self.steps, self.link_serial)


FREE = Cost("none", 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""What a move among one device costs."""


@dataclass(frozen=True, slots=True)
class Link:
    """A level's figures as one algorithm meets them, in SI units.

    message  bytes that it sends in one step
    """

    level: Level
    tunings: tuple[Tuning, ...] = ()
    message: Any = 0

    def sending(self, message: Callable[[], Any]) -> Link:
        """The same with messages of so many bytes, which are asked for only where they matter."""
        return self if self._rendezvous is None else replace(self, message=message())

    def _stated(self, figure: str) -> float | None:
        """The most particular tuning's figure, if any has it."""
        found = (getattr(tuning, figure) for tuning in self.tunings)
        return next((constant.value for constant in found if constant is not None), None)

    @property
    def bandwidth(self) -> float:
        """Bytes per second that large messages reach on one link in one direction."""
        share = self._stated("efficiency")
        return self.level.bandwidth.value * (self.level.efficiency.value if share is None else share)

    @property
    def hop_s(self) -> Any:
        """Seconds of one step."""
        hop = self._stated("hop_latency")
        return (self.level.hop_latency.value if hop is None else hop) + self._waiting_s

    @property
    def _waiting_s(self) -> Any:
        """Seconds that each step's message waits for its receiver."""
        waits = self._rendezvous
        return 0 if waits is None else where_positive(self.message - waits.above.value, waits.latency.value)

    @property
    def _rendezvous(self) -> Rendezvous | None:
        """The most particular tuning's, if any has one."""
        return next((tuning.rendezvous for tuning in self.tunings if tuning.rendezvous is not None), None)

    @property
    def default_launch_s(self) -> float | None:
        """Seconds that replace the level's default launch, if any do."""
        return self._stated("launch")

    def latency_s(self, n: Any) -> Any:
        """Seconds of a call of any size among n devices, on top of the launch."""
        return (self._stated("latency") or 0.0) + (self._stated("device_latency") or 0.0) * n

    def filled(self, sent: Any, steps: Any) -> Any:
        """Bytes that take as long as `sent` would through all channels, if a message opens one after the other.

        Up to `channel_bytes` per step one channel has to carry all of it; each channel that opens next carries as much
        in the same time, until all of them are open. Source: NCCL, src/enqueue.cc, the loop over nBytes < nc*nt*thresh.
        """
        channels, each = self._stated("channels"), self._stated("channel_bytes")
        if channels is None or each is None:
            return sent
        return largest(sent, channels * smallest(sent, steps * each))

    def counted(self, steps: Any) -> Count | None:
        """What the library counts for a way of so many steps, if the profile says so."""
        found = self.tunings[0].counted if self.tunings else None
        if found is None:
            return None
        return Count(found.latency.value + steps * found.hop_latency.value, found.bandwidth.value)

    def excess(self, steps: Any, serial: Any) -> Any:
        """Bytes by which a message is larger than those that are sent this way; None without a limit."""
        limit = self._stated("largest_message")
        return None if limit is None else serial - steps * limit

    def ramp(self, own: Any, bandwidth: Any) -> Any:
        """Seconds beyond latency and bandwidth: the own share's way through memory, and a pipeline of chunks.

        own        bytes that a device sends to itself; None where it never does
        bandwidth  seconds that the links take for everything else
        A message that takes b seconds, cut into k chunks of latency a, fills the pipeline with one chunk and pays k
        latencies: b/k + k*a, which the best k makes 2*sqrt(a*b). Source: Chan et al., Collective communication (2007).
        """
        rate, chunk = None if own is None else self._stated("own_bandwidth"), self._stated("chunk_latency")
        passed = 0 if rate is None else over(self.filled(own, 1), rate)
        return passed if chunk is None else passed + 2 * root(chunk * (bandwidth + passed))

    def seconds(self, steps: Any, total: Any, serial: Any) -> tuple[Any, Any, Any]:
        """Latency, bandwidth and both together, by how the level's steps follow each other.

        Lock-step: every step pays its latency and its bytes. Streamed: H chunks c follow each other through H hops,
        H*max(a, c/w) + min(a, c/w).
        """
        latency = steps * self.hop_s
        if self.level.steps == "lockstep":
            bandwidth = over(self.filled(serial, steps), self.bandwidth)
            return latency, bandwidth, latency + bandwidth
        bandwidth = over(self.filled(total, steps), self.bandwidth)
        longer = largest(latency, bandwidth)
        return latency, bandwidth, longer + over(latency + bandwidth - longer, largest(steps, 1))


PLAIN = Tuning()
"""Nothing differs."""


def tuned(level: Level, algorithm: str, protocol: str) -> Link | None:
    """A level as one algorithm meets it with one protocol; None if it cannot run it."""
    own = level.algorithms.get(algorithm, PLAIN)
    usable = own.protocols or level.protocols
    if usable and protocol not in usable:
        return None
    if not own.protocols and own is PLAIN and not level.protocols:
        return Link(level)
    return Link(level, (own.protocols.get(protocol, PLAIN), own, level.protocols.get(protocol, PLAIN)))


def single(link: Link, way: tuple[str, str], traffic: Traffic, own: Any, launch_s: Any) -> Cost:
    """One way, algorithm and protocol, on one level; `own` are the bytes that a device sends to itself."""
    algorithm, protocol = way
    latency, bandwidth, work = link.seconds(traffic.steps, traffic.link_total, traffic.link_serial)
    ramp = link.ramp(own, bandwidth)
    work = work + ramp
    stage = Stage(link.level.name, algorithm, traffic, latency, bandwidth, work)
    totals = (traffic.steps, traffic.carried, traffic.link_total, traffic.link_serial)
    return Cost(algorithm, launch_s, latency, bandwidth, work, work, *totals, (stage,), ramp, protocol, link)


def chained(costs: Sequence[Cost], name: str, levels: Sequence[str], pipelined: float = 0.0) -> Cost:
    """Ways on different links one after another: launched once, the busiest link is on one of them.

    levels     the level of each: ways on one level are waited for in turn
    pipelined  share of the shorter ways' bandwidth time that is hidden behind the longest one's
    """
    if len(costs) == 1:
        return costs[0]
    work = total(cost.work_s for cost in costs)
    if pipelined:
        shares = [cost.bandwidth_s for cost in costs]
        work = work - pipelined * (total(shares) - largest(*shares))
    return Cost(
        name,
        largest(*(cost.launch_s for cost in costs)),
        total(cost.latency_s for cost in costs),
        total(cost.bandwidth_s for cost in costs),
        work,
        largest(*(cost.pipelined_s for cost in costs)),
        total(cost.steps for cost in costs),
        total(cost.carried for cost in costs),
        largest(*(cost.link_total for cost in costs)),
        by_level([cost.link_serial for cost in costs], levels),
        tuple(stage for cost in costs for stage in cost.stages),
        total(cost.ramp_s for cost in costs),
        costs[0].protocol,
    )


def by_level(serial: Sequence[Any], levels: Sequence[str]) -> Any:
    """What is waited for on the level where that is most."""
    sums: dict[str, Any] = {}
    for one, level in zip(serial, levels, strict=True):
        sums[level] = sums.get(level, 0) + one
    return largest(*sums.values())


def twice(cost: Cost, link_total: Any) -> Cost:
    """A way run two times on the same links, launched once: what is waited for doubles.

    link_total  what the busiest link carries in both: a link may be the busiest one in only one of them
    """
    return Cost(
        cost.algorithm,
        cost.launch_s,
        2 * cost.latency_s,
        2 * cost.bandwidth_s,
        2 * cost.work_s,
        2 * cost.pipelined_s,
        2 * cost.steps,
        2 * cost.carried,
        link_total,
        2 * cost.link_serial,
        tuple(_twice(stage, link_total) for stage in cost.stages),
        2 * cost.ramp_s,
        cost.protocol,
    )


def _twice(stage: Stage, link_total: Any) -> Stage:
    traffic = replace(stage.traffic.then(stage.traffic), link_total=link_total)
    seconds = (2 * stage.latency_s, 2 * stage.bandwidth_s, 2 * stage.work_s)
    return Stage(stage.level, stage.algorithm, traffic, *seconds)


def least(costs: Sequence[Cost]) -> Cost:
    """The way that takes least, element by element for arrays; of equal ones the first."""
    return costs[0] if len(costs) == 1 else by_keys([cost.time_s for cost in costs], costs)


def by_keys(keys: Sequence[Any], costs: Sequence[Cost]) -> Cost:
    """The way whose key is the least, element by element for arrays; of equal ones the first."""
    if all(isinstance(key, int | float) for key in keys):
        return costs[keys.index(min(keys))]
    return _by_field(by_least(keys), costs, _any([cost.algorithm for cost in costs]))


def _any(names: Sequence[str]) -> str:
    """A name, or several of which the sizes decide."""
    different = list(dict.fromkeys(names))
    return different[0] if len(different) == 1 else f"least of {', '.join(different)}"


def within_limits(costs: Sequence[Cost]) -> list[Cost]:
    """The ways whose messages are not larger than those that are sent so; the others are out, or take infinitely long.

    A way that is the only one has no limit. One that is out stays out for more bytes, so that the least never falls.
    """
    if all(cost.excess is not None for cost in costs):
        return list(costs)
    if all(cost.excess is None or isinstance(cost.excess, int | float) for cost in costs):
        return [cost for cost in costs if cost.excess is None or cost.excess <= 0]
    return [
        cost if cost.excess is None else replace(cost, work_s=cost.work_s + where_positive(cost.excess, inf))
        for cost in costs
    ]


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


def _once(pick: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """`pick` that picks nothing from what is the same, and not twice from the same values."""
    seen: dict[tuple[int, ...], Any] = {}

    def picked(values: Sequence[Any]) -> Any:
        which = tuple(map(id, values))
        if len(set(which)) == 1:
            return values[0]
        if which not in seen:
            seen[which] = pick(values)
        return seen[which]

    return picked


def _by_field(pick: Callable[[Sequence[Any]], Any], costs: Sequence[Cost], name: str) -> Cost:
    """A cost whose every number is picked from those of `costs`; which stages it has depends on the element."""
    pick = _once(pick)
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
        ramp_s=pick([cost.ramp_s for cost in costs]),
        protocol=_any([cost.protocol for cost in costs]),
    )
