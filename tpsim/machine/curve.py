"""A measured curve: what a collective on one route took, over what the constants of the profile predict there.

Constants describe how launches, latencies and bandwidths add up. What is left, 10 to 20 % of structure over the sizes,
belongs to one collective on one route and carries over to no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import exp, log, log2
from statistics import fmean, median, median_low
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.fabric.wires import Route, ranks_text
from tpsim.quantity.size import Size, largest, over, product, where_equal, where_positive

if TYPE_CHECKING:
    from tpsim.algebra.moves import MoveKind

SCATTER = 0.3
"""How far off the constants may be at one size: one standard deviation of a time's logarithm.

Above the 10 to 20 % that published curves show, so that what was measured counts for more than what was predicted.
"""

REACH = 8.0
"""Octaves of size over which that falls to 1/e of what two sizes share: from the floor of a curve to its knee."""

NOISE = 0.03
"""Standard deviation of a measured time's logarithm: what repeated runs show, and a curve shall not follow."""


WITHIN = 3.0
"""Deviations, in units of the noise, by which two measurements of the same may differ."""

Predict = Callable[[float], float]
"""Bytes of the whole array -> seconds that constants predict."""


@dataclass(frozen=True, slots=True)
class Knot:
    """A size that was measured: bytes of the whole array, seconds that the constants predict, and the curve's."""

    V: float
    predicted: float
    fitted: float


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """A map of predicted seconds to those measured, for one collective on one route.

    launch  the harness; None is the profile's default
    source  key of the machine's sources; "" for none
    knots   two or more, V ascending, fitted never falling
    ends    knots below the first and above the last, at sizes that nobody measured: see `extended`
    """

    kind: MoveKind
    route: Route
    launch: str | None
    source: str
    knots: tuple[Knot, ...]
    ends: tuple[tuple[Knot, ...], tuple[Knot, ...]] = ((), ())

    @property
    def path(self) -> str:
        """What a lock calls it: ``levels.nvlink.measured.all_gather over nvlink 8``."""
        return f"levels.{self.route[0].level}.measured.{describe(self)}"

    def seconds(self, V: Size, predicted: Any) -> Any:
        """Seconds of V bytes for which the constants predict `predicted`: numbers or arrays.

        Never falls in V where `predicted` does not; outside knots and ends the ratio of the last one holds.
        """
        below, above = self.ends
        first, *others = _pieces((*below, *self.knots, *above))

        def at(figure: str) -> Any:
            """A number of the piece in which V lies."""
            here = getattr(first, figure)
            for piece in others:
                here = where_positive(V - piece.V, getattr(piece, figure), here)
            return here

        return at("fitted") * over(predicted, at("predicted")) ** at("alpha") * over(V, at("V")) ** at("beta")

    def holds_on(self, route: Route) -> Any:
        """1 where a route is the one that was measured, 0 elsewhere; its numbers of ranks may be arrays."""
        axes = dict.fromkeys(segment.axis for segment in (*self.route, *route))
        return product(_same(_along(axis, self.route), _along(axis, route)) for axis in axes)

    def scaled_to(self, predict: Predict) -> MeasuredCurve:
        """The curve over other constants: each knot keeps its ratio, and more bytes still never take less."""
        ratios = [knot.fitted / knot.predicted for knot in self.knots]
        volumes = [knot.V for knot in self.knots]
        return replace(self, knots=_knots(volumes, list(map(predict, volumes)), ratios)).extended(predict)

    def beside(self, predict: Predict) -> MeasuredCurve:
        """The curve over other constants: each knot keeps its seconds."""
        knots = tuple(replace(knot, predicted=predict(knot.V)) for knot in self.knots)
        return replace(self, knots=knots).extended(predict)

    def extended(self, predict: Predict) -> MeasuredCurve:
        """The curve with ends: away from what was measured it comes back to what the constants predict.

        Half, one and two reaches out, the best linear estimate of a function with the covariance of `smoothed`: the
        logarithm of the last knot's ratio times exp(-distance/REACH). More bytes never take less there either.
        """
        first, last = self.knots[0], self.knots[-1]
        below = [_returning(first, first.V / 2**octaves, octaves, predict) for octaves in OUTWARD]
        above = [_returning(last, last.V * 2**octaves, octaves, predict) for octaves in OUTWARD]
        below = [knot for knot in below if knot.V >= 1]
        falling = accumulate(
            below, lambda more, knot: replace(knot, fitted=min(knot.fitted, more.fitted)), initial=first
        )
        rising = accumulate(above, lambda less, knot: replace(knot, fitted=max(knot.fitted, less.fitted)), initial=last)
        return replace(self, ends=(tuple(falling)[:0:-1], tuple(rising)[1:]))


def describe(curve: MeasuredCurve) -> str:
    """What the curve is about, in words: ``all_gather over nvlink 8, launched by threads``."""
    by = f", launched by {curve.launch}" if curve.launch else ""
    return f"{curve.kind} over {ranks_text(curve.route)}{by}"


OUTWARD = (REACH / 2, REACH, 2 * REACH)
"""Octaves beyond the outermost knots at which a curve has ends."""


