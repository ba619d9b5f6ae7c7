"""The hardware file and the chip file: their fields as a user writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler

from tpsim.fabric.wires import ONE_LINK, LevelTopology, Slices, Wrap
from tpsim.machine.constant import (
    BandwidthFields,
    CountFields,
    Kind,
    LatencyFields,
    MemoryFields,
    MoneyFields,
    PeakFields,
    RatioFields,
)
from tpsim.machine.curve_file import CurveFields
from tpsim.machine.parts import Counted, Rendezvous, Tile, Tuning
from tpsim.quantity import spec

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class _OneOrMore:
    """JSON Schema of a map of constants that may be written as one constant."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["additionalProperties"], several]}


class _OrName:
    """JSON Schema of a map that a file of its own may tell, by the file's name."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def _named(data: Any) -> Any:
    """One launch latency is that of the default harness."""
    several = isinstance(data, Mapping) and "value" not in data
    return data if several else {DEFAULT: data}


DEFAULT = "default"
"""The harness that a single launch latency belongs to."""

HARNESSES = ("threads", "graph", "process", "framework", DEFAULT)
"""Ways of launching that profiles and logs name alike: a thread per device, a graph, one process, a framework."""

DTYPES = ("f64", "f32", "tf32", "bf16", "f16", "fp8", "fp6", "fp4", "int8", "int4", "int32")
"""What a chip may state a peak for: all that a workload may name, and what makers state beside it."""

Launches = Annotated[dict[str, LatencyFields], BeforeValidator(_named), _OneOrMore()]


class SourceFields(spec.Strict):
    """Where figures were read."""

    noun: ClassVar[str] = "a source"
    title: str
    read: str | None = Field(None, description="the day on which it was read")
    sha256: list[str] | None = Field(None, description="of the logs that figures were fitted to")


class HbmFields(spec.Strict):
    """The chip's memory."""

    noun: ClassVar[str] = "a memory"
    capacity: MemoryFields
    bandwidth: BandwidthFields


class HostFields(spec.Strict):
    """The chip's way to its host."""

    noun: ClassVar[str] = "a host"
    bandwidth: BandwidthFields = Field(description="one direction, per chip")


class TileFields(spec.Strict):
    """What a product is cut into."""

    noun: ClassVar[str] = "a tile"
    meaning: ClassVar[type] = Tile
    rows: CountFields
    columns: CountFields
    units: CountFields = Field(description="of the chip that work on a tile each")
    least: CountFields | None = Field(None, description="rows or columns of the lowest tile; none: tiles stay whole")
    odd_heads: RatioFields | None = Field(
        None, description="share of peak of attention's products whose head dim is no multiple of 8"
    )


class AttentionFields(spec.Strict):
    """Share of peak that fused attention reaches."""

    noun: ClassVar[str] = "an attention efficiency"
    forward: RatioFields
    backward: RatioFields
    latents: RatioFields | None = Field(
        None, description="over cached latents that are keys and values of all heads; none: as forward"
    )


class ChipFields(spec.Strict):
    """One chip."""

    noun: ClassVar[str] = "a chip"
    extends: str | None = Field(None, description="a chip of the library, or its file, that this one changes")
    generation: str | None = Field(
        None, description="of chips between which collectives take alike, beside their bytes"
    )
    peak: dict[str, PeakFields | None] = Field(
        description="per dtype, dense; null: none, though the machine that this one extends has it",
        json_schema_extra={"propertyNames": {"enum": list(DTYPES)}},
    )
    memory: HbmFields
    host: HostFields | None = None
    matmul_efficiency: RatioFields | None = Field(
        None, description="share of peak that matrix products reach; with a tile, that whole waves of it reach"
    )
    memory_efficiency: RatioFields | None = Field(
        None, description="share of the memory's bandwidth that kernels reach"
    )
    tile: TileFields | None = Field(None, description="of matrix products; none: the efficiency is the whole factor")
    attention_efficiency: AttentionFields | None = Field(
        None, description="share of peak that fused attention reaches; none: that of matrix products"
    )
    kernel_pause: LatencyFields | None = Field(None, description="between two kernels on the chip; none: none")
    interruption: LatencyFields | None = Field(
        None, description="of a rank: in t seconds the longest of its pauses takes sqrt(t x this); none: none"
    )
    price_per_hour: MoneyFields | None = Field(None, description="in whatever money; a scenario may assume another one")


class WrapFields(spec.Strict):
    """When the ends of an axis are joined."""

    noun: ClassVar[str] = "a wraparound rule"
    axis: int | None = Field(None, gt=2, description="only on an axis of this length")
    cube: list[Annotated[int, Field(gt=0)]] | None = Field(
        None, description="only if each axis of the slice is a multiple of its side"
    )
    always: bool = Field(default=False, description="on every axis longer than 2")
    source: str | None = None
    kind: Kind | None = None

    @property
    def value(self) -> Wrap:
        """The rule."""
        return Wrap(self.axis, tuple(self.cube) if self.cube else None, self.always)


SLICE = r"^[1-9]\d*(x[1-9]\d*)*$"
"""A slice's chips along each axis: ``2x4``."""


class SlicesFields(spec.Strict):
    """Which parts of a torus can be had."""

    noun: ClassVar[str] = "a statement of slices"
    shapes: list[Annotated[str, Field(pattern=SLICE)]] = Field([], description="2x4: chips along axes, in any order")
    multiple: int | None = Field(None, gt=1, description="and every shape whose axes are all multiples of this")
    source: str | None = None
    kind: Kind | None = None

    @property
    def value(self) -> Slices:
        """The parts."""
        return Slices(tuple(tuple(map(int, shape.split("x"))) for shape in self.shapes), self.multiple)


