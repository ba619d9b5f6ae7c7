"""Documents for a terminal, and as plain text where there is none. The only module that knows rich."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from tpsim.printable import printable
from tpsim.report.columns import lines
from tpsim.report.table import IN_ASCII, labelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from tpsim.report.table import Document

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


def write(document: Document, stream: TextIO, color: str = "auto", width: int | None = None) -> None:
    """Print `document` on `stream`; rich, which takes long to load, where there is a terminal or colours are wanted."""
    bare = _plain(stream, color) and not stream.isatty()
    page = _bare(document, width) if bare else _drawn(document, console(stream, color, width))
    stream.write(page if _has_blocks(stream) else page.translate(IN_ASCII))


def _plain(stream: TextIO, color: str) -> bool:
    """True where there are no colours."""
    return color == "never" or (color == "auto" and (not stream.isatty() or bool(os.environ.get("NO_COLOR"))))


def _bare(document: Document, width: int | None) -> str:
    """The texts alone."""
    blocks = (
        [("".join(text for text, _ in line)).expandtabs() for line in block] for block in _blocks(document, width)
    )
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _drawn(document: Document, screen: Console) -> str:
    """As a console draws it; captured, since one that prints by itself ends the process when its reader leaves."""
    from rich.text import Text

    with screen.capture() as page:
        room = None if screen.width >= UNBOUNDED else screen.width
        for place, block in enumerate(_blocks(document, room)):
            if place:
                screen.print()
            for line in block:
                screen.print(Text.assemble(*line), soft_wrap=True)
    return page.get()


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


def _blocks(document: Document, width: int | None) -> Iterator[list[Styled]]:
    """What stands together; blank lines come between."""
    if document.title:
        brief = ((line.ok, text) for line in document.lines for text in _wrapped(line.brief, width) if text)
        yield [_text(document.title, "bold"), *(_text(text, SAID[ok]) for ok, text in brief)]
    if document.facts:
        yield list(_facts(document, width))
    for table in document.tables:
        yield [_text(line.text, STYLES[line.kind]) for line in lines(table, width)]
    if document.notes:
        yield [_text(text, "dim") for note in document.notes for text in _wrapped(note, width)]
    yield list(_foot(document, width))


def _facts(document: Document, width: int | None) -> Iterator[Styled]:
    room = max(len(label) for label, _ in document.facts) + 2
    for label, fact in document.facts:
        for at, text in enumerate(_wrapped(fact, width and max(1, width - room))):
            yield [*_text(("" if at else label).ljust(room), "dim"), *_text(text)]


def _foot(document: Document, width: int | None) -> Iterator[Styled]:
    """The verdict, what it weighs, and the next command, which is what a reader's eye and mouse find at the end."""
    for line, (label, verdict) in zip(document.lines, labelled(document.lines), strict=True):
        for at, text in enumerate(_wrapped(verdict, width and max(1, width - len(label)))):
            yield _text((" " * len(label) if at else label) + text, SAID[line.ok])
    for bar in document.bars:
        yield from map(_text, bar.drawn(width))
    if document.next_command:
        yield _text(f"next: {document.next_command}", "cyan")


def _text(text: str, style: str = "") -> Styled:
    """Text of a file's, too, which steers no terminal."""
    return [(printable(text), style)]


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None or len(text) <= width:
        return [text.rstrip()]
    from textwrap import wrap

    return wrap(text, width, break_long_words=False, break_on_hyphens=False)
