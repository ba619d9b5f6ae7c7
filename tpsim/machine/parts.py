"""A machine: chip, levels of its network, what its algorithms are tuned by, and where each figure comes from.

What files state of it is read as it stands here; see `profile`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler

from tpsim.fabric.wires import ONE_LINK, LevelTopology, Slices, Wrap
from tpsim.machine.constant import (
    FIGURES,
    BandwidthConstant,
    Constant,
    CountConstant,
    HasConstants,
    Kind,
    LatencyConstant,
    MemoryConstant,
    MoneyConstant,
    PeakConstant,
    RatioConstant,
    inside,
)
from tpsim.machine.tunings import Protocol, Tuning
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Problem, did_you_mean
from tpsim.quantity.size import largest, over

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

    from tpsim.machine.curve import MeasuredCurve

DEFAULT = "default"
"""The harness that a single launch latency belongs to."""

HARNESSES = ("threads", "graph", "process", "framework", DEFAULT)
"""Ways of launching that profiles and logs name alike: a thread per device, a graph, one process, a framework."""

DTYPES = ("f64", "f32", "tf32", "bf16", "f16", "fp8", "fp6", "fp4", "int8", "int4", "int32")
"""What a chip may state a peak for: all that a workload may name, and what makers state beside it."""

UNSTATED: Any = None
"""A figure that a file leaves out, until tpsim's guess stands for it."""


class Source(spec.Value):
    """Where figures were read."""

    noun: ClassVar[str] = "a source"
    title: str
    read: str | None = Field(None, description="the day on which it was read")
    sha256: tuple[str, ...] | None = Field(None, description="of the logs that figures were fitted to")

    def __str__(self) -> str:
        of = f"read {self.read}" if self.read else "sha256 " + ", ".join(digest[:12] for digest in self.sha256 or ())
        return f"{self.title} ({of})"


class Hbm(spec.Value, HasConstants):
    """The chip's memory."""

    noun: ClassVar[str] = "a memory"
    capacity: MemoryConstant
    bandwidth: BandwidthConstant


class Host(spec.Value, HasConstants):
    """The chip's way to its host."""

    noun: ClassVar[str] = "a way to a host"
    bandwidth: BandwidthConstant = Field(description="one direction, per chip")
    efficiency: RatioConstant | None = Field(None, description="share of it that large copies reach; none: all of it")
    latency: LatencyConstant | None = Field(None, description="of a copy, with its launch; none: none")


class Node(spec.Value, HasConstants):
    """A host: the memory of its processors."""

    noun: ClassVar[str] = "a host"
    chips: CountConstant = Field(description="that share its memory")
    capacity: MemoryConstant
    bandwidth: BandwidthConstant = Field(description="of its memory, read or written by all its cores")


class Tile(spec.Value, HasConstants):
    """What a product is cut into."""

    noun: ClassVar[str] = "a tile"
    rows: CountConstant
    columns: CountConstant
    units: CountConstant = Field(description="of the chip that work on a tile each")
    least: CountConstant | None = Field(None, description="rows or columns of the lowest tile; none: tiles stay whole")
    odd_heads: RatioConstant | None = Field(
        None, description="share of peak of attention's products whose head dim is no multiple of 8"
    )


class AttentionEfficiency(spec.Value, HasConstants):
    """Share of peak that fused attention reaches."""

    noun: ClassVar[str] = "an attention efficiency"
    forward: RatioConstant
    backward: RatioConstant
    latents: RatioConstant | None = Field(
        None, description="over cached latents that are keys and values of all heads; none: as forward"
    )


def _stated_peaks(several: Mapping[str, PeakConstant | None]) -> Mapping[str, PeakConstant]:
    """Without those that a chip has not though the one that it extends has them."""
    return {dtype: peak for dtype, peak in several.items() if peak is not None}


class Chip(spec.Value, HasConstants):
    """One chip."""

    noun: ClassVar[str] = "a chip"
    told: ClassVar[tuple[str, ...]] = (
        *("peak", "memory", "matmul_efficiency", "memory_efficiency", "tile", "attention_efficiency", "kernel_pause"),
        *("interruption", "host", "price_per_hour"),
    )
    extends: str | None = Field(None, description="a chip of the library, or its file, that this one changes")
    generation: Annotated[str, spec.OrNothing(str)] = spec.left_out(
        "", "of chips between which collectives take alike, beside their bytes"
    )
    peak: Annotated[dict[str, Annotated[PeakConstant, spec.OrNothing()]], AfterValidator(_stated_peaks)] = Field(
        description="per dtype, dense; null: none, though the machine that this one extends has it",
        json_schema_extra={"propertyNames": {"enum": list(DTYPES)}},
    )
    memory: Hbm
    host: Host | None = None
    matmul_efficiency: Annotated[RatioConstant, spec.OrNothing()] = Field(
        UNSTATED, description="share of peak that matrix products reach; with a tile, that whole waves of it reach"
    )
    memory_efficiency: Annotated[RatioConstant, spec.OrNothing()] = Field(
        UNSTATED, description="share of the memory's bandwidth that kernels reach"
    )
    tile: Tile | None = Field(None, description="of matrix products; none: the efficiency is the whole factor")
    attention_efficiency: AttentionEfficiency | None = Field(
        None, description="share of peak that fused attention reaches; none: that of matrix products"
    )
    kernel_pause: LatencyConstant | None = Field(None, description="between two kernels on the chip; none: none")
    interruption: LatencyConstant | None = Field(
        None, description="of a rank: in t seconds the longest of its pauses takes sqrt(t x this); none: none"
    )
    price_per_hour: MoneyConstant | None = Field(
        None, description="in whatever money; a scenario may assume another one"
    )


