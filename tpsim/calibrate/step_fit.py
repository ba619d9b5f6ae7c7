"""The verb `hw fit --runs`: measured steps to a machine whose chips reach the shares of peak that these tell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import exp, log
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tpsim.answers.plan import priced
from tpsim.calibrate.calibrate import SPREADS, adjusted
from tpsim.calibrate.run_list import CsvCell, Listed, folder, read
from tpsim.calibrate.shares import LAUNCH, SHARES, WHOLE, Effects, MovedFigures, moved, scatter
from tpsim.calibrate.step_fitted import StepFitResult, StepRow
from tpsim.machine.evidence import SharesFields, evidence
from tpsim.machine.profile import read as read_profile
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError
from tpsim.quantity.progress import unwatched
from tpsim.quantity.units import show
from tpsim.question.memo import Memo
from tpsim.question.question import Question, relaunched
from tpsim.question.scenario import resolve
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpsim.calibrate.run import Array
    from tpsim.machine.parts import Machine
    from tpsim.quantity.progress import Progress
    from tpsim.question.scenario_file import LaunchFields

MILLI = 1e-3

STEP = 0.08
"""The logarithm of a share is changed by so much to see how seconds depend on it."""

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Times its launch a host is tried at: two deviations of a guessed one to either side."""

ROUNDS = 2
"""Seconds are looked at again where figures came to, for they do not grow evenly with them."""


def hw_fit_runs(
    runs: str | Path, *, base: str, name: str | None = None, progress: Progress | None = None
) -> StepFitResult:
    """Fit the shares of peak that a machine's chips reach to measured steps.

    runs  a CSV file with the columns scenario, seconds and, where they are known, memory: `tpsim.calibrate.run_list`
    base  the machine of these scenarios: what they cannot tell stays as it has it
    name  of the new machine; None: the base's, and ``-measured``
    progress  is told how often the runs are planned, of how often

    Raises InputError for a list that is none, a scenario that cannot be planned, or one of other chips.
    """
    machine, document = read_profile(base)
    log, listed = read(runs)
    memo = Memo()
    asked = [_question(run.scenario, folder(log.path), machine, base, memo) for run in listed]
    for run, question in zip(listed, asked, strict=True):
        _plausible(run, question, memo)
    starts, launched = _starts(machine), _launch(asked, listed)
    known = evidence().shares
    likely = scatter(known, machine.chip.generation, _spread(launched, known))
    shares = MovedFigures({}, {}, {})
    often, rounds = ROUNDS * (len(_launches(launched)) + 1 + len(starts)), count()

    def looked() -> None:
        (progress or unwatched)(next(rounds), often, f"rounds of {counted(len(asked), 'plan')}")

    for _ in range(ROUNDS):
        effects = _effects(asked, starts, launched, shares.by, memo, looked=looked)
        shares = moved(effects, [run.seconds for run in listed], likely, known.noise)
    unseen = _left_out(effects, [run.seconds for run in listed], likely, known.noise)
    rows = tuple(
        StepRow(
            run,
            _planned(question, {}, memo)[0],
            *_planned(question, shares.by, memo),
            None if others is None else _planned(question, others.by, memo)[0],
        )
        for run, question, others in zip(listed, asked, unseen, strict=True)
    )
    figures = {**starts, **({LAUNCH: launched.value} if launched else {})}
    return StepFitResult(name or f"{machine.name}-measured", base, document, machine, log, rows, figures, shares, known)


def _left_out(
    effects: Effects, measured: Sequence[float], likely: Mapping[str, Mapping[str, float]], noise: float
) -> Iterator[MovedFigures | None]:
    """Of every run the figures that all others tell, about where all of them came to; None of a single run."""
    for at in range(len(measured)):
        others = [run for run in range(len(measured)) if run != at]
        told = [measured[run] for run in others]
        yield moved(effects.part(others), told, likely, noise) if others else None


def _question(cell: CsvCell, beside: Path, machine: Machine, base: str, memo: Memo) -> Question:
    """What a run is of; problems that are not in its own file point at its line.

    Raises InputError for a scenario that cannot be planned, for one of inference, and for one of other chips.
    """
    try:
        question = resolve(spec.named("scenarios", cell.text, beside), memo=memo)
    except InputError as error:
        raise error.at(cell.place) from None
    if question.inference is not None:
        _refuse(cell, f"{cell.text} is of inference", "give steps of training")
    if question.matmul_efficiency is not None:
        words = ["tpsim", "plan", question.asked, "--set", "assume.matmul_efficiency=null", "--save", "mine.yaml"]
        remedy = f"leave assume.matmul_efficiency out of it: {shlex.join(words)}"
        _refuse(cell, f"{cell.text} assumes a matmul_efficiency of its own", remedy)
    if _figures(question.machine) != _figures(machine):
        _refuse(
            cell,
            f"{cell.text} is of {question.machine.name}, whose chips are not those of {base}",
            f"give --base {question.machine.name}, or a list of its own to each machine",
        )
    return question


