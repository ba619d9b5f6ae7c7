"""The published peaks of memory of tests/data, as questions that tpsim answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import yaml

import tpsim
from page import ROOT
from tpsim.answers.memory import chips
from tpsim.program.keeps import KEEPS, Extra
from tpsim.question.prices import sizes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.answers.plan import PlanResult

DATA = ROOT / "tests" / "data"
GIB = 2**30


@dataclass(frozen=True)
class Run:
    """A published run: `row` as measured_memory.json has it, `stack` as memory_set.yaml says of who ran it."""

    row: Mapping[str, Any]
    stack: Mapping[str, Any]

    @property
    def measured(self) -> float:
        """Bytes."""
        return float(self.row["gib"]) * GIB

    @cached_property
    def plan(self) -> PlanResult:
        """As a scenario is planned that says no more than its practice's name."""
        return tpsim.plan(self.scenario())

    def by(self, keeps: tuple[Extra, ...]) -> float:
        """Tpsim's peak by a list, on the rank that was measured, bytes."""
        return float(self._holds(keeps).peak_bytes)

    @cached_property
    def _known(self) -> dict[tuple[Extra, ...], Any]:
        return {}

    def _holds(self, keeps: tuple[Extra, ...]) -> Any:
        if keeps not in self._known:
            self._known[keeps] = self._counted(keeps)
        return self._known[keeps]

    def _counted(self, keeps: tuple[Extra, ...]) -> Any:
        question = self.plan.question
        asked = replace(question, practice=replace(question.practice, keeps=keeps))
        return [*chips(asked, self.plan.lowered, sizes_of(asked))][self.row["rank"]]

    @property
    def peak(self) -> float:
        """Tpsim's of what kernels need alone, bytes."""
        return self.by(())

    @property
    def bundled(self) -> float:
        """Tpsim's by the list of the bundle, bytes."""
        return float(self.plan.each[self.row["rank"]].peak_bytes)

    @property
    def listed(self) -> float:
        """Tpsim's with the list of this stack, or of how this run's loss ran, bytes."""
        eager = self.stack["practice"]["keeps"]
        return self.by(listed(self.stack["losses"][self.row["loss"]] if "loss" in self.row else eager))

    @property
    def states(self) -> float:
        """Parameters, gradients and optimizer states alone, as tpsim counts them, bytes."""
        return float(self._holds(()).static_bytes)

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

    def scenario(self) -> dict[str, Any]:
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
            "practice": {name: one for name, one in self.stack["practice"].items() if name != "keeps"},
            "recompute": row["recompute"],
            "workload": {
                "global_batch": batch,
                "microbatches": row["microbatches"],
                "seq": row["seq"],
                **self.stack["workload"],
            },
            **staged,
        }


def listed(keeps: str | Mapping[str, int]) -> tuple[Extra, ...]:
    """What a stack keeps, by the name of a list or array by array."""
    return KEEPS[keeps] if isinstance(keeps, str) else tuple(Extra(*one) for one in keeps.items())


def chosen() -> Mapping[str, Any]:
    """How runs are asked for, and what is left out."""
    found: Mapping[str, Any] = yaml.safe_load((DATA / "memory_set.yaml").read_text())
    return found


@cache
def runs() -> list[Run]:
    """All that are scored."""
    said = chosen()
    rows = json.loads((DATA / "measured_memory.json").read_text())["rows"]
    return [Run(row, said["stacks"][row["stack"]]) for row in rows if row["id"] not in said["left_out"]]
