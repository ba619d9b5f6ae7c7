"""Whole steps against published ones: the page on them is what a sample of runs is planned as, and its goals hold.

All of it is written afresh by benchmarks/steps.py, in minutes: here of every set two runs are planned once more.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import steps
import tpsim
from steps_runs import by_set, runs
from tpsim.machine.evidence import evidence


@cache
def listed():
    """The page's seconds of every run."""
    each = r"^\| (\S+) \| [^|]+ \| [^|]+ \| [\d.e+]+ \| ([\d.e+]+) \| [+-]"
    return {name: float(seconds) for name, seconds in re.findall(each, steps.PAGE.read_text(), re.MULTILINE)}


def rows(title):
    """The cells of a table of the page, by the first of a row."""
    part = steps.PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return {first: rest for first, *rest in cells[2:]}


def named(name):
    return next(run for run in runs() if run.row["id"] == name)


@pytest.mark.parametrize(
    "run", [run for each in by_set().values() for run in (each[0], each[len(each) // 2])], ids=lambda run: run.row["id"]
)
def test_a_run_is_planned_as_the_page_lists_it(run):
    assert float(f"{run.planned():.4g}") == pytest.approx(listed()[run.row["id"]], rel=1e-3)


def test_sets_are_scored_by_what_is_listed():
    assert listed().keys() == {run.row["id"] for run in runs()}
    for name, several in by_set().items():
        off = np.array([listed()[run.row["id"]] / run.measured - 1 for run in several])
        found = [float(rows("By set")[name][column]) for column in (1, 3)]
        assert found == pytest.approx([100 * np.abs(off).mean(), 100 * off.mean()], abs=0.1)


def test_changes_are_those_of_what_is_listed_and_most_are_near():
    found = {what: 100 * (listed()[after] / listed()[before] - 1) for what, before, after in steps.DELTAS}
    assert {what: float(cells[1]) for what, cells in rows("Changes").items()} == pytest.approx(found, abs=0.15)
    seen = {what: float(cells[0]) for what, cells in rows("Changes").items()}
    assert all(np.sign(seen[what]) == np.sign(change) for what, change in found.items() if abs(change) > 0.05)


@pytest.mark.parametrize("table", ["korthikanti", "narayanan-1"])
def test_steps_of_a_table_are_within_6_percent_in_the_mean_and_within_9_with_it_left_out(table):
    mean, _, _, outside, *_ = rows("By set")[table][1:]
    assert (float(mean) < 6, float(outside) < 9) == (True, True)


def test_what_selective_recompute_saves_over_full_is_within_3_percent_in_the_mean_and_4_at_most():
    off = []
    for full, selective in (("001", "002"), ("003", "004"), ("005", "006"), ("007", "008")):
        pair = [f"korthikanti_2022-{number}" for number in (selective, full)]
        told, seen = (figure(pair[0]) / figure(pair[1]) for figure in (listed().get, lambda name: named(name).measured))
        off.append(abs(told / seen - 1))
    assert (np.mean(off) < 0.03, max(off) < 0.04) == (True, True)


def test_bands_are_those_of_the_page_and_lie_about_the_step():
    shown = [tuple(map(float, cells)) for cells in rows("Bands").values() if len(cells) == WHOLE and "." in cells[-1]]
    assert [(one.runs, one.sets, one.low, one.high) for one in evidence().steps] == shown
    assert all(one.low < 1 < one.high for one in evidence().steps)


WHOLE = 4
"""Cells of a row of a band behind its kind."""


@pytest.mark.parametrize(("name", "kind"), [("megatron-22b-a100", "one node"), ("gpt-neox-20b-a100", "several nodes")])
def test_a_plan_has_the_band_of_its_kind(name, kind):
    plan = tpsim.plan(name)
    many = {"one node": "one", "several nodes": "many"}[kind]
    ends = next(one for one in evidence().steps if (one.generation, one.nodes) == ("ampere", many))
    assert (plan.band.low_s, plan.band.high_s) == (plan.step.time_s * ends.low, plan.step.time_s * ends.high)
    assert kind in plan.band.text


def test_chips_that_no_published_step_tells_of_have_the_widest_band():
    plan = tpsim.plan("llama3-70b-v4")
    widest = max(evidence().steps, key=lambda one: one.high / one.low)
    assert plan.band.high_s / plan.band.low_s == pytest.approx(widest.high / widest.low)
    assert "the widest band" in plan.band.text
