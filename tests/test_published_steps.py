"""Whole steps against published ones: the page on them is what a sample of runs is planned as, and its goals hold.

All of it is written afresh by benchmarks/steps.py, in minutes: here of every set two runs are planned once more.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import steps
import steps_bands
import tpsim
from steps_runs import by_set, chosen, runs
from tpsim.guard.lock_of_plans import asked_facts
from tpsim.machine.evidence import evidence


@cache
def listed():
    """The page's seconds of every run."""
    each = r"^\| (\S+) \| [^|]+ \| [^|]+ \| [\d.e+]+ \| ([\d.e+]+) \| [+-]"
    text = steps.PAGE.read_text().split("\n## Runs\n")[1]
    return {name: float(seconds) for name, seconds in re.findall(each, text, re.MULTILINE)}


def parts(title):
    """The cells of the tables below a title of the page, by the first of a row."""
    part = steps.PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    tables = [text for text in part.split("\n\n") if text.startswith("|")]
    cells = [[line[2:-2].split(" | ") for line in text.splitlines()[2:]] for text in tables]
    return [{first: [cell.strip() for cell in rest] for first, *rest in table} for table in cells]


def rows(title):
    """Those of the first table."""
    return parts(title)[0]


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
    shown = [tuple(map(float, cells)) for cells in parts("Bands")[0].values()]
    assert [(one.runs, one.sets, one.low, one.high) for one in evidence().steps] == shown
    assert all(one.low < 1 < one.high for one in evidence().steps)


def test_80_percent_lies_in_the_interval_of_sets_of_every_kind():
    """Nor is any coverage far off itself. The binomial interval beside it takes runs that are wrong alike for many."""
    for kind, (_, _, inside, _, sets, _) in parts("Bands")[1].items():
        low, high = map(float, sets.split(" to "))
        assert (low <= 80 <= high, 70 <= float(inside) <= 90) == (True, True), kind


def test_the_interval_of_sets_is_the_binomial_one_of_so_many_where_runs_of_a_set_are_all_alike():
    """Ten sets of ten runs, of which eight lie inside wholly: as if ten runs had been seen."""
    share, alone, together = steps_bands.coverage([(1.0, 10)] * 8 + [(0.0, 10)] * 2)
    assert share == pytest.approx(0.8)
    assert alone == pytest.approx(1.96 * (0.8 * 0.2 / 100) ** 0.5)
    assert together == pytest.approx(2.262 * (0.8 * 0.2 / 9) ** 0.5)
    assert steps_bands.coverage([(0.8, 10)] * 10)[2] == pytest.approx(0, abs=1e-9)


def test_own_runs_better_a_set_and_a_single_one_makes_none_of_a_known_generation_worse_than_its_noise():
    found = {name: [float(one or 0) for one in cells] for name, cells in rows("One's own runs").items()}
    _, before, one, three, *_ = found.pop("mean over sets")
    assert (one < 9, three < 7.5, three < one < before) == (True, True, True)
    known = [name for name, asked in chosen()["sets"].items() if asked["generation"] in evidence().shares.known]
    assert len(known) == evidence().shares.sets
    for name in known:
        *_, worse, noise = found[name]
        assert worse < noise


def test_a_guessed_launch_widens_a_band_and_a_known_one_does_not():
    guessed, known = (
        tpsim.plan("megatron-22b-a100", overrides=[f"assume.kernel_launch={{value: 40 us, kind: {kind}}}"])
        for kind in ("guess", "measured")
    )
    plain = tpsim.plan("megatron-22b-a100").band
    assert guessed.step.time_s == known.step.time_s
    assert known.band.of == plain.of == guessed.band.of.removesuffix(", wider by its guessed launch")
    assert guessed.band.high_s > known.band.high_s


def test_an_end_of_the_band_can_be_required_and_no_lock_holds_it():
    held, broken = (
        tpsim.plan("megatron-22b-a100", overrides=[f"require.step_high=< {seconds} s", "require.step=< 2 s"])
        for seconds in (9, 1.1)
    )
    assert (held.ok, broken.ok) == (True, False)
    (line,) = (one for one in broken.lines if one.label == "band")
    assert "; require step_high < 1.1 s is violated" in line.text
    assert not line.ok
    locked = [set(asked_facts({"x": plan}, Path()).scenarios["x"].results) for plan in (held, broken)]
    assert all("require.step" in one and "require.step_high" not in one for one in locked)


@pytest.mark.parametrize(("name", "kind"), [("megatron-22b-a100", "one node"), ("gpt-neox-20b-a100", "several nodes")])
def test_a_plan_has_the_band_of_its_kind(name, kind):
    plan = tpsim.plan(name)
    many = {"one node": "one", "several nodes": "many"}[kind]
    ends = next(one for one in evidence().steps if (one.generation, one.nodes) == ("ampere", many))
    assert (plan.band.low_s, plan.band.high_s) == pytest.approx(
        (plan.step.time_s * ends.low, plan.step.time_s * ends.high)
    )
    assert kind in plan.band.text


def test_chips_that_no_published_step_tells_of_have_the_widest_band():
    plan = tpsim.plan("llama3-70b-v4")
    widest = max(evidence().steps, key=lambda one: one.high / one.low)
    assert plan.band.high_s / plan.band.low_s == pytest.approx(widest.high / widest.low)
    assert "the widest band" in plan.band.text
