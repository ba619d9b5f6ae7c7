"""What a user is told when a request is wrong: the problem, the user's own text, a caret, the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar
from unicodedata import east_asian_width

from tpsim.printable import printable

SHOWN = 5
"""Problems that are printed before the rest is only counted."""

WINDOW = 120
"""Characters of a source line that are printed; a longer line is cut around the caret."""


LONGEST = 1000
"""Characters of a message that are printed: a list of known names fits, a name as long as a page does not."""


COMMAND_LINE = "command line"
"""What stands for the file of a place in what a user typed."""


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of text in a file. Lines and columns count from 1; line 0 means the file as a whole.

    text   the whole source line
    width  characters from `column` on that the carets underline
    """

    file: str
    line: int
    column: int
    text: str
    width: int = 1


At = Callable[..., Place | None]
"""Where a key of a file stands: ``at("layout", "tp")``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: what, where, how to mend it, and what else helps to mend it.

    slug    stable short name, for scripts and searches
    remedy  printed after the carets
    note    printed on a line of its own that starts with ``=``
    """

    slug: str
    message: str
    place: Place | None = None
    remedy: str = ""
    note: str = ""

    def __str__(self) -> str:
        """The problem as it is printed, without a final newline."""
        return "\n".join(_lines(self))


class TpsimError(Exception):
    """Every error that tpsim raises on purpose; `exit_code` is what the command line returns for it."""

    exit_code: ClassVar[int] = 3


class InputError(TpsimError):
    """The request is wrong. Its text shows up to five problems, grouped by file.

    >>> print(InputError.one("unknown-name", '"tpu-v5" is not a machine', remedy='did you mean "tpu-v5e"?'))
    error[unknown-name]: "tpu-v5" is not a machine
      = did you mean "tpu-v5e"?
    """

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    @classmethod
    def one(cls, slug: str, message: str, place: Place | None = None, remedy: str = "", note: str = "") -> InputError:
        """An error of a single problem."""
        return cls([Problem(slug, message, place, remedy, note)])

    def at(self, place: Place | None, remedy: str = "") -> InputError:
        """The same, pointing at `place` where problems know none, because they were found far from any file.

        remedy  of those that have neither
        """
        return InputError(
            problem if problem.place else replace(problem, place=place, remedy=problem.remedy or remedy)
            for problem in self.problems
        )

    def __str__(self) -> str:
        grouped = _grouped(self.problems)
        more = [f"... and {len(grouped) - SHOWN} more"] if len(grouped) > SHOWN else []
        return "\n\n".join([*map(str, grouped[:SHOWN]), *more])


def _grouped(problems: Sequence[Problem]) -> list[Problem]:
    """Problems of one file together, in the order of its lines; files in the order in which they first appear."""
    files = {problem.place.file if problem.place else "": 0 for problem in problems}
    order = {file: number for number, file in enumerate(files)}

    def position(problem: Problem) -> tuple[int, int, int]:
        place = problem.place
        return (order[place.file], place.line, place.column) if place else (order[""], 0, 0)

    return sorted(problems, key=position)


def _lines(problem: Problem) -> Iterator[str]:
    place = problem.place
    yield f"error[{problem.slug}]: {_short(printable(problem.message))}"
    pad = " " * len(str(place.line)) if place and place.line else " "
    if place and place.line:
        text, before, width = _excerpt(place)
        yield f"{pad}--> {printable(place.file)}:{place.line}:{place.column}"
        yield f"{pad} |"
        yield f"{place.line} | {text}".rstrip()
        yield f"{pad} | {before}{'^' * width} {_short(printable(problem.remedy))}".rstrip()
    elif place:
        yield f"{pad}--> {printable(place.file)}"
    remedy = "" if place and place.line else problem.remedy
    for line in (remedy, *problem.note.splitlines()):
        if line:
            yield f"{pad} = {_short(printable(line))}"


