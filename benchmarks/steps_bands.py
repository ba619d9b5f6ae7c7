"""Bands in which published steps lie about what was predicted of them by constants that were not fitted to them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from steps_fit import LAUNCH, USUAL, times
from steps_own import KNOWN, constants, corrected, effects, of_generation, scatter, start
from steps_runs import Run, by_set, chosen
from tpsim.calibrate import shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Logs = np.ndarray[Any, np.dtype[np.float64]]
    Ends = tuple[float, float]

KINDS = ("calibrated", "one", "many", "others")
"""Machines that own runs have moved; Ampere on one node and on many; any other generation."""

NODE = 8
"""GPUs of a node; a TPU slice is one."""

STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383)
"""The ninetieth of a hundred of Student's t with one to nine degrees of freedom."""

STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5th of a hundred of Student's t with one to nine degrees of freedom."""

NORMAL_95 = 1.96
"""That of a normal variable."""

OUTSIDE = 0.1 + 1e-9
"""So much of what is likely lies below a band, and above it; and what sums of shares are rounded by."""

NORMAL = 1.2816
"""The ninetieth of a hundred of a normal variable."""

FEWEST_RUNS = 20
FEWEST_SETS = 3
"""A kind of fewer has the widest band of all; other generations count by generation, whose sets are wrong alike."""


def nodes(run: Run) -> str:
    """Whether a run takes one node."""
    return "one" if run.devices <= run.row.get("slice", NODE) else "many"


@cache
def off(name: str, without: str = "") -> Logs:
    """Logarithms of measured over predicted seconds of a set, by what its generation's other sets come to.

    without  a set that has no part in that either; other generations are predicted by Ampere's constants
    """
    sets = [one for one in of_generation(KNOWN) if one not in (name, without)]
    told = dict(times(chosen()["sets"][name]["generation"], tuple(constants(tuple(sets)).items())))
    moves = _moves(name, told)
    return np.log([run.measured for run in by_set()[name]] / effects(name).seconds(moves))


def _moves(name: str, told: Mapping[str, float]) -> dict[str, float]:
    """From where a set's effects are taken to these constants, in logarithms."""
    begun = start(name)
    return {
        (shares.LAUNCH if one == LAUNCH else one): float(np.log(value / begun.get(one, USUAL)))
        for one, value in told.items()
        if one in begun or one == LAUNCH
    }


@cache
def of_kind(kind: str, without: str = "") -> Mapping[str, Logs]:
    """The sets of a kind but one, each with its logarithms of measured over predicted seconds."""
    found = {}
    for name, several in by_set().items():
        mine = kind == "calibrated" or (chosen()["sets"][name]["generation"] == KNOWN) == (kind in ("one", "many"))
        at = [place for place, run in enumerate(several) if kind not in ("one", "many") or nodes(run) == kind]
        if name == without or not mine or not at:
            continue
        if kind == "calibrated":
            found[name] = -np.log(np.concatenate([now for _, now in corrected(name, 1, *filter(None, [without]))]))
        else:
            found[name] = off(name, without)[at]
    return found


def ends(found: Mapping[str, Logs]) -> Ends:
    """Between which eight of ten runs of one more set are likely, in logarithms: quantiles of all, sets weighing alike.

    Sets differ too much for one spread of all of them, so that no distribution is assumed.
    Source: Dunn, Wasserman and Ramdas, Distribution-free prediction sets for two-layer hierarchical models, 2023: the
    pooled distribution functions of groups.
    """
    every = np.concatenate(list(found.values()))
    shares = np.concatenate([np.full(len(one), 1 / (len(one) * len(found))) for one in found.values()])
    order = np.argsort(every)
    below = np.cumsum(shares[order])
    low, high = np.searchsorted(below, (OUTSIDE, 1 - OUTSIDE))
    return float(every[order][low]), float(every[order][high])


def spread(found: Mapping[str, Logs]) -> Ends:
    """The same of what little is known of: levels of sets scatter, and runs about their set, both as normal variables.

    How levels do is known from few sets, which Student's t says.
    """
    levels = np.array([one.mean() for one in found.values()])
    about = np.mean([one.var(ddof=1) for one in found.values() if len(one) > 1])
    wide = STUDENT[len(levels) - 2] * (levels.var(ddof=1) * (1 + 1 / len(levels)) + about) ** 0.5
    return float(levels.mean() - wide), float(levels.mean() + wide)