def _plausible(run: Listed, question: Question, memo: Memo) -> None:
    """Raise InputError for a step whose useful FLOPs, without what masks hide, need longer at the whole peak.

    And for one without a unit that is nearer to the plan if milliseconds are meant.
    """
    plan = priced(question, memo)
    if run.bare and run.seconds * MILLI * run.seconds > plan.step.time_s**2:
        text, planned = run.stated.text, show(float(plan.step.time_s), "seconds")
        message = f"{run.scenario.text} is planned at {planned}, which is nearer to {text} ms than to {text} s"
        _refuse(run.stated, message, f"write {text} ms; {text} s if a step took that")
    peak = question.machine.peak(question.products).value
    least = float(plan.step.counted_by("causal")[0] / (plan.chips * peak))
    if run.seconds < least:
        needs = show(least, "seconds")
        message = (
            f"{run.scenario.text} cannot take {run.stated.text}: its products alone need {needs} at the whole peak"
        )
        _refuse(run.stated, message, "write seconds of one whole step of this scenario, or its unit: 1.2 s, 850 ms")


def _refuse(cell: CsvCell, message: str, remedy: str) -> NoReturn:
    raise InputError.one("unusable-run", message, cell.place, remedy)


def _figures(machine: Machine) -> dict[str, float]:
    """The constants that steps may move, by their paths."""
    paths = {path for several in SHARES.values() for path in several}
    return {constant.path: constant.value for constant in machine.chip.constants() if constant.path in paths}


def _starts(machine: Machine) -> dict[str, float]:
    """The shares that the machine states; of several constants the largest, which comes to its end first."""
    own = _figures(machine)
    return {share: max(own[path] for path in paths) for share, paths in SHARES.items() if set(paths) <= own.keys()}


def _launch(asked: Sequence[Question], listed: Sequence[Listed]) -> LaunchFields | None:
    """The launch that all scenarios state, to be moved with the shares; None if none of them states any.

    Raises InputError for scenarios that state different ones: no machine's file says whose is whose.
    """
    stated = [question.assume.kernel_launch for question in asked]
    for run, question in zip(listed, stated, strict=True):
        if (question and question.value) != (stated[0] and stated[0].value):
            remedy = "give a list to each host"
            _refuse(
                run.scenario, f"{run.scenario.text} and {listed[0].scenario.text} assume different launches", remedy
            )
    return stated[0]


def _spread(launched: LaunchFields | None, known: SharesFields) -> float:
    """How far off a launch may be: one deviation of its logarithm; as a harness's, of which guesses differ."""
    return known.launch if launched and launched.kind == "guess" else SPREADS["launch"]


def _planned(question: Question, moves: Mapping[str, float], memo: Memo) -> tuple[float, float]:
    """Seconds of a step and bytes at its peak, with figures moved by these logarithms."""
    values = {
        path: min(WHOLE, value * exp(moves.get(share, 0.0)))
        for share, paths in SHARES.items()
        for path, value in _figures(question.machine).items()
        if path in paths and share in moves
    }
    launch = question.assume.kernel_launch_s
    asked = relaunched(question, launch * exp(moves[LAUNCH])) if launch and LAUNCH in moves else question
    plan = priced(replace(asked, machine=adjusted(asked.machine, values)), memo)
    return float(plan.step.time_s), float(plan.memory.peak_bytes)


def _launches(launched: LaunchFields | None) -> Sequence[float]:
    """What a launch is tried at, as parts of itself."""
    return FACTORS if launched else (1.0,)


def _effects(
    asked: Sequence[Question],
    starts: Mapping[str, float],
    launched: LaunchFields | None,
    moves: Mapping[str, float],
    memo: Memo,
    *,
    looked: Callable[[], None],
) -> Effects:
    """How the runs depend on figures about where these have moved to; looked: called before each round of plans."""

    def logs(by: Mapping[str, float]) -> Array:
        looked()
        return np.log([_planned(question, by, memo)[0] for question in asked])

    launches = _launches(launched)
    tried = [logs({**moves, LAUNCH: log(factor)} if launched else moves) for factor in launches]
    here, slopes = logs(moves), {}
    for share, start in starts.items():
        now = moves.get(share, 0.0)
        other = now + (STEP if now + STEP < log(WHOLE / start) else -STEP)
        slopes[share] = (logs({**moves, share: other}) - here) / (other - now)
    off = sum((slope * moves.get(share, 0.0) for share, slope in slopes.items()), start=np.zeros(len(asked)))
    return Effects(starts, np.array(tried).T - off[:, None], slopes, launches)
