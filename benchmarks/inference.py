"""Holds plans of inference against published latencies, and says how many steps of decoding an array prices per second.

    python benchmarks/inference.py [--check]

Writes docs/inference_accuracy.md, or with --check compares it; seconds per step priced go to the terminal alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tpsim
from page import ROOT, grid, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.answers.plan import PlanResult

PAGE = ROOT / "docs" / "inference_accuracy.md"
MEASURED: Mapping[str, Any] = json.loads((Path(ROOT) / "tests" / "data" / "measured_inference.json").read_text())

HEAD = """# Inference: plans beside published latencies

Written by `python benchmarks/inference.py`; do not edit. Nothing was fitted to these runs: constants are those of the
machines' profiles. Errors are predicted over measured time less 1, in percent.
"""


class Run(NamedTuple):
    """A reply as it was measured: sizes, seconds of prompt and reply, and what a plan and a baseline say."""

    model: str
    tp: int
    stages: int
    batch: int
    prompt: int
    output: int
    measured_s: float
    planned_s: float
    bare_s: float


def scenario(name: str, tp: int, stages: int, work: Mapping[str, int]) -> dict[str, Any]:
    """What FasterTransformer ran: a GPT over the chips of DGX A100 nodes, in 16 bits, launched without a graph."""
    sizes = MEASURED["fastertransformer"]["models"][name]
    model = {
        "extends": "gpt3-175b",
        "max_positions": 4096,
        "params": None,
        "vocab_padded": sizes["vocab"],
        **{key: sizes[key] for key in ("hidden", "layers", "heads", "head_dim", "vocab")},
        "kv_heads": sizes["heads"],
        "ffn": {"kind": "gelu", "hidden": sizes["ffn_hidden"]},
    }
    return {
        "tpsim": "scenario/1",
        "name": f"{name} tp {tp}",
        "model": model,
        "hardware": "dgx-a100",
        "mesh": {"pipe": stages, "tensor": tp},
        "layout": {"tp": "tensor", "pp": "pipe"},
        "collectives": {"launch": "threads"},
        "workload": {"kind": "serve", "dtype": "bf16", **work},
    }


def bare_s(plan: PlanResult, output: int) -> float:
    """Seconds of weights and cache by the datasheet's bandwidth, and of the prompt's FLOPs by its peak: no more."""
    chip, prompt, stages = plan.question.machine.chip, plan.prefill, len(plan.each)
    read = stages * float(plan.memory.static_bytes) / chip.memory.bandwidth.value
    work = float(sum(rank.flops for rank in prompt.works)) / chip.peak["bf16"].value if prompt else 0
    return max(work, read) + (output - 1) * read


def together(batch: int, tokens: int, stages: int) -> int:
    """Sequences that FasterTransformer sends through stages as one: nccl_utils.cc, getLocalBatchSize."""
    size = batch // stages if batch % stages == 0 else batch
    while stages > 1 and size * tokens > MOST_TOKENS and size % 2 == 0:
        size //= 2
    return size


MOST_TOKENS = 1024
"""Of them, as that function has it; a step of decoding has fewer in every run of the table."""


def runs(models: Sequence[str] = (), replies: Sequence[tuple[int, int]] = ()) -> list[Run]:
    """The measured replies of these models and of these lengths (prompt, output), all of them unless stated."""
    found = []
    for model, tp, stages, batch, prompt, output, milliseconds in MEASURED["fastertransformer"]["rows"]:
        if (models and model not in models) or (replies and (prompt, output) not in replies):
            continue
        plan = tpsim.plan(scenario(model, tp, stages, {"batch": batch, "prompt": prompt, "output": output}))
        planned = float(plan.serve.reply_s or 0) if plan.serve else 0.0
        if (parts := batch // together(batch, prompt, stages)) > 1:
            read = {"kind": "prefill", "batch": batch, "prompt": prompt, "microbatches": parts}
            in_parts = tpsim.plan(scenario(model, tp, stages, read))
            planned += float(in_parts.step.ended_s) - float(plan.prefill.step.ended_s)
        sizes = (model, tp, stages, batch, prompt, output)
        found.append(Run(*sizes, milliseconds / 1e3, planned, bare_s(plan, output)))
    return found


def ratios(several: Sequence[Run]) -> dict[tuple[str, int, int], list[float]]:
    """Of replies that differ in tp alone, how far the ratio of their seconds is off, by model and both tp."""
    alike: dict[Any, dict[int, Run]] = defaultdict(dict)
    for run in several:
        alike[run.model, run.batch, run.prompt, run.output][run.tp] = run
    errors: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for each in alike.values():
        for few, many in pairwise(sorted(each)):
            one, other = each[few], each[many]
            planned, measured = other.planned_s / one.planned_s, other.measured_s / one.measured_s
            errors[one.model, few, many].append(planned / measured - 1)
    return errors


def levels(several: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Median of the absolute errors and of the errors: of plans, and with one constant fitted to these very runs."""
    planned = [run.planned_s / run.measured_s for run in several]
    bare = [run.bare_s / run.measured_s for run in several]
    sides = {
        "plan, nothing fitted": planned,
        "plan times one constant": [one / median(planned) for one in planned],
        "datasheet's bytes and FLOPs times one constant": [one / median(bare) for one in bare],
    }
    return {name: (median(abs(one - 1) for one in each), median(each) - 1) for name, each in sides.items()}


