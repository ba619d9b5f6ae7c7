"""Pages for a terminal, and as plain text where there is none. The only module that knows rich.

In tables nothing is cut; long texts are wrapped where a width is given.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TextIO

from tpsim.printable import printable
from tpsim.report.table import IN_ASCII, Column, Page, Table, as_text, labelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console


Styled = list[tuple[str, str]]
"""A line: texts, each with its style."""

UNBOUNDED = 100_000
"""Columns of something that is no terminal: nothing is ever cut or wrapped there."""

STYLES = {"title": "bold", "header": "dim", "group": "bold", "row": "", "below": "dim"}
STYLES |= {"most": "bold yellow", "over": "bold red"}
SAID = {True: "bold", False: "bold red"}


def console(stream: TextIO, color: str = "auto", width: int | None = None) -> Console:
    """The one way to a console.

    color  ``always``, ``never``, or ``auto``: on a terminal unless NO_COLOR is set
    width  columns, None for the terminal's own, or unbounded where there is none
    """
    from rich.console import Console

    terminal, plain = stream.isatty(), _plain(stream, color)
    # Off a terminal rich believes neither width nor height unless it is given both.
    unbounded = not terminal and width is None
    return Console(
        file=stream,
        width=UNBOUNDED if unbounded else width,
        height=UNBOUNDED if unbounded or width else None,
        force_terminal=not plain,
        no_color=plain,
        color_system=None if plain else "auto" if terminal else "standard",
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def write(page: Page, stream: TextIO, color: str = "auto", width: int | None = None) -> None:
    """Print `page` on `stream`; rich, which takes long to load, where there is a terminal or colours are wanted."""
    bare = _plain(stream, color) and not stream.isatty()
    text = _bare(page, width) if bare else _drawn(page, console(stream, color, width))
    stream.write(text if _has_blocks(stream) else text.translate(IN_ASCII))


def _plain(stream: TextIO, color: str) -> bool:
    return color == "never" or (color == "auto" and (not stream.isatty() or bool(os.environ.get("NO_COLOR"))))


def _bare(page: Page, width: int | None) -> str:
    blocks = ([("".join(text for text, _ in line)).expandtabs() for line in block] for block in _blocks(page, width))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _drawn(page: Page, screen: Console) -> str:
    """As a console draws it; captured, since one that prints by itself ends the process when its reader leaves."""
    from rich.text import Text

    with screen.capture() as drawn:
        room = None if screen.width >= UNBOUNDED else screen.width
        for place, block in enumerate(_blocks(page, room)):
            if place:
                screen.print()
            for line in block:
                screen.print(Text.assemble(*line), soft_wrap=True)
    return drawn.get()


def _has_blocks(stream: TextIO) -> bool:
    """True if what bars are drawn with can be shown there; a stream in memory, which becomes a file, is UTF-8.

    Python writes UTF-8 where the locale says C, too: who says so has a terminal with no more than ASCII.
    """
    locales = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    if next(filter(None, locales), None) in ("C", "POSIX"):
        return False
    try:
        "".join(map(chr, IN_ASCII)).encode(stream.encoding or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _blocks(page: Page, width: int | None) -> Iterator[list[Styled]]:
    """What stands together; blank lines come between."""
    if page.title:
        brief = ((line.ok, text) for line in page.answer.lines for text in _wrapped(line.brief, width) if text)
        yield [_text(page.title, "bold"), *(_text(text, SAID[ok]) for ok, text in brief)]
    if page.facts:
        yield list(_facts(page, width))
    for table in page.tables:
        yield list(lines(table, width))
    if page.notes:
        yield [_text(text, "dim") for note in page.notes for text in _wrapped(note, width)]
    yield list(_foot(page, width))


def _facts(page: Page, width: int | None) -> Iterator[Styled]:
    room = max(len(label) for label, _ in page.facts) + 2
    for label, fact in page.facts:
        for at, text in enumerate(_wrapped(fact, width and max(1, width - room))):
            yield [*_text(("" if at else label).ljust(room), "dim"), *_text(text)]


def _foot(page: Page, width: int | None) -> Iterator[Styled]:
    """The verdict, what it weighs, and the next command, which is what a reader's eye and mouse find at the end."""
    for line, (label, verdict) in zip(page.answer.lines, labelled(page.answer.lines), strict=True):
        for at, text in enumerate(_wrapped(verdict, width and max(1, width - len(label)))):
            yield _text((" " * len(label) if at else label) + text, SAID[line.ok])
    for bar in page.answer.bars:
        yield from map(_text, bar.drawn(width))
    if page.next_command:
        yield _text(f"next: {page.next_command}", "cyan")


