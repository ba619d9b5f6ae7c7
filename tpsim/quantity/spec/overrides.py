"""Overrides from the command line: ``--set layout.zero=3`` laid on a document, with errors that point to that text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.spec.document import Document, with_value
from tpsim.quantity.spec.text import load

if TYPE_CHECKING:
    from collections.abc import Sequence


def overridden(document: Document, overrides: Sequence[str]) -> Document:
    """The document with ``path=value`` texts applied in order; values are YAML, paths are keys joined by dots.

    Raises InputError for a text that sets nothing, or that goes into something without fields.
    """
    for text in overrides:
        path, equals, value = text.partition("=")
        keys = tuple(key.strip() for key in path.split("."))
        source = f"--set {text}"
        column = len("--set ") + len(path) + 2
        place = Place("command line", 1, column, source, max(1, len(value)))
        if not equals or not all(keys):
            whole = replace(place, column=len("--set ") + 1, width=max(1, len(text)))
            raise InputError.one("bad-override", f'"{text}" sets nothing', whole, "write path=value: layout.zero=1")
        name = replace(place, column=len("--set ") + 1, width=len(path))
        document = with_value(document, keys, _value(value, place), place, name)
    return document


def _value(text: str, place: Place) -> Any:
    """What one value written as YAML stands for."""
    try:
        value = load(f"value: {text.strip() or 'null'}\n", name=place.file).data["value"]
    except InputError as error:
        problem = replace(error.problems[0], place=place)
        raise InputError([problem]) from None
    glued = [key for key, held in value.items() if held is None and ":" in str(key)] if isinstance(value, dict) else []
    if glued:
        spaced = str(glued[0]).replace(":", ": ", 1)
        message = f'"{glued[0]}" is one word: YAML wants a space after the colon'
        raise InputError.one("bad-override", message, place, f"write {spaced}, with quotes around the whole")
    return value
