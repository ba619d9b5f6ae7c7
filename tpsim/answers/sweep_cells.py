"""Cells of a sweep: what each asks, what its file is called, and how many are searched at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tpsim import __version__
from tpsim.answers.layout_row import in_words
from tpsim.answers.search import search
from tpsim.layouts.space import spaces
from tpsim.layouts.vary import values
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo

if TYPE_CHECKING:
    from tpsim.answers.layout_row import Row
    from tpsim.answers.ranking import By

Searched = tuple[int, list[dict[str, Any]], dict[str, Any]]
"""The number of a cell, its rows, and what is told beside them."""

COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(
        ("rank", "tp", "dp", "cp", "ep", "pp", "chunks", "microbatches", "microbatch_size", "zero"), "int64"
    ),
    **dict.fromkeys(("sequence_parallel", "fits"), "bool"),
    **dict.fromkeys(("schedule", "recompute", "layout"), "string"),
    **dict.fromkeys(("value", "step_s", "tokens_per_s", "compute_s", "exposed_s", "bubble_s", "mfu"), "double"),
    **dict.fromkeys(("peak_bytes", "at_least_s"), "double"),
}
"""What is kept of a layout, and its type; value: what it was ranked by, less is better."""


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
        return [_flat(row) for row in result.rows], summary if result.rows else {**summary, "why": result.lines[0].text}


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
    whole = {**row, "layout": in_words(row), "value": float(row.planned.value(row.by))}
    return {**{path: str(value) for path, value in row.varied.items()}, **{name: whole[name] for name in COLUMNS}}


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
