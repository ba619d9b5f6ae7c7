"""The pages of a collective: one line per size, alone or beside what a log measured."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.answers.collective_sizes import on_command_line
from tpsim.machine.cost import SIMPLE
from tpsim.quantity.units import show
from tpsim.question.inputs import asked
from tpsim.question.prices import in_words
from tpsim.report.numbers import counted
from tpsim.report.table import COMPARED, Column, Page, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.collective import CollectiveResult
    from tpsim.answers.curve import SizeCurve
    from tpsim.calibrate.overlay import OverlayResult

COLUMNS = (
    Column("logical_bytes", "size", "bytes"),
    Column("buffer_bytes", "buffer", "bytes"),
    Column("wire_bytes_per_device", "wire", "bytes"),
    Column("time_s", "time", "seconds"),
    Column("algbw_bytes_per_s", "algbw", "bytes_per_s"),
    Column("busbw_bytes_per_s", "busbw", "bytes_per_s"),
    Column("algorithm", "algorithm"),
    Column("reached", "busbw of the peak", "bar"),
)
FULL = (
    *COLUMNS[:3],
    Column("carried_bytes_per_device", "carried", "bytes"),
    Column("link_serial_bytes", "link", "bytes"),
    Column("steps", "steps", "integer"),
    Column("launch_s", "launch", "seconds"),
    Column("latency_s", "latency", "seconds"),
    Column("bandwidth_s", "bandwidth", "seconds"),
    Column("ramp_s", "ramp", "seconds"),
    Column("curve_s", "curve", "seconds"),
    *COLUMNS[3:-1],
    Column("protocol", "protocol"),
    COLUMNS[-1],
)


def page(result: CollectiveResult, *, verbose: bool) -> Page:
    """`result` as a page; `verbose` adds what the seconds are made of."""
    asked = result.asked
    buffers = any(row.buffer_bytes != row.logical_bytes for row in result.rows)
    full = (
        FULL if any(row.curve_s for row in result.rows) else tuple(column for column in FULL if column.key != "curve_s")
    )
    columns = full if verbose else tuple(column for column in COLUMNS if buffers or column.key != "buffer_bytes")
    peak = result.curve.peak_busbw_bytes_per_s
    rows = [{**row, "reached": peak and (row.busbw_bytes_per_s or 0) / peak} for row in result.rows]
    notes = [assumption.text for assumption in result.assumptions]
    if verbose:
        notes += result.sends if asked.cost_model == "additive" else []
        notes += [f"not modelled: {text}" for text in result.not_modelled]
    return Page(
        result,
        title=f"{asked.collective} over {counted(asked.ranks, 'rank')}",
        facts=(
            ("machine", result.machine.name),
            ("ranks on", result.route),
            ("pricing", f"cost model {asked.cost_model}, {asked.dtype}{in_words(result.force)}"),
            *curve_facts(result.curve),
        ),
        tables=(Table(columns, rows),),
        notes=tuple(notes),
        next_command=f"tpsim explain {asked.collective} {on_command_line(result.machine, asked.ranks, asked.level)}",
    )


def curve_facts(curve: SizeCurve) -> Iterator[tuple[str, str]]:
    """The curve over all sizes in words: floor, peak, and from where on which way is taken."""
    peak, half, nearly = curve.peak_busbw_bytes_per_s, curve.half_peak_bytes, curve.p95_peak_bytes
    if peak is None or half is None or nearly is None:
        return
    yield "floor", show(curve.floor_s, "seconds")
    reached = f"half of it from {show(half, 'bytes')} on, 95 % from {show(nearly, 'bytes')} on"
    yield "peak", f"bus bandwidth {show(peak, 'bytes_per_s')}; {reached}"
    several = any(way.protocol != SIMPLE for way in curve.ways)
    first, *others = (f"{way.algorithm} with {way.protocol}" if several else way.algorithm for way in curve.ways)
    changes = [
        f"{other} from {show(way.from_bytes, 'bytes')} on" for other, way in zip(others, curve.ways[1:], strict=True)
    ]
    yield "taken", ", ".join([first, *changes])


MEASURED = (
    Column("logical_bytes", "size", "bytes"),
    Column("measured_s", "measured", "seconds"),
    Column("time_s", "predicted", "seconds"),
    Column("predicted_over_measured", "predicted /\nmeasured", "number"),
    Column("measured_busbw_bytes_per_s", "measured\nbusbw", "bytes_per_s"),
    Column("busbw_bytes_per_s", "predicted\nbusbw", "bytes_per_s"),
    Column("algorithm", "algorithm"),
    Column("protocol", "protocol"),
)


def measured_page(result: OverlayResult, *, verbose: bool) -> Page:
    """`result` as a page; `verbose` adds what the predicted seconds are made of."""
    whole = page(result.predicted, verbose=verbose)
    beside = Table(MEASURED, result.rows, compared=(*COMPARED, "bytes_per_s"))
    made_of = (
        tuple(replace(table, title="what the predictions are made of") for table in whole.tables) if verbose else ()
    )
    run, wires = result.run, result.predicted.asked.level
    base, level = asked("hardware", result.predicted.machine.path), ["--level", wires] if wires else []
    fit = shlex.join(["tpsim", "hw", "fit", run.log, "--base", base, *level, *result.unsaid])
    fitted = any(row.curve_s for row in result.predicted.rows)
    return replace(
        whole,
        answer=result,
        facts=(*whole.facts, ("measured", f"{len(run.V)} points: {run.log}")),
        tables=(beside, *made_of),
        notes=(*whole.notes, *run.warnings),
        next_command=whole.next_command if fitted else "" if run.log == "-" else fit,
    )
