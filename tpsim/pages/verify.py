"""The page of a verification: what was run, and what each check saw."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from tpsim.algebra.mesh import sized
from tpsim.claims.checks import ROUNDING, Verified, VerifyResult, below
from tpsim.fabric.placement import in_one_line
from tpsim.report.numbers import counted
from tpsim.report.table import Column, Page, Table

NO = "NO"
"""How a page says that a check does not hold, so that it is seen."""

CHECKS = (Column("check", "check"), Column("holds", "holds"), Column("detail", "seen"))
OF_RUNS = (Column("name", "scenario"), *CHECKS)
RUNS = (
    Column("name", "scenario"),
    Column("devices", "devices", "integer"),
    Column("mesh", "mesh"),
    Column("arrays", "arrays", "integer"),
    Column("collectives", "calls", "integer"),
    Column("difference", "largest difference"),
    Column("holds", "checks that hold"),
)


def page(result: VerifyResult, *, verbose: bool) -> Page:
    """`result` as a page: of one run its checks, of several a line each; `verbose` adds every check and the sizes."""
    alone = result.runs[0] if len(result.runs) == 1 else None
    return Page(
        result,
        title=alone.name if alone else f"{len(result.runs)} scenarios",
        facts=tuple(_facts(alone)) if alone else (),
        tables=tuple(_tables(result, verbose=verbose)),
        notes=tuple(_notes(result, verbose=verbose)),
        next_command=_next(result, verbose=verbose),
    )


def _facts(run: Verified) -> Iterator[tuple[str, str]]:
    yield "run on", f"{counted(run.devices, 'simulated device')}: {sized(run.mesh) or '1'}"
    if run.placement:
        yield "placement", in_one_line(run.placement)
    yield "dims", sized(run.dims, ", ")
    if run.full_size:
        yield "stands for", run.full_size
    if run.layers:
        repeated = f"{counted(run.layers, 'layer')}, {counted(run.microbatches, 'microbatch')}"
        trained = any(check.check == "gradients" for check in run.checks)
        yield "step", f"{repeated}, {'forward, backward and update' if trained else 'forward alone'}"
    yield "compared", f"{counted(run.arrays, 'array')} and {counted(run.collectives, 'collective call')}"


def _tables(result: VerifyResult, *, verbose: bool) -> Iterator[Table]:
    if len(result.runs) == 1:
        yield Table(CHECKS, list(_rows(result.runs[0], verbose=verbose)))
        return
    runs = [
        {
            **run,
            "mesh": sized(run.mesh),
            "difference": below(run.difference, ROUNDING),
            "holds": f"{len(run.checks) - len(run.failed)} of {len(run.checks)}",
        }
        for run in result.runs
    ]
    yield Table(RUNS, runs)
    rows = [row for run in result.runs for row in _rows(run, verbose=verbose) if verbose or row["holds"] == NO]
    if rows:
        yield Table(OF_RUNS, rows, group="name")


def _rows(run: Verified, *, verbose: bool) -> Iterator[dict[str, Any]]:
    """A line per check; `verbose` gives every mismatch a line."""
    for check in run.checks:
        first, *others = check.mismatches if verbose and not check.ok else (check.detail,)
        yield {"name": run.name, "check": check.check, "holds": "yes" if check.ok else NO, "detail": first}
        yield from ({"name": run.name, "detail": mismatch} for mismatch in others)


def _notes(result: VerifyResult, *, verbose: bool) -> Iterator[str]:
    yield from result.notes
    if verbose:
        yield from (f"not shown: {text}" for text in result.not_modelled)


def _next(result: VerifyResult, *, verbose: bool) -> str:
    """All mismatches of the first run that has some; once they are seen, or where none are, the claims themselves."""
    failed = [run for run in result.runs if not run.ok]
    run = (failed or list(result.runs))[0]
    name = run.asked or shlex.quote(run.name)
    if failed and not verbose:
        return f"tpsim verify {name} -v"
    if run.is_expression:
        return f"tpsim shard {run.asked}"
    return f"tpsim plan {name} -v" if failed else f"tpsim plan {name}"
