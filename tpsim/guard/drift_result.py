"""A drift as a result: its summary, its tidy rows, its JSON document, and its pictures, old over new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.guard.causes import CauseOfDrift, Fixed
from tpsim.guard.moved_numbers import (
    CACHE,
    HELD,
    KIND,
    MOVED,
    OVERHEADS,
    PROMPT_PEAK,
    TPOT,
    WAITS,
    change,
    few,
    is_outcome,
    outcome,
    relative,
    result,
)
from tpsim.quantity.size import total
from tpsim.quantity.units import Dimension, show
from tpsim.report.answer import Answer
from tpsim.report.numbers import counted
from tpsim.report.picture import Picture, Span, Spans
from tpsim.report.record import Of, Record

if TYPE_CHECKING:
    from tpsim.guard.drift import Drift
    from tpsim.guard.lock_parts import ScenarioFact

SIGN = "changes are new - old: + is more bytes or more seconds"


@dataclass(frozen=True, slots=True)
class ChangeOfNumber(Record):
    """A number that moved, or a fact that moved none.

    collective  phase, place, kind, axes and array; null for a number of the whole scenario
    relative    (new - old)/old; null from zero and for texts
    causes      the facts that explain it, joined by semicolons
    """

    scenario: str | None
    collective: str | None
    quantity: str
    old: Fixed
    new: Fixed
    relative: float | None
    change: str | None
    causes: str | None


@dataclass(frozen=True)
class Drifted(Answer):
    """What moved between two locks, as every verb that compares answers."""

    told: ClassVar[tuple[str, ...]] = (
        *("verdict", "moved", "sign", "notices", "causes", "new_scenarios", "gone_scenarios", "changes"),
    )
    table = "changes"
    columns = Of[Sequence[str]](lambda _: tuple(ChangeOfNumber.__annotations__), "what stands above no rows")
    sign: ClassVar[str] = SIGN

    drift: Drift

    causes = Of[Sequence[CauseOfDrift]]("drift.causes", "the facts that moved")
    new_scenarios = Of[Sequence[str]]("drift.added", "scenarios that only the new side has")
    gone_scenarios = Of[Sequence[str]]("drift.dropped", "scenarios that only the old side has")

    @property
    def summary(self) -> str:
        """What moved in one line."""
        drift, causes = self.drift, self.drift.causes
        touched, both = len(drift.changed), len(drift.new.scenarios) - len(drift.added)
        more = len(causes) - 1
        parts = self._versions() + [sentence(cause) for cause in causes[:1]]
        parts += [counted(more, "more cause")] if more > 0 else []
        parts += [f"numbers of {touched} of {both} scenarios moved"] if touched else []
        outcome_texts = [f"{name}: {', '.join(texts)}" for name in drift.changed if (texts := outcomes(name, drift))]
        parts += [few(outcome_texts)] if outcome_texts else []
        for names, word in ((drift.added, "new"), (drift.dropped, "gone")):
            parts += [f"{word}: {few(names)}"] if names else []
        return "; ".join(parts)

    def _versions(self) -> list[str]:
        """That another tpsim made the old side, unless a cause says it."""
        old, new = self.drift.old.version, self.drift.new.version
        named = any(cause.name == VERSION for cause in self.drift.causes)
        return [] if old == new or named or not self.drift else [f"tpsim changed since: {old} -> {new}"]

    @property
    def edits(self) -> tuple[CauseOfDrift, ...]:
        """The causes that whoever asks has made, and not what they bring with them; told first."""
        return ()

    @property
    def moved(self) -> bool:
        """True if anything did."""
        return bool(self.drift)

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader should know beside what moved."""
        return ()

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Old over new."""
        return tuple(_pictures(self.drift))

    @property
    def changes(self) -> list[ChangeOfNumber]:
        """One row per number that moved, with its causes; then one per cause that moved none."""
        return [*self._numbers(), *self._silent()]

    def _numbers(self) -> Iterator[ChangeOfNumber]:
        drift = self.drift
        for number in drift.moved:
            causes = [cause.name for cause in drift.causes if cause.makes(number, drift.old, drift.new)]
            text = change(number.old, number.new) or None
            yield ChangeOfNumber(
                *(number.scenario, number.part and str(number.part), number.quantity, number.old, number.new),
                *(number.relative, text, "; ".join(causes) or None),
            )

    def _silent(self) -> Iterator[ChangeOfNumber]:
        rows: list[tuple[Any, ...]] = [(name, "scenario", None, "held", name) for name in self.drift.added]
        rows += [(name, "scenario", "held", None, name) for name in self.drift.dropped]
        rows += [
            (None, cause.kind, cause.old, cause.new, cause.name) for cause in self.drift.causes if not cause.scenarios
        ]
        for scenario, quantity, old, new, name in rows:
            text = change(old, new) or None
            yield ChangeOfNumber(scenario, None, quantity, old, new, relative(old, new), text, name)


VERSION = "tpsim"
"""What stands for the formulas of a saved result: the version of tpsim that made it."""


def sentence(cause: CauseOfDrift) -> str:
    """A cause in words: ``constant tpu-v5e.levels.ici.link.bandwidth 45 GB/s -> 40 GB/s (-11.1 %)``.

    A formula's texts are for the table: a line has no room for them.
    """
    text = cause.kind == "formula" and cause.name != VERSION
    old, new = ("", "") if text else values(cause)
    moved = f" {old or 'none'} -> {new or 'none'}" if old or new else ""
    remark = ", ".join(filter(None, ["" if text else cause.change, cause.note]))
    return f"{cause.kind} {cause.name}{moved}" + (f" ({remark})" if remark else "")


def values(cause: CauseOfDrift) -> tuple[str, str]:
    """What a fact was and is, with its unit."""
    return _shown(cause.old, cause.dimension), _shown(cause.new, cause.dimension)


DIGITS = 10
"""Of a figure that moved: enough to see a small move."""


def _shown(value: Any, dimension: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if dimension and isinstance(value, int | float):
        return show(value, dimension, DIGITS)
    return f"{value:,}" if isinstance(value, int) else str(value)


def outcomes(name: str, drift: Drift) -> list[str]:
    """What a scenario satisfies now and did not before, or the other way round: ``does not fit``."""
    return [
        outcome(number.quantity, number.new)
        for number in drift.moved
        if number.scenario == name and is_outcome(number.quantity)
    ]


SIZES: Mapping[str, tuple[tuple[str, ...], Dimension]] = {
    "step": (("step_s",), "seconds"),
    "compute": (("compute_s",), "seconds"),
    "exposed": (("exposed_s",), "seconds"),
    **{name.removesuffix("_s"): ((name,), "seconds") for name in WAITS},
    "first token": (("ttft_s",), "seconds"),
    "prompt and reply": (("reply_s",), "seconds"),
    "token": ((TPOT,), "seconds"),
    "cache moved": (MOVED[:1], "bytes"),
    "move of caches": (MOVED[1:], "seconds"),
    "peak of prompts": ((PROMPT_PEAK,), "bytes"),
    "states": (HELD, "bytes"),
    "cache": ((CACHE,), "bytes"),
    "kept": (("kept_bytes",), "bytes"),
    "peak": (("peak_bytes",), "bytes"),
    "overheads": ((OVERHEADS,), "bytes"),
}
"""What a reader of one scenario asks first: the results that it is the sum of, and their dimension."""

OR_NONE = (*WAITS, OVERHEADS)
"""Results that a side without them has none of."""


def sizes(name: str, drift: Drift) -> dict[str, str]:
    """Those of a scenario's `SIZES` that moved: ``10.27 s -> 11.5 s (+12 %)``."""
    texts: dict[str, str] = {}
    moved = {number.quantity for number in drift.moved if number.scenario == name and number.part is None}
    sides = [lock.scenarios[name] for lock in (drift.old, drift.new)]
    for quantity, (keys, dimension) in SIZES.items():
        known = [{key: result(side, key) for key in keys} for side in sides]
        told = all(value is not None or key in OR_NONE for side in known for key, value in side.items())
        if moved & {*keys} and told:
            old, new = (total(value or 0 for value in side.values()) for side in known)
            share = change(old, new)
            texts[quantity] = f"{show(old, dimension)} -> {show(new, dimension)}" + (f" ({share})" if share else "")
    return texts


