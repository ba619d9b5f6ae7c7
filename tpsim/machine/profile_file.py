"""The hardware file: its fields as a user writes them, and what they mean as a `Machine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler

from tpsim.fabric.wires import ANY, ONE_LINK, LevelTopology, Slices, Wrap, joined
from tpsim.machine import curve_file
from tpsim.machine.algorithms import OFFERED
from tpsim.machine.figures import BandwidthFields, CountFields, LatencyFields, MemoryFields, PeakFields, RatioFields
from tpsim.machine.parts import Chip, Constant, Counted, Kind, Level, Machine, Rendezvous, Source, Tile, Tuning
from tpsim.machine.unstated import UnstatedFile, UnstatedLevel, unstated
from tpsim.machine.yardstick import doubtful
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Problem, suggest, unknown
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

    from tpsim.quantity.errors import Place
    from tpsim.quantity.spec import Document
    from tpsim.quantity.units import Dimension


class _OneOrMore:
    """JSON Schema of a map of constants that may be written as one constant."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["additionalProperties"], several]}


def _named(data: Any) -> Any:
    """One launch latency is that of the default harness."""
    several = isinstance(data, Mapping) and "value" not in data
    return data if several else {DEFAULT: data}


DEFAULT = "default"
"""The harness that a single launch latency belongs to."""

HARNESSES = ("threads", "graph", "process", "framework", DEFAULT)
"""Ways of launching that profiles and logs name alike: a thread per device, a graph, one process, a framework."""

SLIPS = 2
"""Letters by which a harness of the user's own must be longer or shorter than a known one that it resembles."""

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
    rows: CountFields
    columns: CountFields
    units: CountFields = Field(description="of the chip that work on a tile each")


class AttentionFields(spec.Strict):
    """Share of peak that fused attention reaches."""

    noun: ClassVar[str] = "an attention efficiency"
    forward: RatioFields
    backward: RatioFields


class ChipFields(spec.Strict):
    """One chip."""

    noun: ClassVar[str] = "a chip"
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


SLICE = r"^[1-9]\d*(x[1-9]\d*)*$"
"""A slice's chips along each axis: ``2x4``."""


class SlicesFields(spec.Strict):
    """Which parts of a torus can be had."""

    noun: ClassVar[str] = "a statement of slices"
    shapes: list[Annotated[str, Field(pattern=SLICE)]] = Field([], description="2x4: chips along axes, in any order")
    multiple: int | None = Field(None, gt=1, description="and every shape whose axes are all multiples of this")
    source: str | None = None
    kind: Kind | None = None


class LinkFields(spec.Strict):
    """One link, one direction."""

    noun: ClassVar[str] = "a link"
    bandwidth: BandwidthFields = Field(description="ONE link, ONE direction")
    efficiency: RatioFields | None = Field(None, description="share of it that large messages reach")
    hop_latency: LatencyFields | None = None


class CountedFields(spec.Strict):
    """What the library counts with when it chooses among its ways."""

    noun: ClassVar[str] = "what the library counts"
    latency: LatencyFields = Field(description="per call")
    hop_latency: LatencyFields = Field(description="of one step")
    bandwidth: BandwidthFields = Field(description="bus bandwidth: of what each device must inject")


class RendezvousFields(spec.Strict):
    """Which messages wait for their receiver."""

    noun: ClassVar[str] = "a rendezvous"
    above: MemoryFields = Field(description="bytes of the longest message that does not wait")
    latency: LatencyFields = Field(description="of each step of a longer one, on top of its hop")


class ProtocolFields(spec.Strict):
    """What differs for one protocol."""

    noun: ClassVar[str] = "a protocol"
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
    chip: ChipFields
    levels: list[LevelFields] = Field(min_length=1)
    measured: list[curve_file.CurveFields] = Field([], description="what collectives took, over the predicted")


SCHEMA_ID = "hardware.json"


def _source(fields: SourceFields) -> Source:
    return Source(fields.title, fields.read or "", tuple(fields.sha256 or ()))


