"""Seconds and bytes of one way to run a collective on one level."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.machine.tunings import Protocol, TunedProtocol, Tuning
from tpsim.quantity.size import largest, over, root, smallest, where_positive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.machine.forms import Traffic
    from tpsim.machine.parts import Level


SIMPLE = "simple"
"""The protocol of a level that names none."""


class LevelStage(NamedTuple):
    """One algorithm on one level: what moves there and how long it takes; of a scatter and a gather both together."""

    level: str
    algorithm: str
    traffic: Traffic
    latency_s: Any
    bandwidth_s: Any
    work_s: Any


class Count(NamedTuple):
    """What a library counts for a way when it chooses: seconds before the first byte, and bytes per second after it."""

    latency_s: Any
    bandwidth: float


class Cost(NamedTuple):
    """One way to run a collective.

    launch_s     what is paid once per call, by the harness and by the protocol
    ramp_s       what bytes cost beyond the links' bandwidth: the own share that goes through memory, and chunks
    work_s       stages one after another, less what is hidden; `pipelined_s`: the longest stage alone, as if all levels
                 worked at once
    link_total, link_serial  of the level whose links carry most
    link         the level as it is met by a way of one algorithm on one level
    fills        seconds in which the links of a level are full, with its name: nothing else goes over them then
    uplink       bytes that the devices of a node send together into a level whose uplink they share, or get from it; of
                 the level where that is most
    excess       bytes by which a message is larger than those that are sent so; None: of any size
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
    stages: tuple[LevelStage, ...] = ()
    ramp_s: Any = 0
    protocol: str = SIMPLE
    link: TunedLink | None = None
    uplink: Any = 0
    excess: Any = None
    fills: tuple[tuple[str, Any], ...] = ()

    @property
    def time_s(self) -> Any:
        """Launch and work."""
        return self.launch_s + self.work_s

    @property
    def counted(self) -> Count | None:
        """By what the library chooses; None: it takes what takes least."""
        return None if self.link is None else self.link.counted(self.steps)


class Derived:
    """A way made of others, whose every number of a `Cost` is worked out when it is asked for: most never are.

    of  gives a number or the stages by their names; `time_s` too, where that is less work than launch and work
    """

    link = None

    def __init__(
        self, algorithm: str, protocol: str, of: Callable[[str], Any], *, time: bool = False, excess: Any = None
    ) -> None:
        """What is known at once, and what gives the rest."""
        self.algorithm, self.protocol, self._of, self._time, self.excess = algorithm, protocol, of, time, excess

    def __getstate__(self) -> dict[str, Any]:
        """All numbers, worked out, instead of what gives them: that cannot be sent."""
        numbers = {name: getattr(self, name) for name in ("time_s", *sorted(WORKED_OUT))}
        return {**self.__dict__, **numbers, "_of": None}

    @cached_property
    def time_s(self) -> Any:
        """Launch and work."""
        return self._of("time_s") if self._time else self.launch_s + self.work_s

    @property
    def counted(self) -> Count | None:
        """No library counts a way that is made of others."""
        return None

    def __getattr__(self, name: str) -> Any:
        """What nobody has asked for yet."""
        if name not in WORKED_OUT:
            raise AttributeError(name)
        value = self.__dict__[name] = self._of(name)
        return value


Way = Cost | Derived
"""One way to run a collective, all of it known or worked out when it is asked for."""

WORKED_OUT = frozenset(Cost._fields) - {"algorithm", "protocol", "link", "excess"}
"""What of a way is worked out: its numbers and its stages."""

