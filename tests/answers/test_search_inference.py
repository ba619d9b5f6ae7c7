"""The verb `search` for inference: the best are those of plans of all layouts, made without a search."""

from __future__ import annotations

from itertools import product

import pytest

import tpsim
from tpsim.answers.search import search
from tpsim.pages.search import page
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import parse

DECODE = {
    "tpsim": "scenario/1",
    "model": "llama-3-8b",
    "hardware": "dgx-h100",
    "mesh": {"data": 2, "tensor": 4},
    "layout": {"dp": "data", "tp": "tensor"},
    "workload": {"kind": "decode", "batch": 32, "context": 4096},
}
PROMPTS = {**DECODE, "workload": {"kind": "prefill", "batch": 8, "prompt": 2048}}
REPLIES = {**DECODE, "model": "llama-3-70b", "workload": {"kind": "serve", "batch": 32, "prompt": 512, "output": 64}}
READING = {"mesh": {"tensor": 4}, "layout": {"tp": "tensor"}, "batch": 2}
BESIDE = {**REPLIES, "prefill": READING}
EXPERTS = {**DECODE, "model": "mixtral-8x7b", "workload": {"kind": "decode", "batch": 64, "context": 1024}}


def divisors(number):
    return [n for n in range(1, number + 1) if not number % n]


