"""The verb `hw fit`: logs of measured collectives to a machine whose figures fit them, with curves, as a profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim import __version__
from tpsim.answers.collective import kind_of, placed
from tpsim.answers.hw import curve_record
from tpsim.calibrate.calibrate import Calibrated, Series, calibrate
from tpsim.calibrate.logs import Measured, read
from tpsim.fabric.wires import ranks_text
from tpsim.machine import timing
from tpsim.machine.curve import describe
from tpsim.machine.curve_file import exact
from tpsim.machine.profile_file import read as read_profile
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.inputs import inputs
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.calibrate.determine import Array
    from tpsim.calibrate.logs import Run
    from tpsim.fabric.wires import Route
    from tpsim.machine.curve import MeasuredCurve
    from tpsim.machine.profile import Constant, Machine
    from tpsim.quantity.spec import Document

SCHEMA = "tpsim.hw-fit/1"

KIBI = 1024
BANDS: Mapping[str, float] = {"floor": 64 * KIBI, "middle": KIBI**2, "knee": 128 * KIBI**2, "plateau": float("inf")}
"""Names of size bands, and the largest logical bytes in each."""

LOOSE = 0.5
"""Relative error of a figure from which on it is a bound rather than a measurement."""

WIDE = 0.2
"""Median error of a band from which on the result says that the model does not describe what was measured."""

SOURCE = "fit"
"""The key of a profile's source that its logs have."""


@dataclass(frozen=True)
class FitResult(Answer):
    """A machine fitted to logs.

    base      how the request names the machine that it started from; `document` is its file
    measured  runs, with the series of the fit beside them
    warnings  what the logs, and the fit, cannot be trusted in
    """

    name: str
    base: str
    document: Document
    calibrated: Calibrated
    measured: tuple[Measured, ...]
    warnings: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        """The machine with the figures that fit, and the curves; those that the logs tell are from this fit."""
        fitted = self.calibrated.machine
        curves = (one if one.source else replace(one, source=self.source) for one in fitted.measured)
        return replace(fitted, name=self.name, measured=tuple(curves))

    @property
    def source(self) -> str:
        """The key of the profile's source; the base may have earlier fits."""
        keys = (f"{SOURCE}{'' if at == 1 else f'-{at}'}" for at in count(1))
        return next(key for key in keys if key not in self.calibrated.base.sources)

    def records(self) -> list[dict[str, Any]]:
        """One row per measured point: where it stands, what it took, and what base, figures and curves predict."""
        found = self.calibrated
        off = zip(found.before, found.by_constants, found.after, strict=True)
        together = zip(self.measured, found.series, off, strict=True)
        return [row for run, series, each in together for row in _points(run, series, *each)]

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """One row per figure that moved, in the order of the profile."""
        constants = {one.path: one for one in self.calibrated.base.constants()}
        moved = self.calibrated.moved
        return [self._parameter(constants[path]) for path in constants if path in moved]

    def _parameter(self, constant: Constant) -> dict[str, Any]:
        found = self.calibrated.fit
        return {
            "constant": constant.path,
            "dimension": constant.dimension,
            "base": constant.value,
            "base_kind": constant.kind,
            "value": dict(found.values)[constant.path],
            "relative_error": found.errors[constant.path],
        }

    @cached_property
    def bands(self) -> list[dict[str, Any]]:
        """One row per band of sizes that was measured, then all of them: |predicted/measured - 1|, by each."""
        rows = self.records()
        named = {name: [row for row in rows if row["band"] == name] for name in BANDS}
        return [_band(name, inside) for name, inside in {**named, "all": rows}.items() if inside]

    @property
    def verdict(self) -> str:
        """One line: how far off the predictions are now, and were."""
        every = self.bands[-1]
        moved, curves = len(self.parameters), sum(one.source == self.source for one in self.machine.measured)
        over = f", {every['fitted_median']:.1%} with {curves} curve{'s' * (curves != 1)}" if curves else ""
        return (
            f"{moved} figure{'s' * (moved != 1)} fitted to {every['points']} points: median error "
            f"{every['base_median']:.1%} before, {every['figures_median']:.1%} after{over}"
        )

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        found = self.calibrated.fit
        return {
            "schema": SCHEMA,
            "tpsim": __version__,
            "inputs": [{"path": path, "sha256": digest} for path, digest in self.inputs],
            "resolved": {"base": self.base, "name": self.name, "runs": [_run(one) for one in self.measured]},
            "result": {
                "verdict": self.verdict,
                "parameters": self.parameters,
                "undetermined": list(found.merged),
                "curves": [curve_record(one) for one in self.machine.measured],
                "bands": self.bands,
                "points": self.records(),
            },
            "assumptions": [{"text": text, "kind": "derived"} for text in self.warnings],
            "not_modelled": [],
        }

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """The base's file and the logs, each with its hash."""
        logs = dict.fromkeys((one.log, one.sha256) for one in self.measured)
        return [*inputs(self.document), *logs]

    def to_yaml(self, folder: Path = Path()) -> str:
        """The profile, to stand in `folder`: what `-o profile.yaml` writes."""
        from tpsim.calibrate.fitted import profile_text

        return profile_text(self, folder)


