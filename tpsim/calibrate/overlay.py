"""What a log measured, laid over what tpsim predicts: `tpsim collective --measured LOG`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

from tpsim.answers.collective import (
    CollectiveResolved,
    CollectiveResult,
    CollectiveRow,
    collective,
    kind_of,
    placed,
)
from tpsim.answers.curve import Curve
from tpsim.calibrate.fit import level_of, series_of
from tpsim.calibrate.logs import Measured, Point, read
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
    from tpsim.fabric.wires import Route
    from tpsim.machine.additive import Launch
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import CostModel


@dataclass(frozen=True, slots=True)
class Overlay:
    """The points of a log that are of the collective asked for, by size, and how they were run.

    path, sha256  of the log
    launch, algorithm, protocol  of the run, where the machine knows them
    notes         the log's warnings, and what was taken for granted
    """

    path: str
    sha256: str
    points: tuple[Point, ...]
    launch: Launch
    algorithm: str | None
    protocol: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class OverlayResult(Answer):
    """A collective at the sizes of a log: predicted, measured, and their ratio."""

    schema = CollectiveResult.schema
    not_modelled = CollectiveResult.not_modelled
    told = CollectiveResult.told
    table = CollectiveResult.table

    predicted: CollectiveResult
    overlay: Overlay

    curve = Of[Curve]("predicted.curve", "the predicted curve over all sizes")

    @cached_property
    def rows(self) -> list[CollectiveRow]:
        """The predicted rows, one for each point, with what was measured."""
        pairs = zip(self.predicted.rows, self.overlay.points, strict=True)
        return [replace(row, measured_s=point.seconds) for row, point in pairs]

    @property
    def files(self) -> list[tuple[str, str]]:
        """Path and sha256 of the machine's file and the log."""
        return [*self.predicted.files, (self.overlay.path, self.overlay.sha256)]

    @property
    def resolved(self) -> CollectiveResolved:
        """What was asked for, and the log."""
        return replace(self.predicted.resolved, measured=self.overlay.path, launch=self.overlay.launch)

    @property
    def assumptions(self) -> list[Assumption]:
        """What the seconds rest on, and what to know of the log."""
        return [*self.predicted.assumptions, *(Assumption(text, "derived") for text in self.overlay.notes)]

    @property
    def verdict(self) -> str:
        """One line: how near the predictions come."""
        return near([row["predicted_over_measured"] for row in self.rows])


def near(ratios: Sequence[float]) -> str:
    """How near predictions come to what was measured.

    >>> near([0.5, 0.9, 1.0])
    'predicted/measured: median 0.9, from 0.5 to 1 over 3 points'
    """
    ends = f"from {min(ratios):.3g} to {max(ratios):.3g} over {len(ratios)} points"
    return f"predicted/measured: median {median(ratios):.3g}, {ends}"


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
    where = _alike(machine, runs, level)
    asked = {"hw": hw, "ranks": ranks, "level": where, "dtype": dtype, "cost_model": cost_model, "sizes": SOME}
    route = placed(machine, ranks, where)[0].route(["ranks"])
    laid = _overlay(runs, machine, route, level=where, launch=launch)
    choice: dict[str, Any] = (
        {}
        if cost_model == "book"
        else {
            "launch": laid.launch,
            "algorithm": algorithm or laid.algorithm,
            "protocol": protocol or laid.protocol,
        }
    )
    chosen = collective(name, **asked, **choice)  # type: ignore[arg-type]
    timings = [timing.time(machine, route, kind, one.V, cost_model=cost_model, **choice) for one in laid.points]
    volumes = tuple(point.V for point in laid.points)
    return OverlayResult(replace(chosen, volumes=volumes, timings=tuple(timings)), laid)


SOME = "1GB"
"""A size to place ranks and look names up by; every one that is timed is the log's."""


def _overlay(runs: Sequence[Measured], machine: Machine, route: Route, *, level: str | None, launch: Launch) -> Overlay:
    """Runs of one collective over so many ranks, all made in one way on one route.

    level   where the ranks lay, as `collective` takes it
    launch  the harness asked for
    """
    found = [series_of(machine, one, level) for one in runs]
    first, remarks = found[0][0], [text for _, texts in found for text in texts]
    points = sorted((point for one in runs for point in one.points), key=lambda point: point.V)
    harness = first.launch if _known(machine, route, first.launch) else None
    notes = [
        *(text for one in runs for text in one.warnings),
        *remarks,
        *_launched(machine, first.launch, harness, launch),
    ]
    log, digest = runs[0].log, runs[0].sha256
    return Overlay(log, digest, tuple(points), launch or harness, first.algorithm, first.protocol, tuple(notes))


def _alike(machine: Machine, runs: Sequence[Measured], level: str | None) -> str | None:
    """Where the ranks of all runs lay, as `collective` takes it.

    Raises InputError if that is not one place, or not known.
    """
    found = list(dict.fromkeys(level_of(machine, one, level) for one in runs))
    if len(found) > 1:
        message = f"{runs[0].log} holds runs on several routes: {'; '.join(map(str, found))}"
        raise InputError.one("several-ways", message, remedy="give a log of one of them")
    return found[0]


def _matching(log: str, found: Sequence[Measured], kind: MoveKind, ranks: int, launch: Launch) -> list[Measured]:
    """The runs that were asked for; all made in one way."""
    runs = [one for one in found if (one.run.collective, one.run.ranks) == (kind, ranks)]
    if not runs:
        held = ", ".join(dict.fromkeys(str(one.run) for one in found))
        raise InputError.one("not-measured", f"{log} holds no {kind} over {ranks} ranks", note=f"it holds {held}")
    harnesses = dict.fromkeys(one.run.harness for one in runs)
    if launch in harnesses:
        runs = [one for one in runs if one.run.harness == launch]
    ways = dict.fromkeys(replace(one.run, library="", nodes=None) for one in runs)
    if len(ways) > 1:
        how = "; ".join(
            ", ".join(filter(None, [way.harness, way.algorithm, way.protocol])) or "as chosen" for way in ways
        )
        remedy = f"give --launch {next(iter(harnesses))}" if len(harnesses) > 1 else "give a log of one of them"
        raise InputError.one("several-ways", f"{log} holds runs made in several ways: {how}", remedy=remedy)
    return runs


def _known(machine: Machine, route: Route, harness: str | None) -> bool:
    """True if every level in use has that harness's launch."""
    return harness is not None and all(machine.level(segment.level).launched(harness) for segment in route)


def _launched(machine: Machine, harness: str | None, known: str | None, asked: Launch) -> list[str]:
    if asked is not None:
        return [f"predicted with the launch {asked if isinstance(asked, str) else show(asked, 'seconds')}"]
    if known:
        return [f"predicted with the launch of the log: {known}"]
    return [f"{machine.name} knows no launch of {harness}: predicted with its default one"] if harness else []
