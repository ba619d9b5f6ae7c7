"""A figure of a machine, with where it was read and how sure it is; files write it so, or the quantity alone."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, GetJsonSchemaHandler

from tpsim.quantity import spec
from tpsim.quantity.units import Dimension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


Kind = Literal["datasheet", "stated", "measured", "derived", "guess"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A figure in SI units with its provenance.

    source       key of the machine's sources; "" for a guess without one
    path         where it stands: ``levels.ici.link.bandwidth``, a level by its name
    note         how it was derived or measured
    stated_kind  False if the file gives no kind: then it counts as a guess
    stated       False if the file leaves the figure out: then it is tpsim's guess
    file         the path of the file that states it, which need not be the machine's own; "" without one
    """

    value: float
    dimension: Dimension
    source: str
    kind: Kind
    path: str
    note: str = ""
    stated_kind: bool = True
    stated: bool = True
    file: str = field(default="", compare=False)


class HasConstants:
    """What figures make up: a machine, and every part of it that has some; a dataclass each."""

    __slots__ = ()

    def constants(self) -> list[Constant]:
        """Every figure that is there, in the order of the fields."""
        constants: list[Constant] = []
        _add(self, constants)
        return constants


PARTS = (HasConstants, dict, tuple)
"""What figures may stand in."""
FIGURES = (Constant, *PARTS)


def _add(part: Any, constants: list[Constant]) -> None:
    for _, inner in inside(part):
        if type(inner) is Constant:
            constants.append(inner)
        elif isinstance(inner, PARTS):
            _add(inner, constants)


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields of a kind of part, and what reads them all; a name twice over makes it read several."""
    names = tuple(field.name for field in fields(kind) if field.init)
    return names, attrgetter(*names, names[-1])


def inside(part: HasConstants | dict[Any, Any] | tuple[Any, ...]) -> Iterable[tuple[Any, Any]]:
    """What may have figures in a part: fields by name, a map's values by key, a tuple's by place."""
    if isinstance(part, HasConstants):
        names, read = _fields(type(part))  # type: ignore[arg-type]  # a class is hashable
        return zip(names, read(part), strict=False)
    return part.items() if isinstance(part, dict) else enumerate(part)


class ConstantFields(spec.Strict):
    """A figure with its provenance; a bare quantity is one without, and counts as a guess."""

    noun: ClassVar[str] = "a constant"
    dimension: ClassVar[Dimension]
    source: str | None = Field(None, description="a key of sources")
    kind: Kind | None = None
    note: str | None = Field(None, description="how it was derived or measured")

    _quantity = spec.alone("value")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The map, or the quantity alone."""
        fields = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [fields["properties"]["value"], fields]}

    def at(self, path: str, file: str, *, stated: bool = True) -> Constant:
        """The figure that stands at a path of a file."""
        return Constant(
            self.value,  # type: ignore[attr-defined]  # of every figure, each of a type of its own
            self.dimension,
            self.source or "",
            self.kind or "guess",
            path,
            self.note or "",
            self.kind is not None,
            stated,
            file,
        )


class BandwidthFields(ConstantFields):
    """Bytes per second."""

    dimension = "bytes_per_s"
    value: spec.BytesPerSecond


class LatencyFields(ConstantFields):
    """Seconds."""

    dimension = "seconds"
    value: spec.Seconds


class MemoryFields(ConstantFields):
    """Bytes."""

    dimension = "bytes"
    value: spec.Bytes


class PeakFields(ConstantFields):
    """Floating point operations per second."""

    dimension = "flops_per_s"
    value: spec.FlopsPerSecond


class RatioFields(ConstantFields):
    """A share: more than 0, at most 1."""

    dimension = "ratio"
    value: spec.Share


class CountFields(ConstantFields):
    """A number of things."""

    dimension = "count"
    value: Annotated[int, Field(ge=1)]


class MoneyFields(ConstantFields):
    """A price, in whatever money."""

    dimension = "count"
    value: Annotated[float, Field(gt=0, strict=True)]
