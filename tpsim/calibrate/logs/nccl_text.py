"""What nccl-tests and rccl-tests print, with whatever else is in the log, as measured runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tpsim.algebra.moves import MOVES, wire
from tpsim.calibrate.logs import nccl
from tpsim.calibrate.logs.log import WRONG, Log, LogRow, by_label, logical, refuse_wrong, stretches, with_points
from tpsim.calibrate.run import MeasuredRun

OPTIONS = re.compile(r"^# nThread\s+(\d+)\s+nGpus\s+(\d+)")
LABELS = re.compile(r"^#\s+size\s+count\s+type\b.*\b(?:cpu)?time\b")
STARTING = re.compile(r"^# (?:nccl-tests version|Collective test starting)")
FOOTER = re.compile(r"^#\s+(?:Out of bounds values|Avg bus bandwidth)\s*:")
FAILURE = re.compile(r"^#\s+Out of bounds values\s*:\s*(\d+)|Test (?:\w+ )?failure|Test timeout|Test failed")
DEVICE = re.compile(r"^#\s+Rank\s+(\d+)(?: Group\s+(\d+))? Pid\s+(\d+)(?: on\s+(\S+))? device")
CUT_LIST = re.compile(r"\.\.\.$")
LIBRARY = re.compile(r"nccl-library=(\d+)|\b(NCCL|RCCL) version[ :]+([\d.]+)")
BLOCKING = re.compile(r"^# Blocking Enabled")

GIGA = 1e9
SLACK = 0.02
LAST_DIGIT = 0.06
"""In GB/s: a bandwidth is printed with two decimals, large ones with one."""

ROOTED = "a collective with a root"
"""What tpsim calls a run without a name that starts or ends at one rank: it prices none of those."""


def read(log: Log, collective: str | None, ranks: int | None) -> Iterator[MeasuredRun]:
    """Every run of nccl-tests or rccl-tests in a log.

    collective, ranks  of runs that do not say theirs

    Raises InputError for what cannot be trusted.
    """
    before = 1
    for first, last in stretches(_starts(log), len(log.lines)):
        labels = _first(log, LABELS, first, last)
        if labels is None:
            problem = "a run begins here and prints no table"
            log.refuse("no-table", problem, first, "did it fail, or did several processes print at once?")
        footer = _first(log, FOOTER, labels, last)
        end = (footer or _first(log, STARTING, labels, last) or last + 1) - 1
        yield _Section(log, before, first, labels, end, last, whole=footer is not None).run(collective, ranks)
        before = end + 1


def _starts(log: Log) -> Iterator[int]:
    """Each run begins with its options, or with the labels of its table where those are missing."""
    headed = False
    for number, line in enumerate(log.lines, 1):
        options = OPTIONS.match(line) is not None
        if options or LABELS.match(line):
            if options or not headed:
                yield number
            headed = options


def _first(log: Log, pattern: re.Pattern[str], first: int, last: int) -> int | None:
    return next((number for number, _ in log.matches(pattern, first, last)), None)


@dataclass(frozen=True, slots=True)
class _Section:
    """The lines of one run, counted from 1, ends included.

    before  the first line after the run before it: the command may stand there
    first   of its header
    labels  of its table
    end     the last line of its table's rows
    last    the last line before the next run
    whole   whether the table ends with its summary
    """

    log: Log
    before: int
    first: int
    labels: int
    end: int
    last: int
    whole: bool

    def run(self, collective: str | None, ranks: int | None) -> MeasuredRun:
        """The run. Raises InputError for what cannot be trusted."""
        self.refuse_failed()
        rows = table(self.log, self.labels, self.end)
        options = OPTIONS.match(self.log.lines[self.first - 1])
        threads, per_thread = (int(options[1]), int(options[2])) if options else (1, 1)
        count, hosts = self.devices(threads * per_thread) or (ranks, None)
        if count is None:
            problem = "nothing says how many ranks took part"
            self.log.refuse("unknown-ranks", problem, self.labels, "keep the lines '#  Rank ...', or give --ranks")
        texts = self.log.lines[self.before - 1 : self.end]
        blocking = _first(self.log, BLOCKING, self.first, self.labels) is not None
        calls, warmed = self.option(r"\d iters", nccl.MANY_CALLS), self.option("warmup iters", nccl.MANY_CALLS)
        forced, remarks = nccl.way_of_running(
            texts, calls=calls, warmed=warmed, aggregated=self.option("agg iters"), blocking=blocking
        )
        launch = nccl.launched(per_thread, self.option("graph")) if options else None
        kind = self.collective(rows, count, collective)
        run = MeasuredRun(kind, count, launch=launch, nodes=hosts, library=self.library(), **forced)
        _refuse_contradictions(self.log, rows, run)
        doubts = (self.log.remark(self.labels, text) for text in nccl.doubts(rows))
        remarked = (self.log.remark(self.first, text) for text in remarks)
        return with_points(self.log, nccl.TOOL, run, rows, (*doubts, *self.cut(rows[-1]), *remarked))

    def option(self, name: str, unless: int = 0) -> int:
        """A number of the line of options; another if it is not there."""
        match = re.search(rf"\b{name}:? (\d+)", self.log.lines[self.first - 1])
        return int(match[1]) if match else unless

    def refuse_failed(self) -> None:
        """No run that failed, or whose values were wrong, is worth reading: its times are of something else."""
        for number, match in self.log.matches(FAILURE, self.first, self.last):
            if match[1] is None:
                self.log.refuse("failed-run", "the run failed here", number)
            if int(match[1]):
                remedy = "mend that first: the times mean nothing"
                self.log.refuse("wrong-values", f"{match[1]} values were wrong", number, remedy)

    def devices(self, per_process: int) -> tuple[int, int | None] | None:
        """Ranks of the devices listed in the header, and hosts that they are on; None of what is not listed.

        per_process  devices of one process; a process whose list is too long to print whole ends it with dots

        Raises InputError if some are missing, if there is only one, if several groups ran at once, or if hosts have
        unequal shares.
        """
        devices = list(self.log.matches(DEVICE, self.first, self.labels))
        if not devices:
            return None
        line, ranks = devices[-1][0], {int(match[1]): match[4] for _, match in devices}
        processes = {(match[3], match[4]): match[4] for _, match in devices}
        cut = _first(self.log, CUT_LIST, self.first, self.labels) is not None
        count = len(processes) * per_process if cut else len(ranks)
        if not cut and max(ranks) + 1 != count:
            message = f"{count} devices are listed, the last one is rank {max(ranks)}"
            self.log.refuse("devices-missing", message, line)
        if len({match[2] for _, match in devices}) > 1:
            nccl.several_groups(self.log, line)
        if count == 1:
            nccl.one_rank(self.log, line)
        hosts = (processes if cut else ranks).values()
        return count, None if None in hosts else nccl.hosts(self.log, line, hosts)

    def collective(self, rows: Sequence[LogRow], ranks: int, stated: str | None) -> str:
        """By the program's name, where it is in the log; else by what only one collective prints."""
        above = reversed(self.log.lines[self.before - 1 : self.labels - 1])
        named = next(filter(None, map(nccl.collective, above)), None)
        alike = [name for name in (named or stated,) if name] or _alike(rows, ranks)
        if len(alike) != 1:
            problem = "nothing says which collective this is"
            might = f"by its columns it may be {' or '.join(alike)}" if alike else ""
            remedy = "keep the command line, or give --collective"
            self.log.refuse("unknown-collective", problem, self.labels, remedy, might)
        return alike[0]

    def library(self) -> str:
        """NCCL or RCCL with its version, as far as the log says it."""
        match = next(self.log.matches(LIBRARY, self.before, self.end), None)
        if match is None:
            tool = any(line.startswith("rccl-tests:") for line in self.log.lines[self.before - 1 : self.end])
            return "rccl" if tool else ""
        code, name, version = match[1].groups()
        return f"nccl {nccl.version(int(code))}" if code else f"{name.lower()} {version}"

    def cut(self, last: LogRow) -> Iterator[str]:
        """A word on a table that ends without its summary."""
        if not self.whole:
            largest = self.option("maxBytes")
            upto = f"at {last.size} of {largest} bytes" if largest > last.size else "without its summary"
            yield self.log.remark(last.line, f"the run ends {upto}: cut, or stopped; the rows there are count")


