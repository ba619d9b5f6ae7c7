"""Documents as JSON: one value, stable order, a final line break."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class NoNumber(ValueError):  # noqa: N818  # it says what was found
    """An infinity or nan, which JSON does not have (RFC 8259, section 6)."""


def text(document: Mapping[str, Any]) -> str:
    """`document` as JSON, what is not printable as an escape. Raises NoNumber, with the place, for infinity or nan."""
    try:
        made = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return "\n".join(map(_escaped, made.split("\n")))
    except ValueError:
        raise NoNumber(next(_endless(document, ""))) from None


def _escaped(line: str) -> str:
    """A line without what would steer a terminal which it is shown on; JSON itself escapes the first 32."""
    if line.isprintable():
        return line
    escapes = (char.encode("utf-16-be", "surrogatepass").hex() for char in line)
    return "".join(
        char if char.isprintable() else "".join(f"\\u{escape[at : at + 4]}" for at in range(0, len(escape), 4))
        for char, escape in zip(line, escapes, strict=True)
    )


def _endless(value: Any, at: str) -> Iterator[str]:
    """Where in a document a number is no number, and which: ``result.step.time_s is inf``."""
    if isinstance(value, float) and not isfinite(value):
        yield f"{at} is {value}"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, held in items:
        yield from _endless(held, f"{at}.{key}" if at else str(key))
