"""A figure of a machine, with where it was read and how sure it is; files write it so, or the quantity alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator

from tpsim.quantity import spec
from tpsim.quantity.units import Dimension

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


Kind = Literal["datasheet", "stated", "measured", "derived", "guess"]

PROVENANCE = ("source", "kind", "note")
"""What may be told of a figure beside its value."""


class Constant(spec.Value):
    """A figure in SI units with its provenance; a bare quantity is one without, and counts as a guess.

    source  key of the machine's sources; "" for a guess without one
    path    where it stands: ``levels.ici.link.bandwidth``, a level by its name; this and the next two are no fields of
            a file, but what reading it adds
    file    the path of the file that states it, which need not be the machine's own; "" without one
    stated  False if the file leaves the figure out: then it is tpsim's guess
    """

    noun: ClassVar[str] = "a constant"
    dimension: ClassVar[Dimension]
    path: ClassVar[str] = ""
    file: ClassVar[str] = ""
    stated: ClassVar[bool] = True

    source: Annotated[str, spec.OrNothing(str)] = spec.left_out("", "a key of sources")
    kind: Annotated[Kind, spec.OrNothing(lambda: "guess")] = spec.left_out("guess")
    note: Annotated[str, spec.OrNothing(str)] = spec.left_out("", "how it was derived or measured")
    if TYPE_CHECKING:
        value: float  # of each dimension a type of its own

    @model_validator(mode="before")
    @classmethod
    def _quantity(cls, value: Any) -> Any:
        """A quantity stands alone for a map of it; what is nothing is not stated."""
        fields = value if isinstance(value, Mapping) else {"value": value}
        return {name: part for name, part in fields.items() if part is not None or name not in PROVENANCE}

    @property
    def stated_kind(self) -> bool:
        """False if the file gives no kind: then it counts as a guess."""
        return "kind" in self.model_fields_set

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The map, or the quantity alone."""
        fields = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [fields["properties"]["value"], fields]}


class HasConstants:
    """What figures make up: a machine, and every part of it that has some.

    told  the fields that may have figures, in the order in which these are told; none: all, as they stand
    """

    __slots__ = ()
    told: ClassVar[tuple[str, ...]] = ()

    def constants(self) -> list[Constant]:
        """Every figure that is there, in the order of the fields."""
        constants: list[Constant] = []
        _add(self, constants)
        return constants

    def but(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]  # a machine is a dataclass, a part of it a value


PARTS = (HasConstants, dict, tuple)
"""What figures may stand in."""
FIGURES = (Constant, *PARTS)


def _add(part: Any, constants: list[Constant]) -> None:
    for _, inner in inside(part):
        if isinstance(inner, Constant):
            constants.append(inner)
        elif isinstance(inner, PARTS):
            _add(inner, constants)


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields of a kind of part, and what reads them all; a name twice over makes it read several."""
    own = kind.model_fields if issubclass(kind, spec.Value) else [field.name for field in fields(kind) if field.init]
    names = kind.told or tuple(own)
    return names, attrgetter(*names, names[-1])


def inside(part: HasConstants | dict[Any, Any] | tuple[Any, ...]) -> Iterable[tuple[Any, Any]]:
    """What may have figures in a part: fields by name, a map's values by key, a tuple's by place."""
    if isinstance(part, HasConstants):
        names, read = _fields(type(part))  # type: ignore[arg-type]  # a class is hashable
        return zip(names, read(part), strict=False)
    return part.items() if isinstance(part, dict) else enumerate(part)


class BandwidthConstant(Constant):
    """Bytes per second."""

    dimension = "bytes_per_s"
    value: spec.BytesPerSecond


class LatencyConstant(Constant):
    """Seconds."""

    dimension = "seconds"
    value: spec.Seconds


class MemoryConstant(Constant):
    """Bytes."""

    dimension = "bytes"
    value: spec.Bytes


class PeakConstant(Constant):
    """Floating point operations per second."""

    dimension = "flops_per_s"
    value: spec.FlopsPerSecond


class RatioConstant(Constant):
    """A share: more than 0, at most 1."""

    dimension = "ratio"
    value: spec.Share


class CountConstant(Constant):
    """A number of things."""

    dimension = "count"
    value: Annotated[int, Field(ge=1)]


class MoneyConstant(Constant):
    """A price, in whatever money."""

    dimension = "count"
    value: Annotated[float, Field(gt=0, strict=True)]
