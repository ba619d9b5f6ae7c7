"""Settings of all tests: no law may fail because a machine is slow, and CI draws the same examples every time."""

from __future__ import annotations

import gc
import os
import sys
from collections import OrderedDict
from functools import wraps

import pytest
from hypothesis import settings

import tpsim.answers.plan  # noqa: F401  # `tpsim.plan` is the verb
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


plan_module = sys.modules["tpsim.answers.plan"]
SHIPPED = frozenset(spec.named(kind, name) for kind in ("hardware", "models") for name in spec.names(kind))
MOST_PROGRAMS, MOST_PARTS, MOST_PLANS = 128, 512, 256
"""Of random layouts there is no end; what was asked for last stays."""
READ, PROGRAMS, PLANS, BEGUN = {}, OrderedDict(), OrderedDict(), Memo()
OWN = {name: getattr(Memo, name) for name in ("machine", "model", "lowered", "_once")}
work_out = plan_module._priced
BROKEN = set()
"""Who has changed attributes or tables, and not yet put them back."""


def breaking(change):
    """A way to change something for a while, with a note of who does; an environment is a part of the question."""

    @wraps(change)
    def noted(patch, target, *rest, **more):
        if target is not os.environ:
            BROKEN.add(patch)
        return change(patch, target, *rest, **more)

    return noted


def mended(undo):
    """The way to put it back, which takes the note away."""

    @wraps(undo)
    def noted(patch):
        BROKEN.discard(patch)
        undo(patch)

    return noted


for way in ("setattr", "delattr", "setitem", "delitem"):
    setattr(pytest.MonkeyPatch, way, breaking(getattr(pytest.MonkeyPatch, way)))
pytest.MonkeyPatch.undo = mended(pytest.MonkeyPatch.undo)


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


def once(_, *asked):
    """A part of a step, for all programs that have it."""
    if len(BEGUN.begun) > MOST_PARTS:
        BEGUN.begun.clear()
    return OWN["_once"](BEGUN, *asked)


def priced(question, program, *rest, briefly=False):
    """The plan of an equal question with the same program, if there is one and nothing is broken."""
    if BROKEN or question.planner != "book":  # any other makes programs of its own
        return work_out(question, program, *rest, briefly=briefly)
    key = (question.name, id(program), briefly)
    alike = PLANS.setdefault(key, [])
    PLANS.move_to_end(key)
    for plan in alike:
        if (plan.question, plan.question.stated) == (question, question.stated):
            return plan
    alike.append(work_out(question, program, *rest, briefly=briefly))
    if sum(map(len, PLANS.values())) > MOST_PLANS:
        PLANS.popitem(last=False)
    return alike[-1]


@pytest.fixture(autouse=True, scope="session")
def one_memo():
    """All tests ask from one memo: a machine is read, a structure lowered, a question priced once per process.

    As long as something is broken, every plan is priced anew; tests that break how programs are made take `anew`.
    """
    with pytest.MonkeyPatch.context() as patch:
        machine, model = read_once("machine", "hardware"), read_once("model", "models")
        for name, shared in {"machine": machine, "model": model, "lowered": lowered, "_once": once}.items():
            patch.setattr(Memo, name, shared)
        patch.setattr(plan_module, "_priced", priced)
        BROKEN.clear()  # neither these nor what pytest itself begins with break anything
        yield


@pytest.fixture
def anew(one_memo):  # noqa: ARG001  # it comes behind
    """Every request reads, lowers and prices for itself, as outside of tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, own in OWN.items():
            patch.setattr(Memo, name, own)
        yield