def read(source: str | Path | Document) -> tuple[Machine, Document]:
    """The machine of a file, of a name in the library, or of a document.

    Raises InputError with every mistake in the file.
    """
    given = source if isinstance(source, spec.Document) else _document(source)
    fields, document = spec.read(given, HardwareFile, extends=_document)
    reading = _Reading(fields, document)
    machine = reading.machine()
    told = curve_file.misfits(fields.measured, machine.levels, fields.sources, document)
    doubts = (*_undated(fields, document), *_strangers(fields, document), *_misfits(fields, document), *told)
    if wrong := [*reading.wrong, *doubts]:
        raise InputError(wrong)
    curves = curve_file.curves(fields.measured, machine, document)
    return replace(machine, measured=curves, doubts=tuple(_doubts(machine, document))), document


def _doubts(machine: Machine, document: Document) -> Iterator[Problem]:
    """What is hard to believe of the figures that are not tpsim's own."""
    places = [(one, place_of(one, document)) for one in machine.constants() if one.stated]
    files = {place.file for _, place in places if place}
    ours = {file for file in files if spec.is_shipped("hardware", file)}
    for constant, place in places:
        if not (place and place.file in ours):
            problem = doubtful(constant, machine, _written(constant, document), place)
            yield from [problem] if problem else []


def _written(constant: Constant, document: Document) -> object:
    """A figure as its file has it."""
    data: Any = document.data
    for key in _keys(constant.path, document):
        data = data[key]
    data = data.get(DEFAULT, data) if isinstance(data, dict) else data
    return data["value"] if isinstance(data, dict) else data


def missing(machine: Machine, document: Document) -> list[Problem]:
    """What a shipped profile lacks: a figure, the kind of each constant, and a source for all but guesses."""
    return [
        Problem("missing-provenance", f"{constant.path} has no {lack}", place_of(constant, document), remedy)
        for constant in machine.constants()
        for lack in _lacks(constant)
        for remedy in ["write {value: ..., source: ..., kind: ...}"]
    ]


def left_out(machine: Machine, document: Document) -> list[Problem]:
    """What a profile does not say, so that every answer guesses it."""
    return [
        Problem("left-out", f"{one.path} is not stated", place_of(one, document), f"{shown} is guessed")
        for one in machine.constants()
        if not one.stated
        for shown in [show(one.value, one.dimension)]
    ]


def place_of(constant: Constant, document: Document) -> Place | None:
    """Where a constant stands in its file; what stands around it if it is left out."""
    return document.place(*_keys(constant.path, document))


def _lacks(constant: Constant) -> Iterator[str]:
    if not constant.stated:
        yield "value"
    elif not constant.stated_kind:
        yield "kind"
    elif constant.kind != "guess" and not constant.source:
        yield "source"


def _document(name_or_path: str | Path, beside: Path = Path()) -> Document:
    return spec.load(spec.named("hardware", str(name_or_path), beside))


def _keys(path: str, document: Document) -> tuple[str | int, ...]:
    """The keys in the file of a constant's path: a level is named there, and numbered in the file."""
    first, *rest = path.split(".")
    if first != "levels":
        return (first, *rest)
    names = [level["name"] for level in document.data["levels"]]
    return (first, names.index(rest[0]), *rest[1:])


