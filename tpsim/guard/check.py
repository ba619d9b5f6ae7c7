"""The verb `check`: every scenario held against ``tpsim.lock``, and the cause of every drift named."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from tpsim.guard.drift import UNKNOWN, drift
from tpsim.guard.drift_result import Drifted
from tpsim.guard.lock import LOCK_FILE, TOLERANCE, Lock, lock_text, naming, older_lock, read_lock
from tpsim.guard.lock_of_plans import current_lock
from tpsim.guard.lock_parts import BASE, FormulaFacts, ScenarioFact
from tpsim.guard.moved_numbers import STATES_FIT, is_outcome, outcome
from tpsim.quantity import spec
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError
from tpsim.question.folders import SUFFIX, below, guarded, of_library, relative_paths
from tpsim.report.record import Record
from tpsim.report.table import Line

HOME = "scenarios"
"""The folder that is guarded where neither the command line nor a lock names one."""


@dataclass(frozen=True, slots=True)
class CheckResolved(Record):
    """What was held against which lock."""

    lock: str
    paths: tuple[str, ...]
    tolerance: Annotated[float, ("minimum", 0)]
    update: bool


@dataclass(frozen=True)
class CheckResult(Drifted):
    """What moved since the lock was written.

    path     of the lock
    asked    files, folders and names as they were typed
    updated  True if the lock is to be written as it should be now: `text` is its content
    first    True if there was no lock
    """

    path: Path
    updated: bool
    first: bool = False
    asked: tuple[str, ...] = ()

    schema = "tpsim.check/1"

    @property
    def ok(self) -> bool:
        """True if nothing moved, or if the lock was brought up to date."""
        return self.updated or not self.drift

    @property
    def lines(self) -> tuple[Line, ...]:
        """The verdict, a "no" where anything moved, though the lock may be up to date by now."""
        return (Line(self.verdict, ok=not self.drift),)

    @property
    def text(self) -> str:
        """The lock as it should be now."""
        return lock_text(self.drift.new)

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        held_now = len(self.drift.new.scenarios)
        scenarios, are, them = ("scenario", "is", "it") if held_now == 1 else ("scenarios", "are", "them")
        if self.first:
            return f"{self.path} is written: it holds {held_now} {scenarios}"
        if not self.drift:
            within = f"times within {self.drift.old.tolerance:g}"
            return "; ".join([f"{held_now} {scenarios} {are} as {self.path} holds {them}; {within}", *self._violated()])
        return self.summary + (f"; {self.path} is updated" if self.updated else "")

    def _violated(self) -> Iterator[str]:
        """What scenarios require and the lock holds to be violated."""
        for name, scenario in self.drift.new.scenarios.items():
            for quantity, result in scenario.results.items():
                if is_outcome(quantity) and quantity != STATES_FIT and result.value is False:
                    yield f"{name}: {outcome(quantity, False)}"

    def following(self, *, verbose: bool) -> str:
        """The command to run next: all numbers, then what brings the lock up to date, or proves what nothing explains.

        verbose  True where all numbers are shown
        """
        again = ["tpsim", "check", *self.asked, *naming(self.path)]
        code = next((cause.scenarios for cause in self.drift.causes if cause.name == UNKNOWN), ())
        if self.updated:
            words = again
        elif not self.drift:
            words = ["tpsim", "plan", self._asked_as(next(iter(self.drift.new.scenarios)))]
        elif not verbose:
            words = [*again, "-v"]
        else:
            words = ["tpsim", "verify", self._asked_as(code[0])] if code else [*again, "--update"]
        return shlex.join(words)

    def _asked_as(self, name: str) -> str:
        """How a command names a scenario of the lock: its file, or its name in the library."""
        files = (self.path.parent / f"{name}{suffix}" for suffix in (SUFFIX, ""))
        return next((str(file) for file in files if file.exists()), name)

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader should know though nothing moved: a lock that lets times move further than tpsim's own."""
        wide = self.drift.old.tolerance
        notice = f"tolerance {TOLERANCE:g} -> {wide:g} (tpsim's own, this lock's): times may move by that much unseen"
        return (notice,) if wide > TOLERANCE else ()

    @property
    def resolved(self) -> CheckResolved:
        """What was asked."""
        old = self.drift.old
        return CheckResolved(str(self.path), tuple(old.paths), old.tolerance, self.updated)


@checked
def check(
    paths: str | Path | Sequence[str | Path] = (), *, lock: str | Path = LOCK_FILE, update: bool = False
) -> CheckResult:
    """Hold scenarios against a lock.

    paths   files, folders or library names, one or several; without any, those that the lock names
    update  True: the result's `text` is to be written, also where there is no lock yet; scenarios that are held and
            not of `paths` stay as they are
    Raises InputError if there is no lock or no scenario, for a lock that cannot be trusted, and where some scenarios
    cannot be brought up to date without others.
    """
    named = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    path = _nearest(Path(lock)) if not (update and named) else Path(lock)
    first = not path.exists()
    documents = guarded(named, Path(), path.parent) if named else {}
    if first and not update:
        raise InputError.one("no-lock", f"there is no {path}", remedy=_how_to_write(named, path))
    if not path.parent.is_dir():
        message = f"{path}: there is no folder {path.parent}"
        raise InputError.one("cannot-write", message, remedy="make it, or name a lock in another one")
    head = None if first or named or not update else older_lock(path)
    known = head or (Lock.empty() if first else read_lock(path))
    asked = relative_paths(named, path.parent) or known.paths or _home(path.parent)
    there = asked if named else _still_there(asked, path, known)
    documents = documents or guarded(there, path.parent)
    library = of_library([*known.paths, *asked], path.parent)
    paths = _joined(known.paths, asked, library) if named or not update else tuple(there)
    now = current_lock(documents, known.but(paths=paths), path.parent, texts=update)
    if not update:
        names = below(known.scenarios, asked, library)
        held = known.but(scenarios={name: fact for name, fact in known.scenarios.items() if name in names})
        return CheckResult(drift(held, now), path, updated=False, asked=tuple(named))
    others = known.scenarios.keys() - below(known.scenarios, asked, library) - now.scenarios.keys() if named else ()
    found_first = first or head is not None
    return CheckResult(drift(known, merged(known, now, others)), path, True, found_first, tuple(named))


