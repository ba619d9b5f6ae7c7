"""Locks for tests: the folder ``tests/data/guarded``, and locks of as many scenarios as wanted made from it."""

from __future__ import annotations

from contextlib import chdir
from dataclasses import replace
from functools import cache

from tests.changes import GUARDED
from tpsim.guard.check import check

INSIDE = "hardware/node.levels.inside.link.bandwidth"


@cache
def lock():
    """The lock of the folder."""
    with chdir(GUARDED):
        return check(["scenarios"], update=True).drift.new


def many(count, times=1.0):
    """A lock of `count` scenarios, all seconds multiplied."""
    known = list(lock().scenarios.values())
    return replace(
        lock(), scenarios={f"scenarios/s{at:03}": slower(known[at % len(known)], times) for at in range(count)}
    )


def slower(fact, times):
    """A scenario with all seconds multiplied."""
    calls = {name: replace(one, time_s=one.time_s * times) for name, one in fact.collectives.items()}
    return replace(fact, results={**fact.results, "step_s": fact.results["step_s"] * times}, collectives=calls)


def with_constant(made, name, times):
    """A lock with one constant multiplied."""
    constant = made.constants[name]
    return replace(made, constants={**made.constants, name: replace(constant, value=constant.value * times)})
