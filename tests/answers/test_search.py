"""The verb `search`: its best layouts are those of plans, none is missed, and what it held and refused is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tpsim
from tests.models import SMALL_SCENARIO as SMALL
from tpsim.answers.plan import priced
from tpsim.answers.ranking import weigh
from tpsim.answers.search import search
from tpsim.answers.sensitivity import unlocked
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.space import spaces
from tpsim.pages.search import page
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import parse, show
from tpsim.question.memo import Memo

VARY = ["microbatches=4,8", "zero=1", "schedule=1f1b,interleaved", "recompute=none,full", "tp=4,8"]


@pytest.fixture(scope="module")
def small():
    return search(SMALL, vary=VARY, top=5)


def test_the_best_layouts_are_those_of_brute_force(small):
    memo = Memo()
    found = evaluate(spaces(SMALL, flags={}, overrides=(), vary=VARY, memo=memo), memo, weigh)
    plans = [priced(one.space.question(one.layout, memo), memo) for one in found.candidates]
    steps = sorted(float(plan.step.time_s) for plan in plans if plan.memory.room_bytes >= 0)
    assert 50 < len(steps) == small.fitting
    assert [row.step_s for row in small.rows] == pytest.approx(steps[:5], rel=1e-9)
    assert small.plans < len(steps) / 2
    assert small.gap == 0


def test_every_row_is_the_plan_of_its_scenario_read_back(small, tmp_path):
    for row in small.rows:
        path = tmp_path / f"{row.rank}.yaml"
        path.write_text(row.scenario(tmp_path), encoding="utf-8")
        plan = tpsim.plan(path)
        assert float(plan.step.time_s) == pytest.approx(row.step_s, rel=1e-9)
        assert float(plan.memory.peak_bytes) == pytest.approx(row.peak_bytes, rel=1e-9)
        assert plan.question.mesh.axes == row.mesh


@pytest.mark.parametrize(
    ("name", "chips", "vary"),
    [
        ("megatron-22b-a100", 16, ["zero=0,1", "schedule=1f1b"]),
        ("mistral-7b-v6e", 16, ["microbatches=2,4", "zero=3", "pp=1"]),
    ],
)
def test_the_best_of_a_shipped_scenario_equal_their_plans(name, chips, vary, tmp_path):
    found = search(name, chips=chips, vary=vary, top=3)
    assert found.rows
    for row in found.rows:
        path = tmp_path / "one.yaml"
        path.write_text(row.scenario(tmp_path), encoding="utf-8")
        assert float(tpsim.plan(path).step.time_s) == pytest.approx(row.step_s, rel=1e-9)


def test_what_is_stated_is_held_and_told():
    found = search("llama3-70b-h100", by="memory", top=1)
    assert found.held == {
        "mesh": {"data": 32, "tensor": 8},
        "placement": {"data": "network", "tensor": "nvlink"},
        "layout.zero": 1,
        "layout.sequence_parallel": True,
        "workload.microbatches": 4,
    }
    assert (found.searched, found.considered) == (["recompute", "schedule", "chunks", "layers"], 3)
    assert found.best.recompute == "full"


def test_chips_free_the_layout_and_a_flag_holds_a_part_of_it():
    flags = {"vary": ["microbatches=8"], "recompute": "full", "zero": 3, "schedule": "1f1b", "top": 2}
    found = search(SMALL, chips=8, tp=4, **flags)
    assert {(row.tp, row.zero, row.recompute, row.microbatches) for row in found.rows} == {(4, 3, "full", 8)}
    assert found.held == {
        "layout.zero": 3,
        "recompute": "full",
        "pipeline.schedule": "1f1b",
        "microbatches": 8,
        "tp": 4,
    }
    assert {row.plan.chips for row in found.rows} == {8}


def test_a_field_that_is_varied_beside_the_layout_is_told_with_every_row():
    found = search(
        SMALL, vary=["hardware=dgx-h100,dgx-a100", "microbatches=8", "zero=1", "pp=1"], recompute="full", top=20
    )
    assert {row.varied["hardware"] for row in found.rows} == {"dgx-h100", "dgx-a100"}
    assert found.best.varied == {"hardware": "dgx-h100"}
    assert found.best.plan.question.machine.name == "dgx-h100"


def test_by_memory_the_best_holds_least(small):
    least = search(SMALL, vary=VARY, by="memory", top=1).best
    assert least.peak_bytes <= min(row.peak_bytes for row in small.rows)
    assert least.plan.memory.fits


def test_a_search_that_ends_early_says_how_near_it_came():
    found = search(SMALL, vary=VARY, top=5, plans=2)
    assert (found.plans, len(found.rows), found.complete) == (2, 2, False)
    best = found.rows[0].step_s
    behind, before = (replace(found, ranked=replace(found.ranked, open_at=best * share)) for share in (1.1, 0.9))
    assert behind.verdict.endswith("2 planned: no other can be better, but of those behind it some may be missing")
    assert before.gap == pytest.approx(0.1)
    assert before.verdict.endswith("2 planned: within 10 % of the best")


def test_a_demand_leaves_out_the_layouts_that_violate_it(small):
    limit = (small.rows[1].step_s + small.rows[2].step_s) / 2
    found = search({**SMALL, "require": {"step": f"> {limit} s"}}, vary=VARY, top=1)
    assert found.best.step_s == pytest.approx(small.rows[2].step_s)
    assert found.violating >= 2


def test_a_demand_that_no_bound_meets_needs_no_plan(small):
    found = search({**SMALL, "require": {"step": "< 1 ms"}}, vary=VARY, top=1)
    assert (found.ok, found.plans, found.violating) == (False, 0, found.fitting)
    least_s = min(one.step_s for one in found.evaluation.candidates if one.room_bytes >= 0)
    assert 0.001 < least_s <= small.rows[0].step_s
    said = f"best  none of those that fit meets require step < 1 ms, each takes {show(least_s, 'seconds')} or more: "
    assert found.verdict.startswith(said)


def test_where_nothing_fits_the_answer_is_no():
    found = search(
        {**SMALL, "model": "llama-3-70b"}, chips=8, vary=["microbatches=8", "zero=0", "pp=1"], recompute="none"
    )
    assert (found.ok, found.best, found.rows) == (False, None, [])
    assert found.lines[0].text.startswith("no layout fits: ")


def test_recompute_is_called_as_a_scenario_states_it():
    found = search(SMALL, vary=["microbatches=8", "zero=1", "tp=4", "pp=1", "recompute=selective"], top=1)
    assert (found.best.recompute, found.best.plan.question.practice.recompute) == ("selective", ("attention",))
    held = search(SMALL, vary=["microbatches=8", "zero=1", "tp=4", "pp=1"], recompute="selective", top=1)
    assert (held.best.recompute, held.best.step_s) == ("selective", found.best.step_s)
    drops = {**SMALL, "recompute": {"drop": ["mlp.act"]}, "require": {"best": {"recompute": "none"}}}
    other = search(drops, vary=["microbatches=8", "zero=1", "tp=4", "pp=1"], top=1)
    assert (other.best.recompute, other.ok) == ("mlp.act", False)


def test_losses_are_named_by_what_differs(small):
    assert small.rows[0].loses == ""
    assert all(("+" in row.loses) or row.loses == "the same step" for row in small.rows[1:])


def test_no_layout_is_both_faster_and_smaller_than_one_of_the_front():
    memo = Memo()
    vary = ["microbatches=4,8", "zero=1,3", "pp=1", "recompute=none,full", "tp=2,4"]
    found = search(SMALL, vary=vary, top=1, pareto="step,memory")
    every = evaluate(spaces(SMALL, flags={}, overrides=(), vary=vary, memo=memo), memo, weigh).candidates
    plans = [priced(one.space.question(one.layout, memo), memo) for one in every]
    both = {(float(plan.step.time_s), float(plan.memory.peak_bytes)) for plan in plans if plan.memory.room_bytes >= 0}
    front = {
        (s, held) for s, held in both if not any(s2 <= s and h2 <= held and (s2, h2) != (s, held) for s2, h2 in both)
    }
    assert {(row.step_s, row.peak_bytes) for row in found.pareto} == front
    assert len(front) > 2
    assert found.front.made < len(both)
    assert [row["table"] for row in found.records()] == ["best"] + ["pareto"] * len(front)


def test_a_front_that_ends_early_says_so():
    vary = ["microbatches=4,8", "zero=1,3", "pp=1", "recompute=none,full", "tp=2,4"]
    whole, part = (search(SMALL, vary=vary, top=1, plans=plans, pareto="step,memory") for plans in (200, 2))
    assert (whole.pareto_complete, part.pareto_complete) == (True, False)
    assert len(part.pareto) < len(whole.pareto)
    assert "some that no other surpasses may be missing" not in whole.verdict
    assert "\npareto  2 planned: some that no other surpasses may be missing" in part.verdict


def test_layouts_of_a_front_are_behind_its_first_by_the_fronts_measure():
    vary = ["microbatches=4,8", "zero=1,3", "pp=1", "recompute=none,full", "tp=2,4"]
    by_memory, by_step = (search(SMALL, vary=vary, top=1, pareto="step,memory", by=by) for by in ("memory", "step"))
    behind = [row.behind for row in by_memory.pareto]
    assert behind == [row.step_s / by_memory.pareto[0].step_s - 1 for row in by_memory.pareto]
    assert behind == [row.behind for row in by_step.pareto]


def test_where_a_search_ends_before_a_demand_is_met_it_does_not_say_that_none_meets_it(small):
    limit = (small.rows[1].step_s + small.rows[2].step_s) / 2
    asked = {**SMALL, "require": {"step": f"> {limit} s"}}
    early = search(asked, vary=VARY, plans=1)
    assert early.verdict.startswith("best  none of the 1 planned meets require step > ")
    assert "; --plans plans more: " in early.verdict
    assert search(asked, vary=VARY, plans=5).ok
    assert early.to_pad == ""
    assert "--plans 5" in search(asked, vary=VARY, plans=5).to_save


PRICED = {
    **SMALL,
    "workload": {**SMALL["workload"], "run_tokens": 15e12},
    "assume": {"price_per_chip_hour": {"value": 2.5, "kind": "stated"}},
}


def test_a_run_has_days_chip_hours_and_money_as_far_as_they_are_stated():
    found = search(PRICED, vary=["microbatches=8", "zero=1", "tp=4", "pp=1"], recompute="none", top=1)
    run, step = found.best.run, found.best.step_s
    steps = 15e12 / (64 * 4096)
    assert run.days == pytest.approx(steps * step / 86400)
    assert run.chip_hours == pytest.approx(steps * step / 3600 * 16)
    assert run.price == pytest.approx(2.5 * run.chip_hours)
    assert run.price_per_step == pytest.approx(2.5 * 16 * step / 3600)
    assert run.price_per_million_tokens == pytest.approx(2.5 * 16 * step / 3600 / (64 * 4096) * 1e6)
    assert f"run     1.5e+13 tokens in {run.days:.4g} days, {run.chip_hours:,.0f} chip hours; " in found.verdict
    assert [one.text for one in found.assumptions if "costs" in one.text] == ["a chip hour costs 2.5"]
    assert search(SMALL, vary=["microbatches=8", "zero=1", "tp=4", "pp=1"], recompute="none", top=1).best.run is None


def test_chips_of_a_slice_that_idle_are_paid_for():
    """Of slices that are sold as v5p 6 chips take one of 16, and so do 12: these make a token for half as much."""
    scenario = {**PRICED, "hardware": "tpu-v5p"}
    found = search(scenario, vary=["chips=6,12", "dp=6,12", "zero=1"], batch=96, recompute="full", by="money", top=1)
    assert found.best.plan.chips == 12
    assert "4 of the 16 chips of ici slice 4x2x2 idle" in found.best.plan.verdict
    steps = 15e12 / (96 * 4096)
    assert found.best.run.chip_hours == pytest.approx(steps * found.best.step_s / 3600 * 16)


def test_a_page_by_money_says_what_each_layout_costs_and_what_its_front_weighs():
    asked = {"vary": ["microbatches=4,8", "zero=1", "pp=1", "tp=4"], "recompute": "none"}
    for by, weighed in (("money", "money"), ("step", "speed")):
        found = search(PRICED, **asked, by=by, pareto=f"{by},memory")
        best, front = page(found, verbose=False).tables
        assert front.title == f"not surpassed in {weighed} and memory together"
        assert any(column.key == "price" for column in best.columns) == (by == "money")
        prices = [row["price"] for row in best.rows]
        paid = [pytest.approx(row.run.price_per_million_tokens) if by == "money" else None for row in found.rows]
        assert prices == paid


@pytest.mark.parametrize(("by", "key"), [("tokens_per_s", "rate"), ("tokens_per_s_chip", "tokens_per_s_chip")])
def test_a_page_has_the_rate_that_it_ranks_by(by, key):
    """Steps of unlike sequences, on unlike numbers of chips, fall and rise down the page; their rates fall."""
    asked = {"vary": ["chips=16,32", "workload.seq=2048,4096", "zero=1", "pp=1", "tp=2,4"], "recompute": "none"}
    found = search("qwen2-7b-h100", **asked, by=by)
    (best,) = page(found, verbose=False).tables
    (column,) = (column for column in best.columns if column.header.startswith("tokens/s"))
    assert column.key == key
    chips = [row["chips"] if by == "tokens_per_s_chip" else 1 for row in best.rows]
    tokens = [256 * row["workload.seq"] / row["step_s"] for row in best.rows]
    rates = [row[key] for row in best.rows]
    assert rates == [pytest.approx(rate / count) for rate, count in zip(tokens, chips, strict=True)]
    assert rates == sorted(rates, reverse=True)
    assert [row["step_s"] for row in best.rows] != sorted(row["step_s"] for row in best.rows)


def test_a_machine_may_state_the_price_of_its_chips_and_a_scenario_another_one():
    chip = {"price_per_hour": {"value": 2.5, "kind": "stated", "source": "offer"}}
    mine = {
        "extends": "dgx-h100",
        "name": "mine",
        "chip": chip,
        "sources": {"offer": {"title": "an offer", "read": "2026-11-20"}},
    }
    vary = ["microbatches=8", "zero=1", "tp=4", "pp=1"]
    found, other, assumed = (
        search({**scenario, "hardware": machine}, vary=vary, recompute="none", top=1, by="money")
        for scenario, machine in (
            (SMALL, mine),
            (PRICED, "dgx-h100"),
            (PRICED, {**mine, "chip": {"price_per_hour": 9}}),
        )
    )
    prices = [one.best.run.price_per_million_tokens for one in (found, other, assumed)]
    assert prices == [prices[0]] * 3
    assert ("a chip hour costs 2.5", "stated") in [(one.text, one.kind) for one in found.assumptions]


def test_by_money_fewer_chips_may_be_better_though_their_step_is_longer():
    vary = ["chips=8,16", "microbatches=8", "zero=1", "tp=4", "pp=1"]
    steps, money = (search(PRICED, vary=vary, recompute="full", by=by, top=2) for by in ("step", "money"))
    assert [row.plan.chips for row in steps.rows] == [16, 16]
    assert money.best.plan.chips == 8
    assert money.best.run.price_per_million_tokens < steps.best.run.price_per_million_tokens
    with pytest.raises(InputError, match="a search by money needs the price of a chip hour"):
        search(SMALL, vary=["microbatches=8", "zero=1", "tp=4", "pp=1"], by="money")


def test_by_tokens_of_a_chip_each_chip_counts():
    vary = ["chips=8,16", "microbatches=8", "zero=1", "tp=4", "pp=1"]
    every = search(SMALL, vary=vary, recompute="full", top=100).rows
    rates = sorted((row.tokens_per_s / row.plan.chips for row in every), reverse=True)
    best = search(SMALL, vary=vary, recompute="full", by="tokens_per_s_chip", top=1).best
    assert best.tokens_per_s / best.plan.chips == pytest.approx(rates[0], rel=1e-9)
    assert best.plan.chips == 8 < every[0].plan.chips


LARGE = {**SMALL, "model": {"extends": "llama-3-70b", "layers": 20}, "chips": 8}
FEW = {"vary": ["microbatches=8", "pp=1,2", "schedule=1f1b", "tp=4,8", "zero=1"], "recompute": "none", "top": 1}


@pytest.fixture(scope="module")
def answering():
    """A search with what a better part of the machine brings."""
    return search(LARGE, **FEW, sensitivity=True)


def test_a_better_part_of_a_machine_with_curves_keeps_their_ratios_as_a_profile_that_extends_it_does(tmp_path):
    """Without them whatever made no difference gained what the curves cost."""
    knots = [{"size": size, "predicted": "20 us", "fitted": "60 us"} for size in ("64 KiB", "1 GiB")]
    knots[1] |= {"predicted": "2400 us", "fitted": "7200 us"}
    route = [{"level": "nvlink", "ranks": 8}]
    curves = [{"collective": name, "route": route, "knots": knots} for name in ("all_gather", "reduce_scatter")]
    profile = {"tpsim": "hardware/1", "extends": "dgx-h100", "name": "slow", "measured": curves}
    path = tmp_path / "slow.yaml"
    path.write_text(json.dumps(profile), encoding="utf-8")
    asked = {**LARGE, "hardware": str(path), "mesh": {"data": 1, "tensor": 8}}
    asked |= {"layout": {"dp": "data", "tp": "tensor", "zero": 0, "sequence_parallel": True}}
    found = search(asked, vary=["microbatches=8"], recompute="none", top=1, sensitivity=True)
    today_s = found.best.step_s
    held = {one.part: one.held_s for one in found.sensitivity if one.factor == 1.1}
    assert held["memory capacity"] == held["network bandwidth"] == today_s
    links = {"nvlink": {"link": {"bandwidth": f"{450 * 1.1} GB/s"}}}
    of_links = {**asked, "hardware": {"extends": str(path), "levels": links}}
    faster = tpsim.plan(of_links, recompute="none", microbatches=8)
    figures = {one.constant: one.held_s for one in found.constants}
    assert figures["levels.nvlink.link.bandwidth"] == pytest.approx(float(faster.step.time_s), rel=1e-9)
    assert figures["levels.nvlink.link.bandwidth"] < 0.98 * today_s


def test_a_better_part_of_the_machine_is_priced_in_todays_layout_and_in_its_own_best(answering):
    found = answering
    parts = {(one.part, one.factor): one for one in found.sensitivity}
    assert {name for name, _ in parts} == {
        *("compute", "memory bandwidth", "memory capacity"),
        *("nvlink bandwidth", "nvlink latency", "network bandwidth", "network latency"),
    }
    compute = parts["compute", 1.1]
    faster = {"chip": {"peak": {"bf16": f"{989 * 1.1} TFLOP/s"}}}
    again = search({**LARGE, "hardware": {"extends": "dgx-h100", **faster}}, **FEW)
    assert compute.best_s == pytest.approx(again.best.step_s, rel=1e-9)
    assert 0.5 < compute.elasticity <= compute.best_elasticity < 1
    assert parts["memory capacity", 1.1].held_s == found.best.step_s
    assert str(parts["memory capacity", 1.1].elasticity) == "0.0", "and not -0.0"
    figures = {one.constant: one for one in found.constants}
    assert figures["chip.peak.bf16"].elasticity == pytest.approx(compute.elasticity)
    assert [abs(one.elasticity) for one in found.constants] == sorted(
        (abs(one.elasticity) for one in found.constants), reverse=True
    )
    assert figures["levels.nvlink.link.bandwidth"].kind == "datasheet"
    assert not any(name.startswith("levels.network") for name in figures), "one node has none"
    assert {row["table"] for row in found.records()} == {"best", "sensitivity", "constants"}


def test_the_least_memory_of_a_shipped_machine_that_unlocks_a_better_layout_is_said(answering, monkeypatch):
    *_, more = answering.sensitivity
    assert "buy     memory of 96 GB instead of 80 unlocks tp 4: -8.93 %" in answering.verdict
    assert (more.factor, more.layout) == (1.2, "tp 4, dp 2, pp 1, 8 microbatches of 4, ZeRO 1, sequence parallel")
    larger = {"extends": "dgx-h100", "chip": {"memory": {"capacity": "96 GB"}}}
    assert search({**LARGE, "hardware": larger}, **FEW).best.step_s == pytest.approx(more.best_s)
    monkeypatch.setattr("tpsim.answers.sensitivity.stated", lambda *_: [40e9, 81e9, 96e9, 141e9])
    assert dict(unlocked(answering, 50, Memo())) == dict(more)
    monkeypatch.setattr("tpsim.answers.sensitivity.stated", lambda *_: [40e9, 81e9])
    assert unlocked(answering, 50, Memo()) is None
    none = replace(answering, sensitivity=answering.sensitivity[:-1])
    assert "no memory that a shipped machine has, up to 81 GB, unlocks a better layout" in none.verdict


@pytest.mark.parametrize(
    ("asked", "slug", "text"),
    [
        ({"by": "beauty"}, "unknown-measure", '"beauty" is not a measure'),
        ({"vary": ["workload.seq"]}, "missing-values", "workload.seq has no values that a search knows"),
        ({"chips": None}, "missing-chips", "nothing says how many chips there are"),
        ({"chips": 0}, "no-mesh", "chips 0 is no size of a mesh that is searched"),
        ({"chips": 8, "tp": "kv,rep"}, "no-mesh", "--tp kv,rep is no size of a mesh that is searched"),
        ({"top": 0}, "bad-value", "a search lists and plans at least one layout"),
        ({"workers": 0}, "bad-value", "0 workers search nothing"),
        ({"vary": ["microbatches="]}, "missing-values", "a value of microbatches is missing"),
        ({"vary": ["zero=1,,3"]}, "missing-values", "a value of zero is missing"),
    ],
)
def test_what_cannot_be_searched_is_refused(asked, slug, text):
    document = {key: value for key, value in SMALL.items() if key != "chips"}
    with pytest.raises(InputError) as error:
        search({**document, "chips": 8} if "chips" not in asked else document, **asked)
    assert error.value.problems[0].slug.startswith(slug)
    assert error.value.problems[0].message == text


@pytest.mark.parametrize("flag", ["top", "plans"])
def test_none_is_too_few_and_the_remedy_names_the_flag(flag):
    with pytest.raises(InputError, match=rf"at least one layout\n  = write --{flag} 1$"):
        search(SMALL, **{flag: 0})


def test_layouts_are_compared_at_a_batch_that_is_stated():
    with pytest.raises(InputError, match="layouts are compared at one batch, and the scenario states none"):
        search(model="gpt-tiny", hw="dgx-h100", seq=16, chips=8)


def test_a_better_part_with_which_no_layout_meets_a_demand_has_no_best_step():
    """The step may be no quicker than today's: a quicker chip violates that in every layout."""
    vary = ["microbatches=4", "zero=1", "tp=4", "pp=1"]
    today = search(SMALL, vary=vary, recompute="none", top=1).best.step_s
    slow = {**SMALL, "require": {"step": f"> {0.999 * today} s"}}
    found = search(slow, vary=vary, recompute="none", top=1, sensitivity=True)
    (compute, *_) = found.sensitivity
    assert (compute.part, compute.best_s, compute.relative, compute.best_elasticity) == ("compute", None, None, None)
    assert compute.held_s < today


