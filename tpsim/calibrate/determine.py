"""Positive parameters fitted to measured seconds: robust, in the logarithm, only as far as the data can tell.

Least squares of log(measured/predicted) with Huber's weights (Robust Estimation of a Location Parameter, 1964), by
Levenberg's damped Gauss-Newton steps. Each parameter has a spread: how far off its start may be. It serves as a weak
pull to the start, and as the yardstick of what the data can tell: a parameter moves only if the data say as much of it
as its spread does, after those that they say more of (pivoted Gram-Schmidt on the sensitivities).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpsim.calibrate.run import Array

Predict = Callable[[Mapping[str, float]], Array]
"""Values of parameters by name -> predicted seconds of every point."""

NOISE = 0.04
"""Standard deviation of a measured time that the fit reckons with, relative; what repeated runs show."""

HUBER = 1.345
"""Deviations, in units of the noise, from which a point counts less: 95 % efficient on normal noise (Huber)."""

TELLING = 1.0
"""Least norm of a sensitivity, in spreads per noise, for the data to say as much of a parameter as its spread does."""

MEDIAN_TO_DEVIATION = 1.4826
"""Of a normal variable: its standard deviation over the median of its magnitude."""

STEP = 1e-3
ROUNDS = 4
ITERATIONS = 40
LARGEST_DAMPING = 1e5

ENOUGH = 1e-3
"""A gain of the misfit, relative, that is not worth another step."""


@dataclass(frozen=True, slots=True)
class FitParameter:
    """Something positive to fit.

    start    its value before the fit
    spread   how far off that may be: one standard deviation of its logarithm
    largest  a bound that it cannot pass
    """

    name: str
    start: float
    spread: float
    largest: float = float("inf")


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit came to.

    values   of every parameter: moved, or its start
    moved    those that the data could determine, the best determined first: one standard deviation of each, relative
    merged   names of those that matter to the data but cannot be told from the moved ones
    bounded  names of those that stopped at their bound
    misfit   twice the negative logarithm of the likelihood, and of how far the parameters are from their starts
    """

    values: Mapping[str, float]
    moved: Mapping[str, float]
    merged: tuple[str, ...]
    bounded: tuple[str, ...]
    misfit: float


def fit(predict: Predict, parameters: Sequence[FitParameter], seconds: Sequence[float]) -> Fit:
    """Move `parameters` so that predicted seconds come near the measured ones.

    predict  the model; it is asked for parameters by name
    seconds  measured, one for each point that `predict` returns

    Raises ValueError if a time is not positive, or if there are none.
    """
    times = np.asarray(seconds, dtype=np.float64)
    if not times.size or not np.all(times > 0):
        raise ValueError("a fit needs positive times")
    problem = _Problem(predict, tuple(parameters), np.log(times))
    x = np.zeros(len(parameters))
    tried: list[tuple[Array, list[int]]] = [(x, [])]
    for _ in range(ROUNDS):
        chosen = problem.told(x)
        if set(chosen) == set(tried[-1][1]):
            break
        x = problem.settled(problem.only(x, chosen), chosen)
        tried.append((x, chosen))
    # The least misfit, with what each parameter has to gain to be worth moving.
    x, chosen = min(tried, key=lambda attempt: problem.misfit(attempt[0]) + TELLING**2 * len(attempt[1]))
    return problem.answer(*problem.pruned(x, chosen))


DISTINCT = 1
"""Decimals of a deviation in which two modes differ."""


def posterior(
    predict: Callable[[Array], Array], covariance: Array, seconds: Sequence[float], noise: float
) -> tuple[Array, Array]:
    """Where parameters come to that all move, each by what is told of it beside what was known; one deviation of each.

    predict     logarithms of values over their starts -> predicted seconds of every point
    covariance  of these logarithms, before anything was measured
    noise       standard deviation of a measured time about what the model can say of it, relative

    It is begun at the start and one deviation to either side of it, for what a parameter does may begin only there; of
    the modes that it ends in, the mean, each as likely as Laplace's approximation has it: a point that two parameters
    explain alike moves neither wholly.
    """
    spread = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    names = [str(at) for at in range(len(spread))]
    apart = tuple(FitParameter(name, 1.0, 1.0) for name in names)
    problem = _Problem(
        lambda values: predict(spread @ np.log([values[name] for name in names])),
        apart,
        np.log(np.asarray(seconds, dtype=np.float64)),
        noise,
    )
    every = list(range(len(apart)))
    begun = (np.zeros(len(apart)), *np.eye(len(apart)), *-np.eye(len(apart)))
    settled = [problem.settled(start, every) for start in begun]
    modes = np.array(list({tuple(np.round(x, DISTINCT)): x for x in settled}.values()))
    left = np.array([np.linalg.inv(problem.descent(x, every)[1]) for x in modes])
    likely = np.log(np.linalg.det(left)) / 2 - np.array([problem.misfit(x) for x in modes]) / 2
    weights = np.exp(likely - likely.max())
    weights /= weights.sum()
    mean = weights @ modes
    about = np.einsum("m,mij->ij", weights, left) + (modes - mean).T * weights @ (modes - mean)
    return spread @ mean, np.sqrt(np.diag(spread @ about @ spread.T))


