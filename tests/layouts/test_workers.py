"""Programs shared by several processes: the same answer as of one, and errors of a process are told by the one."""

from __future__ import annotations

import os
import threading

import pytest

from tests.models import SMALL_SCENARIO as SMALL
from tpsim.answers.search import search
from tpsim.layouts import candidates, workers
from tpsim.quantity.errors import InputError

pytestmark = pytest.mark.skipif(workers.available() == 1, reason="one core, or no fork")

VARY = ["microbatches=4,8", "tp=2,4,8"]


@pytest.fixture
def forked(monkeypatch):
    """How many processes were forked."""
    children, fork = [], os.fork
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
