"""What nccl-tests and rccl-tests print, with whatever else is in the log, as measured runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from tpsim.algebra.moves import MOVES, wire
from tpsim.calibrate.logs import nccl_run
from tpsim.calibrate.logs.log import stretches
from tpsim.calibrate.logs.measured import PARTS_OF_V, Measured, Run, points_of, warning
from tpsim.calibrate.logs.nccl_rows import TIMES, WRONG, Columns, Row, columns, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.calibrate.logs.log import Log

OPTIONS = re.compile(r"# nThread\s+(\d+)\s+nGpus\s+(\d+)")
LABELS = re.compile(r"#\s+size\s+count\s+type\b.*\b(?:cpu)?time\b")
STARTING = re.compile(r"# (?:nccl-tests version|Collective test starting)")
FOOTER = re.compile(r"#\s+(?:Out of bounds values|Avg bus bandwidth)\s*:")
WRONG_TOTAL = re.compile(r"#\s+Out of bounds values\s*:\s*(\d+)")
FAILURE = re.compile(r"Test (?:\w+ )?failure|Test timeout|Test failed")
LIBRARY_CODE = re.compile(r"nccl-library=(\d+)")
LIBRARY = re.compile(r"\b(NCCL|RCCL) version[ :]+([\d.]+)")

MICRO = 1e-6
TOOL = "nccl-tests"


@dataclass(frozen=True, slots=True)
class _Section:
    """The lines of one run, counted from 1, ends included.

    before  the first line after the run before it: the command may stand there
    first   of its header
    labels  of its table
    end     the last line of its table's rows
    last    the last line before the next run
    """

    before: int
    first: int
    labels: int
    end: int
    last: int


def read(log: Log, *, collective: str | None = None, ranks: int | None = None) -> Iterator[Measured]:
    """Every run of nccl-tests or rccl-tests in a log.

    collective, ranks  of runs that do not say theirs

    Raises InputError for what cannot be trusted.
    """
    for section in _sections(log):
        yield _measured(log, section, collective, ranks)


def _sections(log: Log) -> Iterator[_Section]:
    """The runs: each begins with its options, or with the labels of its table where those are missing."""
    before = 1
    for first, last in stretches(_starts(log.lines), len(log.lines)):
        labels = _first(log, LABELS, first, last)
        if labels is None:
            what = "a run begins here and prints no table"
            log.refuse("no-table", what, first, "did it fail, or did several processes print at once?")
        end = (_first(log, FOOTER, labels, last) or _first(log, STARTING, labels, last) or last + 1) - 1
        yield _Section(before, first, labels, end, last)
        before = end + 1


def _starts(lines: Sequence[str]) -> Iterator[int]:
    headed = False
    for number, line in enumerate(lines, 1):
        if OPTIONS.match(line):
            headed = True
            yield number
        elif LABELS.match(line):
            if not headed:
                yield number
            headed = False


def _first(log: Log, pattern: re.Pattern[str], first: int, last: int) -> int | None:
    return next((at for at in range(first, last + 1) if pattern.match(log.lines[at - 1])), None)


def _measured(log: Log, section: _Section, collective: str | None, ranks: int | None) -> Measured:
    _refuse_failed(log, section)
    known = columns(log.lines[section.labels - 1].lstrip("# ").split(), log.lines[max(0, section.labels - 2)])
    if not known.groups:
        log.refuse("no-times", "the table has no column of times", section.labels, "give the log as it was printed")
    _refuse_other_units(log, section, known)
    table = list(rows(log, section.labels + 1, section.end, known))
    if not table:
        log.refuse("no-rows", "the table has no rows", section.labels)
    _refuse_wrong(log, table)
    run = _run(log, section, table, collective, ranks)
    _refuse_contradictions(log, table, run)
    printed = [(row.size, _seconds(row), row.line) for row in table]
    points, odd = points_of(log, TOOL, run, printed)
    return Measured(run, log.path, log.sha256, tuple(points), (*_warnings(log, section, table), *odd))


def _seconds(row: Row) -> float:
    return float(row.figures["time"]) * MICRO


def _refuse_failed(log: Log, section: _Section) -> None:
    """No run that failed, or whose values were wrong, is worth reading: its times are of something else."""
    for number in range(section.first, section.last + 1):
        line = log.lines[number - 1]
        total = WRONG_TOTAL.match(line)
        if total and int(total[1]):
            log.refuse(
                "wrong-values", f"{total[1]} values were wrong", number, "mend that first: the times mean nothing"
            )
        if FAILURE.search(line):
            log.refuse("failed-run", "the run failed here", number)


def _refuse_wrong(log: Log, table: Sequence[Row]) -> None:
    for row in table:
        counts = [half[WRONG[0]] for half in (row.out_of_place, row.in_place) if half and WRONG[0] in half]
        if any(count != "N/A" and float(count) for count in counts):
            log.refuse("wrong-values", f"values of {row.size} bytes were wrong", row.line, "mend that first")


def _refuse_other_units(log: Log, section: _Section, known: Columns) -> None:
    lacking = [label for label in ("algbw", "busbw") if label not in known.groups[0]]
    if lacking:
        log.refuse("no-bandwidth", f"the table has no {lacking[0]}", section.labels, "keep the table as it was printed")
    if TIMES[1] in known.groups[0]:
        what = "the table holds CPU times: until calls returned, not until data arrived"
        log.refuse("cpu-times", what, section.labels, "run without -C")
    if section.labels == len(log.lines):
        return
    below = log.lines[section.labels]
    units = re.findall(r"\((\S+?)\)", below) if below.startswith("#") else []
    odd = [unit for unit in units if unit not in {"B", "elements", "us", "GB/s", "%"}]
    if odd:
        log.refuse("unknown-unit", f"a column is in {odd[0]}", section.labels + 1, "nccl-tests prints us and GB/s")


def _refuse_contradictions(log: Log, table: Sequence[Row], run: Run) -> None:
    """Times, bandwidths, ranks and collective must fit each other: else a unit, or the header, is not of this table."""
    for row in table:
        algbw = float(row.figures["algbw"])
        meant = row.size / _seconds(row) / GIGA if _seconds(row) > 0 else algbw
        if abs(algbw - meant) > SLACK * meant + LAST_DIGIT:
            message = f"{row.size} bytes in {row.figures['time']} us are {meant:.4g} GB/s, not {algbw:g}"
            log.refuse("contradiction", message, row.line, "are the units of this log mixed?")
    printed, factor = _bus_factor(table), bus_factor(run)
    if printed and factor and abs(printed - factor) > SLACK * factor:
        message = f"busbw is {printed:.3g} algbw; for {run} it is {factor:.3g}"
        log.refuse("contradiction", message, table[0].line, "another collective, or another number of ranks?")


GIGA = 1e9
SLACK = 0.02
LAST_DIGIT = 0.06
"""In GB/s: a bandwidth is printed with two decimals, large ones with one."""


def bus_factor(run: Run) -> float | None:
    """What busbw is of algbw as nccl-tests defines them; None for what tpsim does not price."""
    if run.collective not in MOVES:
        return None
    parts = run.ranks ** PARTS_OF_V.get((TOOL, run.collective), 0)
    return float(wire(run.collective, parts, run.ranks))


def _bus_factor(table: Sequence[Row]) -> float | None:
    """What busbw is of algbw as printed, of rows with digits enough."""
    pairs = [(float(row.figures["busbw"]), float(row.figures["algbw"])) for row in table]
    ratios = [busbw / algbw for busbw, algbw in pairs if busbw >= 1 and algbw >= 1]
    return median(ratios) if ratios else None


def _run(log: Log, section: _Section, table: Sequence[Row], collective: str | None, ranks: int | None) -> Run:
    options = OPTIONS.match(log.lines[section.first - 1])
    threads, per_thread = (int(options[1]), int(options[2])) if options else (1, 1)
    devices = nccl_run.devices(log, section.first, section.labels, threads * per_thread)
    count = devices.ranks if devices else ranks
    if count is None:
        what = "nothing says how many ranks took part"
        log.refuse("unknown-ranks", what, section.labels, "keep the lines '#  Rank ...', or give --ranks")
    graph = _option(log, section, "graph")
    return Run(
        _collective(log, section, table, count, collective),
        count,
        devices.hosts if devices else None,
        _library(log, section),
        nccl_run.harness(per_thread, graph) if options else "",
        **nccl_run.forced(_texts(log, section)),
    )


def _texts(log: Log, section: _Section) -> Iterator[str]:
    """The lines that may say what the environment forced on a run: its command, header and rows."""
    return iter(log.lines[section.before - 1 : section.end])


def _option(log: Log, section: _Section, name: str) -> int:
    """A number of the line of options; 0 if it is not there."""
    match = re.search(rf"\b{name}:? (\d+)", log.lines[section.first - 1])
    return int(match[1]) if match else 0


def _collective(log: Log, section: _Section, table: Sequence[Row], ranks: int, given: str | None) -> str:
    """By the program's name, where it is in the log; else by what only one collective prints."""
    above = range(section.labels - 1, section.before - 1, -1)
    named = next((match for at in above if (match := nccl_run.PROGRAM.search(log.lines[at - 1]))), None)
    if named:
        return nccl_run.collective(named[1])
    alike = [given] if given else list(_alike(table, ranks))
    if len(alike) != 1:
        what = "nothing says which collective this is"
        might = f"by its columns it may be {' or '.join(alike)}" if alike else ""
        log.refuse("unknown-collective", what, section.labels, "keep the command line, or give --collective", might)
    return alike[0]


