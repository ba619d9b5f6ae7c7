"""Formulas as text: the same costs, evaluated with symbols instead of numbers. Loads sympy when called."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def text(expression: Any) -> str:
    """`expression` as one line: numbers and common factors in front.

    >>> import sympy
    >>> t, b = sympy.symbols("t b", positive=True)
    >>> text(16 * b - 16 * b / t)
    '16*b*(t - 1)/t'
    """
    import sympy

    return str(sympy.factor(sympy.sympify(expression)))


def evaluated(line: str, values: Mapping[str, int]) -> Fraction:
    """What a printed formula comes to when its symbols have these values, exactly.

    >>> evaluated("16*b*(t - 1)/t", {"b": 3, "t": 8})
    Fraction(42, 1)
    """
    import sympy

    number = sympy.sympify(line, locals={name: sympy.Integer(value) for name, value in values.items()})
    return Fraction(int(number.p), int(number.q))
