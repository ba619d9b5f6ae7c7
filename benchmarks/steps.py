"""Scores predicted seconds of whole steps against published ones of tests/data, and writes docs/steps.md.

    python benchmarks/steps.py            writes the page
    python benchmarks/steps.py --check    says whether the page is what a fresh run writes

How each run is asked for, and which are left out, is fixed in tests/data/steps_set.yaml. A few minutes.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from page import ROOT, grid, written
from steps_bands import bands, covered
from steps_fit import ampere, by_constants, fitted, left_out, shipped
from steps_runs import Run, by_set, chosen, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PAGE = ROOT / "docs" / "steps.md"
EVIDENCE = ROOT / "hardware" / "evidence" / "steps.yaml"

Error = tuple[float, float, float, float]


def score(several: Sequence[Run], seconds: Callable[[Run], float]) -> Error:
    """Mean, median and 90th percentile of the errors' size, and the mean with its sign, in percent."""
    errors = 100 * np.array([seconds(run) / run.measured - 1 for run in several])
    size = np.abs(errors)
    return float(size.mean()), float(np.median(size)), float(np.quantile(size, 0.9)), float(errors.mean())


def one_constant(several: Sequence[Run]) -> float:
    """Mean error of a model with one rate of FLOPs and nothing else, the rate being that of the set itself, percent."""
    rate = np.exp(np.mean([np.log(run.flops / run.measured) for run in several]))
    return score(several, lambda run: run.flops / rate)[0]


def after(several: Sequence[Run], known: int, seconds: Callable[[Run], float]) -> float:
    """Mean error where the level of a set is corrected by `known` of its runs: mean over draws of them, percent.

    Of more than one the median counts, and four fifths of it: one noisy run is not believed whole.
    """
    ratios = np.log([run.measured / seconds(run) for run in several])
    draws = np.random.default_rng(0)
    found = []
    for first in range(len(several)):
        others = [place for place in range(len(several)) if place != first]
        drawn = [first, *draws.choice(others, known - 1, replace=False)]
        level = np.median(ratios[drawn]) * (1 if known == 1 else BELIEVED)
        found.append(np.abs(np.expm1(level - np.delete(ratios, drawn))).mean())
    return 100 * float(np.mean(found))


BELIEVED = 0.8


DELTAS: Sequence[tuple[str, str, str]] = (
    ("korthikanti: 530B, one copy -> eight", "korthikanti_2022-006", "korthikanti_2022-009"),
    *(
        (
            f"korthikanti: {size}, full recompute -> sequence parallelism and selective",
            f"korthikanti_2022-{a}",
            f"korthikanti_2022-{b}",
        )
        for size, a, b in (("22B", "001", "002"), ("175B", "003", "004"), ("530B", "005", "006"), ("1T", "007", "008"))
    ),
    ("bigscience: 8 -> 80 GPUs, by stages", "bigscience_bloom_prequel-095", "bigscience_bloom_prequel-096"),
    ("bigscience: 80 -> 160 GPUs, by copies", "bigscience_bloom_prequel-096", "bigscience_bloom_prequel-097"),
    ("bigscience: batch 512 -> 1536", "bigscience_bloom_prequel-073", "bigscience_bloom_prequel-075"),
    *(
        (f"llm-foundry: H100, {size}, 128 -> {chips} GPUs", f"mosaicml_llm_foundry-{a}", f"mosaicml_llm_foundry-{b}")
        for size, chips, a, b in (
            ("70B", 256, "003", "002"),
            ("70B", 512, "003", "001"),
            ("7B", 512, "012", "010"),
            ("1B", 512, "018", "016"),
        )
    ),
    *(
        (f"maxtext: v5e, {size}, 1 -> 32 slices", f"maxtext_v5e_readme-{a}", f"maxtext_v5e_readme-{b}")
        for size, a, b in (("16B", "001", "021"), ("32B", "002", "022"), ("64B", "003", "023"), ("128B", "004", "024"))
    ),
    ("narayanan: 175B, 384 -> 1536 GPUs", "narayanan_sc21_t2-007", "narayanan_sc21_t2-009"),
    ("narayanan: 530B, 560 -> 2240 GPUs", "narayanan_sc21_t2-010", "narayanan_sc21_t2-012"),
)
"""What changed, and the runs before and behind it: what a model of communication is for."""

NEAR = 1.5
"""A change is predicted well if it is within this factor of the measured one."""


