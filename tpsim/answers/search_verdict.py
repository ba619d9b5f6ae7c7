"""The verdict of a search in lines: the best layout, what is known of the others, and why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.answers.layout_row import Row, in_words
from tpsim.answers.sensitivity import memories
from tpsim.answers.trust import idle_chips
from tpsim.answers.verdict import per_what, percent, rates_text, servers_lines, waits_text
from tpsim.quantity.units import show
from tpsim.report.numbers import counted
from tpsim.report.table import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.ranking import Ranked
    from tpsim.answers.search import SearchResult


def lines_of(result: SearchResult) -> Iterator[Line]:
    """The best layout, how it is known, what was held."""
    best = result.best
    counts = looked_at(result.considered, result.legal, result.fitting, result.close)
    if best is None:
        yield Line(f"{_why_none(result)}: {counts}", "best", ok=False)
        if result.eased:
            yield Line(_eased(*result.eased), "change")
        return
    plan = best.plan
    rates = f"{plan.step.tokens_per_s:,.0f} tokens/s, MFU {percent(plan.step.mfu)}"
    took = f"{show(plan.step.time_s, 'seconds')} a step, {rates}"
    if serve := plan.serve:
        took = f"{waits_text(plan, serve)}; {rates_text(serve)}"
    idle = "".join(f"; {text}" for text in idle_chips(plan.question))
    yield Line(f"{in_words(best)}: {took}{idle}", "best")
    yield Line(plan.memory.verdict, "memory", ok=plan.memory.fits is not False)
    yield from servers_lines(plan)
    if result.sure:
        yield Line(surely(result.sure), "surely")
    if tied := [str(row.rank) for row in result.rows if row.tied]:
        yield Line(f"with rank {', '.join(tied)}, of those that are listed", "tied")
    if plan.run:
        yield Line(plan.run.text, "run")
    if result.sensitivity and result.by != "memory":
        yield Line(_bought(result), "buy")
    known = known_of(result.gap, complete=result.complete)
    yield Line(f"{counts}; {result.plans:,} planned: {known}", "space")
    if result.front and not result.front.complete:
        unknown = "some that no other surpasses may be missing, and some of these be surpassed"
        yield Line(f"{result.front.made:,} planned: {unknown}", "pareto")
    for demand in result.require or ():
        yield Line(demand.text, "require", ok=demand.ok)


def looked_at(considered: int, legal: int, fitting: int, close: int) -> str:
    """In words how many layouts were looked at, are legal, and fit; close: of these, too close to say."""
    counts = f"{counted(considered, 'layout')} considered, {legal:,} legal, {fitting:,} fit"
    return counts + (f" ({close:,} of these too close to say)" if close else "")


def known_of(gap: float, *, complete: bool) -> str:
    """In words what is known of those that were not planned; gap: as a share, how far below the best any may be."""
    if gap:
        return f"within {percent(gap)} of the best"
    return "no other can be better" + ("" if complete else ", but of those behind it some may be missing")


def surely(ranked: Ranked) -> str:
    """The best layout that surely fits, with its step and peak."""
    if not ranked.best:
        return "no layout surely fits" if ranked.complete else "none was found that surely fits"
    safe = Row(1, ranked.best[0], ranked.best[0], ranked.by)
    peak = show(float(safe.peak_bytes), "bytes")
    return f"{in_words(safe)}: {show(safe.plan.step.pace_s, 'seconds')} a {per_what(safe.plan)}, peak {peak}"


def _why_none(result: SearchResult) -> str:
    """Why there is no best layout."""
    if not result.legal:
        return "no layout is legal"
    if result.fitting:
        demands = result.questions[0].stated.file.require.limits
        which = "those that fit" if result.complete else f"the {result.plans:,} planned"
        asked = f"none of {which} meets require {', '.join(f'{name} {text}' for name, text in demands.items())}"
        steps = [family.step_s[family.fitting].min() for family in result.evaluation.families if family.fitting.any()]
        asked += f", each takes {show(float(min(steps)), 'seconds')} or more" if "step" in demands else ""
        return asked if result.complete else f"{asked}; --plans plans more"
    if result.smallest is None:
        return "no layout fits"
    memory, least = result.smallest.plan.memory, Row(1, result.smallest, result.smallest, "memory")
    peak, capacity = show(float(memory.peak_bytes), "bytes"), show(memory.capacity_bytes, "bytes")
    fits = "surely fits" if memory.fits is None else "fits"
    return f"no layout {fits}: least peak {peak} of {capacity}, {in_words(least)}"


def _eased(words: str, found: SearchResult) -> str:
    """A change by which layouts fit, and the best one then."""
    best = found.best
    if best is None:
        return f"{words}: {_why_none(found)}"
    plan = best.plan
    memory, took = plan.memory, f"{show(plan.step.time_s, 'seconds')} a step"
    if plan.serve:
        took = waits_text(plan, plan.serve)
    peak = f"peak {show(float(memory.peak_bytes), 'bytes')} of {show(memory.capacity_bytes, 'bytes')}"
    doubt = ", too close to say" if memory.fits is None else ""
    return f"{words}: {in_words(best)}: {took}, {peak}{doubt}"


def _bought(result: SearchResult) -> str:
    """Which memory unlocks a better layout, or that none does."""
    best = result.ranked.best[0].plan
    capacity = best.memory.capacity_bytes
    for change in result.sensitivity or ():
        if change.unlocks and change.relative is not None:
            size, unit = show(capacity * change.factor, "bytes").split()
            now = show(capacity, "bytes").removesuffix(f" {unit}")
            return f"memory of {size} {unit} instead of {now} unlocks {change.unlocks}: {percent(change.relative)}"
    most = show(max(capacity, *memories()), "bytes")
    return f"no memory that a shipped machine has, up to {most}, unlocks a better layout"
