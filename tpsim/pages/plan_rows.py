"""The collectives of a plan as lines of its table: what a row adds, rows that are alike together, lines told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpsim.cost.collectives import RECOMPUTED
from tpsim.pages.plan_facts import (
    PURPOSES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.cost.step import Lost


PREFIXES = {"gradient": "grad.", "state": "new."}
"""What the names of their arrays begin with."""

SAME = ("where", "purpose", "collective", "axis", "ranks", "dtype", "logical_bytes", "stage")
"""Rows that agree in these are one line of the short table; the first five are its label."""

ROUNDING = 1e-9
"""The share of a call's seconds below which a difference of two is one of rounding."""

STAR = "*"
"""What marks the collective that costs most."""


def line(row: Mapping[str, Any], step_s: float, most: Lost | None) -> dict[str, Any]:
    """A collective's record with what a page adds: where it stands and what it is for, its share of the step.

    most  what costs most, which is marked
    """
    layer = row["layer"]
    around = "around the layers" if layer is None else f"layer{'s' if '-' in str(layer) else ''} {layer}"
    return {
        **row,
        "where": f"{row['phase']}, {around}",
        "purpose": f"{row['block']} {RECOMPUTED}" if row["op"] == RECOMPUTED else PURPOSES.get(row["op"], row["block"]),
        "share": row["exposed_s"] / step_s,
        "hidden_s": row["hidden_s"] if row["hidden_s"] > ROUNDING * row["busy_s"] else 0,
        **(MOST if most and f"{row['collective']} over {row['axis']}" == most.collective else {}),
    }


MOST = {"mark": "most", "star": STAR}
"""What a row of the collective has that costs most."""


def together(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose calls are alike as one line each, in the order in which they are met: calls and seconds add up.

    A line has the ``arrays`` of its rows.
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        same = tuple(row.get(key) for key in SAME)
        if same not in lines:
            lines[same] = {**row, "arrays": [row["array"]]}
            continue
        line = lines[same]
        line["arrays"].append(row["array"])
        for key in ("count", "busy_s", "exposed_s", "share"):
            line[key] += row[key]
    return list(lines.values())


def told_apart(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lines that differ in size alone say of which arrays they are: ``weights Wq, Wo``."""
    labels = Counter(_label(line) for line in lines)
    return [
        {**line, "purpose": f"{line['purpose']} {arrays(line)}"} if labels[_label(line)] > 1 else dict(line)
        for line in lines
    ]


def _label(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line[key] for key in SAME[:5])


def arrays(line: Mapping[str, Any]) -> str:
    """The arrays of a line, without the prefix that its purpose says already."""
    prefix = PREFIXES.get(line["op"], "")
    return ", ".join(
        dict.fromkeys(" ".join(part.removeprefix(prefix) for part in array.split()) for array in line["arrays"])
    )
