"""Programs shared by several processes: the same answer as of one, and errors of a process are told by the one."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from tests.models import SMALL_SCENARIO as SMALL
from tpsim.answers.ranking import held_at_peak
from tpsim.answers.search import search
from tpsim.layouts import candidates, workers
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.space import spaces
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo

pytestmark = pytest.mark.skipif(workers.available() == 1, reason="one core, or no fork")

VARY = ["microbatches=4,8", "tp=2,4,8"]


@pytest.fixture
def forked(monkeypatch):
    """The processes that were forked; threads of who runs the tests do not count."""
    children, fork, count = [], os.fork, threading.active_count
    before = count()
    monkeypatch.setattr(threading, "active_count", lambda: count() - before + 1)
    monkeypatch.setattr(os, "fork", lambda: children.append(fork()) or children[-1])
    return children


def test_a_search_says_the_same_on_any_number_of_cores(forked):
    alone = search(SMALL, vary=VARY, by="step", pareto="step,memory")
    assert not forked
    for cores in (2, 3):
        several = search(SMALL, vary=VARY, by="step", pareto="step,memory", cores=cores)
        assert len(forked) == cores
        assert several.to_json() == alone.to_json()
        assert several.plans > 0
        forked.clear()


def test_layouts_are_weighed_in_the_same_order_to_the_last_bit(forked):
    weighed = []
    for cores in (1, 2):
        memo = Memo()
        several = spaces(SMALL, flags={}, overrides=(), vary=VARY, memo=memo)
        weighed.append(evaluate(several, memo, held_at_peak, cores).families)
    assert len(forked) == 2
    for one, other in zip(*weighed, strict=True):
        assert (one.group.program, one.schedule, one.chunks) == (other.group.program, other.schedule, other.chunks)
        for name in ("cells", "step_s", "peak_bytes", "room_bytes", "may_do", "looked"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert (one.nearer is None, one.peaked is None) == (other.nearer is None, other.peaked is None)


def test_demands_are_counted_alike(forked):
    demanding = {**SMALL, "require": {"step": "< 900 ms"}}
    alone, several = (search(demanding, vary=VARY, cores=cores) for cores in (1, 2))
    assert forked
    assert alone.violating > 0
    assert several.to_json() == alone.to_json()


def test_what_a_process_fails_at_is_done_again_and_told_here(forked, monkeypatch):
    here, evaluate = os.getpid(), candidates._evaluated

    def failing(*args, **named):
        if os.getpid() != here:
            raise MemoryError
        return evaluate(*args, **named)

    monkeypatch.setattr(candidates, "_evaluated", failing)
    several = search(SMALL, vary=VARY, cores=2)
    assert len(forked) == 2
    monkeypatch.setattr(candidates, "_evaluated", evaluate)
    assert several.to_json() == search(SMALL, vary=VARY).to_json()

    def refusing(*_args, **_named):
        raise InputError.one("refused", "not today")

    monkeypatch.setattr(candidates, "_evaluated", refusing)
    with pytest.raises(InputError, match="not today"):
        search(SMALL, vary=VARY, cores=2)


def test_processes_end_when_nobody_asks_any_more(forked):
    result = search(SMALL, vary=VARY, cores=2)
    assert len(forked) == 2
    del result
    for child in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_a_process_with_several_threads_is_not_copied(forked):
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    try:
        assert search(SMALL, vary=VARY, cores=2).plans > 0
        assert not forked
    finally:
        waiting.set()
        thread.join()
