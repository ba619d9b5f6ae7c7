"""The verb `hw fit`: from logs of collectives to a machine whose constants are measured, or from a list of steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpsim.answers.collective import kind_of
from tpsim.answers.collective_sizes import placed
from tpsim.calibrate.calibrate import calibrate
from tpsim.calibrate.fitted import FitResult
from tpsim.calibrate.logs import read
from tpsim.calibrate.step_fit import hw_fit_runs
from tpsim.fabric.placement import carriers_of
from tpsim.fabric.wires import ranks_text
from tpsim.machine import timing
from tpsim.machine.algorithms import EVERY
from tpsim.machine.curve import MeasuredCurve, describe
from tpsim.machine.curve_file import exact
from tpsim.machine.profile import read as read_profile
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.calibrate.run import MeasuredRun
    from tpsim.calibrate.step_fitted import StepFitResult
    from tpsim.machine.parts import Machine
    from tpsim.quantity.progress import Progress

LOOSE = 0.5
"""Relative error of a figure from which on it is a bound rather than a measurement."""

WIDE = 0.2
"""Median error of a band from which on the result says that the model does not describe what was measured."""


@checked
def hw_fit(
    logs: str | Path | Sequence[str | Path] = (),
    *,
    base: str,
    runs: str | Path | None = None,
    name: str | None = None,
    level: str | None = None,
    collective: str | None = None,
    ranks: int | None = None,
    progress: Progress | None = None,
) -> FitResult | StepFitResult:
    """Fit a machine to measured collectives, or what its chips reach of their peaks to measured steps.

    logs   one or several, of nccl-tests, rccl-tests (text, ``-J`` JSON) or the OSU micro-benchmarks
    runs   a list of steps instead, of which nothing else is said: `tpsim.calibrate.step_fit.hw_fit_runs`
    base   a machine of the library, or a profile's file: what they cannot determine stays as it has it
    name   of the new machine; None: the base's, and ``-measured``
    level  where the ranks lay; None: innermost levels first
    collective, ranks  of logs that do not say theirs
    progress  of runs: is told how often they are planned, of how often

    Raises InputError for logs that cannot be trusted, runs that the machine cannot price, and for both or neither.
    """
    if runs is not None:
        of_logs = {"logs": logs or None, "level": level, "collective": collective, "ranks": ranks}
        beside = [name for name, value in of_logs.items() if value is not None]
        if beside:
            message = f"of measured steps there are no {', '.join(beside)}"
            remedy = "fit the logs first, then --runs with that machine as --base"
            raise InputError.one("logs-beside-runs", message, remedy=remedy)
        return hw_fit_runs(runs, base=base, name=name, progress=progress)
    if not logs:
        message, remedy = "neither logs of collectives nor measured steps are given", "give logs, or --runs FILE"
        raise InputError.one("nothing-to-fit", message, remedy=remedy)
    machine, document = read_profile(base)
    kind = None if collective is None else kind_of(collective)
    every = [logs] if isinstance(logs, str | Path) else logs
    made, again = _once([read(log, collective=kind, ranks=ranks) for log in every])
    usable = [run for run in made if run.priced]
    if not usable:
        kinds = ", ".join(dict.fromkeys(run.kind for run in made)) or "no run"
        raise InputError.one("nothing-to-fit", f"the logs hold {kinds}, for which tpsim has no price")
    warnings = [*again, *(text for run in made for text in _remarks(run))]
    pairs = [laid(machine, run, level) for run in usable]
    warnings += [text for _, texts in pairs for text in texts]
    calibrated = calibrate(machine, [run for run, _ in pairs])
    result = FitResult(name or f"{machine.name}-measured", base, document, calibrated, tuple(warnings))
    return replace(result, warnings=(*warnings, *_doubts(result)))


def _once(logs: Sequence[Sequence[MeasuredRun]]) -> tuple[list[MeasuredRun], list[str]]:
    """The runs of logs, of two that are the same those of the first; a word on each that is left out."""
    first: dict[str, Sequence[MeasuredRun]] = {}
    pairs = [(runs[0].log, first.setdefault(runs[0].sha256, runs), runs) for runs in logs]
    again = [
        f"{log}: the same as {same[0].log}: its points count once" for log, same, runs in pairs if same is not runs
    ]
    return [run for runs in first.values() for run in runs], again


def _remarks(run: MeasuredRun) -> Iterator[str]:
    yield from run.warnings
    if not run.priced:
        yield f"{run.log}:{run.lines[0]}: {run} is left out: tpsim has no price for it"


# Runs on the machine ---------------------------------------------------------------------------------------------

OVER_LEVELS = {algorithm.name: algorithm.on_nodes for algorithm in EVERY if algorithm.on_nodes}
"""What NCCL's Ring and NVLS are where the ranks lie on several levels: one ring over all, and the network sums too."""


