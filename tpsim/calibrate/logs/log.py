"""A log as lines: what a program printed, without what launchers and terminals put around it."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, NoReturn

from tpsim.frozen import dataclass
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    Match = re.Match[str]

MAX_BYTES = 64_000_000
"""A log of more is not one of a benchmark."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LAUNCHER = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>: ?|\d+: )")
"""What ``mpirun --tag-output`` and ``srun -l`` put before each line of a rank."""


@dataclass(frozen=True, slots=True)
class Log:
    """One log.

    path    as the user gave it; "-" for standard input
    sha256  of the file's bytes
    lines   without line ends, colours, launchers' prefixes, and indents of headers; the first one is line 1 of the file
    """

    path: str
    sha256: str
    lines: tuple[str, ...]

    def found(self, pattern: re.Pattern[str], first: int = 1, last: int | None = None) -> Iterator[tuple[int, Match]]:
        """Where a pattern stands within those lines, both ends included: the number of the line, and the match."""
        matches = ((at, pattern.search(line)) for at, line in enumerate(self.lines[first - 1 : last], first))
        return ((at, match) for at, match in matches if match)

    def remark(self, line: int, text: str) -> str:
        """A warning about a line."""
        return f"{self.path}:{line}: {text}"

    def refuse(
        self, slug: str, message: str, line: int, remedy: str = "", note: str = "", *, column: int = 0
    ) -> NoReturn:
        """Raise InputError at all that is written on a line, or at a column of it; line 0 is the file as a whole."""
        text = self.lines[line - 1] if line else ""
        start = column or (len(text) - len(text.lstrip()) + 1 if line else 0)
        place = Place(self.path, line, start, text, 1 if column else max(1, len(text.rstrip()) - start + 1))
        raise InputError.one(slug, message, place, remedy, note)


def load(path: Path | str) -> Log:
    """The log at a path, ``-`` for standard input.

    Raises InputError if there is none, or if it is no text.
    """
    content = spec.content(path, MAX_BYTES)
    whole = Place(str(path), 0, 0, "")
    if len(content) > MAX_BYTES:
        raise InputError.one("file-too-large", f"the log is larger than {MAX_BYTES // 10**6} MB", whole)
    if b"\0" in content:
        raise InputError.one(
            "not-text", "the file holds bytes that are no text", whole, "give what the program printed"
        )
    text = content.decode("utf-8-sig", errors="replace")
    return Log(str(path), sha256(content).hexdigest(), tuple(map(_clean, text.split("\n"))))


def _clean(line: str) -> str:
    plain = _LAUNCHER.sub("", _COLOUR.sub("", line.rstrip("\r")))
    return plain.lstrip() if plain.lstrip().startswith("#") else plain


def stretches(starts: Iterable[int], last: int) -> Iterator[tuple[int, int]]:
    """First and last line of what begins at each of `starts` and ends before the next one, or with line `last`.

    >>> list(stretches([3, 8], 12))
    [(3, 7), (8, 12)]
    """
    known = list(starts)
    yield from zip(known, [*(start - 1 for start in known[1:]), last], strict=False)
