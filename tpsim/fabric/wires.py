"""Wires as plain values: what a level of the network joins, and the pieces of it that a collective runs over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Protocol, cast

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import core_schema

from tpsim.quantity.size import Size, product
from tpsim.quantity.spec import Strict

LevelTopology = Literal["torus", "ring", "one_way_ring", "line", "switch", "mesh", "host"]
SegmentTopology = Literal["ring", "one_way_ring", "line", "switch", "mesh", "host"]

JoinedTopology = Literal["switch", "mesh", "host"]
"""Where every member reaches every other one directly, so that any of them form a group like any others.

switch  a port per member, into a fabric that carries whatever the ports do
mesh    a cable between each two members
host    the way through the members' host: one path that they all share
"""

ONE_LINK: Mapping[LevelTopology, str] = {
    "torus": "the cable to the next chip along one axis; a chip has one each way along every axis",
    "ring": "the cable to the next device; a device has two, one each way round",
    "one_way_ring": "the way to the next device round; nothing goes the other way",
    "line": "the cable to the next device; a device has two, those at the ends have one",
    "switch": "a device's own port, for all that it sends to whomever; every device has one",
    "mesh": "the cable between two devices; a device has one to every other",
    "host": "the path through the host, ONE for all its devices: what they send adds up; more than two cross it twice",
}
"""What a level's bandwidth is of: one link, in one direction."""


class Wrap(Strict):
    """When the ends of a physical axis are joined, so that a ring closes.

    A machine without wraparound has none of them.
    """

    noun: ClassVar[str] = "a wraparound rule"
    axis: int | None = Field(default=None, gt=2, description="only on an axis of this length")
    cube: tuple[Annotated[int, Field(gt=0)], ...] | None = Field(
        default=None, description="only if each axis of the slice is a multiple of its side"
    )
    always: bool = Field(default=False, description="on every axis longer than 2")

    def closes(self, extent: int, slice_shape: Sequence[int]) -> bool:
        """True if a whole physical axis of `extent` chips is a closed ring in a slice of this shape.

        Two chips need two cables to be a ring; they are a line.
        """
        cubes = self.cube is not None and all(
            not chips % side for chips, side in zip(slice_shape, self.cube, strict=True)
        )
        return extent > PAIR and (self.always or cubes or extent == self.axis)

    def __str__(self) -> str:
        """The rule in words."""
        if self.always:
            return "every axis of more than 2 closes"
        if self.cube is not None:
            return f"closes on slices of whole {by(self.cube)} cubes"
        return "no wraparound" if self.axis is None else f"closes only on an axis of {self.axis}"


PAIR = 2
"""Chips that one cable joins, as a message does: a ring of two would need a second one."""


class _Sides:
    """A shape that files write as ``2x4``."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """A text in files, numbers elsewhere."""
        text = core_schema.str_schema(pattern=r"^[1-9]\d*(x[1-9]\d*)*$")
        sides = core_schema.no_info_after_validator_function(lambda shape: tuple(map(int, shape.split("x"))), text)
        return core_schema.json_or_python_schema(sides, handler(source))


class Slices(Strict):
    """Which parts of a torus can be had as a machine of their own, their axes in any order.

    With neither, nothing is known of them: any part may be one.
    """

    noun: ClassVar[str] = "a statement of slices"
    shapes: tuple[Annotated[tuple[int, ...], _Sides()], ...] = Field(
        default=(), description="2x4: chips along axes, in any order"
    )
    multiple: int | None = Field(default=None, gt=1, description="and every shape whose axes are all multiples of this")

    @property
    def known(self) -> bool:
        """True if not any part is one."""
        return bool(self.shapes) or self.multiple is not None

    def around(self, part: Sequence[int], most: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Every slice of a torus of `most` in which so many chips per axis find room, of whole multiples the least."""
        if not self.known:
            yield tuple(part)
            return
        several = {*_turned(self.shapes)}
        if self.multiple is not None:
            several.add(tuple(-(-chips // self.multiple) * self.multiple for chips in part))
        yield from sorted(shape for shape in several if _holds(shape, part) and _holds(most, shape))

    def __str__(self) -> str:
        """In words: ``1x1, 2x2, multiples of 4``."""
        several = [] if self.multiple is None else [f"multiples of {self.multiple}"]
        return ", ".join([*map(by, self.shapes), *several]) or "any"


@cache
def _turned(shapes: tuple[tuple[int, ...], ...]) -> frozenset[tuple[int, ...]]:
    """Shapes however they are turned."""
    return frozenset(turned for shape in shapes for turned in permutations(shape))


ANY = Slices.model_construct()
"""Nothing is known of which parts can be had."""


def _holds(outer: Sequence[int], inner: Sequence[int]) -> bool:
    return all(chips <= most for chips, most in zip(inner, outer, strict=True))


class Wires(Protocol):
    """One level of a network, innermost first in a machine: names and joints, no bandwidth."""

    @property
    def name(self) -> str:
        """What placements call it."""

    @property
    def topology(self) -> LevelTopology:
        """How its members are joined."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its members along each physical axis at most; empty for a level without bound."""

    @property
    def wrap(self) -> Wrap:
        """When its axes close."""

    @property
    def slices(self) -> Slices:
        """Which parts of it can be had."""

    @property
    def shared(self) -> bool:
        """True if the devices of a node, all that is joined below one member, share a way into it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of one physical axis, or of one switched level, that a collective runs over.

    level     the level's name
    axis      the physical axis: ``ici.0`` on a torus, else the level's name
    topology  how its members are joined
    n         members
    stride    groups that share the links: interleaved ones on a ring or line, all on one host; 1 for neighbours, and
              where members have ports or cables of their own
    sharing   devices of a node that send into the level at once, by an uplink that they share; None: they share none
    """

    level: str
    axis: str
    topology: SegmentTopology
    n: Size
    stride: Size = 1
    sharing: Size | None = None

    def __str__(self) -> str:
        """As placements are printed: ``nvlink 8``, ``ici.0 16 (ring)``."""
        words = [] if self.topology == "switch" else [self.topology.replace("_", " ")]
        words += [] if self.stride == 1 else [f"{self.stride} groups share its links"]
        words += [] if self.sharing is None or self.sharing == 1 else [f"{self.sharing} of a node share its uplink"]
        return f"{self.axis} {self.n}" + (f" ({', '.join(words)})" if words else "")


Route = tuple[Segment, ...]
"""Where a collective runs, innermost level first."""


def ranks(route: Iterable[Segment]) -> Any:
    """Devices that take part in a collective over `route`."""
    return product(segment.n for segment in route)


def capacity(level: Wires) -> int | None:
    """Chips (or members) that a level joins at most; None without bound."""
    return prod(level.shape) if level.shape else None


def axis_names(level: Wires) -> list[str]:
    """Its physical axes: ``ici.0``, ``ici.1`` on a torus, else the level's own name."""
    if level.topology != "torus":
        return [level.name]
    return [f"{level.name}.{index}" for index in range(len(level.shape))]


def by(shape: Iterable[int]) -> str:
    """``4x8``."""
    return "x".join(map(str, shape))


def joined(topology: LevelTopology) -> JoinedTopology | None:
    """The topology where every member reaches every other one directly, else None."""
    return None if topology in {"torus", "ring", "one_way_ring", "line"} else cast("JoinedTopology", topology)


def ranks_text(route: Iterable[Segment]) -> str:
    """A route in words: ``nvlink 8 x network 2``; ``1 device`` for none."""
    return " x ".join(map(str, route)) or "1 device"
