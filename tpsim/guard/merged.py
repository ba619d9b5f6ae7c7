"""A lock in which some scenarios are brought up to date and the others stay as they are held."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tpsim.guard.lock_parts import BASE
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.guard.lock import Lock
    from tpsim.guard.lock_parts import FormulaFacts, ScenarioFact


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
    practices = _both(known.switches.practice, now.switches.practice, [fact.asked[BASE] for fact in scenarios])
    both = now.but(
        constants=_both(known.constants, now.constants, [fact.inputs["hardware"] for fact in scenarios]),
        models=_both(known.models, now.models, [fact.inputs["model"] for fact in scenarios]),
        switches=now.switches.but(practice=practices),
        formulas=_formulas(known.formulas, now.formulas, scenarios),
        uses={**lists, **now.uses},
        scenarios=dict(sorted({**kept, **now.scenarios}.items())),
    )
    _refuse_moved(named.union(*lists.values()), known, both, len(kept))
    return both


F = TypeVar("F")


def _both(known: Mapping[str, F], now: Mapping[str, F], owners: Iterable[object]) -> dict[str, F]:
    """The facts of these owners as they are held, and of all others as they are now."""
    owned = set(owners)
    return {**{name: facts for name, facts in known.items() if name in owned}, **now}


def _formulas(known: FormulaFacts, now: FormulaFacts, scenarios: Sequence[ScenarioFact]) -> FormulaFacts:
    """Those of the scenarios' programs, and of their machines under their cost models."""
    seconds = dict(now.seconds)
    for model, second in known.seconds.items():
        machines = [fact.inputs["hardware"] for fact in scenarios if fact.inputs["cost_model"] == model]
        if formulas := _both(second, now.seconds.get(model, {}), machines):
            seconds[model] = formulas
    programs = _both(known.program, now.program, [fact.inputs["program"] for fact in scenarios])
    return now.but(seconds=seconds, program=programs)


def _refuse_moved(facts: set[str], known: Lock, both: Lock, others: int) -> None:
    """Refuse a fact of the kept scenarios that is another one now, or gone."""
    for fact, held in known.facts.items():
        now = both.facts.get(fact)
        if str(fact) in facts and getattr(now, "samples", now) != getattr(held, "samples", held):
            message = f"{fact} moved, and {others} of the lock's other scenarios are made with such facts"
            raise InputError.one("shared-fact", message, remedy="update all of them: tpsim check --update")