def _text(text: str, style: str = "") -> Styled:
    """Text of a file's, too, which steers no terminal."""
    return [(printable(text), style)]


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None or len(text) <= width:
        return [text.rstrip()]
    from textwrap import wrap

    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


UNDER = "    "
"""What stands before a text that is printed under its row."""

SHORT = 24
"""Characters of a text that is never wrapped, and the least that a wrapped one gets."""

WORD = 44
"""Characters of a word that is not broken."""

LEAST = 2
"""Columns of a table that goes on below."""


def lines(table: Table, width: int | None) -> Iterator[Styled]:
    """`table` as lines of at most `width` characters, as far as no number has to be cut; None: unbounded.

    What is too wide stands closer, then long texts are wrapped, then texts at the right end go under their rows, then
    spare columns give way, which is said; columns that are too many even so go on in a table below, behind the first.
    """
    if table.title:
        yield _text(table.title, STYLES["title"])
    below = [column for column in table.columns if column.below]
    beside = replace(table, columns=tuple(column for column in table.columns if not column.below))
    grid = _Grid(beside, width)
    under = grid.under()
    below = [*beside.columns[len(beside.columns) - under :], *below]
    chosen, left = grid.needed(range(len(grid.columns) - under))
    for laid in grid.parts(chosen):
        yield from _part(table, laid, below, width)
        below = []
    gone = [f" no room here for: {', '.join(left)}"] if left else []
    for text in [*table.more.splitlines(), *gone]:
        yield from (_text(part, STYLES["below"]) for part in _cell_lines(text, width))


def _part(table: Table, laid: _Laid, below: Sequence[Column], width: int | None) -> Iterator[Styled]:
    """The rows of `table` in the columns of `laid`, each over its texts of `below`."""
    for header in laid.headers:
        yield from (_text(text, STYLES["header"]) for text in laid.lines(header))
    group = None
    for cells, raw in zip(laid.rows, table.rows, strict=True):
        if table.group and raw[table.group] != group:
            group = raw[table.group]
            yield from (_text(part, STYLES["group"]) for part in _wrapped(str(group), width))
        yield from (_text(text, STYLES[raw.get(table.mark) or "row"]) for text in laid.lines(cells))
        for column in below:
            if raw.get(column.key):
                text = f"{' '.join(column.header.split())}: {raw[column.key]}"
                room = None if width is None else max(SHORT, width - len(UNDER))
                yield from (_text(UNDER + part, STYLES["below"]) for part in _cell_lines(text, room))


