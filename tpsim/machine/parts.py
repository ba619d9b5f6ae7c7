"""A machine: chip, levels of its network, what its algorithms are tuned by, and where each figure comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tpsim.fabric.wires import ANY
from tpsim.machine.constant import Constant, HasConstants, Kind, inside
from tpsim.quantity.errors import InputError, did_you_mean
from tpsim.quantity.size import largest, over

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tpsim.fabric.wires import LevelTopology, Slices, Wrap
    from tpsim.machine.curve import MeasuredCurve
    from tpsim.quantity.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(HasConstants):
    """What a library counts with when it chooses among its ways: not what they take.

    latency      per call
    hop_latency  of one step
    bandwidth    bytes per second of what each device must inject, whatever the algorithm ("bus bandwidth")
    """

    latency: Constant
    hop_latency: Constant
    bandwidth: Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous(HasConstants):
    """From which size on a message waits for its receiver instead of going ahead into a buffer.

    above    bytes of the longest message that does not wait
    latency  what each step of longer ones takes on top of its hop
    """

    above: Constant
    latency: Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(HasConstants):
    """What differs from its level for one algorithm, one protocol, or one algorithm with one protocol.

    None is the figure of whatever is less particular: algorithm with protocol, algorithm, protocol, level.

    launch         replaces the level's default launch
    latency        per call, whatever the size, on top of the launch; None: nothing
    hop_latency    of one step
    efficiency     share of the bandwidth that large messages reach
    own_bandwidth  bytes per second at which a device passes on what it sends to itself; None costs nothing
    chunk_latency  what each chunk costs that a message is cut into; None costs nothing
    device_latency  per call and device that takes part; None costs nothing
    channels       how many share what is sent at once; a message opens one after the other
    channel_bytes  of a step that fill a channel before the next one opens; None opens all of them at once
    largest_message  bytes to one device above which another protocol is taken; of a way that is counted: no limit
    counted        of an algorithm's protocol: what the library counts with when it chooses; None: it takes the least
    rendezvous     which messages wait for their receiver; None: no step takes longer than its hop
    protocols      of an algorithm: those that it can use, with what differs; none: all of the level's
    alone          of an algorithm: only for a collective that stays on this level
    """

    launch: Constant | None = None
    latency: Constant | None = None
    hop_latency: Constant | None = None
    efficiency: Constant | None = None
    own_bandwidth: Constant | None = None
    chunk_latency: Constant | None = None
    device_latency: Constant | None = None
    channels: Constant | None = None
    channel_bytes: Constant | None = None
    largest_message: Constant | None = None
    rendezvous: Rendezvous | None = None
    counted: Counted | None = None
    protocols: Mapping[str, Tuning] = field(default_factory=dict)
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Where figures were read, and when; or the logs that they were fitted to, by their hashes."""

    title: str
    read: str = ""
    sha256: tuple[str, ...] = ()

    def __str__(self) -> str:
        of = f"read {self.read}" if self.read else "sha256 " + ", ".join(digest[:12] for digest in self.sha256)
        return f"{self.title} ({of})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile(HasConstants):
    """What a product is cut into: a tile is what one unit of the chip works on, and all units make a wave.

    least      rows or columns that kernels for few rows cut tiles down to; None: the tile is the unit, and stays whole
    odd_heads  share of the peak of attention's products whose head dim is no multiple of 8; None: that of others
    """

    rows: Constant
    columns: Constant
    units: Constant
    least: Constant | None = None
    odd_heads: Constant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip(HasConstants):
    """One chip: dense peaks per dtype, memory, its way to the host, and what kernels reach.

    generation         of chips between which collectives take alike, beside their bytes; "" if none is stated
    matmul_efficiency  share of the peak that products reach; with a tile, share that whole waves of it reach
    memory_efficiency  share of the memory's bandwidth
    attention_forward, attention_backward  share of the peak that fused attention reaches; None: that of products
    attention_latents  the same over cached latents, which are keys and values of all heads; None: that of forward
    kernel_pause       seconds between two kernels; None: none
    interruption       seconds by which ranks come late to each other, see `chip_seconds.late_s`; None: never
    price_per_hour     in whatever money; None if none is stated
    """

    peak: Mapping[str, Constant]
    memory_capacity: Constant
    memory_bandwidth: Constant
    matmul_efficiency: Constant
    memory_efficiency: Constant
    tile: Tile | None = None
    attention_forward: Constant | None = None
    attention_backward: Constant | None = None
    attention_latents: Constant | None = None
    kernel_pause: Constant | None = None
    interruption: Constant | None = None
    host_bandwidth: Constant | None = None
    price_per_hour: Constant | None = None
    generation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level(HasConstants):
    """One level of the network, with the figures of ONE link in ONE direction.

    shape        members along each physical axis at most; empty without bound
    steps        whether steps wait for each other, or chunks stream through
    efficiency   share of the bandwidth that large messages reach
    hop_latency  of one step
    launch       per collective and harness, the first one is the default
    algorithms   those offered, with what differs for them; none: the plain ones of the topology
    protocols    ways to carry bytes from one device to the next, with what differs for them; none: a single one
    pipelined    share of the shorter levels' bandwidth time that is hidden in a run that ends on this level
    uplink       bytes per second into the level of all devices of a node together, in one direction; None: as many as
                 their links carry. A node is all that is joined below one member
    wrap_source  key of the sources that states the wraparound rule; None if none is stated
    wrap_kind    what kind of knowledge it is; None if it is not stated
    slices       which parts of a torus can be had; any if none are stated
    slices_source, slices_kind  of that statement, as of the wraparound rule
    """

    name: str
    topology: LevelTopology
    shape: tuple[int, ...]
    wrap: Wrap
    steps: Literal["lockstep", "streamed"]
    bandwidth: Constant
    efficiency: Constant
    hop_latency: Constant
    uplink: Constant | None = None
    pipelined: Constant | None = None
    launch: Mapping[str, Constant]
    protocols: Mapping[str, Tuning] = field(default_factory=dict)
    algorithms: Mapping[str, Tuning]
    wrap_source: str | None = None
    wrap_kind: Kind | None = None
    slices: Slices = ANY
    slices_source: str | None = None
    slices_kind: Kind | None = None

    def launched(self, harness: str | None) -> Constant | None:
        """The launch of a harness, of the default one for None; a guess of tpsim's is that of all.

        None if the profile states launches, and none of that harness.
        """
        default = next(iter(self.launch.values()))
        return default if harness is None else self.launch.get(harness, None if default.stated else default)

    @property
    def shared(self) -> bool:
        """True if the devices of a node share an uplink."""
        return self.uplink is not None

    def passing_s(self, link_total: Any, uplink: Any, share: float = 1) -> Any:
        """Seconds of bytes on the busiest link, and on the busiest node's uplink: the slower of the two."""
        own = over(link_total, self.bandwidth.value * share)
        return own if self.uplink is None else largest(own, over(uplink, self.uplink.value * share))


