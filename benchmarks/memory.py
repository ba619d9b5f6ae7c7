"""Scores predicted peaks of memory against the published measurements of tests/data, and writes docs/memory.md.

    python benchmarks/memory.py            writes the page
    python benchmarks/memory.py --check    says whether the page is what a fresh run writes
    python benchmarks/memory.py --left-out prints what a list comes to that each configuration is left out of

How each run is asked for, and which are left out, is fixed in tests/data/memory_set.yaml.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_more import expert_errors, expert_rows, experts, left_out, reserved_rows
from memory_runs import GIB, Run, chosen, listed, runs
from page import ROOT, grid, written
from tpsim.program.keeps import KEEPS_SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PAGE = ROOT / "docs" / "memory.md"
APART = 0.05
"""Pairs of peaks that differ by less are not ranked: reruns of one test differ by up to 2 %."""

FIGURES: Mapping[str, Callable[[Run], float]] = {
    "kernels alone": lambda run: run.peak,
    "bundle": lambda run: run.bundled,
    "its own list": lambda run: run.listed,
    "textbook": lambda run: run.textbook,
    "states alone": lambda run: run.states,
}
"""What is held against a measured peak."""


def score(several: Sequence[Run], error: Callable[[Run], float]) -> tuple[float, float, float]:
    """Median and 90th percentile of the errors' size, and mean error, in percent.

    Runs of one configuration count as one together.
    """
    twins = Counter(run.row["twin"] for run in several)
    weights = np.array([1 / twins[run.row["twin"]] for run in several])
    errors = 100 * np.array([error(run) for run in several])
    order = np.argsort(np.abs(errors))
    share = np.cumsum(weights[order]) / weights.sum()
    median, high = (float(np.abs(errors)[order][np.searchsorted(share, part - 1e-9)]) for part in (0.5, 0.9))
    return median, high, float((weights * errors).sum() / weights.sum())


def of_peak(figure: Callable[[Run], float]) -> Callable[[Run], float]:
    """How far a figure is off, as a share of the measured peak."""
    return lambda run: figure(run) / run.measured - 1


def beside_states(figure: Callable[[Run], float]) -> Callable[[Run], float]:
    """How far it is off as a share of what was measured beside states."""
    return lambda run: (figure(run) - run.measured) / (run.measured - run.states)


def ranked(several: Sequence[Run], figure: Callable[[Run], float]) -> tuple[int, int]:
    """Pairs of runs of one model and stack whose peaks differ: those in the right order, and all."""
    pairs = [
        (one, other)
        for one, other in combinations(several, 2)
        if _alike(one) == _alike(other) and abs(one.measured / other.measured - 1) > APART
    ]
    right = [(figure(one) > figure(other)) == (one.measured > other.measured) for one, other in pairs]
    return sum(right), len(right)


def _alike(run: Run) -> tuple[str, Any]:
    return run.row["stack"], {key: size for key, size in run.row["model"].items() if key != "vocab_padded"}


def stacks(several: Sequence[Run]) -> Iterator[list[str]]:
    """A row of every stack, and of all."""
    groups = {name: [run for run in several if run.row["stack"] == name] for name in chosen()["stacks"]}
    for name, own in (*groups.items(), ("all", several)):
        cells = []
        for figure in FIGURES.values():
            median, high, bias = score(own, of_peak(figure))
            cells += [f"{median:.1f} / {high:.1f}", f"{bias:+.1f}"]
        yield [name, str(len(own)), str(len({run.row["twin"] for run in own})), *cells]


def others(several: Sequence[Run]) -> Iterator[list[str]]:
    """What is beside states, and the order of pairs, by every figure."""
    for name, figure in FIGURES.items():
        median, high, bias = score(several, beside_states(figure))
        right, pairs = ranked(several, figure)
        yield [name, f"{median:.1f} / {high:.1f}", f"{bias:+.1f}", f"{right} of {pairs}"]


def each(several: Sequence[Run]) -> Iterator[list[str]]:
    """A row of every run."""
    for run in several:
        row, mesh = run.row, run.row["mesh"]
        cut = f"dp {mesh['data']}, tp {mesh['tensor']}, pp {mesh['pipe']}, {row['each']} x {row['seq']}"
        sizes = [f"{figure(run) / GIB:.2f}" for figure in FIGURES.values()]
        yield [
            row["id"],
            cut,
            str(row["rank"]),
            f"{row['gib']:.2f}",
            *sizes,
            f"{100 * of_peak(FIGURES['bundle'])(run):+.1f}",
        ]


HEAD = """\
# How near peaks of memory come to measured ones

