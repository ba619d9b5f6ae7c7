"""Sweeps: a search for every combination of varied values, each kept in a file as soon as it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from uuid import uuid4

from tpsim.answers.cell import COLUMNS, SERVED, Cell, cells, kinds
from tpsim.answers.layout_row import Demanded
from tpsim.answers.planned import By  # noqa: TC001 - JSON Schemas read types
from tpsim.answers.ranking import measurable
from tpsim.answers.search import PLANS, TOP, asked_again, refuse_ranking, save_best
from tpsim.answers.search_verdict import known_of, looked_at
from tpsim.layouts.space import spaces
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo
from tpsim.report.answer import Answer
from tpsim.report.formats import read_parquet, told_in, write_parquet
from tpsim.report.numbers import counted
from tpsim.report.record import Count, Number
from tpsim.report.table import Line

if TYPE_CHECKING:
    from tpsim.question.edits import Flags


Searched = tuple[int, list[dict[str, Any]], dict[str, Any]]
"""The number of a cell, its rows, and what is told beside them."""


@lru_cache(maxsize=1)
def _memo(_sweep: str) -> Memo:
    """What a process has read and lowered for the cells of one sweep: of another one files may have changed."""
    return Memo()


def _numbered(at: int, cell: Cell, sweep: str) -> Searched:
    return at, *cell.searched(_memo(sweep))


def spread(cells: Sequence[Cell], workers: int, dask: str) -> Iterator[Searched]:
    """The answers of cells as they come, in whatever order.

    Raises InputError where the extra that this needs is not installed.
    """
    if workers < 1:
        raise InputError.one("bad-value", f"{workers} workers search nothing", remedy="write --workers 2")
    if workers == 1 and not dask:
        return (_numbered(at, cell, sweep) for sweep in [uuid4().hex] for at, cell in enumerate(cells))
    return _on_dask(cells, dask) if dask else _in_processes(cells, workers)


def _in_processes(cells: Sequence[Cell], workers: int) -> Iterator[Searched]:
    """What a process that died has not answered is asked again, as long as others answer."""
    joblib = extra("joblib", "cluster")
    left = dict(enumerate(cells))
    while left:
        had = len(left)
        try:
            for answer in _together(joblib, left, workers):
                del left[answer[0]]
                yield answer
        except joblib.externals.loky.process_executor.TerminatedWorkerError:
            if len(left) == had:
                raise


def _on_dask(cells: Sequence[Cell], address: str) -> Iterator[Searched]:
    """The scheduler asks again what a worker that died has not answered."""
    joblib, distributed = extra("joblib", "cluster"), extra("distributed", "cluster")
    try:
        client = distributed.Client(address)
    except (OSError, ValueError) as error:
        raise InputError.one("no-scheduler", f"{address}: {error}", remedy="start one: dask scheduler") from error
    with client, joblib.parallel_config(backend="dask"):
        yield from _together(joblib, dict(enumerate(cells)), -1)


def _together(joblib: Any, cells: Mapping[int, Cell], workers: int) -> Iterator[Searched]:
    run, sweep = joblib.Parallel(n_jobs=workers, batch_size=1, return_as="generator_unordered"), uuid4().hex
    yield from run([joblib.delayed(_numbered)(at, cell, sweep) for at, cell in cells.items()])


def extra(module: str, name: str) -> Any:
    """A module of one of tpsim's extras. Raises InputError where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        remedy = f"pip install 'tpsim[{name}]'"
        raise InputError.one(
            "missing-extra", f"a sweep needs {module}, which is not installed", remedy=remedy
        ) from error