def layouts(chips, experts):
    """Every scenario's mesh, layout and pipeline of so many chips: axes of one device are there as well."""
    for tp, pp in product(divisors(chips), divisors(chips)):
        if chips % (tp * pp):
            continue
        dp = chips // tp // pp
        splits = [False, True], ["heads", "batch", "sequence"], [False, True] if experts else [False]
        for ep, sp, cache, over in product(divisors(dp) if experts else [1], *splits):
            if tp == 1 and (sp or over or cache != "heads"):
                continue  # there is nothing that these split
            mesh = {"pipe": pp, "data": dp // ep, "expert": ep, "tensor": tp}
            roles = {"pp": "pipe", "dp": ["data", "expert"], "tp": "tensor"}
            roles["ep"] = (["expert"] if ep > 1 else []) + (["tensor"] if over else [])
            yield {"mesh": mesh, "layout": {**roles, "sequence_parallel": sp, "cache": cache}}


def brute(scenario, chips, overrides=()):
    """The plan of every layout that `plan` does not refuse, and how many it does."""
    plans, refused = [], 0
    asked = layouts(chips, scenario["model"] == "mixtral-8x7b")
    for layout, m in ((one, m) for one in asked for m in divisors(one["mesh"]["pipe"])):
        work = {**scenario["workload"], "microbatches": m}
        try:
            plans.append(tpsim.plan({**scenario, **layout, "workload": work}, overrides=overrides))
            assert plans[-1].step.time_s > 0  # what cannot be priced is refused here
        except InputError:
            refused += 1
    return plans, refused


@pytest.mark.parametrize(
    ("scenario", "chips"),
    [(DECODE, 8), (REPLIES, 8), (BESIDE, 8), (EXPERTS, 8), (PROMPTS, 4), ({**EXPERTS, "planner": "cheapest"}, 4)],
    ids=["decoding", "prompts and replies", "replies alone", "decoding of experts", "prompts", "paths of their own"],
)
def test_the_best_layouts_are_those_of_brute_force(scenario, chips):
    found, few = search(scenario, chips=chips, top=1000), search(scenario, chips=chips, top=3)
    plans, refused = brute(scenario, chips)
    fitting = [plan for plan in plans if plan.memory.room_bytes >= 0]
    steps = sorted(float(plan.step.time_s) for plan in fitting)
    assert 10 < len(steps) == found.fitting == found.plans  # as many are listed
    assert (few.plans == few.fitting) == (scenario.get("planner") == "cheapest")
    assert (found.legal, found.considered) == (len(plans), len(plans) + refused)
    assert sum(refusal.layouts for refusal in found.refused) == refused
    assert [row.step_s for row in found.rows] == pytest.approx(steps, rel=1e-9)
    assert [row.step_s for row in few.rows] == pytest.approx(steps[:3], rel=1e-9)
    assert all(row.at_least_s <= row.step_s for row in found.rows)
    rates = sorted((plan.serve.tokens_per_s_chip for plan in fitting), reverse=True)
    assert [row.tokens_per_s_chip for row in found.rows] == pytest.approx(rates, rel=1e-9)


def test_no_other_order_of_the_axes_that_experts_lie_on_is_faster_than_those_that_are_searched():
    """Of 128 experts over both axes: where all devices of tp have all tokens, each sends to its own experts alone."""
    scenario = {**DECODE, "model": "qwen3-235b-a22b", "workload": {"kind": "decode", "batch": 512, "context": 1024}}
    best = search(scenario, chips=8, top=1).best
    steps = []
    for one in layouts(8, experts=True):
        if len(one["layout"]["ep"]) > 1 and not one["layout"]["sequence_parallel"]:
            for ep in (["expert", "tensor"], ["tensor", "expert"]):
                plan = tpsim.plan({**scenario, **one, "layout": {**one["layout"], "ep": ep}})
                steps += [float(plan.step.time_s)] * (plan.memory.room_bytes >= 0)
    assert len(steps) > 10
    assert best.ep_over == "dp and tp"
    assert best.step_s == pytest.approx(min(steps), rel=1e-9)


def test_no_number_of_plans_ends_a_search_of_inference_before_its_best_are_known():
    few, all_ = search(DECODE, chips=8, top=3, plans=1), search(DECODE, chips=8, top=3)
    assert [row.step_s for row in few.rows] == [row.step_s for row in all_.rows]
    assert few.complete
    assert 1 < few.plans < few.fitting


@pytest.mark.parametrize("scenario", [DECODE, REPLIES, BESIDE, EXPERTS, PROMPTS])
def test_every_row_is_the_plan_of_its_scenario_read_back(scenario, tmp_path):
    for row in search(scenario, chips=8, top=4).rows:
        path = tmp_path / f"{row.rank}.yaml"
        path.write_text(row.scenario(tmp_path), encoding="utf-8")
        plan = tpsim.plan(path)
        assert float(plan.step.time_s) == pytest.approx(row.step_s, rel=1e-9)
        assert float(plan.memory.peak_bytes) == pytest.approx(row.peak_bytes, rel=1e-9)
        assert (plan.serve.ttft_s, plan.serve.tpot_s) == (row.ttft_s, row.tpot_s)


def test_what_is_required_of_tokens_leaves_out_layouts_and_the_best_of_the_others_is_named():
    asked = "require.ttft=< 700 ms"
    free, bound = search(REPLIES, chips=8, top=100), search(REPLIES, chips=8, top=1, overrides=[asked])
    able = [row for row in free.rows if row.ttft_s < 0.7]
    assert 0 < len(able) < len(free.rows)
    assert bound.violating == len(free.rows) - len(able)
    assert bound.plans == 1  # of the others bounds tell
    assert [row.step_s for row in bound.rows] == [able[0].step_s]
    assert bound.best.step_s > free.best.step_s


def test_servers_of_prompts_are_held_while_those_that_decode_are_searched():
    found = search(BESIDE, chips=8, top=3)
    assert found.held["prefill"] == READING
    assert {row.plan.serve.ttft_s for row in found.rows} == {tpsim.plan(BESIDE).serve.ttft_s}
    assert {row.plan.chips for row in found.rows} == {8}
    best = found.rows[0].plan
    assert [line for line in found.lines if line.label in ("prompts", "servers")] == [*best.lines[2:4]]
    assert [line.label for line in best.lines[2:4]] == ["prompts", "servers"]
    assert any(
        name == "held" and "prefill {mesh: {tensor: 4}" in text for name, text in page(found, verbose=False).facts
    )


def test_a_limit_on_the_first_token_holds_for_all_layouts_or_for_none_where_others_read_prompts():
    ttft_s = tpsim.plan(BESIDE).serve.ttft_s
    met, missed = (
        search(BESIDE, chips=8, top=1, overrides=[f"require.ttft=< {ttft_s * times * 1e3:.6f} ms"])
        for times in (1.01, 0.99)
    )
    assert (met.violating, met.ok) == (0, True)
    assert (missed.violating, missed.ok) == (missed.fitting, False)
    assert missed.plans == 0


@pytest.mark.parametrize("batch", [32, "largest"])
def test_layouts_beside_servers_of_prompts_are_ranked_by_the_money_that_their_plans_come_to(batch):
    """Prompts on chips of twice the price; a layout is paid for as many of them as keep up."""
    price = {"extends": "dgx-h100", "chip": {"price_per_hour": 4.0}}
    asked = {**BESIDE, "hardware": {"extends": "dgx-h100", "chip": {"price_per_hour": 2.0}}}
    asked |= {"prefill": {**READING, "hardware": price}, "workload": {**REPLIES["workload"], "batch": batch}}
    found, few = (search(asked, chips=8, by="money", top=top) for top in (1000, 3))
    plans = [plan for plan in brute(asked, 8)[0] if plan.memory.room_bytes >= 0]
    money = sorted(plan.run.price_per_million_tokens for plan in plans)
    assert len(money) > 10
    assert [1e6 * row.planned.value("money") for row in found.rows] == pytest.approx(money, rel=1e-9)
    assert [1e6 * row.planned.value("money") for row in few.rows] == pytest.approx(money[:3], rel=1e-9)
    assert few.plans < few.fitting


def test_servers_of_prompts_that_are_varied_are_ranked_with_those_that_decode_by_what_both_cost():
    asked = {**BESIDE, "assume": {"price_per_chip_hour": 1}}
    vary = ["prefill.mesh.tensor=2,4,8", "prefill.batch=1,2"]
    found = search(asked, chips=8, by="money", top=1, vary=vary, overrides=["require.ttft=< 120 ms"])
    cuts = [{**READING, "mesh": {"tensor": tp}, "batch": batch} for tp, batch in product((2, 4, 8), (1, 2))]
    plans = [plan for reading in cuts for plan in brute({**asked, "prefill": reading}, 8)[0]]
    able = [plan for plan in plans if plan.memory.room_bytes >= 0 and plan.serve.ttft_s < 0.12]
    best = min(able, key=lambda plan: plan.run.price_per_million_tokens)
    prompts = best.prefill.question
    varied = {"prefill.mesh.tensor": prompts.mesh.devices, "prefill.batch": prompts.workload.global_batch}
    assert len(able) < len(plans)
    assert found.best.varied == varied
    assert 1e6 * found.best.planned.value("money") == pytest.approx(best.run.price_per_million_tokens, rel=1e-9)
    assert found.held["prefill"] == {"mesh": {}, "layout": READING["layout"]}


def test_servers_of_prompts_that_do_not_fit_are_refused_before_others_are_searched():
    with pytest.raises(
        InputError, match="no layout helps servers that read prompts, which are held as stated: DOES NOT"
    ):
        search({**BESIDE, "prefill": {**READING, "mesh": {"tensor": 1}}}, chips=8)


def test_batches_are_compared_by_what_a_chip_makes_under_a_limit_of_latency():
    batches, limit = [16, 64, 256, 1024], "require.tpot=< 6 ms"
    found = search(DECODE, chips=8, vary=["batch=16,64,256,1024"], by="tokens_per_s_chip", top=1, overrides=[limit])
    plans = [plan for size in batches for plan in brute(DECODE, 8, [f"workload.batch={size}", limit])[0]]
    able = [plan for plan in plans if plan.memory.room_bytes >= 0 and plan.ok]
    best = max(able, key=lambda plan: plan.serve.tokens_per_s_chip)
    assert found.best.tokens_per_s_chip == pytest.approx(best.serve.tokens_per_s_chip, rel=1e-9)
    assert found.best.varied == {"workload.batch": best.question.workload.global_batch}
    assert 16 < found.best.batch < 1024


def test_of_batches_as_large_as_memory_none_is_said_to_fit_more_surely_than_others():
    """Each fills its chip to the last sequence: that none surely fits says nothing of a layout."""
    found = search(DECODE, chips=8, batch="largest", by="tokens_per_s")
    assert (found.best.fits, found.sure) == (None, None)
    assert "surely" not in [line.label for line in found.lines]


@pytest.mark.parametrize("latency", ["tpot", "ttft"])
def test_a_latency_that_is_no_measure_is_answered_with_the_one_that_it_is(latency):
    with pytest.raises(InputError, match=r"not a measure\n  = of inference, step is TPOT, and of prompts alone TTFT"):
        search(DECODE, chips=8, by=latency)


def test_the_largest_batch_is_that_of_each_layout():
    found = search(DECODE, chips=8, batch="largest", by="tokens_per_s", top=5)
    plans, _ = brute({**DECODE, "workload": {**DECODE["workload"], "batch": "largest"}}, 8)
    rates = sorted((plan.step.tokens_per_s for plan in plans), reverse=True)
    assert [row.tokens_per_s for row in found.rows] == pytest.approx(rates[:5], rel=1e-9)
    assert all(row.at_least_s == pytest.approx(row.step_s, rel=1e-3) for row in found.rows)
    assert len({row.batch for row in found.rows}) > 1
    assert "as many sequences as memory has room for" in dict(page(found, verbose=False).facts)["work"]
    assert f"batch {found.best.batch}" in found.verdict


def test_money_of_replies_counts_their_prompts():
    price = "assume.price_per_chip_hour=2"
    found = search(REPLIES, chips=8, by="money", overrides=[price], top=10)
    plans = [plan for plan in brute(REPLIES, 8, [price])[0] if plan.memory.room_bytes >= 0]
    costs = sorted(plan.run.price_per_million_tokens for plan in plans)
    assert [row.run.price_per_million_tokens for row in found.rows] == pytest.approx(costs[:10], rel=1e-9)
    assert [row.planned.value("money") for row in found.rows] == pytest.approx([cost / 1e6 for cost in costs[:10]])
    best, *others = found.rows
    for row in others:
        parts = [part.split() for part in row.loses.split(", ")]
        told = sum(float(number) for number, *_ in parts)
        costs_more = 1e6 * (row.planned.value("money") - best.planned.value("money"))
        assert told == pytest.approx(costs_more, abs=2e-4 * len(parts) * 1e6 * best.planned.value("money"))
    assert any(row.loses.endswith(" prompts") or " prompts," in row.loses for row in others)
    assert [row.step_s for row in found.rows] != sorted(row.step_s for row in found.rows)


DRAFTED = {**REPLIES, "workload": {**REPLIES["workload"], "speculation": {"tokens": 2, "acceptance": 0.8}}}


@pytest.mark.parametrize(
    ("asked", "path", "values"),
    [
        (REPLIES, "workload.batch", (8, 64)),
        (DRAFTED, "workload.speculation.tokens", (0, 2)),
        (BESIDE, "prefill.batch", (1, 2)),
    ],
    ids=["prompts and replies in turn", "drafts", "servers of prompts"],
)
def test_layouts_are_ranked_by_what_a_chip_of_all_makes_of_replies_with_their_prompts(asked, path, values):
    """Those that bounds leave out are no better; what others lose is all that their tokens take more."""
    by, vary = "served_tokens_per_s_chip", [f"{path}={','.join(map(str, values))}"]
    found, few = (search(asked, chips=8, by=by, top=top, vary=vary) for top in (1000, 3))
    plans = [plan for value in values for plan in brute(asked, 8, [f"{path}={value}"])[0]]
    rates = sorted((plan.serve[by] for plan in plans if plan.memory.room_bytes >= 0), reverse=True)
    assert len(rates) > 10
    assert [row[by] for row in found.rows] == pytest.approx(rates, rel=1e-9)
    assert [row[by] for row in few.rows] == pytest.approx(rates[:3], rel=1e-9)
    assert (few.plans < few.fitting) == (asked is not DRAFTED)
    best, *others = found.rows
    tokens = best.planned.outcome.tokens * 64 / best.plan.chips
    for row in others:
        told = [part.split() for part in row.loses.split(", ") if not row.loses.startswith(("the same", "tied"))]
        seconds = sum((-1) ** (part[0][0] == "-") * parse(f"{part[0][1:]} {part[1]}", "seconds") for part in told)
        due = tokens * (1 / row[by] - 1 / best[by])
        assert seconds == pytest.approx(due, rel=1e-3, abs=3e-4 * (len(told) + 1) * tokens / best[by])


def test_what_a_chip_of_all_makes_is_asked_of_prompts_and_replies_alone():
    with pytest.raises(InputError, match="prompts and replies, and nothing here has both"):
        search(DECODE, chips=8, by="served_tokens_per_s_chip")


def test_what_a_scenario_states_is_held_and_what_it_leaves_open_is_searched():
    found = search({**DECODE, "layout": {**DECODE["layout"], "cache": "batch"}})
    assert (found.searched, found.considered, found.best.mesh) == (
        *(["sequence_parallel", "layers", "microbatches"], 2),
        DECODE["mesh"],
    )
    assert found.held == {"mesh": DECODE["mesh"], "layout.cache": "batch"}
    assert [row.cache for row in found.rows] == ["batch"]
    assert [row.cache for row in search(DECODE, vary=["cache=sequence,heads"]).rows] == ["heads", "sequence"]


def test_a_layout_whose_call_has_no_price_is_refused_and_no_others():
    found = search("llama3-70b-v5e-decode", chips=16, top=100)
    assert {refusal.reason: refusal.layouts for refusal in found.refused}["no-closed-form"] > 0
    assert found.considered == found.legal + sum(refusal.layouts for refusal in found.refused)
    assert len(found.rows) == found.fitting > 0


def test_a_layout_without_a_price_is_refused_where_it_does_not_fit_either():
    """On a slice of 2x2x2 a pipeline of 8 has neighbours that no cable joins, and no chip holds an eighth of 405B."""
    scenario = {**DECODE, "model": "llama-3-405b", "hardware": "tpu-v4"}
    found, (plans, refused) = search(scenario, chips=8), brute(scenario, 8)
    assert not any(plan.memory.fits for plan in plans)
    assert {refusal.reason: refusal.layouts for refusal in found.refused}["no-closed-form"] > 0
    assert (found.fitting, found.legal, found.considered) == (0, len(plans), len(plans) + refused)


def test_the_best_of_inference_can_be_required():
    found = search({**DECODE, "require": {"best": {"tp": 8, "cache": "heads"}}}, chips=8)
    assert found.ok
    assert not search({**DECODE, "require": {"best": {"cache": "batch"}}}, chips=8).ok


def test_a_page_of_inference_has_columns_of_its_own():
    found = search(REPLIES, chips=8)
    table = page(found, verbose=False).tables[0]
    keys = [column.key for column in table.columns]
    assert {"ttft_s", "tpot_s", "tokens_per_s_chip", "cache"} <= {*keys}
    assert not {"zero", "microbatch_size", "mfu", "step_s", "batch"} & {*keys}
    assert ("microbatches" in keys) == any(row.microbatches > 1 for row in found.rows)
    assert "first token after" in found.verdict
    assert f"{found.plans} planned: no other can be better" in found.verdict


def test_inference_that_flags_ask_for_is_searched():
    """It was told that a workload that decodes has no global_batch, and has no seq, and needs a context."""
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "chips": 8, "batch": 32, "seq": 4096}
    flagged = search(**asked, overrides=["workload.kind=decode"])
    assert [row.step_s for row in flagged.rows] == [row.step_s for row in search(DECODE, chips=8).rows]


