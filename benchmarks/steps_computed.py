"""Whether vTrain's table of "measured" steps was measured: its rows, held against the formula of its own simulator.

A step of m microbatches over p stages takes, in what VIA-Research/vTrain has in src/predictor.py,

    (m + p - 1) L/p layer + L/p update + m last + rest + hops + sums

with a time of each sort for a hidden size, tensor split and microbatch, whatever L, p, m and the copies are. Where rows
outnumber these times, sums of rows in which all of them cancel must vanish. They do, to what rows are rounded by.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache

import numpy as np

import tpsim
from page import ROOT
from steps_runs import Run

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


def computed_sweeps(fewest: int) -> list[list[tuple[float, float]]]:
    """Of its rows of one model on as many chips, as tpsim plans them: both sorts of seconds per sequence."""
    groups: dict[tuple[float, ...], list[tuple[float, float]]] = defaultdict(list)
    for row in table():
        run = _asked({name: int(value) for name, value in row.items()}, row["seconds"])
        both = float(tpsim.plan(run.scenario()).step.time_s) / run.sequences, run.measured / run.sequences
        groups[row["hidden"], row["layers"], run.devices].append(both)
    return [several for several in groups.values() if len(several) >= fewest]


def _asked(row: dict[str, int], seconds: float) -> Run:
    """A row as a run like those of Narayanan's table 2; vTrain's heads are 64 wide."""
    hidden, heads = row["hidden"], row["hidden"] // HEAD_DIM
    sizes = {"hidden": hidden, "layers": row["layers"], "ffn": 4 * hidden, "vocab": 50257}
    model = {**sizes, "heads": heads, "kv_heads": heads, "head_dim": HEAD_DIM}
    batch = {"each": row["sequences"], "microbatches": row["microbatches"], "seq": 1024, "seconds": seconds}
    same = {"id": "computed", "set": "narayanan-2", "recompute": "full", "zero": 0, "sequence_parallel": False}
    return Run({**same, **batch, "model": model, "mesh": {name: row[name] for name in ("pipe", "data", "tensor")}})


HEAD_DIM = 64


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
