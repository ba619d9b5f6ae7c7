"""Rows in Parquet files, written so that whoever reads one finds all of it or none."""

from __future__ import annotations

import json
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TOLD = b"tpsim"
"""The key of a file's metadata under which it says what is no row."""


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], told: Mapping[str, Any]) -> None:
    """Write rows with what is told beside them.

    columns  name -> type as Arrow calls it: int64, double, bool, string
    """
    pa, parquet = _arrow()
    schema = pa.schema(
        [(name, pa.type_for_alias(kind)) for name, kind in columns.items()], metadata={TOLD: json.dumps(told)}
    )
    whole = [{name: row.get(name) for name in columns} for row in rows]
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    parquet.write_table(pa.Table.from_pylist(whole, schema=schema), beside)
    beside.replace(path)


def read(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of a file, and what it tells beside them."""
    _, parquet = _arrow()
    table = parquet.read_table(path)
    return table.to_pylist(), json.loads(table.schema.metadata[TOLD])


def _arrow() -> tuple[Any, Any]:
    """What reads and writes Parquet: an extra, which has types or not."""
    return import_module("pyarrow"), import_module("pyarrow.parquet")
