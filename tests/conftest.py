"""Settings of all tests: no law may fail because a machine is slow, and CI draws the same examples every time."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict

import pytest
from hypothesis import settings

from tpsim.quantity import spec
from tpsim.question.memo import Memo, structure

EXAMPLES = 200 if os.environ.get("TPSIM_FUZZ") == "all" else 30
settings.register_profile("tpsim", deadline=None, max_examples=EXAMPLES, derandomize="CI" in os.environ)
settings.load_profile("tpsim")


gc.set_threshold(5_000_000, 5, 100)  # programs are many objects that stay: to look through them took a thirtieth


def pytest_collection_finish():
    """What the tests themselves are stays: it is not looked through again."""
    gc.freeze()


def pytest_sessionfinish():
    """One look for files that were left open, where pytest takes five: all that is kept was most of ten seconds."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers start with a half each, so that files stay together for what their tests share; the faster helps out."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


SHIPPED = frozenset(spec.named(kind, name) for kind in ("hardware", "models") for name in spec.names(kind))
MOST_PROGRAMS, MOST_PARTS = 512, 2048
"""Of random layouts there is no end; what was asked for last stays."""
READ, PROGRAMS, BEGUN = {}, OrderedDict(), Memo()
OWN = {name: getattr(Memo, name) for name in ("machine", "model", "lowered", "_once")}


def read_once(what, kind):
    """A machine or a model of the library, read once."""

    def read(memo, name, *, beside):
        path = spec.named(kind, name, beside)
        if path not in SHIPPED:
            return OWN[what](memo, name, beside=beside)
        if path not in READ:
            READ[path] = OWN[what](memo, name, beside=beside)
        return getattr(memo, f"{what}s").setdefault((name, beside), READ[path])

    return read


def lowered(memo, question):
    """The program of a structure."""
    key = structure(question)
    if key not in PROGRAMS:
        PROGRAMS[key] = OWN["lowered"](memo, question)
    PROGRAMS.move_to_end(key)
    if len(PROGRAMS) > MOST_PROGRAMS:
        PROGRAMS.popitem(last=False)
    return memo.programs.setdefault(key, PROGRAMS[key])


def _once(_, *asked):
    """A part of a step, for all programs that have it; called as the method is, for programs that are sent name it."""
    if len(BEGUN.begun) > MOST_PARTS:
        BEGUN.begun.clear()
    return OWN["_once"](BEGUN, *asked)


@pytest.fixture(autouse=True, scope="session")
def one_memo():
    """All tests ask from one memo: what a library has is read, and a structure is lowered, once per process.

    Tests that break how programs are made take `anew`.
    """
    with pytest.MonkeyPatch.context() as patch:
        machine, model = read_once("machine", "hardware"), read_once("model", "models")
        for name, shared in {"machine": machine, "model": model, "lowered": lowered, "_once": _once}.items():
            patch.setattr(Memo, name, shared)
        yield


@pytest.fixture
def anew(one_memo):  # noqa: ARG001  # it comes behind
    """Every request reads and lowers for itself, as outside of tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, own in OWN.items():
            patch.setattr(Memo, name, own)
        yield
