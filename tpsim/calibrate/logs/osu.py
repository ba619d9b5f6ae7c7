"""Latency tests of the OSU micro-benchmarks, as measured runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tpsim.calibrate.logs.log import WRONG, Log, LogRow, by_label, refuse_wrong, stretches, with_points
from tpsim.calibrate.run import MeasuredRun

TITLE = re.compile(r"# OSU (\w+?)(-\w+)? (.+?) (?:Latency|latency) Test(?: v\S+)?\s*$")
OTHER_TITLE = re.compile(r"^# OSU \S+ .*Test")
LABELS = re.compile(r"^# Size\s+(.*)")
COMMAND = re.compile(r"^(?=.*osu_).*?\s(?:-n|-np|--np|--ntasks)[ =]?(\d+)\b")
INVALID = re.compile(r"DATA VALIDATION ERROR")
ROW = re.compile(r"^\s*(\d+)((?:\s+(?:\d+(?:\.\d+)?|Pass|Fail))*)\s*$")

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


def read(log: Log, ranks: int | None) -> Iterator[MeasuredRun]:
    """Every OSU latency test in a log.

    ranks  of tests without the command line that ran them: OSU does not print it

    Raises InputError for what cannot be trusted.
    """
    before = 1
    for title, last in stretches((number for number, _ in log.matches(OTHER_TITLE)), len(log.lines)):
        yield from _test(log, before, title, last, ranks)
        before = title


def _test(log: Log, before: int, title: int, last: int, ranks: int | None) -> Iterator[MeasuredRun]:
    """One test; it prints a table for each data type."""
    match = TITLE.match(log.lines[title - 1])
    if match is None or match[3] not in NAMES:
        log.refuse("unknown-test", "this OSU test is not read", title, "read are: " + ", ".join(NAMES))
    stated = [int(command[1]) for _, command in log.matches(COMMAND, before, title)]
    count = stated[-1] if stated else ranks
    if count is None:
        text, remedy = "nothing says how many ranks took part", "write the command line above it (mpirun -n 8 osu_...)"
        log.refuse("unknown-ranks", text, title, f"{remedy}, or give --ranks")
    run = MeasuredRun(NAMES[match[3]], count, launch=TOOL, library=match[1].lower())
    tables = [number for number, _ in log.matches(LABELS, title, last)]
    if not tables:
        log.refuse("no-table", "the test prints no table", title, "did it fail?")
    on_hosts = run.library == "mpi" and not match[2]
    remarks = [log.remark(title, "buffers in the hosts' memory, not the devices'")] * on_hosts
    for table, end in stretches(tables, last):
        yield with_points(log, TOOL, run, _rows(log, table, end), remarks)


def _rows(log: Log, table: int, end: int) -> list[LogRow]:
    _, *labels = re.split(r"\s{2,}", log.lines[table - 1].strip())
    if labels[:1] != [AVERAGE]:
        log.refuse("unknown-unit", "the table holds no average latency in us", table, "give a latency test")
    rows = []
    for number, match in log.matches(ROW, table + 1, end):
        (figures,) = by_label(log, number, match[1], match[2].split(), [labels])
        rows.append(LogRow(int(match[1]), number, [{"time": figures[AVERAGE], WRONG[0]: "Fail" in figures.values()}]))
    if not rows:
        log.refuse("no-rows", "the table has no rows", table)
    refuse_wrong(log, rows)
    for number, _ in log.matches(INVALID, table + 1, end):
        log.refuse("wrong-values", "values were wrong", number, "mend that first: the times mean nothing")
    return rows
