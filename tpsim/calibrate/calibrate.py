"""A machine fitted to measured collectives: constants to all of them at once, then a curve over each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tpsim.calibrate.adjust import adjustable, adjusted, with_harness
from tpsim.calibrate.determine import Array, Fit, fit
from tpsim.machine import timing
from tpsim.machine.curve import MeasuredCurve, smoothed
from tpsim.machine.timing import default_harness, predicted_by_constants

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.wires import Route
    from tpsim.machine.profile import Machine


@dataclass(frozen=True, slots=True)
class Series:
    """Measured times of one collective on one route.

    V, seconds  logical bytes and what they took, one by one
    launch      the harness; None is the profile's default
    algorithm, protocol  forced by who measured; None left it to the library
    """

    kind: MoveKind
    route: Route
    V: tuple[int, ...]
    seconds: tuple[float, ...]
    launch: str | None = None
    algorithm: str | None = None
    protocol: str | None = None

    def predicted(self, machine: Machine) -> Array:
        """Seconds that the machine's profile predicts for every size."""
        sizes = np.array(self.V, dtype=np.float64)
        timed = timing.time(
            machine,
            self.route,
            self.kind,
            sizes,
            launch=self.launch,
            algorithm=self.algorithm,
            protocol=self.protocol,
        )
        return np.broadcast_to(np.asarray(timed.time_s, dtype=np.float64), sizes.shape)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A machine whose figures fit what was measured.

    base       the machine before, with a launch for every harness that was measured
    machine    with the figures that moved, and the curves over what they predict
    series     what it was fitted to, and how far off each point is, log(measured/predicted): before, by the constants
               that moved, and after
    """

    base: Machine
    machine: Machine
    series: tuple[Series, ...]
    fit: Fit
    before: tuple[Array, ...]
    by_constants: tuple[Array, ...]
    after: tuple[Array, ...]

    @property
    def moved(self) -> Mapping[str, tuple[float, float]]:
        """Paths of the constants that moved: what the base says, and what the fit says."""
        was = {one.path: one.value for one in self.base.constants()}
        return {path: (was[path], self.fit.values[path]) for path in self.fit.moved}


def calibrate(machine: Machine, series: Sequence[Series]) -> Calibrated:
    """The machine with figures that fit the series, and curves over them; what the series cannot determine stays.

    Raises InputError for a series that the machine cannot price, and ValueError without any point.
    """
    base = machine
    for harness in dict.fromkeys(one.launch for one in series if one.launch):
        base = with_harness(base, harness)
    plain = replace(base, measured=())
    levels = {segment.level for one in series for segment in one.route}
    seconds = [value for one in series for value in one.seconds]
    found = fit(lambda values: _all(adjusted(plain, values), series), list(adjustable(plain, levels)), seconds)
    moved = adjusted(plain, {path: found.values[path] for path in found.moved})
    curves = tuple(_curves(moved, series))
    fitted = replace(moved, measured=(*curves, *_kept(base, moved, curves)))
    before, by_constants, after = (tuple(_off(one, here) for one in series) for here in (base, moved, fitted))
    return Calibrated(base, fitted, tuple(series), found, before, by_constants, after)


def _curves(machine: Machine, series: Sequence[Series]) -> Iterator[MeasuredCurve]:
    """A curve for each collective, route and harness of which two sizes or more were measured with nothing forced."""
    told: dict[Hashable, list[Series]] = {}
    for one in series:
        if one.algorithm is None and one.protocol is None and not _crossed(one.route):
            told.setdefault(_about(machine, one), []).append(one)
    for several in told.values():
        first = several[0]
        sizes = [float(V) for one in several for V in one.V]
        if len(set(sizes)) > 1:
            predicted = [float(by) for one in several for by in one.predicted(machine)]
            knots = smoothed(sizes, predicted, [took for one in several for took in one.seconds])
            yield MeasuredCurve(first.kind, _busy(first.route), first.launch, "", knots)


def _kept(base: Machine, moved: Machine, fresh: Sequence[MeasuredCurve]) -> Iterator[MeasuredCurve]:
    """The curves that the base has of anything else, over the figures that moved; what was measured then still was."""
    told = {_about(base, one) for one in fresh}
    for curve in base.measured:
        if _about(base, curve) not in told:
            yield curve.beside(partial(predicted_by_constants, moved, curve))


def _about(machine: Machine, one: Series | MeasuredCurve) -> Hashable:
    return one.kind, _busy(one.route), one.launch or default_harness(machine, one.route)


def _busy(route: Route) -> Route:
    return tuple(segment for segment in route if segment.n != 1)


def _crossed(route: Route) -> bool:
    """True if others share the wires, or the ranks lie along an axis in two parts: no curve says that."""
    busy = _busy(route)
    return any(one.stride != 1 for one in busy) or len({one.axis for one in busy}) < len(busy)


def _all(machine: Machine, series: Sequence[Series]) -> Array:
    return np.concatenate([one.predicted(machine) for one in series])


def _off(series: Series, machine: Machine) -> Array:
    return np.log(np.array(series.seconds) / series.predicted(machine))
