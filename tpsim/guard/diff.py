"""The verb `diff`: what moves from one scenario, saved result or lock to another, and why."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tpsim.answers.plan import priced
from tpsim.guard import lock_file
from tpsim.guard.drift import at_least, drift
from tpsim.guard.drifted import Drifted, outcomes, sentence, sizes
from tpsim.guard.facts import asked_facts
from tpsim.guard.recorded import recorded, saved
from tpsim.quantity.errors import InputError, Place
from tpsim.quantity.units import UnitError, parse
from tpsim.question.flags import flag_words
from tpsim.question.scenario import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.answers.plan import PlanResult
    from tpsim.guard.lock import Lock
    from tpsim.question.flags import Flags

SCHEMA = "tpsim.diff/1"
Side = Literal["scenario", "result", "lock"]


@dataclass(frozen=True)
class DiffResult(Drifted):
    """What moved from `base` to `against`, as the command line named them.

    following  the command that shows more of the new side
    least      the relative change below which nothing is told
    """

    base: str
    against: str
    following: str
    least: float = 0.0

    schema = SCHEMA

    @property
    def ok(self) -> bool:
        """True if nothing moved."""
        return not self.drift

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
        found = [f"{what} {text}" for what, text in sizes(name, self.drift).items()]
        if not found:
            return ""
        first, *more = self.drift.causes
        rest = f" and {len(more)} more cause{'s'[: len(more) - 1]}" if more else ""
        return "; ".join([", ".join(found), *outcomes(name, self.drift), f"because {sentence(first)}{rest}"])

    @property
    def notices(self) -> tuple[str, ...]:
        """That a least change of 1 and more is a share, and not so many percent."""
        share = f"{self.least:g}"
        said = f"--min-change {share} is {100 * self.least:g} %; {share} % is written {share}%"
        return (said,) if self.least >= 1 else ()

    @property
    def resolved(self) -> dict[str, Any]:
        """What was asked."""
        return {"base": self.base, "new": self.against, "min_change": self.least}


def diff(
    base: str | Path,
    new: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    min_change: str | float = 0.0,
    **flags: Unpack[Flags],
) -> DiffResult:
    """Compare two scenarios, two saved results, a scenario with a saved result, or two locks.

    base        a scenario (file or library name), a plan saved as JSON, or a lock
    new         the same; None is `base` with `overrides` and `flags`
    overrides   ``path=value`` each, for the new side, which then is a scenario
    min_change  relative change below which a number is left out: ``1%`` or 0.01
    flags       as `plan` takes them, for the new side, too
    Raises InputError for a side that cannot be read, and for sides that cannot be compared.
    """
    before, after = str(base), str(base if new is None else new)
    changes = [*flag_words(flags), *(word for text in overrides for word in ("--set", text))]
    if new is None and not changes:
        remedy = f"name it, or change something: tpsim diff {before} --set layout.zero=3"
        raise InputError.one("missing-side", "there is nothing to compare with", remedy=remedy)
    if changes and side(after) != "scenario":
        message = f"{changes[0]} changes a scenario, and {after} is a saved {side(after)}"
        raise InputError.one("nothing-to-set", message, remedy="name the scenario")
    locks = _locks(before, after, overrides, flags)
    words = [after, *changes]
    following = "tpsim check" if side(after) == "lock" else shlex.join(["tpsim", "plan", *words])
    if side(after) == "result":
        following = f"tpsim diff {shlex.join([before, after])} -v"
    found, least = drift(*locks), _share(min_change)
    return DiffResult(at_least(found, least) if least else found, before, shlex.join(words), following, least)


def _share(text: str | float) -> float:
    """A share as a number, of ``1%`` or ``0.01``."""
    try:
        return parse(text, "ratio", zero=True)
    except UnitError as error:
        written = f"--min-change {text}"
        place = Place("command line", 1, len("--min-change ") + 1, written, max(1, len(str(text))))
        raise InputError.one(error.slug, error.message, place, error.remedy) from None


def side(text: str) -> Side:
    """What a side is, by its name.

    >>> side("base.lock"), side("plan.json"), side("llama3-70b-h100")
    ('lock', 'result', 'scenario')
    """
    suffixes: dict[str, Side] = {".lock": "lock", ".json": "result"}
    return suffixes.get(Path(text).suffix, "scenario")


def _locks(base: str, new: str, overrides: Sequence[str], flags: Flags) -> tuple[Lock, Lock]:
    kinds = {side(base), side(new)}
    if kinds == {"lock"}:
        return lock_file.read(base), lock_file.read(new)
    if "lock" in kinds:
        remedy = "compare a lock with another lock, or run tpsim check"
        raise InputError.one("sides-differ", f"{base} and {new}: only one of them is a lock", remedy=remedy)
    plans = _plan(base, (), {}), _plan(new, overrides, flags)
    of = recorded if "result" in kinds else _facts
    before, after = (of(plan) if plan else saved(path) for plan, path in zip(plans, (base, new), strict=True))
    return _as_one(before, after)


def _plan(text: str, overrides: Sequence[str], flags: Flags) -> PlanResult | None:
    """The plan of a scenario; None for a saved result."""
    return priced(resolve(text, overrides=overrides, flags=flags)) if side(text) == "scenario" else None


def _facts(plan: PlanResult) -> Lock:
    return asked_facts({plan.question.name: plan}, Path())


def _as_one(base: Lock, new: Lock) -> tuple[Lock, Lock]:
    """Locks of one scenario each, under one name: what is compared are the two, whatever they are called."""
    (old_name, old), (new_name, fact) = (next(iter(one.scenarios.items())) for one in (base, new))
    name = new_name if old_name == new_name else f"{old_name} -> {new_name}"
    return replace(base, scenarios={name: old}), replace(new, scenarios={name: fact})
