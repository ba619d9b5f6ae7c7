"""Answers as other programs read them: CSV, JSON, Parquet files and pandas frames."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from io import StringIO
from math import isfinite
from typing import TYPE_CHECKING, Any

from tpsim.printable import printable

if TYPE_CHECKING:
    from pathlib import Path


def csv_text(records: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """`records` with their keys as header, in the order in which they first appear; None is an empty cell.

    A text that a spreadsheet would take for a formula begins with an apostrophe.

    columns  what the header says where there is no record
    """
    keys = list(dict.fromkeys(key for record in records for key in record)) or list(columns)
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_csv_cell(record.get(key)) for key in keys] for record in records)
    return out.getvalue()


def flat(value: Any, between: str = ",") -> Any:
    """A value as a cell holds it: a map as ``data=8,tensor=4``, a list as its items, anything else as it is."""
    if isinstance(value, Mapping):
        value = [f"{key}={inside}" for key, inside in value.items()]
    return between.join(map(str, value)) if isinstance(value, list | tuple) else value


def _csv_cell(value: Any) -> str:
    value = flat(value)
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value) if isinstance(value, float) else str(value)
    text = printable(value)
    return f"'{text}" if FORMULA.match(text) else text


FORMULA = re.compile(r"[=@\t]|[+-](?![\d.][\w .,%/+-]*$)")
"""How a text begins that a spreadsheet runs; ``-32.4 ms`` is none."""


class NoNumber(ValueError):  # noqa: N818  # it says what was found
    """An infinity or nan, which JSON does not have (RFC 8259, section 6)."""


def json_text(document: Mapping[str, Any]) -> str:
    """`document` as JSON, what is not printable as an escape. Raises NoNumber, with the place, for infinity or nan."""
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return "\n".join(map(_escaped, text.split("\n")))
    except ValueError:
        raise NoNumber(next(_endless(document, ""))) from None


def _escaped(line: str) -> str:
    """A line without what would steer a terminal which it is shown on; JSON itself escapes the first 32."""
    if line.isprintable():
        return line
    escapes = (char.encode("utf-16-be", "surrogatepass").hex() for char in line)
    return "".join(
        char if char.isprintable() else "".join(f"\\u{escape[at : at + 4]}" for at in range(0, len(escape), 4))
        for char, escape in zip(line, escapes, strict=True)
    )


def _endless(value: Any, at: str) -> Iterator[str]:
    """Where in a document a number is no number, and which: ``result.step.time_s is inf``."""
    if isinstance(value, float) and not isfinite(value):
        yield f"{at} is {value}"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        yield from _endless(item, f"{at}.{key}" if at else str(key))


TOLD = b"tpsim"
"""The key of a file's metadata under which it says what is no row."""


def write_parquet(
    path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], summary: Mapping[str, Any]
) -> None:
    """Write rows with what is told beside them.

    columns  name -> type as Arrow calls it: int64, double, bool, string
    """
    pa, parquet = _arrow()
    schema = pa.schema(
        [(name, pa.type_for_alias(kind)) for name, kind in columns.items()], metadata={TOLD: json.dumps(summary)}
    )
    texts = {name for name, kind in columns.items() if kind == "string"}
    whole = [
        {
            name: str(value) if name in texts and (value := row.get(name)) is not None else row.get(name)
            for name in columns
        }
        for row in rows
    ]
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        parquet.write_table(pa.Table.from_pylist(whole, schema=schema), beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_parquet(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of a file, and what it tells beside them."""
    _, parquet = _arrow()
    table = parquet.read_table(path)
    return table.to_pylist(), json.loads(table.schema.metadata[TOLD])


def told_in(path: Path) -> bool:
    """True if a file has rows with what is told beside them; False if there is none, or one that broke off."""
    _, parquet = _arrow()
    try:
        return TOLD in (parquet.read_schema(path).metadata or {})
    except (OSError, ValueError):
        return False


def _arrow() -> tuple[Any, Any]:
    """What reads and writes Parquet: an extra, which has types or not."""
    return import_module("pyarrow"), import_module("pyarrow.parquet")
