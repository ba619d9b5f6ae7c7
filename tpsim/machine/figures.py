"""A profile's figures as files write them: a quantity with its provenance, or the quantity alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, GetJsonSchemaHandler, model_validator

from tpsim.machine.parts import Constant, Kind
from tpsim.quantity import spec
from tpsim.quantity.units import Dimension

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class ConstantFields(spec.Strict):
    """A figure with its provenance; a bare quantity is one without, and counts as a guess."""

    noun: ClassVar[str] = "a constant"
    dimension: ClassVar[Dimension]
    source: str | None = Field(None, description="a key of sources")
    kind: Kind | None = None
    note: str | None = Field(None, description="how it was derived or measured")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        return data if isinstance(data, Mapping) else {"value": data}

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
