"""Locks for tests: the folder ``tests/data/guarded``, and locks of as many scenarios as wanted made from it."""

from __future__ import annotations

from contextlib import chdir
from functools import cache

from tests.changes import GUARDED
from tpsim.guard.check import check
from tpsim.guard.lock_parts import ResultFact

NODE = "hardware/node"
INSIDE = "levels.inside.link.bandwidth"


@cache
def lock():
    """The lock of the folder."""
    with chdir(GUARDED):
        return check(["scenarios"], update=True).drift.new


def many(count, times=1.0):
    """A lock of `count` scenarios, all seconds multiplied."""
    known = list(lock().scenarios.values())
    return lock().but(scenarios={f"scenarios/s{at:03}": slower(known[at % len(known)], times) for at in range(count)})


def slower(fact, times):
    """A scenario with all seconds multiplied."""
    calls = tuple(one.but(time_s=one.time_s * times) for one in fact.collectives)
    return with_results(fact.but(collectives=calls), step_s=fact.result("step_s") * times)


def with_results(fact, **values):
    """A scenario with some results of other values; one that it has not is made with nothing."""
    known = {name: fact.results.get(name, ResultFact(value=0)) for name in values}
    return fact.but(results={**fact.results, **{name: known[name].but(value=one) for name, one in values.items()}})


def with_constant(made, path, times, machine=NODE):
    """A lock with one constant of a machine multiplied."""
    constant = made.constants[machine][path]
    return with_fact(made, "constants", machine, {path: constant.but(value=constant.value * times)})


def with_fact(made, section, owner, facts):
    """A lock with some facts of a machine or a model changed."""
    known = getattr(made, section)
    return made.but(**{section: {**known, owner: {**known[owner], **facts}}})
