"""A machine fitted to measured collectives: constants to all of them at once, then a curve over each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tpsim.calibrate.determine import Fit, Parameter, fit
from tpsim.machine.curve import MeasuredCurve, smoothed
from tpsim.machine.profile import changed
from tpsim.machine.timing import default_harness, predicted_by_constants

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

    from tpsim.calibrate.run import Run
    from tpsim.fabric.wires import Route
    from tpsim.machine.profile import Constant, Level, Machine


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A machine whose figures fit what was measured.

    base     the machine before, with a launch for every harness that was measured
    machine  with the figures that moved, and the curves over what they predict
    runs     what it was fitted to
    """

    base: Machine
    machine: Machine
    runs: tuple[Run, ...]
    fit: Fit


def calibrate(machine: Machine, runs: Sequence[Run]) -> Calibrated:
    """The machine with figures that fit the runs, and curves over them; what the runs cannot determine stays.

    Raises InputError for a run that the machine cannot price, and ValueError without any point.
    """
    base = machine
    for harness in dict.fromkeys(run.launch for run in runs if run.launch):
        base = with_harness(base, harness)
    plain = replace(base, measured=())
    parameters = list(adjustable(plain, {segment.level for run in runs for segment in run.route}))
    found = fit(
        lambda values: np.concatenate([run.predicted(adjusted(plain, values)) for run in runs]),
        parameters,
        [value for run in runs for value in run.seconds],
    )
    moved = adjusted(plain, found.values)
    fresh = tuple(_curves(moved, runs))
    return Calibrated(base, replace(moved, measured=(*fresh, *_kept(base, moved, fresh))), tuple(runs), found)


# Constants -------------------------------------------------------------------------------------------------------

SPREADS: Mapping[str, float] = {
    "launch": 0.21,
    "latency": 0.15,
    "hop_latency": 0.105,
    "chunk_latency": 0.15,
    "device_latency": 0.15,
    "own_bandwidth": 0.15,
    "efficiency": 0.054,
    "bandwidth": 0.054,
}
"""How far a fit shall move a figure: one standard deviation of its logarithm, by what the figure is.

A third of how far a datasheet's figure may be off the machine; launches differ by harness and host, plateaus hardly.
So narrow, because constants carry over to other collectives and rank counts, and a few points cannot tell a constant
that is off from structure over the sizes that no constant describes: that is left to the measured curve.
"""

GUESSED = 2.0
"""How much farther off a guess may be."""

RATIO = 1.0


def adjustable(machine: Machine, levels: Collection[str]) -> Iterator[Parameter]:
    """The constants of these levels that a measurement may correct, by their paths.

    A datasheet's bandwidth stays where an efficiency says what share of it is reached, and the efficiency where it is
    all of it. What costs nothing stays so.
    """
    for level in (one for one in machine.levels if one.name in levels):
        told = level.efficiency if level.efficiency.value == RATIO else level.bandwidth
        for constant in level.constants():
            inner = constant.path.split(".")[2:]
            role = "launch" if inner[0] == "launch" else inner[-1]
            if role in SPREADS and constant.value > 0 and constant is not told and "counted" not in inner:
                largest = RATIO if constant.dimension == "ratio" else float("inf")
                spread = SPREADS[role] * (GUESSED if constant.kind == "guess" else 1)
                yield Parameter(constant.path, constant.value, spread, largest)


def adjusted(machine: Machine, values: Mapping[str, float]) -> Machine:
    """The machine with other values for the constants at these paths."""

    def other(constant: Constant) -> Constant:
        return replace(constant, value=values[constant.path]) if constant.path in values else constant

    return changed(machine, other)


def with_harness(machine: Machine, harness: str) -> Machine:
    """The machine with a launch latency for that harness on every level: its default, where it has none.

    The new ones are guesses, as nobody has said what that harness takes.
    """

    def launched(level: Level) -> Level:
        path = f"levels.{level.name}.launch.{harness}"
        default = next(iter(level.launch.values()))
        own = replace(default, path=path, kind="guess", source="", note="as the default harness")
        return replace(level, launch={**level.launch, harness: level.launch.get(harness, own)})

    return replace(machine, levels=tuple(map(launched, machine.levels)))


# Curves ----------------------------------------------------------------------------------------------------------


def _curves(machine: Machine, runs: Sequence[Run]) -> Iterator[MeasuredCurve]:
    """A curve for each collective, route and harness of which two sizes or more were measured with nothing forced."""
    told: dict[Hashable, list[Run]] = {}
    for run in runs:
        if run.algorithm is None and run.protocol is None and not _crossed(run.route):
            told.setdefault(_about(machine, run), []).append(run)
    for first, *others in told.values():
        several = [first, *others]
        sizes = [float(V) for run in several for V in run.V]
        if len(set(sizes)) > 1:
            predicted = [float(by) for run in several for by in run.predicted(machine)]
            knots = smoothed(sizes, predicted, [took for run in several for took in run.seconds])
            yield MeasuredCurve(first.kind, _busy(first.route), first.launch, "", knots)  # type: ignore[arg-type]  # priced ones are moves


def _kept(base: Machine, moved: Machine, fresh: Sequence[MeasuredCurve]) -> Iterator[MeasuredCurve]:
    """The curves that the base has of anything else, over the figures that moved; what was measured then still was."""
    told = {_about(base, one) for one in fresh}
    for curve in base.measured:
        if _about(base, curve) not in told:
            yield curve.beside(partial(predicted_by_constants, moved, curve))


def _about(machine: Machine, one: Run | MeasuredCurve) -> Hashable:
    return one.kind, _busy(one.route), one.launch or default_harness(machine, one.route)


def _busy(route: Route) -> Route:
    return tuple(segment for segment in route if segment.n != 1)


def _crossed(route: Route) -> bool:
    """True if others share the wires, or the ranks lie along an axis in two parts: no curve says that."""
    busy = _busy(route)
    return any(one.stride != 1 for one in busy) or len({one.axis for one in busy}) < len(busy)
