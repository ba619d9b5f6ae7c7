"""Logs of collective benchmarks, read as runs: nccl-tests and rccl-tests (text, JSON), OSU micro-benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.calibrate.logs import nccl, nccl_text, osu
from tpsim.calibrate.logs.log import load

if TYPE_CHECKING:
    from pathlib import Path

    from tpsim.calibrate.run import MeasuredRun


def read(path: Path | str, *, collective: str | None = None, ranks: int | None = None) -> tuple[MeasuredRun, ...]:
    """Every run in a log.

    path               a file, or ``-`` for standard input
    collective, ranks  of runs that do not say theirs

    Raises InputError, with the line, for what cannot be trusted: values that were wrong, torn rows, times that
    contradict the bandwidths beside them, a log that holds no run.
    """
    log = load(path)
    if "\n".join(log.lines).lstrip().startswith("{"):
        return (nccl.read_json(log),)
    runs = (*nccl_text.read(log, collective, ranks), *osu.read(log, ranks))
    if not runs:
        known = "known: what nccl-tests and rccl-tests print, nccl-tests' -J JSON, OSU micro-benchmarks' latency tests"
        log.refuse("no-measurements", "the log holds no run of a known benchmark", 0, "keep the header lines", known)
    return runs
