"""The page of the list of scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.report.table import Column, Page, Table

if TYPE_CHECKING:
    from tpsim.answers.scenario import ScenarioListResult

SCENARIOS = (
    Column("scenario", "scenario"),
    Column("model", "model"),
    Column("hardware", "machine"),
    Column("chips", "chips", "integer"),
    Column("kind", "kind"),
)


def list_page(result: ScenarioListResult, *, verbose: bool) -> Page:
    """Every scenario of the library in a line; `verbose` adds its mesh."""
    columns = (*SCENARIOS, Column("mesh", "mesh")) if verbose else SCENARIOS
    return Page(
        result,
        tables=(Table(columns, result.records()),),
        next_command="tpsim plan qwen2-7b-h100",
    )
