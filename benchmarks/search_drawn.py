"""Random spaces: what a search says of their layouts, held against plans, until time is over.

    python benchmarks/search_drawn.py [SEED [SECONDS]]

A space is a random model (dense, experts, latents, windows, several kinds of layers) on a random machine under a random
practice, with a few values of every part of a layout. Of each, some layouts are planned: neither of the two bounds may
lie above the plan, the nearer one never below the rougher, bytes are the plan's, and no more are known to stand there
before a step is traced than do. Of every third space, if it is small, all are planned: none is refused, as many fit,
and by every measure those listed are the best. Ends with 1 where that is not so, the scenario printed as it can be
asked again.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from tpsim.answers.plan import priced
from tpsim.answers.ranking import weigh
from tpsim.answers.search import search
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.space import spaces
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors
from tpsim.question.memo import Memo
from tpsim.question.prices import sizes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.answers.plan import PlanResult
    from tpsim.answers.search import SearchResult
    from tpsim.layouts.candidates import Evaluation
    from tpsim.layouts.layout import Layout
    from tpsim.layouts.space import Space

EACH, SMALL, TOP, EQUAL = 8, 60, 5, 1e-9
"""Layouts planned of a space; those of one that is planned whole; listed of it; what is equal."""

MACHINES = (
    *("dgx-h100", "dgx-a100", "dgx-b200", "hgx-h20", "mi300x", "gb200-nvl72", "a3mega-h100", "superpod-h100"),
    *("gb200-hosts", "l40s-pcie", "alps-gh200", "ndv4-a100", "trn2", "rtx-pro-6000"),
    *("tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x"),
)
CHIPS = (4, 6, 8, 10, 12, 16, 18, 24, 32, 48, 64, 128)
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2")

OVERLAP: Mapping[str, Sequence[Any]] = {
    "tensor": ("none", "beside", "split", "zero3"),
    "gradients": ("none", "beside", "zero3"),
    "weights": ("none", "beside", "zero3", "forward"),
    "stages": ("auto", "none", "steady", "beside"),
}
SWITCHES: Mapping[str, Sequence[Any]] = {
    "cotangents": ("once", "per_use"),
    "regather": (True, False),
    "reshard_after_forward": (True, False, "layers"),
    "gradients": ("auto", "per_step", "per_microbatch"),
    "zero1": ("scatter", "all_reduce"),
    "cross_entropy": ("parallel", "gathered"),
    "qkv": ("separate", "fused", "fused_kv"),
    "coalesce": (True, False),
    "copies": ("fused", "added", "cast", "flat", "each"),
    "attention": ("fused", "plain"),
    "context": ("gather", "ring"),
    "order": ("contiguous", "zigzag", "striped"),
    "latents": ("block", "stream"),
    "padding": ("flat", "rows", "none"),
    "clip": ("norm", "deferred", "none"),
    "ahead": ({"layers": 0}, {"layers": 3}, {"elements": 10**6}, {"since": "message"}, {"since": "step"}),
    "bucket": ("layer", "step", {"elements": 10**6, "first_chunk": True}, {"elements": 10**6, "per_rank": 500_000}),
}
ROWS: Mapping[str, Sequence[Any]] = {
    "gates": ("experts", "tokens"),
    "overlap": ("none", "beside"),
    "dispatch": ("flat", "rank", "node", "node_rank"),
    "counts": ("none", "exchange"),
    "dtype": ("fp8", "fp8_128"),
}


@dataclass
class Drawn:
    """A space as it is asked for, and what it has been found to be; files of its own lie in `folder`."""

    draws: random.Random
    folder: Path
    scenario: dict[str, Any] = field(default_factory=dict)
    vary: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        one, experts = self.draws.choice, self.draws.random() < 0.5  # noqa: PLR2004 - every other one
        model = self._model(experts=experts)
        chips, batch, seq = one(CHIPS), one((8, 12, 16, 24, 30, 32, 48, 64)), one((512, 1024, 1536, 2048, 4096))
        routing = self._some({"load": ("balanced", "uniform", 1.3), "drop": ("none", 1.25)}, 0.3) if experts else {}
        self.scenario = {
            "tpsim": "scenario/1",
            "model": self._file("model", model),
            "chips": chips,
            "hardware": self._machine(),
            "practice": {**self._practice(), **({"rows": self._some(ROWS, 0.2)} if experts else {})},
            "workload": {"global_batch": batch, "seq": seq, "grad_dtype": one(("bf16", "f32"))},
            "assume": {"price_per_chip_hour": 2.5, "kernel_launch": one(("0 us", "0 us", "10 us"))},
            "cost_model": one(("additive",) * 9 + ("book",)),
        }
        self.scenario["assume"] |= {"routing": routing} if routing else {}
        tp = one([n for n in divisors(chips) if n <= model["blocks"]["att"].get("kv_heads", 8)])
        layers = sum(run["repeat"] for run in model["layers"])
        pp = one([n for n in divisors(chips // tp) if n <= min(8, layers)])
        cp = one([1, 1, *divisors(chips // (tp * pp))])
        shards = chips // (tp * pp * cp)
        sizes = {"tp": tp, "pp": pp, "cp": cp, **({"ep": one(divisors(shards))} if experts else {})}
        self.vary = [f"{name}={self._listed([size, *([one(divisors(chips))] * 2)])}" for name, size in sizes.items()]
        parts = divisors(batch // shards or 1)
        choices = {"microbatches": parts, "zero": range(4), "schedule": SCHEDULES, "recompute": RECOMPUTED}
        self.vary += [f"{name}={self._listed(self.draws.choices(of, k=2))}" for name, of in choices.items()]  # type: ignore[arg-type]
        split = [layers // pp + (rank < layers % pp) for rank in range(pp)]
        self.vary += one(([], ["shards"]))  # ZeRO over a part of the data shards
        self.vary += one(([], [], [], ["layers=balanced,nearly-even"], [f"layers=nearly-even,{split[::-1]}"]))

    def _listed(self, values: Iterable[Any]) -> str:
        return ",".join(map(str, dict.fromkeys(values)))

    def _some(self, switches: Mapping[str, Sequence[Any]], share: float) -> dict[str, Any]:
        """Some of them, each with a value."""
        return {name: self.draws.choice(of) for name, of in switches.items() if self.draws.random() < share}

    def _practice(self) -> dict[str, Any]:
        base = self.draws.choice(("megatron", "fsdp2", "deepspeed", "xla", "ideal"))
        return {"base": base, "overlap": self._some(OVERLAP, 0.4), **self._some(SWITCHES, 0.12)}

    def _file(self, name: str, content: Mapping[str, Any]) -> str:
        path = self.folder / f"{name}-{self.draws.randrange(10**9)}.yaml"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def _model(self, *, experts: bool) -> dict[str, Any]:
        one = self.draws.choice
        hidden, heads, layers = one((512, 1024, 1536, 4096)), one((8, 12, 16, 32)), one((2, 4, 5, 6, 7, 8, 11, 12, 13))
        usual = {"attention": "gqa", "heads": heads, "kv_heads": one((heads, heads // 4)), "head_dim": one((64, 128))}
        window = {**usual, "mask": one(("window", "chunk")), "window": 512}
        latent = {"attention": "mla", "heads": heads, "kv_rank": 128, "query_rank": 256}
        blocks: dict[str, Any] = {
            "att": one((usual, usual, window, {**latent, "nope": 64, "rope": 32, "value": 64})),
            "mlp": {"ffn": "mlp", "kind": one(("gelu", "swiglu")), "hidden": one((2, 3, 4)) * hidden},
            "moe": {"ffn": "moe", "experts": one((4, 8, 16, 32)), "top": one((1, 2, 4)), "hidden": hidden // 2},
        }
        first = one((0, 1)) if experts else layers
        stack = [{"repeat": first, "of": ["att", "mlp"]}, {"repeat": layers - first, "of": ["att", "moe"]}]
        return {
            "tpsim": "model/2",
            "name": "drawn",
            "hidden": hidden,
            "vocab": one((8192, 32000, 50304)),
            "blocks": blocks,
            "layers": [run for run in stack if run["repeat"]],
            "tie_embeddings": one((True, False, False)),
            **one(({}, {}, {"norms": "both"}, {"norms": "post"}, {"parallel_residual": True})),
        }

    def _machine(self) -> Any:
        """A shipped one, mostly with more memory, or one of two or three levels; of some, ranks wait for long."""
        one = self.draws.choice
        chip: dict[str, Any] = {"memory": {"capacity": one(("40 GB", "2 TB", "2 TB"))}}
        chip |= one(({}, {"interruption": "1 ms"}))
        if self.draws.random() < 0.7:  # noqa: PLR2004 - most
            return {"extends": one(MACHINES), "chip": chip}
        chip |= {"peak": {"bf16": "300 TFLOP/s"}, "memory": {**chip["memory"], "bandwidth": "2 TB/s"}}
        levels = []
        for name, shape in zip("abc", [*one(([8], [4, 4], [2, 8])), 0], strict=False):
            link = {"bandwidth": f"{one((5, 50, 400))} GB/s", "hop_latency": f"{one((1, 10, 200))} us"}
            levels.append({"name": name, "topology": "switch", "launch": "3 us", "link": link})
            levels[-1] |= {"shape": [shape]} if shape else {}
        levels[0]["topology"] = one(("switch", "ring", "mesh", "torus"))
        return self._file("machine", {"tpsim": "hardware/1", "name": "drawn", "chip": chip, "levels": levels})


RECOMPUTED = ("none", "selective", "full")


# What is held ------------------------------------------------------------------------------------------------------


def planned(space: Space, layout: Layout, memo: Memo) -> PlanResult | None:
    """The plan; None where its stages deadlock, which a search may not know before."""
    try:
        return priced(space.question(layout, memo), memo)
    except InputError as error:
        if error.problems[0].slug != "deadlock":
            raise
    return None


def bounds(found: Evaluation, draws: random.Random, memo: Memo, counts: Counter[str]) -> Iterable[str]:
    """What is wrong with bounds and bytes of some layouts."""
    families = [family for family in found.families if family.fitting.any()]
    for family in draws.sample(families, min(EACH, len(families))):
        at = int(draws.choice(np.flatnonzero(family.fitting).tolist()))
        told = [float(family.step_s[at])]
        family.bound()
        told.append(float(family.step_s[at]))
        layout = family.group.layout(int(family.cells[at]), family.order)
        if plan := planned(family.space, layout, memo):
            counts["layouts"] += 1
            told.append(float(plan.step.time_s))
            if any(less > more * (1 + EQUAL) for less, more in pairwise(told)):
                yield f"bounds and step {told} of {layout}"
            if abs(float(plan.memory.peak_bytes) / float(family.peak_bytes[at]) - 1) > EQUAL:
                yield f"{family.peak_bytes[at]} bytes are {plan.memory.peak_bytes} of {layout}"
            known = memo.states(plan.question), memo.lowered(plan.question).standing
            least, stands = (standing.memory(sizes_of(plan.question)).static_bytes for standing in known)
            if least > stands * (1 + EQUAL):
                yield f"{stands} bytes stand there, and at least {least} of {layout}"


def whole(drawn: Drawn, found: Evaluation, memo: Memo, counts: Counter[str]) -> Iterable[str]:
    """What is wrong with the best of a space, each of whose layouts is planned."""
    for family in found.families:
        family.hold()
    plans = [(one, planned(one.space, one.layout, memo)) for one in found.candidates]
    fit = [(one, plan) for one, plan in plans if plan and plan.memory.room_bytes >= 0]
    counts["planned whole"] += 1
    if [one for one, _ in fit] != [one for one, plan in plans if plan and one.room_bytes >= 0]:
        yield "others fit than is said"
    step = [float(plan.step.time_s) for _, plan in fit]
    peak = [float(plan.memory.peak_bytes) for _, plan in fit]
    rate = [s / plan.tokens for s, (_, plan) in zip(step, fit, strict=True)]
    money = [plan.run.price_per_step / plan.tokens for _, plan in fit]
    for by, figures in {"step": step, "memory": peak, "tokens_per_s": rate, "money": money}.items():
        result: SearchResult = search(drawn.scenario, vary=drawn.vary, by=by, top=TOP, plans=10**6)  # type: ignore[arg-type]
        said = [one.value(by) for one in result.ranked.best]  # type: ignore[arg-type]
        best = sorted(figures)[:TOP]
        if len(said) != len(best) or any(abs(a - b) > EQUAL * b for a, b in zip(said, best, strict=True)):
            yield f"the best by {by} are {best}, not {said}"


def held(drawn: Drawn, draws: random.Random, counts: Counter[str]) -> Iterable[str]:
    """What is wrong with a space."""
    memo = Memo()
    try:
        found = evaluate(spaces(drawn.scenario, flags={}, overrides=(), vary=drawn.vary, memo=memo), memo, weigh)
    except InputError as error:
        counts[f"refused: {error.problems[0].slug}"] += 1
        return
    counts["spaces"] += 1
    yield from bounds(found, draws, memo, counts)
    if 0 < found.legal <= SMALL and not counts["spaces"] % 3:
        yield from whole(drawn, found, memo, counts)


def main(seed: str = "", seconds: str = "60") -> int:
    """Draw until time is over; 1 where something is wrong."""
    number = int(seed or random.SystemRandom().randrange(10**6))
    sys.stdout.write(f"seed {number}\n")
    draws, counts, wrong, began = random.Random(number), Counter[str](), 0, time.monotonic()  # noqa: S311 - no secret
    while time.monotonic() - began < float(seconds):
        with TemporaryDirectory() as folder:
            drawn = Drawn(draws, Path(folder))
            for what in held(drawn, draws, counts):
                wrong += 1
                files = "\n".join(path.read_text() for path in sorted(Path(folder).iterdir()))
                sys.stdout.write(f"{what}\n{json.dumps(drawn.scenario)}\n{drawn.vary}\n{files}\n")
    sys.stdout.write(", ".join(f"{many:,} {what}" for what, many in counts.most_common()) + f"; {wrong} wrong\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
