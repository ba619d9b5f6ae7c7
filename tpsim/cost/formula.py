"""Formulas as text: the same costs, evaluated with symbols instead of numbers. Loads sympy when called."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any


def text(expression: Any) -> str:
    """`expression` as one line: numbers and common factors in front.

    >>> import sympy
    >>> t, b = sympy.symbols("t b", positive=True)
    >>> text(16 * b - 16 * b / t)
    '16*b*(t - 1)/t'
    """
    import sympy

    return _factored(sympy.sympify(expression))


def among_many(expression: Any) -> Any:
    """`expression` without its cases for one device: what is paid only where there is somebody to talk to is paid.

    >>> import sympy
    >>> V, n = sympy.symbols("V n", positive=True)
    >>> among_many(2 * sympy.Piecewise((V / n, n > 1), (0, True)))
    2*V/n
    """
    import sympy

    return sympy.sympify(expression).replace(sympy.Piecewise, lambda *cases: cases[0][0])


@lru_cache(maxsize=4096)
def _factored(expression: Any) -> str:
    """Many collectives have one formula, and its factors take longer to find than all else of its line."""
    import sympy

    return str(sympy.factor(expression))


def evaluated(line: str, values: Mapping[str, int | Fraction]) -> Fraction:
    """What a printed formula comes to when its symbols have these values, exactly.

    >>> evaluated("16*b*(t - 1)/t", {"b": 3, "t": 8}), evaluated("8*top", {"top": Fraction(7, 4)})
    (Fraction(42, 1), Fraction(14, 1))
    """
    import sympy

    number = sympy.sympify(line, locals={name: sympy.Rational(value) for name, value in values.items()})
    return Fraction(int(number.p), int(number.q))
