"""What own runs are worth: constants of other sets, moved by one or three runs of a set as `hw fit --runs` does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from steps_fit import CHIP, by_constants, fitted, foretold, interruption, shipped, slopes, times
from steps_runs import by_set, chosen
from tpsim.calibrate import shares
from tpsim.calibrate.calibrate import SPREADS, UNHEARD
from tpsim.calibrate.shares import Effects, moved
from tpsim.machine.evidence import SharesFields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


KNOWN = "ampere"
"""The generation whose constants rest on several stacks."""

DRAWS = (1, 3)
"""So many runs of a set are drawn."""

SEVERAL = 2
"""Of fewer sets nothing is known of how they scatter."""

MEDIAN_TO_DEVIATION = 1.4826


def of_generation(name: str) -> list[str]:
    """The sets of it."""
    return [one for one, asked in chosen()["sets"].items() if asked["generation"] == name]


@cache
def constants(sets: tuple[str, ...], *without: str) -> dict[str, float]:
    """What these sets of a generation come to together; without: those that have no part in what is known besides."""
    return dict(fitted(tuple(run for name in sets for run in by_set()[name]), interruption(*without), *without))


@cache
def scatter(*without: str) -> SharesFields:
    """How shares scatter between sets and between generations, with some left out.

    Between sets as Tukey's jackknife has it: of n sets, (n - 1)^2 times the covariance of what they come to with one
    left out, in logarithms; of a share that fewer than two of them tell, as between generations, no less than others.
    """
    sets = tuple(name for name in of_generation(KNOWN) if name not in without)
    whole = constants(sets, *without)
    late = [constants(tuple(one for one in sets if one != name), *without) for name in sets]
    logs = np.log([[one.get(share, whole.get(share, 1.0)) for share in CHIP] for one in late])
    within = (len(sets) - 1) ** 2 * np.cov(logs.T)
    between = np.cov(np.log(generations(without)).T) if len(generations(without)) > 1 else within
    for at, share in enumerate(CHIP):
        if sum(share in shipped(name) for name in sets) < SEVERAL:
            within[at, :] = within[:, at] = 0
            within[at, at] = max(between[at, at], np.delete(np.diag(within), at).min())
    rounded = [[[float(f"{one:.3g}") for one in row] for row in matrix] for matrix in (within, between)]
    noise = max(_about_its_set(name) for name in sets)
    return SharesFields(
        of=list(CHIP),
        known=[KNOWN],
        sets=len(sets),
        between_sets=rounded[0],
        between_generations=rounded[1],
        noise=float(f"{noise:.3g}"),
        launch=SPREADS["launch"] * UNHEARD,
    )


def generations(without: Sequence[str]) -> list[list[float]]:
    """The shares of every generation but that of sets which are left out, unless Ampere's other sets tell them.

    Each less what libraries state of it: they scatter about what is forecast of a generation.
    """
    asked = chosen()["sets"]
    hidden = {asked[name]["generation"] for name in without} - {KNOWN}
    named = dict.fromkeys(one["generation"] for one in asked.values() if one["generation"] not in hidden)
    sets = ((one, tuple(name for name in of_generation(one) if name not in without)) for one in named)
    stated = {one: dict(times(one, tuple((share, 1.0) for share in CHIP))) for one in named}
    return [
        [constants(some, *without)[share] / stated[one][share] for share in CHIP]
        for one, some in sets
        if set(CHIP) <= constants(some, *without).keys()
    ]


@cache
def _about_its_set(name: str) -> float:
    """How a run scatters about the level of its set: a robust deviation of the logarithm."""
    seconds = by_constants(foretold(name))
    off = np.log([run.measured / seconds(run) for run in by_set()[name]])
    return MEDIAN_TO_DEVIATION * float(np.median(np.abs(off - np.median(off))))


@cache
def start(name: str, *without: str) -> dict[str, float]:
    """The constants of the other sets of its generation, else Ampere's; with some more sets left out."""
    hidden = sorted({name, *without} - {""})
    own = chosen()["sets"][name]["generation"]
    others = [tuple(one for one in of_generation(of) if one != name and one not in without) for of in (own, KNOWN)]
    if others[0]:
        return constants(others[0], *hidden)
    return dict(times(own, tuple(constants(others[1], *hidden).items())))


@cache
def effects(name: str, *without: str) -> Effects:
    """How the runs of a set depend on figures, about what the other sets say of these."""
    several, own, told = by_set()[name], shipped(name), start(name, *without)
    by = {share: np.array([slopes(run).get(share, 0.0) for run in several]) for share in CHIP}
    late = interruption(*sorted({name, *without} - {""}))
    told = {share: told.get(share, own.get(share)) for share in CHIP if share in {**own, **told}}
    off = sum(by[share] * np.log(told[share] / own[share]) for share in CHIP if share in own)
    off = off + np.array([late.moves(run) for run in several])
    return Effects(told, np.log([[run.planned()] for run in several]) + off[:, None], by)


@cache
def corrected(name: str, many: int, *without: str) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Of every draw of so many runs: predicted over measured seconds of the others, before and after.

    without  sets that have no part in what is known before
    Each run is drawn first once, the rest by chance.
    """
    several = by_set()[name]
    known, of = scatter(*sorted({name, *without})), effects(name, *without)
    measured = np.array([run.measured for run in several])
    likely = shares.scatter(known, chosen()["sets"][name]["generation"], known.launch)
    draws, found = np.random.default_rng(0), []
    for first in range(len(several)):
        others = [place for place in range(len(several)) if place != first]
        drawn = [first, *draws.choice(others, many - 1, replace=False)]
        by = moved(of.part(drawn), measured[drawn], likely, known.noise).by
        rest = np.delete(np.arange(len(several)), drawn)
        found.append(((of.seconds({}) / measured)[rest], (of.seconds(by) / measured)[rest]))
    return found


def error(ratios: np.ndarray[Any, Any]) -> float:
    """Mean size of errors, percent."""
    return 100 * float(np.abs(ratios - 1).mean())


def after(name: str, many: int) -> float:
    """Mean error of a set once so many of its runs are known: mean over draws, percent."""
    return float(np.mean([error(now) for _, now in corrected(name, many)]))


def worse(name: str) -> float:
    """By how much a single run makes the mean error of the others larger at most, points of percent."""
    return max(error(now) - error(was) for was, now in corrected(name, 1))


def own_runs() -> Iterator[list[str]]:
    """A row of every set."""
    rows = []
    for name in by_set():
        (was, _), *_ = [(np.concatenate([one for one, _ in corrected(name, 1)]), 0)]
        rows.append([error(was), *(after(name, many) for many in DRAWS), worse(name), 100 * scatter(name).noise])
        yield [
            name,
            str(len(by_set()[name])),
            *(f"{one:.1f}" for one in rows[-1][:3]),
            f"{rows[-1][3]:+.1f}",
            f"{rows[-1][4]:.1f}",
        ]
    yield ["mean over sets", "", *(f"{one:.1f}" for one in np.mean(rows, axis=0)[:3]), "", ""]
