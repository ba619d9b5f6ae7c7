"""What a log measured, laid over what tpsim predicts: `tpsim collective --measured LOG`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

from tpsim.answers.collective import CollectiveResolved, CollectiveResult, CollectiveRow, collective, kind_of
from tpsim.answers.curve import SizeCurve
from tpsim.calibrate.fit import laid, level_of
from tpsim.calibrate.logs import read
from tpsim.machine import timing
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.report.answer import Answer, Assumption
from tpsim.report.record import Of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpsim.algebra.moves import MoveKind
    from tpsim.calibrate.run import MeasuredRun
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import CostModel
    from tpsim.machine.ways import Launch
    from tpsim.report.picture import Picture


@dataclass(frozen=True)
class OverlayResult(Answer):
    """A collective at the sizes of a log: predicted, measured, and their ratio.

    run  the runs of the log that are of the collective asked for as one, by size; its warnings are theirs, and what was
         taken for granted
    unsaid  what `hw fit` must be told of the log: which collective, and over how many ranks
    """

    schema = CollectiveResult.schema
    not_modelled = CollectiveResult.not_modelled
    told = CollectiveResult.told
    table = CollectiveResult.table

    predicted: CollectiveResult
    run: MeasuredRun
    unsaid: tuple[str, ...] = ()

    resolved = Of[CollectiveResolved]("predicted.asked", "what was asked for, and the log")
    curve = Of[SizeCurve]("predicted.curve", "the predicted curve over all sizes")

    @cached_property
    def rows(self) -> list[CollectiveRow]:
        """The predicted rows, one for each point, with what was measured."""
        pairs = zip(self.predicted.rows, self.run.seconds, strict=True)
        return [replace(row, measured_s=seconds) for row, seconds in pairs]

    @property
    def files(self) -> list[tuple[str, str]]:
        """Path and sha256 of the machine's file and the log."""
        return [*self.predicted.files, (self.run.log, self.run.sha256)]

    @property
    def assumptions(self) -> list[Assumption]:
        """What the seconds rest on, and what to know of the log."""
        return [*self.predicted.assumptions, *(Assumption(text, "derived") for text in self.run.warnings)]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Bus bandwidth and seconds over sizes, predicted and measured."""
        from tpsim.answers.pictures import of_collective

        return tuple(of_collective(self.predicted, self.rows))

    @property
    def verdict(self) -> str:
        """One line: how near the predictions come."""
        ratios = [row["predicted_over_measured"] for row in self.rows]
        ends = f"from {min(ratios):.3g} to {max(ratios):.3g} over {len(ratios)} points"
        return f"predicted/measured: median {median(ratios):.3g}, {ends}"


SOME = "1GB"
"""A size to place ranks and look names up by; every one that is timed is the log's."""


def measured_collective(
    name: str,
    *,
    hw: str,
    ranks: int,
    log: str | Path,
    level: str | None = None,
    dtype: str = "bf16",
    cost_model: CostModel = "additive",
    algorithm: str | None = None,
    protocol: str | None = None,
    launch: Launch = None,
) -> OverlayResult:
    """Time one collective at the sizes that a log measured, with the ratio of the two.

    log  of nccl-tests, rccl-tests or the OSU micro-benchmarks; launch, algorithm and protocol are those of its runs
         unless given here

    The others are those of `tpsim.answers.collective.collective`. Raises InputError as that does, for a log that cannot
    be trusted, and for one that holds no such run.
    """
    kind, machine = kind_of(name), load(hw)
    runs = _matching(str(log), read(log, collective=kind, ranks=ranks), kind, ranks, launch)
    where = _place(machine, runs, level)
    pairs = [laid(machine, run, where) for run in runs]
    first = pairs[0][0]
    points = sorted(
        (point for run in runs for point in zip(run.V, run.seconds, strict=True)), key=lambda point: point[0]
    )
    V, seconds = zip(*points, strict=True)
    launch, words = _launch(machine, first, launch)
    choice: dict[str, Any] = {
        "launch": launch,
        "algorithm": algorithm or first.algorithm,
        "protocol": protocol or first.protocol,
    }
    asked: dict[str, Any] = {"cost_model": cost_model, **({} if cost_model == "book" else choice)}
    chosen = collective(name, hw=hw, ranks=ranks, level=where, dtype=dtype, sizes=SOME, **asked)
    rows = tuple(CollectiveRow(kind, ranks, size, timing.time(machine, first.route, kind, size, **asked)) for size in V)
    warnings = (
        *(text for run in runs for text in run.warnings),
        *(text for _, texts in pairs for text in texts),
        *words,
    )
    run = replace(first, V=V, seconds=seconds, lines=(), warnings=warnings)
    resolved = replace(chosen.asked, sizes_bytes=V, launch=launch, measured=run.log)
    return OverlayResult(replace(chosen, asked=resolved, rows=rows), run, _unsaid(run))


def _unsaid(run: MeasuredRun) -> tuple[str, ...]:
    """The words that say of a log what it does not say itself; none of standard input, which is read once."""
    if run.log == "-":
        return ()
    try:
        read(run.log)
    except InputError:
        return ("--collective", run.kind.replace("_", "-"), "--ranks", str(run.ranks))
    return ()


def _matching(log: str, logged: Sequence[MeasuredRun], kind: MoveKind, ranks: int, launch: Launch) -> list[MeasuredRun]:
    """The runs that were asked for; all made in one way."""
    runs = [run for run in logged if (run.kind, run.ranks) == (kind, ranks)]
    if not runs:
        listed = ", ".join(dict.fromkeys(map(str, logged)))
        raise InputError.one("not-measured", f"{log} holds no {kind} over {ranks} ranks", note=f"it holds {listed}")
    harnesses = dict.fromkeys(run.launch for run in runs)
    if launch in harnesses:
        runs = [run for run in runs if run.launch == launch]
    ways = dict.fromkeys((run.launch, run.algorithm, run.protocol) for run in runs)
    if len(ways) > 1:
        listed_ways = "; ".join(", ".join(filter(None, way)) or "as chosen" for way in ways)
        remedy = f"give --launch {next(iter(harnesses))}" if len(harnesses) > 1 else "give a log of one of them"
        raise InputError.one("several-ways", f"{log} holds runs made in several ways: {listed_ways}", remedy=remedy)
    return runs


def _place(machine: Machine, runs: Sequence[MeasuredRun], level: str | None) -> str | None:
    """Where the ranks of all runs lay, as `collective` takes it.

    Raises InputError if that is not one place, or not known.
    """
    levels = list(dict.fromkeys(level_of(machine, run, level) for run in runs))
    if len(levels) > 1:
        message = f"{runs[0].log} holds runs on several routes: {'; '.join(map(str, levels))}"
        raise InputError.one("several-ways", message, remedy="give a log of one of them")
    return levels[0]


def _launch(machine: Machine, run: MeasuredRun, asked: Launch) -> tuple[Launch, list[str]]:
    """The launch to predict with, and a word on it: as asked, else the log's if the machine has it on every level."""
    if asked is not None:
        return asked, [f"predicted with the launch {asked if isinstance(asked, str) else show(asked, 'seconds')}"]
    if run.launch is None:
        return None, []
    if all(machine.level(segment.level).launched(run.launch) for segment in run.route):
        return run.launch, [f"predicted with the launch of the log: {run.launch}"]
    return None, [f"{machine.name} knows no launch of {run.launch}: predicted with its default one"]
