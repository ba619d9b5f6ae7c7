"""A machine with other figures: which of a level's constants a measurement may correct, and the machine with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.calibrate.determine import Parameter
from tpsim.machine.profile import changed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tpsim.machine.profile import Constant, Level, Machine

SPREADS: Mapping[str, float] = {
    "launch": 0.21,
    "latency": 0.15,
    "hop_latency": 0.105,
    "chunk_latency": 0.15,
    "device_latency": 0.15,
    "own_bandwidth": 0.15,
    "efficiency": 0.054,
    "bandwidth": 0.054,
}
"""How far a fit shall move a figure: one standard deviation of its logarithm, by what the figure is.

A third of how far a datasheet's figure may be off the machine; launches differ by harness and host, plateaus hardly.
So narrow, because constants carry over to other collectives and rank counts, and a few points cannot tell a constant
that is off from structure over the sizes that no constant describes: that is left to the measured curve.
"""

GUESSED = 2.0
"""How much farther off a guess may be."""

RATIO = 1.0


def adjustable(machine: Machine, levels: Collection[str]) -> Iterator[Parameter]:
    """The constants of these levels that a measurement may correct, by their paths.

    A datasheet's bandwidth stays where an efficiency says what share of it is reached, and the efficiency where it is
    all of it. What costs nothing stays so.
    """
    for level in (one for one in machine.levels if one.name in levels):
        for constant in level.constants():
            role = _role(constant, level)
            if role in SPREADS and constant.value > 0:
                largest = RATIO if constant.dimension == "ratio" else float("inf")
                spread = SPREADS[role] * (GUESSED if constant.kind == "guess" else 1)
                yield Parameter(constant.path, constant.value, spread, largest)


def _role(constant: Constant, level: Level) -> str:
    """What a constant is: the last part of its path, less the harness of a launch."""
    inner = constant.path.split(".")[2:]
    whole = level.efficiency.value == RATIO
    if constant is (level.efficiency if whole else level.bandwidth) or "counted" in inner:
        return ""
    return inner[0] if inner[0] == "launch" else inner[-1]


def adjusted(machine: Machine, values: Mapping[str, float]) -> Machine:
    """The machine with other values for the constants at these paths."""
    touched = {path.split(".")[1] for path in values}

    def other(constant: Constant) -> Constant:
        return replace(constant, value=values[constant.path]) if constant.path in values else constant

    levels = tuple(changed(level, other) if level.name in touched else level for level in machine.levels)
    return replace(machine, levels=levels)


def with_harness(machine: Machine, harness: str) -> Machine:
    """The machine with a launch latency for that harness on every level: its default, where it has none.

    The new ones are guesses, as nobody has said what that harness takes.
    """
    return replace(machine, levels=tuple(_harnessed(level, harness) for level in machine.levels))


def _harnessed(level: Level, harness: str) -> Level:
    if harness in level.launch:
        return level
    default = next(iter(level.launch.values()))
    path = f"levels.{level.name}.launch.{harness}"
    own = replace(default, path=path, kind="guess", source="", note="as the default harness")
    return replace(level, launch={**level.launch, harness: own})
