"""The published peaks of memory of tests/data, as questions that tpsim answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

import tpsim
from page import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = ROOT / "tests" / "data"
GIB = 2**30


@dataclass(frozen=True)
class Run:
    """A published run: `row` as measured_memory.json has it, `stack` as memory_set.yaml says of who ran it."""

    row: Mapping[str, Any]
    stack: Mapping[str, Any]
    known: dict[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> float:
        """Bytes."""
        return float(self.row["gib"]) * GIB

    def by(self, keeps: Mapping[str, int]) -> float:
        """Tpsim's peak by a list of its own, bytes."""
        asked = self.scenario(keeps=dict(keeps) or "none")
        return float(tpsim.plan(asked).each[self.row["rank"]].peak_bytes)

    def planned(self, **keeps: str) -> Any:
        """What tpsim says of a chip of the rank that was measured; without `keeps` by the list of the bundle."""
        key = keeps.get("keeps", "")
        if key not in self.known:
            self.known[key] = tpsim.plan(self.scenario(**keeps)).each[self.row["rank"]]
        return self.known[key]

    @property
    def peak(self) -> float:
        """Tpsim's of what kernels need alone, bytes."""
        return float(self.planned(keeps="none").peak_bytes)

    @property
    def bundled(self) -> float:
        """Tpsim's as a scenario is planned that says no more than its practice's name, bytes."""
        return float(self.planned().peak_bytes)

    @property
    def listed(self) -> float:
        """Tpsim's with the list of this stack, or of how this run's loss ran, bytes."""
        eager = self.stack["practice"]["keeps"]
        keeps = self.stack["losses"][self.row["loss"]] if "loss" in self.row else eager
        return float(self.planned(keeps=keeps).peak_bytes)

    @property
    def states(self) -> float:
        """Parameters, gradients and optimizer states alone, as tpsim counts them, bytes."""
        return float(self.planned(keeps="none").static_bytes)

    @property
    def layers(self) -> float:
        """Of its rank."""
        row = self.row
        even = row["model"]["layers"] / row["mesh"]["pipe"]
        return float(row["split"][row["rank"]] if "split" in row else even)

    @property
    def in_flight(self) -> int:
        """Microbatches that its rank keeps at once in 1F1B."""
        return int(min(self.row["microbatches"], self.row["mesh"]["pipe"] - self.row["rank"]))

    @property
    def textbook(self) -> float:
        """States, and the activations of a GPT with dropout by formula, bytes.

        A layer keeps sbh(10 + 24/t), with sequence parallelism 34sbh/t, recomputed 2sbh, for the p - i microbatches in
        flight on stage i; the last stage 4sbh/t (1 + v/h) for head and loss.
        Source: Korthikanti et al. 2022, section 4.
        """
        row, model = self.row, self.row["model"]
        t, stages, rank = row["mesh"]["tensor"], row["mesh"]["pipe"], row["rank"]
        stream = row["seq"] * row["each"] * model["hidden"]
        layer = stream * (34 / t if row["sequence_parallel"] else 10 + 24 / t)
        layer = 2 * stream if row["recompute"] == "full" else layer
        head = 4 * stream / t * (1 + model["vocab"] / model["hidden"]) if rank == stages - 1 else 0
        return self.states + layer * self.layers * self.in_flight + head

    def scenario(self, **keeps: Any) -> dict[str, Any]:
        """The question, as `tpsim.plan` takes it; the machine does not matter for what is allocated."""
        row, mesh = self.row, dict(self.row["mesh"])
        layout = {"dp": "data", "tp": "tensor", "zero": row["zero"], "sequence_parallel": row["sequence_parallel"]}
        staged = {}
        if mesh["pipe"] > 1:
            layout["pp"] = "pipe"
            staged["pipeline"] = {"schedule": "1f1b", "layers": row.get("split", "even")}
        else:
            del mesh["pipe"]
        batch = row["each"] * row["microbatches"] * mesh["data"]
        return {
            "tpsim": "scenario/1",
            "model": {
                "extends": "llama-3-8b",
                "name": row["id"],
                "params": None,
                "max_positions": None,
                **row["model"],
                **self.stack.get("model", {}),
            },
            "hardware": "dgx-h100",
            "mesh": mesh,
            "layout": layout,
            "practice": {**{name: one for name, one in self.stack["practice"].items() if name != "keeps"}, **keeps},
            "recompute": row["recompute"],
            "workload": {
                "global_batch": batch,
                "microbatches": row["microbatches"],
                "seq": row["seq"],
                **self.stack["workload"],
            },
            **staged,
        }


def chosen() -> Mapping[str, Any]:
    """How runs are asked for, and what is left out."""
    found: Mapping[str, Any] = yaml.safe_load((DATA / "memory_set.yaml").read_text())
    return found


def runs() -> list[Run]:
    """All that are scored."""
    said = chosen()
    rows = json.loads((DATA / "measured_memory.json").read_text())["rows"]
    return [Run(row, said["stacks"][row["stack"]]) for row in rows if row["id"] not in said["left_out"]]
