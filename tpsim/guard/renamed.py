"""Machines and models under another name: a lock told in the names of a later one, so that their facts compare."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.guard.causes import STILL, Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.guard.lock import Lock, ScenarioFact

ALIKE = 0.5
"""Share of equal facts from which a machine of a new name is taken for the old one, edited: half tell it apart."""

OWNERS = {"hardware": "constants", "model": "models"}
"""The fields of a scenario that name owners of facts, and the section of a lock that holds those."""


class Renamed(NamedTuple):
    """A machine or model of a new name that is mostly, or wholly, one of the old lock."""

    field: str
    old: str
    new: str


def in_names_of(new: Lock, old: Lock) -> tuple[Lock, list[Cause]]:
    """The old lock with the names of the new one, and a cause for each name that moved, which moves no number."""
    found = [pair for field_name in OWNERS for pair in _renamed(field_name, old, new)]
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
    section = OWNERS[pair.field]
    before, after = facts_of(getattr(old, section), pair.old), facts_of(getattr(new, section), pair.new)
    paths = {*before, *after}
    return paths, sum(before.get(path) != after.get(path) for path in paths)


def facts_of(facts: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The facts of one owner by their paths.

    >>> facts_of({"a.x": 1, "b.x": 2}, "a")
    {'x': 1}
    """
    return {key.removeprefix(f"{owner}."): one for key, one in facts.items() if key.startswith(f"{owner}.")}


def _note(pair: Renamed, old: Lock, new: Lock) -> str:
    _, differing = _compared(pair, old, new)
    if not differing:
        return f"another name, and nothing in it moved: {STILL}"
    facts = "1 fact" if differing == 1 else f"{differing} facts"
    return f"another name, and {facts} in it moved, told on their own: by the name {STILL}"


def _told(pair: Renamed, old: Lock, new: Lock) -> Lock:
    """The old lock in which the scenarios that took the new name had it before, with its facts and formulas."""
    section = OWNERS[pair.field]
    facts = getattr(old, section)
    own = {f"{pair.new}.{path}": one for path, one in facts_of(facts, pair.old).items()}
    both: dict[str, Any] = {section: {**facts, **own}}
    scenarios = {name: _scenario(name, one, pair, new) for name, one in old.scenarios.items()}
    told = replace(old, scenarios=scenarios, **both)
    if pair.field != "hardware":
        return told
    seconds = {_of_machine(name, pair): one for name, one in old.formulas.items()}
    return replace(told, formulas={**old.formulas, **seconds})


def _scenario(name: str, fact: ScenarioFact, pair: Renamed, new: Lock) -> ScenarioFact:
    after = new.scenarios[name].inputs.get(pair.field) if name in new.scenarios else None
    if (fact.inputs.get(pair.field), after) != (pair.old, pair.new):
        return fact
    return replace(fact, inputs={**fact.inputs, pair.field: pair.new})


def _of_machine(formula: str, pair: Renamed) -> str:
    """``seconds.additive.NEW.nvlink`` of ``seconds.additive.OLD.nvlink``; any other formula as it is."""
    family, _, rest = formula.partition(".")
    model, _, level = rest.partition(".")
    if family != "seconds" or not level.startswith(f"{pair.old}."):
        return formula
    return f"{family}.{model}.{pair.new}.{level.removeprefix(f'{pair.old}.')}"
