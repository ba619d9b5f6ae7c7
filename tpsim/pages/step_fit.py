"""The page of a fit to measured steps: the figures that moved, and every step before and after."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tpsim.calibrate.step_fitted import shown
from tpsim.report.table import Column, Document, Table

if TYPE_CHECKING:
    from tpsim.calibrate.step_fitted import StepFitResult

PARAMETERS = (
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
MEMORY = (Column("measured_bytes", "measured\npeak", "bytes"), Column("peak_bytes", "planned\npeak", "bytes"))


def page(result: StepFitResult, *, verbose: bool, profile: str | None = None) -> Document:
    """`result` as a page; `verbose` says more of what held the figures.

    profile  the file that the fitted machine was written to, for the next command
    """
    figures = [
        {**row, **{key: shown(row["figure"], row[of]) for key, of in (("was", "base"), ("now", "value"))}}
        for row in result.parameters
    ]
    columns = (*STEPS, *MEMORY) if any(row.measured_bytes for row in result.rows) else STEPS
    machine = profile or result.base
    return Document(
        title=result.name,
        facts=(("base", result.base), ("runs", result.log.path), *((("held", result.held),) if verbose else ())),
        tables=(Table(PARAMETERS, figures), Table(columns, list(result.rows))),
        notes=result.remarks,
        verdict=result.verdict,
        next_command=shlex.join(["tpsim", "plan", result.rows[0].scenario, "--hw", machine]),
    )
