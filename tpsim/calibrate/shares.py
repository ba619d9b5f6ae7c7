"""Shares of peak, and a host's launch, moved by measured steps: as far as these tell, held by how shares scatter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tpsim.calibrate.determine import posterior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.calibrate.run import Array
    from tpsim.machine.evidence import SharesFields

SHARES: Mapping[str, Sequence[str]] = {
    "matmul_efficiency": ("chip.matmul_efficiency",),
    "memory_efficiency": ("chip.memory_efficiency",),
    "attention_efficiency": ("chip.attention_efficiency.forward", "chip.attention_efficiency.backward"),
}
"""What of a chip steps may move: a share of peak, and the constants that it is of, which move together."""

LAUNCH = "kernel_launch"

WHOLE = 1.0
"""No share is more than all of the peak."""

NONE = 1e-4
"""A figure that seconds grow less with, per logarithm, does not matter to a run."""


@dataclass(frozen=True, slots=True)
class Effects:
    """How predicted seconds of runs depend on figures, about where these are.

    shares    share -> its value
    logs      logarithms of seconds: runs x launches
    slopes    share -> by how much they grow with its logarithm, for every run
    launches  of a host, over where it is, that `logs` are at; one where none moves
    """

    shares: Mapping[str, float]
    logs: Array
    slopes: Mapping[str, Array]
    launches: Sequence[float] = (1.0,)

    def seconds(self, moves: Mapping[str, float]) -> Array:
        """Of every run where figures have moved by these logarithms."""
        shares = sum(
            (
                self.slopes[name] * min(by, np.log(WHOLE / self.shares[name]))
                for name, by in moves.items()
                if name in self.slopes
            ),
            start=np.zeros(len(self.logs)),
        )
        seconds: Array = np.exp(self._launched(moves.get(LAUNCH, 0.0)) + shares)
        return seconds

    def _launched(self, by: float) -> Array:
        """Logarithms of seconds; between two launches, and beyond the last, as from one to the next."""
        if len(self.launches) == 1:
            return np.asarray(self.logs[:, 0], dtype=np.float64)
        where = np.log(self.launches)
        left = int(np.clip(np.searchsorted(where, by) - 1, 0, len(where) - 2))
        part = (by - where[left]) / (where[left + 1] - where[left])
        return np.asarray(self.logs[:, left] * (1 - part) + self.logs[:, left + 1] * part, dtype=np.float64)

    def part(self, runs: Sequence[int]) -> Effects:
        """Of some of the runs alone."""
        slopes = {name: slope[list(runs)] for name, slope in self.slopes.items()}
        return replace(self, logs=self.logs[list(runs)], slopes=slopes)

    @property
    def told(self) -> list[str]:
        """The figures that matter to any of the runs."""
        return [name for name, slopes in self.slopes.items() if np.abs(slopes).max() > NONE] + (
            [LAUNCH] if len(self.launches) > 1 and np.ptp(self.logs, axis=1).max() > NONE else []
        )


@dataclass(frozen=True, slots=True)
class MovedFigures:
    """Where figures come to: logarithms of value over start, with one deviation of each before and after."""

    by: Mapping[str, float]
    before: Mapping[str, float]
    after: Mapping[str, float]


def moved(
    effects: Effects, measured: Sequence[float], scatter: Mapping[str, Mapping[str, float]], noise: float
) -> MovedFigures:
    """The figures that runs of these measured seconds are likely to have.

    scatter  figure -> figure -> covariance of their logarithms, before; noise of a run about its set, relative
    """
    names = effects.told
    covariance = np.array([[scatter[name][other] for other in names] for name in names])
    moves, after = posterior(lambda by: effects.seconds(dict(zip(names, by, strict=True))), covariance, measured, noise)
    before = np.sqrt(np.diag(covariance))
    return MovedFigures(*(dict(zip(names, map(float, some), strict=True)) for some in (moves, before, after)))


def scatter(evidence: SharesFields, generation: str, launch: float) -> dict[str, dict[str, float]]:
    """Covariance of the logarithms of shares, and of a launch: those of a generation, or wider of one not known.

    launch  one deviation of the logarithm of a host's launch: nothing of it follows from shares
    """
    unseen = 0 if generation in evidence.known else 1
    whole = np.array(evidence.between_sets) + unseen * np.array(evidence.between_generations)
    shares = {
        name: dict(zip([*evidence.of, LAUNCH], [*row, 0.0], strict=True))
        for name, row in zip(evidence.of, whole, strict=True)
    }
    return {**shares, LAUNCH: {**dict.fromkeys(evidence.of, 0.0), LAUNCH: launch**2}}
