"""Bands in which published steps lie about what was predicted of them by constants that were not fitted to them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from steps_fit import CHIP, slopes, times
from steps_own import KNOWN, constants, corrected, effects, generations, of_generation, start
from steps_runs import by_set, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Logs = np.ndarray[Any, np.dtype[np.float64]]
    Ends = tuple[float, float]

KINDS = ("calibrated", KNOWN, "others")
"""Machines that own runs have moved; the generation that several sets tell of; any other."""

LIKELY = 0.8
"""So much of what one more set has lies in a band."""

STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383)
"""The ninetieth of a hundred of Student's t with one to nine degrees of freedom."""

STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5th of a hundred of Student's t with one to nine degrees of freedom."""

NORMAL_95 = 1.96
"""That of a normal variable."""

ROUNDED = 1e-9
"""What sums of shares are rounded by."""


@cache
def off(name: str, without: str = "") -> Logs:
    """Logarithms of measured over predicted seconds of a set, by what Ampere's other sets come to.

    without  a set that has no part in that either
    """
    sets = [one for one in of_generation(KNOWN) if one not in (name, without)]
    hidden = sorted({name, without} - {""})
    told = dict(times(chosen()["sets"][name]["generation"], tuple(constants(tuple(sets), *hidden).items())))
    begun = start(name, without)
    moves = {one: float(np.log(value / begun[one])) for one, value in told.items() if one in begun and one in CHIP}
    return np.log([run.measured for run in by_set()[name]] / effects(name, without).seconds(moves))


@cache
def of_kind(kind: str, without: str = "") -> Mapping[str, Logs]:
    """The sets of a kind but one, each with its logarithms of measured over predicted seconds."""
    named = [one for one in by_set() if one != without and (kind == "calibrated" or _kind(one) == kind)]
    if kind != "calibrated":
        return {one: off(one, without) for one in named}
    late = [without] if without else []
    return {one: -np.log(np.concatenate([now for _, now in corrected(one, 1, *late)])) for one in named}


def _kind(name: str) -> str:
    return KNOWN if chosen()["sets"][name]["generation"] == KNOWN else "others"


def width(found: Mapping[str, Logs]) -> float:
    """Within which size eight of ten errors of one more set are, in logarithms, if it is as these sets are.

    Sets weigh 1/(n + 1) each, and so does the one that is not known, whose errors may be of any size. Both ends are
    one, as so few sets cannot tell two. Fewer than four have none.

    Source: Lee, Barber and Willett, Distribution-free inference with hierarchical data, 2023 (arXiv 2306.06342):
    hierarchical conformal prediction; what Dunn, Wasserman and Ramdas, 2023, advise where coverage is to be
    guaranteed: repeated subsampling of one observation per group.
    """
    sizes = np.abs(np.concatenate(list(found.values())))
    weights = np.concatenate([np.full(len(one), 1 / (len(one) * (len(found) + 1))) for one in found.values()])
    order = np.argsort(sizes)
    return float(sizes[order][np.searchsorted(np.cumsum(weights[order]), LIKELY - ROUNDED)])


def strange(without: str = "") -> float:
    """How far shares of a generation without sets of its own may move steps: the ninetieth of a hundred, in logarithms.

    Shares of generations are normal variables about what is forecast, as `tpsim hw fit` holds them, of which so many
    generations are known (Student's t); steps follow them along their slopes, mean over sets. The generation of
    `without` has no part in it.
    """
    logs = np.log(generations([without] if without else []))
    sets = [several for name, several in by_set().items() if name != without]
    lean = np.mean(
        [np.mean([[slopes(run).get(one, 0.0) for one in CHIP] for run in several], axis=0) for several in sets], axis=0
    )
    many = len(logs)
    return float(STUDENT[many - 2] * (lean @ np.cov(logs.T) @ lean * (1 + 1 / many)) ** 0.5)


def band(kind: str, without: str = "") -> float:
    """Half of its width of a kind, in logarithms, with a set left out: other generations are Ampere's, and strange."""
    if kind == "others":
        return float(np.hypot(width(of_kind(KNOWN)), strange(without)))
    return width(of_kind(kind, without))


def bands() -> Iterator[dict[str, Any]]:
    """A band for each kind of runs, as hardware/evidence has it."""
    for kind in KINDS:
        sets, wide = of_kind(kind), band(kind)
        named: dict[str, Any] = {"calibrated": True} if kind == "calibrated" else {}
        named |= {"generation": KNOWN} if kind == KNOWN else {}
        low, high = (round(float(np.exp(one)), 3) for one in (-wide, wide))
        yield {**named, "low": low, "high": high, "runs": sum(len(by_set()[one]) for one in sets), "sets": len(sets)}


def inside(kind: str, wider: float = 1) -> list[tuple[float, int]]:
    """Of each set of a kind the share of its runs in the band that others give, and how many runs it has.

    wider  the band is so many times as wide
    """
    rows = []
    for name, several in by_set().items():
        if kind not in ("calibrated", _kind(name)):
            continue
        errors = np.abs(of_kind(kind)[name])
        rows.append((float((errors <= wider * band(kind, name)).mean()), len(several)))
    return rows


TIMES = (0.5, 2)
"""Bands that are wrong: half as wide, and twice."""


def covered() -> Iterator[list[str]]:
    """A row of every kind: how many runs its bands hold, sets and runs weighing alike, and how many wrong ones do."""
    for kind in KINDS:
        rows = inside(kind)
        share, alone, together = coverage(rows)
        sets = _alike(rows)
        of_sets = " to ".join(f"{100 * end:.0f}" for end in binomial(sets, len(rows)))
        of_runs = [f"{100 * max(share - by, 0):.0f} to {100 * min(share + by, 1):.0f}" for by in (alone, together)]
        wrong = [inside(kind, many) for many in TIMES]
        both = [f"{100 * _alike(one):.0f} / {100 * coverage(one)[0]:.0f}" for one in wrong]
        cells = [str(len(rows)), f"{100 * sets:.0f}", of_sets, str(sum(many for _, many in rows)), f"{100 * share:.0f}"]
        yield [kind, *cells, *of_runs, *both]


def _alike(rows: Sequence[tuple[float, int]]) -> float:
    """The share inside, sets weighing alike."""
    return float(np.mean([share for share, _ in rows]))


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
