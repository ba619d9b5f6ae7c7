"""Machines and models under another name: a lock told in the names of a later one, so that their facts compare."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.guard.causes import STILL, Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.guard.lock import Lock

ALIKE = 0.5
"""Share of equal facts from which a machine of a new name is taken for the old one, edited: half tell it apart."""

SECTIONS: Mapping[str, str] = {"hardware": "constants", "model": "models"}
"""The fields of a scenario that name owners of facts, and the section of a lock that holds those."""


class Renamed(NamedTuple):
    """A machine or model of a new name that is mostly, or wholly, one of the old lock."""

    field: str
    old: str
    new: str


def in_names_of(new: Lock, old: Lock) -> tuple[Lock, list[Cause]]:
    """The old lock with the names of the new one, and a cause for each name that moved, which moves no number."""
    found = [pair for field_name in SECTIONS for pair in _renamed(field_name, old, new)]
    causes = [Cause("scenario", one.field, one.old, one.new, _note(one, old, new)) for one in found]
    for one in found:
        old = _told(one, old, new)
    return old, causes


def _renamed(field_name: str, old: Lock, new: Lock) -> Iterator[Renamed]:
    """For each name that is new the name before that most scenarios gave up for it, if their facts are alike."""
    known = {one.inputs.get(field_name) for one in old.scenarios.values()}
    moves: dict[Any, Counter[Any]] = {}
    for name in (name for name in new.scenarios if name in old.scenarios):
        before, after = (lock.scenarios[name].inputs.get(field_name) for lock in (old, new))
        if after not in known:
            moves.setdefault(after, Counter())[before] += 1
    for after, befores in moves.items():
        pair = Renamed(field_name, befores.most_common(1)[0][0], after)
        facts, differing = _compared(pair, old, new)
        if len(facts) - differing >= ALIKE * len(facts) > 0:
            yield pair


def _compared(pair: Renamed, old: Lock, new: Lock) -> tuple[set[str], int]:
    """Paths of all facts of both owners, and how many of them differ."""
    section = SECTIONS[pair.field]
    before, after = getattr(old, section).get(pair.old, {}), getattr(new, section).get(pair.new, {})
    paths = {*before, *after}
    return paths, sum(before.get(path) != after.get(path) for path in paths)


def _note(pair: Renamed, old: Lock, new: Lock) -> str:
    _, differing = _compared(pair, old, new)
    if not differing:
        return f"another name, and nothing in it moved: {STILL}"
    facts = "1 fact" if differing == 1 else f"{differing} facts"
    return f"another name, and {facts} in it moved, told on their own: by the name {STILL}"


def _told(pair: Renamed, old: Lock, new: Lock) -> Lock:
    """The old lock in which the scenarios that took the new name had it before, with its facts and formulas."""
    section = SECTIONS[pair.field]
    told = old.but(**{section: _with_both(getattr(old, section), pair)})
    if pair.field == "hardware":
        seconds = {model: _with_both(machines, pair) for model, machines in old.formulas.seconds.items()}
        told = told.but(formulas=old.formulas.but(seconds=seconds))
    names = dict(_names(pair, old))
    for name in _took(pair, old, new):
        told = _with(told, name, pair, names)
    return told


def _with_both(machines: Mapping[str, Any], pair: Renamed) -> dict[str, Any]:
    """Facts by machine, with those of the old name under the new one, too."""
    return {**machines, **({pair.new: machines[pair.old]} if pair.old in machines else {})}


def _took(pair: Renamed, old: Lock, new: Lock) -> Iterator[str]:
    """The scenarios that had the old name and have the new one."""
    for name in (name for name in old.scenarios if name in new.scenarios):
        if [lock.scenarios[name].inputs.get(pair.field) for lock in (old, new)] == [pair.old, pair.new]:
            yield name


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
    called = {one: f"{one} {pair.new}" if one in lock.uses else names.get(one, one) for one in fact.named}
    uses = {
        called[one]: tuple(names.get(known, known) for known in lock.uses[one])
        for one in fact.named
        if one in lock.uses
    }
    told = fact.but(inputs={**fact.inputs, pair.field: pair.new}).renamed(called)
    return lock.but(uses={**lock.uses, **uses}, scenarios={**lock.scenarios, name: told})