def _refuse_contradictions(log: Log, rows: Sequence[LogRow], run: MeasuredRun) -> None:
    """Times, bandwidths, ranks and collective must fit each other: else a unit, or the header, is another run's."""
    for row in rows:
        algbw, time = float(row.halves[0]["algbw"]), row.halves[0]["time"]
        meant = row.size / row.seconds / GIGA if row.seconds > 0 else algbw
        if abs(algbw - meant) > SLACK * meant + LAST_DIGIT:
            message = f"{row.size} bytes in {time} us are {meant:.4g} GB/s, not {algbw:g}"
            log.refuse("contradiction", message, row.line, "are the units of this log mixed?")
    printed, factor = _printed_factor(rows), bus_factor(run)
    if printed and factor and abs(printed - factor) > SLACK * factor:
        message = f"busbw is {printed:.3g} algbw; for {run} it is {factor:.3g}"
        log.refuse("contradiction", message, rows[0].line, "another collective, or another number of ranks?")


def bus_factor(run: MeasuredRun) -> float | None:
    """What busbw is of algbw as nccl-tests defines them; None for what tpsim does not price."""
    if run.kind not in MOVES:
        return None
    return float(wire(run.kind, logical(nccl.TOOL, run.kind, 1, run.ranks), run.ranks))


