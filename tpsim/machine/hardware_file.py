"""The hardware file as a user writes it, and what contradicts itself in one whose fields are each well formed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, GetJsonSchemaHandler

from tpsim.fabric.wires import SegmentTopology, Slices, by, joined
from tpsim.machine.algorithms import OFFERED
from tpsim.machine.parts import DTYPES, HARNESSES, Chip, Level, Node, Source
from tpsim.quantity import spec
from tpsim.quantity.errors import Problem, suggest, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

    from tpsim.machine.tunings import Protocol
    from tpsim.quantity.spec import Document


class _OrName:
    """JSON Schema of a map that a file of its own may tell, by the file's name."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


MeasuredMove = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"]
Time = Annotated[float, spec.Quantity("seconds")]


# `MeasuredCurve` is a class of its own, with knots and segments: times are brought to what the constants predict now,
# parts of a route are told by the machine's levels where the file leaves them out, and knots are made of numbers.


class KnotFields(spec.Strict):
    """A size that was measured."""

    noun: ClassVar[str] = "a knot"
    size: spec.Bytes = Field(description="logical bytes of the whole array")
    predicted: Time = Field(description="what the constants of the profile say")
    fitted: Time = Field(description="what was measured, smoothed")


class SegmentFields(spec.Strict):
    """A level, or a physical axis of a torus, that the collective ran over."""

    noun: ClassVar[str] = "a part of a route"
    level: str
    axis: str | None = Field(None, description="of a torus: ici.0")
    topology: SegmentTopology | None = Field(None, description="of a torus: whether the axis was a ring or a line")
    ranks: Annotated[int, Field(ge=2)]


class CurveFields(spec.Strict):
    """One collective on one route: a map of predicted times to measured ones."""

    noun: ClassVar[str] = "a measured curve"
    collective: MeasuredMove
    route: list[SegmentFields] = Field(min_length=1, description="where the ranks lay, innermost first")
    launch: str | None = Field(None, min_length=1, description="the harness; none: the profile's default")
    source: str | None = Field(None, description="a key of sources")
    knots: list[KnotFields] = Field(min_length=2, description="by size, ascending; times never fall")


LEVEL = {
    "name": "nvlink",
    "topology": "switch",
    "shape": [8],
    "link": {"bandwidth": "450 GB/s", "hop_latency": "1 us"},
}
"""What a level looks like."""


class HardwareFile(spec.Strict):
    """A machine."""

    noun: ClassVar[str] = "a machine"
    tpsim: Literal["hardware/1"]
    extends: str | None = Field(
        None, description="a machine that this one changes: maps merge, lists replace, a map changes levels by name"
    )
    name: str = Field(examples=["my-cluster"])
    sources: dict[str, Source] = Field(default_factory=dict)
    chip: Annotated[Chip, _OrName()] = Field(
        examples=["h100"], description="or the name of one of the library, or of its file"
    )
    levels: list[Level] = Field(min_length=1, examples=[[LEVEL]])
    host: Node | None = Field(None, description="on whose memory arrays may live; none: nothing can be offloaded")
    measured: list[CurveFields] = Field([], description="what collectives took, over the predicted")


def misfits(fields: HardwareFile, document: Document) -> Iterator[Problem]:
    """All of it."""
    for name, source in fields.sources.items():
        if source.read is None and not source.sha256:
            place = document.key_place("sources", name)
            yield Problem("missing-field", 'a source needs "read"', place, "write read: 2026-11-20, the day")
    yield from _strangers(fields, document)
    yield from _levels(fields, document)


SLIPS = 2
"""Letters by which a harness of the user's own must be longer or shorter than a known one that it resembles."""


def _strangers(fields: HardwareFile, document: Document) -> Iterator[Problem]:
    """Dtypes that nobody has, and harnesses that are a known one misspelled: a user's own are let through."""
    for dtype in document.value("chip", "peak"):
        if dtype not in DTYPES:
            yield from unknown(dtype, "dtype", DTYPES, document.key_place("chip", "peak", dtype)).problems
    for at, level in enumerate(fields.levels):
        for harness in level.launch:
            near = suggest(harness, HARNESSES)
            if near and harness not in HARNESSES and abs(len(harness) - len(near)) < SLIPS:
                place = document.key_place("levels", at, "launch", harness)
                remedy = f'did you mean "{near}"? a harness of your own needs a name that is less like it'
                note = f"known: {', '.join(HARNESSES)}"
                yield Problem("unknown-harness", f'"{harness}" is not a harness', place, remedy, note)


