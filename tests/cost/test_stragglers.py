"""Ranks that come late where they meet over weights and gradients: the law, what a plan makes of it, who says so."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import yaml

import tpsim
from tests.changes import replaced
from tpsim.calibrate.calibrate import adjusted
from tpsim.guard.check import check
from tpsim.machine.chip_seconds import late_s
from tpsim.machine.profile import load

H100 = load("dgx-h100")
OFF = "hardware.chip.interruption=0 s"


def law(interruption, **asked):
    return late_s(adjusted(H100, {"chip.interruption": interruption}), **asked)


def test_ranks_wait_for_the_longest_pause_that_any_of_them_has():
    """Drawn pauses, rarer than the square of their length: the longest of all ranks less the longest of one.

    As many as half a pause in a second are longer than d0: their mean largest in t seconds is d0 sqrt(pi t/2).
    """
    draws, ranks, seconds, rate, shortest = np.random.default_rng(0), 64, 40.0, 0.5, 1e-3
    pauses = shortest * (1 - draws.random((4000, ranks, 60))) ** -0.5
    pauses[np.arange(60) >= draws.poisson(rate * seconds, (4000, ranks, 1))] = 0
    longest = pauses.max(axis=2)
    waited = np.minimum(longest.max(axis=1), 1).mean() - np.minimum(longest, 1).mean()
    assert waited == pytest.approx(law(np.pi * rate * shortest**2, seconds=seconds, calls=1, ranks=ranks), rel=0.05)


def test_waits_grow_with_the_root_of_ranks_calls_and_seconds_and_one_rank_waits_for_none():
    alone = law(1e-6, seconds=4, calls=9, ranks=4)
    assert alone == pytest.approx((1e-6 * 36) ** 0.5)
    assert law(4e-6, seconds=4, calls=9, ranks=4) == pytest.approx(2 * alone)
    assert law(1e-6, seconds=4, calls=9, ranks=49) == pytest.approx(6 * alone)
    assert law(1e-6, seconds=4, calls=9, ranks=1) == law(0.0, seconds=4, calls=9, ranks=64) == 0
    assert late_s(load("mi300x"), 4, 9, 64) == 0  # of which nothing is known


def sharded(dp, *overrides, zero=3, practice="fsdp2"):
    small = f"practice={practice}", "model={extends: llama-3-8b, layers: 8}"
    return tpsim.plan(
        model="llama-3-8b",
        hw="dgx-h100",
        tp=1,
        dp=dp,
        zero=zero,
        seq=4096,
        batch=2 * dp,
        overrides=[*small, *overrides],
    )


def test_steps_grow_with_nodes_where_weights_are_gathered_though_each_chip_does_the_same():
    few, many = (sharded(dp).step for dp in (64, 256))
    assert many.compute_s == pytest.approx(few.compute_s, rel=1e-2)
    assert many.stragglers_s == pytest.approx(few.stragglers_s * 15 / 7, rel=1e-3)
    assert many.time_s == many.compute_s + many.exposed_s + many.bubble_s + many.host_s + many.stragglers_s
    without = sharded(256, OFF).step
    assert without.stragglers_s == 0
    assert without.time_s == pytest.approx(many.time_s - many.stragglers_s, rel=1e-12)


def test_layers_meet_when_weights_are_gathered_forward_and_backward_and_when_gradients_are_scattered():
    """8 layers and two ends: as often each way, and half of backward's seconds are of gradients alone."""
    step = sharded(64).step
    forward, backward = (step.compute.seconds[phase] for phase in ("forward", "backward"))
    often = ((9 * forward) ** 0.5 + (18 * backward) ** 0.5) * 1.45e-6**0.5
    assert step.stragglers_s == pytest.approx(7 * often, rel=0.05)


@pytest.mark.parametrize("zero", [0, 1])
def test_nobody_is_late_where_gradients_are_summed_behind_all_microbatches(zero):
    assert sharded(64, zero=zero, practice="megatron").step.stragglers_s == 0


