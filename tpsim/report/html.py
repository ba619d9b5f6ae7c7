"""A verdict and tidy rows as HTML, for notebooks: numbers in units, nothing of the user's taken for markup."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tpsim.report.table import Column, Table, as_text, labelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.report.numbers import Kind
    from tpsim.report.table import Line

MOST = 200
"""Rows that are shown; a frame has all."""

ENDS: Mapping[str, Kind] = {
    "_bytes_per_s": "bytes_per_s",
    "_flops_per_s": "flops_per_s",
    "_s": "seconds",
    "_bytes": "bytes",
    "_bytes_per_device": "bytes",
    "flops_per_device": "flops",
}
"""What a key of a record ends with, and what its numbers are."""


def text(lines: Sequence[Line], records: Sequence[Mapping[str, Any]]) -> str:
    """The lines, a "no" in red, over a table with a column per key of `records`."""
    return "\n".join([f"<pre>{'<br>'.join(_said(lines))}</pre>", *(_table(records) if records else ())])


def _said(lines: Sequence[Line]) -> Iterator[str]:
    for line, words in zip(lines, labelled(lines), strict=True):
        shown = escape("".join(words))
        yield shown if line.ok else f'<b style="color: red">{shown}</b>'


def _table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    keys = list(dict.fromkeys(key for record in records for key in record))
    columns = tuple(Column(key, key, _kind(key, [record.get(key) for record in records])) for key in keys)
    shown = [{key: _plain(value) for key, value in record.items()} for record in records[:MOST]]
    cells = as_text(Table(columns, shown))
    units = [f"{key}<br>{escape(unit)}" if unit else key for key, unit in zip(keys, cells.units, strict=True)]
    yield "<table>"
    yield _row("th", units)
    yield from (_row("td", [escape(cell) for cell in row]) for row in cells.rows)
    yield "</table>"
    if len(records) > MOST:
        yield f"<p>{len(records) - MOST:,} more rows: to_frame() has them</p>"


def _plain(value: Any) -> Any:
    """A value that text can hold beside others: a list as its items."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _kind(key: str, values: Sequence[Any]) -> Kind:
    """What stands under a key: its numbers in the unit that its end says; anything else is text."""
    present = [value for value in values if value is not None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in present) or not present:
        return "text"
    named = next((kind for end, kind in ENDS.items() if key.endswith(end)), None)
    return named or ("integer" if all(isinstance(value, int) for value in present) else "number")
