"""The pages of a fit, to collectives or to whole steps: the figures that moved, and how far off predictions are."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tpsim.calibrate.step_fitted import StepFitResult, shown
from tpsim.quantity.units import show
from tpsim.report.numbers import counted
from tpsim.report.table import Column, Page, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.calibrate.fitted import FitResult

STEP_PARAMETERS = (
    Column("figure", "figure"),
    Column("was", "base"),
    Column("deviation_before", "+-", "share"),
    Column("now", "fitted"),
    Column("deviation", "+-", "share"),
)
STEPS = (
    Column("line", "line", "integer"),
    Column("scenario", "scenario"),
    Column("measured_s", "measured", "seconds"),
    Column("base_s", "base", "seconds"),
    Column("fitted_s", "fitted", "seconds"),
)
UNSEEN = (Column("left_out_s", "left out", "seconds"),)
MEMORY = (Column("measured_bytes", "measured\npeak", "bytes"), Column("peak_bytes", "planned\npeak", "bytes"))


def _of_steps(result: StepFitResult, *, verbose: bool, profile: str | None = None, again: str = "") -> Page:
    """`result` as a page, as `page`; `verbose` says more of what held the figures."""
    figures = [
        {**row, **{key: shown(row["figure"], row[of]) for key, of in (("was", "base"), ("now", "value"))}}
        for row in result.parameters
    ]
    unseen = UNSEEN if any(row.left_out_s for row in result.rows) else ()
    columns = (*STEPS, *unseen, *(MEMORY if any(row.measured_bytes for row in result.rows) else ()))
    notes = (*(("left out: by a fit to all other runs, each in turn",) if unseen else ()), *result.remarks)
    machine = profile or result.base
    return Page(
        result,
        title=result.name,
        facts=(("base", result.base), ("runs", result.log.path), *((("held", result.held),) if verbose else ())),
        tables=(Table(STEP_PARAMETERS, figures), Table(columns, list(result.rows))),
        notes=notes,
        next_command=again or shlex.join(["tpsim", "plan", result.rows[0].named, "--hw", machine]),
    )


PARAMETERS = (
    Column("level", "level"),
    Column("figure", "figure"),
    Column("was", "base"),
    Column("now", "fitted"),
    Column("relative_error", "+-", "share"),
)
BANDS = (
    Column("band", "sizes"),
    Column("points", "points", "integer"),
    Column("base_median", "base\nmedian", "share"),
    Column("base_p90", "base\np90", "share"),
    Column("figures_median", "figures\nmedian", "share"),
    Column("figures_p90", "figures\np90", "share"),
    Column("fitted_median", "curves\nmedian", "share"),
    Column("fitted_p90", "curves\np90", "share"),
    Column("left_out_median", "left out\nmedian", "share"),
    Column("left_out_p90", "left out\np90", "share"),
)
POINTS = (
    Column("collective", "collective"),
    Column("ranks", "n", "integer"),
    Column("logical_bytes", "size", "bytes"),
    Column("measured_s", "measured", "seconds"),
    Column("base_s", "base", "seconds"),
    Column("figures_s", "figures", "seconds"),
    Column("fitted_s", "curves", "seconds"),
    Column("left_out_s", "left out", "seconds"),
)


LEFT_OUT = "left out: by fits to the other two thirds of the sizes, each third in turn"
"""What points are held against that their own fit has not seen."""


def page(
    result: FitResult | StepFitResult,
    *,
    verbose: bool,
    profile: str | None = None,
    level: str | None = None,
    again: str = "",
) -> Page:
    """`result` as a page; `verbose` adds every point.

    profile  the file that the fitted machine was written to, for the next command
    level    where the ranks lay, as it was asked
    again    the command that writes it, where nothing did
    """
    again = "" if profile else again
    if isinstance(result, StepFitResult):
        return _of_steps(result, verbose=verbose, profile=profile, again=again)
    unseen = result.bands[-1]["left_out_median"] is not None
    bands, points = (
        tuple(column for column in some if unseen or "left_out" not in column.key) for some in (BANDS, POINTS)
    )
    off = Table(bands, result.bands, title="|predicted/measured - 1|")
    tables = (Table(PARAMETERS, [_row(row) for row in result.parameters], group="level"), off)
    listed = (Table(points, result.records(), title="points", folded=True),) if verbose else ()
    runs = result.calibrated.runs
    measured = (("measured", f"{run}, {counted(len(run.V), 'point')}: {run.log}") for run in runs)
    return Page(
        result,
        title=result.name,
        facts=(("base", result.base), *measured),
        tables=(*tables, *listed) if result.parameters else (off, *listed),
        notes=(*((LEFT_OUT,) if unseen else ()), *(f"warning: {text}" for text in result.warnings)),
        next_command=again or _next(result, profile or result.base, level),
    )


def _next(result: FitResult, machine: str, level: str | None) -> str:
    """The first run beside the machine: the one that was written, else the base."""
    first = result.calibrated.runs[0]
    words = ["tpsim", "collective", first.kind.replace("_", "-"), "--hw", machine]
    words += ["--ranks", str(first.ranks), *(["--level", level] if level else [])]
    words += [] if first.log == "-" else ["--measured", first.log]
    return shlex.join(words)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A figure's record with its values as text, and its path in two: the level, and the figure there."""
    _, level, figure = row["constant"].split(".", 2)
    was, now = (show(row[key], row["dimension"]) for key in ("base", "value"))
    return {**row, "level": f"level {level}", "figure": figure, "was": was, "now": now}
