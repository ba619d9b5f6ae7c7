"""What a deliberate fault is: something of the product that goes wrong, and who notices."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Fault(NamedTuple):
    """A function that is wrong, and who notices.

    place  the function, method or property
    wrong  makes the wrong one of the right one
    judge  a key of `JUDGES`
    says   what its findings name
    """

    what: str
    place: Any
    wrong: Callable[[Callable[..., Any]], Callable[..., Any]]
    judge: str
    says: str


def gives(change):
    """A function whose result is changed."""
    return lambda right: lambda *given, **named: change(right(*given, **named))


def given(**changes):
    """A function that is given something else: each of these arguments is changed."""

    def wrong(right):
        asked = signature(right)

        def called(*given, **named):
            bound = asked.bind(*given, **named)
            bound.apply_defaults()
            bound.arguments |= {name: change(bound.arguments[name]) for name, change in changes.items()}
            return right(*bound.args, **bound.kwargs)

        return called

    return wrong


def always(value):
    """A function that gives the same whatever it is asked."""
    return lambda _: lambda *_given, **_named: value


class Line(NamedTuple):
    """A line that is wrong: place, old, new are a function and the change of its source."""

    what: str
    place: Any
    old: str
    new: str
    judge: str
    says: str
