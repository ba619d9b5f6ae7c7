"""A profile's figures fitted to measured times: few named knobs, kept near the profile where the data say nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tpsim.machine import timing
from tpsim.machine.cost import SIMPLE
from tpsim.machine.profile import Constant, Level, Machine, Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.wires import Route
    from tpsim.machine.additive import Launch
    from tpsim.quantity.size import Size

    Array = np.ndarray[Any, np.dtype[np.float64]]


def predict(
    machine: Machine,
    route: Route,
    kind: MoveKind,
    V: Size,
    parameters: Mapping[str, float],
    *,
    launch: Launch = None,
    algorithm: str | None = None,
) -> Any:
    """Seconds of a collective on a machine whose constants have other values.

    V           bytes of the whole array: a number, an array or a symbol
    parameters  path of a constant -> its value in SI units; the others stay as they are
    """
    return timing.time(replaced(machine, parameters), route, kind, V, launch=launch, algorithm=algorithm).time_s


def replaced(machine: Machine, values: Mapping[str, float]) -> Machine:
    """The machine with these values in place of its own, by the constants' paths."""
    return replace(machine, levels=_replaced(machine.levels, values))


def _replaced(found: Any, values: Mapping[str, float]) -> Any:
    if isinstance(found, Constant):
        return replace(found, value=values[found.path]) if found.path in values else found
    if isinstance(found, dict):
        return {name: _replaced(each, values) for name, each in found.items()}
    if isinstance(found, tuple):
        return tuple(_replaced(each, values) for each in found)
    if isinstance(found, Level | Tuning):
        return type(found)(**{name: _replaced(getattr(found, name), values) for name in _FIELDS[type(found)]})
    return found


_FIELDS = {kind: tuple(one.name for one in fields(kind)) for kind in (Level, Tuning)}


@dataclass(frozen=True, slots=True)
class Series:
    """Measured times of one collective over one route, by size.

    volumes  bytes of the whole array; seconds has one for each
    """

    route: Route
    kind: MoveKind
    volumes: Array
    seconds: Array
    launch: Launch = None
    algorithm: str | None = None


@dataclass(frozen=True, slots=True)
class Knob:
    """Constants that are multiplied by one factor.

    spread  how far the factor is expected to be from 1: of its logarithm, before anything is measured
    """

    name: str
    paths: tuple[str, ...]
    spread: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted factors, and the machine with them.

    certainty  per knob 0 where the data say nothing about it, 1 where they determine it
    """

    machine: Machine
    factors: Mapping[str, float]
    certainty: Mapping[str, float]
    parameters: Mapping[str, float]


LATENCIES = ("launch", "latency", "hop_latency")
SPEEDS = ("efficiency", "own_bandwidth")

NOISE = 0.04
"""Scatter that measured times show from run to run, as a share."""

OUTLIER = 1.5
"""From how many times the scatter on a point counts by its distance instead of its square."""


def knobs(machine: Machine) -> list[Knob]:
    """What is fitted: latencies together, hops, and per protocol its latency, bandwidth and chunks.

    Sums in switches have knobs of their own: nothing else says anything about them.
    """
    paths = [constant.path for level in machine.levels for constant in level.constants()]
    inside = [path for path in paths if ".in-switch" in path]
    plain = [path for path in paths if path not in inside]
    protocols = dict.fromkeys(name for level in machine.levels for name in level.protocols)
    found = [
        Knob("latency", tuple(path for path in paths if _figure(path) in LATENCIES), 0.5),
        Knob("hop", _of(plain, "hop_latency"), 0.3),
        *(Knob(f"latency of {name}", _of(plain, "latency", name), 0.3) for name in protocols),
        *(Knob(f"bandwidth of {name}", _speeds(plain, name), 0.3) for name in protocols if name != SIMPLE),
        Knob("bandwidth", tuple(path for path in plain if path.endswith("link.efficiency")), 0.2),
        Knob("own share", _of(plain, "own_bandwidth", SIMPLE), 0.4),
        Knob("chunk", _of(plain, "chunk_latency"), 0.5),
        Knob("latency in switches", _of(inside, "latency"), 0.3),
        Knob("bandwidth in switches", _of(inside, "efficiency"), 0.2),
        Knob("chunk in switches", _of(inside, "chunk_latency"), 0.5),
    ]
    return [knob for knob in found if knob.paths]


def _figure(path: str) -> str:
    """What a constant is: the last word of its path, or the launch of a harness."""
    *_, above, last = path.split(".")
    return above if above == "launch" else last


def _of(paths: Sequence[str], figure: str, protocol: str | None = None) -> tuple[str, ...]:
    found = (path for path in paths if path.endswith(f".{figure}"))
    return tuple(path for path in found if protocol is None or f".protocols.{protocol}." in path)


def _speeds(paths: Sequence[str], protocol: str) -> tuple[str, ...]:
    return tuple(path for figure in SPEEDS for path in _of(paths, figure, protocol))


def fit(machine: Machine, measured: Sequence[Series], wanted: Sequence[Knob] | None = None) -> Fit:
    """Turn the knobs until the machine's times are those measured, as near to its own figures as the data allow.

    Least squares of the logarithms, with less weight for points far off, and every knob held at 1 by its spread.
    """
    import numpy as np

    used = [*knobs(machine)] if wanted is None else [*wanted]
    logs, certainty = turned([(machine, measured)], used)
    values = moved(_trimmed(machine, measured), used, logs)
    factors = {knob.name: float(np.exp(log)) for knob, log in zip(used, logs, strict=True)}
    return Fit(replaced(machine, values), factors, certainty, values)


def turned(
    machines: Sequence[tuple[Machine, Sequence[Series]]], used: Sequence[Knob]
) -> tuple[list[float], dict[str, float]]:
    """The logarithms of the knobs' factors, the same for all machines, and how certain each one is."""
    import numpy as np

    spread = np.array([knob.spread for knob in used])
    trimmed = [(_trimmed(machine, measured), measured) for machine, measured in machines]
    target = np.log(np.concatenate([series.seconds for _, measured in machines for series in measured]))

    def residual(logs: Array) -> Array:
        times = [times_of(replaced(each, moved(each, used, logs)), measured) for each, measured in trimmed]
        distance: Array = np.log(np.concatenate(times)) - target
        return distance / NOISE

    logs, slopes = _descend(residual, spread)
    curvature = np.sum(slopes**2, axis=0) * spread**2
    certainty = {knob.name: float(each / (1 + each)) for knob, each in zip(used, curvature, strict=True)}
    return [float(log) for log in logs], certainty


