"""Whether vTrain's table of "measured" steps was measured, by the formula of its own simulator, and how the two rank.

A step of m microbatches over p stages takes, in what VIA-Research/vTrain has in src/predictor.py,

    (m + p - 1) L/p layer + L/p update + m last + rest + hops + sums

with a time of each sort for a hidden size, tensor split and microbatch, whatever L, p, m and the copies are. Where rows
outnumber these times, sums of rows in which all of them cancel must vanish. They do, to what rows are rounded by.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml

import tpsim
from page import ROOT
from steps_runs import Run
from tpsim.calibrate.shares import LAUNCH
from tpsim.calibrate.step_fit import hw_fit_runs

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLE = ROOT / "tests" / "data" / "computed_steps.csv"

NOISE = 1e-3
"""A measured step scatters by this share of itself, and mostly by more: one run of BigScience by 0.6 % in a day."""

HOP = 2 * 2 * 1024 / (25 * 2**30)
"""Seconds of a hop per sequence and hidden element: 2 bytes of 1,024 tokens, twice, at a quarter of 800 Gbit/s as
vTrain counts them; that is its `inter_node_bandwidth`, which stages of one node have as well."""


@cache
def table() -> tuple[dict[str, float], ...]:
    """Every ninth row of data/ground_truth_single.csv @f8dda84."""
    with TABLE.open() as lines:
        return tuple({name: float(value) for name, value in row.items()} for row in csv.DictReader(lines))


def parts(row: dict[str, float]) -> dict[tuple[object, ...], float]:
    """How often a step has each of the times that are not known."""
    layers, pipe, many = row["layers"], row["pipe"], row["microbatches"]
    of = row["hidden"], row["tensor"], row["sequences"]
    found: dict[tuple[object, ...], float] = {
        (of, "layer"): (many + pipe - 1) * layers / pipe,
        (of, "update"): layers / pipe,
        (of, "last", pipe > 1): many,
        (of, "rest", pipe > 1): 1,
    }
    if row["data"] > 1:
        found[row["hidden"], row["tensor"], row["data"], pipe, layers] = 1
    return found


Row = Mapping[str, float]

Ranked = Callable[[Sequence[tuple[float, float]]], tuple[float, float]]
"""Tau and regret of pairs of seconds."""

AGREED = """\
How the two rank layouts is an agreement, too, and no accuracy: over {many} sweeps of those rows, of one model on as
many chips, Kendall's tau is {tau:.2f} in the mean and {least:.2f} at least as shipped, {off:.0f} % apart; the layout
that tpsim calls fastest takes {regret:.1f} % more than vTrain's best in the mean. They are asked for as Narayanan's
table 2, with what vTrain has otherwise: 16 heads in every model, logits with weights of their own, no clipping, and no
recompute (its configurations state it, but a layer takes as long in rows of one stage, where its code has none, as in
others). Of {pairs} pairs the two order {otherwise} otherwise, and in {launched} of these what takes longer by vTrain
runs more layers per sequence: its layers are traces of PyTorch, where a host launches small kernels no faster than
large ones; a plan that states no `assume.kernel_launch` has no such host. Where one says 10 us by a guess, and
`hw fit --runs` is given one row of each sweep, it comes to {launch_us:.0f} us; of the other rows tau is
{tau_after:.2f} then, {least_after:.2f} at least, {off_after:.0f} % apart, and the regret {regret_after:.1f} % (mean of
{draws} draws of those rows).
"""


class Told(NamedTuple):
    """A row: seconds per sequence, predicted and vTrain's, and how many times as many layers a rank runs for one."""

    predicted: float
    seen: float
    passes: float


def agreement(ranked: Ranked, fewest: int) -> str:
    """How the layouts of its sweeps, so many rows of one model on as many chips, are ranked by tpsim and by vTrain.

    Before and after `hw fit --runs` of one row of each, which has no part in what it is compared with then.
    """
    sweeps = [several for several in _sweeps() if len(several) >= fewest]
    told = [[_told(row) for row in several] for several in sweeps]
    pairs = [pair for several in told for pair in combinations(several, 2)]
    otherwise = [(a, b) for a, b in pairs if (a.predicted - b.predicted) * (a.seen - b.seen) < 0]
    after = [_after(sweeps, ranked, np.random.default_rng(draw)) for draw in range(DRAWS)]
    return AGREED.rstrip().format(
        many=len(sweeps),
        draws=DRAWS,
        pairs=len(pairs),
        otherwise=len(otherwise),
        launched=sum((one.passes - other.passes) * (one.seen - other.seen) > 0 for one, other in otherwise),
        **_means(told, ranked),
        **{name: float(np.mean([one[name] for one in after])) for name in after[0]},
    )


DRAWS = 3

GUESS = {"value": "10 us", "kind": "guess"}
"""What a host takes for a launch, before any row says so."""


def _sweeps() -> Iterable[list[Row]]:
    groups: dict[tuple[float, ...], list[Row]] = defaultdict(list)
    for row in table():
        groups[row["hidden"], row["layers"], row["tensor"] * row["data"] * row["pipe"]].append(row)
    return groups.values()


