"""Pages as one HTML file that needs nothing beside it, and answers as a notebook shows them.

Templates escape whatever they are given; a page runs the one script that its head names by its hash, and loads nothing.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.printable import printable
from tpsim.report import vega
from tpsim.report.formats import flat
from tpsim.report.table import Bar, Column, Line, Page, Table, TableText, as_text, on_one_line
from tpsim.report.vega import Look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from tpsim.report.numbers import CellKind
    from tpsim.report.picture import Picture

TEMPLATES = Path(__file__).parent / "templates"

MOST = 200
"""Rows that a notebook shows; a frame has all."""

ENDS: Mapping[str, CellKind] = {
    "_bytes_per_s": "bytes_per_s",
    "_flops_per_s": "flops_per_s",
    "_s": "seconds",
    "_bytes": "bytes",
    "_bytes_per_device": "bytes",
    "flops_per_device": "flops",
}
"""What a key of a record ends with, and what its numbers are."""

LOOK = Look(
    colours=tuple(f"var(--c{at})" for at in range(8)),
    ink="var(--soft)",
    faint="var(--faint)",
    limit="var(--no)",
    legend=False,
)
"""Colours that the page's style sheet says, on white and on black."""

WIDE, NARROW = 860, 300
"""Pixels of a picture's axes on a screen and on paper, and on a phone."""


def text(page: Page, version: str) -> str:
    """`page` as a file that is read, printed and sent around by itself.

    version  of tpsim
    Raises ImportError where what draws pictures is not installed.
    """
    from markupsafe import Markup

    style, script = _file("parts.css") + _file("page.css"), _file("page.js")
    return _rendered(
        "report.html.j2",
        page=page,
        tables=[_shown(table) for table in page.tables],
        pictures=[
            {
                "title": picture.title,
                "about": picture.about,
                "wide": _seen(picture, WIDE),
                "narrow": _seen(picture, NARROW),
            }
            for picture in page.answer.pictures
        ],
        version=version,
        style=Markup(style),  # noqa: S704 - own files, as is the script
        script=Markup(script),  # noqa: S704
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
    )


def cell(lines: Sequence[Line], bars: Sequence[Bar], records: Sequence[Mapping[str, Any]]) -> str:
    """The verdict, what it weighs, and a table with a column per key of `records`, for a notebook."""
    from markupsafe import Markup

    table = _shown(_table(records)) if records else None
    return _rendered("notebook.html.j2", lines=lines, bars=bars, table=table, style=Markup(_file("parts.css")))  # noqa: S704


@cache
def _file(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )


def _rendered(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(**values)


def _visible(value: Any) -> Any:
    """A text without characters that steer whoever shows it, or are no text at all; its lines stay."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "\n".join(map(printable, value.split("\n")))


# Tables ---------------------------------------------------------------------------------------------------------------


def _shown(table: Table) -> dict[str, Any]:
    """A table as the template shows it: columns, and rows, each with what stands above it and below it."""
    drawn = (column for column in table.columns if column.kind != "bar")  # a page has pictures
    beside = replace(table, columns=tuple(column for column in drawn if not column.below and column.key != table.group))
    texts = as_text(beside)
    heads = zip(texts.headers, texts.units, texts.right, strict=True)
    return {
        "title": table.title,
        "columns": [{"header": on_one_line(head), "unit": unit, "right": right} for head, unit, right in heads],
        "rows": list(_rows(table, beside, texts)),
        "folded": table.folded,
        "sorts": not table.group and len(table.rows) > 1,
        "more": table.more,
    }


def _rows(table: Table, beside: Table, texts: TableText) -> Iterator[dict[str, Any]]:
    """Rows; the first of a group says which, and long texts stand below theirs."""
    long = [column for column in table.columns if column.below]
    group = None
    for row, cells in zip(table.rows, texts.rows, strict=True):
        own = row.get(table.group)
        yield {
            "group": own if own != group else None,
            "mark": row.get(table.mark),
            "cells": [
                {"text": cell, "right": right, "value": _number(row.get(column.key))}
                for column, cell, right in zip(beside.columns, cells, texts.right, strict=True)
            ],
            "below": [(column.header, row[column.key]) for column in long if row.get(column.key)],
        }
        group = own


def _number(value: Any) -> float | None:
    """What a cell is sorted by, if it is a number."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def _table(records: Sequence[Mapping[str, Any]]) -> Table:
    keys = list(dict.fromkeys(key for record in records for key in record))
    columns = tuple(Column(key, key, _kind(key, [record.get(key) for record in records])) for key in keys)
    shown = [{key: flat(value, ", ") for key, value in record.items()} for record in records[:MOST]]
    left = f"{len(records) - MOST:,} more rows: to_frame() has them" if len(records) > MOST else ""
    return Table(columns, shown, more=left)


def _kind(key: str, values: Sequence[Any]) -> CellKind:
    """What stands under a key: its numbers in the unit that its end says; anything else is text."""
    present = [value for value in values if value is not None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in present) or not present:
        return "text"
    named = next((kind for end, kind in ENDS.items() if key.endswith(end)), None)
    return named or ("integer" if all(isinstance(value, int) for value in present) else "number")


# Pictures -------------------------------------------------------------------------------------------------------------


def _seen(picture: Picture, width: int) -> dict[str, Any]:
    look = replace(LOOK, width=width)
    thin = vega.thin(picture, look)
    return {"svg": _svg(vega.alone(thin, look)), "sorts": vega.sorts(thin), "thin": vega.left_out(picture, thin)}


def _svg(spec: Mapping[str, Any]) -> Markup:
    """A picture as SVG, as wide as its place; whoever draws it escapes its texts."""
    import vl_convert
    from markupsafe import Markup

    drawn = vl_convert.vegalite_to_svg(_clean(spec), vl_version=vega.VERSION, allowed_base_urls=[])
    return Markup(PATH.sub(lambda path: DIGITS.sub(r"\1", path[0]), SIZE.sub("", drawn, count=1)))  # noqa: S704


PATH, DIGITS = re.compile(r' d="[^"]*"'), re.compile(r"(\.\d)\d+")
"""A path, and what its numbers have beyond a tenth of a pixel."""


SIZE = re.compile(r'width="[\d.]+" height="[\d.]+" (?=viewBox)')
"""The size of a picture in pixels, which its place decides; its proportions stay."""


def _clean(value: Any) -> Any:
    """A document whose texts are visible."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else _visible(value)
