"""A machine fitted to measured collectives: constants to all of them at once, then a curve over each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tpsim.calibrate.determine import NOISE, Fit, FitParameter, fit
from tpsim.machine.curve import MeasuredCurve, smoothed
from tpsim.machine.parts import Level, Machine, changed
from tpsim.machine.timing import default_harness, predicted_by_constants

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

    from tpsim.calibrate.run import Array, MeasuredRun
    from tpsim.fabric.wires import Route
    from tpsim.machine.constant import Constant


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A machine whose figures fit what was measured.

    base     the machine before, with a launch for every harness that was measured
    machine  with the figures that moved, and the curves over what they predict
    runs     what it was fitted to
    """

    base: Machine
    machine: Machine
    runs: tuple[MeasuredRun, ...]
    fit: Fit


def calibrate(machine: Machine, runs: Sequence[MeasuredRun]) -> Calibrated:
    """The machine with figures that fit the runs, and curves over them; what the runs cannot determine stays.

    Raises InputError for a run that the machine cannot price, and ValueError without any point.
    """
    base = machine
    for harness in dict.fromkeys(run.launch for run in runs if run.launch):
        base = with_harness(base, harness)
    plain = replace(base, measured=())
    figures = list(adjustable(plain, {segment.level for run in runs for segment in run.route}))
    shared = latencies([figure for figure in figures if base.level(figure.name.split(".")[1]).topology != "host"])
    factors = [FitParameter(name, 1.0, GENERATIONS) for name in shared]
    near, far = (
        fit(
            lambda values: _predicted(adjusted(plain, _times(values, shared)), runs),
            parameters,
            [value for run in runs for value in run.seconds],
        )
        for parameters in (figures, [*factors, *figures])
    )
    fitted = _of_figures(far if near.misfit - far.misfit > WORTH else near, shared)
    moved = adjusted(plain, fitted.values)
    fresh = tuple(_curves(moved, runs))
    return Calibrated(base, replace(moved, measured=(*fresh, *_kept(base, moved, fresh))), tuple(runs), fitted)


FOLDS = 3
"""Parts of the sizes that are left out in turn: few enough that between two that are left most others lie."""


def left_out(calibrated: Calibrated) -> list[Array] | None:
    """Seconds of every run's points as a fit predicts them that has none of their size; None of too few sizes.

    Sizes are left out for all runs at once, every third one in turn.
    """
    runs = calibrated.runs
    sizes = sorted({V for run in runs for V in run.V})
    if len(sizes) < FOLDS:
        return None
    found = [np.empty(len(run.V)) for run in runs]
    for fold in range(FOLDS):
        out = set(sizes[fold::FOLDS])
        kept = [part for run in runs if (part := run.without(out)).V]
        machine = calibrate(calibrated.base, kept).machine
        for run, seconds in zip(runs, found, strict=True):
            its = np.array([V in out for V in run.V])
            seconds[its] = run.predicted(machine)[its]
    return found


def _predicted(machine: Machine, runs: Sequence[MeasuredRun]) -> Array:
    """Seconds of every point of the runs, one behind the other."""
    return np.concatenate([run.predicted(machine) for run in runs])


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

UNHEARD = 5.0
"""How much farther off a guessed launch may be: a loop in a framework takes 16 times what a thread takes."""

RATIO = 1.0


def adjustable(machine: Machine, levels: Collection[str]) -> Iterator[FitParameter]:
    """The constants of these levels that a measurement may correct, by their paths.

    A datasheet's bandwidth stays where an efficiency says what share of it is reached, and the efficiency where it is
    all of it. What costs nothing stays so.
    """
    for level in (level for level in machine.levels if level.name in levels):
        link = level.link
        figure = link.efficiency if link.efficiency.value == RATIO else link.bandwidth
        for constant in level.constants():
            inner = constant.path.split(".")[2:]
            role = "launch" if inner[0] == "launch" else inner[-1]
            if role in SPREADS and constant.value > 0 and constant is not figure and "counted" not in inner:
                largest = RATIO if constant.dimension == "ratio" else float("inf")
                guessed = UNHEARD if role == "launch" else GUESSED
                spread = SPREADS[role] * (guessed if constant.kind == "guess" else 1)
                yield FitParameter(constant.path, constant.value, spread, largest)


def adjusted(machine: Machine, values: Mapping[str, float]) -> Machine:
    """The machine with other values for the constants at these paths."""

    def other(constant: Constant) -> Constant:
        return constant.but(value=values[constant.path]) if constant.path in values else constant

    return changed(machine, other)


