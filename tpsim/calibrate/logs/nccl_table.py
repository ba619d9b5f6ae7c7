"""A table as nccl-tests prints it: its columns, and its rows, put together again where debug lines tore them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tpsim.calibrate.logs.log import stretches
from tpsim.calibrate.logs.rows import WRONG, LogRow, by_label, refuse_wrong

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.calibrate.logs.log import Log

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