@pytest.mark.parametrize("name", ["llama3-70b-h100-decode", "megatron-22b-a100"])
def test_plans_without_such_calls_or_of_inference_have_none(name):
    assert tpsim.plan(name).step.stragglers_s == 0


def test_of_inference_nothing_is_known_and_the_cost_model_of_the_book_has_none():
    book = tpsim.plan("llama3-8b-b200-fsdp", cost_model="book")
    assert (tpsim.plan("llama3-70b-h100-decode").question.tied, book.question.tied, book.step.stragglers_s) == (1, 1, 0)
    assert tpsim.plan("llama3-70b-h100-zb-h1").question.tied == tpsim.plan("llama3-70b-h100-zb-h1").question.mesh.size(
        "data", "tensor"
    )


def test_stragglers_are_told_and_explained_and_what_is_left_out_is_worded_by_what_is_known():
    plan = sharded(256)
    (told,) = tpsim.explain("step.stragglers_s", "llama3-8b-b200-fsdp").derivations
    assert told.value == tpsim.plan("llama3-8b-b200-fsdp").step.stragglers_s > 0
    assert any("chip.interruption 1.44 us" in source for source in told.sources)
    assert any(name.startswith("stragglers ") for name, _ in plan.bars[0].parts)
    missing = "stragglers: no figure of the chip says how late they come"
    assert not any(text.startswith(missing) for text in plan.not_modelled)
    unknown = tpsim.plan(model="llama-3-8b", hw="mi300x", tp=1, dp=64, zero=3, seq=4096, batch=64)
    assert any(text.startswith(missing) for text in unknown.not_modelled)


def test_a_search_ranks_by_steps_with_their_stragglers():
    found = tpsim.search("llama3-8b-b200-fsdp", top=1)
    (best,) = found.rows[:1]
    assert best.step_s == best.plan.step.time_s > best.plan.step.time_s - best.plan.step.stragglers_s
    assert best.plan.step.stragglers_s > 0


def test_a_check_names_the_interruption_as_the_cause(tmp_path, monkeypatch):
    """And of no scenario that it makes nothing of: one has stragglers, one has none."""
    (tmp_path / "hardware").mkdir()
    chip = {"interruption": {"value": "1 us", "kind": "guess"}}
    machine = {"tpsim": "hardware/1", "name": "mine", "extends": "dgx-h100", "chip": chip}
    (tmp_path / "hardware" / "mine.yaml").write_text(yaml.safe_dump(machine, sort_keys=False))
    (tmp_path / "scenarios").mkdir()
    for zero in (0, 3):
        asked = {
            "tpsim": "scenario/1",
            "model": "llama-3-8b",
            "hardware": "../hardware/mine.yaml",
            "mesh": {"data": 16},
            "layout": {"dp": "data", "zero": zero},
            "practice": "fsdp2" if zero else "megatron",
            "workload": {"global_batch": 16, "seq": 4096},
        }
        (tmp_path / "scenarios" / f"zero{zero}.yaml").write_text(yaml.safe_dump(asked, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    made = check(["scenarios"], update=True)
    (tmp_path / "tpsim.lock").write_text(made.text)
    assert isinstance(replaced("hardware/mine.yaml", "1 us", "4 us")(tmp_path), nullcontext)
    found = check(["scenarios"])
    (cause,) = found.causes
    assert (cause.name, cause.scenarios) == ("hardware/mine.chip.interruption", ("scenarios/zero3",))
    assert {number.quantity for number in found.drift.moved} == {"step_s", "stragglers_s"}


def test_a_plan_says_when_more_chips_wait_than_in_any_published_run():
    said = "1,024 chips wait for the last of them as 512 do in published runs"
    most, beyond = ([one.text for one in sharded(dp).assumptions] for dp in (512, 1024))
    assert said in beyond
    assert not any("wait for the last" in text for text in most)
    assert said not in [one.text for one in sharded(1024, OFF).assumptions]
