"""The one model of what is printed: tables of raw values, bars, and the page that they stand in."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tpsim.report.numbers import CellKind, cells, scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.report.answer import Answer
    from tpsim.report.picture import Picture

FILLS = "█▓▒░▚▞▖"
"""What the parts are drawn with, the first the first."""

IN_ASCII = str.maketrans(FILLS, "#=+-:o.")
"""What stands for them where there is no more than ASCII."""

CELLS, LIMIT = 60, "|"
"""The most characters of a bar, and what stands where its limit is."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts of a whole.

    parts  what each is, in words with its figure, and its size; at most as many as there are fills
    limit  in words and as a size what the parts should not exceed; None: they are the whole
    """

    label: str
    parts: tuple[tuple[str, float], ...]
    limit: tuple[str, float] | None = None

    def drawn(self, width: int | None = None) -> Iterator[str]:
        """The bar, then what its parts are; of at most `width` characters, which wraps the legend."""
        from textwrap import wrap

        room = len(self.label) + 2
        cells = CELLS if width is None else max(1, min(CELLS, width - room - 2))
        drawn = self._cells(cells)
        yield f"{self.label}  [{drawn}]"
        marked = [f"{fill} {words}" for fill, (words, _) in zip(FILLS, self.parts, strict=False)]
        if self.limit and LIMIT in drawn:
            marked.append(f"{LIMIT} {self.limit[0]}")
        legend = ", ".join(part.replace(" ", "\0") for part in marked)  # a part stands on one line
        for line in [legend] if width is None else wrap(legend, max(1, width - room), break_long_words=False):
            yield " " * room + line.replace("\0", " ")

    @property
    def whole(self) -> float:
        """What the bar is as long as: its parts, or its limit if that is more."""
        return max(sum(size for _, size in self.parts), self.limit[1] if self.limit else 0) or 1

    def share(self, size: float) -> float:
        """A size in percent of the bar."""
        return round(100 * size / self.whole, 3)

    def _cells(self, cells: int) -> str:
        sizes = [size for _, size in self.parts]
        limit = self.limit[1] if self.limit else 0
        ends = [round(cells * end / self.whole) for end in accumulate(sizes)]
        starts = [0, *ends]
        drawn = "".join(fill * (end - start) for fill, start, end in zip(FILLS, starts, ends, strict=False))
        at = int(cells * limit / self.whole) if self.limit else cells
        return f"{drawn.ljust(cells)[:at]}{LIMIT}{drawn[at + 1 :]}" if at < cells else drawn.ljust(cells)


COMPARED: tuple[CellKind, ...] = ("bytes", "seconds")
"""Kinds whose columns are read against each other, time and exposed time; rates of a table are of different things."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the key of its values in a row, its header, and what the values are.

    header  a line, or two with a line break; the unit is added by the writer
    below   True for a long text: a terminal prints it under its row
    spare   above 0 where others say most of it: the highest first gives way on a narrow terminal
    alone   True where it is not read against others of its kind: it has a unit of its own
    """

    key: str
    header: str
    kind: CellKind = "text"
    below: bool = False
    spare: int = 0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values under columns. Values are SI numbers, texts, or None for what is not known.

    group   the key of the first column, if its values come in runs: a terminal prints each once, above its rows
    mark    the key of what a row is, beside its cells: "most" for what costs most, "over" for what does not fit
    folded  True for a table that a reader opens if wanted: Markdown folds it
    more    what is said under the rows of those that are left out
    compared  kinds whose columns have one unit
    """

    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    title: str = ""
    group: str = ""
    mark: str = ""
    folded: bool = False
    more: str = ""
    compared: tuple[CellKind, ...] = COMPARED


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a verdict.

    label  what it is about, "" for a verdict of one line
    ok     False if it says "no"
    brief  its gist, which stands under the title of a long page
    """

    text: str
    label: str = ""
    ok: bool = True
    brief: str = ""


def labelled(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Lines as label and text; the labels fill a column.

    >>> labelled([Line("10.28 s", "time"), Line("56 GB", "memory")]), labelled([Line("yes")])
    ([('time    ', '10.28 s'), ('memory  ', '56 GB')], [('', 'yes')])
    """
    room = max((len(line.label) + 2 for line in lines if line.label), default=0)
    return [(line.label.ljust(room), line.text) for line in lines]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer comes to, by itself: its lines, what they weigh, and what is drawn of it."""

    lines: tuple[Line, ...]
    bars: Sequence[Bar] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """All that a verb prints.

    answer        whose verdict stands below all else, with what it weighs drawn under it
    facts         label and text, above the tables
    notes         lines below the tables
    next_command  the one command to run next
    silent        True if there is nothing to tell: as Markdown, which may become a comment, it is empty
    """

    answer: Answer | Verdict
    title: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    next_command: str = ""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class TableText:
    """A table as text: per column a header, a unit ("" for none) and whether it is right-aligned; rows of cells."""

    headers: list[str]
    units: list[str]
    right: list[bool]
    rows: list[list[str]] = field(default_factory=list)


def on_one_line(header: str) -> str:
    r"""A header that stands on several lines, where there is room for one; a word that was parted is whole again.

    >>> on_one_line("micro-\nbatches"), on_one_line("of\nseqs")
    ('micro-batches', 'of seqs')
    """
    return header.replace("-\n", "-").replace("\n", " ")


def as_text(table: Table) -> TableText:
    """Every cell of `table` as text of four significant digits: bytes in one unit, seconds too, else one per column."""
    values = [[row.get(column.key) for row in table.rows] for column in table.columns]
    kinds = [column.kind for column in table.columns]
    shared = [None if column.alone else column.kind for column in table.columns]
    common = {kind: scale(_numbers(kind, shared, values), kind) for kind in table.compared if kind in shared}
    units = [kind and common.get(kind) for kind in shared]
    columns = [cells(column, kind, unit) for column, kind, unit in zip(values, kinds, units, strict=True)]
    return TableText(
        headers=[column.header for column in table.columns],
        units=[unit for unit, _ in columns],
        right=[column.kind not in ("text", "bar") for column in table.columns],
        rows=[list(row) for row in zip(*(texts for _, texts in columns), strict=True)],
    )


def _numbers(kind: CellKind, kinds: Sequence[CellKind | None], columns: Sequence[Sequence[Any]]) -> list[Any]:
    """The values of all columns of one kind."""
    return [value for own, column in zip(kinds, columns, strict=True) if own == kind for value in column]


def present(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], nothing: Sequence[Any] = (None, "")
) -> tuple[Column, ...]:
    """The columns in which at least one row has something to say."""
    return tuple(column for column in columns if any(row.get(column.key) not in nothing for row in rows) or not rows)
