"""The page of a shard: what each device holds, the steps with their reasons, the other ways."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import as_flag, sized
from tpsim.question.expression import SIMULATED
from tpsim.report.table import Column, Page, Table, present

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.shard import ShardResult

STEPS = (
    Column("number", "step", "integer"),
    Column("op", "op"),
    Column("axes", "axes"),
    Column("output", "gives"),
    Column("logical_bytes", "size", "bytes"),
    Column("wire_bytes_per_device", "wire", "bytes"),
    Column("flops_per_device", "work", "flops"),
    Column("time_s", "time", "seconds"),
)
ARRAYS = (
    Column("array", "array"),
    Column("shape", "each device holds"),
    Column("local_bytes", "bytes", "bytes"),
    Column("shards", "shards", "integer"),
    Column("replication", "copies", "integer"),
)
WAYS = (
    Column("ops", "way"),
    Column("wire_bytes_per_device", "wire", "bytes"),
    Column("flops_per_device", "work", "flops"),
    Column("total_time_s", "time", "seconds"),
    Column("who", "planner"),
)
FORMULAS = (
    Column("op", "op"),
    Column("wire_bytes_per_device", "wire bytes per device"),
    Column("flops_per_device", "FLOPs per device"),
)
EXAMPLE_SIZE, EXAMPLE_MACHINE = 8192, "dgx-h100"
"""What the next command suggests where nothing was given."""

FEW = 4
"""Other ways, and what is left out, shown without -v."""


def page(result: ShardResult, *, verbose: bool) -> Page:
    """`result` as a page; `verbose` adds every other way, and the formulas."""
    facts = [("mesh", sized(result.mesh.axes)), ("dtype", result.dtype)]
    facts += [("dims", sized(result.dims, ", "))] if result.dims else []
    facts += [("machine", result.hardware)] if result.hardware else []
    return Page(
        result,
        title=result.expression.text,
        facts=tuple(facts),
        tables=tuple(_tables(result, verbose=verbose)),
        notes=tuple(_notes(result, verbose=verbose)),
        next_command=_next(result),
    )


def _tables(result: ShardResult, *, verbose: bool) -> Iterator[Table]:
    arrays = [
        {**row, "shape": str(row.local_formula) if row.local_shape is None else " x ".join(map(str, row.local_shape))}
        for row in result.arrays
    ]
    yield Table(present(ARRAYS, arrays, UNKNOWN), arrays)
    if not result.steps:
        return
    steps = [{**row, "number": at, "axes": ",".join(row.axes)} for at, row in enumerate(result.steps, 1)]
    yield Table(present(STEPS, steps, UNKNOWN), steps)
    if result.dims is None or verbose:
        yield Table(FORMULAS, result.formulas)
    ways = [{**way, "ops": str(way), "who": ", ".join(way.planners)} for way in result.alternatives]
    if len(ways) > 1:
        yield Table(present(WAYS, ways, UNKNOWN), ways if verbose else ways[:FEW])


UNKNOWN = (None, "", 0)
"""What says nothing: seconds without a machine, bytes without sizes, work of moves."""


def _notes(result: ShardResult, *, verbose: bool) -> Iterator[str]:
    for number, step in enumerate(result.steps, 1):
        if step.because:
            yield f"step {number}: {step.because}"
    hidden = len(result.alternatives) - FEW
    if hidden > 0 and not verbose:
        yield f"{hidden} more ways: -v"
    shown = result.left_out if verbose else result.left_out[:FEW]
    yield from (f"left out: {way.way}: {way.because}" for way in shown)
    if len(result.left_out) > len(shown):
        yield f"{len(result.left_out) - len(shown)} more are left out: -v"
    yield from (assumption.text for assumption in result.assumptions)


def _next(result: ShardResult) -> str:
    """What the answer lacks most: sizes, then a machine, the book's way, a count of what is sent."""
    dims = result.dims or dict.fromkeys(result.pricing.dims, EXAMPLE_SIZE)
    mesh, sizes = as_flag(result.mesh.axes), as_flag(dims)
    asked = f'"{result.expression.text}" --mesh {mesh}' + ("" if result.dtype == "bf16" else f" --dtype {result.dtype}")
    machine = _machine(result)
    model = "" if result.cost_model == "additive" else f" --cost-model {result.cost_model}"
    shard = f"tpsim shard {asked} --dims {sizes}{machine}"
    if result.dims is None:
        return shard + model
    if result.chosen is None:
        return f"tpsim collective all-gather --hw {result.hardware or EXAMPLE_MACHINE} --ranks 8"
    if result.hardware is None:
        return f"{shard} --hw {EXAMPLE_MACHINE}{model}"
    if result.planner == "cheapest" and result.chosen.planner != "book" and result.ways.refused is None:
        return f"{shard}{model} --planner book"
    return f"tpsim verify {asked}{machine}" if result.mesh.devices <= SIMULATED else f"{shard}{model} -v"


def _machine(result: ShardResult) -> str:
    """The flags that name the machine, and what of it carries which axis where that was asked for."""
    placement = result.placement or ""
    if not isinstance(placement, str):
        joined = {axis: to if isinstance(to, str) else "+".join(to) for axis, to in placement.items()}
        placement = ",".join(f"{axis}={levels}" for axis, levels in joined.items())
    flags = {"--hw": result.hardware, "--placement": placement}
    return "".join(f" {flag} {shlex.quote(word)}" for flag, word in flags.items() if word)