STEP = {
    "compute": "compute_s",
    "exposed communication": "exposed_s",
    **{name.removesuffix("_s"): name for name in WAITS},
}
"""What a step is made of, and the results that say how much."""

STATES, KEPT, WORKING = "states", "kept", "working"
WEIGHTS, CACHED = "weights", "cache and working"
"""Of inference."""

DRAWN = 6
"""Scenarios that are drawn: those whose step moves most."""


def _pictures(drift: Drift) -> Iterator[Picture]:
    sides = (drift.old, drift.new)
    effects = {name: relative(*(lock.scenarios[name].result("step_s") for lock in sides)) for name in drift.changed}
    moved = sorted(effects, key=lambda name: -abs(effects[name] or 0))
    if not moved:
        return
    some = f" Of {len(moved)} scenarios the {DRAWN} whose steps move most." if len(moved) > DRAWN else ""
    facts = {
        f"{name}, {side}" if len(moved) > 1 else side: lock.scenarios[name]
        for name in moved[:DRAWN]
        for side, lock in zip(("old", "new"), sides, strict=True)
    }
    parts = {side: {part: float(fact.result(key) or 0) for part, key in STEP.items()} for side, fact in facts.items()}
    steps = {side: _spans(seconds, "seconds") for side, seconds in parts.items()}
    yield Spans("The step, side by side", f"What a step is made of, old above new.{some}", steps, list(STEP))
    spans = {side: _spans(_memory(fact), "bytes") for side, fact in facts.items()}
    about = f"What the peak is made of, old above new.{some}"
    yield Spans("Memory, side by side", about, spans, (STATES, KEPT, WORKING, WEIGHTS, CACHED), kind="bytes")


def _memory(fact: ScenarioFact) -> dict[str, float]:
    """The bytes at the peak; of an old result, which knows none, the states."""
    states, kept = (float(total(fact.result(key) or 0 for key in keys)) for keys in (HELD, ("kept_bytes",)))
    rest = float(fact.result("peak_bytes") or 0) - states - kept
    trains = fact.asked.get(KIND) in (None, "train")  # an old result does not say
    return {STATES: states, KEPT: kept, WORKING: rest} if trains else {WEIGHTS: states, CACHED: rest}


def _spans(parts: Mapping[str, float], kind: Dimension) -> list[Span]:
    """Parts one behind the other, each with its size."""
    present = [(part, size) for part, size in parts.items() if size > 0]
    ends = list(accumulate(size for _, size in present))
    return [Span(end - size, end, part, show(size, kind)) for end, (part, size) in zip(ends, present, strict=True)]
