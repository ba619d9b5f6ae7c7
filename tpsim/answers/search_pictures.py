"""A search as a picture: the seconds of a step over the bytes at its peak, of what was planned and of all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.report.picture import Curve, Curves, Measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.answers.layout_row import Row
    from tpsim.answers.search import SearchResult
    from tpsim.report.picture import Picture

FAR = 4
"""Times the seconds of the best step beyond which a layout is not drawn."""

CELLS = 60
"""Cells of each axis; of the layouts in one the first is drawn."""


def pictures(result: SearchResult) -> Iterator[Picture]:
    """The picture of a search that found a layout."""
    if not result.rows:
        return
    best = result.rows[0].plan
    capacity, most_s = float(best.memory.capacity_bytes), FAR * float(best.step.time_s)
    for family in result.evaluation.families:
        if not family.weighed:
            family.bound(nearer=False)
    drawn = ((family, family.fitting & (family.step_s > 0)) for family in result.evaluation.families)
    fitting = [
        both
        for family, some in drawn
        for both in zip(family.step_s[some].tolist(), family.peak_bytes[some].tolist(), strict=True)
    ]
    front = _points(result.pareto or ())
    curves = [
        Curve("fits, and is no faster than drawn", _spread(fitting, most_s, capacity), "cloud"),
        Curve("the best, planned", _points(result.rows), "points"),
        *([Curve("not surpassed in both", front, "line" if len(front) > 1 else "points")] if front else []),
    ]
    asked = "" if front else " What no other surpasses in both is looked for with --pareto step,memory."
    about = (
        "Each point is a layout that fits; to the left it is faster, further down it holds less. Those that were not "
        f"planned stand at the least that their step can take; {FAR} times that of the best is left out.{asked}"
    )
    limits = [("capacity of a chip", capacity)]
    step, peak = Measure("step", "seconds", log=True), Measure("peak memory", "bytes", log=True)
    yield Curves("Speed and memory", about, step, peak, curves, limits)


def _points(rows: Sequence[Row]) -> list[tuple[float, float]]:
    return [(float(row.plan.step.time_s), float(row.plan.memory.peak_bytes)) for row in rows]


def _spread(points: Sequence[tuple[float, float]], most_s: float, most_bytes: float) -> list[tuple[float, float]]:
    """Points of which no two lie in one cell."""
    near = ((s, size) for s, size in points if s <= most_s and size <= most_bytes)
    cells = {(int(CELLS * s / most_s), int(CELLS * size / most_bytes)): (s, size) for s, size in near}
    return sorted(cells.values())
