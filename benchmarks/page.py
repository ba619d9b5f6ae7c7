"""What pages written by scripts have in common: tables, and a check that they are fresh."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).parents[1]


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def written(page: Path, fresh: str, arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` compare it; the exit code."""
    name = page.relative_to(ROOT)
    if "--check" in arguments:
        same = page.exists() and page.read_text() == fresh
        sys.stdout.write(f"{name} is fresh\n" if same else f"{name} is stale: run this script\n")
        return 0 if same else 1
    page.parent.mkdir(exist_ok=True)
    page.write_text(fresh)
    sys.stdout.write(f"{name} written\n")
    return 0
