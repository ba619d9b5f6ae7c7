"""Bands in which published steps lie about what was predicted of them by constants that were not fitted to them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from steps_fit import ampere, by_constants, left_out
from steps_runs import Run, by_set, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = tuple[str | None, str | None]
"""A generation, and whether a run takes one node; none: any."""

KINDS: Sequence[Kind] = (("ampere", "one"), ("ampere", "many"), (None, None))

NODE = 8
"""GPUs of a node; a TPU slice is one."""


def nodes(run: Run) -> str:
    """Whether a run takes one node."""
    return "one" if run.devices <= run.row.get("slice", NODE) else "many"


def of_kind(kind: Kind) -> list[tuple[Run, float]]:
    """Runs of a kind, with measured over predicted seconds by constants that were not fitted to them.

    Other generations are predicted by Ampere's.
    """
    generation, many = kind
    found = []
    for name, several in by_set().items():
        own = chosen()["sets"][name]["generation"] == "ampere"
        if own == (generation is None):
            continue
        seconds = by_constants((left_out(name) or ()) if own else ampere())
        found += [(run, run.measured / seconds(run)) for run in several if many in (None, nodes(run))]
    return found


def ends(found: Sequence[tuple[Run, float]]) -> tuple[float, float]:
    """The tenth and the ninetieth of a hundred, sets weighing alike."""
    counts = Counter(run.row["set"] for run, _ in found)
    order = sorted(found, key=lambda one: one[1])
    share = np.cumsum([1 / counts[run.row["set"]] for run, _ in order]) / len(counts)
    low, high = (order[int(np.searchsorted(share, part - 1e-9))][1] for part in (0.1, 0.9))
    return round(low, 3), round(high, 3)


def bands() -> Iterator[dict[str, Any]]:
    """A band for each kind of runs, as hardware/evidence has it."""
    for generation, many in KINDS:
        found = of_kind((generation, many))
        low, high = ends(found)
        named = {"generation": generation, "nodes": many} if generation else {}
        yield {**named, "low": low, "high": high, "runs": len(found), "sets": len({run.row["set"] for run, _ in found})}


def covered() -> Iterator[list[str]]:
    """Of each set of each kind the share of runs inside the band that the others of the kind give."""
    for kind in KINDS:
        found = of_kind(kind)
        inside = total = 0
        for name in dict.fromkeys(run.row["set"] for run, _ in found):
            others = [one for one in found if one[0].row["set"] != name]
            own = [ratio for run, ratio in found if run.row["set"] == name]
            low, high = ends(others)
            inside, total = inside + sum(low <= ratio <= high for ratio in own), total + len(own)
        share, spread = inside / total, 1.96 * (inside * (total - inside) / total**3) ** 0.5
        words = " ".join(filter(None, kind)) or "other generations"
        yield [words, str(total), f"{100 * share:.0f}", f"{100 * (share - spread):.0f} to {100 * (share + spread):.0f}"]
