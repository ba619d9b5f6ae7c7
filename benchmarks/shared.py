"""Shape constants that machines share, fitted to measurements of several machines at once: one factor for each.

A profile states them in its own figures, because latencies scale with a chip's clock and bandwidths with its links; a
factor of `protocols.ll.latency` multiplies that figure of every machine.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from tpsim.calibrate.calibrate import GENERATIONS, adjustable, adjusted
from tpsim.calibrate.determine import Fit, FitParameter, fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.calibrate.run import Array, MeasuredRun
    from tpsim.machine.parts import Machine

    Seen = Sequence[tuple[Machine, Sequence[MeasuredRun]]]

STATED = frozenset({"link.bandwidth", "link.efficiency", "algorithms.in-switch.efficiency"})
"""Never shared: what machine by machine is stated."""

FREE = 33.0
"""How much farther off a shape constant may be than a figure that a user fits: what is left out is to be forgotten."""


def fitted(seen: Seen) -> Fit:
    """One factor for each shape constant, the same for all machines; 1 where the measurements do not tell it.

    seen  machines, each with what was measured on it

    Raises ValueError without any point.
    """

    def predict(factors: Mapping[str, float]) -> Array:
        scaled_machines = [(scaled(machine, factors), runs) for machine, runs in seen]
        return np.concatenate([one.predicted(machine) for machine, runs in scaled_machines for one in runs])

    return fit(predict, factors_of(seen), [value for _, runs in seen for one in runs for value in one.seconds])


def factors_of(seen: Seen) -> list[FitParameter]:
    """What is fitted: the shape constants of the levels that were measured, each a factor that starts at 1.

    A factor is as well known as on the machine that knows it best: what one machine guesses frees it on no other.
    """
    spreads: dict[str, float] = {}
    for machine, runs in seen:
        for one in adjustable(machine, {segment.level for each in runs for segment in each.route}):
            shape = shape_of(one.name)
            spreads[shape] = min(spreads.get(shape, inf), FREE * one.spread)
    return [FitParameter(shape, 1.0, spread) for shape, spread in spreads.items() if shape not in STATED]


def scaled(machine: Machine, factors: Mapping[str, float]) -> Machine:
    """The machine with its shape constants multiplied by these factors; a share stays at most the whole."""
    every = adjustable(machine, {level.name for level in machine.levels})
    named = [(one, shape_of(one.name)) for one in every]
    values = {one.name: min(one.start * factors[shape], one.largest) for one, shape in named if shape in factors}
    return adjusted(machine, values)


def by_latencies(machine: Machine, factor: float) -> Machine:
    """The machine with the latencies of its innermost level, those of chunks too, times a factor."""
    inner = machine.levels[0].name
    every = [one for one in adjustable(machine, {inner}) if one.name.endswith("latency")]
    return adjusted(machine, {one.name: one.start * factor for one in every})


def latency_factor(seen: Seen) -> float:
    """The one factor of such latencies that fits; its prior is that of `tpsim hw fit`."""

    def predict(values: Mapping[str, float]) -> Array:
        slower = [(by_latencies(machine, values["latencies"]), runs) for machine, runs in seen]
        return np.concatenate([one.predicted(machine) for machine, runs in slower for one in runs])

    seconds = [value for _, runs in seen for one in runs for value in one.seconds]
    return fit(predict, [FitParameter("latencies", 1.0, GENERATIONS)], seconds).values["latencies"]


def shape_of(path: str) -> str:
    """The shape constant that a level's figure is an instance of: its path, less the level's name.

    >>> shape_of("levels.nvlink.protocols.ll.latency")
    'protocols.ll.latency'
    """
    return path.split(".", 2)[2]
