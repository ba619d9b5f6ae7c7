"""The page of a sweep: the best layouts of all its cells, and the cells that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.answers.sweep_cells import COLUMNS
from tpsim.pages.search import COSTS, LAYOUT, MORE, YES
from tpsim.report.table import Column, Document, Table

if TYPE_CHECKING:
    from tpsim.answers.sweep import SweepResult

EMPTY = (Column("vary", "cell"), Column("why", "no layout"))


def page(result: SweepResult) -> Document:
    """`result` as a page."""
    rows = [{**row, "sp": YES[row["sequence_parallel"]]} for row in result.rows]
    varied = [
        Column(name, name.replace(".", ".\n")) for name in (rows[0] if rows else ()) if name not in (*COLUMNS, "sp")
    ]
    costs = [column for column in (*COSTS, *MORE[:-1]) if column.key in COLUMNS and column.key != "fits"]
    empty = [{**cell, "vary": ", ".join(cell["vary"])} for cell in result.empty]
    tables = [Table((*LAYOUT[:1], *varied, *LAYOUT[1:], *costs), rows)] if rows else []
    tables += [Table(EMPTY, empty, folded=True, title="cells without a layout")] if empty else []
    facts = (("cells", f"{result.cells:,}, {result.made:,} of them searched now"),)
    return Document(title="sweep", facts=facts, tables=tuple(tables), verdict=result.lines)