@dataclass(frozen=True, slots=True)
class Machine(HasConstants):
    """A machine as its profile describes it; levels innermost first.

    below     path and hash of every file that its own is laid on
    measured  curves of collectives that were measured on it, over what the constants predict
    doubts    figures that are hard to believe, beside those of the machines that tpsim ships
    links     its levels as algorithms meet them, worked out once
    timed     the collectives that were timed on it last
    """

    name: str
    sources: Mapping[str, Source]
    chip: Chip
    levels: tuple[Level, ...]
    path: str = ""
    sha256: str = ""
    below: tuple[tuple[str, str], ...] = ()
    measured: tuple[MeasuredCurve, ...] = ()
    doubts: tuple[Problem, ...] = ()
    links: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    timed: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def level(self, name: str) -> Level:
        """The level of that name."""
        return next(level for level in self.levels if level.name == name)

    def peak(self, dtype: str) -> Constant:
        """The chip's peak for products of `dtype`, of numbers in blocks with scales (``fp8_128``) that of the numbers.

        Raises InputError with the dtypes that it has.
        """
        own, _, _ = dtype.partition("_")
        if own not in self.chip.peak:
            remedy = did_you_mean(dtype, self.chip.peak, "add it to chip.peak, or compute in another dtype")
            known = f"known: {', '.join(self.chip.peak)}"
            raise InputError.one("unknown-dtype", f"{self.name} states no peak for {dtype}", remedy=remedy, note=known)
        return self.chip.peak[own]


T = TypeVar("T")


def changed(part: T, change: Callable[[Constant], Constant | Watched]) -> T:
    """A machine, or a part of one, with every constant in it changed; a part in which none is stays what it is."""
    if isinstance(part, Constant):
        return change(part)  # type: ignore[return-value]  # what is watched stands for a constant
    if not isinstance(part, HasConstants | dict | tuple):
        return part
    new = {}
    for name, value in inside(part):
        other = changed(value, change)
        if other is not value:
            new[name] = other
    if not new:
        return part
    if isinstance(part, HasConstants):
        return replace(part, **new)  # type: ignore[type-var]  # a dataclass
    whole = {**dict(inside(part)), **new}
    return whole if isinstance(part, dict) else tuple(whole.values())  # type: ignore[return-value]  # of the same types


@dataclass(frozen=True, slots=True)
class Watched:
    """A constant that tells when its value is read."""

    constant: Constant
    seen: set[str]

    @property
    def value(self) -> float:
        """The constant's, and it is seen."""
        self.seen.add(self.constant.path)
        return self.constant.value

    @property
    def stated(self) -> bool:
        """Whether the file states the constant, which is no reading of its value."""
        return self.constant.stated