def _printed_factor(rows: Sequence[LogRow]) -> float | None:
    """What busbw is of algbw as printed, of rows with digits enough."""
    pairs = [(float(row.halves[0]["busbw"]), float(row.halves[0]["algbw"])) for row in rows]
    ratios = [busbw / algbw for busbw, algbw in pairs if busbw >= 1 and algbw >= 1]
    return median(ratios) if ratios else None


def _alike(rows: Sequence[LogRow], ranks: int) -> list[str]:
    """The collectives that print such an operation and such a ratio of busbw to algbw."""
    if rows[0].root >= 0:
        return [ROOTED]
    printed = _printed_factor(rows)
    moving, reducing = ("all_gather", "all_to_all", "permute"), ("all_reduce", "reduce_scatter")
    meant = {
        kind: bus_factor(MeasuredRun(kind, ranks)) for kind in (moving if rows[0].redop in {"", "none"} else reducing)
    }
    return [kind for kind, bus in meant.items() if printed is None or (bus and abs(printed - bus) <= SLACK * bus)]


# Tables ----------------------------------------------------------------------------------------------------------

TIMES = ("time", "cputime")
FIGURES = frozenset({*TIMES, *WRONG, "algbw", "busbw", "i_min", "i_max", "i_p99", "i_cv%"})
"""Labels of numbers; a time stamp, or rccl-tests' algorithm, may stand after the last one."""

UNITS = frozenset({"B", "elements", "us", "GB/s", "%"})

# Size, count, type, and the operation if one is printed; a debug line may be glued to the root.
_HEAD = re.compile(r"^\s*(\d+)\s+(\d+)\s+[a-z]\w*(\s+[a-z]+)?(\s.*|)$")
_ROOT = re.compile(r"\s+-?\d+")
# As printf writes it: no zero before a digit, so that a host's name may be glued to a zero. Atomic: all of it or none.
_FIGURE = re.compile(r"\s*((?>N/A|nan|inf|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[-+]?\d+)?))(?=\s|$|[0-9A-Za-z\[])")


def table(log: Log, labels: int, end: int) -> list[LogRow]:
    """The rows of the table whose labels stand on line `labels`, up to line `end`.

    Debug output may stand between a row's head, its two halves and its end.

    Raises InputError for other columns than are needed, a row that is not whole, and values that were wrong.
    """
    names, above = log.lines[labels - 1].lstrip("# ").split(), log.lines[max(0, labels - 2)]
    starts = [at for at, name in enumerate(names) if name in TIMES]
    groups = [[name for name in names[a : b + 1] if name in FIGURES] for a, b in stretches(starts, len(names) - 1)]
    _refuse_other_columns(log, labels, groups)
    in_place = len(groups) == 1 and "in-place" in above and "out-of-place" not in above
    heads = dict(log.matches(_HEAD, labels + 1, end))
    rows = []
    for line, last in stretches(heads, end):
        head = heads[line]
        root = _ROOT.match(head[4]) if "root" in names else None
        texts = [head[4][root.end() if root else 0 :], *(text for text in log.lines[line:last] if text[:1].isspace())]
        figures = [figure for text in texts for figure in _figures(text)][: sum(map(len, groups))]
        halves = by_label(log, line, head[1], figures, groups)
        moved = in_place or len(halves) < len(groups)
        rows.append(LogRow(int(head[1]), line, halves, moved, (head[3] or "").strip(), int(root[0]) if root else -1))
    if not rows:
        log.refuse("no-rows", "the table has no rows", labels)
    refuse_wrong(log, rows)
    return rows


def _refuse_other_columns(log: Log, labels: int, groups: Sequence[Sequence[str]]) -> None:
    """Times until data arrived, in the units that are always printed, beside the bandwidths that confirm them."""
    if not groups:
        log.refuse("no-times", "the table has no column of times", labels, "give the log as it was printed")
    for name in ("algbw", "busbw"):
        if name not in groups[0]:
            log.refuse("no-bandwidth", f"the table has no {name}", labels, "keep the table as it was printed")
    if TIMES[1] in groups[0]:
        problem = "the table holds CPU times: until calls returned, not until data arrived"
        log.refuse("cpu-times", problem, labels, "run without -C")
    below = "".join(log.lines[labels : labels + 1])
    for unit in re.findall(r"\((\S+?)\)", below) if below.startswith("#") else []:
        if unit not in UNITS:
            log.refuse("unknown-unit", f"a column is in {unit}", labels + 1, "nccl-tests prints us and GB/s")


def _figures(text: str) -> Iterator[str]:
    while match := _FIGURE.match(text):
        yield match[1]
        text = text[match.end() :]
        if text and not text[0].isspace():
            return
