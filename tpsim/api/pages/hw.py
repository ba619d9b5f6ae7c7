"""The pages of machines: the list, one machine's constants, and what is wrong with profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.quantity.units import show
from tpsim.report.table import Column, Document, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.api.hw import HwListResult, HwResult, HwValidateResult

MACHINES = (
    Column("hardware", "machine"),
    Column("bf16_flops_per_s", "bf16", "flops_per_s"),
    Column("memory_bytes", "memory", "bytes"),
    Column("memory_bytes_per_s", "memory", "bytes_per_s"),
    Column("levels", "levels, innermost first"),
    Column("guesses", "guesses", "integer"),
)
CONSTANTS = (
    Column("constant", "constant"),
    Column("shown", "value"),
    Column("kind", "kind"),
    Column("source", "source"),
)


def list_page(result: HwListResult, *, verbose: bool) -> Document:
    """Every machine of the library in a line."""
    records = result.records()
    columns = (*MACHINES, Column("constants", "constants", "integer")) if verbose else MACHINES
    return Document(
        tables=(Table(columns, records),),
        verdict=f"{len(records)} machines; your own: a .yaml file, or a folder in TPSIM_PATH",
        next_command="tpsim hw show dgx-h100",
    )


def page(result: HwResult, *, verbose: bool) -> Document:
    """One machine; `verbose` adds how constants were derived or measured."""
    machine = result.machine
    rows = [{**row, "shown": _shown(row)} for row in result.records()]
    levels = tuple((f"level {level.name}", _level(level.topology, level.shape, level.steps)) for level in machine.levels)
    sources = tuple(f"{key}: {one.title} (read {one.read})" for key, one in machine.sources.items())
    return Document(
        title=machine.name,
        facts=levels,
        tables=(Table((*CONSTANTS, Column("note", "note")) if verbose else CONSTANTS, rows),),
        notes=sources,
        verdict=f"{len(rows)} constants, {result.guesses} of them guesses; bandwidths are of one link in one direction",
        next_command=f"tpsim explain {machine.name}.{rows[-1]['constant']}",
    )


def validate_page(result: HwValidateResult, *, verbose: bool) -> Document:  # noqa: ARG001  # every page has the same signature
    """Which profiles are sound, and what is wrong with the others."""
    columns = (Column("hardware", "profile"), Column("sound", "sound"), Column("problems", "problems", "integer"))
    rows = [{**row, "sound": "yes" if row["ok"] else "no"} for row in result.records()]
    wrong = [str(problem) for _, problems in result.profiles for problem in problems]
    bad = sum(not row["ok"] for row in rows)
    return Document(
        tables=(Table(columns, rows),),
        notes=tuple(line for text in wrong for line in text.split("\n")),
        verdict=f"{len(rows) - bad} of {len(rows)} profiles are sound",
        next_command=f"tpsim hw show {rows[0]['hardware']}" if rows else "",
        ok=result.ok,
    )


def _shown(row: Mapping[str, Any]) -> str:
    return show(row["value"], row["dimension"])


def _level(topology: str, shape: tuple[int, ...], steps: str) -> str:
    size = f", at most {' x '.join(map(str, shape))}" if shape else ""
    return f"{topology}{size}, {steps} steps"