def test_a_scenario_requires_what_its_best_layout_is():
    vary = ["microbatches=4,8", "zero=1", "tp=4,8", "pp=1"]
    best = {"tp": 4, "sequence_parallel": False, "schedule": "1f1b"}
    found = search({**SMALL, "require": {"best": best}}, vary=vary, recompute="none", top=1)
    assert {one.name: (one.required, one.found, one.ok) for one in found.require} == {
        "tp": (4, 4, True),
        "sequence_parallel": (False, False, True),
        "schedule": ("1f1b", None, False),
    }
    assert (found.ok, found.best.tp) == (False, 4)
    assert "best tp 4 holds" in found.verdict
    assert "require  best schedule 1f1b is violated: there is none" in found.verdict
    assert search({**SMALL, "require": {"best": {"tp": 4}}}, vary=vary, recompute="none", top=1).ok


def test_layouts_that_are_as_good_as_the_best_are_said_to_be_tied():
    """The efficiency of products makes no difference to a model whose products are bound by memory."""
    vary = ["assume.matmul_efficiency=0.4,0.5", "microbatches=1,2", "tp=1"]
    asked = {"model": "gpt-tiny", "hw": "dgx-h100", "seq": 16, "batch": 8, "chips": 2, "pp": 1, "zero": 0}
    found = search(vary=vary, recompute="none", **asked)
    assert [row.tied for row in found.rows] == [False, True, False, False]
    assert [row.loses for row in found.rows[:2]] == ["", "tied with the best"]
    assert "\ntied    with rank 2, of those that are listed\n" in found.verdict