def _header(header: str, unit: str) -> list[str]:
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
    """The cells of a table, and which of its columns stand beside each other in a width."""

    def __init__(self, table: Table, width: int | None) -> None:
        cells, first = as_text(table), 1 if table.group else 0
        rows = [row[first:] for row in cells.rows]
        if table.group:
            rows = [[f" {row[0]}", *row[1:]] for row in rows]
        headers = _level([_header(*pair) for pair in zip(cells.headers[first:], cells.units[first:], strict=True)])
        self.headers = headers if any(map(any, headers)) else []
        self.columns = list(zip(*self.headers, *rows, strict=True)) or [() for _ in cells.headers[first:]]
        self.right = cells.right[first:]
        self.told = table.columns[first:]
        self.width = width

    def laid(self, chosen: Sequence[int]) -> _Laid:
        """The chosen columns beside each other."""
        return _Laid([self.columns[at] for at in chosen], [self.right[at] for at in chosen], self)

    def under(self) -> int:
        """How many texts at the right end go under their rows: as few as let the others fit, none if none do.

        A column without a header stays: nothing would say what its texts are.
        """
        every = len(self.columns)
        named = (column.kind == "text" and column.header for column in reversed(self.told[1:]))
        texts = next((n for n, text in enumerate(named) if not text), 0)
        return next((n for n in range(texts + 1) if self.laid(range(every - n)).fits), 0)

    def needed(self, columns: Sequence[int]) -> tuple[Sequence[int], list[str]]:
        """The columns without the spare ones that must give way, and what these are called."""
        left: list[str] = []
        for at in sorted(columns, key=lambda at: -self.told[at].spare):
            if self.laid(columns).fits or not self.told[at].spare:
                break
            columns = [other for other in columns if other != at]
            left.append(" ".join(self.told[at].header.split()))
        return columns, left

    def parts(self, columns: Sequence[int]) -> Iterator[_Laid]:
        """The columns, in as many tables as they need: the first leads each, and at least one is with it."""
        few = len(columns)
        while few > LEAST and not self.laid(columns[:few]).fits:
            few -= 1
        yield self.laid(columns[:few])
        if few < len(columns):
            yield from self.parts([columns[0], *columns[few:]])


class _Laid:
    """Columns beside each other: how wide each is, and how far apart."""

    def __init__(self, columns: Sequence[Sequence[str]], right: Sequence[bool], grid: _Grid) -> None:
        rows = list(zip(*columns, strict=True))
        self.headers, self.rows = rows[: len(grid.headers)], rows[len(grid.headers) :]
        self.right = right
        self.widths = [max(map(len, column), default=0) for column in columns]
        self.gap = 2
        if grid.width is not None and self._room() > grid.width:
            self.gap = 1
            self._wrap(grid.width)
        self.fits = grid.width is None or self._room() <= grid.width

    def _room(self) -> int:
        return sum(self.widths) + self.gap * (len(self.widths) - 1)

    def _wrap(self, width: int) -> None:
        """Narrow the long texts, the longest most, until the table fits or they are short."""
        long = [at for at, room in enumerate(self.widths) if room > SHORT and not self.right[at]]
        left = width - self._room() + sum(self.widths[at] for at in long)
        for n, at in enumerate(sorted(long, key=lambda at: self.widths[at])):
            gives_way = n > 0 and n + 1 == len(long)  # the longest of several
            least = SHORT if gives_way else self._least(at)
            self.widths[at] = min(self.widths[at], max(least, left // (len(long) - n)))
            left -= self.widths[at]

    def _least(self, at: int) -> int:
        """The width at which a text is short, and none of its words is broken that a screen holds."""
        words = (word for row in self.rows for word in row[at].split())
        return max(SHORT, min(WORD, max(map(len, words), default=0)))

    def lines(self, row: Sequence[str]) -> Iterator[str]:
        """One row: a line, or several where a text is wrapped."""
        wrapped = [_cell_lines(cell, room) for cell, room in zip(row, self.widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            padded = (
                part.rjust(room) if right else part.ljust(room)
                for part, room, right in zip(parts, self.widths, self.right, strict=True)
            )
            yield (" " * self.gap).join(padded).rstrip()


def _cell_lines(cell: str, room: int | None) -> list[str]:
    """A cell, or a text below a row, in lines; None: unbounded."""
    if room is None or len(cell) <= room:
        return [cell]
    from textwrap import wrap

    return wrap(cell, room, subsequent_indent=" " * cell.startswith(" "), break_on_hyphens=False) or [""]
