"""A fitted profile as text: what it extends, where its figures are from, and figures as a profile writes them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from tpsim.quantity.spec import is_path, path_from
from tpsim.quantity.units import show
from tpsim.question.save import flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tpsim.machine.profile import Constant, Machine

DIGITS = 5


def source_key(word: str, base: Machine) -> str:
    """The key of a source that the base, which may have earlier fits, has not yet."""
    return next(key for at in count(1) if (key := f"{word}{'' if at == 1 else f'-{at}'}") not in base.sources)


def extending(
    folder: Path, base: str, name: str, comments: Iterable[str], sources: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The first lines of a profile that stands in `folder` and extends the base."""
    extends = path_from(folder, base) if is_path(base) else base
    head = [f"# {line}".replace("\n", " ") for line in comments]
    head += ["tpsim: hardware/1", f"extends: {flow(extends)}", f"name: {flow(name)}", "sources:"]
    return [*head, *(f"  {key}: {flow(source)}" for key, source in sources.items())]


def figure(value: float, constant: Constant, source: str, note: str) -> dict[str, Any]:
    """A measured figure as a profile writes it."""
    now = show(value, constant.dimension, DIGITS)
    return {
        "value": float(now) if constant.dimension == "ratio" else now,
        "source": source,
        "kind": "measured",
        "note": note,
    }


def item(part: Mapping[str, Any]) -> Iterator[str]:
    """A level, or a curve, as an item of a list."""
    first, *others = block(part)
    yield f"  - {first}"
    yield from (f"    {line}" for line in others)


def block(part: Mapping[str, Any]) -> Iterator[str]:
    """A map in YAML: maps of maps, and lists of maps, line by line, anything else on one line."""
    for key, value in part.items():
        if isinstance(value, dict) and any(isinstance(entry, dict) for entry in value.values()):
            yield f"{flow(key)}:"
            yield from (f"  {line}" for line in block(value))
        elif isinstance(value, list) and len(value) > 1 and all(isinstance(entry, dict) for entry in value):
            yield f"{flow(key)}:"
            yield from (f"  - {flow(entry)}" for entry in value)
        else:
            yield f"{flow(key)}: {flow(value)}"
