"""``tpsim search``: its page, its files, its exit codes."""

from __future__ import annotations

import json
import re
import sys
from itertools import groupby

import pytest

ASKED = (
    *("search", "--model", "gpt-tiny", "--hw", "dgx-h100", "--chips", "4", "--seq", "16", "--batch", "8"),
    *("--recompute", "none", "--vary", "pp=1", "--vary", "zero=0,1", "--vary", "microbatches=1,2", "--top", "2"),
)


def test_the_best_comes_first_then_what_the_others_lose_by_then_one_command(tpsim):
    ran = tpsim(*ASKED)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "layouts of gpt-tiny"
    assert lines[2:10] == [
        "model     gpt-tiny, 29,056 parameters",
        "work      8 sequences of 16 tokens",
        "machine   dgx-h100, 4 chips",
        "practice  megatron: no recompute, overlap (tensor beside, gradients none, weights none, stages auto)",
        "searched  zero, sequence_parallel, schedule, chunks, layers, microbatches, dp, cp, tp",
        "held      recompute none, pp 1",
        "covered   16 with cp: more data shards do the same, and exchange no keys and values",
        "",
    ]
    assert lines[11].split() == [
        "rank",
        "tp",
        "dp",
        "pp",
        "batches",
        "seqs",
        "ZeRO",
        "us",
        "kB",
        "%",
        "against",
        "the",
        "best",
    ]
    assert [line.split()[0] for line in lines[12:14]] == ["1", "2"]
    assert [line.split()[0] for line in lines[15:18]] == ["best", "memory", "space"]
    assert lines[-1].startswith("next: tpsim search --model gpt-tiny --hw dgx-h100 --chips 4 --batch 8 --seq 16 ")


def test_the_best_is_saved_as_a_scenario_that_plan_reads_back(tpsim, tmp_path):
    path = tmp_path / "best.yaml"
    ran = tpsim(*ASKED, "--save", str(path), "-f", "json")
    best = json.loads(ran.out)["result"]["best"]
    assert ran.err == f"wrote {path}\n"
    plan = json.loads(tpsim("plan", str(path), "-f", "json").out)["result"]
    assert plan["step"]["time_s"] == best["step_s"]
    assert plan["memory"]["peak_bytes"] == best["peak_bytes"]
    assert tpsim(*ASKED, "--save", str(path)).out.endswith(f"next: tpsim plan {path}\n")


def test_a_table_of_layouts_is_csv_too(tpsim):
    head, *rows = tpsim(*ASKED, "-f", "csv").out.splitlines()
    assert head.startswith("rank,tp,dp,cp,ep,pp,schedule,chunks,layers,microbatches,microbatch_size,zero,")
    assert len(rows) == 2


def test_a_search_that_finds_nothing_ends_with_1_and_a_wrong_one_with_2(tpsim):
    none = tpsim(*ASKED, "--set", "require={step: < 1 ns}")
    assert none.code == 1
    assert "none of those that fit meets require step < 1 ns" in none.out
    wrong = tpsim(*ASKED, "--by", "beauty")
    assert (wrong.code, wrong.out) == (2, "")
    assert 'error[unknown-measure]: "beauty" is not a measure' in wrong.err


def test_a_sweep_says_how_far_it_is_and_started_again_has_nothing_to_do(tpsim, tmp_path):
    pytest.importorskip("pyarrow")
    asked = (*ASKED[:-2], "--tp", "1", "--sweep", str(tmp_path / "runs"))
    first, again = tpsim(*asked), tpsim(*asked)
    assert first.code == again.code == 0
    assert first.err.splitlines()[-1].startswith("4 of 4 cells, ")
    assert first.err.endswith(" a second, 0 s left\n")
    assert again.err == ""
    assert "cells  4, 4 of them searched now\n" in first.out
    assert again.out == first.out.replace("4 of them", "0 of them")