Written by `python benchmarks/memory.py`; do not edit. Errors are predicted over measured bytes less 1, in percent:
median / 90th percentile of their size, and the mean with its sign as bias. Measured is what torch counts as allocated,
or active, at its peak, on the rank that the source tells of; not what the allocator reserves or the driver shows.

The runs are those of `tests/data/measured_memory.json`, with their sources: published, of dense models, all that
decides the bytes known, at least 2 GiB. How they are asked for stands in `tests/data/memory_set.yaml`; whoever wrote
it had seen them. Runs of one configuration count as one. Of each stack its switches are stated (gathered inputs stay or
are gathered again, dtypes, dropout, the split of layers); what kernels keep is the same for all, and nothing of it was
chosen by these runs.
Textbook is states and the formulas of Korthikanti et al. 2022, section 4, which are of GPT models with dropout.
"""

NOTES = """\
## What stacks keep besides

Every error of what kernels need alone is on one side: stacks keep more. What a stack is said to keep besides is
`practice.keeps`, a list by name (`tpsim/program/keeps.py`); "bundle" has the list that its practice brings (megatron's
own for `megatron`, none for `fsdp2`), "its own list" the one of that stack.
**Lists of stacks were found by looking at their runs**, but what follows from sources: what they reach there shows
that states, layers and microbatches in flight are counted right, and is no forecast. Read off code alone is the list of
the bundle `megatron`, by the defaults of Megatron-LM: on its runs, with experts and without, whatever these had
switched off, it comes within {megatron:.1f} % (90th percentile). What it says of nanotron's and SimuMax's runs is how
far a list may be carried: the margin of a plan's verdict, where no runs of its own stack tell more, is their 90th
percentile, {carried:.1f} %, in whole percent. The margin of a list that such runs do tell of is 5 %: `megatron` by
those, `megatron-te` by its runs with experts (largest error {largest:.1f} %), `nanotron` by each of its configurations
left out in turn (`python benchmarks/memory.py --left-out`, {left:.1f} % at most). A stack that nobody has looked at
comes out as the column of kernels alone. From sources are, too: torchtitan's losses, off its code and PyTorch's; that
Megatron-LM's own memory tests, which switch fused gradients off (--no-gradient-accumulation-fusion), have gradients of
weights of their own; and that their attention on A100 and GB200 is FlashAttention, which lays its output out anew: they
ask for what is deterministic, and with dropout cuDNN's fused attention is not on these chips (Transformer Engine 2.9,
pytorch/attention/dot_product_attention/utils.py and backends.py; 2.18, common/fused_attn/fused_attn.cpp).
"""

EXPERTS = """\
## Experts padded to their capacity

Models with experts as Megatron-LM with Transformer Engine ran them (DeepSeek-V2 and V3 of four layers, one of them
dense, experts over all ranks of a stage). No list was found by these runs: its own list is that of the dense runs of
this stack, so that they are forecasts. Error of that list: median {median:.1f} %, largest {largest:.1f} %.
"""

RESERVED = """\
## What the allocator reserves

