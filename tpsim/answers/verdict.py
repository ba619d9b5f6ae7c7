"""What a plan says in three lines: its time and what is lost of it, its memory, and the change that betters it."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tpsim.cost.step import lost, outlasting
from tpsim.quantity.units import show
from tpsim.report.table import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.changes import Change
    from tpsim.answers.plan import PlanResult


def verdict_lines(plan: PlanResult) -> Iterator[Line]:
    """The lines ``time``, ``memory`` and, where one is better, ``change``; a demand is broken where it belongs."""
    broken = {limit.name: f"; require {limit.name} {limit.text} is violated" for limit in plan.broken}
    idle = "".join(f"; {text}" for text in plan.idle)
    about_memory = broken.pop("memory", "")
    yield Line(f"{time_text(plan)}{idle}{''.join(broken.values())}", "time", ok=not broken)
    yield Line(memory_text(plan) + about_memory, "memory", ok=plan.room_bytes >= 0 and not about_memory)
    if plan.change:
        yield Line(change_text(plan.change), "change")


def time_text(plan: PlanResult) -> str:
    """Seconds of a step, what bounds it, what is lost to exposed communication, and the rates that follow."""
    provided = "" if plan.states_fit else " if it fitted"
    rates = f"{plan.tokens_per_s:,.0f} tokens/s, MFU {percent(plan.mfu)}"
    lost = f"{_lost(plan)}{_waited(plan)}"
    return f"{show(plan.step.time_s, 'seconds')} a step{provided}: bound by {_bound(plan)}, {lost}; {rates}"


def _waited(plan: PlanResult) -> str:
    """The share of the step in which the stage that sets the pace waits for others."""
    return f", {percent(plan.step.bubble_s / plan.step.time_s)} to the pipeline's bubble" if plan.staged else ""


def _bound(plan: PlanResult) -> str:
    """Compute with its share; communication, which may set the pace though most of it runs beside compute."""
    if plan.bound_by == "compute":
        return f"compute ({percent(plan.step.compute_s / plan.step.time_s)})"
    if plan.bound_by == "bubble":
        return "the pipeline's bubble"
    longer = outlasting(plan.rows)
    return f"communication ({longer} outlasts the compute beside it)" if longer else "communication"


def _lost(plan: PlanResult) -> str:
    """The share of the step that exposed communication takes, and the collectives that make most of it."""
    seconds = {name: s for name, s in lost(plan.rows).items() if s > 0}
    if not seconds:
        return "nothing lost to communication"
    shares = {name: s / plan.step.time_s for name, s in seconds.items()}
    whole = sum(shares.values())
    few = sum(2 * before < whole for before in accumulate(shares.values(), initial=0))
    names = [f"{name} ({percent(share)})" for name, share in list(shares.items())[:few]]
    if len(shares) == 1:
        return f"{percent(whole)} lost to exposed {next(iter(shares))}"
    return f"{percent(whole)} lost to exposed communication, mostly {' and '.join(names)}"


def memory_text(plan: PlanResult) -> str:
    """What states take of a chip, what they cannot stand beside, and that activations are not in it."""
    held, room = show(float(plan.memory.static), "bytes"), show(plan.capacity_bytes, "bytes")
    if not plan.states_fit:
        return f"DOES NOT FIT: states take {held} of {room}; activations not counted"
    if plan.room_bytes >= 0:
        return f"states {held} of {room}; activations not counted"
    logits = show(float(plan.memory.logits), "bytes")
    return f"states {held} of {room}; logits of {logits} do not fit beside them; other activations not counted"


def change_text(change: Change) -> str:
    """The field, the step with it, and what it does to memory; that first where memory is what is wanting."""
    old, new, full = change.old.memory, change.new.memory, change.old.room_bytes < 0
    step = f"{show(change.new.step.time_s, 'seconds')} a step ({100 * change.relative:+.3g} %)"
    held = "" if old.static == new.static else f"states {show(float(new.static), 'bytes')}"
    logits = f"logits {show(float(new.logits), 'bytes')}" if full and not held else ""
    more = f"activations (not counted) {change.activations:g} times as large" if change.activations > 1 else ""
    parts = (held, logits, step) if full else (step, held, more)
    return f"--set {change.setting}: {', '.join(filter(None, parts))}"


def percent(share: float) -> str:
    """A share in percent, three digits.

    >>> percent(0.27597)
    '27.6 %'
    """
    return f"{100 * share:.3g} %"