def laid(machine: Machine, run: MeasuredRun, level: str | None = None) -> tuple[MeasuredRun, list[str]]:
    """A run on the machine's wires, without what was forced on it if that does not reach it there; a word on it.

    Raises InputError if the run does not fit on the machine, or has no price there, and as `level_of` does.
    """
    route = placed(machine, run.ranks, level_of(machine, run, level))[0].route(["ranks"])
    choice = " and ".join(word for word in (run.algorithm, run.protocol) if word)
    remarks = []
    if choice and run.kind in timing.SENDS:  # NCCL, src/enqueue.cc: its choice for sends asks for neither
        remarks = [f"{run.log}: {run} consists of sends, which {choice} does not reach: taken as chosen freely"]
        run = replace(run, algorithm=None, protocol=None)
    over_levels = OVER_LEVELS.get(run.algorithm or "")
    if over_levels and over_levels in timing.algorithms(machine, route, run.kind):  # type: ignore[arg-type]  # priced ones are moves
        run = replace(run, algorithm=over_levels)
    forced = replace(run, route=route)
    if _refusal(machine, forced) is None:
        return forced, remarks
    free = replace(forced, algorithm=None, protocol=None)
    wrong = _refusal(machine, free)
    if wrong is not None:
        (problem, *_) = wrong.problems
        message = f"{run.log}: {run}: {problem.message}"
        raise InputError.one(problem.slug, message, remedy=problem.remedy, note=problem.note)
    return free, [f"{run.log}: {run} was forced to {choice}, which {machine.name} has not: taken as chosen freely"]


def _refusal(machine: Machine, run: MeasuredRun) -> InputError | None:
    """Why the machine cannot run it so, whatever the launch."""
    try:
        replace(run, launch=None).predicted(machine)
    except InputError as error:
        return error
    return None


def level_of(machine: Machine, run: MeasuredRun, level: str | None) -> str | None:
    """Where a run's ranks lay, as `collective` takes it: what the user says, with how many of them were on a host.

    Raises InputError if the log's hosts do not decide it: a host may be a node of the machine, or a part of one.
    """
    hosts = run.nodes or 1
    if hosts == 1 or (level is not None and (len(carriers_of(level)) == 1 or ":" in level)):
        return level
    route = placed(machine, run.ranks, level)[0].route(["ranks"])
    if route[0].n * hosts == run.ranks:
        return level
    if level is None or run.ranks % hosts:
        names = [level.name for level in machine.levels]
        outer = f"; --level {names[0]},{names[1]} if each host is a node" if len(names) > 1 else ""
        raise InputError.one(
            "unknown-placement",
            f"{run.log}: {run} ran on {run.nodes} hosts; {machine.name} would put them on {ranks_text(route)}",
            remedy=f"give --level {names[0]} if that joins the hosts{outer}",
        )
    inner, *others = carriers_of(level)
    return ",".join([f"{inner}:{run.ranks // hosts}", *others])


# What came out ---------------------------------------------------------------------------------------------------


def _doubts(result: FitResult) -> Iterator[str]:
    """What the data cannot determine, and where the model does not describe them."""
    fit, base, machine = result.calibrated.fit, result.base, result.calibrated.machine
    if not fit.moved:
        curves = ", and only curves differ" if machine.measured else ""
        yield f"the logs determine no figure: each stays as {base} has it{curves}"
    if fit.merged:
        names = ", ".join(fit.merged)
        yield f"these matter but cannot be told from those fitted, and stay as {base} has them: {names}"
    loose = [f"{path} (+-{error:.0%})" for path, error in fit.moved.items() if error > LOOSE]
    if loose:
        yield f"the logs bound these more than they measure them: {', '.join(loose)}"
    for path in fit.bounded:
        yield f"{path} would have to be more than all of it: are ranks, collective and level those that were measured?"
    for row in result.bands[:-1]:  # what has no curve is not described where the constants do not
        if row["figures_median"] > WIDE:
            yield (
                f"by figures alone, as for other collectives and ranks, sizes of the {row['band']} are still "
                f"{row['figures_median']:.0%} off (median)"
            )
    for curve in machine.measured:
        yield from _too_fast(machine, curve)


def _too_fast(machine: Machine, curve: MeasuredCurve) -> Iterator[str]:
    """Knots that are faster than the wires are: what their busiest link carries takes longer at its full rate."""
    rate = max(machine.level(segment.level).link.bandwidth.value for segment in curve.route)
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
