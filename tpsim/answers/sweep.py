"""Sweeps: a search for every combination of varied values, each kept in a file as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from tpsim.answers.ranking import measurable
from tpsim.answers.sweep_cells import COLUMNS, Cell, cells, spread
from tpsim.layouts.space import spaces
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.memo import Memo
from tpsim.report.answer import Answer
from tpsim.report.formats import read_parquet, write_parquet
from tpsim.report.record import Count

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpsim.answers.ranking import By
    from tpsim.question.edits import Flags


def sweep(
    scenario: str | Path | Mapping[str, Any] | None = None,
    *,
    folder: str | Path,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = (),
    by: By = "step",
    top: int = 10,
    plans: int = 200,
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
    memo = Memo()
    several = spaces(scenario, flags=flags, overrides=overrides, vary=vary, memo=memo)
    measurable("by", by, [space.question(None, memo) for space in several])
    stated = str(scenario) if isinstance(scenario, Path) else scenario
    planned = [Cell(stated, values, overrides, flags, by, top, plans) for values in cells(vary)]
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    paths = {cell: home / f"{cell.key(memo)}.parquet" for cell in planned}
    missing = [cell for cell in planned if not paths[cell].exists()]
    began = time.monotonic()
    columns = {**dict.fromkeys(several[0].varied, "string"), **COLUMNS}
    for done, (at, rows, summary) in enumerate(spread(missing, workers, dask), 1):
        write_parquet(paths[missing[at]], rows, columns, summary)
        if progress:
            progress(done, len(missing), time.monotonic() - began)
    return SweepResult(by, top, tuple(paths[cell] for cell in planned), len(missing))


@dataclass(frozen=True)
class SweepResult(Answer):
    """The best layouts of all cells.

    paths  the file of each cell
    made   cells that were searched now; the others were there
    """

    schema = "tpsim.sweep/1"
    table = "rows"
    told: ClassVar[tuple[str, ...]] = ("verdict", "by", "cells", "considered", "legal", "fitting", "empty", "rows")

    by: str
    top: int
    paths: tuple[Path, ...]
    made: int

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
    def ok(self) -> bool:
        """True if any cell has a layout that fits and meets every demand."""
        return bool(self.rows)

    @property
    def verdict(self) -> str:
        """The best of all, and how many cells there were."""
        counts = f"{self.cells:,} cells, {len(self.empty):,} without a layout: {self.considered:,} layouts considered, "
        counts += f"{self.legal:,} legal, {self.fitting:,} fit"
        if not self.rows:
            return f"no layout: {counts}"
        best = self.rows[0]
        return f"{best['layout']}: {show(best['step_s'], 'seconds')} a step; {counts}"