def hw_fit(
    logs: str | Path | Sequence[str | Path],
    *,
    base: str,
    level: str | None = None,
    name: str | None = None,
    collective: str | None = None,
    ranks: int | None = None,
) -> FitResult:
    """Fit a machine's launches, latencies and bandwidths to measured collectives.

    logs   one or several, of nccl-tests, rccl-tests (text, ``-J`` JSON) or the OSU micro-benchmarks
    base   a machine of the library, or a profile's file: what the logs cannot determine stays as it has it
    level  where the ranks lay; None: innermost levels first
    name   of the new machine; None: the base's, and ``-measured``
    collective, ranks  of logs that do not say theirs

    Raises InputError for logs that cannot be trusted, and runs that the machine cannot price.
    """
    machine, document = read_profile(base)
    kind = None if collective is None else kind_of(collective)
    every = [logs] if isinstance(logs, str | Path) else logs
    found = [measured for log in every for measured in read(log, collective=kind, ranks=ranks)]
    usable = [one for one in found if one.run.priced]
    if not usable:
        what = ", ".join(dict.fromkeys(one.run.collective for one in found)) or "no run"
        raise InputError.one("nothing-to-fit", f"the logs hold {what}, for which tpsim has no price")
    remarks = [text for one in found for text in _remarks(one)]
    pairs = [series_of(machine, one, level) for one in usable]
    calibrated = calibrate(machine, [series for series, _ in pairs])
    warnings = [*remarks, *(text for _, texts in pairs for text in texts)]
    result = FitResult(name or f"{machine.name}-measured", base, document, calibrated, tuple(usable), tuple(warnings))
    return replace(result, warnings=(*result.warnings, *_doubts(result)))


def _remarks(measured: Measured) -> Iterator[str]:
    yield from measured.warnings
    if not measured.run.priced:
        yield f"{measured.log}:{measured.points[0].line}: {measured.run} is left out: tpsim has no price for it"


# Runs on the machine ---------------------------------------------------------------------------------------------


def series_of(machine: Machine, measured: Measured, level: str | None = None) -> tuple[Series, list[str]]:
    """A run as a series on the machine, and what was taken for granted.

    Raises InputError if the run does not fit on the machine, or has no price there.
    """
    run, route = measured.run, route_of(machine, measured, level)
    series = Series(
        run.collective,  # type: ignore[arg-type]  # priced ones are moves
        route,
        tuple(point.V for point in measured.points),
        tuple(point.seconds for point in measured.points),
        run.harness or None,
        _over_levels(machine, run, route),
        run.protocol,
    )
    return _with_what_the_machine_knows(machine, series, measured)


OVER_LEVELS = {"ring": "flat-ring", "in-switch": "in-switch-network"}
"""What NCCL's Ring and NVLS are where the ranks lie on several levels: one ring over all, and the network sums too."""


def _over_levels(machine: Machine, run: Run, route: Route) -> str | None:
    """The algorithm that was forced on a run, as it is called on this route."""
    if run.algorithm not in OVER_LEVELS or not run.priced:
        return run.algorithm
    known = timing.algorithms(machine, route, run.collective)  # type: ignore[arg-type]  # priced ones are moves
    name = OVER_LEVELS[run.algorithm]
    return name if name in known else run.algorithm


def route_of(machine: Machine, measured: Measured, level: str | None) -> Route:
    """The wires that a run's ranks lay on. Raises InputError as `level_of` does."""
    return placed(machine, measured.run.ranks, level_of(machine, measured, level))[0].route(["ranks"])


def level_of(machine: Machine, measured: Measured, level: str | None) -> str | None:
    """Where a run's ranks lay, as `collective` takes it: what the user says, with how many of them were on a host.

    Raises InputError if the log's hosts do not decide it: a host may be a node of the machine, or a part of one.
    """
    run = measured.run
    several = run.nodes is not None and run.nodes > 1
    if not several or (level is not None and ("," not in level or ":" in level)):
        return level
    route = placed(machine, run.ranks, level)[0].route(["ranks"])
    hosts, share = run.nodes or 1, route[0].n
    if share * hosts == run.ranks:
        return level
    if level is None or run.ranks % hosts:
        raise _undecided(machine, measured, ranks_text(route))
    inner, *outer = (text.strip() for text in level.split(","))
    return ",".join([f"{inner}:{run.ranks // hosts}", *outer])


def _undecided(machine: Machine, measured: Measured, route: str) -> InputError:
    run, names = measured.run, [level.name for level in machine.levels]
    outer = f"; --level {names[0]},{names[1]} if each host is a node" if len(names) > 1 else ""
    return InputError.one(
        "unknown-placement",
        f"{measured.log}: {run} ran on {run.nodes} hosts; {machine.name} would put them on {route}",
        remedy=f"give --level {names[0]} if that joins the hosts{outer}",
    )


