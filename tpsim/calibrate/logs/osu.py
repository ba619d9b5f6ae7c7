"""Latency tests of the OSU micro-benchmarks, as measured runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tpsim.calibrate.logs.log import stretches
from tpsim.calibrate.logs.measured import Measured, Run, points_of, warning
from tpsim.calibrate.logs.nccl_text import MICRO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.calibrate.logs.log import Log

TITLE = re.compile(r"# OSU (\w+?)(-\w+)? (.+?) (?:Latency|latency) Test(?: v\S+)?\s*$")
OTHER_TITLE = re.compile(r"# OSU \S+ .*Test")
LABELS = re.compile(r"# Size\s+(.*)")
RANKS = re.compile(r"\s(?:-n|-np|--np|--ntasks)[ =]?(\d+)\b")
INVALID = re.compile(r"DATA VALIDATION ERROR")

NAMES: Mapping[str, str] = {
    "Allreduce": "all_reduce",
    "Allgather": "all_gather",
    "Reduce_scatter": "reduce_scatter",
    "Alltoall": "all_to_all",
    "All-to-All Personalized Exchange": "all_to_all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
"""Tests that are read; columns or sizes of others (non-blocking, vector, point to point) mean something else."""

AVERAGE = "Avg Latency(us)"
TOOL = "osu"


def read(log: Log, *, ranks: int | None = None) -> Iterator[Measured]:
    """Every OSU latency test in a log.

    ranks  of tests without the command line that ran them: OSU does not print it

    Raises InputError for what cannot be trusted.
    """
    titles = [number for number, line in enumerate(log.lines, 1) if OTHER_TITLE.match(line)]
    before = 1
    for title, last in stretches(titles, len(log.lines)):
        yield from _test(log, before, title, last, ranks)
        before = title


def _test(log: Log, before: int, title: int, last: int, ranks: int | None) -> Iterator[Measured]:
    """One test; it prints a table for each data type."""
    match = TITLE.match(log.lines[title - 1])
    if match is None or match[3] not in NAMES:
        log.refuse("unknown-test", "this OSU test is not read", title, "read are: " + ", ".join(NAMES))
    run = Run(NAMES[match[3]], _ranks(log, before, title, ranks), library=match[1].lower(), harness=TOOL)
    tables = [number for number in range(title, last + 1) if LABELS.match(log.lines[number - 1])]
    if not tables:
        log.refuse("no-table", "the test prints no table", title, "did it fail?")
    host = (
        []
        if match[2] or run.library != "mpi"
        else [warning(log, title, "buffers in the hosts' memory, not the devices'")]
    )
    for table, end in stretches(tables, last):
        points, odd = points_of(log, TOOL, run, list(_rows(log, table, end)))
        yield Measured(run, log.path, log.sha256, tuple(points), (*host, *odd))


def _ranks(log: Log, before: int, title: int, given: int | None) -> int:
    """From the command line above the title, else as given."""
    commands = (log.lines[number - 1] for number in range(title, before - 1, -1))
    said = next((found for line in commands if "osu_" in line and (found := RANKS.search(line))), None)
    count = int(said[1]) if said else given
    if count is None:
        what = "nothing says how many ranks took part"
        log.refuse(
            "unknown-ranks", what, title, "write the command line above it (mpirun -n 8 osu_...), or give --ranks"
        )
    return count


def _rows(log: Log, table: int, end: int) -> Iterator[tuple[int, float, int]]:
    """Size, seconds and line of every row."""
    labels = re.split(r"\s{2,}", log.lines[table - 1].strip())[1:]
    if not labels or labels[0] != AVERAGE:
        log.refuse("unknown-unit", "the table holds no average latency in us", table, "give a latency test")
    rows = [(number, log.lines[number - 1].split()) for number in range(table + 1, end + 1)]
    found = [(number, words) for number, words in rows if words and words[0].isdecimal() and _figures(words[1:])]
    for number, words in found:
        if len(words) != 1 + len(labels):
            message = f"the row of {words[0]} bytes has {len(words) - 1} of {len(labels)} figures"
            log.refuse("torn-row", message, number, "take the row out, or the log anew")
        if "Fail" in words:
            log.refuse("wrong-values", f"values of {words[0]} bytes were wrong", number, "mend that first")
        yield int(words[0]), float(words[1]) * MICRO, number
    if not found:
        log.refuse("no-rows", "the table has no rows", table)
    for number, _ in rows:
        if INVALID.search(log.lines[number - 1]):
            log.refuse("wrong-values", "values were wrong", number, "mend that first: the times mean nothing")


def _figures(words: list[str]) -> bool:
    return all(re.fullmatch(r"\d+(?:\.\d+)?|Pass|Fail", word) for word in words)
