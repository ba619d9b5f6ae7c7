"""Tables laid out in columns of text: nothing is cut; long texts are wrapped where a width is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from tpsim.report.table import Table, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UNDER = "    "
"""What stands before a text that is printed under its row."""

SHORT = 24
"""Characters of a text that is never wrapped, and the least that a wrapped one gets."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table and what it is, for who wants to style it."""

    kind: Literal["title", "header", "group", "row", "below"]
    text: str


def lines(table: Table, width: int | None) -> Iterator[Line]:
    """`table` as lines of at most `width` characters if that can be done by wrapping long texts; None: unbounded."""
    below = [column for column in table.columns if column.below]
    beside = replace(table, columns=tuple(column for column in table.columns if not column.below))
    cells = as_text(beside)
    first = 1 if table.group else 0
    rows = [row[first:] for row in cells.rows]
    if table.group:
        rows = [[f" {row[0]}", *row[1:]] for row in rows]
    pairs = zip(cells.headers[first:], cells.units[first:], strict=True)
    headers = _level([_header(header, unit) for header, unit in pairs])
    grid = _Grid([*headers, *rows], cells.right[first:], width)
    if table.title:
        yield Line("title", table.title)
    for header in headers if any(map(any, headers)) else ():
        yield from (Line("header", text) for text in grid.lines(header))
    group = None
    for row, own, raw in zip(rows, cells.rows, table.rows, strict=True):
        if table.group and own[0] != group:
            group = own[0]
            yield Line("group", group)
        yield from (Line("row", text) for text in grid.lines(row))
        for text in (f"{column.header}: {raw[column.key]}" for column in below if raw.get(column.key)):
            room = None if width is None else max(SHORT, width - len(UNDER))
            yield from (Line("below", UNDER + part) for part in ([text] if room is None else _wrapped(text, room)))
    if table.more:
        yield from (Line("below", part) for part in ([table.more] if width is None else _wrapped(table.more, width)))


def _header(header: str, unit: str) -> list[str]:
    """The header over its unit."""
    stacked = header.split("\n")
    if not unit:
        return stacked
    return [*stacked[:-1], f"{stacked[-1]} {unit}"] if len(stacked) > 1 else [header, unit]


def _level(headers: Sequence[list[str]]) -> list[list[str]]:
    """Headers of several lines as rows: all stand on the last one."""
    height = max(map(len, headers), default=0)
    padded = [[""] * (height - len(header)) + header for header in headers]
    return [list(row) for row in zip(*padded, strict=True)]


class _Grid:
    """The widths that rows of cells take together."""

    def __init__(self, rows: Sequence[Sequence[str]], right: Sequence[bool], width: int | None) -> None:
        self.right = right
        self.widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
        self.gap = 2
        if width is not None and self._room() > width:
            self.gap = 1
            self._wrap(width)

    def _room(self) -> int:
        return sum(self.widths) + self.gap * (len(self.widths) - 1)

    def _wrap(self, width: int) -> None:
        """Narrow the long texts, all to one width, until the table fits or they are short."""
        long = [
            at
            for at, (room, right) in enumerate(zip(self.widths, self.right, strict=True))
            if room > SHORT and not right
        ]
        if long and (over := self._room() - width) > 0:
            left = (sum(self.widths[at] for at in long) - over) // len(long)
            for at in long:
                self.widths[at] = min(self.widths[at], max(SHORT, left))

    def lines(self, row: Sequence[str]) -> Iterator[str]:
        """One row: a line, or several where a text is wrapped."""
        wrapped = [_wrapped(cell, room) for cell, room in zip(row, self.widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            padded = (
                part.rjust(room) if right else part.ljust(room)
                for part, room, right in zip(parts, self.widths, self.right, strict=True)
            )
            yield (" " * self.gap).join(padded).rstrip()


def _wrapped(cell: str, room: int) -> list[str]:
    if len(cell) <= room:
        return [cell]
    from textwrap import wrap

    return wrap(cell, room) or [""]