def _returning(knot: Knot, V: float, octaves: float, predict: Predict) -> Knot:
    """What a knot says of another size, so many octaves away."""
    predicted = predict(V)
    return Knot(V, predicted, predicted * (knot.fitted / knot.predicted) ** exp(-octaves / REACH))


class _Piece(NamedTuple):
    """What holds from V bytes on: fitted * (P/predicted)**alpha * (bytes/V)**beta, for predicted seconds P."""

    V: float
    predicted: float
    fitted: float
    alpha: float
    beta: float


def _pieces(knots: Sequence[Knot]) -> Iterator[_Piece]:
    """Below the first knot, from each knot to the next, and beyond the last."""
    first, last = knots[0], knots[-1]
    yield _Piece(first.V, first.predicted, first.fitted, 1, 0)
    for low, high in pairwise(knots):
        yield _Piece(low.V, low.predicted, low.fitted, *_powers(low, high))
    yield _Piece(last.V, last.predicted, last.fitted, 1, 0)


def _powers(low: Knot, high: Knot) -> tuple[float, float]:
    """The powers of predicted time and of size that lead from knot to knot.

    Of the rise the predicted time brings what it has, a power of at most 1, and the size evenly the rest.
    """
    rise, expected = log(high.fitted / low.fitted), log(high.predicted / low.predicted)
    if rise < expected:
        return rise / expected, 0
    return 1, (rise - expected) / log(high.V / low.V)


def _along(axis: str, route: Route) -> Route:
    return tuple(segment for segment in route if segment.axis == axis)


APART = {"switch", "mesh"}
"""Where groups do not meet, however many there are."""


def _same(measured: Route, here: Route) -> Any:
    """1 where a route has along an axis the one segment that was measured there; segments of one device are none."""
    if not measured:
        return where_equal(product(segment.n for segment in here), 1, 1)
    (own,) = measured
    alike = [segment for segment in here if segment.topology == own.topology]
    if not alike:
        return 0
    shared = [where_equal(segment.stride, own.stride, 1) for segment in alike if segment.topology not in APART]
    shared += [where_equal(segment.sharing, own.sharing or 1, 1) for segment in alike if segment.sharing is not None]
    longest = [where_equal(largest(*(segment.n for segment in alike)), own.n, 1)] if len(here) > 1 else []
    return product([where_equal(product(segment.n for segment in here), own.n, 1), *longest, *shared])


# From measurements -----------------------------------------------------------------------------------------------


def smoothed(
    sizes: Sequence[float], predicted: Sequence[float], measured: Sequence[float], noise: float = NOISE
) -> tuple[Knot, ...]:
    """The knots of a curve through measurements; several of one size count as their mean.

    sizes                bytes, in any order
    predicted, measured  seconds

    The logarithm of measured over predicted is taken for a random function of log2(V) around 0, whose covariance falls
    as exp(-distance/REACH); a knot has its best linear estimate, by kriging (Matheron, Principles of geostatistics,
    1963). More bytes never take less: where they would, see `isotonic`.
    """
    volumes = sorted(set(sizes))
    points = list(zip(sizes, predicted, measured, strict=True))
    off = [fmean(log(took / predicted_s) for size, predicted_s, took in points if size == V) for V in volumes]
    predicted_s = {size: seconds for size, seconds, _ in points}
    ratios = [exp(residual) for residual in _kriged([log2(V) for V in volumes], off, noise)]
    return _knots(volumes, [predicted_s[V] for V in volumes], ratios)


def _kriged(x: Sequence[float], off: Sequence[float], noise: float) -> list[float]:
    """The best linear estimate, at the places x themselves, of what was seen there with noise."""
    import numpy as np

    places = np.array(x)
    covariance = SCATTER**2 * np.exp(-np.abs(places[:, None] - places[None, :]) / REACH)
    weights = np.linalg.solve(covariance + noise**2 * np.eye(len(x)), np.array(off))
    return [float(residual) for residual in covariance @ weights]


def _knots(volumes: Sequence[float], predicted: Sequence[float], ratios: Sequence[float]) -> tuple[Knot, ...]:
    level = isotonic([log(seconds * ratio) for seconds, ratio in zip(predicted, ratios, strict=True)])
    return tuple(Knot(V, seconds, exp(by)) for V, seconds, by in zip(volumes, predicted, level, strict=True))


def isotonic(values: Sequence[float]) -> list[float]:
    """A sequence near `values` that never falls: neighbours that fall are pooled until their middles rise.

    Source: Ayer et al., An empirical distribution function for sampling with incomplete information, 1955, with medians
    in the place of means, so that one wild value moves no others.

    >>> isotonic([1, 9, 2, 3, 4])
    [1, 2, 2, 3, 4]
    """
    pools: list[list[float]] = []
    for value in values:
        pool = [value]
        while pools and _middle(pools[-1]) > _middle(pool):
            pool = pools.pop() + pool
        pools.append(pool)
    return [_middle(pool) for pool in pools for _ in pool]


def _middle(pool: Sequence[float]) -> float:
    """The median; beyond the noise the lower one, as what disturbs a measurement makes it slower, and hardly faster."""
    return (median if max(pool) - min(pool) <= WITHIN * NOISE else median_low)(pool)
