"""Searches shared by several processes: the answer of one, whoever takes what; what goes wrong in a copy is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.models import SMALL_SCENARIO as SMALL
from tpsim.answers.ranking import _held, weigh
from tpsim.answers.search import search
from tpsim.layouts import copies as rooms
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.copies import Copies, processors
from tpsim.layouts.space import spaces
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

VARY = ["microbatches=4,8", "tp=2,4,8"]


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Who runs tests side by side has a thread of its own for that, which waits."""
    monkeypatch.setattr(rooms, "threading", SimpleNamespace(active_count=lambda: 1))


@pytest.fixture
def forked(monkeypatch):
    """How many processes were forked."""
    made, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: made.append(fork()) or made[-1])
    return made


@pytest.mark.parametrize(
    "asked",
    [
        {"pareto": "step,memory"},
        {"by": "memory", "top": 3},
        {"plans": 7},
        {"require": {"step": "< 900 ms"}},
        {"sensitivity": True, "top": 2},
        {"by": "tokens_per_s", "vary": [*VARY, "batch=64,128"], "require": {"best": {"tp": 8}}},
    ],
    ids=str,
)
def test_a_search_says_the_same_whatever_the_number_of_processes(forked, asked):
    require = asked.pop("require", {})
    question = {"vary": VARY, **asked}
    alone = search({**SMALL, "require": require}, **question)
    assert not forked
    assert alone.ranked.made or require
    for workers in (2, 3):
        several = search({**SMALL, "require": require}, workers=workers, **question)
        assert len(forked) >= workers - 1
        assert several.to_json() == alone.to_json()
        forked.clear()


def test_of_layouts_that_hold_alike_and_too_much_the_same_is_named_whoever_held_first(forked):
    """Layers cut nearly evenly, or balanced, come to one cut here: where nothing fits, either was the least."""
    sizes = {"hidden": 640, "layers": 11, "heads": 8, "kv_heads": 2, "head_dim": 128, "vocab": 8192}
    asked = {"model": {"extends": "llama-3-8b", **sizes, "ffn": {"kind": "gelu", "hidden": 2048}}, "chips": 18}
    asked |= {"hardware": {"extends": "tpu-v3", "chip": {"memory": {"capacity": "0.2967 GB"}}}}
    asked |= {"practice": "deepspeed", "workload": {"global_batch": 16, "seq": 1536}, "tpsim": "scenario/1"}
    vary = ["tp=2", "pp=3", "cp=3", "microbatches=4", "schedule=zb-h2,interleaved", "layers=balanced,nearly-even"]
    vary += ["recompute=selective", "sequence_parallel=true"]
    alone, several = (search(asked, vary=vary, workers=workers).verdict for workers in (1, 2))
    assert forked
    assert "layers nearly-even" in alone.splitlines()[0]
    assert several == alone


class Held:
    """A family whose bytes are known, in a process that is a copy or in this one."""

    room_bytes = np.array([-1.0])

    def __init__(self, copy):
        self.copy = copy

    def hold(self): ...

    begin_to_hold = hold


def test_of_layouts_that_hold_alike_those_of_copies_are_held_last_and_told_in_their_turn():
    families = [Held(1), Held(None), Held(2)]
    assert [one.family for one in _held(families)] == families


def test_inference_is_shared_too(forked):
    asked = {"chips": 8, "vary": ["batch=8,32"], "by": "tokens_per_s_chip"}
    alone, several = (search("llama3-70b-v5e-decode", workers=workers, **asked) for workers in (1, 2))
    assert forked
    assert several.to_json() == alone.to_json()


def test_seconds_of_prompts_that_replies_pay_for_come_from_copies_too(forked):
    replies = {"kind": "serve", "batch": 32, "prompt": 512, "output": 64}
    asked = {"tpsim": "scenario/1", "model": "llama-3-8b", "hardware": "dgx-h100", "workload": replies, "chips": 8}
    asked |= {"assume": {"price_per_chip_hour": 2}}
    alone, several = (evaluated(asked, workers) for workers in (1, 2))
    assert forked
    assert several == alone
    assert any(paid is not None for *_, paid in alone)


