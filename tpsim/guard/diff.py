"""The verb `diff`: what moves from one scenario, saved result or lock to another, and why."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from tpsim.answers.plan import PlanResult, priced
from tpsim.guard.drift import at_least, drift
from tpsim.guard.drift_result import Drifted, outcomes, sentence, sizes
from tpsim.guard.lock import Lock, read_lock
from tpsim.guard.lock_of_plans import asked_facts
from tpsim.guard.lock_of_result import recorded, saved
from tpsim.guard.moved_numbers import is_outcome
from tpsim.quantity import spec
from tpsim.quantity.errors import COMMAND_LINE, InputError, Place
from tpsim.quantity.spec import Document
from tpsim.quantity.units import UnitError, parse
from tpsim.question.edits import Flags, flag_words, refuse_text
from tpsim.question.scenario import resolve
from tpsim.report.numbers import counted
from tpsim.report.record import Record
from tpsim.report.table import Line

if TYPE_CHECKING:
    from tpsim.guard.causes import CauseOfDrift

EDIT = "scenario"
"""The kind of a cause that is a field of a scenario: what a user changes, where other facts come with it."""

NAMED = 3
"""Edits that a verdict names; more are counted."""

Side = Literal["scenario", "result", "lock"]

Given = str | Path | Mapping[str, Any] | PlanResult
"""A side: a name, or what a file of it holds."""


@dataclass(frozen=True, slots=True)
class DiffResolved(Record):
    """What was compared."""

    base: str
    new: str
    min_change: Annotated[float, ("minimum", 0)]


@dataclass(frozen=True)
class DiffResult(Drifted):
    """What moved from `base` to `against`, as the command line named them.

    following  the command that shows more of the new side
    least      the relative change below which nothing is told
    edited     the fields that the request itself changes
    """

    base: str
    against: str
    following: str
    least: float = 0.0
    edited: tuple[str, ...] = ()

    schema = "tpsim.diff/1"

    @property
    def ok(self) -> bool:
        """True if nothing moved."""
        return not self.drift

    @property
    def lines(self) -> tuple[Line, ...]:
        """The verdict, a "no" where the new side satisfies less than the old one."""
        lost = any(number.new is False and is_outcome(number.quantity) for number in self.drift.moved)
        return (Line(self.verdict, ok=not lost),)

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        within = f" by {100 * self.least:g} % or more" if self.least else ""
        return self._by_how_much() or self.summary or f"nothing moved{within}"

    def _by_how_much(self) -> str:
        """What moved of the one scenario that both sides are of, and because of what; "" for several, or none."""
        if len(self.drift.changed) != 1 or self.drift.added or self.drift.dropped:
            return ""
        (name,) = self.drift.changed
        texts = [f"{quantity} {text}" for quantity, text in sizes(name, self.drift).items()]
        if not texts:
            return ""
        return "; ".join([", ".join(texts), *outcomes(name, self.drift), f"because {self._because()}"])

    def _because(self) -> str:
        """The edits, else the first cause, and how many more there are."""
        causes = self.drift.causes
        named = self.edits[:NAMED] or causes[:1]
        first, *others = [sentence(replace(cause, note="") if self.edits else cause) for cause in named]
        names = ", ".join([first, *(other.removeprefix(f"{EDIT} ") for other in others)])
        more = len(causes) - len(named)
        return names + (f" and {counted(more, 'more cause')}" if more else "")

    @property
    def edits(self) -> tuple[CauseOfDrift, ...]:
        """The fields of a scenario that differ, those set for this comparison first, in order; none of two locks.

        What differs between locks is edited whatever it is: a profile and a formula as well as a scenario.
        """
        fields = [cause for cause in self.drift.causes if cause.kind == EDIT and side(self.base) != "lock"]
        return tuple(sorted(fields, key=self._place))

    def _place(self, edit: CauseOfDrift) -> int:
        """Where an edit stands in the request."""
        places = (at for at, path in enumerate(self.edited) if f"{edit.name}.".startswith(f"{path}."))
        return next(places, len(self.edited))

    @property
    def notices(self) -> tuple[str, ...]:
        """That a least change of 1 and more is a share, and not so many percent."""
        share = f"{self.least:g}"
        notice = f"--min-change {share} is {100 * self.least:g} %; {share} % is written {share}%"
        return (notice,) if self.least >= 1 else ()

    @property
    def resolved(self) -> DiffResolved:
        """What was asked."""
        return DiffResolved(self.base, self.against, self.least)


def diff(
    base: Given,
    new: Given | None = None,
    *,
    overrides: Sequence[str] = (),
    min_change: str | float = 0.0,
    **flags: Unpack[Flags],
) -> DiffResult:
    """Compare two scenarios, two saved results, a scenario with a saved result, or two locks.

    base        a scenario (file or library name), a plan saved as JSON, the data of either, a plan, or a lock
    new         the same; None is `base` with `overrides` and `flags`
    overrides   ``path=value`` each, for the new side, which then is a scenario
    min_change  relative change below which a number is left out: ``1%`` or 0.01
    flags       as `plan` takes them, for the new side, too
    Raises InputError for a side that cannot be read, and for sides that cannot be compared.
    """
    refuse_text("overrides", overrides)
    first = _held(base)
    sides = first, first if new is None or (base, new) == ("-", "-") else _held(new)
    before, after = map(_name, sides)
    changes = [*flag_words(flags), *(word for text in overrides for word in ("--set", text))]
    if new is None and not changes:
        remedy = f"name it, or change something: tpsim diff {before} --set layout.zero=3"
        raise InputError.one("missing-side", "there is nothing to compare with", remedy=remedy)
    if changes and side(sides[1]) != "scenario":
        message = f"{changes[0]} changes a scenario, and {after} is a saved {side(sides[1])}"
        raise InputError.one("nothing-to-set", message, remedy="name the scenario")
    locks = _locks(*sides, overrides, flags)
    words = [after, *changes]
    following = "tpsim check" if side(sides[1]) == "lock" else shlex.join(["tpsim", "plan", *words])
    if side(sides[1]) == "result":
        following = f"tpsim diff {shlex.join([before, after])} -v"
    if Document in map(type, sides):  # no command names what is in no file
        following = ""
    moved, least = drift(*locks), _share(min_change)
    worth_telling = at_least(moved, least) if least else moved
    edited = tuple(text.partition("=")[0].strip() for text in overrides)
    return DiffResult(worth_telling, before, shlex.join(words), following, least, edited)


def _share(text: str | float) -> float:
    """A share as a number, of ``1%`` or ``0.01``."""
    try:
        return parse(text, "ratio", zero=True)
    except UnitError as error:
        written = f"--min-change {text}"
        place = Place(COMMAND_LINE, 1, len("--min-change ") + 1, written, max(1, len(str(text))))
        raise InputError.one(error.slug, error.message, place, error.remedy) from None


def _held(given: Given) -> str | Document:
    """A name as it is; data, and what stdin says, which can be read once, as what no file holds."""
    if given == "-":
        return spec.load("-")
    given = given.to_json() if isinstance(given, PlanResult) else given
    if isinstance(given, Mapping):
        return Document(dict(given), path="plan" if "schema" in given else "scenario", text="", sha256="")
    return str(given)


def _name(of: str | Document) -> str:
    if isinstance(of, str):
        return of
    resolved = of.data.get("resolved", of.data)
    return str((isinstance(resolved, Mapping) and resolved.get("name")) or of.path)


def side(of: str | Document) -> Side:
    """What a side is, by its name or by what it holds.

    >>> side("base.lock"), side("plan.json"), side("llama3-70b-h100")
    ('lock', 'result', 'scenario')
    """
    if isinstance(of, Document):
        return "result" if "schema" in of.data else "scenario"
    suffixes: dict[str, Side] = {".lock": "lock", ".json": "result"}
    return suffixes.get(Path(of).suffix, "scenario")


def _locks(base: str | Document, new: str | Document, overrides: Sequence[str], flags: Flags) -> tuple[Lock, Lock]:
    kinds = {side(base), side(new)}
    if kinds == {"lock"}:
        return read_lock(_name(base)), read_lock(_name(new))
    if "lock" in kinds:
        remedy = "compare a lock with another lock, or run tpsim check"
        message = f"{_name(base)} and {_name(new)}: only one of them is a lock"
        raise InputError.one("sides-differ", message, remedy=remedy)
    plans = _plan(base, (), {}), _plan(new, overrides, flags)
    before, after = (
        saved(of)
        if plan is None
        else recorded(plan)
        if "result" in kinds
        else asked_facts({plan.question.name: plan}, Path())
        for plan, of in zip(plans, (base, new), strict=True)
    )
    return _as_one(before, after)


def _plan(of: str | Document, overrides: Sequence[str], flags: Flags) -> PlanResult | None:
    """The plan of a scenario; None for a saved result."""
    return priced(resolve(of, overrides=overrides, flags=flags)) if side(of) == "scenario" else None


def _as_one(base: Lock, new: Lock) -> tuple[Lock, Lock]:
    """Locks of one scenario each, under one name: what is compared are the two, whatever they are called."""
    (old_name, old), (new_name, fact) = (next(iter(side.scenarios.items())) for side in (base, new))
    name = new_name if old_name == new_name else f"{old_name} -> {new_name}"
    return base.but(scenarios={name: old}), new.but(scenarios={name: fact})