@dataclass
class _Reading:
    """Turns the fields of a file into a machine, and collects what is wrong beyond their form."""

    fields: HardwareFile
    document: Document

    def __post_init__(self) -> None:
        self.wrong: list[Problem] = []

    def machine(self) -> Machine:
        """The machine; look at `wrong` afterwards."""
        fields = self.fields
        sources = {name: _source(source) for name, source in fields.sources.items()}
        levels = tuple(self._level(level) for level in fields.levels)
        return Machine(fields.name, sources, self._chip(), levels, self.document.path, self.document.sha256)

    def _constant(self, fields: Any, dimension: Dimension, path: str) -> Constant:
        source = fields.source
        if source is not None and source not in self.fields.sources:
            place = self.document.place(*_keys(path, self.document), "source")
            self.wrong += unknown(source, "source", self.fields.sources, place, "add it to sources").problems
        kind: Kind = fields.kind or "guess"
        return Constant(fields.value, dimension, source or "", kind, path, fields.note or "", fields.kind is not None)

    def _maybe(self, fields: Any, dimension: Dimension, path: str) -> Constant | None:
        return None if fields is None else self._constant(fields, dimension, path)

    def _or(self, fields: Any, guess: Callable[[], Any], dimension: Dimension, path: str) -> Constant:
        """What the file states, else tpsim's guess, whose file is only read where it is needed."""
        if fields is not None:
            return self._constant(fields, dimension, path)
        return replace(self._constant(guess(), dimension, path), stated=False)

    @cached_property
    def unstated(self) -> UnstatedFile:
        """What is taken for figures that the file leaves out."""
        return unstated()

    def _chip(self) -> Chip:
        chip, attention = self.fields.chip, self.fields.chip.attention_efficiency
        return Chip(
            peak={
                dtype: self._constant(peak, "flops_per_s", f"chip.peak.{dtype}")
                for dtype, peak in chip.peak.items()
                if peak is not None
            },
            memory_capacity=self._constant(chip.memory.capacity, "bytes", "chip.memory.capacity"),
            memory_bandwidth=self._constant(chip.memory.bandwidth, "bytes_per_s", "chip.memory.bandwidth"),
            matmul_efficiency=self._or(
                chip.matmul_efficiency,
                lambda: self.unstated.chip.matmul_efficiency,
                "ratio",
                "chip.matmul_efficiency",
            ),
            memory_efficiency=self._or(
                chip.memory_efficiency,
                lambda: self.unstated.chip.memory_efficiency,
                "ratio",
                "chip.memory_efficiency",
            ),
            tile=None if chip.tile is None else self._tile(chip.tile),
            attention_forward=self._maybe(
                attention and attention.forward, "ratio", "chip.attention_efficiency.forward"
            ),
            attention_backward=self._maybe(
                attention and attention.backward, "ratio", "chip.attention_efficiency.backward"
            ),
            kernel_pause=self._maybe(chip.kernel_pause, "seconds", "chip.kernel_pause"),
            host_bandwidth=self._maybe(chip.host and chip.host.bandwidth, "bytes_per_s", "chip.host.bandwidth"),
        )

    def _tile(self, fields: TileFields) -> Tile:
        path = "chip.tile"
        return Tile(
            rows=self._constant(fields.rows, "count", f"{path}.rows"),
            columns=self._constant(fields.columns, "count", f"{path}.columns"),
            units=self._constant(fields.units, "count", f"{path}.units"),
        )

    def _level(self, level: LevelFields) -> Level:
        path, link = f"levels.{level.name}", level.link

        def guess() -> UnstatedLevel:
            return self.unstated.level(level.topology, level.shape)

        launches: Mapping[str, LatencyFields | None] = level.launch or {DEFAULT: None}
        single = set(launches) == {DEFAULT}
        return Level(
            name=level.name,
            topology=level.topology,
            shape=tuple(level.shape),
            wrap=_wrap(level.wrap),
            wrap_source=level.wrap.source if level.wrap else None,
            wrap_kind=level.wrap.kind if level.wrap else None,
            slices=_slices(level.slices),
            slices_source=level.slices.source if level.slices else None,
            slices_kind=level.slices.kind if level.slices else None,
            steps=level.steps,
            bandwidth=self._constant(level.link.bandwidth, "bytes_per_s", f"{path}.link.bandwidth"),
            efficiency=self._or(link.efficiency, lambda: guess().link.efficiency, "ratio", f"{path}.link.efficiency"),
            hop_latency=self._or(
                link.hop_latency, lambda: guess().link.hop_latency, "seconds", f"{path}.link.hop_latency"
            ),
            launch={
                harness: self._or(
                    fields, lambda: guess().launch, "seconds", f"{path}.launch" + ("" if single else f".{harness}")
                )
                for harness, fields in launches.items()
            },
            algorithms=self._tunings(level.algorithms, f"{path}.algorithms"),
            protocols=self._tunings(level.protocols, f"{path}.protocols"),
            pipelined=self._maybe(level.pipelined, "ratio", f"{path}.pipelined"),
        )

    def _tunings(self, several: Mapping[str, Any] | None, path: str) -> dict[str, Tuning]:
        return {
            name: self._tuning(fields or TuningFields(), f"{path}.{name}") for name, fields in (several or {}).items()
        }

    def _tuning(self, fields: ProtocolFields, path: str) -> Tuning:
        protocols = fields.protocols if isinstance(fields, TuningFields) else None
        alone = isinstance(fields, TuningFields) and fields.alone
        return Tuning(
            launch=self._maybe(fields.launch, "seconds", f"{path}.launch"),
            latency=self._maybe(fields.latency, "seconds", f"{path}.latency"),
            hop_latency=self._maybe(fields.hop_latency, "seconds", f"{path}.hop_latency"),
            efficiency=self._maybe(fields.efficiency, "ratio", f"{path}.efficiency"),
            own_bandwidth=self._maybe(fields.own_bandwidth, "bytes_per_s", f"{path}.own_bandwidth"),
            chunk_latency=self._maybe(fields.chunk_latency, "seconds", f"{path}.chunk_latency"),
            device_latency=self._maybe(fields.device_latency, "seconds", f"{path}.device_latency"),
            channels=self._maybe(fields.channels, "count", f"{path}.channels"),
            channel_bytes=self._maybe(fields.channel_bytes, "bytes", f"{path}.channel_bytes"),
            largest_message=self._maybe(fields.largest_message, "bytes", f"{path}.largest_message"),
            counted=self._counted(fields, f"{path}.counted"),
            rendezvous=self._rendezvous(fields.rendezvous, f"{path}.rendezvous"),
            protocols=self._tunings(protocols, f"{path}.protocols"),
            alone=alone,
        )

    def _counted(self, way: ProtocolFields, path: str) -> Counted | None:
        fields = way.counted if isinstance(way, WayFields) else None
        if fields is None:
            return None
        return Counted(
            latency=self._constant(fields.latency, "seconds", f"{path}.latency"),
            hop_latency=self._constant(fields.hop_latency, "seconds", f"{path}.hop_latency"),
            bandwidth=self._constant(fields.bandwidth, "bytes_per_s", f"{path}.bandwidth"),
        )

    def _rendezvous(self, fields: RendezvousFields | None, path: str) -> Rendezvous | None:
        if fields is None:
            return None
        return Rendezvous(
            above=self._constant(fields.above, "bytes", f"{path}.above"),
            latency=self._constant(fields.latency, "seconds", f"{path}.latency"),
        )