def evaluated(asked, workers):
    memo = Memo()
    several = spaces(asked, flags={}, overrides=(), vary=["tp", "batch=8,32"], memo=memo)
    families = evaluate(several, memo, weigh, workers).families
    return [(one.order, one.tokens, None if one.paid_s is None else one.paid_s.tolist()) for one in families]


def test_each_thing_is_made_once_and_stands_in_its_place():
    copies = Copies("state", 2)
    made = copies.shared(_told, [(at,) for at in range(50)], lambda at: _told("here", at))
    assert [value[1] for _, value in made] == [at**2 for at in range(50)]
    assert all(value[0] == ("here" if copy is None else "state") for copy, value in made)
    assert all((value[2] == os.getpid()) == (copy is None) for copy, value in made)
    again = copies.shared(_told, [(at,) for at in range(3)], lambda at: _told("here", at))
    assert [value[1] for _, value in again] == [0, 1, 4]


def _told(state, at):
    return state, at**2, os.getpid()


def _refused(_state, at):
    raise InputError.one("refused", f"not {at}", remedy="another")


def test_an_error_of_a_copy_is_raised_where_it_was_asked_and_it_goes_on():
    copies = Copies(None, 1)
    copies.ask(0, _refused, 7)
    with pytest.raises(InputError, match="not 7"):
        copies.told(0)
    copies.ask(0, _unsendable)
    with pytest.raises(Exception, match="pickle"):
        copies.told(0)
    copies.ask(0, _told, 3)
    assert copies.told(0)[:2] == (None, 9)


def _unsendable(_state):
    return lambda: 0


def test_a_copy_that_was_killed_is_told_with_a_remedy(forked):
    copies = Copies(None, 1)
    os.kill(forked[0], signal.SIGKILL)
    os.waitid(os.P_PID, forked[0], os.WEXITED | os.WNOWAIT)
    with pytest.raises(InputError, match="--workers 1"):
        copies.shared(_told, [(1,), (2,)], lambda at: at)


def test_copies_end_when_nobody_can_ask_them(forked):
    copies = Copies(None, 2)
    assert len(forked) == 2
    del copies
    for child in forked:
        assert os.waitpid(child, 0)[0] == child


def test_a_process_with_several_threads_is_not_copied(forked, monkeypatch):
    monkeypatch.setattr(rooms, "threading", threading)
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    try:
        assert search(SMALL, vary=VARY, workers=2).ranked.made > 0
        assert not forked
    finally:
        waiting.set()
        thread.join()


def test_a_search_takes_the_processors_that_it_may_use(monkeypatch):
    monkeypatch.setattr(rooms.sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert processors() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert processors() == rooms.MOST
    monkeypatch.setattr(rooms.sys, "platform", "darwin")
    assert processors() == 1


def test_a_copy_that_ends_while_it_works_is_told_with_a_remedy():
    copies = Copies(None, 1)
    copies.ask(0, _ended)
    with pytest.raises(InputError, match="--workers 1"):
        copies.told(0)


def _ended(_state):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_of_a_pool_which_may_have_no_processes_searches_alone(forked, monkeypatch):
    """A search by several was a bug there: daemonic processes are not allowed to have children."""
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert search(SMALL, vary=VARY, workers=2).to_json() == search(SMALL, vary=VARY).to_json()
    assert not forked


BEGUN = """
import os, time
from tpsim.__main__ import _end_copies
from tpsim.layouts.copies import Copies

def slow(_, seconds):
    time.sleep(seconds)

copies = Copies(None, 1)
"""
GONE = BEGUN + "copies.shared(slow, [(0.05,)] * 600, lambda _: os._exit(0))"
INTERRUPTED = BEGUN + "copies.ask(0, slow, 30); _end_copies(); os._exit(0)"


@pytest.mark.parametrize("script", [GONE, INTERRUPTED], ids=["gone", "interrupted"])
def test_a_copy_ends_with_the_process_that_it_is_a_copy_of(script):
    """It took all that was left, and nobody waited for it: a search that was interrupted kept a core for long."""
    began, (there, here) = time.monotonic(), os.pipe()
    subprocess.run([sys.executable, "-c", script], check=True, pass_fds=[here])
    os.close(here)
    assert os.read(there, 1) == b""  # once all are gone that could write there
    os.close(there)
    assert time.monotonic() - began < 15  # seconds; all of it takes 30