def _trimmed(machine: Machine, measured: Sequence[Series]) -> Machine:
    """The machine with the levels in use only."""
    used = {segment.level for series in measured for segment in series.route}
    return replace(machine, levels=tuple(level for level in machine.levels if level.name in used))


def moved(machine: Machine, used: Sequence[Knob], logs: Sequence[float] | Array) -> dict[str, float]:
    """Every constant that the knobs move, with its new value; a share stays at most the whole."""
    import numpy as np

    total: dict[str, float] = {}
    for knob, log in zip(used, logs, strict=True):
        for path in knob.paths:
            total[path] = total.get(path, 0.0) + float(log)
    own = {one.path: one for level in machine.levels for one in level.constants()}
    values = {path: own[path].value * float(np.exp(log)) for path, log in total.items() if path in own}
    return {path: min(value, 1.0) if own[path].dimension == "ratio" else value for path, value in values.items()}


def times_of(machine: Machine, measured: Sequence[Series]) -> Array:
    """Seconds of every point of every series, in a row."""
    import numpy as np

    return np.concatenate(
        [
            timing.time(machine, one.route, one.kind, one.volumes, launch=one.launch, algorithm=one.algorithm).time_s
            for one in measured
        ]
    )


ROUNDS = 25
STEP = 0.01
"""Of a logarithm, for slopes."""


def _descend(residual: Callable[[Array], Array], spread: Array) -> tuple[Array, Array]:
    """Damped Gauss-Newton steps from all knobs at 1: the logarithms, and the slopes there."""
    import numpy as np

    logs = np.zeros(len(spread))
    here, damping = residual(logs), 1.0
    for _ in range(ROUNDS):
        slopes = np.stack(
            [(residual(logs + STEP * unit) - here) / STEP for unit in np.eye(len(spread))],
            axis=1,
        )
        weight = _weights(here)
        normal = (slopes * weight[:, None]).T @ slopes + np.diag(1 / spread**2)
        downhill = (slopes * weight[:, None]).T @ here + logs / spread**2
        for _ in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -downhill)
            there = residual(logs + step)
            if _badness(there, logs + step, spread) < _badness(here, logs, spread):
                logs, here, damping = logs + step, there, damping / 4
                break
            damping *= 4
        else:
            break
    return logs, slopes


def _weights(residuals: Array) -> Array:
    import numpy as np

    return OUTLIER / np.maximum(np.abs(residuals), OUTLIER)


def _badness(residuals: Array, logs: Array, spread: Array) -> float:
    import numpy as np

    far = np.abs(residuals)
    return float(np.sum(np.where(far < OUTLIER, far**2, OUTLIER * (2 * far - OUTLIER))) + np.sum((logs / spread) ** 2))
