"""Sentences of a search: why no layout is the best, and which surely fits where the best is too close to say."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tpsim.answers.layout_row import Row, in_words
from tpsim.answers.sensitivity import memories
from tpsim.answers.verdict import percent
from tpsim.quantity.units import show

if TYPE_CHECKING:
    from tpsim.answers.ranking import By, Ranked
    from tpsim.answers.search import SearchResult


def surely(found: Ranked, by: By) -> str:
    """The best layout that surely fits, with its step and peak."""
    if not found.best:
        return "no layout surely fits" if found.open_at == inf else "none was found that surely fits"
    safe = Row(1, found.best[0], found.best[0], by)
    peak = show(float(safe.peak_bytes), "bytes")
    return f"{in_words(safe)}: {show(safe.plan.step.time_s, 'seconds')} a step, peak {peak}"


def why_none(result: SearchResult) -> str:
    """Why there is no best layout."""
    if not result.legal:
        return "no layout is legal"
    if result.fitting:
        demands = result.questions[0].stated.file.require.limits
        asked = f"none of those that fit meets require {', '.join(f'{name} {text}' for name, text in demands.items())}"
        steps = [one.step_s[one.fitting].min() for one in result.weighing.families if one.fitting.any()]
        return f"{asked}, each takes {show(float(min(steps)), 'seconds')} or more" if "step" in demands else asked
    if result.smallest is None:
        return "no layout fits"
    memory, least = result.smallest.plan.memory, Row(1, result.smallest, result.smallest, "memory")
    peak, have = show(float(memory.peak_bytes), "bytes"), show(memory.capacity_bytes, "bytes")
    return f"no layout fits: least peak {peak} of {have}, {in_words(least)}"


def bought(result: SearchResult) -> str:
    """Which memory unlocks a better layout, or that none does."""
    best = result.ranked.best[0].plan
    have = best.memory.capacity_bytes
    for one in result.sensitivity or ():
        if one.unlocks and one.relative is not None:
            size, unit = show(have * one.factor, "bytes").split()
            now = show(have, "bytes").removesuffix(f" {unit}")
            return f"memory of {size} {unit} instead of {now} unlocks {one.unlocks}: {percent(one.relative)}"
    most = show(max(have, *memories()), "bytes")
    return f"no memory that a shipped machine has, up to {most}, unlocks a better layout"
