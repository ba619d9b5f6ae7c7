"""What moved between two locks: every difference in numbers with the facts that caused it.

A fact that moved explains the numbers that moved and use it. A machine or a model that is called otherwise has not
moved: the old lock is told in the names of the new one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.guard.causes import STILL, CauseOfDrift, causes
from tpsim.guard.moved_numbers import Moved, in_both, moved_in
from tpsim.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.guard.lock import Lock
    from tpsim.guard.lock_parts import ScenarioFact

UNKNOWN = "code of tpsim that no formula of the lock samples"
"""What is to blame where numbers moved and no fact that they use did."""


@dataclass(frozen=True, slots=True)
class Drift:
    """All that moved between two locks.

    old             in the names of the new one, where a machine or a model was renamed
    moved           numbers, by scenario and collective
    added, dropped  scenarios that only the new lock has, or only the old one
    """

    old: Lock
    new: Lock
    causes: tuple[CauseOfDrift, ...] = ()
    moved: tuple[Moved, ...] = ()
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.causes or self.moved or self.added or self.dropped)

    @property
    def changed(self) -> tuple[str, ...]:
        """Scenarios in both locks whose numbers moved."""
        return tuple(dict.fromkeys(number.scenario for number in self.moved))


def drift(old: Lock, new: Lock) -> Drift:
    """What moved from `old` to `new`; times are compared with the tolerance of the old lock."""
    old, renamed = in_names_of(new, old)
    old, new = _saying_where(old, new), _saying_where(new, old)
    moved = tuple(number for name in in_both(old, new) for number in moved_in(name, old, new))
    touched = [_touched(cause, moved, old, new) for cause in [*causes(old, new), *renamed]]
    # What moved a number comes before what moved none.
    touching = sorted(touched, key=lambda cause: not cause.scenarios)
    return Drift(
        old,
        new,
        (*touching, *_unexplained(touching, moved, old, new)),
        moved,
        added=tuple(name for name in new.scenarios if name not in old.scenarios),
        dropped=tuple(name for name in old.scenarios if name not in new.scenarios),
    )


def at_least(whole: Drift, share: float) -> Drift:
    """The drift without the numbers that moved by less than a share, and without the causes of nothing else."""
    moved = tuple(number for number in whole.moved if number.relative is None or abs(number.relative) >= share)
    numbers = {(number.scenario, number.part) for number in moved if not isinstance(number.new or number.old, str)}
    moved = tuple(number for number in moved if (number.scenario, number.part) in numbers)
    left = {number.scenario for number in moved}
    causes = tuple(cause for cause in whole.causes if not cause.scenarios or left & {*cause.scenarios})
    kept = [cause if cause.kind == "scenario" else replace(cause, scenarios=()) for cause in causes]
    again = tuple(_touched(cause, moved, whole.old, whole.new) for cause in kept)
    return replace(whole, moved=moved, causes=again)


def _touched(cause: CauseOfDrift, moved: Sequence[Moved], old: Lock, new: Lock) -> CauseOfDrift:
    """The cause with the scenarios and collectives whose numbers moved and that use it."""
    return cause if cause.silent else _moving(cause, [number for number in moved if cause.makes(number, old, new)])


def _moving(cause: CauseOfDrift, hits: Sequence[Moved]) -> CauseOfDrift:
    """The cause with the scenarios and collectives of these numbers, and the largest change of a step among them."""
    names = tuple(dict.fromkeys([*cause.scenarios, *(hit.scenario for hit in hits)]))
    over = tuple(dict.fromkeys(hit.part.over for hit in hits if hit.part))
    steps = [hit.relative for hit in hits if hit.quantity == "step_s" and hit.relative is not None]
    return replace(cause, scenarios=names, collectives=over, step_relative=max(steps, key=abs, default=None))


def _unexplained(
    causes: Sequence[CauseOfDrift], moved: Sequence[Moved], old: Lock, new: Lock
) -> Iterator[CauseOfDrift]:
    """Numbers that moved though no fact did that they use: other code of tpsim is to blame, and is said to be."""
    left = [number for number in moved if not any(cause.makes(number, old, new) for cause in causes)]
    if left:
        sentence = "moved: " + ", ".join(sorted({number.quantity for number in left}))
        yield _moving(CauseOfDrift("formula", UNKNOWN, None, None, sentence), left)


def _saying_where(lock: Lock, other: Lock) -> Lock:
    """The lock that says which calls of a pipeline are of other stages: one that is older says it of none.

    Of such a pipeline, where the other lock has it in the same stages, calls are where they are there.
    """
    told = {name: _where_as(lock.scenarios[name], other.scenarios[name]) for name in in_both(lock, other)}
    return lock.but(scenarios={**lock.scenarios, **told})


def _where_as(fact: ScenarioFact, other: ScenarioFact) -> ScenarioFact:
    there = {calls.call for calls in other.collectives if calls.elsewhere}
    says = any(calls.elsewhere for calls in fact.collectives)
    if says or not there or fact.inputs.get("pipeline") != other.inputs.get("pipeline"):
        return fact
    return fact.but(collectives=tuple(calls.but(elsewhere=calls.call in there) for calls in fact.collectives))


ALIKE = 0.5
"""Share of equal facts from which a machine of a new name is taken for the old one, edited: half tell it apart."""

SECTIONS: Mapping[str, str] = {"hardware": "constants", "model": "models"}
"""The fields of a scenario that name owners of facts, and the section of a lock that holds those."""


class Renamed(NamedTuple):
    """A machine or model of a new name that is mostly, or wholly, one of the old lock, but for facts that differ."""

    field: str
    old: str
    new: str
    differing: int

    @property
    def note(self) -> str:
        """What is said of it: by a name alone no number moves."""
        if not self.differing:
            return f"another name, and nothing in it moved: {STILL}"
        facts = counted(self.differing, "fact")
        return f"another name, and {facts} in it moved, told on their own: by the name {STILL}"


def in_names_of(new: Lock, old: Lock) -> tuple[Lock, list[CauseOfDrift]]:
    """The old lock with the names of the new one, and a cause for each name that moved, which moves no number."""
    pairs = [pair for field_name in SECTIONS for pair in _renamed(field_name, old, new)]
    causes = [CauseOfDrift("scenario", pair.field, pair.old, pair.new, pair.note, silent=True) for pair in pairs]
    for pair in pairs:
        old = _told(pair, old, new)
    return old, causes


def _renamed(field_name: str, old: Lock, new: Lock) -> Iterator[Renamed]:
    """For each name that is new the name before that most scenarios gave up for it, if their facts are alike."""
    known = {fact.inputs.get(field_name) for fact in old.scenarios.values()}
    moves: dict[Any, Counter[Any]] = {}
    for name in in_both(old, new):
        before, after = (lock.scenarios[name].inputs.get(field_name) for lock in (old, new))
        if after not in known:
            moves.setdefault(after, Counter())[before] += 1
    for after, befores in moves.items():
        before = befores.most_common(1)[0][0]
        was, now = (getattr(lock, SECTIONS[field_name]).get(name, {}) for lock, name in ((old, before), (new, after)))
        paths = {*was, *now}
        differing = sum(was.get(path) != now.get(path) for path in paths)
        if len(paths) - differing >= ALIKE * len(paths) > 0:
            yield Renamed(field_name, before, after, differing)


def _told(pair: Renamed, old: Lock, new: Lock) -> Lock:
    """The old lock in which the scenarios that took the new name had it before, with its facts and formulas."""
    section = SECTIONS[pair.field]
    renamed = old.but(**{section: _with_both(getattr(old, section), pair)})
    if pair.field == "hardware":
        seconds = {model: _with_both(machines, pair) for model, machines in old.formulas.seconds.items()}
        renamed = renamed.but(formulas=old.formulas.but(seconds=seconds))
    names = dict(_names(pair, old))
    for name in in_both(old, new):
        if [lock.scenarios[name].inputs.get(pair.field) for lock in (old, new)] == [pair.old, pair.new]:
            renamed = _with(renamed, name, pair, names)
    return renamed


def _with_both(machines: Mapping[str, Any], pair: Renamed) -> dict[str, Any]:
    """Facts by machine, with those of the old name under the new one, too."""
    return {**machines, **({pair.new: machines[pair.old]} if pair.old in machines else {})}


def _names(pair: Renamed, old: Lock) -> Iterator[tuple[str, str]]:
    """What the facts of the old name are called, and what they are called by the new one."""
    owners: dict[tuple[str, ...], tuple[str, ...]] = {("model", pair.old): (pair.new,)}
    if pair.field == "hardware":
        owners = {("constant", pair.old): (pair.new,)}
        for model in old.formulas.seconds:
            owners["formula", "seconds", model, pair.old] = ("seconds", model, pair.new)
    for fact in old.facts:
        if (owner := owners.get((fact.kind, *fact.owner))) is not None:
            yield str(fact), str(fact._replace(owner=owner))


def _with(lock: Lock, name: str, pair: Renamed, names: Mapping[str, str]) -> Lock:
    """The lock in which one scenario has the new name, and lists of facts that are called by it."""
    fact = lock.scenarios[name]
    called = {used: f"{used} {pair.new}" if used in lock.uses else names.get(used, used) for used in fact.named}
    uses = {
        called[used]: tuple(names.get(known, known) for known in lock.uses[used])
        for used in fact.named
        if used in lock.uses
    }
    renamed = fact.but(inputs={**fact.inputs, pair.field: pair.new}).renamed(called)
    return lock.but(uses={**lock.uses, **uses}, scenarios={**lock.scenarios, name: renamed})