def few(kind: str, found: Mapping[str, Logs]) -> bool:
    """True for a kind that says too little of itself."""
    generations = {chosen()["sets"][name]["generation"] for name in found}
    sets = len(generations) if kind == "others" else len(found)
    return sets < FEWEST_SETS or sum(map(len, found.values())) < FEWEST_RUNS


def band(kind: str, without: str = "") -> Ends:
    """Of a kind, with a set left out: its own, or the widest that any of the others would have of so few."""
    found = of_kind(kind, without)
    if not few(kind, found):
        return ends(found)
    every = ((one, of_kind(one, without)) for one in KINDS)
    return max((spread(sets) for one, sets in every if not few(one, sets)), key=lambda pair: pair[1] - pair[0])


def bands() -> Iterator[dict[str, Any]]:
    """A band for each kind of runs, as hardware/evidence has it."""
    for kind in KINDS:
        found, (low, high) = of_kind(kind), np.exp(band(kind))
        named: dict[str, Any] = {"generation": KNOWN, "nodes": kind} if kind in ("one", "many") else {}
        named |= {"calibrated": True} if kind == "calibrated" else {}
        runs = sum(len(by_set()[name]) if kind == "calibrated" else len(one) for name, one in found.items())
        yield {**named, "low": round(float(low), 3), "high": round(float(high), 3), "runs": runs, "sets": len(found)}


def by_launch(name: str, kind: str) -> tuple[Logs, Logs]:
    """How far a guessed launch of a set's host may move each of its runs of a kind to either side, in logarithms."""
    of, sets = effects(name), [one for one in of_generation(KNOWN) if one != name]
    moves = _moves(name, constants(tuple(sets))) if kind != "calibrated" else {}
    at = [place for place, run in enumerate(by_set()[name]) if kind not in ("one", "many") or nodes(run) == kind]
    wide = NORMAL * scatter(name).launch if kind != "calibrated" else 0.0
    there = moves.get(shares.LAUNCH, 0.0)
    low, high = (
        np.log(of.seconds({**moves, shares.LAUNCH: there + by}) / of.seconds(moves))[at] for by in (-wide, wide)
    )
    return low, high


def covered() -> Iterator[list[str]]:
    """Of each set of each kind the share of runs inside the band that others give, and whose guesses widen it."""
    for kind in KINDS:
        inside = []
        for name, own in of_kind(kind).items():
            low, high = band(kind, name)
            least, most = by_launch(name, kind)
            if kind == "calibrated":
                least = most = np.zeros(1)
            there = (-np.hypot(low, least) <= own) & (own <= np.hypot(high, most))
            # Of a calibrated set every draw counts as its part of a run.
            inside.append((float(there.mean()), len(by_set()[name]) if kind == "calibrated" else len(own)))
        share, alone, together = coverage(inside)
        mean = float(np.mean([part for part, _ in inside]))
        total = sum(many for _, many in inside)
        ends_ = [f"{100 * max(share - by, 0):.0f} to {100 * min(share + by, 1):.0f}" for by in (alone, together)]
        of_sets = " to ".join(f"{100 * end:.0f}" for end in binomial(mean, len(inside)))
        yield [words(kind), str(len(inside)), f"{100 * mean:.0f}", of_sets, str(total), f"{100 * share:.0f}", *ends_]


def binomial(share: float, many: int) -> Ends:
    """The 95 % interval of a share that so many are behind (Wilson, 1927): sound for few, and near nothing or all."""
    squared = NORMAL_95**2 / many
    middle = (share + squared / 2) / (1 + squared)
    half = (squared * share * (1 - share) + squared**2 / 4) ** 0.5 / (1 + squared)
    return middle - half, middle + half


def coverage(inside: Sequence[tuple[float, int]]) -> tuple[float, float, float]:
    """The share of runs inside, and half of its 95 % interval: were each run one of its own, and each set.

    inside  of each set the share of its runs, and their number

    The first is the binomial one; the second that of a ratio over clusters, with Student's t for so many (Cochran,
    Sampling Techniques, 1977, section 9A).
    """
    total = sum(many for _, many in inside)
    share = sum(part * many for part, many in inside) / total
    off = sum(((part - share) * many) ** 2 for part, many in inside)
    sets = len(inside)
    together = STUDENT_95[sets - 2] * (sets / (sets - 1) * off) ** 0.5 / total
    return share, NORMAL_95 * (share * (1 - share) / total) ** 0.5, together


def words(kind: str) -> str:
    """Of a kind."""
    return {"one": f"{KNOWN}, one node", "many": f"{KNOWN}, many nodes"}.get(kind, kind)
