"""The building blocks of a file format: a strict pydantic base, fields with a unit, types by keys, the JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from tpsim.quantity.units import NUMBER, RULES, Dimension, parse

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue

    from tpsim.quantity.spec.document import Keys


def types_at(model: type[BaseModel], keys: Keys) -> list[Any]:
    """The types that the value at `keys` may have, union branches side by side."""
    here: list[Any] = [model]
    for key in keys:
        here = [inner for annotation in here for inner in _inside(annotation, key)]
    return here


def _inside(annotation: Any, key: str | int) -> Iterator[Any]:
    """The types of one entry of a value of that type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(key))
        yield from branches(field.annotation) if field else ()
        return
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(key, str):
        yield from branches(parts[1])
    elif isinstance(origin, type) and issubclass(origin, list | tuple) and isinstance(key, int):
        yield from branches(parts[min(key, len(parts) - 1)] if parts[-1] is not Ellipsis else parts[0])


def deeper(model: type[BaseModel], name: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The paths of all fields of that name in a format; NAME is any key of a map, and any item of a list."""
    for field, info in model.model_fields.items():
        path = (*above, field)
        if field == name:
            yield ".".join(path)
        for part in branches(info.annotation):
            inside = get_args(part)[-1:] if get_origin(part) is dict else get_args(part)[:1]
            for inner in (part, *(one for annotation in inside for one in branches(annotation))):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    yield from deeper(inner, name, path if inner is part else (*path, "NAME"))


def branches(annotation: Any) -> Iterator[Any]:
    """The members of a union, metadata taken off."""
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        for part in get_args(annotation):
            yield from branches(part)
    elif hasattr(annotation, "__metadata__"):
        yield from branches(get_args(annotation)[0])
    else:
        yield annotation


SORTS: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", tuple: "a list"}
"""Types of a value, as messages call them."""


def choices_at(model: type[BaseModel], keys: Keys) -> list[str]:
    """The words that the value at `keys` may be."""
    return [str(one) for part in types_at(model, keys) if get_origin(part) is Literal for one in get_args(part)]


def sorts_at(model: type[BaseModel], keys: Keys) -> str:
    """What the value at `keys` may be beside its choices: ``, or a number``; "" if it is one of these alone."""
    words = (_sort(kind) for kind in types_at(model, keys))
    return "".join(f", or {word}" for word in dict.fromkeys(filter(None, words)))


def _sort(kind: Any) -> str:
    """What messages call values of a type that is none of choices; "" for any other."""
    is_map = isinstance(kind, type) and issubclass(kind, BaseModel)
    return "a map of fields" if is_map else SORTS.get(get_origin(kind) or kind, "")


def model_at(model: type[BaseModel], keys: Keys, data: Any = None) -> type[BaseModel] | None:
    """The model of the map at `keys`; of its entries where it may also be a map of such maps.

    data  the map, which tells models apart that have fields of one choice
    """
    declared = types_at(model, keys)
    entries = [part for type_ in declared if get_origin(type_) is dict for part in branches(get_args(type_)[1])]
    models = [type_ for type_ in (*declared, *entries) if isinstance(type_, type) and issubclass(type_, BaseModel)]
    fitting = (known for known in models if isinstance(data, dict) and _chosen(known, data))
    return next(fitting, next(iter(models), None))


def _chosen(model: type[BaseModel], data: Mapping[str, Any]) -> bool:
    """True if a map has the only values that fields of a model can have."""
    only = {name: get_args(field.annotation) for name, field in model.model_fields.items()}
    tags = {name: values for name, values in only.items() if len(values) == 1 and isinstance(values[0], str)}
    return bool(tags) and all((data.get(name),) == values for name, values in tags.items())


DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Strict(BaseModel):
    """A map of a file: unknown fields are errors, numbers are finite, nothing changes after reading.

    `noun` is what messages call it ("a link"); it is made from the class name when not given.
    `foreign` is what others call a field in such a map, and elsewhere something else -> the path that tpsim has for it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    noun: ClassVar[str] = ""
    foreign: ClassVar[Mapping[str, str]] = {}


class Value(Strict):
    """A map of a file that is itself what the map means."""

    def but(self, **changes: Any) -> Self:
        """The same with some fields changed, which are taken to be good: a number may be an array.

        Raises TypeError for a name that it has not.
        """
        if strange := [name for name in changes if name not in self.__dict__ and not hasattr(type(self), name)]:
            raise TypeError(f"{type(self).__name__} has no {', '.join(strange)}")
        return self.model_copy(update=changes)


def left_out(instead: Any, description: str | None = None) -> Any:
    """A field that a file may leave out, or state as nothing: what it is then."""
    return Field(instead, description=description, json_schema_extra={"default": None})


class OrNothing:
    """Reads nothing (``null``) as a value of its own instead: `None` is what files may state, and no field has."""

    def __init__(self, instead: Callable[[], Any] = lambda: None) -> None:
        self.instead = instead

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """The type, or null."""
        either = core_schema.nullable_schema(handler(source))
        return core_schema.no_info_after_validator_function(
            lambda value: self.instead() if value is None else value, either
        )


def alone(field: str, *types: type) -> Any:
    """Lets a value stand alone for a map of which it is that field: any value, or one of these types."""
    short = types or (object,)
    return model_validator(mode="before")(
        lambda value: {field: value} if isinstance(value, short) and not isinstance(value, Mapping) else value
    )


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
        number = {
            "type": "number",
            **({"minimum" if self.zero else "exclusiveMinimum": 0, "maximum": 1} if self.share else {}),
        }
        return text if rule.usual else {"anyOf": [number, text]}


Bytes = Annotated[float, Quantity("bytes")]
BytesPerSecond = Annotated[float, Quantity("bytes_per_s")]
Seconds = Annotated[float, Quantity("seconds", zero=True)]
FlopsPerSecond = Annotated[float, Quantity("flops_per_s")]
Share = Annotated[float, Quantity("ratio", share=True)]
Probability = Annotated[float, Quantity("ratio", zero=True, share=True)]

MOST = 10**9
"""No size is larger: it is a slip of the keyboard."""

Count = Annotated[int, Field(strict=True, gt=0, le=MOST)]
Flag = Annotated[bool, Field(strict=True)]


def schema_of(model: type[BaseModel], id: str) -> dict[str, Any]:  # noqa: A002  # the keyword is JSON Schema's own
    """The JSON Schema of a file format, named `id`."""
    return {"$schema": DIALECT, "$id": id, **model.model_json_schema()}


def example(model: type[BaseModel], field: str) -> str:
    """A value to show in a remedy for a missing or a wrong field, or "" when there is nothing typical."""
    info = model.model_fields[field]
    marks: Iterator[Quantity] = (mark for mark in info.metadata if isinstance(mark, Quantity))
    return next((RULES[mark.dimension].examples[0] for mark in marks), _flow((info.examples or [""])[0]))


def _flow(value: Any) -> str:
    """An example as a file has it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inside)}" for key, inside in value.items()) + "}"
    return "[" + ", ".join(map(_flow, value)) + "]" if isinstance(value, list) else str(value)


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


class OrShort:
    """Lets editors accept the short form of a map: a JSON Schema type beside it."""

    def __init__(self, *short: str) -> None:
        self.short = short

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The short form, or the map."""
        return {"anyOf": [*({"type": short} for short in self.short), handler(schema)]}
