"""The pages of a JSON Schema and of the list of schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.report.table import Column, Page, Table

if TYPE_CHECKING:
    from tpsim.answers.schema import SchemaListResult, SchemaResult

SCHEMAS = (Column("schema", "schema"), Column("describes", "of a"), Column("what", "what it describes"))
FIELDS = (Column("field", "field"), Column("type", "what may stand there"), Column("must", "required"))


def list_page(result: SchemaListResult, *, verbose: bool) -> Page:  # noqa: ARG001  # as every page
    """Every schema in a line."""
    records = result.records()
    return Page(
        result,
        tables=(Table(SCHEMAS, records),),
        next_command=f"tpsim schema {records[0]['schema']} -f table",
    )


def page(result: SchemaResult, *, verbose: bool) -> Page:
    """The fields of one schema in a line each; `verbose` adds what they mean."""
    name, records = result.described.name, result.records()
    rows = [{**row, "must": "yes" if row["required"] else ""} for row in records]
    columns = (*FIELDS, Column("description", "meaning")) if verbose else FIELDS
    return Page(
        result,
        title=f"{name}: {result.described.what}",
        tables=(Table(columns, rows),),
        next_command=f"tpsim schema {name} -o {name}.json",
    )
