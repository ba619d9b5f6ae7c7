"""Records as tidy CSV: one header line, full precision, a unit in every key."""

from __future__ import annotations

import csv
import re
from io import StringIO
from typing import TYPE_CHECKING, Any

from tpsim.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def text(records: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """`records` with their keys as header, in the order in which they first appear; None is an empty cell.

    A text that a spreadsheet would take for a formula begins with an apostrophe.

    columns  what the header says where there is no record
    """
    keys = list(dict.fromkeys(key for record in records for key in record)) or list(columns)
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_cell(record.get(key)) for key in keys] for record in records)
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return _cell(",".join(map(str, value)))
    if not isinstance(value, str):
        return repr(value) if isinstance(value, float) else str(value)
    said = printable(value)
    return f"'{said}" if FORMULA.match(said) else said


FORMULA = re.compile(r"[=@\t]|[+-](?![\d.][\w .,%/+-]*$)")
"""How a text begins that a spreadsheet runs; ``-32.4 ms`` is none."""
