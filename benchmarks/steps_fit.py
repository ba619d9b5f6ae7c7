"""Constants of chips at which published runs are predicted best, with sets left out."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import tpsim
from steps_runs import Constants, Run, chosen, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STEP = 1.08
"""A constant is changed by this factor to see how a run depends on it."""

SPREAD = 0.11
"""How strongly a generation with few sets is held to the constants of Ampere, of which there are most: an error of 5 %
of a set weighs as much as a constant that differs by 15 %."""

CHIP = ("matmul_efficiency", "memory_efficiency", "attention_efficiency")


@cache
def shipped(name: str) -> Mapping[str, float]:
    """The constants of a set as its profile has them."""
    run = next(run for run in runs() if run.row["set"] == name)
    chip = tpsim.plan(run.scenario()).question.machine.chip
    fused = chip.attention_efficiency and chip.attention_efficiency.forward
    found = (chip.matmul_efficiency, chip.memory_efficiency, fused, chip.interruption)
    shares = {name: float(one.value) for name, one in zip((*CHIP, "interruption"), found, strict=True) if one}
    if run.asked["practice"].get("attention") == "plain":
        del shares["attention_efficiency"]
    return shares


@cache
def slopes(run: Run) -> Mapping[str, float]:
    """How seconds grow with a constant: the slope of their logarithms."""
    found = {}
    for name in CHIP:
        if name in (own := shipped(run.row["set"])):
            other = min(0.99, own[name] * STEP)
            found[name] = np.log(run.planned(((name, other),)) / run.planned()) / np.log(other / own[name])
    return found


class Late(NamedTuple):
    """The interruption that chips have, in seconds: of GPUs a process for each, of TPUs one for several."""

    gpus: float
    tpus: float

    def of(self, run: Run) -> float:
        """Of the chips of a run."""
        return self.tpus if run.asked["generation"].startswith("tpu") else self.gpus

    def moves(self, run: Run) -> float:
        """By how much a run takes longer than with what its profile ships, in logarithms."""
        share = run.late_s / run.planned()
        return float(np.log1p(share * ((self.of(run) / shipped(run.row["set"])["interruption"]) ** 0.5 - 1)))


class Fit(NamedTuple):
    """Constants at which runs are nearest to what was measured, and the sum of squares that is left."""

    constants: Constants
    left: float


def fitted(several: Sequence[Run], late: Late, *without: str) -> Constants:
    """The constants at which runs are nearest to what was measured: least squares of logarithms, sets weigh alike.

    late     what ranks come late by
    without  sets that have no part in what is known of Ampere either
    """
    return (*fit(several, late, *without).constants, ("interruption", late.of(several[0])))


def fit(several: Sequence[Run], late: Late, *without: str) -> Fit:
    """The same, of shares of peaks alone."""
    names = [name for name in CHIP if any(name in shipped(run.row["set"]) for run in several)]
    counts = Counter(run.row["set"] for run in several)
    weights = np.array([counts[run.row["set"]] ** -0.5 for run in several])
    effects = np.array([[slopes(run).get(name, 0.0) for name in names] for run in several])
    starts = {name: next(own[name] for run in several if name in (own := shipped(run.row["set"]))) for name in names}
    generation = several[0].asked["generation"]
    likely = dict(forecast(generation, late, *without)) if generation != "ampere" else {}
    held = np.array([[SPREAD**0.5 * (name == other) for other in names] for name in names if name in likely])
    wanted = np.array([SPREAD**0.5 * np.log(likely[name] / starts[name]) for name in names if name in likely])
    off = np.array([np.log(run.measured / run.planned()) - late.moves(run) for run in several])
    rows, aims = effects * weights[:, None], off * weights
    if likely:
        rows, aims = np.vstack([rows, held]), np.concatenate([aims, wanted])
    moves, *_ = np.linalg.lstsq(rows, aims, rcond=None)
    found = tuple(
        (name, round(float(min(0.99, starts[name] * np.exp(move))), 3)) for name, move in zip(names, moves, strict=True)
    )
    return Fit(found, float(((rows @ moves - aims) ** 2).sum()))


def of_sets(generation: str, *without: str) -> tuple[Run, ...]:
    """The runs of a generation, some sets left out."""
    return tuple(run for run in runs() if run.asked["generation"] == generation and run.row["set"] not in without)


@cache
def interruption(*without: str) -> Late:
    """What ranks come late by, at which what is left of all sets is least: of GPUs first, then of TPUs."""

    def left(generations: Sequence[str], late: Late) -> float:
        known = (of_sets(generation, *without) for generation in generations)
        return sum(fit(several, late, *without).left for several in known if several)

    gpus = _least(lambda value: left(("ampere", "hopper"), Late(value, 0)))
    return Late(gpus, _least(lambda value: left(("tpu-v5",), Late(gpus, value))))


def _least(left: Callable[[float], float]) -> float:
    """Where something is least: of values three digits, a hundredth apart, then between the neighbours."""
    ends = np.geomspace(*LIKELY_LATE, 25)
    while ends[1] / ends[0] > 1 + 1e-3:
        best = int(np.argmin([left(value) for value in ends]))
        ends = np.geomspace(ends[max(best - 1, 0)], ends[min(best + 1, len(ends) - 1)], 9)
    return float(f"{ends[4]:.3g}")


LIKELY_LATE = 1e-8, 1e-4
"""Seconds between which an interruption is looked for."""


@cache
def ampere(late: Late, *without: str) -> Constants:
    """What the sets of Ampere come to."""
    return fit(of_sets("ampere", *without), late).constants


def forecast(generation: str, late: Late, *without: str) -> Constants:
    """What is known of a generation without its own sets: Ampere's constants, times what libraries state of both."""
    return times(generation, ampere(late, *without))


def times(generation: str, known: Constants) -> Constants:
    """Ampere's constants as another generation's: what the same library states of both is the factor between them."""
    stated = chosen()["generations"].get(generation, {})
    return tuple((name, value * stated[name]["factor"] if name in stated else value) for name, value in known)


def taken(run: Run, constants: Constants) -> Constants:
    """Those of them that a run depends on."""
    return tuple(pair for pair in constants if pair[0] in shipped(run.row["set"]))


def left_out(name: str) -> Constants | None:
    """Constants of its generation that other sets come to; None where there are none."""
    others = of_sets(chosen()["sets"][name]["generation"], name)
    return fitted(others, interruption(name), name) if others else None


def foretold(name: str) -> Constants:
    """The constants that other sets come to, of another generation where its own has none."""
    generation, late = chosen()["sets"][name]["generation"], interruption(name)
    run = next(run for run in runs() if run.row["set"] == name)
    return left_out(name) or (*forecast(generation, late, name), ("interruption", late.of(run)))


def by_constants(constants: Constants) -> Callable[[Run], float]:
    """Tpsim's seconds with these constants."""
    return lambda run: run.planned(taken(run, constants))
