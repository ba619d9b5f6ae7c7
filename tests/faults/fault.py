"""What a deliberate fault is: something of the product that goes wrong, and who notices."""

from __future__ import annotations

import inspect
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


def always(value):
    """A function that gives the same whatever it is asked."""
    return lambda _: lambda *_given, **_named: value


def given(**changes):
    """A function that is given something else: of each argument named, what its change makes of it."""

    def wrong(right):
        signature = inspect.signature(right)

        def function(*asked, **named):
            bound = signature.bind(*asked, **named)
            bound.apply_defaults()
            for name, change in changes.items():
                bound.arguments[name] = change(bound.arguments[name])
            return right(*bound.args, **bound.kwargs)

        return function

    return wrong


class Line(NamedTuple):
    """A line that is wrong: place, old, new are a function and the change of its source."""

    what: str
    place: Any
    old: str
    new: str
    judge: str
    says: str
