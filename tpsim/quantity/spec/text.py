"""YAML text to a `Document`: the only place that opens YAML.

YAML 1.2 core types, but that ``5e7`` is the int which it says: ``4.5`` is a float, ``010`` is ten, ``no`` and
``2026-11-20`` are strings. Keys are strings, as in JSON. Duplicate keys, tags, several documents and merge keys are
refused.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from tpsim.quantity.errors import InputError, Place, Problem
from tpsim.quantity.spec.catalogue import content
from tpsim.quantity.spec.document import Document, Keys, Spot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_DEPTH = 50
MAX_DIGITS = 400
MAX_UNFOLDED = 10_000
"""Entries that all aliases of a file may stand for together: people write a few, and tpsim none."""

TOO_DEEP = f"the file is nested more than {MAX_DEPTH} deep"
FLATTER = "is it a tpsim file? None is nested more than ten deep"
SMALLER = "is it a tpsim file?"
FIELDS = "write fields: name: value"
ONCE = "it can be read once: one - for all of a command"


@dataclass(frozen=True, slots=True)
class Most:
    """How large a file may be: a larger one is no tpsim file, or a hostile one."""

    bytes: int = 1_000_000
    entries: int = 100_000


WRITTEN = Most()
"""What people write."""

LARGE = Most(bytes=8_000_000, entries=800_000)
"""What tpsim writes: a lock or a result of hundreds of scenarios."""


def load(source: Path | str, name: str | None = None, *, most: Most = WRITTEN) -> Document:
    """The YAML or JSON file at a path, ``-`` for standard input; or a text, when it is given a `name` or has two lines.

    Raises InputError if there is no such file, or for text that is not one YAML map.
    """
    if isinstance(source, str) and (name is not None or "\n" in source):
        text, path = source.encode(), name or "text"
    else:
        text, path = content(source, most.bytes), str(source)
    return _known(text, path, most) if len(text) <= SHORT else _document(text, path, most)


SHORT, KEPT = 100_000, 256
"""Bytes of a text that is not read twice, and how many of them are kept: machines share chips, requests machines."""


@lru_cache(KEPT)
def _known(content: bytes, path: str, most: Most) -> Document:
    """Equal texts in one place are one document: nobody changes what it holds."""
    return _document(content, path, most)


def _document(content: bytes, path: str, most: Most) -> Document:
    whole = Place(path, 0, 0, "")
    if len(content) > most.bytes:
        size = f"{most.bytes // 1_000_000} MB"
        raise InputError.one("file-too-large", f"the file is larger than {size}", whole, SMALLER)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8 text: byte {error.start + 1} is not valid"
        raise InputError.one("not-utf8", message, whole, "save it as UTF-8") from None
    if path.endswith(".json"):
        text = _JSON_ESCAPE.sub(_joined, text)
    return _Reader(path, text, sha256(content).hexdigest(), most).document()


# JSON writes a character beyond the 16-bit plane as two escapes, which YAML does not know.
_JSON_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)", re.IGNORECASE)


def _joined(escape: re.Match[str]) -> str:
    """The one character that a pair of escapes stands for; any other escape as it is."""
    if escape[1] is None:
        return escape[0]
    return bytes.fromhex(escape[1] + escape[2]).decode("utf-16-be")


# libyaml ends a line where YAML 1.1 does.
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


@dataclass
class _Reader:
    """Builds a document from the parser's events, so that a hostile text is stopped before it is unfolded."""

    path: str
    text: str
    sha256: str
    most: Most
    spots: dict[Keys, Spot] = field(default_factory=dict)
    anchors: dict[str, Any] = field(default_factory=dict)
    entries: int = 0
    unfolded: int = 0

    def document(self) -> Document:
        """The whole document."""
        self.lines = _LINE_END.split(self.text)
        self.events: Iterator[yaml.Event] = self._parsed()
        next(self.events)
        data = self._root(next(self.events))
        return Document(data, self.path, self.text, self.sha256, self.spots)

    def _parsed(self) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(self.text, Loader=yaml.CSafeLoader)
        except yaml.MarkedYAMLError as error:
            self._refuse_syntax(error)
        except yaml.reader.ReaderError as error:
            at = self.text[: error.position] if isinstance(error.position, int) else ""
            lines = _LINE_END.split(at)
            place = self._place(len(lines) - 1, len(lines[-1]), 1)
            self._refuse("bad-yaml", f"YAML forbids this character: {error.reason}", place, "remove it")

    def _root(self, event: yaml.Event) -> dict[str, Any]:
        if isinstance(event, yaml.StreamEndEvent):
            message, remedy = ("standard input is empty", ONCE) if self.path == "-" else ("the file is empty", FIELDS)
            self._refuse("empty-file", message, Place(self.path, 0, 0, ""), remedy)
        first = next(self.events)
        if not isinstance(first, yaml.MappingStartEvent):
            content = "a list" if isinstance(first, yaml.SequenceStartEvent) else "a single value"
            self._refuse("not-a-map", f"the file holds {content}", self._at(first), FIELDS)
        data: dict[str, Any] = self._value(first, (), None)
        next(self.events)
        last = next(self.events)
        if not isinstance(last, yaml.StreamEndEvent):
            self._refuse("several-documents", "a second document starts here", self._at(last), "keep one per file")
        return data

    def _value(self, event: Any, keys: Keys, key: Place | None) -> Any:
        """The value that starts with `event`; its place is kept under `keys`."""
        self.entries += 1
        place = self._at(event)
        if self.entries > self.most.entries:
            self._refuse("file-too-large", f"the file holds more than {self.most.entries:,} entries", place, SMALLER)
        if len(keys) > MAX_DEPTH:
            self._refuse("too-deep", TOO_DEEP, place, FLATTER)
        if isinstance(event, yaml.AliasEvent):
            self.spots[keys] = Spot(key, place)
            return self._alias(event, keys, place)
        if event.tag is not None:
            self._refuse("tag", "a YAML tag stands here", place, "tpsim reads no tags; quote a text instead")
        value, end = self._content_of(event, keys)
        if event.anchor:
            self.anchors[event.anchor] = value
        self.spots[keys] = Spot(key, self._at(event, end))
        return value

    def _content_of(self, event: Any, keys: Keys) -> tuple[Any, yaml.Event]:
        """The value and the event that ends it."""
        if isinstance(event, yaml.MappingStartEvent):
            return self._map(keys)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(keys)
        return (scalar(event.value) if event.implicit[0] else event.value), event

    def _map(self, keys: Keys) -> tuple[dict[str, Any], yaml.Event]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            place = self._at(event)
            name = self._key(event, place)
            if name in result:
                first = self.spots[(*keys, name)].key
                note = f"the first one is in line {first.line}" if first else ""
                self._refuse("duplicate-key", f'"{name}" is given twice', place, "keep one", note)
            result[name] = self._value(next(self.events), (*keys, name), place)
        return result, event

    def _list(self, keys: Keys) -> tuple[list[Any], yaml.Event]:
        result: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            result.append(self._value(event, (*keys, len(result)), None))
        return result, event

    def _key(self, event: Any, place: Place) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
            self._refuse("bad-key", "this key is not a plain name", place, "write name: value")
        if event.value == "<<" and event.implicit[0]:
            self._refuse("merge-key", "YAML merge keys are not read", place, "use extends, or repeat the fields")
        return str(event.value)

    def _alias(self, event: Any, keys: Keys, place: Place) -> Any:
        """A copy of what the anchor stands for, so that changing one does not change the other."""
        if event.anchor not in self.anchors:
            message = f'no "&{event.anchor}" stands before this'
            self._refuse("unknown-alias", message, place, "write the value itself, or quote a text")
        value = self.anchors[event.anchor]
        entries, depth = _extent(value)
        self.unfolded += entries
        if self.unfolded > MAX_UNFOLDED:
            self._refuse("file-too-large", f"aliases unfold to more than {MAX_UNFOLDED:,} entries", place, SMALLER)
        if len(keys) + depth > MAX_DEPTH:
            self._refuse("too-deep", f"aliases unfold to a file nested more than {MAX_DEPTH} deep", place, FLATTER)
        return deepcopy(value)

    def _at(self, event: Any, last: Any = None) -> Place:
        """The stretch from an event to the end of another one (itself if none), cut at the end of its first line."""
        start, end = event.start_mark, (last or event).end_mark
        width = end.column - start.column if end.line == start.line else 0
        return self._place(start.line, start.column, width)

    def _place(self, line: int, column: int, width: int) -> Place:
        """A place from the parser's numbers, which start at 0; no width means to the end of the line."""
        text = self.lines[line] if line < len(self.lines) else ""
        if not width:
            width = len(text.partition(" #")[0].rstrip()) - column
        return Place(self.path, line + 1, column + 1, text, max(1, width))

    def _refuse(self, slug: str, message: str, place: Place, remedy: str = "", note: str = "") -> NoReturn:
        raise InputError([Problem(slug, message, place, remedy, note)])

    def _refuse_syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        if line >= len(self.lines) or not self.lines[line][column:].strip():
            line, column = self._last_written(line, column)
        text = self.lines[line]
        if "maximum nesting depth" in str(error.problem):  # libyaml's own, of 1,000, before the first event is read
            self._refuse("too-deep", TOO_DEEP, self._place(line, column, 1), FLATTER)
        problem, remedy, start = str(error.problem), "close what is open, and quote what is text", error.context_mark
        if text[column : column + 1] == "\t" or text[:column].strip(" ") == "\t":
            problem, remedy = "a tab cannot indent YAML", "use spaces"
        elif "mapping values are not allowed" in problem:
            problem, remedy = 'a second ": " in one value', "quote the value, or check the indentation"
        note = f"{error.context} that starts in line {start.line + 1}" if start and start.line != line else ""
        self._refuse("bad-yaml", problem, self._place(line, column, 1), remedy, note)

    def _last_written(self, line: int, column: int) -> tuple[int, int]:
        """Where the last text at or before a place ends: a caret beyond the end of the file shows nothing."""
        for at in range(min(line, len(self.lines) - 1), -1, -1):
            text = self.lines[at][:column] if at == line else self.lines[at]
            if text.strip():
                return at, len(text.rstrip())
        return 0, 0


def _extent(value: Any) -> tuple[int, int]:
    """How many values there are in `value`, itself included, and how deep they are nested."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    parts = [_extent(part) for part in inner]
    return 1 + sum(entries for entries, _ in parts), 1 + max((depth for _, depth in parts), default=0)


_SCALARS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"|~|null|Null|NULL"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+"), lambda text: _whole(float(text))),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)"), float),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
)
"""The core schema of YAML 1.2: what a plain scalar looks like -> what it is; anything else is text."""


def _whole(number: float) -> float | int:
    """A power of ten is how people write large counts: ``5e7`` is the int, as far as a float tells ints apart."""
    return int(number) if number.is_integer() and abs(number) <= EXACT else number


EXACT = 2**53
"""A float is exact to here."""


def scalar(text: str) -> Any:
    """A plain scalar as YAML 1.2 reads it; a number of absurd length stays text."""
    if len(text) > MAX_DIGITS:
        return text
    return next((read(text) for pattern, read in _SCALARS if pattern.fullmatch(text)), text)