@pytest.mark.parametrize("by", ["step", "memory"])
def test_of_layouts_that_are_equally_good_the_same_is_best_however_they_are_asked_for(by):
    orders = [
        ["schedule=1f1b,gpipe", "practice.zero1=scatter,all_reduce", "zero=0"],
        ["zero=0", "practice.zero1=all_reduce,scatter", "schedule=gpipe,1f1b"],
    ]
    one, other = (search("gpt2-xl-a100-dp", vary=vary, chips=8, pp=2, top=8, by=by) for vary in orders)
    assert one.to_json()["result"] == other.to_json()["result"]
    assert {row.schedule for row in one.rows} == {"1f1b", "gpipe"}
    ranks = [(row.step_s, row.peak_bytes) if by == "step" else (row.peak_bytes, row.step_s) for row in one.rows]
    assert ranks == sorted(ranks)
    assert len({*ranks}) < len(ranks)


@pytest.mark.parametrize(
    ("scenario", "vary", "named"),
    [
        ("llama3-70b-h100-zb-h1", ["tp=4,8", "pp=2,4", "zero=1"], "others"),
        ("qwen2-7b-h100", ["tp=1", "pp=1", "zero=1,2,3"], "stragglers"),
    ],
)
def test_what_a_layout_loses_by_adds_up_to_the_difference(scenario, vary, named):
    """The three greatest parts of it alone said that a slower layout was faster, and none said what ranks wait."""
    found = search(scenario, chips=64, vary=vary, recompute="full", microbatches=16 if "zb" in scenario else 4, top=12)
    best, texts = found.rows[0].step_s, {row.loses: row.step_s for row in found.rows[1:] if not row.tied}
    assert any(text.endswith(f" {named}") or f" {named}," in text for text in texts)
    for text, step_s in texts.items():
        parts = [] if text == "the same step" else [part.split(" ")[:2] for part in text.split(", ")]
        told = sum(float(f"{number[0]}1") * parse(f"{number[1:]} {unit}", "seconds") for number, unit in parts)
        assert told == pytest.approx(step_s - best, abs=len(parts) * 2e-4 * best)