def _wrap(fields: WrapFields | None) -> Wrap:
    if fields is None:
        return Wrap()
    return Wrap(fields.axis, tuple(fields.cube) if fields.cube else None, fields.always)


def _slices(fields: SlicesFields | None) -> Slices:
    if fields is None:
        return ANY
    return Slices(tuple(tuple(map(int, shape.split("x"))) for shape in fields.shapes), fields.multiple)


def _undated(fields: HardwareFile, document: Document) -> Iterator[Problem]:
    """Sources that say neither when they were read nor which file they are."""
    for name, source in fields.sources.items():
        if source.read is None and not source.sha256:
            place = document.key_place("sources", name)
            yield Problem("missing-field", 'a source needs "read"', place, "write read: 2026-11-20, the day")


def _strangers(fields: HardwareFile, document: Document) -> Iterator[Problem]:
    """Dtypes that nobody has, and harnesses that are a known one misspelled: a user's own are let through."""
    for dtype in fields.chip.peak:
        if dtype not in DTYPES:
            yield from unknown(dtype, "dtype", DTYPES, document.key_place("chip", "peak", dtype)).problems
    for at, level in enumerate(fields.levels):
        for harness in level.launch or {}:
            near = suggest(harness, HARNESSES)
            if near and harness not in HARNESSES and abs(len(harness) - len(near)) < SLIPS:
                place = document.key_place("levels", at, "launch", harness)
                remedy = f'did you mean "{near}"? a harness of your own needs a name that is less like it'
                note = f"known: {', '.join(HARNESSES)}"
                yield Problem("unknown-harness", f'"{harness}" is not a harness', place, remedy, note)


