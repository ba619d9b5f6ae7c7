"""A collective as pictures: bus bandwidth and seconds over sizes, predicted and, where there are such, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.algebra.moves import wire
from tpsim.report.picture import Curve, Curves, Measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.answers.collective import CollectiveResult, CollectiveRow
    from tpsim.report.picture import Picture

Points = list[tuple[float, float]]
"""Bytes of the whole array, and seconds."""

PREDICTED, CONSTANTS, PROFILE, LOG = "predicted", "by the constants alone", "measured, in the profile", "measured"


def pictures(result: CollectiveResult, rows: Sequence[CollectiveRow]) -> Iterator[Picture]:
    """Both pictures of some rows of a collective; none of one that costs nothing."""
    curves = {name: points for name, points in _seconds(result, rows).items() if points}
    if not any(name == PREDICTED for name in curves):
        return
    kind, ranks, size = result.asked.collective, result.asked.ranks, Measure("size", "bytes", log=True)
    over = f"{kind} over {result.route} of {result.machine.name}, by the bytes of the whole array"
    rates = {
        name: [(V, float(wire(kind, V, ranks)) / seconds) for V, seconds in points] for name, points in curves.items()
    }
    bandwidth, time = Measure("bus bandwidth", "bytes_per_s"), Measure("time", "seconds", log=True)
    peak = result.curve.peak_busbw_bytes_per_s
    limits = [("what ever larger arrays approach", peak)] if peak else []
    yield Curves("Bus bandwidth", f"Of {over}.", size, bandwidth, _curves(rates), limits)
    yield Curves("Time", f"Of one {over}.", size, time, _curves(curves))


def _seconds(result: CollectiveResult, rows: Sequence[CollectiveRow]) -> dict[str, Points]:
    """What is drawn, by name; measured points of a profile are those of the curves that the rows were timed by."""
    timed = [(float(row.logical_bytes), float(row.time_s), float(row.curve_s), row.measured_s) for row in rows]
    several = dict.fromkeys(curve for timing in result.timings for curve in timing.curves)
    knots = [(float(knot.V), float(knot.fitted)) for curve in several for knot in curve.knots]
    low, high = min(V for V, *_ in timed), max(V for V, *_ in timed)
    return {
        PREDICTED: [(V, seconds) for V, seconds, _, _ in timed if seconds],
        CONSTANTS: [(V, seconds - curve) for V, seconds, curve, _ in timed if several and seconds > curve],
        PROFILE: [(V, seconds) for V, seconds in knots if low <= V <= high],
        LOG: [(V, float(seconds)) for V, _, _, seconds in timed if seconds],
    }


def _curves(curves: dict[str, Points]) -> list[Curve]:
    return [
        Curve(name, sorted(points), "points" if name in (PROFILE, LOG) or len(points) == 1 else "line")
        for name, points in curves.items()
    ]