def changes() -> list[tuple[str, float, float]]:
    """Of each of `DELTAS` the measured and the predicted change, percent."""
    named = {run.row["id"]: run for run in runs()}
    return [
        (what, 100 * (b.measured / a.measured - 1), 100 * (b.planned() / a.planned() - 1))
        for what, a, b in ((what, named[first], named[second]) for what, first, second in DELTAS)
    ]


def sweeps() -> Iterator[tuple[str, list[Run]]]:
    """Runs of one model on as many chips, which only their layout tells apart."""
    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs():
        name, model = run.row["set"], tuple(run.row["model"].values())
        if name == "vtrain" or (name == "bigscience" and run.row.get("day", "") >= "02-25"):
            groups[name, model, run.devices].append(run)
    for (name, model, chips), several in groups.items():
        if len(several) >= FEWEST:
            yield f"{name}: hidden {model[0]}, {model[1]} layers, {chips} chips", several


FEWEST = 5
"""A sweep has so many runs."""


def ranked(several: Sequence[Run]) -> tuple[float, float]:
    """Kendall's tau of seconds per sequence, and by how many percent the one predicted best is slower than the best."""
    pairs = list(combinations([(run.planned() / run.sequences, run.measured / run.sequences) for run in several], 2))
    signs = [np.sign((a[0] - b[0]) * (a[1] - b[1])) for a, b in pairs]
    best = min(several, key=lambda run: run.planned() / run.sequences)
    least = min(run.measured / run.sequences for run in several)
    return float(np.mean(signs)), 100 * (best.measured / best.sequences / least - 1)


HEAD = """\
# How near steps come to measured ones

Written by `python benchmarks/steps.py`; do not edit. Errors are predicted over measured seconds of a step less 1, in
percent: mean, median and 90th percentile of their size, and the mean with its sign as bias.

The runs are those of `tests/data/measured_steps.json`, with their sources in `tests/data/steps_set.yaml`: published, of
dense models, all that decides the seconds known, or said there. Everything but the constants below is what a scenario
would have: profiles as shipped, a framework's practice by its name, what that stack did otherwise.
"""

COLUMNS = """\
- **as shipped**: the constants of the profiles, which were fitted to all of these sets: no forecast.
- **left out**: with the constants that the other sets of the chip's generation come to. Hopper has no other set: there
  it is what Ampere's constants say, the forecast for a generation of which no run is known.
- **one run, three runs**: left out, and then the level of the set corrected by so many of its runs, mean over draws.
- **one constant**: a model that knows one rate of FLOPs and nothing else, the rate being the set's own.
"""

CONSTANTS = """\
What a chip's products, memory and fused attention reach of their peaks, and how long a framework's host takes for a
launch: least squares of logarithms over the runs of a generation, its sets weighing alike. Generations of few sets are
held to Ampere's constants: 15 % off weighs as much as an error of 5 % of a set. Launches, of Megatron-DeepSpeed alone,
are held weakly to the 22 us of collectives called from a framework: BigScience's large models say nothing of them, so
that vTrain's small ones, left out, are predicted too fast. Range: over one set left out.
"""


CHANGES = (
    "What changes, in percent: of {all} changes {right} have the right sign, {near} are within a factor of {factor:g}."
)

SWEEPS = """\
Runs of one model on as many chips. Tau is Kendall's, of seconds per sequence; regret: by how many percent the layout
that is predicted fastest is slower than the one that was.
"""


BANDS = """\
Measured over predicted seconds by constants that were not fitted to the set: between the tenth and the ninetieth of a
hundred, sets weighing alike. A plan has the band of its kind beside its seconds (`hardware/evidence/steps.yaml`); chips
of a generation whose constants rest on one stack or none have the widest, which Ampere's constants show on Hopper and
TPU v5.
"""

COVERED = """\
How many runs of a set lie in the band that the other sets of its kind give, which should be 80 %:
"""


def cells(error: Error) -> list[str]:
    """Of a table."""
    mean, median, high, bias = error
    return [f"{mean:.1f}", f"{median:.1f} / {high:.1f}", f"{bias:+.1f}"]