ROOTED = "a collective with a root"
"""What tpsim calls a run without a name that starts or ends at one rank: it prices none of those."""


def _alike(table: Sequence[Row], ranks: int) -> Iterator[str]:
    """The collectives that print such an operation and such a ratio of busbw to algbw."""
    if table[0].root >= 0:
        yield ROOTED
        return
    reduces = table[0].redop not in {"", "none"}
    printed = _bus_factor(table)
    for kind in ("all_reduce", "reduce_scatter") if reduces else ("all_gather", "all_to_all", "permute"):
        meant = bus_factor(Run(kind, ranks))
        if printed is None or (meant and abs(printed - meant) <= SLACK * meant):
            yield kind


def _library(log: Log, section: _Section) -> str:
    lines = log.lines[section.before - 1 : section.end]
    for line in lines:
        if code := LIBRARY_CODE.search(line):
            return f"nccl {nccl_run.version(int(code[1]))}"
        if said := LIBRARY.search(line):
            return f"{said[1].lower()} {said[2]}"
    return "rccl" if any(line.startswith("rccl-tests:") for line in lines) else ""


def _warnings(log: Log, section: _Section, table: Sequence[Row]) -> Iterator[str]:
    if all(row.out_of_place is None for row in table):
        yield warning(log, section.labels, "measured in place only: taken as if out of place")
    if all(_unchecked(row.figures) for row in table):
        yield warning(log, section.labels, "values were not checked")
    yield from _cut(log, section, table)
    blocked = any(line.startswith("# Blocking Enabled") for line in log.lines[section.first - 1 : section.labels])
    together = _option(log, section, "agg iters")
    yield from nccl_run.way_of_running(log, section.first, aggregated=together, blocking=blocked)
    yield from nccl_run.not_alike(log, section.first, _texts(log, section))


def _unchecked(figures: Mapping[str, str]) -> bool:
    return next((figures[label] for label in WRONG if label in figures), "N/A") == "N/A"


def _cut(log: Log, section: _Section, table: Sequence[Row]) -> Iterator[str]:
    if section.end < section.last and FOOTER.match(log.lines[section.end]):
        return
    last = table[-1]
    largest = _option(log, section, "maxBytes")
    upto = f"at {last.size} of {largest} bytes" if largest > last.size else "without its summary"
    yield warning(log, last.line, f"the run ends {upto}: cut, or stopped; the rows there are count")
