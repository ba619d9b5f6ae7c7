"""Arguments of Python: refused by name where they are of another type than a function says."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from operator import index
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from tpsim.quantity.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which refuses what is no whole number, no text, or neither True nor False where it says such a type.

    Python would say that ``'<' is not supported between str and int``, of whatever came to be compared first.
    """
    signature = inspect.signature(function)
    types = {name: str(one.annotation).removesuffix(" | None") for name, one in signature.parameters.items()}
    optional = {name for name, one in signature.parameters.items() if types[name] != one.annotation}

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python itself says what is missing, or too much
        for name, value in given.items():
            if types[name] in CHECKS and not (value is None and name in optional):
                CHECKS[types[name]](name, value)
        return function(*args, **kwargs)

    return asked


def whole(name: str, value: Any, least: int | None = None) -> int:
    """The whole number that an argument is, of numpy or of Python. Raises InputError.

    >>> whole("ranks", 8)
    8
    """
    try:
        number: int = index(value)
    except TypeError:
        raise _another(name, value, "a whole number", _as_number(value)) from None
    if isinstance(value, bool):
        raise _another(name, value, "a whole number")
    if least is not None and number < least:
        raise InputError.one("bad-value", f"{name} is {number}", remedy=f"it must be at least {least}")
    return number


def sizes(name: str, given: Any, example: str) -> dict[str, int]:
    """The sizes of an argument that is a map of them; `example` is one as a text. Raises InputError.

    >>> sizes("mesh", {"X": 4}, "X=4")
    {'X': 4}
    """
    if not isinstance(given, Mapping):
        raise _another(name, given, "text or a map of sizes", f'{name}="{example}"')
    for key in given:
        text(f"a key of {name}", key)
    return {key: whole(f"{name}.{key}", size, least=1) for key, size in given.items()}


def text(name: str, value: Any) -> None:
    """Refuse an argument that is neither text nor a path; a list or a map is written as one. Raises InputError."""
    if isinstance(value, str | PathLike):
        return
    parts = [f"{key}={part}" for key, part in value.items()] if isinstance(value, Mapping) else value
    several = isinstance(parts, list | tuple) and parts and all(isinstance(part, str) for part in parts)
    raise _another(name, value, "text", f'{name}="{",".join(parts)}"' if several else "")


def _flag(name: str, value: Any) -> None:
    if type(value).__name__ not in ("bool", "bool_"):  # numpy's are flags, too
        raise _another(name, value, "True or False")


CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "int": whole,
    "bool": _flag,
    **dict.fromkeys(("str", "str | Path", "By", "Planner", "CostModel"), text),
}
"""What is asked of an argument, by the type that a function says."""


def _another(name: str, value: Any, due: str, write: str = "") -> InputError:
    """The refusal of a value of another type than is due."""
    return InputError.one("bad-value", f"{name} is {in_words(value)}, not {due}", remedy=f"write {write or due}")


def _as_number(value: Any) -> str:
    """The number that was meant; "" if there is none."""
    if isinstance(value, str):
        return f"{int(value)}, without quotes" if value.strip().isdecimal() else ""
    return f"{int(value)}" if isinstance(value, float) and value.is_integer() else ""


def in_words(value: Any) -> str:
    """A value as a message names it: a list and a map by what they are.

    >>> in_words("8"), in_words([8]), in_words(None)
    ('"8"', 'a list', 'None')
    """
    if isinstance(value, str):
        return f'"{value}"'
    return "a map" if isinstance(value, Mapping) else "a list" if isinstance(value, Sequence) else str(value)
