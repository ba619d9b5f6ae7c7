"""What a deliberate fault is, something of the product that goes wrong and who notices, and how it is put in."""

from __future__ import annotations

from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.machine import timing

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


def wrap(monkeypatch, place, wrong):
    """Run what `wrong` makes of a function instead of it, however it was imported, until the test ends.

    The function stays what it is, for whoever has it; what it runs is handed on.
    """
    function = getattr(place, "fget", None) or getattr(place, "func", None) or getattr(place, "__wrapped__", place)
    right = FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    right.__defaults__, right.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    monkeypatch.setitem(function.__globals__, "__wrong__", wrong(right))
    monkeypatch.setattr(function, "__code__", _handed_on.__code__)
    monkeypatch.setattr(function, "__defaults__", None)
    monkeypatch.setattr(function, "__kwdefaults__", None)
    monkeypatch.setattr(timing, "PLAIN", ())  # no machine remembers what it timed before


def _handed_on(*given, **named):
    return __wrong__(*given, **named)  # noqa: F821  # what `wrap` puts among the globals of the function
