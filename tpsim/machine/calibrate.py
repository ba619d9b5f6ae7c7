"""A machine fitted to measured collectives: several collectives, rank counts and harnesses at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpsim.machine import timing
from tpsim.machine.adjust import adjustable, adjusted, with_harness
from tpsim.machine.determine import Array, Fit, fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    machine    with the figures that moved
    series     what it was fitted to, and how far off each point is: log(measured/predicted), before and after
    """

    base: Machine
    machine: Machine
    series: tuple[Series, ...]
    fit: Fit
    before: tuple[Array, ...]
    after: tuple[Array, ...]

    @property
    def moved(self) -> Mapping[str, tuple[float, float]]:
        """Paths of the constants that moved: what the base says, and what the fit says."""
        was = {one.path: one.value for one in self.base.constants()}
        return {path: (was[path], self.fit.values[path]) for path in self.fit.moved}


def calibrate(machine: Machine, series: Sequence[Series]) -> Calibrated:
    """The machine with figures that fit the series; those that the series cannot determine stay.

    Raises InputError for a series that the machine cannot price, and ValueError without any point.
    """
    base = machine
    for harness in dict.fromkeys(one.launch for one in series if one.launch):
        base = with_harness(base, harness)
    levels = {segment.level for one in series for segment in one.route}
    seconds = [value for one in series for value in one.seconds]
    found = fit(lambda values: _all(adjusted(base, values), series), list(adjustable(base, levels)), seconds)
    fitted = adjusted(base, {path: found.values[path] for path in found.moved})
    before, after = (tuple(_off(one, here) for one in series) for here in (base, fitted))
    return Calibrated(base, fitted, tuple(series), found, before, after)


def _all(machine: Machine, series: Sequence[Series]) -> Array:
    return np.concatenate([one.predicted(machine) for one in series])


def _off(series: Series, machine: Machine) -> Array:
    return np.log(np.array(series.seconds) / series.predicted(machine))