def test_a_search_that_is_watched_shows_what_it_does_in_one_line_that_is_gone_at_the_end(tpsim, watch):
    watched = watch()
    assert [tpsim(*ASKED, "--workers", "1", *quiet).code for quiet in ((), ("-q",))] == [0, 0]
    assert watched.text.split("\r\x1b[K") == [
        "",
        "0 of 1 space of layouts listed",
        *(f"{done} of 3 groups weighed, of 16 layouts" for done in range(3)),
        *(f"{done} of 200 plans at most" for done in range(5)),
        "",
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_shown_of_a_search_grows(tpsim, watch, workers):
    """However many processes take what there is, and whatever is searched again for another part of the machine."""
    watched = watch()
    assert tpsim(*ASKED, "--workers", str(workers), "--sensitivity").code == 0
    shown = re.findall(r"\r\x1b\[K(\d+) of (\d+) ([^\r]*)", watched.text)
    parts = [[(int(done), int(of)) for done, of, _ in some] for _, some in groupby(shown, key=lambda one: one[2])]
    assert all(some == sorted(some) and some[0][0] >= 0 and some[-1][0] < some[-1][1] for some in parts)
    assert "groups weighed, of 16 layouts, with better network latency" in {what for *_, what in shown}
    assert "figures of the machine made better" in {what for *_, what in shown}


def test_a_search_that_finds_nothing_shows_what_it_looks_for_then(tpsim, watch):
    watched = watch()
    none = tpsim("search", "llama3-8b-v5e", "--chips", "4", "--tp", "1", "--zero", "0", "--workers", "1")
    assert none.code == 1
    assert "groups weighed, of " in watched.text
    assert ", to find what makes one do\r\x1b[K" in watched.text
    assert watched.text.endswith("\r\x1b[K")


@pytest.mark.parametrize("stream", [None, "dumb"])
def test_a_search_shows_nothing_where_a_line_cannot_be_taken_away(tpsim, watch, monkeypatch, stream):
    watched = watch()
    monkeypatch.setenv("TERM", "dumb")
    if stream is None:
        monkeypatch.setattr(sys, "stderr", None)
    assert tpsim(*ASKED).code == 0
    assert watched.text == ""


def test_a_search_that_is_interrupted_leaves_no_line(tpsim, watch, monkeypatch):
    watched = watch()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tpsim.answers.ranking.Ranking.best", interrupted)
    ran = tpsim(*ASKED)
    assert (ran.code, ran.out) == (130, "")
    assert watched.text.endswith(" of 16 layouts\r\x1b[K\n")  # the line break is that of the ^C


def test_a_sweep_that_is_watched_shows_how_far_it_is_in_one_line(tpsim, watch, tmp_path):
    watched = watch()
    pytest.importorskip("pyarrow")
    assert tpsim(*ASKED[:-2], "--tp", "1", "--sweep", str(tmp_path / "runs")).code == 0
    shown = watched.text.split("\r\x1b[K")
    assert shown[:2] == ["", "0 of 4 cells"]
    assert shown[-2].startswith("4 of 4 cells, ")
    assert (shown[-1], "\n" in watched.text) == ("", False)


def test_a_search_of_several_processes_prints_the_page_of_one(tpsim):
    assert tpsim(*ASKED, "--workers", "2") == tpsim(*ASKED, "--workers", "1")


def test_what_only_a_sweep_has_is_refused_elsewhere_and_what_it_has_not_there(tpsim, tmp_path):
    alone = tpsim(*ASKED, "--dask", "tcp://127.0.0.1:8786")
    assert (alone.code, alone.out) == (2, "")
    assert "error[no-sweep]: --dask is for a sweep, which is kept in a folder" in alone.err
    more = tpsim(*ASKED, "--sweep", str(tmp_path / "runs"), "--pareto", "step,memory")
    assert (more.code, more.out) == (2, "")
    assert "error[no-sweep]: a sweep keeps the best layouts of every cell, and no more of any" in more.err
