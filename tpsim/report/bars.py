"""A whole drawn as one bar of its parts, with a legend under it: for any width."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        legend = ", ".join(one.replace(" ", "\0") for one in marked)  # a part stands on one line
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