Reserved bytes of published runs over planned peaks, with the list of the stack: what fragmentation, rounding and
communication buffers of the framework add. Of the runs of torchtitan most state nothing else; some were compiled or
in fp8, of which the plan knows nothing, so that this band is wide. How their cross entropy ran is read off the code at
their commit (`loss` in the data, with its list): eager, compiled from pull request 1033 on (in December 2024 that was
turned off), or, under tensor parallelism, PyTorch's parallel loss. It was looked up after four of 26 lay outside.
"""


def lists() -> Iterator[str]:
    """What each stack keeps besides, in words."""
    for name, one in chosen()["stacks"].items():
        lists: dict[str, str | Mapping[str, int]] = {one["ran"]: one["practice"]["keeps"]}
        lists |= {f"its loss {ran}": keeps for ran, keeps in one.get("losses", {}).items()}
        for ran, keeps in lists.items():
            yield f"- {name} ({ran}): {_told(keeps)}."
    yield f"- The bundle `megatron` as it is, by its code alone: {_told('megatron')}."


def _told(keeps: str | Mapping[str, int]) -> str:
    arrays = ", ".join(map(str, listed(keeps))) or "nothing"
    return f"{keeps}: {arrays} ({KEEPS_SOURCES[keeps]})" if isinstance(keeps, str) else arrays


LISTED = ("kernels alone", "bundle", "its own list", "states alone")

FORECAST = ("nanotron", "simumax")
"""Stacks whose practice is megatron's, and by whose runs its list was not found."""


OF_MEGATRON = ("megatron", "megatron-flash", "simumax")
"""Stacks that are Megatron-LM."""


def forecast(several: Sequence[Run]) -> tuple[float, float, float]:
    """As `score`, of what a plan says by the list of megatron about other stacks of its switches."""
    return score([run for run in several if run.row["stack"] in FORECAST], of_peak(FIGURES["bundle"]))


def of_megatron(several: Sequence[Run]) -> tuple[float, float, float]:
    """As `score`, of Megatron-LM's runs, with experts and without, by the list that is read off its code."""
    own = [*(run for run in several if run.row["stack"] in OF_MEGATRON), *experts()]
    return score(own, of_peak(FIGURES["bundle"]))


def page() -> str:
    """The whole page."""
    several, (median, largest) = runs(), expert_errors()
    heads = [head for name in FIGURES for head in (f"{name}: median / p90", "bias")]
    cut = "layout, sequences x tokens of a microbatch"
    left = [f"- {name}: {why}." for name, why in chosen()["left_out"].items()]
    parts = [
        HEAD.rstrip(),
        "## By stack",
        grid(["stack", "runs", "configurations", *heads], stacks(several)),
        "## What is beside states, and the order of layouts",
        f"Errors are shares of what was measured beside states; pairs differ by more than {100 * APART:.0f} %.",
        grid(["figure", "median / p90", "bias", "ranked right"], others(several)),
        NOTES.format(
            carried=forecast(several)[1],
            megatron=of_megatron(several)[1],
            largest=largest,
            left=max(off for *_, off in left_out("nanotron")),
        ).rstrip(),
        "\n".join(lists()),
        EXPERTS.format(median=median, largest=largest).rstrip(),
        grid(["run", "layout", "rank", "measured, GiB", *LISTED, "its own list, %"], expert_rows()),
        RESERVED.rstrip(),
        grid(["runs of", "runs", "median", "range", "inside", "outside"], reserved_rows()),
        "## Runs",
        grid(["run", cut, "rank", "measured, GiB", *FIGURES, "bundle, %"], each(several)),
        "Left out:",
        "\n".join(left),
    ]
    return "\n\n".join(parts) + "\n"


def main(*arguments: str) -> int:
    """Write the page, or compare it."""
    if arguments == ("--left-out",):
        for twin, best, off in left_out("nanotron"):
            sys.stdout.write(f"{twin} left out: {best}, at most {off:.1f} % off\n")
        return 0
    return written(PAGE, page(), arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
