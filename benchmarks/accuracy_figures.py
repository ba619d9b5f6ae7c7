"""How far errors of collective times are off: medians, 90th percentiles, bands of sizes, tables of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from page import grid
from tpsim.calibrate import fitted as hw_fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from accuracy_tables import Point

KB = 2**10
BANDS = {"floor": "floor, to 64 KiB", "middle": "middle, to 1 MiB", "knee": "knee, to 128 MiB", "plateau": "plateau"}
"""Heads of the bands of sizes that `tpsim hw fit` reports."""


def figures(points: Sequence[Point]) -> tuple[float, float, float]:
    """Median and 90th percentile of the errors' size, and median error, in percent."""
    errors = 100 * np.array([point.error for point in points])
    size = np.abs(errors)
    return float(np.median(size)), float(np.percentile(size, 90)), float(np.median(errors))


def spread(points: Sequence[Point]) -> str:
    """Median / 90th percentile in words."""
    if not points:
        return ""
    median, high, _ = figures(points)
    return f"{median:.1f} / {high:.1f}"


def by(points: Sequence[Point], same: Callable[[Point], str], order: Sequence[str] = ()) -> Iterator[list[str]]:
    """Rows of one group each: number of points, errors, bias, errors by band."""
    groups: dict[str, list[Point]] = {name: [] for name in order}
    for point in points:
        groups.setdefault(same(point), []).append(point)
    for name, found in groups.items():
        if found:
            bands = [spread([point for point in found if band(point) == one]) for one in BANDS.values()]
            yield [name, str(len(found)), spread(found), f"{figures(found)[2]:+.1f}", *bands]


def band(point: Point) -> str:
    """The head of the band of sizes that a point lies in."""
    return BANDS[hw_fit.band(point.size)]


def grouped(points: Sequence[Point], what: str, same: Callable[[Point], str]) -> str:
    """A table of groups."""
    return grid([what, "points", "median / p90", "bias", *BANDS.values()], by(points, same))
