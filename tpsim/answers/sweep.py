"""Sweeps: a search for every combination of varied values, each kept in a file as soon as it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from uuid import uuid4

from tpsim import __version__
from tpsim.answers.layout_row import Demanded, in_texts, in_words
from tpsim.answers.ranking import measurable
from tpsim.answers.search import PLANS, TOP, refuse_ranking, search
from tpsim.answers.search_verdict import known_of, lines_of
from tpsim.layouts.space import spaces
from tpsim.layouts.vary import values
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.memo import Memo
from tpsim.report.answer import Answer
from tpsim.report.formats import read_parquet, write_parquet
from tpsim.report.numbers import counted
from tpsim.report.record import Count, Number

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.answers.layout_row import Row
    from tpsim.answers.planned import By
    from tpsim.question.edits import Flags


Searched = tuple[int, list[dict[str, Any]], dict[str, Any]]
"""The number of a cell, its rows, and what is told beside them."""

COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(
        ("rank", "tp", "dp", "cp", "ep", "pp", "chunks", "microbatches", "microbatch_size", "zero"), "int64"
    ),
    **dict.fromkeys(("sequence_parallel", "fits"), "bool"),
    **dict.fromkeys(("ep_over", "schedule", "layers", "recompute", "placement", "layout"), "string"),
    **dict.fromkeys(("value", "step_s", "tokens_per_s", "compute_s", "exposed_s", "bubble_s", "mfu"), "double"),
    **dict.fromkeys(("peak_bytes", "at_least_s"), "double"),
}
"""What is kept of a layout, and its type; value: what it was ranked by, less is better."""

SERVED: Mapping[str, str] = {
    "cache": "string",
    "batch": "int64",
    **dict.fromkeys(("ttft_s", "tpot_s", "tokens_per_s_chip"), "double"),
}
"""What of inference is kept, too."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One search, as it can be sent to another process: the fields are those of `search`, one value of each varied."""

    scenario: str | Mapping[str, Any] | None
    vary: tuple[str, ...]
    overrides: Sequence[str]
    flags: Mapping[str, Any]
    by: By
    top: int
    plans: int

    def key(self, memo: Memo) -> str:
        """What its file is called: it changes with all that its answer is made of."""
        try:
            (space,) = spaces(self.scenario, flags=self.flags, overrides=self.overrides, vary=self.vary, memo=memo)
            files: Sequence[Any] = [document for _, document in space.question(None, memo).inputs]
        except InputError as error:
            files = [str(error)]
        return sha256(json.dumps([__version__, asdict(self), files], sort_keys=True, default=str).encode()).hexdigest()[
            :16
        ]

    def searched(self, memo: Memo) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Its best layouts, and what is told beside them."""
        summary: dict[str, Any] = {"vary": self.vary, "why": ""}
        asked: dict[str, Any] = {"by": self.by, "top": self.top, "plans": self.plans, **self.flags}
        try:
            result = search(self.scenario, overrides=self.overrides, vary=self.vary, memo=memo, **asked)
        except InputError as error:
            return [], {**summary, "why": error.problems[0].message}
        summary |= {name: result[name] for name in ("considered", "legal", "fitting", "plans", "gap")}
        summary["open_at"] = None if result.complete else result.ranked.open_at
        if not result.rows:
            summary["why"] = next(lines_of(result)).text  # the first alone: behind it is searched again
        return [_flat(row) for row in result.rows], summary


def cells(vary: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One `vary` for every combination of the values that are listed."""
    named = (text.partition("=") for text in vary)
    return product(
        *(
            ([f"{path}={value}" for value in dict.fromkeys(values(listed))]) if equals else [path]
            for path, equals, listed in named
        )
    )


def _flat(row: Row) -> dict[str, Any]:
    whole = {**row, **in_texts(row), "layout": in_words(row), "value": float(row.planned.value(row.by))}
    kept = [*COLUMNS, *(SERVED if row.question.inference else ())]
    return {**{path: str(value) for path, value in row.varied.items()}, **{name: whole.get(name) for name in kept}}


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
    extra("pyarrow", "parquet")
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
    progress  is told after each cell: cells done, of how many, and seconds since the first began
    scenario, overrides, vary, by, flags  as `search` takes them
    top       layouts that are kept of each cell, and listed of all
    plans     how many are planned at most, of each cell
    Raises InputError for what every cell would be refused for.
    """
    if str(scenario) == "-":
        message = "a sweep reads its scenario once per cell, and stdin can be read once"
        raise InputError.one("no-file", message, remedy="name a file")
    refuse_ranking(by, top, plans)
    memo = Memo()
    several = spaces(scenario, flags=flags, overrides=overrides, vary=vary, memo=memo)
    questions = [space.question(None, memo) for space in several]
    measurable("by", by, questions)
    stated = str(scenario) if isinstance(scenario, Path) else scenario
    planned = [Cell(stated, values, overrides, flags, by, top, plans) for values in cells(vary)]
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    paths = {cell: home / f"{cell.key(memo)}.parquet" for cell in planned}
    missing = [cell for cell in planned if not paths[cell].exists()]
    began = time.monotonic()
    columns = {**dict.fromkeys(several[0].varied, "string"), **COLUMNS, **(SERVED if questions[0].inference else {})}
    for done, (at, rows, summary) in enumerate(spread(missing, workers, dask), 1):
        write_parquet(paths[missing[at]], rows, columns, summary)
        if progress:
            progress(done, len(missing), time.monotonic() - began)
    best = questions[0].stated.file.require.best
    return SweepResult(by, top, tuple(paths[cell] for cell in planned), len(missing), best.stated if best else {})


@dataclass(frozen=True)
class SweepResult(Answer):
    """The best layouts of all cells.

    paths  the file of each cell
    made   cells that were searched now; the others were there
    asked  what the scenario requires of the best layout
    """

    schema = "tpsim.sweep/1"
    table = "rows"
    told: ClassVar[tuple[str, ...]] = (
        *("verdict", "by", "cells", "considered", "legal", "fitting", "gap", "complete", "empty", "require?", "rows"),
    )

    by: str
    top: int
    paths: tuple[Path, ...]
    made: int
    asked: Mapping[str, Any]

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
    def verdict(self) -> str:
        """The best of all, and how many cells there were."""
        counts = f"{counted(self.cells, 'cell')}, {len(self.empty):,} without a layout: "
        counts += f"{counted(self.considered, 'layout')} considered, {self.legal:,} legal, {self.fitting:,} fit"
        if not self.rows:
            return f"no layout: {counts}"
        best = self.rows[0]
        demands = [demand.text for demand in self.require or ()]
        return "; ".join(
            [
                f"{best['layout']}: {show(best['step_s'], 'seconds')} a step",
                f"{counts}: {known_of(self.gap, complete=self.complete)}",
                *demands,
            ]
        )
