"""The whole curve of a collective: its floor, where the way changes, and where bandwidth is reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpsim.report.record import Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpsim.machine.timing import Timing

LARGEST = 2**44
"""Bytes up to which ways are compared: beyond any array of one collective."""

ENDLESS = 2**70
"""Bytes at which nothing but bandwidth is left."""

HALF, NEARLY = 0.5, 0.95


@dataclass(frozen=True, slots=True)
class WayFrom(Record):
    """The way that is taken from a size on."""

    from_bytes: int
    algorithm: str
    protocol: str


@dataclass(frozen=True, slots=True)
class SizeCurve(Record):
    """A collective over all sizes.

    floor_s  what the smallest array takes
    peak_busbw_bytes_per_s  what ever larger arrays approach; null, like the sizes, if the collective costs nothing
    half_peak_bytes, p95_peak_bytes  from which on half, and 95 %, of it is reached
    ways     ascending; each one serves up to the next
    """

    floor_s: Seconds
    peak_busbw_bytes_per_s: float | None
    half_peak_bytes: int | None
    p95_peak_bytes: int | None
    ways: tuple[WayFrom, ...]


def curve(timed: Callable[[int], Timing], least: int) -> SizeCurve:
    """The curve of `timed`, seconds by bytes; `least` are the bytes of the smallest array."""
    floor = float(timed(least).time_s)
    if not floor:
        return SizeCurve(0.0, None, None, None, ())
    peak, ways = _rate(timed(ENDLESS)), tuple(_ways(timed, least))

    def reached(share: float) -> int:
        """From where on the rate stays: it rises along each way, and may drop where the next one is taken."""
        ends = [way.from_bytes for way in ways[1:]] + [ENDLESS]
        for way, end in reversed(list(zip(ways, ends, strict=True))):
            if _rate(timed(way.from_bytes)) < share * peak:
                return _first(way.from_bytes, end, lambda V: _rate(timed(V)) >= share * peak)
        return least

    return SizeCurve(floor, peak, reached(HALF), reached(NEARLY), ways)


def _rate(timed: Timing) -> float:
    return float(timed.wire) / float(timed.time_s)


def _ways(timed: Callable[[int], Timing], least: int) -> Iterator[WayFrom]:
    """Every change of the way, found between doublings."""
    low, here = least, _way(timed(least))
    yield WayFrom(least, *here)
    while low < LARGEST:
        if _way(timed(2 * low)) == here:
            low *= 2
        else:
            low = _first(low, 2 * low, lambda V, here=here: _way(timed(V)) != here)  # type: ignore[misc]
            here = _way(timed(low))
            yield WayFrom(low, *here)


def _way(timed: Timing) -> tuple[str, str]:
    return timed.algorithm, timed.protocol


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least size above `low`, for which it does not hold, from which on something holds."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
