"""Constants of chips at which published runs are predicted best, with sets left out."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

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
    found = (chip.matmul_efficiency, chip.memory_efficiency, chip.attention_forward)
    shares = {name: float(one.value) for name, one in zip(CHIP, found, strict=True)}
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


def fitted(several: Sequence[Run]) -> Constants:
    """The constants at which runs are nearest to what was measured: least squares of logarithms, sets weigh alike."""
    names = [name for name in CHIP if any(name in shipped(run.row["set"]) for run in several)]
    counts = Counter(run.row["set"] for run in several)
    weights = np.array([counts[run.row["set"]] ** -0.5 for run in several])
    effects = np.array([[slopes(run).get(name, 0.0) for name in names] for run in several])
    starts = {name: next(own[name] for run in several if name in (own := shipped(run.row["set"]))) for name in names}
    generation = several[0].asked["generation"]
    likely = dict(forecast(generation)) if generation != "ampere" else {}
    held = np.array([[SPREAD**0.5 * (name == other) for other in names] for name in names if name in likely])
    wanted = np.array([SPREAD**0.5 * np.log(likely[name] / starts[name]) for name in names if name in likely])
    off = np.array([np.log(run.measured / run.planned()) for run in several])
    rows, aims = effects * weights[:, None], off * weights
    if likely:
        rows, aims = np.vstack([rows, held]), np.concatenate([aims, wanted])
    moves, *_ = np.linalg.lstsq(rows, aims, rcond=None)
    return tuple(
        (name, round(float(min(0.99, starts[name] * np.exp(move))), 3)) for name, move in zip(names, moves, strict=True)
    )


@cache
def ampere() -> Constants:
    """What the sets of Ampere come to."""
    return fitted(tuple(run for run in runs() if run.asked["generation"] == "ampere"))


def forecast(generation: str) -> Constants:
    """What is known of a generation without its own sets: Ampere's constants, times what libraries state of both."""
    return times(generation, ampere())


def times(generation: str, known: Constants) -> Constants:
    """Ampere's constants as another generation's: what the same library states of both is the factor between them."""
    stated = chosen()["generations"].get(generation, {})
    return tuple((name, value * stated[name]["factor"] if name in stated else value) for name, value in known)


def taken(run: Run, constants: Constants) -> Constants:
    """Those of them that a run depends on."""
    return tuple(pair for pair in constants if pair[0] in shipped(run.row["set"]))


def left_out(name: str) -> Constants | None:
    """Constants of its generation that other sets come to; None where there are none."""
    generation = chosen()["sets"][name]["generation"]
    others = [run for run in runs() if run.asked["generation"] == generation and run.row["set"] != name]
    return fitted(tuple(others)) if others else None


def by_constants(constants: Constants) -> Callable[[Run], float]:
    """Tpsim's seconds with these constants."""
    return lambda run: run.planned(taken(run, constants))