class LinkFields(spec.Strict):
    """One link, one direction."""

    noun: ClassVar[str] = "a link"
    bandwidth: BandwidthFields = Field(description="ONE link, ONE direction")
    uplink: BandwidthFields | None = Field(
        None,
        description="of a switched level: what all devices of a node (all that is joined below one member) share of it,"
        " one direction; none: each has its link to itself",
    )
    efficiency: RatioFields | None = Field(None, description="share of it that large messages reach")
    hop_latency: LatencyFields | None = None


class CountedFields(spec.Strict):
    """What the library counts with when it chooses among its ways."""

    noun: ClassVar[str] = "what the library counts"
    meaning: ClassVar[type] = Counted
    latency: LatencyFields = Field(description="per call")
    hop_latency: LatencyFields = Field(description="of one step")
    bandwidth: BandwidthFields = Field(description="bus bandwidth: of what each device must inject")


class RendezvousFields(spec.Strict):
    """Which messages wait for their receiver."""

    noun: ClassVar[str] = "a rendezvous"
    meaning: ClassVar[type] = Rendezvous
    above: MemoryFields = Field(description="bytes of the longest message that does not wait")
    latency: LatencyFields = Field(description="of each step of a longer one, on top of its hop")


class ProtocolFields(spec.Strict):
    """What differs for one protocol."""

    noun: ClassVar[str] = "a protocol"
    meaning: ClassVar[type] = Tuning
    launch: LatencyFields | None = Field(default=None, description="replaces the level's default launch")
    latency: LatencyFields | None = Field(default=None, description="per call, on top of the launch")
    hop_latency: LatencyFields | None = Field(default=None, description="of one step")
    efficiency: RatioFields | None = Field(default=None, description="share of the bandwidth that large messages reach")
    own_bandwidth: BandwidthFields | None = Field(default=None, description="at which a device passes on its own share")
    chunk_latency: LatencyFields | None = Field(default=None, description="of each chunk that a message is cut into")
    device_latency: LatencyFields | None = Field(default=None, description="per call and device that takes part")
    channels: CountFields | None = Field(default=None, description="that a message opens one after the other")
    channel_bytes: MemoryFields | None = Field(
        default=None, description="of a step that fill a channel before the next one opens"
    )
    largest_message: MemoryFields | None = Field(
        default=None, description="to one device, from which another protocol is taken"
    )
    rendezvous: RendezvousFields | None = Field(default=None, description="which messages wait for their receiver")


class WayFields(ProtocolFields):
    """What differs for one algorithm with one protocol."""

    noun: ClassVar[str] = "a protocol of an algorithm"
    counted: CountedFields | None = Field(
        default=None, description="what the library counts with when it chooses; none: it takes what takes least"
    )


class TuningFields(ProtocolFields):
    """What differs for one algorithm."""

    noun: ClassVar[str] = "an algorithm"
    protocols: dict[str, WayFields | None] | None = Field(default=None, description="those that it can use; none: all")
    alone: bool = Field(default=False, description="only for a collective that stays on this level")


class LevelFields(spec.Strict):
    """One level of the network."""

    noun: ClassVar[str] = "a level"
    name: str = Field(pattern="^[A-Za-z][A-Za-z0-9_-]*$")
    topology: LevelTopology = Field(
        description="how its members are joined; ONE link is - " + " - ".join(map(": ".join, ONE_LINK.items())),
        json_schema_extra={"enumDescriptions": list(ONE_LINK.values())},
    )
    steps: Literal["lockstep", "streamed"] = "lockstep"
    shape: list[Annotated[int, Field(gt=0)]] = Field([], description="members along each axis at most; none: no bound")
    wrap: WrapFields | None = None
    slices: SlicesFields | None = Field(None, description="those that are sold, of a torus; none: any part of it")
    launch: Launches | None = Field(None, description="per collective; per harness where known")
    algorithms: dict[str, TuningFields | None] | None = Field(None, description="those offered; none: the plain ones")
    protocols: dict[str, ProtocolFields | None] | None = Field(None, description="how bytes are carried; none: one way")
    pipelined: RatioFields | None = Field(
        None, description="share of the inner levels' bandwidth time that is hidden behind this level's, or hides it"
    )
    link: LinkFields


class HardwareFile(spec.Strict):
    """A machine."""

    noun: ClassVar[str] = "a machine"
    tpsim: Literal["hardware/1"]
    extends: str | None = Field(
        None, description="a machine that this one changes: maps merge, lists replace, a map changes levels by name"
    )
    name: str
    sources: dict[str, SourceFields] = Field(default_factory=dict)
    chip: Annotated[ChipFields, _OrName()] = Field(description="or the name of one of the library, or of its file")
    levels: list[LevelFields] = Field(min_length=1)
    measured: list[CurveFields] = Field([], description="what collectives took, over the predicted")


class ChipFile(spec.Strict):
    """A chip or a generation of chips: what machines that are made of it have in common."""

    noun: ClassVar[str] = "a chip file"
    tpsim: Literal["chip/1"]
    extends: str | None = Field(None, description="a chip that this one changes")
    name: str
    sources: dict[str, SourceFields] = Field(default_factory=dict)
    chip: ChipFields | None = None
    levels: dict[str, LevelFields] = Field(
        {}, description="what is the chip's of a machine's levels, by name: of those algorithms and protocols it states"
    )