def _excerpt(place: Place) -> tuple[str, str, int]:
    """The part of the source line to print, the blanks before the carets, and the number of carets."""
    column = min(place.column - 1, len(place.text))
    start = 0 if len(place.text) <= WINDOW else max(0, column - WINDOW // 3)
    text = place.text[start : start + WINDOW]
    before, marked = text[: column - start], text[column - start : column - start + place.width]
    left, right = ("... " if start else ""), (" ..." if start + WINDOW < len(place.text) else "")
    blanks = "".join("\t" if char == "\t" else " " * _cells(char) for char in left + before)
    return left + printable(text) + right, blanks, max(1, sum(map(_cells, marked)))


def _short(text: str) -> str:
    """`text` without the middle of what nobody reads to its end, such as a name of a thousand letters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def _cells(char: str) -> int:
    """Terminal cells that a character takes."""
    return 2 if east_asian_width(char) in {"W", "F"} else 1


def suggest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` most likely stands for, or None if none is near.

    >>> suggest("bandwith", ["bandwidth", "hop_latency"])
    'bandwidth'
    """
    return next(iter(near(word, known)), None)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", form: str = '"{}"') -> str:
    """The remedy for an unknown name: the nearest of the known ones, written in `form`, else what is given.

    >>> did_you_mean("bok", ["additive", "book"])
    'did you mean "book"?'
    """
    meant = suggest(word, known)
    return otherwise if meant is None else f"did you mean {form.replace('{}', meant)}?"


NEAR = 5
"""Names that are shown as near: who sees more reads none."""


def whole_meant(text: str) -> str:
    """The whole number, or the two, that a text without one may mean; "" if none.

    >>> whole_meant("8,192"), whole_meant("8k"), whole_meant("many")
    ('8192', '8192, or 8000', '')
    """
    if re.fullmatch(r"\d{1,3}([,_ ']\d{3})+", text):
        return re.sub(r"\D", "", text)
    prefixed = re.fullmatch(r"(\d+) ?([kKmM])i?", text)
    if prefixed is None:
        return ""
    power = 1 if prefixed[2] in "kK" else 2
    return f"{int(prefixed[1]) * 1024**power}, or {int(prefixed[1]) * 1000**power}"


def near(word: str, known: Iterable[str]) -> list[str]:
    """At most five of the known names, the likeliest first.

    One slip away; then those of which `word` is a whole part between dashes and the like, rather at their start; then
    several slips away; then those that hold it; if there are none, whatever looks like it. Of equals the first known.

    >>> near("H100", ["p5-h100", "tpu-v4", "gh100", "dgx-h100"])
    ['gh100', 'p5-h100', 'dgx-h100']
    """
    names = list(dict.fromkeys(known))
    ranked = [(rank, name) for name in names if (rank := _rank(word.casefold(), name.casefold()))]
    nearest = [name for _, name in sorted(ranked, key=lambda pair: pair[0])]
    if not nearest:
        from difflib import get_close_matches

        nearest = get_close_matches(word, names, n=NEAR, cutoff=0.65)
    return nearest[:NEAR]


def _rank(word: str, name: str) -> tuple[int, ...]:
    """How near a name is, the least first; () if it is not."""
    if len(name) > TELLING and name[0] == word[:1] and name == re.sub("(?<=[a-z])[a-z]+", "", word):  # float16 is f16
        return (0, 0)
    bearable = max(1, min(3, len(name) // 3))  # one slip in three letters, else two-letter names are near to everything
    least = max(abs(len(word) - len(name)), len({*word} - {*name}), len({*name} - {*word}))  # a letter or more each
    slips = _edits(word, name) if least <= bearable else len(word) + len(name)
    # People mistype the start of a word least.
    shared = -next((at for at, (x, y) in enumerate(zip(word, name, strict=False)) if x != y), min(len(word), len(name)))
    if slips <= 1:
        return (0, slips, shared)
    parts, part = f"-{_words(name)}-", f"-{_words(word)}"
    if len(word) > 1 and f"{part}-" in parts:
        return (1, not parts.startswith(part))
    if slips <= bearable:
        return (2, slips, shared)
    return (3, part not in parts) if (len(word) > 1 and part in parts) or (len(word) > TELLING and word in name) else ()


TELLING = 2
"""Letters that stand inside so many names that they tell nothing."""


@lru_cache(1024)
def _words(name: str) -> str:
    """The words of a name with one dash between them."""
    return "-".join("".join(char if char.isalnum() else " " for char in name).split())


def _edits(a: str, b: str) -> int:
    """Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (Damerau-Levenshtein)."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def unknown(
    word: str,
    noun: str,
    known: Iterable[str],
    place: Place | None = None,
    remedy: str = "",
    *,
    lister: str = "",
    listing: str = "known",
) -> InputError:
    """The refusal of a name that is not one of the known ones: the nearest, else `remedy`, and more of them.

    lister   the command that lists them all, for when they are many
    listing  what they are called where all of them are listed

    >>> print(unknown("bok", "cost model", ["additive", "book"]))
    error[unknown-cost-model]: "bok" is not a cost model
      = did you mean "book"?
      = known: additive, book
    """
    names = list(known)
    article = "an" if noun[0] in "aeiou" else "a"
    return InputError.one(
        f"unknown-{noun.partition(' of ')[0].replace(' ', '-')}",
        f'"{word}" is not {article} {noun}',
        place,
        did_you_mean(word, names, remedy),
        listed(word, names, lister, listing),
    )


FEW, MANY = 12, 20
"""Names that are all shown where some are near, and where none is."""


def listed(word: str, known: Sequence[str], lister: str = "", listing: str = "known", *, told: bool = True) -> str:
    """What there is instead of an unknown name: all of a short list, of a long one the other near ones and how many.

    All of a long one, too, where none is near and no command lists them.

    told  False where the nearest is not told elsewhere

    >>> listed("bok", ["additive", "book"])
    'known: additive, book'
    """
    close = near(word, known)
    if len(known) <= (FEW if close else MANY) or not (close or lister):
        return f"{listing}: {', '.join(known)}" if known else ""
    others = close[1:] if told else close
    also = f"{'also near' if told else 'near'}: {', '.join(others)}; " if others else ""
    return f"{also}{len(known)} are known{f': {lister}' if lister else ''}"
