"""The pages of machines: the list, one machine's constants, and what is wrong with profiles."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tpsim.answers.hw import HwListResult, HwResult, HwValidateResult, constant_record, problem_record
from tpsim.machine.curve_file import summary
from tpsim.quantity.units import show
from tpsim.question.inputs import asked
from tpsim.report.table import Column, Page, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.machine.parts import Level, Machine

RANKS = 8
"""Of the collective that a page suggests: the size of many a server, and of a side or two of every torus."""

MACHINES = (
    Column("hardware", "machine"),
    Column("bf16_flops_per_s", "bf16", "flops_per_s"),
    Column("memory_bytes", "memory", "bytes"),
    Column("memory_bytes_per_s", "memory", "bytes_per_s"),
    Column("levels", "levels, inner first"),
    Column("guesses", "guesses", "integer"),
)
CHIPS = (Column("chip", "chip"), Column("machines", "in"))
CONSTANTS = (
    Column("part", "of"),
    Column("figure", "constant"),
    Column("shown", "value"),
    Column("kind", "kind"),
    Column("source", "source"),
)
PROFILES = (
    Column("hardware", "profile"),
    Column("sound", "sound"),
    Column("problems", "problems", "integer"),
    Column("warnings", "warnings", "integer"),
    Column("constants", "constants", "integer"),
    Column("guesses", "guesses", "integer"),
)
PROBLEMS = (
    Column("place", "where"),
    Column("problem", "what is wrong"),
    Column("remedy", "remedy"),
)
WARNINGS = (Column("place", "where"), Column("problem", "to look at"), Column("remedy", "remedy"))


def list_page(result: HwListResult, *, verbose: bool) -> Page:
    """Every machine of the library in a line; `verbose` adds the chips that they are made of."""
    records = result.records()
    columns = (*MACHINES, Column("constants", "constants", "integer")) if verbose else MACHINES
    chips = [{**row, "machines": ", ".join(row["machines"])} for row in result.chips]
    return Page(
        result,
        tables=(Table(columns, records), *([Table(CHIPS, chips)] if verbose else [])),
        next_command="tpsim hw show dgx-h100",
    )


def page(result: HwResult, *, verbose: bool) -> Page:
    """One machine, its curves in a line each; `verbose` adds how figures were derived, and in which file."""
    machine = result.machine
    rows = [_row(row) for row in result.records()]
    levels = tuple((f"level {level.name}", _level(level)) for level in machine.levels)
    sources = tuple(f"{key}: {source}" for key, source in machine.sources.items())
    doubts = tuple(f"{doubt.message}: {doubt.remedy}" for doubt in machine.doubts)
    return Page(
        result,
        title=machine.name,
        facts=(*levels, *(("measured", summary(curve)) for curve in machine.measured)),
        tables=(
            Table(
                (*CONSTANTS, Column("note", "note"), Column("file", "file")) if verbose else CONSTANTS,
                rows,
                group="part",
            ),
        ),
        notes=(*sources, *doubts),
        next_command=f"tpsim collective all-reduce --hw {asked('hardware', machine.path)} --ranks {RANKS}",
    )


def constants_table(machine: Machine) -> Table:
    """Every constant of a machine with kind and source, for a page about something else."""
    rows = [_row(constant_record(machine, constant)) for constant in machine.constants()]
    sourced = [{**row, "source": row["title"]} for row in rows]
    return Table(CONSTANTS, sourced, f"Constants of {machine.name}", group="part", folded=True)


def validate_page(result: HwValidateResult, *, verbose: bool) -> Page:  # noqa: ARG001  # as every page
    """Which profiles are sound, and what is wrong with the others."""
    records = result.records()
    rows = [{**row, "sound": "yes" if row["ok"] else "no"} for row in records]
    wrong = [problem_record(problem) for problem in result.problems]
    doubts = [problem_record(warning) for warning in result.warnings]
    first = next((row for row in records if not row["ok"]), records[0] if records else None)
    return Page(
        result,
        tables=(
            Table(PROFILES, rows),
            *((Table(PROBLEMS, wrong),) if wrong else ()),
            *((Table(WARNINGS, doubts),) if doubts else ()),
        ),
        next_command=_following(first, ok=result.ok) if first else "",
    )


def _following(profile: Mapping[str, Any], *, ok: bool) -> str:
    """Mend it, or look at it; a chip is looked at in its machines."""
    name = shlex.quote(profile["hardware"])
    if not ok:
        return f"tpsim hw validate {name}"
    return f"tpsim hw show {name}" if profile["constants"] else "tpsim hw list -v"


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A constant's record with its value as text, and its path in two: chip, level or way, and the figure there."""
    path = record["constant"].split(".")
    at = (4 if path[2:3] == ["algorithms"] else 2) if path[0] == "levels" else 1
    shown = show(record["value"], record["dimension"])
    return {
        **record,
        "part": " ".join(path[:at]).replace("levels", "level").replace(" algorithms ", ", "),
        "figure": ".".join(path[at:]),
        "shown": shown,
    }


def _level(level: Level) -> str:
    size = f", at most {' x '.join(map(str, level.shape))}" if level.shape else ""
    wrap = f", {level.wrap}" if level.topology == "torus" else ""
    slices = f", slices {level.slices}" if level.slices.known else ""
    names = [f"{name} (not across levels)" if algorithm.alone else name for name, algorithm in level.algorithms.items()]
    offered = f", offers {', '.join(names)}" if names else ""
    shared = ", a node's devices share its uplink" if level.shared else ""
    return f"{level.topology}{size}, {level.steps} steps{wrap}{slices}{shared}{offered}"
