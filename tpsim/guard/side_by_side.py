"""A drift as pictures: the step and the memory of each scenario that moved, old over new."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tpsim.guard.moved_numbers import HELD, relative
from tpsim.quantity.size import total
from tpsim.quantity.units import show
from tpsim.report.picture import Span, Spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.guard.drift import Drift
    from tpsim.guard.lock_parts import ScenarioFact
    from tpsim.quantity.units import Dimension
    from tpsim.report.picture import Picture

STEP = {"compute": "compute_s", "exposed communication": "exposed_s", "bubble": "bubble_s", "host": "host_s"}
"""What a step is made of, and the results that say how much."""

STATES, KEPT, WORKING = "states", "kept", "working"

FEW = 6
"""Scenarios that are drawn: those whose step moves most."""


def pictures(drift: Drift) -> Iterator[Picture]:
    """What moved, drawn; nothing where nothing did."""
    moved = sorted(drift.changed, key=lambda name: -_effect(name, drift))
    if not moved:
        return
    some = f" Of {len(moved)} scenarios the {FEW} whose steps move most." if len(moved) > FEW else ""
    sides = {
        f"{name}, {side}" if len(moved) > 1 else side: lock.scenarios[name]
        for name in moved[:FEW]
        for side, lock in (("old", drift.old), ("new", drift.new))
    }
    steps = {side: _spans(_step(fact), "seconds") for side, fact in sides.items()}
    yield Spans("The step, side by side", f"What a step is made of, old above new.{some}", steps, list(STEP))
    spans = {side: _spans(_memory(fact), "bytes") for side, fact in sides.items()}
    parts = (STATES, KEPT, WORKING)
    yield Spans("Memory, side by side", f"What the peak is made of, old above new.{some}", spans, parts, kind="bytes")


def _effect(name: str, drift: Drift) -> float:
    return abs(relative(*(lock.scenarios[name].result("step_s") for lock in (drift.old, drift.new))) or 0)


def _step(fact: ScenarioFact) -> dict[str, float]:
    return {part: float(fact.result(key) or 0) for part, key in STEP.items()}


def _memory(fact: ScenarioFact) -> dict[str, float]:
    """The bytes at the peak; of an old result, which knows none, the states."""
    states, kept = (float(total(fact.result(key) or 0 for key in keys)) for keys in (HELD, ("kept_bytes",)))
    return {STATES: states, KEPT: kept, WORKING: float(fact.result("peak_bytes") or 0) - states - kept}


def _spans(parts: Mapping[str, float], kind: Dimension) -> list[Span]:
    """Parts one behind the other, each with its size."""
    present = [(part, size) for part, size in parts.items() if size > 0]
    ends = list(accumulate(size for _, size in present))
    return [Span(end - size, end, part, show(size, kind)) for end, (part, size) in zip(ends, present, strict=True)]
