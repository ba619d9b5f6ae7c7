"""The points of a run: what a printed size means in logical bytes, and rows that cannot be true."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.calibrate.logs.log import Log
    from tpsim.calibrate.run import Run

    Printed = tuple[int, float, int]
    """Size as it is printed, seconds, and the line of a row."""

MICRO = 1e-6

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


def with_points(log: Log, tool: str, run: Run, rows: Sequence[Printed], warnings: Iterable[str]) -> Run:
    """The run with its rows as points, and its warnings with what is odd about them.

    Rows of no bytes are left out: that is what a size below one element per rank is rounded to.

    Raises InputError for times that are none, and sizes that fall without starting again.
    """
    _refuse_unsound(log, rows)
    first = {size: line for size, _, line in reversed(rows)}
    empty = [line for size, _, line in rows if not size]
    again = [line for size, _, line in rows if size and first[size] != line]
    odd = (
        (empty, f"{len(empty)} rows of 0 bytes left out: their sizes were below one element per rank"),
        (again, f"{len(again)} sizes were measured again; every row counts"),
    )
    points = [(logical(tool, run.kind, size, run.ranks), seconds, line) for size, seconds, line in rows if size]
    V, seconds, lines = zip(*points, strict=True) if points else ((), (), ())
    remarks = (log.remark(at[0], text) for at, text in odd if at)
    return replace(
        run, V=V, seconds=seconds, lines=lines, log=log.path, sha256=log.sha256, warnings=(*warnings, *remarks)
    )


def _refuse_unsound(log: Log, rows: Sequence[Printed]) -> None:
    before = 0
    for size, seconds, line in rows:
        if not 0 < seconds < float("inf"):
            log.refuse("no-time", f"{size} bytes took {seconds:g} seconds", line, "a collective takes some time")
        if size < before and size != rows[0][0]:
            message = f"sizes fall from {before} to {size} bytes within a run"
            log.refuse("sizes-fall", message, line, "is the header of a second run missing?")
        before = size
