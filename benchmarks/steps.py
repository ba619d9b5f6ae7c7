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
from steps_bands import KINDS, bands, covered, off
from steps_changes import NEAR, REASONED, REASONS, TRIED, changes, near
from steps_computed import NOISE, agreement, relations, table
from steps_fit import by_constants, fitted, foretold, interruption, left_out, of_sets, shipped
from steps_own import DRAWS, after, own_runs, scatter
from steps_runs import Run, by_set, chosen, runs, unscored
from tpsim.question.save import flow

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


def sweeps() -> Iterator[tuple[str, list[Run]]]:
    """Runs of one model on as many chips, which only their layout tells apart."""
    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs():
        name, model = run.row["set"], tuple(run.row["model"].values())
        if name == "bigscience" and run.row.get("day", "") >= "02-25":
            groups[name, model, run.devices].append(run)
    for (name, model, chips), several in groups.items():
        if len(several) >= FEWEST:
            yield f"{name}: hidden {model[0]}, {model[1]} layers, {chips} chips", several


FEWEST = 5
"""A sweep has so many runs."""


def ranked(several: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Kendall's tau, and by how many percent the one predicted best is slower than the best.

    several  predicted and measured seconds per sequence
    """
    signs = [np.sign((a[0] - b[0]) * (a[1] - b[1])) for a, b in combinations(several, 2)]
    return float(np.mean(signs)), 100 * (min(several)[1] / min(seen for _, seen in several) - 1)


def each_sequence(run: Run) -> tuple[float, float]:
    """Predicted and measured seconds per sequence."""
    return run.planned() / run.sequences, run.measured / run.sequences


LISTED = ("run", "mesh", "microbatches x sequences x tokens", "measured, s", "predicted, s", "error, %")


def listed(run: Run) -> list[str]:
    """A run as the page lists it."""
    return [
        run.row["id"],
        " ".join(f"{axis} {size}" for axis, size in run.row["mesh"].items()),
        f"{run.row['microbatches']} x {run.row['each']} x {run.row['seq']}",
        f"{run.measured:.4g}",
        f"{run.planned():.4g}",
        f"{100 * (run.planned() / run.measured - 1):+.1f}",
    ]


HEAD = """\
# How near steps come to measured ones

Written by `python benchmarks/steps.py`; do not edit. Errors are predicted over measured seconds of a step less 1, in
percent: mean, median and 90th percentile of their size, and the mean with its sign as bias.

The runs are those of `tests/data/measured_steps.json`, with their sources in `tests/data/steps_set.yaml`: published, of
dense models, all that decides the seconds known, or said there. Everything but the constants below is what a scenario
would have: profiles as shipped, a framework's practice by its name, what that stack did otherwise.
"""

COLUMNS = """\
- **as shipped**: the constants of the profiles, which were fitted to these sets: no forecast.
- **left out**: with the constants that the other sets of the chip's generation come to. Hopper has no other set: there
  it is what Ampere's constants say, the forecast for a generation of which no run is known; of fused attention times
  what its library states of both chips (FlashAttention-2: 73 % of A100's peak, 35 % of H100's).
- **one run, three runs**: left out, and then moved by so many of its runs: see "One's own runs".
- **one constant**: a model that knows one rate of FLOPs and nothing else, the rate being the set's own.
"""

CONSTANTS = """\
What a chip's products, memory and fused attention reach of their peaks: least squares of logarithms over the runs of a
generation, its sets weighing alike. Generations of few sets are held to Ampere's constants: 15 % off weighs as much as
an error of 5 % of a set. No set tells what a host takes for a launch: models are large. Range: over one set left out.
Interruption, in seconds, is what ranks come late by: where a layer's weights are gathered or its gradients summed, each
waits for the longest pause that any had since they last met. That pauses longer than d are as rare as 1/d^2 is assumed;
then the longest of n ranks in t seconds is sqrt(n t c) in the mean, c being this constant, and a step longer by
sqrt(T K c) (sqrt(n) - 1), of T seconds with K meetings. What is known of such waits: a rank that does nothing for a
while holds up all others' gathers (pytorch issue 117550); FSDP's calls are barriers layer by layer ("Revisiting
Parameter Server in LLM Post-Training"); a collective of many takes as long as the longest interruption of any of them
(Beckman et al. 2006, on noise of operating systems). It is least squares of the same runs, one for GPUs, whose sets are
two of Ampere and Hopper's, one for TPUs. No run under FSDP has more than 512 GPUs, and all of them are of one operator:
beyond, and elsewhere, it is a forecast. What is sent once per step behind all microbatches waits for nobody.
"""

COMPUTED = """\
vTrain's table of 1,440 steps of small models (VIA-Research/vTrain, data/ground_truth_single.csv @f8dda84, "measured
data for validation"; {rows} of them were scored here until now) was not measured: it is what the formula of its own
simulator gives (src/predictor.py). Less the all-reduce that it looks up (trace/a100), a row is (m + p - 1) layers of a
stage, and so on, to the nanosecond: one time of a layer for all numbers of layers, microbatches, stages and copies of a
hidden size, tensor split and microbatch; messages between stages of one node take what 800 Gbit/s of network would. Of
the rows here, each rounded to a microsecond, {many} sums must vanish if that is so; the largest is {largest:.1f} us,
where steps that scatter by {noise:.1f} % would have {would:.0f} us (`benchmarks/steps_computed.py`). How far tpsim is
from another simulator is no error of tpsim's. No set that was measured tells of a launch.
"""

OWN = """\
What `tpsim hw fit --runs` makes of the constants that other sets come to, with one or three runs of a set: mean error
of its other runs in percent, mean over draws. Constants are held by how they scatter, which the scored set has no part
in: between sets by Tukey's jackknife (of n sets, (n - 1)^2 times the covariance of what they come to with one left out,
in logarithms); for generations other than Ampere, between generations as well. A run counts as its noise lets it: how
runs scatter about the level of their set, in that of the other sets in which they do most, as nothing says that one's
own scatter less. Worst run: by how much a single one makes the error of the others larger, in points of percent, beside
that noise. On Ampere, which is known, none does by more.
Seconds are those of plans at constants as shipped, followed from there along their slopes.
"""

SWEEPS = """\
Runs of one model on as many chips. Tau is Kendall's, of seconds per sequence; regret: by how many percent the layout
that is predicted fastest is slower than the one that was.
"""


BANDS = """\
Measured over predicted seconds of runs by constants that were not fitted to their set: where at least eight of ten runs
of one more set lie, if it is as these sets are. Sizes of errors, sets weighing alike, and so does the one that is not
known, whose errors may be of any size (hierarchical conformal prediction: Lee, Barber and Willett 2023): of nine sets
the 89th of a hundred sizes, of six the 93rd. No distribution is assumed. Both ends are one, as nine sets cannot tell
two, and Ampere's one and many nodes are one kind. A launch that is guessed widens a plan's band by itself: by the step
at the tenth and the ninetieth of such launches, as `tpsim hw fit` lets them differ. Others are of generations without
sets of their own: Ampere's band, wider by the step at the tenth and the ninetieth of what shares of generations differ
by, normal variables of which three generations are known (Student's t). Calibrated: machines that one run had moved by
`tpsim hw fit --runs`. A plan has the band of its kind beside its seconds (`hardware/evidence/steps.yaml`). In a
scenario `require: {step_high: < 30 s}` asks for the high end, `step_low` for the other; `tpsim check` looks at neither.
"""

COVERED = """\
How many runs of a set lie in the band that other sets give, of others what other generations give, neither its width
nor the constants beneath it having seen that set: 80 % or more is what it should be, sets weighing alike, as a band is
for one more of them. Beside that runs weigh alike, of which BigScience has 93. Intervals are of 95 %: the binomial one
(Wilson's) of so many sets; the binomial one as if each run were one of its own; and that of runs over sets, as runs of
one set are wrong alike. Last what bands half and twice as wide would hold, sets / runs weighing alike: half a band does
not hold what a band should.
"""


COLUMNS_OF_COVERED = [
    "kind",
    *("sets", "inside, sets alike, %", "of so many sets"),
    *("runs", "inside, runs alike, %", "of so many runs", "of runs of sets"),
    *("half as wide, %", "twice as wide, %"),
]


EACH = """\
Predicted with the constants as shipped; by others: the error with those that Ampere's other sets come to, which is what
bands are made of.
"""


def cells(error: Error) -> list[str]:
    """Of a table."""
    mean, median, high, bias = error
    return [f"{mean:.1f}", f"{median:.1f} / {high:.1f}", f"{bias:+.1f}"]


def scores() -> Iterator[list[str]]:
    """A row of every set, and the mean over sets."""
    means = []
    for name, several in by_set().items():
        outside = score(several, by_constants(foretold(name)))
        known = [after(name, many) for many in DRAWS]
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
        whole = fitted(of_sets(generation), interruption())
        without = [dict(found) for name in names if (found := left_out(name))]
        for name, value in whole:
            others = [one[name] for one in without if name in one]
            shown = f"{min(others):g} to {max(others):g}" if others else "no other set"
            own = {shipped(one).get(name) for one in names} - {None}
            yield [generation, name, " ".join(f"{one:g}" for one in own), f"{value:g}", shown]


def kinds() -> Iterator[list[str]]:
    """A row of every band."""
    for kind, one in zip(KINDS, bands(), strict=True):
        yield [kind, str(one["runs"]), str(one["sets"]), f"{one['low']:g}", f"{one['high']:g}"]


def evidence() -> str:
    """The bands as plans read them."""
    rows = ["{" + ", ".join(f"{name}: {flow(value)}" for name, value in one.items()) + "}" for one in bands()]
    head = "# Written by benchmarks/steps.py; where the figures are from says docs/steps.md."
    shares = [f"  {name}: {flow(value)}" for name, value in scatter().model_dump().items()]
    waited = [f"  {generation}: {most}" for generation, most in sorted(waiting().items())]
    lines = ("tpsim: evidence/1", "steps:", *(f"  - {row}" for row in rows), "shares:", *shares, "waited:", *waited)
    return "\n".join([head, *lines]) + "\n"


def waiting() -> dict[str, int]:
    """By generation the most chips that waited for each other in a run."""
    most: dict[str, int] = {}
    for run in (run for name, several in by_set().items() for run in several if run.late_s > 0):
        generation = chosen()["sets"][run.row["set"]]["generation"]
        most[generation] = max(most.get(generation, 0), run.devices)
    return most


def page() -> str:
    """The whole page."""
    own = ["mean", "median / p90", "bias"]
    heads = [f"{column}: {head}" for column in ("as shipped", "left out") for head in own]
    found = changes()
    right = sum(np.sign(seen) == np.sign(said) for _, seen, said, _ in found)
    close = sum(near(seen, said) for _, seen, said, _ in found)
    late = [(seen, others) for _, seen, _, others in found if others is not None]
    good = f"{right} have the right sign, {close} are within a factor of {NEAR:g}"
    outside = f"of {len(late)} between runs, left out, {sum(near(*pair) for pair in late)}"
    several = [
        [what, str(len(group)), *(f"{one:.2f}" for one in ranked([*map(each_sequence, group)]))]
        for what, group in sweeps()
    ]
    each = [
        [*listed(run), f"{100 * (np.exp(-other) - 1):+.1f}"]
        for name, several in by_set().items()
        for run, other in zip(several, off(name), strict=True)
    ]
    many, largest, would = relations()
    reasons = chosen()["left_out"] | {name: asked["why"].strip() for name, asked in chosen()["unscored"].items()}
    parts = [
        HEAD.rstrip(),
        "## By set",
        COLUMNS.rstrip(),
        grid(["set", "runs", *heads, "one run", "three runs", "one constant"], scores()),
        "## Constants",
        CONSTANTS.rstrip(),
        grid(["generation", "constant", "as shipped", "fitted", "range"], constants()),
        "## One's own runs",
        OWN.rstrip(),
        grid(["set", "runs", "left out", "one run", "three runs", "worst run", "noise"], own_runs()),
        "## Bands",
        BANDS.rstrip(),
        grid(["kind", "runs", "sets", "low", "high"], kinds()),
        COVERED.rstrip(),
        grid(COLUMNS_OF_COVERED, covered()),
        "## Changes",
        f"What changes, in percent: of {len(found)} changes {good}; {outside}.",
        grid(
            ["change", "measured", "predicted", "left out"],
            [[what, *(f"{one:+.1f}" if one is not None else "" for one in row)] for what, *row in found],
        ),
        REASONED.rstrip(),
        grid(["change", "what differs", "at most", "what is missing"], (list(one) for one in REASONS)),
        TRIED.rstrip(),
        "## Sweeps",
        SWEEPS.rstrip(),
        grid(["sweep", "runs", "tau", "regret, %"], several),
        "## Runs",
        EACH.rstrip(),
        grid([*LISTED, "by others, %"], each),
        "## Not scored",
        COMPUTED.rstrip().format(rows=len(table()), many=many, largest=largest, noise=100 * NOISE, would=would),
        agreement(ranked, FEWEST),
        *(f"Left out: {name}: {why}." for name, why in reasons.items()),
        grid(LISTED, map(listed, unscored())),
    ]
    return "\n\n".join(parts) + "\n"


def main(*arguments: str) -> int:
    """Write the page, or compare it."""
    return max(written(PAGE, page(), arguments), written(EVIDENCE, evidence(), arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
