"""The building blocks of a file format: a strict pydantic base, fields with a unit, and the JSON Schema."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from tpsim.frozen import dataclass
from tpsim.quantity.units import NUMBER, RULES, Dimension, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.json_schema import JsonSchemaValue

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Strict(BaseModel):
    """A map of a file: unknown fields are errors, numbers are finite, nothing changes after reading.

    `noun` is what messages call it ("a link"); it is made from the class name when not given.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    noun: ClassVar[str] = ""


def noun(model: type[BaseModel] | None) -> str:
    """What messages call a map of this model, or one that none describes.

    >>> class LinkFields(Strict): ...
    >>> noun(LinkFields)
    'a link'
    """
    if model is None:
        return "this map"
    own = getattr(model, "noun", "")
    if own:
        return str(own)
    stem = re.sub(r"(Fields|File|Spec|Model)$", "", model.__name__) or model.__name__
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", stem.lstrip("_")).lower()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


@dataclass(frozen=True, slots=True)
class Quantity:
    """Marks a float field that a file writes as text with a unit: ``Annotated[float, Quantity("seconds")]``.

    zero   True where nothing at all is a sensible value, as for a latency
    share  True for a ratio that is a part of a whole, and so at most 1
    """

    dimension: Dimension
    zero: bool = False
    share: bool = False

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Reads the text with `units.parse`."""
        read = partial(parse, dimension=self.dimension, zero=self.zero, share=self.share)
        return core_schema.no_info_plain_validator_function(read)

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A string with the pattern of the dimension's units."""
        rule = RULES[self.dimension]
        units = "|".join(sorted(map(re.escape, rule.spellings()), key=lambda unit: (len(unit), unit)))
        text = {"type": "string", "pattern": f"^{NUMBER} *({units})$", "examples": list(rule.examples)}
        number = {"type": "number", **({"exclusiveMinimum": 0, "maximum": 1} if self.share else {})}
        return text if rule.usual else {"anyOf": [number, text]}


Bytes = Annotated[float, Quantity("bytes")]
BytesPerSecond = Annotated[float, Quantity("bytes_per_s")]
Seconds = Annotated[float, Quantity("seconds", zero=True)]
FlopsPerSecond = Annotated[float, Quantity("flops_per_s")]
Share = Annotated[float, Quantity("ratio", share=True)]


def schema_of(model: type[BaseModel], id: str) -> dict[str, Any]:  # noqa: A002  # the keyword is JSON Schema's own
    """The JSON Schema of a file format, named `id`."""
    return {"$schema": DIALECT, "$id": id, **model.model_json_schema()}


def example(model: type[BaseModel], field: str) -> str:
    """A value to show in a remedy for a missing field, or "" when there is nothing typical."""
    marks: Iterator[Quantity] = (mark for mark in model.model_fields[field].metadata if isinstance(mark, Quantity))
    return next((RULES[mark.dimension].examples[0] for mark in marks), "")


def meanings(model: type[BaseModel] | None, field: str) -> list[str]:
    """What each choice of a field means, a line each, where its schema says so (``enumDescriptions``)."""
    info = model.model_fields.get(field) if model else None
    extra = info.json_schema_extra if info else None
    texts = extra.get("enumDescriptions") if isinstance(extra, dict) else None
    return (
        [f"{choice}: {text}" for choice, text in zip(get_args(info.annotation), texts, strict=True)]
        if info and isinstance(texts, list)
        else []
    )
