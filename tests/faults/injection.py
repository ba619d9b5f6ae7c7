"""Breaks one place of the product until a test ends: a changed line of a function, or another entry of a table."""

from __future__ import annotations
import __future__

import inspect
from textwrap import dedent
from types import FunctionType

from tpsim.machine import timing


def rewrite(monkeypatch, function, old, new):
    """Run `function` with one place of its source changed, however it was imported, until the test ends.

    A place that is not there any more, or there twice, is an error: a fault that breaks nothing proves nothing.
    """
    function = function.fget if isinstance(function, property) else function
    source = dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise LookupError(f"{function.__qualname__} has {source.count(old)} places {old!r}: say the fault anew")
    code = compile(source.replace(old, new), inspect.getfile(function), "exec", __future__.annotations.compiler_flag)
    made: dict[str, object] = {}
    exec(code, function.__globals__, made)  # noqa: S102  # a fault is source
    (changed,) = made.values()
    changed = changed.fget if isinstance(changed, property) else changed
    monkeypatch.setattr(function, "__code__", changed.__code__)
    monkeypatch.setattr(timing, "PLAIN", ())  # no machine remembers what it timed before


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