def _joined(known: Sequence[str], asked: Sequence[str], library: Collection[str]) -> tuple[str, ...]:
    """The paths of a lock and those that are asked for, without what lies below another one."""
    every = dict.fromkeys([*known, *asked])
    return tuple(
        path
        for path in every
        if not any(below([path.removesuffix(SUFFIX)], [above], library) for above in every if above != path)
    )


def _nearest(lock: Path) -> Path:
    """The lock; where none of the usual name is in this folder, that of the nearest one above."""
    if lock != Path(LOCK_FILE) or lock.exists():
        return lock
    above = (folder / lock for folder in Path.cwd().parents)
    return next((Path(os.path.relpath(file)) for file in above if file.exists()), lock)


def _how_to_write(paths: Sequence[str], lock: Path) -> str:
    """The command that writes a lock of the scenarios that are named, or that stand where they usually do."""
    if paths or (lock.parent / HOME).is_dir():
        return f"write it: {shlex.join(['tpsim', 'check', '--update', *paths, *naming(lock)])}"
    return f"{WHAT} {shlex.join(naming(lock))}".rstrip()


WHAT = "name your scenarios, files or folders: tpsim check --update PATH"


def _still_there(paths: Sequence[str], lock: Path, known: Lock) -> list[str]:
    """The lock's own paths but those that are gone: their scenarios are, and that is an answer.

    Raises InputError where all of them are, and, with the lock's line, for a name that is neither there, nor a folder
    of scenarios that are held, nor in the library.
    """
    here = [path for path in paths if (lock.parent / path).exists()]
    folders = {name.partition("/")[0] for name in known.scenarios if "/" in name}
    names = [path for path in paths if path not in here and not spec.is_path(path) and path not in folders]
    for name in names:
        try:
            spec.find("scenarios", name)
        except InputError as error:
            document = spec.load(lock, most=spec.LARGE)
            raise error.at(document.place("paths", document.data["paths"].index(name))) from None
    if not (here or names):
        message = f"nothing of what {lock} names is there any more: {', '.join(paths)}"
        raise InputError.one("no-scenarios", message, remedy=WHAT)
    return [path for path in paths if path in here or path in names]


def _home(folder: Path) -> tuple[str, ...]:
    """The folder of scenarios beside a lock that is still to be written."""
    if not (folder / HOME).is_dir():
        raise InputError.one("no-scenarios", "what is to be guarded?", remedy=WHAT)
    return (HOME,)


def merged(known: Lock, now: Lock, others: Iterable[str]) -> Lock:
    """The lock `now` with the scenarios `others` of the lock before, and the facts that they are made with.

    Raises InputError where a fact moved that one of `others` is made with, too: their numbers would no longer be of it.
    """
    kept = {name: known.scenarios[name] for name in others}
    if not kept:
        return now
    scenarios = list(kept.values())
    named = {name for fact in scenarios for name in fact.named}
    lists = {name: known.uses[name] for name in named if name in known.uses}
    facts = named.union(*lists.values())
    practices = _both(known.switches.practice, now.switches.practice, [fact.asked[BASE] for fact in scenarios])
    both = now.but(
        constants=_both(known.constants, now.constants, [fact.inputs["hardware"] for fact in scenarios]),
        models=_both(known.models, now.models, [fact.inputs["model"] for fact in scenarios]),
        switches=now.switches.but(practice=practices),
        formulas=_formulas(known, now.formulas, scenarios, facts),
        uses={**lists, **now.uses},
        scenarios=dict(sorted({**kept, **now.scenarios}.items())),
    )
    _refuse_moved(facts, known, both, len(kept))
    return both


F = TypeVar("F")


def _both(known: Mapping[str, F], now: Mapping[str, F], owners: Iterable[object]) -> dict[str, F]:
    """The facts of these owners as they are held, and of all others as they are now."""
    owned = set(owners)
    return {**{name: facts for name, facts in known.items() if name in owned}, **now}


def _formulas(
    before: Lock, now: FormulaFacts, scenarios: Sequence[ScenarioFact], facts: Collection[str]
) -> FormulaFacts:
    """Those of the scenarios' programs, which facts of theirs name, and of their machines under their cost models."""
    known, seconds = before.formulas, dict(now.seconds)
    for model, second in known.seconds.items():
        machines = [fact.inputs["hardware"] for fact in scenarios if fact.inputs["cost_model"] == model]
        if formulas := _both(second, now.seconds.get(model, {}), machines):
            seconds[model] = formulas
    owners = [fact.owner for fact in before.facts if str(fact) in facts]
    programs = _both(known.program, now.program, [owner[1] for owner in owners if owner[0] == "program"])
    return now.but(seconds=seconds, program=programs)


def _refuse_moved(facts: set[str], known: Lock, both: Lock, others: int) -> None:
    """Refuse a fact of the kept scenarios that is another one now, or gone."""
    for fact, before in known.facts.items():
        now = both.facts.get(fact)
        if str(fact) in facts and getattr(now, "samples", now) != getattr(before, "samples", before):
            message = f"{fact} moved, and {others} of the lock's other scenarios are made with such facts"
            raise InputError.one("shared-fact", message, remedy="update all of them: tpsim check --update")
