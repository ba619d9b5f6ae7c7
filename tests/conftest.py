"""Settings of all tests: no law may fail because a machine is slow, and CI draws the same examples every time."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict

import pytest
from hypothesis import settings

from tpsim.quantity import spec
from tpsim.question.shelf import Shelf, structure

settings.register_profile("tpsim", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("tpsim")


gc.set_threshold(2_000_000, 5, 100)  # programs are many objects that stay: to look through them took a thirtieth


def pytest_collection_finish():
    """What the tests themselves are stays: it is not looked through again."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers start with a half each, so that files stay together for what their tests share; the faster helps out."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


SHIPPED = frozenset(spec.named("hardware", name) for name in spec.names("hardware"))
MOST_PROGRAMS = 64
"""Of random layouts there is no end; what was asked for last stays."""


@pytest.fixture(autouse=True, scope="session")
def one_shelf():
    """All tests ask from one shelf: a library's machine is read, and a structure is lowered, once per process.

    Tests that break how programs are made take `anew`.
    """
    machine, lowered = Shelf.machine, Shelf.lowered
    machines, programs = {}, OrderedDict()

    def read(shelf, name):
        if name not in SHIPPED:
            return machine(shelf, name)
        if name not in machines:
            machines[name] = machine(shelf, name)
        return shelf.machines.setdefault(name, machines[name])

    def made(shelf, question):
        key = structure(question)
        if key not in programs:
            programs[key] = lowered(shelf, question)
        programs.move_to_end(key)
        if len(programs) > MOST_PROGRAMS:
            programs.popitem(last=False)
        return shelf.programs.setdefault(key, programs[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shelf, "machine", read)
        patch.setattr(Shelf, "lowered", made)
        yield machine, lowered


@pytest.fixture
def anew(one_shelf):
    """Every request reads and lowers for itself, as outside of tests."""
    machine, lowered = one_shelf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shelf, "machine", machine)
        patch.setattr(Shelf, "lowered", lowered)
        yield
