"""What nccl-tests says of a run, in its tables and its JSON: collective, library, calls, the rows of its tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from tpsim.calibrate.logs.log import stretches
from tpsim.calibrate.logs.rows import WRONG, LogRow, by_label, refuse_wrong
from tpsim.machine.algorithms import NCCL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.calibrate.logs.log import Log

TOOL = "nccl-tests"
PROGRAM = re.compile(r"^(?!# Collective test concluded).*\b(\w+)_perf\b")
FORCED = re.compile(r"NCCL_(ALGO|PROTO)(?: set by environment to |=)\s*([\w^,;:]+)")
KEYS: Mapping[str, str] = {"ALGO": "algorithm", "PROTO": "protocol"}

INSIDE_NODES: Mapping[str, str] = {"collnetdirect": "straight from each to each", "collnetchain": "along chains"}
"""How NCCL goes inside nodes whose network sums, where tpsim goes as the machine offers: NCCL, src/graph/tuning.cc."""

NAMES: Mapping[str, str] = {"alltoall": "all_to_all", "sendrecv": "permute"}
"""Programs that tpsim calls by another name, less ``_perf``."""


def doubts(rows: Sequence[LogRow]) -> Iterator[str]:
    """What to know of rows before trusting them."""
    if all(row.in_place for row in rows):
        yield "measured in place only: taken as if out of place"
    if all(row.unchecked for row in rows):
        yield "values were not checked"


def collective(text: str) -> str | None:
    """What tpsim calls the collective whose program a text names; None if it names none."""
    match = PROGRAM.search(text)
    return NAMES.get(match[1], match[1]) if match else None


def version(code: int) -> str:
    """NCCL's version by its number; the scheme changed with 2.9.

    >>> version(22703), version(2708)
    ('2.27.3', '2.7.8')
    """
    thousand = 10000 if code >= 10000 else 1000  # noqa: PLR2004  # the scheme's own
    return f"{code // thousand}.{code % thousand // 100}.{code % 100}"


def launched(devices_per_thread: int, graph: int) -> str:
    """The harness: launches captured in a graph, one thread that launches on several devices, a thread per device."""
    return "graph" if graph else "process" if devices_per_thread > 1 else "threads"


def way_of_running(texts: Iterable[str], *, aggregated: int, blocking: bool) -> tuple[dict[str, Any], list[str]]:
    """Algorithm and protocol that the environment forced, in tpsim's names where it has one; remarks on options.

    texts  in which the environment may stand

    Remarked upon is what changes the meaning of a time, and a forced algorithm that has only a near relative here.
    """
    forced = [(match[1], match[2]) for text in texts for match in FORCED.finditer(text)]
    words = {KEYS[key]: NCCL.get(word.lower(), word.lower()) for key, word in forced}
    remarks = [f"{aggregated} calls were launched together: launch is paid by all of them at once"] * (aggregated > 1)
    remarks += ["each call was waited for (-z): times hold the wait too"] * blocking
    for word in dict.fromkeys(word for key, word in forced if key == "ALGO" and word.lower() in INSIDE_NODES):
        near, way = NCCL[word.lower()], INSIDE_NODES[word.lower()]
        remarks.append(f"{word} is taken for {near}, but inside nodes NCCL then goes {way}")
    return words, remarks


def several_groups(log: Log, line: int) -> NoReturn:
    """Refuse groups that shared the links."""
    log.refuse("several-groups", "several groups ran at once", line, "measure one group at a time: links are shared")


def one_rank(log: Log, line: int) -> NoReturn:
    """Refuse a run that moved nothing."""
    log.refuse("one-rank", "the run has one rank: nothing moved", line, "under mpirun, build nccl-tests with MPI=1")


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
    heads = dict(log.found(_HEAD, labels + 1, end))
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
        what = "the table holds CPU times: until calls returned, not until data arrived"
        log.refuse("cpu-times", what, labels, "run without -C")
    below = "".join(log.lines[labels : labels + 1])
    for unit in re.findall(r"\((\S+?)\)", below) if below.startswith("#") else []:
        if unit not in UNITS:
            log.refuse("unknown-unit", f"a column is in {unit}", labels + 1, "nccl-tests prints us and GB/s")


def _figures(text: str) -> Iterator[str]:
    """The figures that a text begins with."""
    while match := _FIGURE.match(text):
        yield match[1]
        text = text[match.end() :]
        if text and not text[0].isspace():
            return