def _folder(path: Path) -> Path:
    """A folder, made if it is not there. Raises InputError where a file is in its way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        message = f"{path} cannot be a folder: there is a file of that name"
        raise InputError.one("no-folder", message, remedy="a sweep is kept in a folder: --sweep runs") from None
    return path


def _keep(path: Path, *told: Any) -> None:
    """Write the file of a cell. Raises InputError where it cannot be written."""
    try:
        write_parquet(path, *told)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        remedy = "mend that, and ask again: cells that were searched are kept"
        raise InputError.one("cannot-write", f"{path.parent}: {why}", remedy=remedy) from error


@checked
def sweep(
    scenario: str | Path | Mapping[str, Any] | None = None,
    *,
    folder: str | Path,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = (),
    by: By = "step",
    top: int = TOP,
    plans: int = PLANS,
    workers: int = 1,
    dask: str = "",
    progress: Callable[[int, int, float], None] | None = None,
    **flags: Unpack[Flags],
) -> SweepResult:
    """Search once for every combination of the values that are varied, and keep each answer as a Parquet file.

    folder    where the files are kept, one per cell: those that are there already are not searched again
    workers   processes of this machine, by joblib
    dask      the address of a Dask scheduler instead, whose workers see the same files
    progress  is told at first and after each cell: cells done, of how many, and seconds since the first began
    scenario, overrides, vary, by, flags  as `search` takes them
    top       layouts that are kept of each cell, and listed of all
    plans     how many are planned at most, of each cell
    Raises InputError for what every cell would be refused for.
    """
    if str(scenario) == "-":
        message = "a sweep reads its scenario once per cell, and stdin can be read once"
        raise InputError.one("no-file", message, remedy="name a file")
    refuse_ranking(by, top, plans)
    extra("pyarrow", "parquet")
    memo = Memo()
    several = spaces(scenario, flags=flags, overrides=overrides, vary=vary, memo=memo)
    questions = [space.question(None, memo) for space in several]
    measurable("by", by, questions)
    stated = str(scenario) if isinstance(scenario, Path) else scenario
    planned = [Cell(stated, values, overrides, flags, by, top, plans) for values in cells(vary)]
    home = _folder(Path(folder))
    paths = {cell: home / f"{cell.key(memo)}.parquet" for cell in planned}
    missing = [cell for cell in planned if not told_in(paths[cell])]
    began = time.monotonic()
    if progress and missing:
        progress(0, len(missing), 0.0)
    varied = kinds([space.varied for space in several])
    columns = {**varied, **COLUMNS, **(SERVED if questions[0].inference else {})}
    for done, (at, rows, summary) in enumerate(spread(missing, workers, dask), 1):
        _keep(paths[missing[at]], rows, columns, summary)
        if progress:
            progress(done, len(missing), time.monotonic() - began)
    best = questions[0].stated.file.require.best
    files = tuple(dict.fromkeys(file for question in questions for file in question.inputs))
    words = tuple(asked_again(scenario, flags, overrides, (), plans))
    kept = tuple(paths[cell] for cell in planned)
    return SweepResult(by, top, kept, len(missing), best.stated if best else {}, questions[0].name, words, files)


@dataclass(frozen=True)
class SweepResult(Answer):
    """The best layouts of all cells.

    paths  the file of each cell
    made   cells that were searched now; the others were there
    asked  what the scenario requires of the best layout
    name   of the scenario, without one of the model
    words  of the command line that ask for it, but for what is varied
    files  path and sha256 of every file that was read
    """

    schema = "tpsim.sweep/1"
    table = "rows"
    told: ClassVar[tuple[str, ...]] = (
        *("verdict", "by", "cells", "considered", "legal", "fitting", "close", "gap", "complete", "empty", "require?"),
        "rows",
    )

    by: By
    top: int
    paths: tuple[Path, ...]
    made: int
    asked: Mapping[str, Any]
    name: str = ""
    words: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    @cached_property
    def by_cell(self) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
        """Rows and counts of every cell, in the order of what is varied, however they were made."""
        return [read_parquet(path) for path in self.paths]

    @property
    def cells(self) -> Count:
        """Combinations of the values that are varied."""
        return len(self.paths)

    @property
    def considered(self) -> Count:
        """Layouts looked at, in all cells."""
        return self._sum("considered")

    @property
    def legal(self) -> Count:
        """Those that `plan` does not refuse."""
        return self._sum("legal")

    @property
    def fitting(self) -> Count:
        """Legal ones whose peak the memory of a chip holds."""
        return self._sum("fitting")

    @property
    def close(self) -> Count:
        """How many of those that fit are too close to say."""
        return self._sum("close")

    def _sum(self, name: str) -> int:
        return sum(summary.get(name, 0) for _, summary in self.by_cell)

    @property
    def empty(self) -> list[dict[str, Any]]:
        """Cells without a layout, and why: what was varied, and what was said."""
        return [{"vary": summary["vary"], "why": summary["why"]} for _, summary in self.by_cell if summary["why"]]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The best layouts of all cells, the best first."""
        every = (row for rows, _ in self.by_cell for row in rows)
        ranked = sorted(every, key=lambda row: row["value"])[: self.top]
        return [{**row, "rank": rank} for rank, row in enumerate(ranked, 1)]

    @property
    def complete(self) -> bool:
        """True if no layout that is not listed can be better than one that is."""
        return not self._open

    @property
    def _open(self) -> list[float]:
        """What layouts that were not planned come to at least, by cell."""
        ends = (summary.get("open_at") for _, summary in self.by_cell)
        return [end for end in ends if end is not None]

    @property
    def gap(self) -> Number:
        """How far below the best a layout that was not planned may be, as a share; 0 if none can be."""
        return max(0.0, 1 - min(self._open) / self.rows[0]["value"]) if self._open and self.rows else 0

    @property
    def require(self) -> list[Demanded] | None:
        """What the scenario requires of the best layout of all; left out where that is nothing, or there is none."""
        if not self.asked or not self.rows:
            return None
        return [Demanded(name, value, self.rows[0][name]) for name, value in self.asked.items()]

    @property
    def ok(self) -> bool:
        """True if any cell has a layout that fits and meets every demand, and the best is as it is required to be."""
        return bool(self.rows) and all(demand.ok for demand in self.require or ())

    @property
    def to_save(self) -> str:
        """The command that writes the best layout of all as a scenario; "" if there is none."""
        if not self.rows:
            return ""
        vary = (word for text in self._best["vary"] for word in ("--vary", text))
        return save_best((*self.words, *vary), self.by)

    @property
    def _best(self) -> Mapping[str, Any]:
        """What is told of the cell of the best layout."""
        return min((cell for cell in self.by_cell if cell[0]), key=lambda cell: cell[0][0]["value"])[1]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The best of all, whether it fits, and how many cells there were."""
        counts = f"{counted(self.cells, 'cell')}, {len(self.empty):,} without a layout: "
        counts += looked_at(self.considered, self.legal, self.fitting, self.close)
        if not self.rows:
            return (Line(f"no layout: {counts}", "best", ok=False),)
        lines = [Line(text, label) for label, text in self._best["lines"].items()]
        if self.rows[0]["fits"] is None and (
            sure := [summary["sure"] for _, summary in self.by_cell if summary.get("sure")]
        ):
            lines.append(Line(min(sure)[1], "surely"))
        known = known_of(self.gap, complete=self.complete)
        lines.append(Line(f"{counts}; {known}", "space"))
        return (*lines, *(Line(demand.text, "require", ok=demand.ok) for demand in self.require or ()))