def with_harness(machine: Machine, harness: str) -> Machine:
    """The machine with a launch latency for that harness on every level: its default, where it has none.

    The new ones are guesses, as nobody has said what that harness takes.
    """

    def launched(level: Level) -> Level:
        path = f"levels.{level.name}.launch.{harness}"
        default = next(iter(level.launch.values()))
        own = default.but(path=path, kind="guess", source="", note="as the default harness")
        return level.but(launch={**level.launch, harness: level.launch.get(harness, own)})

    return replace(machine, levels=tuple(map(launched, machine.levels)))


# Latencies of a level, together ----------------------------------------------------------------------------------

GENERATIONS = 0.35
"""How far off all latencies of a level may be together: one standard deviation of the logarithm of their factor.

Latencies of one generation of chips say little of another's: those of A100 are 1.4 times those of H100. Over a host
they are the host's, of no generation: they have no such factor.
"""

WORTH = 2 * float(np.log(GENERATIONS / NOISE))
"""What a factor must better the misfit by to be believed: of so wide a range one value was as likely as another before.

The usual measure of evidence for a parameter, its range over how well one point tells it (MacKay, Bayesian
Interpolation, 1992). Without it a near machine's latencies would take what is structure over the sizes.
"""

LATENCIES = ("latency", "hop_latency", "device_latency")
"""What such a factor moves; not what chunks of large messages cost, of which small ones tell nothing."""


def latencies(figures: Sequence[FitParameter]) -> dict[str, list[str]]:
    """The latencies among these figures, of each level under one name: ``levels.nvlink.latencies``."""
    named: dict[str, list[str]] = {}
    for figure in figures:
        first, level, *inner = figure.name.split(".")
        if inner[-1] in LATENCIES:
            named.setdefault(f"{first}.{level}.latencies", []).append(figure.name)
    return named


def _times(values: Mapping[str, float], shared: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The figures, each latency by the factor of its level's."""
    factors = {path: values[name] for name, paths in shared.items() if name in values for path in paths}
    return {path: value * factors.get(path, 1.0) for path, value in values.items() if path not in shared}


def _of_figures(fit: Fit, shared: Mapping[str, Sequence[str]]) -> Fit:
    """A fit of figures and of factors that they share, as one of the figures: what moves a factor moves them all."""
    own = {path: error for path, error in fit.moved.items() if path not in shared}
    by_factor = {path: fit.moved[name] for name, paths in shared.items() if name in fit.moved for path in paths}
    moved = {path: float(np.hypot(own.get(path, 0.0), by_factor.get(path, 0.0))) for path in {**by_factor, **own}}
    merged = tuple(path for path in fit.merged if path not in moved and path not in shared)
    return Fit(_times(fit.values, shared), moved, merged, fit.bounded, fit.misfit)


# Curves ----------------------------------------------------------------------------------------------------------


def _curves(machine: Machine, runs: Sequence[MeasuredRun]) -> Iterator[MeasuredCurve]:
    """A curve for each collective, route and harness of which two sizes or more were measured with nothing forced."""
    by_route: dict[Hashable, list[MeasuredRun]] = {}
    for run in runs:
        if run.algorithm is None and run.protocol is None and not _crossed(run.route):
            by_route.setdefault(_about(machine, run), []).append(run)
    for first, *others in by_route.values():
        several = [first, *others]
        sizes = [float(V) for run in several for V in run.V]
        if len(set(sizes)) > 1:
            predicted = [float(by) for run in several for by in run.predicted(machine)]
            knots = smoothed(sizes, predicted, [took for run in several for took in run.seconds])
            curve = MeasuredCurve(first.kind, _busy(first.route), first.launch, "", knots)  # type: ignore[arg-type]  # priced ones are moves
            yield curve.extended(partial(predicted_by_constants, machine, curve))


def _kept(base: Machine, moved: Machine, fresh: Sequence[MeasuredCurve]) -> Iterator[MeasuredCurve]:
    """The curves that the base has of anything else, over the figures that moved; what was measured then still was."""
    routes = {_about(base, curve) for curve in fresh}
    for curve in base.measured:
        if _about(base, curve) not in routes:
            yield curve.beside(partial(predicted_by_constants, moved, curve))


def _about(machine: Machine, curve: MeasuredRun | MeasuredCurve) -> Hashable:
    return curve.kind, _busy(curve.route), curve.launch or default_harness(machine, curve.route)


def _busy(route: Route) -> Route:
    return tuple(segment for segment in route if segment.n != 1)


def _crossed(route: Route) -> bool:
    """True if others share the wires, or the ranks lie along an axis in two parts: no curve says that."""
    busy = _busy(route)
    return any(segment.stride != 1 for segment in busy) or len({segment.axis for segment in busy}) < len(busy)
