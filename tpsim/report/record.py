"""Records: values that documents, tables and frames show by the names of their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from numbers import Rational, Real
from typing import Annotated, Any, ClassVar

Count = Annotated[Any, ("type", "integer"), ("minimum", 0)]
Bytes = Annotated[Any, ("type", "number"), ("minimum", 0), ("description", "whole if exact")]
Seconds = Annotated[Any, ("type", "number"), ("minimum", 0)]
Number = Annotated[Any, ("type", "number")]
"""What a told attribute is: in a document a number, in Python whatever the sizes were (int, Fraction, array, symbol).

Behind the type stands what its JSON Schema says, in pairs.
"""


class Record(Mapping[str, Any]):
    """A value that is also a mapping from the names that documents show of it to what they show.

    told  these names, in order, each an attribute with its type and its meaning; of a dataclass its fields, unless it
          says otherwise. A name that ends in ``?`` is left out while its attribute is None.
    An attribute is as exact as it was computed, an item is a number that JSON has; neither is made before it is asked
    for, so that a formula costs nothing where nobody reads it.
    """

    __slots__ = ()
    told: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def parts(cls) -> dict[str, bool]:
        """The names that may be shown, each with True if it always is."""
        told = cls.told or tuple(one.name for one in fields(cls))  # type: ignore[arg-type]  # a dataclass
        return {name.rstrip("?"): not name.endswith("?") for name in told}

    def __getitem__(self, name: str) -> Any:
        if name not in self.parts():
            raise KeyError(name)
        return _shown(name, getattr(self, name))

    def __iter__(self) -> Iterator[str]:
        return (name for name, always in self.parts().items() if always or getattr(self, name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def plain(value: Any, name: str = "") -> Any:
    """What JSON holds of a value: maps, lists and numbers; the name that it stands under may say its unit."""
    if isinstance(value, Mapping):
        return {key: plain(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, name) for one in value]
    return _shown(name, value)


def _shown(name: str, value: Any) -> Any:
    """A number as JSON has it: an int where it is whole and exact, but seconds and rates never are."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if isinstance(value, Rational) and value.denominator == 1 and not name.endswith("_s"):
        return value.numerator
    return float(value)
