"""Break-even: the value of one unknown at which two costs change places, found on numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import isclose, isfinite
from typing import TYPE_CHECKING

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Cost = Callable[[float], float]
"""Value of the unknown -> a cost."""

OCTAVES = 100
"""Values are looked at from 2**-100 to 2**100 ..."""

PER_OCTAVE = 16
"""... so many per doubling: crossings nearer to each other than 4 % may be missed, in pairs."""

ROUNDING = 1e-12
"""Relative difference up to which two costs count as equal."""


def breakeven(left: Cost, right: Cost, unknown: str, *, between: tuple[float, float] | None = None) -> int | float:
    """The positive value of the unknown at which `left` and `right` change places.

    There they are equal; where one of them jumps over the other, it is the first value beyond the jump.

    left, right  two costs in one unit, e.g. seconds of compute and of communication, as functions of the unknown
    unknown      what it is called in refusals
    between      where to look; None: from 2**-100 to 2**100
    Returns an int where one makes them equal, else a float.
    Raises InputError if they do not change places, or more than once.

    >>> breakeven(lambda batch: 2 * batch * 4096, lambda batch: 4096 * 4096, "batch")
    2048
    """
    sides = (left, right)
    tried = [(value, sign) for value in _values(between) if (sign := _sign(sides, value)) is not None]
    apart = [(value, sign) for value, sign in tried if sign]
    crossings = [_crossed(sides, low, high, now) for (low, was), (high, now) in pairwise(apart) if was != now]
    if not crossings:
        raise _never(unknown, tried)
    if len(crossings) > 1:
        raise _several(unknown, crossings)
    return crossings[0]


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
        left, right = (float(side(value)) for side in sides)
    except (ArithmeticError, ValueError, TypeError):  # float() of a complex number, too
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


def _never(unknown: str, tried: Sequence[tuple[float, int]]) -> InputError:
    if not tried:
        return InputError.one("no-breakeven", f"the two costs have no value together at any positive {unknown}")
    signs = sorted({sign for _, sign in tried}, key=abs, reverse=True)
    stands = " or ".join({1: "above", -1: "below", 0: "equal to"}[sign] for sign in signs)
    values = f"all {len(tried):,} values of {unknown} from {tried[0][0]:.2g} to {tried[-1][0]:.2g} that were looked at"
    return InputError.one(
        "no-breakeven",
        f"the two costs do not change places: the first is {stands} the second at {values}",
        remedy="look closer with between=(low, high) if they might meet twice within a few percent",
    )


def _several(unknown: str, crossings: Sequence[int | float]) -> InputError:
    first, second, *_ = crossings
    return InputError.one(
        "several-breakevens",
        f"the two costs change places {len(crossings)} times: "
        f"at {unknown} = {', '.join(f'{value:.6g}' for value in crossings)}",
        remedy=f"say which one: the first is between=({first / 2:.6g}, {(first * second) ** 0.5:.6g})",
    )
