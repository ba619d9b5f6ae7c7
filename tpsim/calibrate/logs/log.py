"""A log as lines, without what launchers and terminals put around it; its rows, and the points that they are."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tpsim.calibrate.run import MeasuredRun

    Match = re.Match[str]

MAX_BYTES = 64_000_000
"""A log of more is not one of a benchmark."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BEFORE = re.compile(
    r"""^(?:
    \[(?:[^\s\]]+@)?\d+,\d+\]<std(?:out|err)>:\ ?  # mpirun --tag-output, of Open MPI 5 with the job's name
    |\ *\d+:\                                      # srun -l
    |\[\d+\]\                                      # mpirun -prepend-rank
    |\[(?:rank|default)\d+\]:\ ?                   # torchrun
    |\[pod/[^\s\]]+\]\                             # kubectl logs --prefix
    |[A-Za-z][\w.-]*:\ (?=\#|rccl-tests:|\ *\d+\ {2,}\d+\ {2,}[a-z])  # pdsh, of headers and of rows
    |\[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\ std(?:out|err)\ F)?(?:\ |$)
    |\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?:\ |$)
    |\d{10}\.\d+(?:\ |$)
    |(?:[A-Z][a-z]{2}\ ){2}[\ \d]\d\ \d\d:\d\d:\d\d\ \d{4}(?=[<[])(?:<std(?:out|err)>:)?  # mpirun --timestamp-output
    |[A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d(?:\.\d+)?(?:\ \S+\ [\w./-]+\[\d+\]:)?(?:\ |$)  # ts, journalctl
    )+""",
    re.VERBOSE,
)
"""What launchers and collectors of logs put before each line: ranks, hosts and pods, time stamps, also one by one."""


@dataclass(frozen=True, slots=True)
class Log:
    """One log.

    path    as the user gave it; "-" for standard input
    sha256  of the file's bytes
    lines   without line ends, colours, what stands before each line, and indents of headers; the first is line 1 of the
            file
    """

    path: str
    sha256: str
    lines: tuple[str, ...]

    def matches(self, pattern: re.Pattern[str], first: int = 1, last: int | None = None) -> Iterator[tuple[int, Match]]:
        """Where a pattern stands within those lines, both ends included: the number of the line, and the match."""
        matches = ((at, pattern.search(line)) for at, line in enumerate(self.lines[first - 1 : last], first))
        return ((at, match) for at, match in matches if match)

    def remark(self, line: int, text: str) -> str:
        """A warning about a line."""
        return f"{self.path}:{line}: {text}"

    def refuse(
        self, slug: str, message: str, line: int, remedy: str = "", note: str = "", *, column: int = 0
    ) -> NoReturn:
        """Raise InputError at all that is written on a line, or at a column of it; line 0 is the file as a whole."""
        text = self.lines[line - 1] if line else ""
        start = column or (len(text) - len(text.lstrip()) + 1 if line else 0)
        place = Place(self.path, line, start, text, 1 if column else max(1, len(text.rstrip()) - start + 1))
        raise InputError.one(slug, message, place, remedy, note)


def load(path: Path | str) -> Log:
    """The log at a path, ``-`` for standard input.

    Raises InputError if there is none, or if it is no text.
    """
    content = spec.content(path, MAX_BYTES)
    whole = Place(str(path), 0, 0, "")
    if len(content) > MAX_BYTES:
        raise InputError.one("file-too-large", f"the log is larger than {MAX_BYTES // 10**6} MB", whole)
    if b"\0" in content:
        raise InputError.one(
            "not-text", "the file holds bytes that are no text", whole, "give what the program printed"
        )
    text = content.decode("utf-8-sig", errors="replace")
    return Log(str(path), sha256(content).hexdigest(), tuple(map(_clean, text.split("\n"))))


def _clean(line: str) -> str:
    plain = _BEFORE.sub("", _COLOUR.sub("", line.rstrip("\r")))
    return plain.lstrip() if plain.lstrip().startswith("#") else plain


def stretches(starts: Iterable[int], last: int) -> Iterator[tuple[int, int]]:
    """First and last line of what begins at each of `starts` and ends before the next one, or with line `last`.

    >>> list(stretches([3, 8], 12))
    [(3, 7), (8, 12)]
    """
    known = list(starts)
    yield from zip(known, [*(start - 1 for start in known[1:]), last], strict=False)