class WrapFields(Wrap):
    """When the ends of an axis are joined."""

    source: str | None = None
    kind: Kind | None = None


class SlicesFields(Slices):
    """Which parts of a torus can be had."""

    source: str | None = None
    kind: Kind | None = None


class Link(spec.Value, HasConstants):
    """One link, one direction."""

    noun: ClassVar[str] = "a link"
    told: ClassVar[tuple[str, ...]] = ("bandwidth", "efficiency", "hop_latency", "uplink")
    bandwidth: BandwidthConstant = Field(description="ONE link, ONE direction")
    uplink: BandwidthConstant | None = Field(
        None,
        description="of a switched level: what all devices of a node (all that is joined below one member) share of it,"
        " one direction; none: each has its link to itself",
    )
    efficiency: Annotated[RatioConstant, spec.OrNothing()] = Field(
        UNSTATED, description="share of it that large messages reach"
    )
    hop_latency: Annotated[LatencyConstant, spec.OrNothing()] = UNSTATED


class _OneOrMore:
    """JSON Schema of a map of constants, or nothing, that may be written as one constant."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several, nothing = handler(schema)["anyOf"]
        return {"anyOf": [several["additionalProperties"], several, nothing]}


def _named(data: Any) -> Any:
    """One launch latency is that of the default harness."""
    several = isinstance(data, Mapping) and "value" not in data
    return data if several else {DEFAULT: data}


Launches = Annotated[dict[str, LatencyConstant], BeforeValidator(_named), spec.OrNothing(dict), _OneOrMore()]
Tunings = dict[str, Annotated[Tuning, spec.OrNothing(Tuning.model_construct)]]
Protocols = dict[str, Annotated[Protocol, spec.OrNothing(Protocol.model_construct)]]


class Level(spec.Value, HasConstants):
    """One level of the network."""

    noun: ClassVar[str] = "a level"
    told: ClassVar[tuple[str, ...]] = ("link", "pipelined", "launch", "protocols", "algorithms")
    name: str = Field(pattern="^[A-Za-z][A-Za-z0-9_-]*$")
    topology: LevelTopology = Field(
        description="how its members are joined; ONE link is - " + " - ".join(map(": ".join, ONE_LINK.items())),
        json_schema_extra={"enumDescriptions": list(ONE_LINK.values())},
    )
    steps: Literal["lockstep", "streamed"] = "lockstep"
    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (), description="members along each axis at most; none: no bound"
    )
    wrap: Annotated[WrapFields, spec.OrNothing(WrapFields.model_construct)] = spec.left_out(
        WrapFields.model_construct()
    )
    slices: Annotated[SlicesFields, spec.OrNothing(SlicesFields.model_construct)] = spec.left_out(
        SlicesFields.model_construct(), "those that are sold, of a torus; none: any part of it"
    )
    launch: Launches = spec.left_out({}, "per collective; per harness where known")
    algorithms: Annotated[Tunings, spec.OrNothing(dict)] = spec.left_out({}, "those offered; none: the plain ones")
    protocols: Annotated[Protocols, spec.OrNothing(dict)] = spec.left_out({}, "how bytes are carried; none: one way")
    pipelined: RatioConstant | None = Field(
        None, description="share of the inner levels' bandwidth time that is hidden behind this level's, or hides it"
    )
    link: Link

    def launched(self, harness: str | None) -> Constant | None:
        """The launch of a harness, of the default one for None; a guess of tpsim's is that of all.

        None if the profile states launches, and none of that harness.
        """
        default = next(iter(self.launch.values()))
        return default if harness is None else self.launch.get(harness, None if default.stated else default)

    @property
    def shared(self) -> bool:
        """True if the devices of a node share an uplink."""
        return self.link.uplink is not None

    def passing_s(self, link_total: Any, uplink: Any, share: float = 1) -> Any:
        """Seconds of bytes on the busiest link, and on the busiest node's uplink: the slower of the two."""
        own = over(link_total, self.link.bandwidth.value * share)
        return own if self.link.uplink is None else largest(own, over(uplink, self.link.uplink.value * share))


@dataclass(frozen=True, slots=True)
class Machine(HasConstants):
    """A machine as its profile describes it; levels innermost first.

    host      on whose memory arrays may live; None: it is not known
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
    host: Node | None = None
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


T = TypeVar("T", bound=Constant | HasConstants | dict[Any, Any] | tuple[Any, ...])


def changed(part: T, change: Callable[[Constant], Constant | Watched]) -> T:
    """A machine, or a part of one, with every constant in it changed; a part in which none is stays what it is."""
    if isinstance(part, Constant):
        return change(part)  # type: ignore[return-value]  # what is watched stands for a constant
    new = {}
    for name, value in inside(part):
        if isinstance(value, FIGURES) and (other := changed(value, change)) is not value:
            new[name] = other
    if not new:
        return part
    if isinstance(part, HasConstants):
        return part.but(**new)
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
