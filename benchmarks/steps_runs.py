"""The published runs of tests/data, as questions that tpsim answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

import tpsim
from page import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = ROOT / "tests" / "data"
PADDED = 128
"""Megatron pads a vocabulary to a multiple of this per tensor rank; llm-foundry states it padded."""

Constants = tuple[tuple[str, float], ...]
"""Figures of chips that replace those of the profile, by name."""


@cache
def chosen() -> Mapping[str, Any]:
    """How runs are asked for, and what is left out."""
    read: Mapping[str, Any] = yaml.safe_load((DATA / "steps_set.yaml").read_text())
    return read


@dataclass(frozen=True, eq=False)
class Run:
    """A published run: `row` as measured_steps.json has it."""

    row: Mapping[str, Any]

    @property
    def asked(self) -> Mapping[str, Any]:
        """What steps_set.yaml says of its set."""
        asked: Mapping[str, Any] = {**chosen()["sets"], **chosen()["unscored"]}[self.row["set"]]
        return asked

    @property
    def measured(self) -> float:
        """Seconds."""
        return float(self.row["seconds"])

    @property
    def devices(self) -> int:
        """Chips."""
        return int(np.prod(list(self.row["mesh"].values())))

    @property
    def flops(self) -> float:
        """Of products per step and chip, without recompute: 6 per parameter and token, 12 L s a per token.

        What the baseline of one constant per set is counted in.
        """
        row, model = self.row, self.row["model"]
        inner, h = model["heads"] * model["head_dim"], model["hidden"]
        keys = model["kv_heads"] * model["head_dim"]
        layer = 2 * h * inner + 2 * h * keys + 2 * h * model["ffn"]
        each = 6 * (model["layers"] * layer + h * model["vocab"]) + 12 * model["layers"] * row["seq"] * inner
        whole = 4 / 3 if row["recompute"] == "full" else 1
        return float(each * whole * self.sequences * row["seq"] / self.devices)

    @property
    def sequences(self) -> int:
        """Of a step."""
        return int(self.row["each"] * self.row["microbatches"] * self.row["mesh"]["data"])

    def scenario(self, constants: Constants = ()) -> dict[str, Any]:
        """The question, as `tpsim.plan` takes it."""
        row, asked, mesh = self.row, self.asked, self.row["mesh"]
        workload = {"global_batch": self.sequences, "microbatches": row["microbatches"], "seq": row["seq"]}
        grads = {"grad_dtype": "bf16"} if row.get("pure") else {}
        return {
            "tpsim": "scenario/1",
            "model": self._model(),
            "practice": self._practice(),
            "recompute": asked.get("recompute", {}).get(row["recompute"], row["recompute"]),
            "workload": {**workload, **asked["workload"], **grads},
            **(self._slices() if "slice" in row else self._cut(mesh)),
            **self._machine(dict(constants)),
        }

    def _practice(self) -> dict[str, Any]:
        """Of its set; PyTorch's own data parallelism sums gradients beside backward, its FSDP may gather late there."""
        practice = self.asked["practice"]
        beside = {"gradients": "beside"} if self.row.get("ddp") == "torch" else {}
        beside |= {"weights": "forward"} if self.row.get("prefetch") == "after" else {}
        return {**practice, **({"overlap": {**practice.get("overlap", {}), **beside}} if beside else {})}

    def _model(self) -> dict[str, Any]:
        row, asked, sizes = self.row, self.asked, dict(self.row["model"])
        pad = PADDED * row["mesh"]["tensor"] if asked["padded"] else 1
        positions = {} if "positions" in asked["model"] else {"max_positions": row["seq"]}
        return {
            **asked["model"],
            "name": row["id"],
            "params": None,
            "ffn": {"kind": asked["ffn"], "hidden": sizes.pop("ffn")},
            "vocab_padded": -(-sizes["vocab"] // pad) * pad,
            **positions,
            **sizes,
        }

    def _cut(self, mesh: Mapping[str, int]) -> dict[str, Any]:
        """Mesh, layout and stages; each rank sends its share of what a stage hands on where the set says so."""
        row = self.row
        layout = {"dp": "data", "tp": "tensor", "zero": row["zero"], "sequence_parallel": row["sequence_parallel"]}
        if mesh["pipe"] == 1:
            return {"mesh": {axis: size for axis, size in mesh.items() if axis != "pipe"}, "layout": layout}
        cut = {"cut": {"s": "tensor"}} if self.asked.get("cut") and not row["sequence_parallel"] else {}
        chunks = row.get("chunks", 1)
        pipeline = {"schedule": "interleaved" if chunks > 1 else "1f1b", "chunks": chunks}
        split = {"layers": row["split"]} if "split" in row else {}
        return {"mesh": mesh, "layout": {**layout, "pp": "pipe", **cut}, "pipeline": {**pipeline, **split}}

    def _slices(self) -> dict[str, Any]:
        """Parameters are sharded inside a slice, gradients summed over slices; the stream is split over its width."""
        data, tensor = self.row["mesh"]["data"], self.row["mesh"]["tensor"]
        shard = min(data, self.row["slice"] // tensor)
        mesh = {"replica": data // shard, "shard": shard, "tensor": tensor}
        axes = {"b": ["replica", "shard"], **dict.fromkeys("gfv", "tensor")}
        stored = {region: {"h": "shard"} for region in ("state", "grad", "stored")}
        return {"mesh": mesh, "shardings": {"*": axes, "residual": {"h": "tensor"}, **stored}}

    def _machine(self, constants: dict[str, float]) -> dict[str, Any]:
        hardware = self.asked["hardware"]
        figures: dict[str, Any] = {**constants}
        if attention := figures.pop("attention_efficiency", None):
            figures["attention_efficiency"] = {"forward": attention, "backward": attention}
        if "interruption" in figures:
            figures["interruption"] = f"{figures['interruption']} s"
        if figures:
            whole = {"extends": hardware} if isinstance(hardware, str) else hardware
            hardware = {**whole, "chip": {**whole.get("chip", {}), **figures}}
        return {"hardware": hardware}

    def planned(self, constants: Constants = ()) -> float:
        """Tpsim's seconds."""
        return _planned(self.row["id"], constants)[0]

    @property
    def late_s(self) -> float:
        """Of these, those of stragglers."""
        return _planned(self.row["id"], ())[1]


@cache
def _planned(name: str, constants: Constants) -> tuple[float, float]:
    (run,) = (run for run in every() if run.row["id"] == name)
    step = tpsim.plan(run.scenario(constants)).step
    return float(step.time_s), float(step.stragglers_s)


@cache
def every() -> tuple[Run, ...]:
    """All of them."""
    return tuple(map(Run, json.loads((DATA / "measured_steps.json").read_text())["rows"]))


@cache
def runs() -> tuple[Run, ...]:
    """All that are scored."""
    sets, left_out = chosen()["sets"], chosen()["left_out"]
    return tuple(run for run in every() if run.row["set"] in sets and run.row["id"] not in left_out)


def unscored() -> tuple[Run, ...]:
    """All others."""
    return tuple(run for run in every() if run not in runs())


def by_set() -> Mapping[str, list[Run]]:
    """The runs of each set."""
    found: dict[str, list[Run]] = {name: [] for name in chosen()["sets"]}
    for run in runs():
        found[run.row["set"]].append(run)
    return found
