"""A profile's figures as files write them: a quantity with its provenance, or the quantity alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, GetJsonSchemaHandler, model_validator

from tpsim.machine.parts import Kind
from tpsim.quantity import spec

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class ConstantFields(spec.Strict):
    """A figure with its provenance; a bare quantity is one without, and counts as a guess."""

    noun: ClassVar[str] = "a constant"
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


class BandwidthFields(ConstantFields):
    """Bytes per second."""

    value: spec.BytesPerSecond


class LatencyFields(ConstantFields):
    """Seconds."""

    value: spec.Seconds


class MemoryFields(ConstantFields):
    """Bytes."""

    value: spec.Bytes


class PeakFields(ConstantFields):
    """Floating point operations per second."""

    value: spec.FlopsPerSecond


class RatioFields(ConstantFields):
    """A share: more than 0, at most 1."""

    value: spec.Share


class CountFields(ConstantFields):
    """A number of things."""

    value: Annotated[int, Field(ge=1)]