def test_what_a_layout_of_another_batch_loses_is_of_as_many_tokens():
    """It has a shorter step, and was said to win everywhere."""
    vary = ["workload.global_batch=8,64", "microbatches=8", "zero=1", "tp=4", "pp=1"]
    found = search(SMALL, vary=vary, recompute="none", by="tokens_per_s", top=10)
    large, small = found.best, next(row for row in found.rows if row.varied["workload.global_batch"] == 8)
    assert large.varied == {"workload.global_batch": 64}
    assert small.step_s < large.step_s
    parts = [part.split(" ")[:2] for part in small.loses.split(", ")]
    told = sum(float(f"{number[0]}1") * parse(f"{number[1:]} {unit}", "seconds") for number, unit in parts)
    assert told == pytest.approx(small.step_s * 8 - large.step_s, rel=0.01)


@pytest.mark.parametrize("by", ["money", "tokens_per_s_chip"])
def test_what_a_layout_of_other_chips_loses_is_in_money_or_of_as_many_chips(by):
    """It was told in seconds of a step on twice the chips, by which a dearer layout seemed to win everywhere."""
    vary = ["chips=8,16", "microbatches=8", "zero=1", "tp=4", "pp=1"]
    rows = search(PRICED, vary=vary, recompute="full", by=by, top=10).rows
    best, dear = rows[0], next(row for row in rows if row.plan.chips > rows[0].plan.chips)
    assert (best.plan.chips, dear.plan.chips) == (8, 16)
    parts = [part.split(" ")[:-1] for part in dear.loses.split(", ")]
    signs, rest = zip(*((-1 if number[0] == "-" else 1, [number[1:], *unit]) for number, *unit in parts), strict=True)
    assert all(len(words) == (1 if by == "money" else 2) for words in rest)
    amounts = [float(words[0]) if by == "money" else parse(" ".join(words), "seconds") for words in rest]
    told = sum(sign * amount for sign, amount in zip(signs, amounts, strict=True))
    dearer = [1e6 * row.planned.value("money") for row in (best, dear)]
    longer = [best.step_s, 2 * dear.step_s]
    known = dearer if by == "money" else longer
    assert told == pytest.approx(known[1] - known[0], abs=len(parts) * 2e-4 * known[0])
    assert told > 0


