"""One search of a sweep: what it is called, what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpsim.answers.layout_row import Row, as_written, in_texts, in_words
from tpsim.answers.search import SearchResult, search
from tpsim.answers.search_verdict import lines_of, surely
from tpsim.layouts.space import spaces
from tpsim.layouts.vary import values
from tpsim.quantity.errors import InputError
from tpsim.question.edits import flag_words

if TYPE_CHECKING:
    from tpsim.answers.planned import By
    from tpsim.question.memo import Memo

COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(
        ("rank", "tp", "dp", "cp", "ep", "pp", "chunks", "microbatches", "microbatch_size", "zero", "shards"), "int64"
    ),
    **dict.fromkeys(("sequence_parallel", "fits"), "bool"),
    **dict.fromkeys(("ep_over", "schedule", "layers", "recompute", "placement", "layout"), "string"),
    **dict.fromkeys(("value", "step_s", "tokens_per_s", "compute_s", "exposed_s", "bubble_s", "mfu"), "double"),
    **dict.fromkeys(("peak_bytes", "at_least_s"), "double"),
}
"""What is kept of a layout, and its type; value: what it was ranked by, less is better."""

SERVED: Mapping[str, str] = {
    "cache": "string",
    "batch": "int64",
    **dict.fromkeys(("ttft_s", "tpot_s", "tokens_per_s_chip"), "double"),
}
"""What of inference is kept, too."""


CODE = Path(__file__).parents[1]
"""Where tpsim's code is."""


@cache
def source(folder: Path) -> str:
    """A digest of the Python files of a folder: with any of them answers may change, whatever their version is."""
    files = sorted(folder.rglob("*.py"))
    return sha256(b"".join(sha256(file.read_bytes()).digest() for file in files)).hexdigest()


@dataclass(frozen=True, eq=False)
class Cell:
    """One search, as it can be sent to another process: the fields are those of `search`, one value of each varied."""

    scenario: str | Mapping[str, Any] | None
    vary: tuple[str, ...]
    overrides: Sequence[str]
    flags: Mapping[str, Any]
    by: By
    top: int
    plans: int

    def key(self, memo: Memo) -> str:
        """What its file is called: it changes with all that its answer is made of, not with how a flag was written."""
        try:
            (space,) = spaces(self.scenario, flags=self.flags, overrides=self.overrides, vary=self.vary, memo=memo)
            files: Sequence[Any] = [document for _, document in space.question(None, memo).inputs]
        except InputError as error:
            files = [str(error)]
        asked = asdict(self) | {"flags": {name: [*flag_words({name: value})] for name, value in self.flags.items()}}
        return sha256(json.dumps([source(CODE), asked, files], sort_keys=True, default=str).encode()).hexdigest()[:16]

    def searched(self, memo: Memo) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Its best layouts, and what is told beside them."""
        summary: dict[str, Any] = {"vary": self.vary, "why": ""}
        asked: dict[str, Any] = {"by": self.by, "top": self.top, "plans": self.plans, **self.flags}
        try:
            result = search(self.scenario, overrides=self.overrides, vary=self.vary, memo=memo, **asked)
        except InputError as error:
            return [], {**summary, "why": error.problems[0].message}
        summary |= {name: result[name] for name in ("considered", "legal", "fitting", "close", "plans", "gap")}
        summary["open_at"] = None if result.complete else result.ranked.open_at
        if not result.rows:
            summary["why"] = next(lines_of(result)).text  # the first alone: behind it is searched again
        return [_flat(row) for row in result.rows], {**summary, **_told(result)}


def _told(result: SearchResult) -> dict[str, Any]:
    """What the verdict says of its best layout, and of the best that surely fits, with what that is ranked by."""
    if not result.rows:
        return {}
    lines = {line.label: line.text for line in lines_of(result) if line.label in ("best", "memory", "run")}
    ranked = result.sure or result.ranked
    sure = ranked.best[0] if ranked.best else None
    return {"lines": lines, "sure": sure and [float(sure.value(result.by)), surely(ranked)]}


def cells(vary: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One `vary` for every combination of the values that are listed."""
    named = (text.partition("=") for text in vary)
    return product(
        *(
            ([f"{path}={value}" for value in dict.fromkeys(values(listed))]) if equals else [path]
            for path, equals, listed in named
        )
    )


def kinds(varied: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """How values that are varied are kept, by their field: as numbers where all are.

    >>> kinds([{"chips": 8, "hardware": "a", "x": 1}, {"chips": 16, "hardware": "b", "x": 0.5}])
    {'chips': 'int64', 'hardware': 'string', 'x': 'double'}
    """
    alike = {name: {type(one[name]) for one in varied} for name in varied[0]}
    return {name: next((kind for types, kind in KINDS if of <= types), "string") for name, of in alike.items()}


KINDS = (({bool}, "bool"), ({int}, "int64"), ({int, float}, "double"))
"""Types of values, and the one that holds them all."""


def _flat(row: Row) -> dict[str, Any]:
    whole = {**row, **in_texts(row), "layout": in_words(row), "value": float(row.planned.value(row.by))}
    kept = [*COLUMNS, *(SERVED if row.question.inference else ())]
    return {**as_written(row), **{name: whole.get(name) for name in kept}}