REFUSED = {
    "cp by a flag": ({"cp": 2}, "cp says nothing of inference: context parallelism"),
    "cp varied": ({"vary": ["cp=1,2"]}, "cp says nothing of inference: context parallelism"),
    "ZeRO": ({"vary": ["zero=0,1"]}, "layout.zero says nothing of inference"),
    "an unknown cache": ({"vary": ["cache=rows"]}, 'layout.cache cannot be "rows"'),
    "steps of batches as large as memory": ({"batch": "largest"}, "steps are not the same work"),
    "steps of several batches": ({"vary": ["batch=8,16"]}, "steps are not the same work"),
    "a batch stated and varied": ({"batch": 8, "vary": ["batch=8,16"]}, "batch is stated by --batch 8 and varied"),
}


@pytest.mark.parametrize(("asked", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_searched_of_inference_is_refused_by_name(asked, message):
    with pytest.raises(InputError, match=message):
        search(DECODE, chips=8, **asked)


def test_inference_without_a_batch_is_refused_with_how_to_give_several():
    open_ = {**DECODE, "workload": {"kind": "decode", "context": 4096}}
    with pytest.raises(InputError, match="compared at one batch") as error:
        search(open_, chips=8)
    assert error.value.problems[0].remedy == "add it: --batch 32, or several: --vary batch=8,32,128"
