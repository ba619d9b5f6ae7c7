"""Settings of all tests: no law may fail because a machine is slow, and CI draws the same examples every time."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict

import pytest
from hypothesis import settings

from tpsim.quantity import spec
from tpsim.question.memo import Memo, structure

settings.register_profile("tpsim", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("tpsim")


gc.set_threshold(5_000_000, 5, 100)  # programs are many objects that stay: to look through them took a thirtieth


def pytest_collection_finish():
    """What the tests themselves are stays: it is not looked through again."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers start with a half each, so that files stay together for what their tests share; the faster helps out."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


SHIPPED = frozenset(spec.named("hardware", name) for name in spec.names("hardware"))
MOST_PROGRAMS, MOST_PARTS = 128, 512
"""Of random layouts there is no end; what was asked for last stays."""


@pytest.fixture(autouse=True, scope="session")
def one_memo():
    """All tests ask from one memo: a library's machine is read, and a structure is lowered, once per process.

    Tests that break how programs are made take `anew`.
    """
    machine, lowered, once = Memo.machine, Memo.lowered, Memo._once
    machines, programs, begun = {}, OrderedDict(), Memo()

    def read(memo, name, *, beside):
        path = spec.named("hardware", name, beside)
        if path not in SHIPPED:
            return machine(memo, name, beside=beside)
        if path not in machines:
            machines[path] = machine(memo, name, beside=beside)
        return memo.machines.setdefault((name, beside), machines[path])

    def made(memo, question):
        key = structure(question)
        if key not in programs:
            programs[key] = lowered(memo, question)
        programs.move_to_end(key)
        if len(programs) > MOST_PROGRAMS:
            programs.popitem(last=False)
        return memo.programs.setdefault(key, programs[key])

    def part(_, *asked):
        if len(begun.begun) > MOST_PARTS:
            begun.begun.clear()
        return once(begun, *asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Memo, "machine", read)
        patch.setattr(Memo, "lowered", made)
        patch.setattr(Memo, "_once", part)
        yield {"machine": machine, "lowered": lowered, "_once": once}


@pytest.fixture
def anew(one_memo):
    """Every request reads and lowers for itself, as outside of tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, own in one_memo.items():
            patch.setattr(Memo, name, own)
        yield
