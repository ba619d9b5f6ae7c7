"""Numbers as people read them: four significant digits, one decimal prefix for what stands together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any, Literal

CellKind = Literal[
    "text", "integer", "number", "share", "bar", "bytes", "seconds", "bytes_per_s", "flops", "flops_per_s"
]
"""What a column holds; `share` is a ratio, printed in percent; `bar` one that is drawn."""

DIGITS = 4
"""Significant digits of a printed number; JSON and CSV keep them all."""

LARGE: Mapping[str, float] = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
SMALL: Mapping[str, float] = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}

UNITS: Mapping[CellKind, tuple[str, Mapping[str, float]]] = {
    "bytes": ("B", LARGE),
    "seconds": ("s", SMALL),
    "bytes_per_s": ("B/s", LARGE),
    "flops": ("FLOP", LARGE),
    "flops_per_s": ("FLOP/s", LARGE),
    "share": ("%", {"": 1e-2}),
}
"""Unit and prefixes of the kinds that have one."""


@dataclass(frozen=True, slots=True)
class UnitScale:
    """The unit of a column, with its prefix, and what a value is divided by to be in it."""

    unit: str
    divisor: float


def significant(value: float) -> str:
    """`value` with `DIGITS` significant digits, never with an exponent.

    >>> [significant(v) for v in (0, 45, 0.0123456, 134.2177, 98765.4)]
    ['0', '45.00', '0.01235', '134.2', '98770']
    """
    if not value:
        return "0"
    rounded = float(f"{value:.{DIGITS - 1}e}")
    if not isfinite(rounded):
        return str(rounded)
    decimals = DIGITS - 1 - floor(log10(abs(rounded)))
    return f"{rounded:.{max(0, decimals)}f}"


def scale(values: Iterable[Any], kind: CellKind) -> UnitScale:
    """The prefix that the middle one of `values` would bear alone, of two middle ones the larger; none for no values.

    It is the largest in which that value is at least one, else the smallest.
    """
    present = sorted(abs(float(value)) for value in values if value) or [1.0]
    middle = present[len(present) // 2]
    unit, prefixes = UNITS.get(kind, ("", {"": 1.0}))
    fitting = [(prefix, divisor) for prefix, divisor in prefixes.items() if divisor <= middle]
    prefix, divisor = max(fitting or prefixes.items(), key=lambda item: item[1] if fitting else -item[1])
    return UnitScale(prefix + unit, divisor)


def cells(values: Sequence[Any], kind: CellKind, common: UnitScale | None = None) -> tuple[str, list[str]]:
    """The unit of a column and the text of each of its values; None is empty, an unknown is no zero.

    common  the unit, where other columns have it too

    >>> cells([134217728, 1048576, None], "bytes")
    ('MB', ['134.2', '1.049', ''])
    >>> cells([4, 134217728, 12 * 134217728000], "bytes")
    ('MB', ['0.000004', '134.2', '1,611,000'])
    """
    if kind == "text":
        return "", ["" if value is None else str(value) for value in values]
    if kind == "integer":
        return "", ["" if value is None else f"{value:,}" for value in values]
    if kind == "share":
        return "%", ["" if value is None else f"{100 * value:z.1f}" for value in values]
    if kind == "bar":
        return "", ["" if value is None else round(BAR * value) * FULL for value in values]
    chosen = common or scale(values, kind)
    return chosen.unit, ["" if value is None else _cell(value / chosen.divisor) for value in values]


BAR, FULL = 20, "\u2588"
"""Characters of a whole, and what one of them is."""

TINY, HUGE = 1e-3, 1e4
"""Below this many of its column's unit a value ends with its last digit that says something: ``0.000004`` for 4 bytes
among megabytes; from this many on it has commas."""


def counted(number: float, noun: str) -> str:
    """A number of things.

    >>> counted(1, "call"), counted(1200, "call"), counted(2, "guess")
    ('1 call', '1,200 calls', '2 guesses')
    """
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{number:,} {noun}{ending}"


def _cell(value: float) -> str:
    shown = significant(value)
    if abs(value) >= HUGE:
        return f"{float(shown):,.0f}"
    return shown.rstrip("0") if 0 < abs(value) < TINY else shown