def test_gradients_over_data_and_context_are_those_over_data():
    """Where one layout splits sequences and another does not, they were lost under one name and won under the other."""
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "chips": 16, "seq": 8192, "batch": 16, "recompute": "full"}
    found = search(**asked, vary=["tp=1", "pp=1", "cp=1,2", "zero=1", "microbatches=1,2"], top=8)
    assert {row.cp for row in found.rows} == {1, 2}
    assert any("data" in row.planned.outcome.parts for row in found.rows if row.cp == 2)
    assert not any("context" in name and "data" in name for row in found.rows for name in row.planned.outcome.parts)


def test_an_axis_without_a_role_and_one_layout_are_said_as_they_are():
    layout = {"tp": "tensor", "dp": "data", "zero": 1, "sequence_parallel": True}
    mesh = {"data": 2, "tensor": 4, "spare": 2}
    found = search(
        {**SMALL, "chips": 16, "mesh": mesh, "layout": layout}, vary=["zero=1"], recompute="none", microbatches=4
    )
    told = {line.label: line.text for line in found.lines}
    assert told["best"].endswith(
        "; axis spare 2 is used by no role: its chips repeat the same work; add it to layout.tp or layout.dp"
    )
    assert told["space"].startswith("1 layout considered, 1 legal, 1 fit; ")