def _told(row: Row, **other: Any) -> Told:
    """A row, planned with some fields of its scenario otherwise."""
    sequences = row["sequences"] * row["microbatches"] * row["data"]
    seconds = float(tpsim.plan({**scenario(row), **other}).step.time_s)
    passes = (row["microbatches"] + row["pipe"] - 1) / row["pipe"]
    return Told(seconds / sequences, row["seconds"] / sequences, passes / sequences)


def _means(sweeps: Sequence[Sequence[Told]], ranked: Ranked) -> dict[str, float]:
    """Over sweeps, and of how far rows are off in percent."""
    taus, regrets = zip(*(ranked([one[:2] for one in several]) for several in sweeps), strict=True)
    off = [abs(one.predicted / one.seen - 1) for several in sweeps for one in several]
    least = {"tau": float(np.mean(taus)), "least": min(taus)}
    return {**least, "regret": float(np.mean(regrets)), "off": 100 * float(np.mean(off))}


def scenario(row: Row) -> dict[str, Any]:
    """A row as Narayanan's table 2 is asked for, with what vTrain has otherwise (src/predictor.py, src/model).

    Every model has 16 heads; the logits have weights of their own; gradients are not clipped. Nothing is recomputed:
    only stages before the last one do so in its code, and a layer takes as long in rows of one stage as in others.
    """
    sizes = {name: int(value) for name, value in row.items() if name != "seconds"}
    hidden = sizes["hidden"]
    model = {"hidden": hidden, "layers": sizes["layers"], "ffn": 4 * hidden, "vocab": 50257}
    model |= {"heads": HEADS, "kv_heads": HEADS, "head_dim": hidden // HEADS}
    work = {"each": sizes["sequences"], "microbatches": sizes["microbatches"], "seq": 1024, "seconds": row["seconds"]}
    same = {"id": "computed", "set": "narayanan-2", "recompute": "none", "zero": 0, "sequence_parallel": False}
    mesh = {name: sizes[name] for name in ("pipe", "data", "tensor")}
    asked = Run({**same, **work, "model": model, "mesh": mesh}).scenario()
    own = {"model": {**asked["model"], "tie_embeddings": False}, "practice": {**asked["practice"], "clip": "none"}}
    return {**asked, **own, "hardware": MACHINE}


HEADS = 16
MACHINE = "dgx-a100"


def _after(sweeps: Sequence[list[Row]], ranked: Ranked, draws: np.random.Generator) -> dict[str, float]:
    """What is known once one row of each sweep has been given to `hw fit --runs`, of the others."""
    taken = [int(draws.integers(len(several))) for several in sweeps]
    with TemporaryDirectory() as name:
        folder, lines = Path(name), ["scenario,seconds"]
        for at, (several, place) in enumerate(zip(sweeps, taken, strict=True)):
            asked = {**scenario(several[place]), "assume": {"kernel_launch": GUESS}}
            (folder / f"{at}.yaml").write_text(yaml.safe_dump(asked))
            lines.append(f"{at}.yaml,{several[place]['seconds']}")
        (folder / "runs.csv").write_text("\n".join(lines))
        fitted = hw_fit_runs(folder / "runs.csv", base=MACHINE)
        (folder / "fitted.yaml").write_text(fitted.to_yaml(folder))
        launch = next(row["value"] for row in fitted.parameters if row["figure"] == LAUNCH)
        other = {"hardware": str(folder / "fitted.yaml"), "assume": {"kernel_launch": f"{1e6 * launch} us"}}
        rest = [several[:place] + several[place + 1 :] for several, place in zip(sweeps, taken, strict=True)]
        told = [[_told(row, **other) for row in several] for several in rest]
    means = {f"{name}_after": value for name, value in _means(told, ranked).items()}
    return {**means, "launch_us": 1e6 * launch}


def relations() -> tuple[int, float, float]:
    """How many sums of rows must vanish; the largest, in microseconds; and what they would be of measured steps.

    Sums are of weights whose squares add up to 1. Hops of two stages are among the rest, so that four have four more.
    """
    rows = table()
    known = [parts(row) for row in rows]
    places = {name: place for place, name in enumerate(dict.fromkeys(name for one in known for name in one))}
    matrix = np.zeros((len(rows), len(places)))
    for at, one in enumerate(known):
        for name, times in one.items():
            matrix[at, places[name]] = times
    hops = np.array([4 * HOP * row["sequences"] * row["hidden"] * (row["pipe"] > 2) for row in rows])  # noqa: PLR2004 - stages
    seconds = np.array([row["seconds"] for row in rows])
    left, sizes, _ = np.linalg.svd(matrix)
    sums = left[:, int((sizes > 1e-9 * sizes[0]).sum()) :]
    noise = NOISE * np.sqrt(np.mean(np.sum((sums.T * seconds) ** 2, axis=1)))
    return sums.shape[1], 1e6 * float(np.abs(sums.T @ (seconds - hops)).max()), 1e6 * float(noise)
