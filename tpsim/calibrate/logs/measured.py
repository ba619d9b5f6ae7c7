"""Measured collectives as values: logical bytes and seconds, with the run that they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpsim.algebra.moves import MOVES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.calibrate.logs.log import Log


@dataclass(frozen=True, slots=True)
class Point:
    """One row of a log: V logical bytes took so many seconds; `line` is where it stands."""

    V: int
    seconds: float
    line: int


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a benchmark says of itself.

    collective  as tpsim calls it if it prices it, else as the program does
    nodes       hosts that took part; None if the log does not say
    library     ``nccl 2.27.3``, ``rccl``, ``mpi``; "" if the log does not say
    harness     how calls were launched: threads, process, graph, osu; "" if the log does not say
    algorithm, protocol  what the environment forced; None if the log says nothing
    """

    collective: str
    ranks: int
    nodes: int | None = None
    library: str = ""
    harness: str = ""
    algorithm: str | None = None
    protocol: str | None = None

    def __str__(self) -> str:
        return f"{self.collective} over {self.ranks} ranks"

    @property
    def priced(self) -> bool:
        """False for what tpsim has no price for, as a broadcast."""
        return self.collective in MOVES


@dataclass(frozen=True, slots=True)
class Measured:
    """One run and its points.

    log, sha256  the file that it is from
    warnings     what to know before trusting the points, each with its place: ``all-reduce.txt:7: ...``
    """

    run: Run
    log: str
    sha256: str
    points: tuple[Point, ...]
    warnings: tuple[str, ...] = ()


NCCL_NAMES: Mapping[str, str] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "permute",
}
"""Programs of nccl-tests and rccl-tests, less ``_perf``; those not named are not priced."""

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


def points_of(log: Log, tool: str, run: Run, rows: list[tuple[int, float, int]]) -> tuple[list[Point], list[str]]:
    """Rows of (printed size, seconds, line) as points, and what is odd about them.

    Rows of no bytes are left out: that is what a size below one element per rank is rounded to.

    Raises InputError for times that are none, sizes that fall without starting again, and a run without rows.
    """
    _refuse_unsound(log, rows)
    warnings = [*_empty(log, rows), *_repeated(log, rows)]
    points = [Point(logical(tool, run.collective, size, run.ranks), time, line) for size, time, line in rows if size]
    return points, warnings


def _refuse_unsound(log: Log, rows: list[tuple[int, float, int]]) -> None:
    before = 0
    for size, seconds, line in rows:
        if not 0 < seconds < float("inf"):
            log.refuse("no-time", f"{size} bytes took {seconds:g} seconds", line, "a collective takes some time")
        if size < before and size != rows[0][0]:
            message = f"sizes fall from {before} to {size} bytes within a run"
            log.refuse("sizes-fall", message, line, "is the header of a second run missing?")
        before = size


def _empty(log: Log, rows: list[tuple[int, float, int]]) -> list[str]:
    empty = [line for size, _, line in rows if not size]
    what = f"{len(empty)} rows of 0 bytes left out: their sizes were below one element per rank"
    return [warning(log, empty[0], what)] if empty else []


def _repeated(log: Log, rows: list[tuple[int, float, int]]) -> list[str]:
    first = {size: line for size, _, line in reversed(rows)}
    again = [line for size, _, line in rows if size and first[size] != line]
    return [warning(log, again[0], f"{len(again)} sizes were measured again; every row counts")] if again else []


def warning(log: Log, line: int, text: str) -> str:
    """A remark on a line of a log."""
    return f"{log.path}:{line}: {text}"
