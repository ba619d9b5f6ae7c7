"""Break-even: the value of one unknown at which two costs change places, found on numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import isclose, isfinite, nan
from typing import TYPE_CHECKING, Any

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import sympy

Cost = Callable[[float], float]
"""Value of the unknown -> a cost."""

OCTAVES = 100
"""Values are looked at from 2**-100 to 2**100 ..."""

PER_OCTAVE = 16
"""... so many per doubling: crossings nearer to each other than 4 % may be missed, in pairs."""

ROUNDING = 1e-12
"""Relative difference up to which two costs count as equal."""


def breakeven(left: Any, right: Any, symbol: sympy.Symbol | str, *, between: tuple[float, float] | None = None) -> Any:
    """The positive value of `symbol` at which `left` and `right` change places.

    There they are equal; where one of them jumps over the other, it is the first value beyond the jump.

    left, right  two costs in one unit, e.g. seconds of compute and of communication: functions of a number, numbers,
                 or sympy expressions; what other symbols these have must cancel, as sizes of both do
    symbol       the unknown, a symbol or its name
    between      where to look; None: from 2**-100 to 2**100
    Returns an int where one makes them equal, else a float.
    Raises InputError if they do not change places, or more than once, and where it depends on other symbols.

    >>> breakeven(lambda batch: 2 * batch * 4096, lambda batch: 4096 * 4096, "batch")
    2048
    """
    name = str(symbol)
    sides = [_function(cost, name) for cost in _in_one_unknown(name, left, right)]
    tried = [(value, sign) for value in _values(between) if (sign := _sign(sides, value)) is not None]
    apart = [(value, sign) for value, sign in tried if sign]
    found = [_crossed(sides, low, high, now) for (low, was), (high, now) in pairwise(apart) if was != now]
    if not found:
        raise _never(name, left, right, tried)
    if len(found) > 1:
        raise _several(name, left, right, found)
    return found[0]


def _in_one_unknown(name: str, left: Any, right: Any) -> tuple[Any, Any]:
    """The costs, or their ratio and 1 where only that has no other symbol; what a function uses nobody can see."""
    known = _names(left) | _names(right)
    if name not in known and not any(map(_is_function, (left, right))):
        remedy = f"symbols here: {', '.join(sorted(known)) or 'none'}"
        raise InputError.one("unknown-symbol", f"{name} occurs in neither {left} nor {right}", remedy=remedy)
    if known <= {name}:
        return left, right
    ratio = _ratio(left, right)
    if others := sorted(_names(ratio) - {name}):
        message = f"where {left} equals {right} depends on {', '.join(others)} too"
        remedy = f"put numbers in place of all but {name}: a break-even is found on numbers"
        raise InputError.one("several-unknowns", message, remedy=remedy)
    return ratio, 1


def _names(cost: Any) -> set[str]:
    return {str(free) for free in getattr(cost, "free_symbols", ())}


def _ratio(left: Any, right: Any) -> Any:
    """The costs over each other, with what cancels gone; one of them has symbols."""
    from sympy import cancel

    return cancel(left / right)


def _is_function(cost: Any) -> bool:
    """True for a function of a number; sympy's symbols can be called too."""
    return callable(cost) and not hasattr(cost, "free_symbols")


def _function(cost: Any, name: str) -> Cost:
    """A cost as a function of the unknown's value."""
    if _is_function(cost):
        return lambda value: float(cost(value))
    if not getattr(cost, "free_symbols", ()):
        return lambda _: float(cost) if getattr(cost, "is_real", True) else nan
    from sympy import lambdify

    known = [free for free in cost.free_symbols if str(free) == name]  # one name may bear several assumptions
    evaluated = lambdify(known, cost, modules=[ON_NUMBERS, "math"])

    def on_numbers(value: float) -> float:
        found = evaluated(*(value for _ in known))
        return nan if isinstance(found, complex) else float(found)

    return on_numbers


ON_NUMBERS: Mapping[str, Callable[..., float]] = {
    "Heaviside": lambda x, at_zero=0.5: float(x > 0) if x else at_zero,
}
"""What sympy has and Python's math has not."""


def _values(between: tuple[float, float] | None) -> Iterator[float]:
    """The values to look at, evenly by ratio, both ends included."""
    low, high = between or (2.0**-OCTAVES, 2.0**OCTAVES)
    if not 0 < low < high:
        message = f"there is nothing between {low:g} and {high:g}"
        raise InputError.one("bad-range", message, remedy="give two positive values, the lesser one first")
    steps = 2 * OCTAVES * PER_OCTAVE
    yield from (low * (high / low) ** (step / steps) for step in range(steps))
    yield high


def _sign(sides: Sequence[Cost], value: float) -> int | None:
    """1 where the first cost is above the second, -1 below, 0 equal but for rounding; None where one has no value."""
    try:
        left, right = (side(value) for side in sides)
    except (ArithmeticError, ValueError):
        return None
    if not isfinite(left) or not isfinite(right):
        return None
    if abs(left - right) <= ROUNDING * max(abs(left), abs(right)):
        return 0
    return 1 if left > right else -1


def _crossed(sides: Sequence[Cost], low: float, high: float, beyond: int) -> int | float:
    """The value from which on the costs stand as at `high`, not as at `low`: by bisection; a whole one as an int."""
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if _sign(sides, middle) == beyond else (middle, high)
    whole = round(high)
    return whole if whole and isclose(whole, high) and _sign(sides, whole) == 0 else high


def _never(name: str, left: Any, right: Any, tried: Sequence[tuple[float, int]]) -> InputError:
    both = f"{_shown(left)} and {_shown(right)}"
    if not tried:
        return InputError.one("no-breakeven", f"{both} have no value together at any positive {name}")
    signs = sorted({sign for _, sign in tried}, key=abs, reverse=True)
    stands = " or ".join({1: "above", -1: "below", 0: "equal to"}[sign] for sign in signs)
    values = f"all {len(tried):,} values of {name} from {tried[0][0]:.2g} to {tried[-1][0]:.2g} that were looked at"
    return InputError.one(
        "no-breakeven",
        f"{both} do not change places: {_shown(left)} is {stands} {_shown(right)} at {values}",
        remedy="look closer with between=(low, high) if they might meet twice within a few percent",
    )


def _several(name: str, left: Any, right: Any, found: Sequence[int | float]) -> InputError:
    first, second, *_ = found
    return InputError.one(
        "several-breakevens",
        f"{_shown(left)} and {_shown(right)} change places {len(found)} times: "
        f"at {name} = {', '.join(f'{value:.6g}' for value in found)}",
        remedy=f"say which one: the first is between=({first / 2:.6g}, {(first * second) ** 0.5:.6g})",
    )


def _shown(cost: Any) -> str:
    """A cost in a message; a function by its name."""
    return str(cost.__name__) if _is_function(cost) else str(cost)
