"""Peaks of models with experts, which no list was found by, and what allocators reserve beside what is planned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_runs import DATA, GIB, Run, chosen, listed, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MEGATRON = ("nanotron", "simumax")
"""Stacks that are Megatron's or like it, of which reserved bytes are known."""

BANDS: Mapping[str, tuple[float, float]] = {"Megatron and nanotron": (0.95, 1.20), "torchtitan": (0.90, 1.40)}
"""Where what is reserved shall lie, over what is planned."""

OP = {"drop": ["mlp.up", "mlp.normed", "attention.normed", "mlp.act"]}
"""torchtitan's selective recompute of ops: attention and every second product stay."""


@dataclass(frozen=True)
class Expert(Run):
    """A run of a model with experts, each padded to its capacity: no routing decides its bytes."""

    def scenario(self) -> dict[str, Any]:
        """The question: experts lie on all ranks of a stage, rows beyond an expert's capacity are dropped."""
        asked = super().scenario()
        layout = {**asked["layout"], "ep": "data"}
        return {**asked, "layout": layout, "assume": {"routing": {"drop": self.row["capacity"]}}}


@dataclass(frozen=True)
class Reserved(Run):
    """A run of which only reserved bytes are known."""

    def scenario(self) -> dict[str, Any]:
        """The question, context parallelism and recompute by op included."""
        asked, many = super().scenario(), self.row.get("context", 1)
        if self.row["recompute"] == "op":
            asked["recompute"] = OP
        if many > 1:
            asked["mesh"] = {**asked["mesh"], "context": many}
            asked["layout"] = {**asked["layout"], "cp": "context"}
        return asked


def _rows(key: str, kind: type[Run]) -> list[Run]:
    read = json.loads((DATA / "measured_memory.json").read_text())
    return [kind(row, chosen()["stacks"][row["stack"]]) for row in read[key]]


@cache
def experts() -> list[Run]:
    """Those of models with experts."""
    return _rows("experts", Expert)


def expert_rows() -> Iterator[list[str]]:
    """A row of each, with the list that was found by dense runs of its stack."""
    for run in experts():
        row, mesh = run.row, run.row["mesh"]
        sizes = [f"{one / GIB:.2f}" for one in (run.measured, run.peak, run.bundled, run.listed, run.states)]
        cut = f"ep {mesh['data']}, pp {mesh['pipe']}, {row['each']} x {row['seq']}"
        yield [row["id"], cut, str(row["rank"]), *sizes, f"{100 * (run.listed / run.measured - 1):+.1f}"]


def expert_errors() -> tuple[float, float]:
    """Median and largest size of their errors, percent."""
    size = [100 * abs(run.listed / run.measured - 1) for run in experts()]
    return float(np.median(size)), max(size)


@cache
def reserved() -> Mapping[str, Sequence[tuple[Run, float]]]:
    """Runs of which what the allocator reserved is known, each with that over what is planned."""
    known = [run for run in (*runs(), *experts()) if "reserved_gib" in run.row]
    groups = {
        "Megatron and nanotron": [run for run in known if run.row["stack"] in MEGATRON],
        "torchtitan": [run for run in known if run.row["stack"] == "torchtitan"] + _rows("reserved", Reserved),
    }
    return {
        name: [(run, run.row["reserved_gib"] * GIB / run.listed) for run in group] for name, group in groups.items()
    }


def inside(name: str) -> float:
    """The share of a group's runs in its band."""
    low, high = BANDS[name]
    return float(np.mean([low <= ratio <= high for _, ratio in reserved()[name]]))


def reserved_rows() -> Iterator[list[str]]:
    """A row of each group."""
    for name, group in reserved().items():
        ratios = [ratio for _, ratio in group]
        low, high = BANDS[name]
        ends = f"{min(ratios):.2f} to {max(ratios):.2f}"
        band = f"{100 * inside(name):.0f} % in {low:.2f} to {high:.2f}"
        out = [f"{run.row['id']} {ratio:.2f}" for run, ratio in group if not low <= ratio <= high]
        yield [name, str(len(group)), f"{np.median(ratios):.2f}", ends, band, ", ".join(out) or "none"]


TRIED = {"mlp.act": (0, 2), "attention.mixed": (0, 2), "loss.exp": (0, 4)}
"""What each configuration of a stack is left out of: bytes per element that a list is looked for among."""


def left_out(stack: str) -> Iterator[tuple[str, Mapping[str, int], float]]:
    """Of each configuration its name, the list that all others lead to, and how far that is off, percent at most."""
    own = [run for run in runs() if run.row["stack"] == stack]
    lists = [dict(zip(TRIED, each, strict=True)) for each in product(*TRIED.values())]
    errors = 100 * np.abs([[run.by(listed(one)) / run.measured - 1 for one in lists] for run in own])
    for twin in sorted({run.row["twin"] for run in own}):
        mine = np.array([run.row["twin"] == twin for run in own])
        best = int(errors[~mine].mean(axis=0).argmin())
        yield twin, lists[best], float(errors[mine, best].max())