MICRO = 1e-6
WRONG = ("#wrong", "error")
"""What the count of wrong values is called; releases before 2.13 print the largest deviation under ``error``."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """One size.

    halves    its figures by label: out of place and in place, as far as both were measured
    in_place  True if there are none out of place
    redop     the operation; "" or "none" for a collective that only moves
    root      the rank that it starts or ends at; -1 for none
    """

    size: int
    line: int
    halves: Sequence[Mapping[str, Any]]
    in_place: bool = False
    redop: str = ""
    root: int = -1

    @property
    def seconds(self) -> float:
        """Out of place where measured."""
        return float(self.halves[0]["time"]) * MICRO

    @property
    def wrong(self) -> bool:
        """True if values were counted as wrong."""
        return any(float(half[WRONG[0]]) for half in self.halves if half.get(WRONG[0], "N/A") != "N/A")

    @property
    def unchecked(self) -> bool:
        """True if nobody counted."""
        return next((self.halves[0][column] for column in WRONG if column in self.halves[0]), "N/A") == "N/A"


PARTS_OF_V: Mapping[tuple[str, str], int] = {
    ("nccl-tests", "all_to_all"): 1,
    ("nccl-tests", "permute"): 1,
    ("osu", "all_gather"): 1,
    ("osu", "all_to_all"): 2,
}
"""V is the printed size times this power of the ranks; 0 where nothing stands: the size is the whole array.

nccl-tests  the size is the larger one of a rank's two buffers: the whole array for all-reduce, all-gather (output) and
            reduce-scatter (input); 1/n of it for an all-to-all and for sendrecv, in which every rank sends all it has.
            Source: NVIDIA/nccl-tests, src/common.cu (max of sendBytes and expectedBytes) and doc/PERFORMANCE.md.
osu         the size is an MPI message: the vector of an all-reduce and of a reduce-scatter (divided among the ranks),
            what a rank gives to an all-gather, what a rank sends to ONE other in an all-to-all.
            Source: OSU micro-benchmarks 7, c/mpi/collective/blocking/osu_*.c, arguments of the MPI calls.
"""


def logical(tool: str, collective: str, size: int, ranks: int) -> int:
    """V in bytes of a printed size.

    >>> logical("nccl-tests", "all_to_all", 1024, 8), logical("osu", "all_to_all", 1024, 8)
    (8192, 65536)
    """
    return size * int(ranks ** PARTS_OF_V.get((tool, collective), 0))


def by_label(
    log: Log, line: int, size: str, figures: Sequence[str], groups: Sequence[Sequence[str]]
) -> list[dict[str, str]]:
    """The figures of a row by the labels of its groups: of all of them, or of the last alone.

    Raises InputError for a row that has others.
    """
    whole = sum(map(len, groups))
    there = groups if len(figures) == whole else groups[-1:]
    if len(figures) != sum(map(len, there)):
        message = f"the row of {size} bytes has {len(figures)} of {whole} figures"
        log.refuse("torn-row", message, line, "take the row out, or the log anew")
    left = iter(figures)
    return [{label: next(left) for label in labels} for labels in there]


def with_points(log: Log, tool: str, run: MeasuredRun, rows: Sequence[LogRow], warnings: Iterable[str]) -> MeasuredRun:
    """The run with its rows as points, and its warnings with what is odd about them.

    Rows of no bytes are left out: that is what a size below one element per rank is rounded to.

    Raises InputError for times that are none, and sizes that fall without starting again.
    """
    before = 0
    for row in rows:
        if not 0 < row.seconds < float("inf"):
            message = f"{row.size} bytes took {row.seconds:g} seconds"
            log.refuse("no-time", message, row.line, "a collective takes some time")
        if row.size < before and row.size != rows[0].size:
            message = f"sizes fall from {before} to {row.size} bytes within a run"
            log.refuse("sizes-fall", message, row.line, "is the header of a second run missing?")
        before = row.size
    points = [row for row in rows if row.size]
    first = {row.size: row for row in reversed(points)}
    again = [row for row in points if first[row.size] is not row]
    empty = [row for row in rows if not row.size]
    odd = (
        (empty, f"{len(empty)} rows of 0 bytes left out: their sizes were below one element per rank"),
        (again, f"{len(again)} sizes were measured again; every row counts"),
    )
    return replace(
        run,
        V=tuple(logical(tool, run.kind, row.size, run.ranks) for row in points),
        seconds=tuple(row.seconds for row in points),
        lines=tuple(row.line for row in points),
        log=log.path,
        sha256=log.sha256,
        warnings=(*warnings, *(log.remark(several[0].line, text) for several, text in odd if several)),
    )


def refuse_wrong(log: Log, rows: Iterable[LogRow]) -> None:
    """Refuse rows with wrong values: their times are of something else."""
    for row in rows:
        if row.wrong:
            log.refuse("wrong-values", f"values of {row.size} bytes were wrong", row.line, "mend that first")