def test_what_a_better_part_brings_is_told_in_what_layouts_are_ranked_by():
    """More memory has room for more sequences: steps are longer, and chips make more tokens in a second."""
    asked = {"chips": 8, "batch": "largest", "tp": 4, "dp": 2, "pp": 1, "overrides": ["layout.cache=heads"], "top": 1}
    found = search("llama3-70b-h100-decode", by="tokens_per_s_chip", sensitivity=True, **asked)
    (more,) = (one for one in found.sensitivity if (one.part, one.factor) == ("memory capacity", 1.1))
    larger = {"extends": "dgx-h100", "chip": {"memory": {"capacity": "88 GB"}}}
    overrides = [*asked["overrides"], f"hardware={json.dumps(larger)}"]
    again = search("llama3-70b-h100-decode", by="tokens_per_s_chip", **{**asked, "overrides": overrides})
    today, then = found.best.plan, again.best.plan
    assert more.best_s == pytest.approx(then.step.time_s)
    assert more.best_s > today.step.time_s
    assert more.relative == pytest.approx(today.serve.tokens_per_s_chip / then.serve.tokens_per_s_chip - 1)
    assert -0.2 < more.relative < -0.01 < 0.01 < more.best_elasticity < 1
    said = page(found, verbose=False).tables[1].columns
    assert [(one.factor, one.unlocks) for one in found.sensitivity if one.unlocks] == [(1.2, "batch 722")]
    assert {column.key: column.header for column in said}["elasticity"] == "chip time of a token % per %\nlayout held"
