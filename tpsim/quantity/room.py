"""How many fit: the most units for which there is room, where room falls with each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpsim.quantity.size import floor_over, largest, smallest, where_positive

TWO = 2


def most(room: Callable[[Any], Any]) -> Any:
    """The most units for which there is room; 0 where there is none for one. Of arrays each has its own.

    room  what so many units leave: less the more there are, by about as much with each; below 0 they are too many

    The last that fit lie between some that do and some that do not: looked at are, in turn, those where a straight line
    from the ones to the others comes to 0, and those halfway, so that it ends soon where the line is bent, too.

    >>> most(lambda units: 10.5 - 3 * units), most(lambda units: 1.0 - 3 * units)
    (3, 0)
    """
    return ends(room)[0]


def ends(room: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """As many, and what is left by them, and by one more; by one, and by some more, where there is no room for one."""
    left = room(1)
    none = where_positive(-left, 1, 0)
    low, high, halved = 1 + 0 * none, largest(_line(1, left, room(TWO)), 0) + TWO, False
    while _any(fits := 1 - where_positive(-(lacks := room(high)), 1, none)):
        low, left, high = where_positive(fits, high, low), where_positive(fits, lacks, left), high * (1 + fits)
    while _any(where_positive(high - low - 1, 1 - none)):
        units = low + (floor_over(high - low, TWO) if halved else _line(high - low, left, lacks))
        units = largest(smallest(largest(units, low + 1), high - 1), low)
        fits = 1 - where_positive(-(rest := room(units)), 1)
        low, left = where_positive(fits, units, low), where_positive(fits, rest, left)
        high, lacks = where_positive(fits, high, units), where_positive(fits, lacks, rest)
        halved = not halved
    return where_positive(none, 0, low), left, lacks


def _line(between: Any, left: Any, lacks: Any) -> Any:
    """How far a straight line falls to 0: of arrays those that have no room for one may not fall at all."""
    return floor_over(between * left, where_positive(left - lacks, left - lacks, 1))


def _any(flags: Any) -> bool:
    return bool(flags.any() if hasattr(flags, "any") else flags)
