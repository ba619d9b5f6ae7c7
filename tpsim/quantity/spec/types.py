"""Which types the values of a format may have, by the keys that lead to them."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def model_at(model: type[BaseModel], keys: Keys, data: Any = None) -> type[BaseModel] | None:
    """The model of the map at `keys`; of its entries where it may also be a map of such maps.

    data  the map, which tells models apart that have fields of one choice
    """
    declared = types_at(model, keys)
    entries = [part for type_ in declared if get_origin(type_) is dict for part in branches(get_args(type_)[1])]
    models = [type_ for type_ in (*declared, *entries) if isinstance(type_, type) and issubclass(type_, BaseModel)]
    told = (known for known in models if isinstance(data, dict) and _chosen(known, data))
    return next(told, next(iter(models), None))


def _chosen(model: type[BaseModel], data: Mapping[str, Any]) -> bool:
    """True if a map has the only values that fields of a model can have."""
    only = {name: get_args(field.annotation) for name, field in model.model_fields.items()}
    tags = {name: values for name, values in only.items() if len(values) == 1 and isinstance(values[0], str)}
    return bool(tags) and all((data.get(name),) == values for name, values in tags.items())
