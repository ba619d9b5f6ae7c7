"""Frozen dataclasses, made in a third of the time: one method of each is compiled, where `dataclasses` compiles six.

A command makes two hundred of them before it answers. All else is as `dataclasses` has it, which knows them as its own:
`field`, `fields` and `replace` are taken from there, and what is not frozen is made there.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, fields
from dataclasses import dataclass as standard
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - the one that a type checker knows

put = object.__setattr__


def frozen_dataclass(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False, **how: bool
) -> Any:
    """What `dataclasses.dataclass` makes of a class, with the same arguments."""
    if not frozen:
        return standard(cls, eq=eq, slots=slots, **how)

    def made(cls: type) -> type:
        own = {**vars(cls)}
        new: type = standard(init=False, repr=False, eq=False, slots=slots, **how)(cls)
        methods = {"__setattr__": _refuse, "__delattr__": _refuse, "__repr__": _text}
        methods |= _compared(new) if eq else {}
        methods |= {"__getstate__": _state, "__setstate__": _restore} if slots else {}
        if "__init__" not in own:
            methods["__init__"] = _init(new)
        for name, method in methods.items():
            if own.get(name) is None:
                setattr(new, name, method)
        return new

    return made if cls is None else made(cls)


def _init(cls: type) -> Callable[..., None]:
    """The method that takes the fields: compiled, since values are made by the thousand."""
    known: dict[str, Any] = {"put": put, "MISSING": MISSING}
    takes, named, lines = ["self"], ["*"], []
    for one in fields(cls):
        name, default = one.name, f"of_{one.name}"
        value = name
        if one.default_factory is not MISSING:
            known[default] = one.default_factory
            value = f"{default}() if {name} is MISSING else {name}" if one.init else f"{default}()"
        elif one.default is not MISSING:
            known[default] = one.default
            value = name if one.init else default
        if one.init:
            given = "MISSING" if one.default_factory is not MISSING else default
            (named if one.kw_only else takes).append(f"{name}={given}" if default in known else name)
        if one.init or default in known:
            lines.append(f"put(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    asked = ", ".join([*takes, *(named if len(named) > 1 else [])])
    exec(f"def __init__({asked}):\n  " + ("\n  ".join(lines) or "pass"), known)  # noqa: S102 - as `dataclasses` does
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made  # type: ignore[no-any-return]  # it was compiled above


def _compared(cls: type) -> dict[str, Any]:
    """Values are equal if all fields are that are compared, and then their hashes are."""
    of = _values([one.name for one in fields(cls) if one.compare])
    of_hash = _values([one.name for one in fields(cls) if (one.compare if one.hash is None else one.hash)])

    def equal(self: Any, other: object) -> Any:
        return of(self) == of(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(of_hash(self))

    return {"__eq__": equal, "__hash__": hashed}


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives these attributes of a value."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _refuse(_: Any, name: str, *to: object) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if to else 'delete'} field {name!r}")


@recursive_repr()
def _text(self: Any) -> str:
    inside = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({', '.join(inside)})"


def _state(self: Any) -> list[Any]:
    """What is pickled: of a class with slots there is nothing else to be had."""
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        put(self, one.name, value)


if not TYPE_CHECKING:
    dataclass = frozen_dataclass
