"""Pages as GitHub Markdown: the answer on top, the full breakdown folded, short enough for a comment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tpsim.printable import printable
from tpsim.report.table import Page, Table, as_text, on_one_line

LIMIT = 60_000
"""Characters of a page; GitHub refuses a comment above 65,536."""

LEFT_OUT = "| ... {} more rows: left out, a comment is limited; see the CSV or JSON |"


def text(page: Page, limit: int = LIMIT) -> str:
    """`page` in Markdown, never longer than `limit`: rows are left out from the longest tables and counted.

    A silent page is the empty text.
    """
    if page.silent:
        return ""
    rows = max((len(table.rows) for table in page.tables), default=0)
    written = "\n\n".join(_parts(page, rows)) + "\n"
    while len(written) > limit and rows:
        rows = rows * 3 // 4
        written = "\n\n".join(_parts(page, rows)) + "\n"
    return written if len(written) <= limit else written[: limit - 4] + "...\n"


def _parts(page: Page, most: int) -> Iterator[str]:
    if page.title:
        yield f"### {_escaped(page.title)}"
    yield "<br>\n".join(_verdict(page))
    if bars := page.answer.bars:
        yield "\n".join(["```text", *(line for bar in bars for line in bar.drawn()), "```"])
    if page.facts:
        yield "\n".join(f"- {label}: {_escaped(fact)}" for label, fact in page.facts)
    for table in page.tables:
        yield from _table(table, most)
    if page.notes:
        yield "\n".join(f"- {_escaped(note)}" for note in page.notes)
    if page.next_command:
        yield f"Next: {_code(page.next_command)}"


def _verdict(page: Page) -> Iterator[str]:
    """One line in bold; of several their labels, and the whole of one that says "no"."""
    for line in page.answer.lines:
        text = _escaped(line.text)
        if not line.label:
            yield f"**{text}**"
        else:
            yield f"**{line.label}**: {text}" if line.ok else f"**{line.label}: {text}**"


def _table(table: Table, most: int) -> Iterator[str]:
    title = _escaped(table.title) or "All rows"
    if table.folded:
        yield f"<details><summary>{title} ({len(table.rows)})</summary>"
    elif table.title:
        yield f"**{title}**"
    yield "\n".join(_lines(table, most))
    if table.folded:
        yield "</details>"


def _lines(table: Table, most: int) -> Iterator[str]:
    cells = as_text(table)
    headers = map(on_one_line, cells.headers)
    named = [f"{header} ({unit})" if unit else header for header, unit in zip(headers, cells.units, strict=True)]
    yield _row(named)
    yield _row(["--:" if right else ":--" for right in cells.right])
    yield from (_row(row) for row in cells.rows[:most])
    if len(cells.rows) > most:
        yield LEFT_OUT.format(len(cells.rows) - most)
    if table.more:
        yield "\n" + "<br>\n".join(map(_escaped, table.more.splitlines()))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(cell: str) -> str:
    """Text that stands in a table cell: `*` would be emphasis, `|` the next cell, `[` a link or a picture."""
    return MARKUP.sub(r"\\\g<0>", printable(cell))


MARKUP = re.compile(r"[\\|*_<`\[~$]")


def _code(text: str) -> str:
    """A command as code, between more backticks in a row than it has."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{printable(text)}{fence}"