def _misfits(fields: HardwareFile, document: Document) -> Iterator[Problem]:
    """Contradictions between the fields of levels."""
    names = [level.name for level in fields.levels]
    for at, level in enumerate(fields.levels):
        here = ("levels", at)
        if level.name in names[:at]:
            place = document.place(*here, "name")
            yield Problem("duplicate-level", f'two levels are called "{level.name}"', place, "rename one of them")
        if not level.shape and (not joined(level.topology) or at + 1 < len(fields.levels)):
            message = f"level {level.name} has no shape"
            yield Problem("missing-shape", message, document.place(*here), "write shape: [8]")
        if level.topology != "torus" and len(level.shape) > 1:
            place = document.place(*here, "shape")
            yield Problem("bad-shape", f"a {level.topology} has one axis", place, "write shape: [8]")
        yield from _wrap_misfits(level, here, document)
        yield from _slice_misfits(level, here, document)
        for key, rule in (("wrap", level.wrap), ("slices", level.slices)):
            if rule and rule.source is not None and rule.source not in fields.sources:
                place = document.place(*here, key, "source")
                yield from unknown(rule.source, "source", fields.sources, place, "add it to sources").problems
        for name in level.algorithms or {}:
            if name not in OFFERED:
                place = document.place(*here, "algorithms", name)
                yield from unknown(name, "algorithm", sorted(OFFERED), place).problems
        yield from _protocol_misfits(level, here, document)


def _protocol_misfits(level: LevelFields, here: tuple[str | int, ...], document: Document) -> Iterator[Problem]:
    """Protocols of an algorithm that its level has not."""
    for algorithm, fields in (level.algorithms or {}).items():
        for name in (fields and fields.protocols) or {}:
            if name not in (level.protocols or {}):
                place = document.place(*here, "algorithms", algorithm, "protocols", name)
                known, remedy = level.protocols or {}, f"add it to the protocols of {level.name}, or leave it out here"
                yield from unknown(name, f"protocol of level {level.name}", known, place, remedy).problems
    for keys, tuning in _protocols(level):
        if tuning is not None and (tuning.channels is None) != (tuning.channel_bytes is None):
            has, lacks = ("channels", "channel_bytes") if tuning.channels else ("channel_bytes", "channels")
            place = document.key_place(*here, *keys, has)
            yield Problem("missing-field", f'"{has}" says nothing without "{lacks}"', place, "write both, or neither")


def _protocols(level: LevelFields) -> Iterator[tuple[tuple[str, ...], ProtocolFields | None]]:
    """Every protocol and algorithm of a level, and the protocols of algorithms, with where they stand."""
    for name, fields in (level.protocols or {}).items():
        yield ("protocols", name), fields
    for algorithm, tuning in (level.algorithms or {}).items():
        yield ("algorithms", algorithm), tuning
        for name, way in ((tuning and tuning.protocols) or {}).items():
            yield ("algorithms", algorithm, "protocols", name), way


def _wrap_misfits(level: LevelFields, here: tuple[str | int, ...], document: Document) -> Iterator[Problem]:
    wrap = level.wrap
    if wrap is None:
        return
    place = document.place(*here, "wrap")
    if level.topology != "torus":
        yield Problem("bad-wrap", f"a {level.topology} has no wraparound rule", place, "leave wrap out")
    if (wrap.axis is not None) + (wrap.cube is not None) + wrap.always > 1:
        yield Problem("bad-wrap", "a wraparound rule is one of axis, cube and always", place, "keep one")
    if wrap.cube is not None and len(wrap.cube) != len(level.shape):
        message = f"the cube has {len(wrap.cube)} sides and the torus {len(level.shape)} axes"
        yield Problem("bad-wrap", message, document.place(*here, "wrap", "cube"), "give one side per axis")


def _slice_misfits(level: LevelFields, here: tuple[str | int, ...], document: Document) -> Iterator[Problem]:
    """Slices of what is no torus, none at all, and shapes that are no part of the torus."""
    if level.slices is None:
        return
    place = document.place(*here, "slices")
    if level.topology != "torus":
        yield Problem("bad-slices", f"a {level.topology} has no slices", place, "leave slices out")
        return
    slices, axes = _slices(level.slices), len(level.shape)
    if not slices.known:
        yield Problem("bad-slices", "slices are neither shapes nor multiples", place, "write shapes: [2x2, 4x4]")
    for at, shape in enumerate(slices.shapes):
        around = Slices((shape,)).around([1] * axes, level.shape) if len(shape) == axes else ()
        if not any(around):
            message = f"{level.slices.shapes[at]} is no part of a torus of {'x'.join(map(str, level.shape))}"
            where = document.place(*here, "slices", "shapes", at)
            yield Problem("bad-slices", message, where, f"give {axes} sides, or make the level's shape larger")
