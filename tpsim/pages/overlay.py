"""The page of a collective beside what a log measured: predicted, measured, and their ratio per size."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.pages.collective import page as predicted_page
from tpsim.question.inputs import asked
from tpsim.report.table import Column, Document, Table

if TYPE_CHECKING:
    from tpsim.calibrate.overlay import OverlayResult

COLUMNS = (
    Column("logical_bytes", "size", "bytes"),
    Column("measured_s", "measured", "seconds"),
    Column("time_s", "predicted", "seconds"),
    Column("predicted_over_measured", "predicted /\nmeasured", "number"),
    Column("measured_busbw_bytes_per_s", "measured\nbusbw", "bytes_per_s"),
    Column("busbw_bytes_per_s", "predicted\nbusbw", "bytes_per_s"),
    Column("algorithm", "algorithm"),
    Column("protocol", "protocol"),
)


def page(result: OverlayResult, *, verbose: bool) -> Document:
    """`result` as a page; `verbose` adds what the predicted seconds are made of."""
    whole = predicted_page(result.predicted, verbose=verbose)
    beside = Table(COLUMNS, result.rows)
    made_of = (
        tuple(replace(table, title="what the predictions are made of") for table in whole.tables) if verbose else ()
    )
    run, wires = result.run, result.predicted.asked.level
    base, level = asked("hardware", result.predicted.machine.path), ["--level", wires] if wires else []
    return replace(
        whole,
        facts=(*whole.facts, ("measured", f"{len(run.V)} points: {run.log}")),
        tables=(beside, *made_of),
        notes=(*whole.notes, *run.warnings),
        verdict=result.verdict,
        pictures=lambda: result.pictures,
        next_command=shlex.join(["tpsim", "hw", "fit", run.log, "--base", base, *level]),
    )