def _with_what_the_machine_knows(machine: Machine, series: Series, measured: Measured) -> tuple[Series, list[str]]:
    """The series without what was forced on the run, where the machine does not know that."""
    tried = replace(series, launch=None)
    if _refusal(machine, tried) is None:
        return series, []
    free = replace(tried, algorithm=None, protocol=None)
    wrong = _refusal(machine, free)
    if wrong is not None:
        (problem, *_) = wrong.problems
        message = f"{measured.log}: {measured.run}: {problem.message}"
        raise InputError.one(problem.slug, message, remedy=problem.remedy, note=problem.note)
    forced = " and ".join(word for word in (series.algorithm, series.protocol) if word)
    text = (
        f"{measured.log}: {measured.run} was forced to {forced}, which {machine.name} has not: taken as chosen freely"
    )
    return replace(free, launch=series.launch), [text]


def _refusal(machine: Machine, series: Series) -> InputError | None:
    try:
        series.predicted(machine)
    except InputError as error:
        return error
    return None


# What came out ---------------------------------------------------------------------------------------------------


def band(V: float) -> str:
    """The band of a size.

    >>> band(65536), band(65537), band(2**30)
    ('floor', 'middle', 'plateau')
    """
    return next(name for name, most in BANDS.items() if not most < V)


def _points(
    measured: Measured, series: Series, before: Array, by_constants: Array, after: Array
) -> Iterator[dict[str, Any]]:
    """The points of a run in rows; the arrays are log(measured/predicted)."""
    run = measured.run
    for point, was, figures, now in zip(measured.points, before, by_constants, after, strict=True):
        yield {
            "log": measured.log,
            "line": point.line,
            "collective": run.collective,
            "ranks": run.ranks,
            "harness": run.harness or None,
            "algorithm": series.algorithm,
            "protocol": series.protocol,
            "logical_bytes": point.V,
            "band": band(point.V),
            "measured_s": point.seconds,
            "base_s": point.seconds * float(np.exp(-was)),
            "figures_s": point.seconds * float(np.exp(-figures)),
            "fitted_s": point.seconds * float(np.exp(-now)),
        }


PREDICTED = ("base", "figures", "fitted")
"""By what points are predicted: the base, the figures that moved, and the curves over them."""


def _band(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far off a band's points are, relative to what was measured."""
    off = {key: np.abs(np.array([row[f"{key}_s"] / row["measured_s"] for row in rows]) - 1) for key in PREDICTED}
    return {
        "band": name,
        "points": len(rows),
        **{f"{key}_median": float(np.median(values)) for key, values in off.items()},
        **{f"{key}_p90": float(np.percentile(values, 90)) for key, values in off.items()},
    }


def _run(measured: Measured) -> dict[str, Any]:
    run = measured.run
    return {
        "log": measured.log,
        "collective": run.collective,
        "ranks": run.ranks,
        "hosts": run.nodes,
        "library": run.library or None,
        "harness": run.harness or None,
        "points": len(measured.points),
    }


def _doubts(result: FitResult) -> Iterator[str]:
    """What the data cannot determine, and where the model does not describe them."""
    found, base = result.calibrated.fit, result.base
    if not found.moved:
        curves = ", and only curves differ" if result.calibrated.machine.measured else ""
        yield f"the logs determine no figure: each stays as {base} has it{curves}"
    if found.merged:
        names = ", ".join(found.merged)
        yield f"these matter but cannot be told from those fitted, and stay as {base} has them: {names}"
    loose = [f"{path} (+-{found.errors[path]:.0%})" for path in found.moved if found.errors[path] > LOOSE]
    if loose:
        yield f"the logs bound these more than they measure them: {', '.join(loose)}"
    for path in found.bounded:
        yield f"{path} would have to be more than all of it: are ranks, collective and level those that were measured?"
    yield from _left_to_curves(result)
    for one in result.calibrated.machine.measured:
        yield from _too_fast(result.calibrated.machine, one)


def _left_to_curves(result: FitResult) -> Iterator[str]:
    """Bands of sizes that the constants do not describe: what has no curve is not described there."""
    for row in result.bands[:-1]:
        if row["figures_median"] > WIDE:
            yield (
                f"by figures alone, as for other collectives and ranks, sizes of the {row['band']} are still "
                f"{row['figures_median']:.0%} off (median)"
            )


def _too_fast(machine: Machine, curve: MeasuredCurve) -> Iterator[str]:
    """Knots that are faster than the wires are: what their busiest link carries takes longer at its full rate."""
    rate = max(machine.level(segment.level).bandwidth.value for segment in curve.route)
    for knot in curve.knots:
        timed = timing.time(machine, curve.route, curve.kind, int(knot.V), launch=curve.launch)
        least = float(timed.link_total) / rate
        if knot.fitted < least:
            took, need = show(knot.fitted, "seconds"), show(least, "seconds")
            yield (
                f"{describe(curve)} took {took} for {exact(knot.V)}, where the links alone need {need} at their full "
                f"rate ({timed.algorithm}): are ranks, collective and level those that were measured?"
            )
            return