@dataclass(frozen=True, slots=True)
class _Problem:
    """A fit's question; x is log(value/start) of every parameter."""

    predict: Predict
    parameters: tuple[FitParameter, ...]
    measured: Array
    noise: float = NOISE
    known: dict[bytes, Array] = field(default_factory=dict)

    @property
    def spreads(self) -> Array:
        return np.array([parameter.spread for parameter in self.parameters])

    @property
    def bounds(self) -> Array:
        return np.array([np.log(parameter.largest / parameter.start) for parameter in self.parameters])

    def values(self, x: Array) -> dict[str, float]:
        return {
            parameter.name: float(parameter.start * np.exp(by))
            for parameter, by in zip(self.parameters, x, strict=True)
        }

    def residuals(self, x: Array) -> Array:
        """log(measured/predicted); of one x it is asked for by misfit, descent and what is told."""
        if (at := x.tobytes()) not in self.known:
            self.known[at] = self.measured - np.log(self.predict(self.values(x)))
        return self.known[at]

    def sensitivities(self, x: Array, chosen: Sequence[int]) -> Array:
        """Points x chosen parameters: by how much log(predicted) grows with log(value)."""
        here = self.residuals(x)
        columns = []
        for at in chosen:
            nudged = x.copy()
            nudged[at] += STEP
            columns.append((here - self.residuals(nudged)) / STEP)
        return np.array(columns).reshape(len(chosen), here.size).T

    def told(self, x: Array) -> list[int]:
        """The parameters that the data can tell, the best told first."""
        left = self.sensitivities(x, range(len(self.parameters))) * self.spreads / self.noise
        chosen: list[int] = []
        for _ in range(min(left.shape)):
            norms = np.linalg.norm(left, axis=0)
            best = int(np.argmax(norms))
            if norms[best] < TELLING:
                break
            chosen.append(best)
            direction = left[:, best] / norms[best]
            left = left - np.outer(direction, direction @ left)
            left[:, best] = 0.0
        return chosen

    def settled(self, x: Array, chosen: Sequence[int]) -> Array:
        """The x at which misfit and pull to the start are least together; those chosen move, within bounds."""
        damping, best = 1e-2, self.misfit(x)
        for _ in range(ITERATIONS):
            towards, curvature = self.descent(x, chosen)
            gained = 0.0
            while gained <= 0 and damping < LARGEST_DAMPING:
                step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), towards)
                trial = x.copy()
                trial[chosen] = np.minimum(x[chosen] + step, self.bounds[chosen])
                misfit = self.misfit(trial)
                gained = best - misfit
                damping = damping / 10 if gained > 0 else damping * 10
            if gained > 0:
                x, best = trial, misfit
            if gained < ENOUGH * best:
                break
        return x

    def only(self, x: Array, chosen: Sequence[int]) -> Array:
        """The x with all others at their start."""
        return np.where(np.isin(np.arange(x.size), chosen), x, 0.0)

    def pruned(self, x: Array, chosen: list[int]) -> tuple[Array, list[int]]:
        """The fit without parameters that it is as good without: told at the start, but no longer where it ended."""
        loose = self.deviations(x, chosen) > self.spreads[chosen] / 2
        for at in [index for index, open_ in zip(chosen, loose, strict=True) if open_]:
            fewer = [other for other in chosen if other != at]
            trial = self.settled(self.only(x, fewer), fewer)
            if self.misfit(trial) - self.misfit(x) < TELLING**2:
                x, chosen = trial, fewer
        return x, chosen

    def deviations(self, x: Array, chosen: Sequence[int]) -> Array:
        """One standard deviation of log(value) of the chosen ones; misfit beyond the noise widens it."""
        if not chosen:
            return np.zeros(0)
        wider = max(1.0, MEDIAN_TO_DEVIATION * float(np.median(np.abs(self.residuals(x)))) / self.noise)
        inverse = np.linalg.inv(self.descent(x, chosen)[1])
        return wider * np.sqrt(np.diag(inverse))

    def misfit(self, x: Array) -> float:
        """Twice the negative logarithm of the likelihood: Huber's loss of the residuals, and the pull to the start."""
        off = np.abs(self.residuals(x)) / self.noise
        return float(
            np.sum(np.where(off <= HUBER, off**2, HUBER * (2 * off - HUBER))) + np.sum((x / self.spreads) ** 2)
        )

    def descent(self, x: Array, chosen: Sequence[int]) -> tuple[Array, Array]:
        """Gradient downhill and curvature of half the misfit, along the chosen parameters."""
        off = self.residuals(x) / self.noise
        weights = np.minimum(1.0, HUBER / np.maximum(np.abs(off), HUBER))
        J = self.sensitivities(x, chosen) / self.noise
        pull = self.spreads[chosen] ** -2.0
        return J.T @ (weights * off) - pull * x[chosen], J.T @ (weights[:, None] * J) + np.diag(pull)

    def answer(self, x: Array, chosen: Sequence[int]) -> Fit:
        """The fit as its values."""
        names = [parameter.name for parameter in self.parameters]
        deviations = self.deviations(x, chosen)
        matter = np.linalg.norm(self.sensitivities(x, range(len(names))) * self.spreads / self.noise, axis=0) >= TELLING
        return Fit(
            values=self.values(x),
            moved={names[at]: float(by) for at, by in zip(chosen, deviations, strict=True)},
            merged=tuple(name for at, name in enumerate(names) if matter[at] and at not in chosen),
            bounded=tuple(names[at] for at in chosen if x[at] >= self.bounds[at]),
            misfit=self.misfit(x),
        )
