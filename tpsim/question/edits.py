"""Edits of a scenario from outside its file: fields set anew, as by overrides (``--set layout.tp=tensor``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpsim.frozen import dataclass
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError, Place
from tpsim.question.scenario_file import PATHS_TO_FILES

if TYPE_CHECKING:
    from tpsim.quantity.spec import Document

Keys = tuple[str, ...]

SHORT_FOR: Mapping[str, str] = {**dict.fromkeys(PATHS_TO_FILES, "extends"), "practice": "base", "recompute": "base"}
"""A field whose bare name is short for a map -> the key of that map which the name belongs to."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the field, its new value, the text that asked for it and where in that text the value starts.

    named  where the name of the field stands; at the value if nowhere else
    """

    keys: Keys
    value: Any
    text: str
    column: int = 1
    named: Place | None = None

    @property
    def place(self) -> Place:
        """The edit as a place to point at."""
        return Place("command line", 1, self.column, self.text, max(1, len(self.text) - self.column + 1))


def edited(document: Document, edits: Iterable[Edit]) -> Document:
    """The document with every edit made, in order; a mistake in an edited field points at the edit.

    Raises InputError when an edit goes into something that has no fields.
    """
    for edit in edits:
        document = _unfolded(document, edit.keys)
        document = spec.with_value(document, edit.keys, edit.value, edit.place, edit.named)
    return document


def overridden(document: Document, overrides: Sequence[str]) -> Document:
    """The document with ``path=value`` texts applied in order; values are YAML, paths are keys joined by dots.

    Raises InputError for a text that sets nothing, or that goes into something without fields.
    """
    return edited(document, map(read_override, overrides))


def read_override(text: str) -> Edit:
    """The change that ``path=value`` asks for; the value is YAML. Raises InputError."""
    path, equals, value = text.partition("=")
    keys = tuple(key.strip() for key in path.split("."))
    named = Place("command line", 1, len("--set ") + 1, f"--set {text}", len(path))
    if not equals or not all(keys):
        whole = replace(named, width=max(1, len(text)))
        raise InputError.one("bad-override", f'"{text}" sets nothing', whole, "write path=value: layout.zero=1")
    edit = Edit(keys, None, named.text, named.column + len(path) + 1, named)
    return replace(edit, value=_yaml(value, edit.place))


def _yaml(text: str, place: Place) -> Any:
    """What one value written as YAML stands for."""
    try:
        value = spec.load(f"value: {text.strip() or 'null'}\n", name=place.file).data["value"]
    except InputError as error:
        raise InputError([replace(error.problems[0], place=place)]) from None
    glued = (
        [key for key, inside in value.items() if inside is None and ":" in str(key)] if isinstance(value, dict) else []
    )
    if glued:
        spaced = str(glued[0]).replace(":", ": ", 1)
        message = f'"{glued[0]}" is one word: YAML wants a space after the colon'
        raise InputError.one("bad-override", message, place, f"write {spaced}, with quotes around the whole")
    return value


def _unfolded(document: Document, keys: Keys) -> Document:
    """The document with a bare name written as the map that it is short for, if `keys` lead into that map."""
    top = keys[0]
    short = document.data.get(top)
    if len(keys) == 1 or top not in SHORT_FOR or not isinstance(short, str):
        return document
    return spec.with_value(document, (top,), {SHORT_FOR[top]: short}, document.place(top))