FREE = Cost("none", 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""What a move among one device costs."""


class LevelFigures:
    """A level's figures for one algorithm with one protocol, in SI units, by their names in `Protocol`; None: unstated.

    Each is looked up once, when it is first read: a machine tells which constants were.
    """

    def __init__(self, level: Level, tunings: tuple[TunedProtocol, Tuning, Protocol] | tuple[()] = ()) -> None:
        """tunings: what differs from the level, the most particular first."""
        self.level, self.tunings = level, tunings

    def __getattr__(self, figure: str) -> Any:
        """What the most particular tuning says, else the level."""
        if figure not in FIGURES:
            raise AttributeError(figure)
        parts = (*self.tunings, self.level.link) if figure in OF_LEVELS else self.tunings
        values = (getattr(part, figure, None) for part in parts)
        stated = next((value for value in values if value is not None), None)
        known = self.__dict__[figure] = getattr(stated, "value", stated)
        return known


OF_LEVELS = frozenset({"bandwidth", "efficiency", "hop_latency"})
"""What every level states."""

FIGURES = OF_LEVELS.union(Protocol.model_fields)
"""The names of all figures."""


class TunedLink(NamedTuple):
    """A level as one algorithm meets it.

    message  bytes that it sends in one step
    sharing  devices of a node that share the level's uplink, if it has one
    """

    figures: LevelFigures
    message: Any = 0
    sharing: Any = None

    @property
    def level(self) -> Level:
        """The level."""
        return self.figures.level

    def sending(self, message: Callable[[], Any]) -> TunedLink:
        """The same with messages of so many bytes, which are asked for only where they matter."""
        return self if self.figures.rendezvous is None else self._replace(message=message())

    @property
    def port(self) -> Any:
        """Bytes per second of one link in one direction, or its part of an uplink that has less for each."""
        own, uplink = self.figures.bandwidth, self.level.link.uplink
        return own if uplink is None or self.sharing is None else smallest(own, over(uplink.value, self.sharing))

    @property
    def bandwidth(self) -> Any:
        """Bytes per second that large messages reach on one link in one direction."""
        return self.port * self.figures.efficiency

    def uplink(self, link_total: Any) -> Any:
        """Bytes on a node's uplink where each of the devices that share it sends so many; 0 if they share none."""
        return 0 if self.sharing is None else self.sharing * link_total

    @property
    def hop_s(self) -> Any:
        """Seconds of one step, whose message may wait for its receiver."""
        waits = self.figures.rendezvous
        if waits is None:
            return self.figures.hop_latency
        return self.figures.hop_latency + where_positive(self.message - waits.above.value, waits.latency.value)

    def latency_s(self, n: Any) -> Any:
        """Seconds of a call of any size among n devices, on top of the launch."""
        return (self.figures.latency or 0.0) + (self.figures.device_latency or 0.0) * n

    def filled(self, sent: Any, steps: Any) -> Any:
        """Bytes that take as long as `sent` would through all channels, if a message opens one after the other.

        Up to `channel_bytes` per step one channel has to carry all of it; each channel that opens next carries as much
        in the same time, until all of them are open. Source: NCCL, src/enqueue.cc, the loop over nBytes < nc*nt*thresh.
        """
        channels, channel_bytes = self.figures.channels, self.figures.channel_bytes
        if channels is None or channel_bytes is None:
            return sent
        return largest(sent, channels * smallest(sent, steps * channel_bytes))

    def counted(self, steps: Any) -> Count | None:
        """What the library counts for a way of so many steps, if the profile says so."""
        counted = self.figures.tunings[0].counted if self.figures.tunings else None
        if counted is None:
            return None
        return Count(counted.latency.value + steps * counted.hop_latency.value, counted.bandwidth.value)

    def excess(self, message: Callable[[], Any]) -> Any:
        """Bytes by which a message is larger than those that are sent this way; None without a limit."""
        limit = self.figures.largest_message
        return None if limit is None else message() - limit

    def ramp(self, own: Any, bandwidth: Any) -> Any:
        """Seconds beyond latency and bandwidth: the own share's way through memory, and a pipeline of chunks.

        own        bytes that a device sends to itself; None where it never does
        bandwidth  seconds that the links take for everything else
        A message that takes b seconds, cut into k chunks of latency a, fills the pipeline with one chunk and pays k
        latencies: b/k + k*a, which the best k makes 2*sqrt(a*b). Source: Chan et al., Collective communication (2007).
        """
        rate, chunk = None if own is None else self.figures.own_bandwidth, self.figures.chunk_latency
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


PLAIN, PLAIN_WAY = Tuning.model_construct(), TunedProtocol.model_construct()
"""Nothing differs."""


def tuned(level: Level, algorithm: str, protocol: str) -> TunedLink | None:
    """A level as one algorithm meets it with one protocol; None if it cannot run it."""
    own = level.algorithms.get(algorithm, PLAIN)
    usable = own.protocols or level.protocols
    if usable and protocol not in usable:
        return None
    if not own.protocols and own is PLAIN and not level.protocols:
        return TunedLink(LevelFigures(level))
    return TunedLink(
        LevelFigures(level, (own.protocols.get(protocol, PLAIN_WAY), own, level.protocols.get(protocol, PLAIN)))
    )


def single(link: TunedLink, way: tuple[str, str], traffic: Traffic, own: Any, launch_s: Any) -> Cost:
    """One way, algorithm and protocol, on one level; `own` are the bytes that a device sends to itself."""
    algorithm, protocol = way
    latency, bandwidth, work = link.seconds(traffic.steps, traffic.link_total, traffic.link_serial)
    ramp = link.ramp(own, bandwidth)
    work = work + ramp
    stage = LevelStage(link.level.name, algorithm, traffic, latency, bandwidth, work)
    totals = (traffic.steps, traffic.carried, traffic.link_total, traffic.link_serial)
    limits = {"uplink": link.uplink(traffic.link_total), "excess": link.excess(lambda: traffic.message)}
    beside = (stage,), ramp, protocol, link
    fills = ((link.level.name, bandwidth),)
    return Cost(algorithm, launch_s, latency, bandwidth, work, work, *totals, *beside, **limits, fills=fills)
