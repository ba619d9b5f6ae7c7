"""The page of a drift: its causes on top, the scenarios and axes that moved, every number folded below."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tpsim.answers.verdict import signed
from tpsim.guard.drift import UNKNOWN, Drift
from tpsim.guard.drift_result import SIGN, SIZES, Drifted, outcomes, sizes, values
from tpsim.guard.moved_numbers import change, few, keys, outcome, relative, same
from tpsim.quantity.units import show
from tpsim.report.table import Column, Page, Table, present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tpsim.guard.causes import CauseOfDrift
    from tpsim.guard.check import CheckResult
    from tpsim.guard.diff import DiffResult
    from tpsim.guard.lock_parts import CallName, CallsFact, ScenarioFact

Row = dict[str, Any]

CAUSES = (
    Column("kind", "cause"),
    Column("name", "what moved"),
    Column("old", "old"),
    Column("new", "new"),
    Column("change", "change"),
    Column("scenarios", "scenarios"),
    Column("step", "step"),
    Column("collectives", "collectives", below=True),
    Column("touched", "in", below=True),
    Column("note", "note", below=True),
)
"""One line per fact that moved; `step` is the largest change of a step that it makes, where it is the only one."""

WIRE = (
    Column("old_bytes", "wire\nold", "bytes"),
    Column("new_bytes", "wire\nnew", "bytes"),
    Column("wire", "change"),
)
IN_FULL = {"states": "states held", "kept": "kept for backward", "peak": "peak memory"}
SCENARIOS = (
    Column("scenario", "scenario"),
    Column("old_s", "step\nold", "seconds"),
    Column("new_s", "step\nnew", "seconds"),
    Column("step", "change"),
    *WIRE,
    Column("outcome", "outcome"),
    *(Column(quantity, IN_FULL.get(quantity, quantity), below=True) for quantity in SIZES if quantity != "step"),
)
SUMS = (
    *WIRE,
    Column("old_s", "time\nold", "seconds"),
    Column("new_s", "time\nnew", "seconds"),
    Column("time", "change"),
)
AXES = (Column("scenario", "scenario"), Column("of", "axis"), *SUMS)
COLLECTIVES = (Column("scenario", "scenario"), Column("of", "collective"), *SUMS)
NUMBERS = (
    Column("scenario", "scenario"),
    Column("part", "of"),
    Column("quantity", "number"),
    Column("old", "old"),
    Column("new", "new"),
    Column("change", "change"),
)

DIGITS = 9
"""Effects that differ by less are as large: their causes stay in order."""

FEW = 12
"""Rows of a table that a reader takes in at a glance: of a longer one these are on top, and the whole is folded."""

MOST = 1000
"""Numbers that a page shows: CSV and JSON have all."""

NAMED = 6
"""Names in a cell before the rest is counted."""


def check_page(result: CheckResult, *, verbose: bool) -> Page:
    """What moved since the lock was written; `verbose` adds every number."""
    title = f"tpsim check: {result.path}"
    return _page(result, title, result.following(verbose=verbose), verbose=verbose)


def diff_page(result: DiffResult, *, verbose: bool) -> Page:
    """What moved from one side to the other; `verbose` adds every number."""
    return _page(result, f"{result.base} -> {result.against}", result.following, verbose=verbose)


def _page(result: Drifted, title: str, following: str, *, verbose: bool) -> Page:
    return Page(
        result,
        title=title,
        facts=(("signs", SIGN),) if result.moved else (),
        tables=tuple(_tables(result, verbose=verbose)),
        notes=result.notices,
        next_command=following,
        silent=not result.moved,
    )


def _tables(result: Drifted, *, verbose: bool) -> Iterator[Table]:
    """What a reader takes in at a glance; `verbose` adds the whole, folded where it can be."""
    drift, causes = result.drift, _causes(result)
    scenarios = [*_of_one_side(drift), *sorted(_scenarios(drift), key=lambda row: -abs(row["effect"] or 0))]
    yield from _parts(CAUSES, causes, "causes", verbose=verbose)
    yield from _parts(SCENARIOS, scenarios, "scenarios", verbose=verbose)
    for columns, of, noun in ((AXES, attrgetter("axis"), "axes"), (COLLECTIVES, attrgetter("over"), "collectives")):
        moved = {(number.scenario, of(number.part)) for number in drift.moved if number.part}
        rows = [row for name in drift.changed for row in _sums(name, drift, of) if (name, row["of"]) in moved]
        if len(rows) <= FEW or verbose:
            sums = sorted(rows, key=lambda row: -abs(row["effect"] or 0)) if len(rows) > FEW else rows
            yield from _parts(columns, sums, noun, verbose=True, group="scenario")
    if verbose and drift.moved:
        largest = sorted(drift.moved, key=lambda number: -abs(number.relative or 0))[:MOST]
        few = len(largest) < len(drift.moved)
        title = f"Largest of {len(drift.moved):,} numbers that moved" if few else "Every number that moved"
        numbers = [
            {
                "scenario": number.scenario,
                "part": str(number.part or "the step"),
                "quantity": number.quantity.removesuffix("_s").removesuffix("_bytes"),
                "old": value_text(number.quantity, number.old),
                "new": value_text(number.quantity, number.new),
                "change": change(number.old, number.new),
            }
            for number in largest
        ]
        yield Table(NUMBERS, numbers, title, folded=True)


def _parts(
    columns: Sequence[Column], rows: Sequence[Row], noun: str, *, verbose: bool, group: str = ""
) -> Iterator[Table]:
    """A table of few rows as it is; of a longer one the first rows, then all of them if wanted."""
    if not rows:
        return
    shown = present(columns, rows)
    if len(rows) <= FEW:
        yield Table(shown, rows, noun.capitalize(), group)
        return
    yield Table(shown, rows[:FEW], f"{FEW} largest of {len(rows):,} {noun}", group)
    if verbose:
        yield Table(shown, rows, f"All {noun}", group, folded=True)


def _causes(result: Drifted) -> list[Row]:
    """A row per cause, edits first, then the largest; whose the change of a step is only a single cause can say."""
    brought = [cause for cause in result.drift.causes if cause not in result.edits]
    ordered = [*result.edits, *sorted(brought, key=_largest_first)]
    rows = [_cause(cause) for cause in ordered]
    if sum(bool(cause.scenarios) for cause in ordered) > 1:
        rows = [{**row, "step": ""} for row in rows]
    above: Row = {}
    for row in rows:
        names = {key: row[key] for key in ("collectives", "touched")}
        row.update({key: AS_ABOVE for key, text in names.items() if text and text == above.get(key)})
        above = names
    return rows


def _largest_first(cause: CauseOfDrift) -> tuple[float, ...]:
    """By the change of a step that it has a part in; where that is the same, formulas, then figures by their own."""
    rank = 3 if cause.name == UNKNOWN else {"formula": 0, "constant": 1}.get(cause.kind, 2)
    own = abs(relative(cause.old, cause.new) or 0) if cause.kind == "constant" else 0
    return -round(abs(cause.step_relative or 0), DIGITS), not cause.scenarios, rank, -own


AS_ABOVE = "as above"
"""What stands for a list of names that the row above shows in full."""


def _cause(cause: CauseOfDrift) -> Row:
    old, new = values(cause)
    return {
        **cause,
        "old": old,
        "new": new,
        "scenarios": str(len(cause.scenarios)),
        "step": "" if cause.step_relative is None else signed(cause.step_relative),
        "collectives": few(cause.collectives, NAMED),
        "touched": few(cause.scenarios, NAMED),
    }


def _scenarios(drift: Drift) -> Iterator[Row]:
    for name in drift.changed:
        old, new = drift.old.scenarios[name], drift.new.scenarios[name]
        steps, wires = (old.result("step_s"), new.result("step_s")), (_wire(old), _wire(new))
        yield {
            "scenario": name,
            **_pair("s", steps),
            "step": change(*steps),
            "effect": relative(*steps),
            **_pair("bytes", wires),
            "wire": change(*wires),
            "outcome": "; ".join(outcomes(name, drift)),
            **{quantity: text for quantity, text in sizes(name, drift).items() if quantity != "step"},
        }


def _pair(quantity: str, values: tuple[Any, Any]) -> Row:
    """The cells of old and new, in one unit so that a glance compares them; None for a side that is not there."""
    return {f"{side}_{quantity}": value for side, value in zip(("old", "new"), values, strict=True)}


def _of_one_side(drift: Drift) -> Iterator[Row]:
    """Scenarios that are new or gone."""
    for names, lock, word in ((drift.added, drift.new, "new"), (drift.dropped, drift.old, "gone")):
        for name in names:
            fact = lock.scenarios[name]
            numbers = (fact.result("step_s"), _wire(fact))
            steps, wires = ((None, number) if word == "new" else (number, None) for number in numbers)
            words = {"step": word, "wire": word}
            yield {"scenario": name, **_pair("s", steps), **_pair("bytes", wires), **words}


def _wire(fact: ScenarioFact) -> float:
    return _added(collective.wire_in_all for collective in fact.paced)


def _added(numbers: Iterable[float]) -> float:
    """Their sum, the same in any order: a lock holds collectives in another one than a plan."""
    return sum(sorted(numbers))


def _sums(name: str, drift: Drift, of: Callable[[CallName], str]) -> Iterator[Row]:
    """Bytes and seconds of a step, summed over the collectives of each axis or each kind, where they differ."""
    old, new = (_summed(lock.scenarios[name], of) for lock in (drift.old, drift.new))
    for key in keys(old, new):
        before, after = old.get(key, (0, 0)), new.get(key, (0, 0))
        wire = change(before[0], after[0])
        time = "" if same(before[1], after[1], drift.old.tolerance) else change(before[1], after[1])
        if wire or time:
            yield {
                "scenario": name,
                "of": key,
                **_pair("bytes", (before[0], after[0])),
                "wire": wire,
                **_pair("s", (before[1], after[1])),
                "time": time,
                "effect": relative(before[1], after[1]) if time else None,
            }


def _summed(fact: ScenarioFact, of: Callable[[CallName], str]) -> dict[str, tuple[float, float]]:
    groups: dict[str, list[CallsFact]] = {}
    for collective in fact.paced:
        groups.setdefault(of(collective.call), []).append(collective)
    return {
        key: (_added(x.wire_in_all for x in group), _added(x.busy_s for x in group)) for key, group in groups.items()
    }


def value_text(quantity: str, value: Any) -> str:
    """A number with the unit of its quantity.

    >>> value_text("time_s", 6.5e-05), value_text("wire", 1024), value_text("calls", 8), value_text("by", None)
    ('65 us', '1.024 kB', '8', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return outcome(quantity, value)
    if quantity.endswith("_s"):
        return show(value, "seconds")
    if quantity.endswith("bytes") or quantity == "wire":
        return show(value, "bytes")
    return show(value, "flops") if quantity == "flops" else f"{value:,}"
