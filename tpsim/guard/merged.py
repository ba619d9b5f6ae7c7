"""A lock in which some scenarios are brought up to date and the others stay as they are held."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tpsim.guard.lock import Lock, ScenarioFact


def merged(known: Lock, now: Lock, others: Iterable[str]) -> Lock:
    """The lock `now` with the scenarios `others` of the lock before, and the facts that they are made with.

    Raises InputError where a fact moved that one of `others` is made with, too: their numbers would no longer be of it.
    """
    kept = {name: known.scenarios[name] for name in others}
    if not kept:
        return now
    sections = {name: dict(_used(getattr(known, name), kept.values())) for name in SECTIONS}
    _refuse_moved(sections, now, kept)
    both: dict[str, Any] = {name: {**_own(facts), **getattr(now, name)} for name, facts in sections.items()}
    return replace(now, scenarios=dict(sorted({**kept, **now.scenarios}.items())), **both)


SECTIONS = ("constants", "models", "switches", "formulas")


def _used(facts: Mapping[str, Any], scenarios: Iterable[ScenarioFact]) -> Iterator[tuple[str, Any]]:
    """The facts that belong to what these scenarios name; those of no owner belong to all."""
    owners = {owner for one in scenarios for owner in _owners(one.inputs)}
    for key, fact in facts.items():
        if key.startswith(SHARED) or any(key.startswith(f"{owner}.") for owner in owners):
            yield key, fact


SHARED = ("default.", "wire.", "form.")
"""How facts begin that every scenario is made with."""


def _own(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of owners: of those that all scenarios share the lock holds what is there now."""
    return {key: fact for key, fact in facts.items() if not key.startswith(SHARED)}


def _owners(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """What the facts of a scenario begin with."""
    machine = inputs.get("hardware")
    return (
        f"{machine}",
        f"{inputs.get('model')}",
        f"practice.{inputs.get('practice.base')}",
        f"program.{inputs.get('program')}",
        f"seconds.{inputs.get('cost_model')}.{machine}",
    )


def _refuse_moved(kept: Mapping[str, Mapping[str, Any]], now: Lock, others: Mapping[str, Any]) -> None:
    """Refuse a fact of the kept scenarios that is another one now."""
    for section, facts in kept.items():
        found = getattr(now, section)
        for key, fact in facts.items():
            if key in found and getattr(found[key], "samples", found[key]) != getattr(fact, "samples", fact):
                message = f"{key} moved, and {len(others)} of the lock's other scenarios are made with such facts"
                raise InputError.one("shared-fact", message, remedy="update all of them: tpsim check --update")
