"""A profile's figures fitted to measured times: few named knobs, kept near the profile where the data say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from tpsim.machine import timing
from tpsim.machine.profile import Constant, Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    if isinstance(found, Mapping):
        return {name: _replaced(each, values) for name, each in found.items()}
    if isinstance(found, tuple):
        return tuple(_replaced(each, values) for each in found)
    if is_dataclass(found) and not isinstance(found, type):
        return replace(found, **{one.name: _replaced(getattr(found, one.name), values) for one in fields(found)})
    return found


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

NOISE = 0.04
"""Scatter that measured times show from run to run, as a share."""

OUTLIER = 1.5
"""From how many times the scatter on a point counts by its distance instead of its square."""


def knobs(machine: Machine) -> list[Knob]:
    """What is fitted: latencies together, hops, and per protocol its latency, bandwidth and chunks."""
    constants = [constant for level in machine.levels for constant in level.constants()]

    def those(name: str, spread: float, wanted: Callable[[list[str]], bool]) -> Knob:
        return Knob(name, tuple(one.path for one in constants if wanted(one.path.split("."))), spread)

    protocols = list(dict.fromkeys(name for level in machine.levels for name in level.protocols))
    found = [
        those("latency", 0.5, lambda path: path[-1] in LATENCIES or "launch" in path),
        those("hop", 0.3, lambda path: path[-1] == "hop_latency"),
        those("chunk", 0.5, lambda path: path[-1] == "chunk_latency"),
        those("link", 0.2, lambda path: path[-1] == "efficiency" and not _slower(path)),
        those("own", 0.4, lambda path: path[-1] == "own_bandwidth" and not _slower(path)),
    ]
    for name in protocols:
        found.append(those(f"latency of {name}", 0.3, lambda path, name=name: path[-2:] == [name, "latency"]))  # type: ignore[misc]
        if name != timing_simple():
            found.append(
                those(
                    f"bandwidth of {name}",
                    0.3,
                    lambda path, name=name: path[-2:-1] == [name] and path[-1] in {"efficiency", "own_bandwidth"},  # type: ignore[misc]
                )
            )
    return [knob for knob in found if knob.paths]


def timing_simple() -> str:
    """The protocol that large messages take."""
    from tpsim.machine.cost import SIMPLE

    return SIMPLE


def _slower(path: list[str]) -> bool:
    """True for a figure of a protocol that is not the one of large messages."""
    return "protocols" in path and timing_simple() not in path


def fit(machine: Machine, measured: Sequence[Series], wanted: Sequence[Knob] | None = None) -> Fit:
    """Turn the knobs until the machine's times are those measured, as near to its own figures as the data allow.

    Least squares of the logarithms, with less weight for points far off, and every knob held at 1 by its spread.
    """
    import numpy as np

    used = list(knobs(machine) if wanted is None else wanted)
    spread = np.array([knob.spread for knob in used])
    target = np.log(np.concatenate([series.seconds for series in measured]))

    def residual(logs: Array) -> Array:
        changed = replaced(machine, _values(machine, used, logs))
        return (np.log(_times(changed, measured)) - target) / NOISE

    logs, slopes = _descend(residual, spread)
    curvature = np.sum(slopes**2, axis=0) * spread**2
    certainty = {knob.name: float(each / (1 + each)) for knob, each in zip(used, curvature, strict=True)}
    values = _values(machine, used, logs)
    factors = {knob.name: float(np.exp(one)) for knob, one in zip(used, logs, strict=True)}
    return Fit(replaced(machine, values), factors, certainty, values)


def _values(machine: Machine, used: Sequence[Knob], logs: Array) -> dict[str, float]:
    """Every constant that the knobs move, with its new value; a share stays at most the whole."""
    import numpy as np

    moved: dict[str, float] = {}
    for knob, log in zip(used, logs, strict=True):
        for path in knob.paths:
            moved[path] = moved.get(path, 0.0) + float(log)
    own = {one.path: one for one in machine.constants()}
    values = {path: own[path].value * float(np.exp(log)) for path, log in moved.items()}
    return {path: min(value, 1.0) if own[path].dimension == "ratio" else value for path, value in values.items()}


def _times(machine: Machine, measured: Sequence[Series]) -> Array:
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