def _levels(fields: HardwareFile, document: Document) -> Iterator[Problem]:
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
        yield from _uplink_misfits(level, here, document)
        yield from _wrap_misfits(level, here, document)
        yield from _slice_misfits(level, here, document)
        for key, rule in (("wrap", level.wrap), ("slices", level.slices)):
            if rule.source is not None and rule.source not in fields.sources:
                place = document.place(*here, key, "source")
                yield from unknown(rule.source, "source", fields.sources, place, "add it to sources").problems
        for name in level.algorithms:
            if name not in OFFERED:
                place = document.place(*here, "algorithms", name)
                yield from unknown(name, "algorithm", sorted(OFFERED), place).problems
        yield from _protocol_misfits(level, here, document)


def _protocol_misfits(level: Level, here: tuple[str | int, ...], document: Document) -> Iterator[Problem]:
    """Protocols of an algorithm that its level has not."""
    for algorithm, tuning in level.algorithms.items():
        for name in tuning.protocols:
            if name not in level.protocols:
                place = document.place(*here, "algorithms", algorithm, "protocols", name)
                remedy = f"add it to the protocols of {level.name}, or leave it out here"
                yield from unknown(name, f"protocol of level {level.name}", level.protocols, place, remedy).problems
    for keys, fields in _protocols(level):
        if (fields.channels is None) != (fields.channel_bytes is None):
            has, lacks = ("channels", "channel_bytes") if fields.channels else ("channel_bytes", "channels")
            place = document.key_place(*here, *keys, has)
            yield Problem("missing-field", f'"{has}" says nothing without "{lacks}"', place, "write both, or neither")


def _protocols(level: Level) -> Iterator[tuple[tuple[str, ...], Protocol]]:
    """Every protocol and algorithm of a level, and the protocols of algorithms, with where they stand."""
    for name, protocol in level.protocols.items():
        yield ("protocols", name), protocol
    for algorithm, tuning in level.algorithms.items():
        yield ("algorithms", algorithm), tuning
        for name, way in tuning.protocols.items():
            yield ("algorithms", algorithm, "protocols", name), way


def _uplink_misfits(level: Level, here: tuple[str | int, ...], document: Document) -> Iterator[Problem]:
    """Uplinks of nodes that there are not, and those that carry less than one of the links below them."""
    uplink, link = level.link.uplink, level.link.bandwidth
    if uplink is None:
        return
    place = document.place(*here, "link", "uplink")
    if here[-1] == 0 or level.topology != "switch":
        message = f"level {level.name} joins no nodes whose devices could share an uplink"
        remedy = "state it on a switch that is not the innermost level, or leave it out"
        yield Problem("bad-uplink", message, place, remedy)
    elif uplink.value < link.value:
        message = f"a node's uplink into {level.name} carries less than the link of one of its devices"
        yield Problem("bad-uplink", message, place, "an uplink is what all devices of a node have together")


def _wrap_misfits(level: Level, here: tuple[str | int, ...], document: Document) -> Iterator[Problem]:
    wrap = level.wrap
    if document.value(*here).get("wrap") is None:
        return
    place = document.place(*here, "wrap")
    if level.topology != "torus":
        yield Problem("bad-wrap", f"a {level.topology} has no wraparound rule", place, "leave wrap out")
    if (wrap.axis is not None) + (wrap.cube is not None) + wrap.always > 1:
        yield Problem("bad-wrap", "a wraparound rule is one of axis, cube and always", place, "keep one")
    if wrap.cube is not None and len(wrap.cube) != len(level.shape):
        message = f"the cube has {len(wrap.cube)} sides and the torus {len(level.shape)} axes"
        yield Problem("bad-wrap", message, document.place(*here, "wrap", "cube"), "give one side per axis")


def _slice_misfits(level: Level, here: tuple[str | int, ...], document: Document) -> Iterator[Problem]:
    """Slices of what is no torus, none at all, and shapes that are no part of the torus."""
    if document.value(*here).get("slices") is None:
        return
    place = document.place(*here, "slices")
    if level.topology != "torus":
        yield Problem("bad-slices", f"a {level.topology} has no slices", place, "leave slices out")
        return
    slices, axes = level.slices, len(level.shape)
    if not slices.known:
        yield Problem("bad-slices", "slices are neither shapes nor multiples", place, "write shapes: [2x2, 4x4]")
    for at, shape in enumerate(slices.shapes):
        around = Slices(shapes=(shape,)).around([1] * axes, level.shape) if len(shape) == axes else ()
        if not any(around):
            message = f"{by(shape)} is no part of a torus of {by(level.shape)}"
            where = document.place(*here, "slices", "shapes", at)
            yield Problem("bad-slices", message, where, f"give {axes} sides, or make the level's shape larger")
