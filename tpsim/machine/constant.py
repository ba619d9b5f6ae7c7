"""A figure of a machine: its value in SI units, what it is of, where it was read and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpsim.quantity.units import Dimension


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
        return [*_constants(self)]


def _constants(part: Any) -> Iterator[Constant]:
    for _, inner in inside(part):
        if isinstance(inner, Constant):
            yield inner
        elif inner and isinstance(inner, HasConstants | dict | tuple):
            yield from _constants(inner)


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.init)


def inside(part: HasConstants | dict[Any, Any] | tuple[Any, ...]) -> Iterable[tuple[Any, Any]]:
    """What may have figures in a part: fields by name, a map's values by key, a tuple's by place."""
    if isinstance(part, HasConstants):
        return [(name, getattr(part, name)) for name in _names(type(part))]  # type: ignore[arg-type]  # a class is hashable
    return part.items() if isinstance(part, dict) else enumerate(part)
