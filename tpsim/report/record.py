"""Records: values that documents, tables and frames show by the names of their attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from numbers import Rational, Real
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Generic, TypeVar, cast

Count = Annotated[Any, ("type", "integer"), ("minimum", 0)]
Bytes = Annotated[Any, ("type", "number"), ("minimum", 0), ("description", "whole if exact")]
Seconds = Annotated[Any, ("type", "number"), ("minimum", 0)]
Number = Annotated[Any, ("type", "number")]
"""What a told attribute is: in a document a number, in Python whatever the sizes were (int, Fraction, array, symbol).

Behind the type stands what its JSON Schema says, in pairs.
"""


T = TypeVar("T")


class Of(Generic[T]):
    """An attribute that is some part's, or made of parts: ``time_s = Of[Seconds]("timing.time_s", "of one call")``.

    path     the way to it from its owner, or what makes it of its owner
    meaning  what its JSON Schema says, beside the type in brackets
    """

    def __init__(self, path: str | Callable[[Any], Any], meaning: str) -> None:
        self.meaning = meaning
        self._found: Callable[[Any], Any] = attrgetter(path) if isinstance(path, str) else path

    def __get__(self, owner: Any, kind: Any = None) -> T:
        return cast("T", self if owner is None else self._found(owner))


class Record(Mapping[str, Any]):
    """A value that is also a mapping from the names that documents show of it to what they show.

    told  these names, in order, each an attribute with its type and its meaning; of a dataclass its fields, unless it
          says otherwise. A name that ends in ``?`` is left out while its attribute is None.
    late  types of these that are loaded where they are asked for -> their modules
    An attribute is as exact as it was computed, an item is a number that JSON has; neither is made before it is asked
    for, so that a formula costs nothing where nobody reads it.
    """

    __slots__ = ()
    told: ClassVar[tuple[str, ...]] = ()
    late: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A dataclass would print all its fields, of a plan 70 kB; it leaves alone what a class has of its own."""
        super().__init_subclass__(**kwargs)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def __getitem__(self, name: str) -> Any:
        if name not in names(type(self)):
            raise KeyError(name)
        return _shown(name, getattr(self, name))

    def __iter__(self) -> Iterator[str]:
        return (name for name, always in names(type(self)).items() if always or getattr(self, name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """True: whether there is a record is often asked, and to count its names works out what may be left out."""
        return True


@cache
def names(kind: type[Record]) -> Mapping[str, bool]:
    """The names that documents may show of a record, each with True if they always do."""
    listed = kind.told or tuple(field.name for field in fields(kind))  # type: ignore[arg-type]  # a dataclass
    return {name.rstrip("?"): not name.endswith("?") for name in listed}


def plain(value: Any, name: str = "") -> Any:
    """What JSON holds of a value: maps, lists and numbers; the name that it stands under may say its unit."""
    if isinstance(value, Mapping):
        return {key: plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, name) for item in value]
    return _shown(name, value)


def _shown(name: str, value: Any) -> Any:
    """A value as JSON has it: an int where a number is whole and exact, but seconds and rates never are."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return list(value) if isinstance(value, tuple) else value
    if isinstance(value, Rational) and value.denominator == 1 and not name.endswith("_s"):
        return value.numerator
    return float(value)