FEW = 32
"""The batch up to which most prompts of the table go through stages as one."""


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:+.1f}"


def fastertransformer() -> Iterator[str]:
    """The replies of FasterTransformer."""
    every_run = runs()
    several, staged = ([run for run in every_run if (run.stages > 1) == asked] for asked in (False, True))
    by_pair = ratios(several)
    every = [error for errors in by_pair.values() for error in errors]
    yield "## FasterTransformer on A100"
    yield (
        f"{MEASURED['fastertransformer']['source']}. {len(several)} replies over one axis, {len(staged)} in stages. A "
        "plan reads the prompts of a batch at once, in stages in the parts that FasterTransformer makes of them, and "
        "decodes a step for each token behind the first."
    )
    yield "How much faster twice the chips are (same model, batch and lengths):"
    rows = [
        (
            model,
            f"{few} to {many}",
            f"{len(errors)}",
            percent(median(errors)),
            percent(min(errors)),
            percent(max(errors)),
        )
        for (model, few, many), errors in by_pair.items()
    ]
    yield grid(("model", "tp", "pairs", "median", "least", "most"), rows)
    yield f"Median of the absolute errors of all {len(every)} ratios: {100 * median(map(abs, every)):.1f} %."
    yield "Seconds of the whole reply:"
    said = levels(several)
    yield grid(
        ("", "median absolute", "median"),
        [(name, f"{100 * size:.1f}", percent(bias)) for name, (size, bias) in said.items()],
    )
    small, large = (levels([run for run in staged if (run.batch <= FEW) == few]) for few in (True, False))
    first, second = (next(iter(one.values())) for one in (small, large))
    yield (
        f"In stages (tp 8, 3 stages): median error {percent(first[1])} up to batch {FEW}, {percent(second[1])} beyond, "
        "where prompts go through stages in parts of at most 1,024 tokens (nccl_utils.cc, getLocalBatchSize), as in "
        "these plans; steps of decoding go as one."
    )
    yield (
        "All of the bias is on one side, and grows with tp: what hosts of 2021 take to launch kernels is not in a plan "
        "that states no `assume.kernel_launch`."
    )


def pope() -> Iterator[str]:
    """The five timed rows of PaLM."""
    yield "## PaLM 540B on 64 TPU v4"
    yield (
        f"{MEASURED['pope']['source']}. The paper lays weights over both of their dims and, for the large prompt, "
        "gathers them; a plan here splits one dim of each over all 64 chips (tp 64) and so sends more per token, or "
        "less. No row is the paper's own layout: these are figures to look at, not a score."
    )
    rows = []
    for phase, batch, tokens, output, weights, seconds, ran in MEASURED["pope"]["rows"]:
        work = {"prompt": tokens} if phase == "prefill" else {"context": tokens + output // 2}
        work |= {"kind": phase, "batch": batch, "dtype": "bf16", "param_dtype": weights}
        plan = tpsim.plan(palm(work, "heads" if "heads" in ran else "batch"))
        found = float(plan.step.time_s)
        lost = f"{100 * float(plan.step.exposed_s) / found:.0f} %"
        cells = (phase, f"{batch}", weights, ran, f"{seconds:.4g} s", f"{found:.4g} s", percent(found / seconds - 1))
        rows.append((*cells, lost))
    yield grid(("step", "batch", "weights", "the paper's layout", "measured", "tp 64", "error", "communication"), rows)


def palm(work: Mapping[str, Any], by: str) -> dict[str, Any]:
    """One step of PaLM on a cube of TPU v4, every weight over all chips."""
    model = {
        "extends": "llama-3-8b",
        "hidden": 18432,
        "layers": 118,
        "heads": 64,
        "kv_heads": 1,
        "head_dim": 256,
        "ffn": {"kind": "swiglu", "hidden": 73728},
        "vocab": 256000,
        "vocab_padded": 256000,
        "params": None,
        "parallel_residual": True,
        "shared_norm": True,
        "tie_embeddings": True,
    }
    return {
        "tpsim": "scenario/1",
        "name": "palm",
        "model": model,
        "hardware": "tpu-v4",
        "practice": "xla",
        "mesh": {"x": 4, "y": 4, "z": 4},
        "layout": {"tp": ["x", "y", "z"], "cache": by},
        "workload": work,
    }


def page() -> str:
    """The whole page."""
    return "\n\n".join([HEAD.rstrip(), *fastertransformer(), *pope()]) + "\n"


def speed() -> str:
    """Steps of decoding that one call prices, and its seconds: the best of three."""
    batches, contexts = np.arange(1, 41), np.linspace(256, 8192, 25).astype(int)
    asked = ["workload={kind: decode, batch: 1, context: 256, dtype: bf16}"]
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        found = tpsim.grid("llama3-70b-h100-decode", batches=batches, contexts=contexts, overrides=asked)
        best = min(best, time.perf_counter() - started)
    return f"{found.step_s.size:,} steps of decoding priced in {best:.2f} s\n"


def main(*arguments: str) -> int:
    """Say how fast arrays are, then write the page, or compare it."""
    sys.stdout.write(speed())
    return written(PAGE, page(), arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