def scores() -> Iterator[list[str]]:
    """A row of every set, and the mean over sets."""
    means = []
    for name, several in by_set().items():
        constants = left_out(name)
        forecast = by_constants(ampere() if constants is None else constants)
        outside = score(several, forecast)
        known = [after(several, many, forecast) for many in (1, 3)]
        alone = one_constant(several)
        means.append((score(several, Run.planned)[0], outside[0], *known, alone))
        own, late = cells(score(several, Run.planned)), cells(outside)
        yield [name, str(len(several)), *own, *late, *(f"{one:.1f}" for one in (*known, alone))]
    own, outside_, *rest = (f"{float(np.mean(column)):.1f}" for column in zip(*means, strict=True))
    yield ["mean over sets", str(len(runs())), own, "", "", outside_, "", "", *rest]


def constants() -> Iterator[list[str]]:
    """What each generation comes to, and the range with a set left out."""
    for generation in dict.fromkeys(one["generation"] for one in chosen()["sets"].values()):
        names = [name for name, one in chosen()["sets"].items() if one["generation"] == generation]
        whole = fitted(tuple(run for run in runs() if run.asked["generation"] == generation))
        without = [dict(found) for name in names if (found := left_out(name))]
        for name, value in whole:
            others = [one[name] for one in without if name in one]
            shown = f"{min(others):g} to {max(others):g}" if others else "no other set"
            own = {shipped(one).get(name) for one in names} - {None}
            yield [generation, name, " ".join(f"{one:g}" for one in own), f"{value:g}", shown]


def kinds() -> Iterator[list[str]]:
    """A row of every band."""
    for one in bands():
        words = (
            f"{one['generation']}, {one['nodes']} node{'s' * (one['nodes'] == 'many')}" if "nodes" in one else "others"
        )
        yield [words, str(one["runs"]), str(one["sets"]), f"{one['low']:g}", f"{one['high']:g}"]


def evidence() -> str:
    """The bands as plans read them."""
    rows = ["{" + ", ".join(f"{name}: {value}" for name, value in one.items()) + "}" for one in bands()]
    head = "# Written by benchmarks/steps.py; where the figures are from says docs/steps.md."
    return "\n".join([head, "tpsim: evidence/1", "steps:", *(f"  - {row}" for row in rows)]) + "\n"


def page() -> str:
    """The whole page."""
    own = ["mean", "median / p90", "bias"]
    heads = [f"{column}: {head}" for column in ("as shipped", "left out") for head in own]
    found = changes()
    right = sum(np.sign(seen) == np.sign(said) for _, seen, said in found)
    near = sum(np.sign(seen) == np.sign(said) and 1 / NEAR <= said / seen <= NEAR for _, seen, said in found)
    several = [[what, str(len(group)), *(f"{one:.2f}" for one in ranked(group))] for what, group in sweeps()]
    each = [
        [
            run.row["id"],
            " ".join(f"{axis} {size}" for axis, size in run.row["mesh"].items()),
            f"{run.row['microbatches']} x {run.row['each']} x {run.row['seq']}",
            f"{run.measured:.4g}",
            f"{run.planned():.4g}",
            f"{100 * (run.planned() / run.measured - 1):+.1f}",
        ]
        for run in runs()
    ]
    parts = [
        HEAD.rstrip(),
        "## By set",
        COLUMNS.rstrip(),
        grid(["set", "runs", *heads, "one run", "three runs", "one constant"], scores()),
        "## Constants",
        CONSTANTS.rstrip(),
        grid(["generation", "constant", "as shipped", "fitted", "range"], constants()),
        "## Bands",
        BANDS.rstrip(),
        grid(["kind", "runs", "sets", "low", "high"], kinds()),
        COVERED.rstrip(),
        grid(["kind", "runs", "inside, %", "95 % interval"], covered()),
        "## Changes",
        CHANGES.format(all=len(found), right=right, near=near, factor=NEAR),
        grid(["change", "measured", "predicted"], [[what, f"{a:+.1f}", f"{b:+.1f}"] for what, a, b in found]),
        "## Sweeps",
        SWEEPS.rstrip(),
        grid(["sweep", "runs", "tau", "regret, %"], several),
        "## Runs",
        grid(["run", "mesh", "microbatches x sequences x tokens", "measured, s", "predicted, s", "error, %"], each),
        *(f"Left out: {name}: {why}." for name, why in chosen()["left_out"].items()),
    ]
    return "\n\n".join(parts) + "\n"


def main(*arguments: str) -> int:
    """Write the page, or compare it."""
    return max(written(PAGE, page(), arguments), written(EVIDENCE, evidence(), arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
