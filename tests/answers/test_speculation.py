"""Drafting ahead, through `tpsim.plan`: seconds from parts that are planned alone, bytes, and where it pays."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import tpsim
from tpsim.answers.explain import explain
from tpsim.answers.plan import priced
from tpsim.answers.plan_derivations import names_in
from tpsim.answers.search import search
from tpsim.answers.sensitivity import FACTOR
from tpsim.claims.shrink import shrink
from tpsim.claims.trial import trial
from tpsim.claims.verify import verify
from tpsim.pages.plan import page
from tpsim.program.transformer import mtp_count
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo
from tpsim.question.question import Speculation
from tpsim.question.scenario import resolve
from tpsim.question.serving import draft_of
from tpsim.reference.compare import compared

TARGET, DRAFT = "llama-3-70b", "llama-3-8b"
CONTEXT, BATCH = 4096, 32
PER_TOKEN = {TARGET: 2 * 2 * 80 * 8 * 128, DRAFT: 2 * 2 * 32 * 8 * 128}
"""Bytes of the cache: keys and values of two bytes, layers, kv heads, head dim."""


def asked(model=TARGET, tp=8, layout=None, **work):
    """A scenario of decoding on `tp` chips, unless `work` says otherwise."""
    return {
        "tpsim": "scenario/1",
        "model": model,
        "hardware": "dgx-h100",
        "mesh": {"tensor": tp},
        "layout": {"tp": "tensor", **(layout or {})},
        "workload": {"kind": "decode", "batch": BATCH, "context": CONTEXT, "dtype": "bf16", **work},
    }


def drafted(tokens=3, acceptance=0.8, draft=DRAFT, more=None, **others):
    """The same with tokens drafted ahead."""
    return asked(**others, speculation={"tokens": tokens, "acceptance": acceptance, "draft": draft, **(more or {})})


REPLIES = {"kind": "serve", "prompt": 1024, "output": 257}


def replies(**work):
    """What stands in place of a step of decoding where prompts and replies are asked for."""
    scenario = drafted(**work)
    own = {name: value for name, value in scenario["workload"].items() if name not in ("kind", "context")}
    return {**scenario, "workload": {**own, **REPLIES}}


@cache
def seconds(model, **work):
    """Seconds of a step that nothing is drafted for."""
    return float(tpsim.plan(asked(model, **work)).step.time_s)


# Tokens of a step ------------------------------------------------------------------------------------------------


def drawn(tokens, acceptance, steps=40_000):
    """Tokens of a step, drawn: drafts up to the first that is rejected, and one of the model's own."""
    draws, given = random.Random(1), 0  # noqa: S311 - no secrets
    for _ in range(steps):
        accepted = 0
        while accepted < tokens and draws.random() < acceptance:
            accepted += 1
        given += accepted + 1
    return given / steps


@pytest.mark.parametrize(
    ("tokens", "acceptance", "due"), [(1, 0.6, 1.6), (3, 0.8, 2.952), (5, 1, 6), (4, 0, 1), (2, 0.5, 1.75)]
)
def test_a_step_gives_what_leviathan_2023_says_and_what_is_drawn(tokens, acceptance, due):
    expected = Speculation(tokens, acceptance).expected
    assert expected == pytest.approx(due, rel=1e-12)
    if acceptance < 1:
        assert expected == pytest.approx((1 - acceptance ** (tokens + 1)) / (1 - acceptance), rel=1e-12)
    assert drawn(tokens, acceptance) == pytest.approx(due, rel=0.01)


# Seconds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 3])
def test_a_token_takes_its_share_of_drafts_and_verification_as_each_is_planned_alone(tokens):
    """Drafts read 4,096 tokens and one more each; the model reads all of them with its own."""
    serve = tpsim.plan(drafted(tokens)).serve
    drafts = [seconds(DRAFT, context=CONTEXT + number) for number in range(tokens)]
    verification = seconds(TARGET, context=CONTEXT + tokens, tokens=tokens + 1)
    step = sum(drafts) + verification
    expected = 1 + sum(0.8**number for number in range(1, tokens + 1))
    assert serve.speculation.draft_s == pytest.approx(sum(drafts) / tokens, rel=1e-9)
    assert serve.speculation.verification_s == pytest.approx(verification, rel=1e-12)
    assert serve.speculation.step_s == pytest.approx(step, rel=1e-9)
    assert serve.tpot_s == pytest.approx(step / expected, rel=1e-9)
    assert serve.tokens_per_s_user == pytest.approx(expected / step, rel=1e-9)
    assert serve.tokens_per_s_chip == pytest.approx(BATCH * expected / step / 8, rel=1e-9)
    assert serve.speculation.plain_s == seconds(TARGET, context=CONTEXT)


def test_as_leviathan_2023_has_it_where_verification_takes_as_long_as_a_step_it_is_faster_by_so_much():
    """Theorem 3.8: (1 - a^(d + 1))/((1 - a)(d c + 1)), c being a draft's share of a step."""
    ahead = tpsim.plan(drafted(4, 0.7)).serve.speculation
    c = ahead.draft_s / ahead.plain_s
    theirs = (1 - 0.7**5) / (0.3 * (4 * c + 1))
    assert ahead.speedup * (ahead.step_s / (ahead.step_s - ahead.verification_s + ahead.plain_s)) == pytest.approx(
        theirs, rel=1e-12
    )
    assert ahead.speedup < theirs  # five tokens take longer than one


def test_drafts_about_where_a_window_fills_are_the_mean_of_their_steps():
    """Mistral's window is of 4,096 tokens: the second and third drafts read as many as the first one, nearly."""
    plan = tpsim.plan(drafted(5, model="mistral-7b", draft="mistral-7b", context=4094, batch=256))
    each = [seconds("mistral-7b", context=4094 + number, batch=256) for number in range(5)]
    assert plan.serve.speculation.draft_s == pytest.approx(sum(each) / 5, rel=1e-9)
    assert sum(each) / 5 < 0.99999 * each[2]


def test_a_draft_is_on_the_machine_that_is_asked_about():
    """Not on the one of its file, where a search asks what faster links would buy."""
    question = resolve(drafted())
    faster = resolve({**drafted(), "hardware": "dgx-h200"}).machine
    asked_of = replace(question, machine=faster)
    plans = [priced(one) for one in (question, asked_of)]
    assert draft_of(asked_of).machine is faster
    assert plans[1].serve.speculation.draft_s < plans[0].serve.speculation.draft_s


def test_a_draft_without_experts_drafts_for_a_model_that_has_some():
    """What is stated of experts, their number format and where they lie, says nothing of it."""
    small, mesh = "tests/data/hf/qwen3-8b.json", {"mesh": {"data": 2, "tensor": 4}}
    laid = {"dp": "data", "ep": "data"}
    scenario = drafted(model="tests/data/hf/qwen3-30b.json", draft=small, layout=laid, expert_dtype="fp8") | mesh
    scenario |= {"assume": {"routing": {"load": "uniform"}}}
    ahead = tpsim.plan(scenario).serve.speculation
    alone = [tpsim.plan(asked(small, layout={"dp": "data"}, context=CONTEXT + n) | mesh) for n in range(3)]
    assert ahead.draft_s == pytest.approx(sum(float(plan.step.time_s) for plan in alone) / 3, rel=1e-9)
    assert ahead.draft_parameters_bytes == alone[0].memory.parameters_bytes
    experts = drafted(model="tests/data/hf/qwen3-32b.json", draft="tests/data/hf/qwen3-30b.json", expert_dtype="fp8")
    with pytest.raises(InputError, match="qwen3-32b has none"):
        resolve(experts)


def test_drafts_for_nothing_cost_no_more_than_their_verification():
    plan = tpsim.plan(drafted(draft="none"))
    verification = seconds(TARGET, context=CONTEXT + 3, tokens=4)
    assert plan.serve.tpot_s == pytest.approx(verification / 2.952, rel=1e-12)
    assert {"draft", "draft_prompt_s", "draft_cache_bytes"}.isdisjoint([*plan.serve.speculation])
    assert plan.memory.parameters_bytes == tpsim.plan(asked()).memory.parameters_bytes


def test_a_reply_is_a_prompt_read_twice_and_tokens_at_the_mean_of_its_contexts():
    """The draft reads it, too, behind the first token; 256 tokens follow at 1,025 to 1,280 tokens each."""
    plan = tpsim.plan(replies())
    own, other = (prompt_s(model) for model in (TARGET, DRAFT))
    step = 3 * seconds(DRAFT, context=1153) + seconds(TARGET, context=1155, tokens=4)
    step += 3 * (seconds(DRAFT, context=1154) - seconds(DRAFT, context=1153)) / 2  # the mean is at 1,152.5 + 1
    step += (seconds(TARGET, context=1156, tokens=4) - seconds(TARGET, context=1155, tokens=4)) / 2
    assert plan.serve.ttft_s == pytest.approx(own, rel=1e-12)
    assert plan.serve.tpot_s == pytest.approx(step / 2.952, rel=1e-9)
    assert plan.serve.reply_s == pytest.approx(own + other + 256 * plan.serve.tpot_s, rel=1e-12)
    assert plan.serve.speculation.draft_prompt_s == pytest.approx(other, rel=1e-12)
    assert plan.prefill.tokens == BATCH * 1024
    assert plan.prefill.serve.speculation is None
    alone = tpsim.plan(replies() | {"workload": {**replies()["workload"], "speculation": None}})
    assert plan.serve.speculation.plain_s == pytest.approx(alone.serve.tpot_s, rel=1e-12)


def prompt_s(model):
    """Seconds in which prompts of 1,024 tokens are read."""
    work = {"kind": "prefill", "batch": BATCH, "prompt": 1024, "dtype": "bf16"}
    return float(tpsim.plan({**asked(model), "workload": work}).step.time_s)


def test_no_drafts_are_no_speculation():
    """Whatever else is stated: the answer is that of a scenario without it."""
    plans = [tpsim.plan(scenario) for scenario in (drafted(0, draft="nobody-knows-it"), asked())]
    one, other = (plan.to_json() for plan in plans)
    assert one["result"] == other["result"]
    assert plans[0].serve.speculation is None


# Memory ----------------------------------------------------------------------------------------------------------


def test_a_chip_holds_both_weights_and_both_caches_to_the_byte():
    """8 chips; a cache has room for the tokens that are drafted."""
    plan, alone = tpsim.plan(drafted()), {model: tpsim.plan(asked(model)) for model in (TARGET, DRAFT)}
    weights = sum(each.memory.parameters_bytes for each in alone.values())
    cache = BATCH * (CONTEXT + 3) * sum(PER_TOKEN.values()) // 8
    memory, ahead = plan.memory, plan.serve.speculation
    assert (memory.parameters_bytes, memory.cache_bytes) == (weights, cache)
    assert (ahead.draft_parameters_bytes, ahead.draft_cache_bytes) == (
        alone[DRAFT].memory.parameters_bytes,
        BATCH * (CONTEXT + 3) * PER_TOKEN[DRAFT] // 8,
    )
    verifying = tpsim.plan(asked(context=CONTEXT + 3, tokens=4)).memory
    assert memory.peak_bytes == weights + cache + verifying.peak.total
    assert plan.serve.copies == 1
    replying = tpsim.plan(replies()).memory
    assert replying.cache_bytes == BATCH * (1024 + 257 + 3) * sum(PER_TOKEN.values()) // 8
    assert "of the draft a chip holds weights of 2.008 GB" in " ".join(page(plan, verbose=False).notes)


def test_the_peak_is_that_of_whoever_needs_more():
    """A draft that every chip has whole reads prompts in more memory than its model, which is split."""
    plan = tpsim.plan(replies(more={"layout": {}}))
    alone = tpsim.plan({**asked(DRAFT, layout={"tp": []}), "workload": {**REPLIES, "batch": BATCH, "dtype": "bf16"}})
    assert plan.memory.peak_action == f"draft, {alone.memory.peak_action}"
    assert plan.memory.peak.total == alone.memory.peak.total > tpsim.plan(replies()).memory.peak.total
    assert plan.serve.speculation.draft_parameters_bytes == alone.memory.parameters_bytes == 2 * 8_030_261_248


@pytest.mark.parametrize("scenario", [drafted(), replies(), drafted(draft="none")], ids=["step", "replies", "nothing"])
def test_the_largest_batch_has_room_for_both_and_one_more_sequence_has_none(scenario):
    batch = tpsim.plan(scenario).serve.largest_batch
    rooms = [
        tpsim.plan(scenario, overrides=[f"workload.batch={some}"]).memory.room_bytes for some in (batch, batch + 1)
    ]
    assert rooms[0] >= 0 > rooms[1]
    filled = tpsim.plan(scenario, overrides=["workload.batch=largest"])
    assert filled.question.workload.global_batch == batch
    assert filled.serve.tokens_per_s_chip == pytest.approx(batch / filled.serve.tpot_s / 8)


def test_a_largest_batch_is_one_that_a_draft_splits_evenly_too():
    """Eight chips share out the draft's sequences, and two its model's: 598 of these would have room."""
    scenario = replies(more={"layout": {"dp": ["data", "tensor"]}}, batch="largest", param_dtype="int8", acceptance=0.7)
    scenario |= {"mesh": {"data": 2, "tensor": 4}, "layout": {"dp": "data", "tp": "tensor"}}
    plan = tpsim.plan(scenario)
    batch = plan.question.workload.global_batch
    assert batch == plan.serve.largest_batch > 8
    assert batch % 8 == 0
    again, more = (tpsim.plan(scenario, overrides=[f"workload.batch={some}"]) for some in (batch, batch + 8))
    assert again.memory.room_bytes >= 0 > more.memory.room_bytes
    assert again.serve.tpot_s == plan.serve.tpot_s


# Where it pays ---------------------------------------------------------------------------------------------------


def test_at_the_acceptance_named_it_is_as_fast_as_without_drafts_and_below_it_slower():
    least = tpsim.plan(drafted()).serve.speculation.breakeven_acceptance
    at, below = (tpsim.plan(drafted(acceptance=one)).serve for one in (least, least - 0.01))
    assert at.tpot_s == pytest.approx(at.speculation.plain_s, rel=1e-9)
    assert at.speculation.speedup == pytest.approx(1, rel=1e-9)
    assert below.speculation.speedup < 1
    assert "times SLOWER than" in " ".join(page(tpsim.plan(drafted(acceptance=least - 0.01)), verbose=False).notes)


def test_a_draft_as_large_as_its_model_never_pays():
    plan = tpsim.plan(drafted(draft=TARGET, acceptance=1))
    assert plan.serve.speculation.breakeven_acceptance is None
    assert plan.serve.speculation.speedup < 1
    assert "no acceptance makes up for it" in " ".join(page(plan, verbose=False).notes)


def test_a_demand_is_held_against_the_token_not_the_step():
    """5.99 ms a token, in steps of 17.7 ms."""
    scenario = drafted(draft="none") | {"require": {"tpot": "< 7 ms", "tokens_per_s_user": "> 150", "step": "> 15 ms"}}
    assert tpsim.plan(scenario).ok
    assert not tpsim.plan(scenario, overrides=["workload.speculation.acceptance=0.5"]).ok


# Search ----------------------------------------------------------------------------------------------------------

SMALL = drafted(model="qwen2-7b", draft="tests/data/hf/qwen2-0.5b.json", tp=8, context=1024)


def test_the_best_layouts_are_those_of_plans_of_all_of_them():
    from tests.answers.test_search_inference import layouts

    plans = []
    for layout in layouts(4, experts=False):
        try:
            plans.append(tpsim.plan({**SMALL, **layout}))
        except InputError:
            continue
    due = sorted(plan.serve.tpot_s for plan in plans if plan.memory.room_bytes >= 0)
    found = search(SMALL, chips=4, top=1000)
    assert [row.tpot_s for row in found.rows] == pytest.approx(due, rel=1e-12)
    assert search(SMALL, chips=4, top=1).best.tpot_s == pytest.approx(due[0], rel=1e-12)
    assert all(row.at_least_s <= row.step_s for row in found.rows)
    assert found.legal == len(plans) > 8
    assert any("the draft" in refusal.example for refusal in found.refused) or found.considered > found.legal
    assert min(due) < 0.9 * max(due)


def test_a_search_names_the_best_number_of_drafts():
    counts = [0, 1, 2, 4, 8]
    found = search(SMALL, chips=2, vary=["workload.speculation.tokens=0,1,2,4,8"], top=100)
    alone = {n: search(SMALL, chips=2, overrides=[f"workload.speculation.tokens={n}"], top=1).best for n in counts}
    best = min(counts, key=lambda n: alone[n].tpot_s)
    assert found.best.varied == {"workload.speculation.tokens": best}
    assert 0 < best < 8
    assert found.best.tpot_s == alone[best].tpot_s == found.best.step_s
    assert found.plans == found.fitting
    losses = next(row.loses for row in found.rows if row.varied["workload.speculation.tokens"] == 8)
    assert "drafts" in losses


def test_what_a_layout_loses_by_adds_up_to_what_its_token_takes():
    found = search(drafted(), chips=8, top=1)
    assert sum(found.ranked.best[0].outcome.parts.values()) == pytest.approx(found.best.tpot_s, rel=1e-12)


@pytest.mark.parametrize("draft", [DRAFT, "none"])
def test_what_a_row_says_a_token_is_made_of_adds_up_to_it(draft):
    """Stages wait, too. Compute and communication were those of the step that verifies, which is longer than it all."""
    found = search(drafted(draft=draft), chips=8, top=30, vary=["pp=1,2"])
    assert {row.pp for row in found.rows} == {1, 2}
    for row in found.rows:
        assert row.compute_s + row.exposed_s + row.bubble_s == pytest.approx(row.tpot_s, rel=1e-9)
    ahead = found.best.plan.serve.speculation
    kernels = float(found.best.plan.step.compute_s)
    kernels += 3 * float(ahead.drafting.step.compute_s) if ahead.drafting else 0
    assert found.best.compute_s == pytest.approx(kernels / 2.952, rel=1e-9)


def test_what_a_better_part_of_the_machine_brings_is_told_of_the_token():
    """Drafts read weights, too: a faster memory shortens them as it does their verification."""
    found = search(drafted(), chips=8, top=1, vary=["tp=8"], sensitivity=True)
    today = found.best.tpot_s
    for part in found.sensitivity:
        assert part.today == pytest.approx(today, rel=1e-12)
        assert 0.9 * today < part.held_s <= today
        assert part.best_s == pytest.approx(part.held_s, rel=1e-12)
    told = {figure.constant: figure for figure in found.constants}
    bandwidth = float(tpsim.plan(drafted()).question.machine.chip.memory.bandwidth.value)
    faster = {"extends": "dgx-h100", "chip": {"memory": {"bandwidth": f"{bandwidth * FACTOR} B/s"}}}
    assert told["chip.memory.bandwidth"].held_s == pytest.approx(
        tpsim.plan({**drafted(), "hardware": faster}).serve.tpot_s, rel=1e-9
    )


# What is asked wrongly -------------------------------------------------------------------------------------------

WRONG = {
    "prompts alone": (
        asked() | {"workload": {"kind": "prefill", "prompt": 8, "speculation": {"tokens": 1, "acceptance": 0.5}}},
        ("workload that reads prompts", "where workload.kind is decode or serve"),
    ),
    "training": (
        asked() | {"workload": {"seq": 8, "speculation": {"tokens": 1, "acceptance": 0.5}}},
        ("workload of training", "where workload.kind is decode or serve"),
    ),
    "more than certain": (drafted(acceptance=1.2), ("more than the whole",)),
    "less than never": (drafted(acceptance=-0.1), ("speculation.acceptance",)),
    "tokens that are stated, too": (
        drafted(context=512, tokens=3) | {"workload": {**drafted()["workload"], "tokens": 2}},
        ("3 drafts has 4 new tokens", "leave workload.tokens out"),
    ),
    "another tokenizer": (drafted(draft="gpt2-xl", tp=1, context=512), ("vocabulary of 50,257", "of the same family")),
    "nobody knows it": (drafted(draft="llama-3-7b"), ("is not a model",)),
    "a draft that does not divide": (
        drafted(model="qwen2-7b", draft="tests/data/hf/qwen2-0.5b.json", tp=4),
        ("the draft tests/data/hf/qwen2-0.5b.json: 14 heads", "workload.speculation.layout"),
    ),
    "an axis that the mesh has not": (drafted(more={"layout": {"tp": "model"}}), ("the draft", '"model"')),
    "modules of its own": (
        drafted(draft="mtp"),
        ("llama-3-70b has no module that predicts tokens further on", "take a model as a draft, or draft: none"),
    ),
    "a module laid out by itself": (
        drafted(model="deepseek-v3", draft="mtp", more={"layout": {}}),
        ("lies as its layers do", "leave workload.speculation.layout out"),
    ),
    "a module on stages": (
        {
            **drafted(model="deepseek-v3", draft="mtp"),
            "mesh": {"pipe": 2, "tensor": 8},
            "layout": {"tp": "tensor", "pp": "pipe"},
            "pipeline": {"layers": "nearly-even"},
        },
        ("not planned on stages yet",),
    ),
    "a layout of nothing": (
        drafted(draft="none", more={"layout": {"tp": "tensor"}}),
        ("nothing drafts: workload.speculation.draft is none", "leave workload.speculation.layout out"),
    ),
    "in capitals": (drafted(draft="MTP"), ('did you mean "mtp"?', "none: tokens are looked up")),
    "another way to draft": (drafted(draft="ngram"), ("is not a model", "none: tokens are looked up")),
    "vLLM's name": (drafted(more={"model": DRAFT}), ("tpsim calls this workload.speculation.draft",)),
    "vLLM's name of blocks": (asked(block_size=16), ("tpsim calls this workload.cache_block",)),
    "no acceptance": (
        asked() | {"workload": {**asked()["workload"], "speculation": {"tokens": 2}}},
        ("acceptance",),
    ),
}


@pytest.mark.parametrize(("scenario", "words"), WRONG.values(), ids=WRONG)
def test_what_no_draft_can_be_is_refused_with_what_to_do_instead(scenario, words):
    with pytest.raises(InputError) as error:
        resolve(scenario)
    text = str(error.value)
    assert all(word in text for word in words), text


def test_a_mistake_is_shown_where_the_draft_is_named(tmp_path):
    path = tmp_path / "drafted.yaml"
    path.write_text(json.dumps(drafted(draft="mistral-7b"), indent=1), encoding="utf-8")
    with pytest.raises(InputError, match="another-vocabulary") as error:
        resolve(path)
    assert '"draft": "mistral-7b"' in str(error.value)
    assert "^^^^^^^^^^" in str(error.value)


@pytest.mark.parametrize(("layout", "carets"), [("{tp: tensr}", "tensr"), ("{tp: tensor, dp: tensor}", "tensor")])
def test_a_mistake_in_a_draft_s_layout_is_shown_there(tmp_path, layout, carets):
    path = tmp_path / "drafted.yaml"
    text = json.dumps(drafted())[:-3] + f', "layout": {layout}' + "}}}"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="the draft llama-3-8b: ") as error:
        resolve(path)
    (problem,) = error.value.problems
    at = problem.place.column - 1
    assert problem.place.text[at : at + problem.place.width] == carets
    assert at > text.index('"layout": {tp')


def test_a_mistake_within_a_draft_s_file_is_shown_there_and_all_others_where_it_is_named(tmp_path):
    draft = tmp_path / "draft.json"
    draft.write_text(json.dumps({"model_type": "llama", "hidden_size": -1}), encoding="utf-8")
    for named, where in ((str(draft), "draft.json:1:"), ("gpt2-xl", "command line:1:")):
        change = f"workload.speculation={{tokens: 1, acceptance: 0.5, draft: {named}}}"
        with pytest.raises(InputError, match=f"the draft {named}: ") as error:
            resolve("llama3-70b-h100-decode", overrides=[change])
        assert {where in str(problem) for problem in error.value.problems} == {True}


# What else is told of it -----------------------------------------------------------------------------------------


def test_an_acceptance_is_a_guess_among_the_assumptions():
    before, plan = tpsim.plan(asked()), tpsim.plan(drafted())
    texts = {one.text: one.kind for one in plan.assumptions}
    (kind,) = (kind for text, kind in texts.items() if "accepted with probability 0.8" in text)
    assert kind == "guess"
    assert plan.question.guesses == before.question.guesses + 1
    assert any("trees" in text for text in plan.not_modelled)


def test_its_seconds_are_explained_by_their_parts():
    told = explain("serve.tpot_s", scenario=drafted())
    (derivation,) = told.derivations
    assert derivation.value == tpsim.plan(drafted()).serve.tpot_s
    assert "3 x draft" in derivation.text
    assert "2.952 tokens" in derivation.text
    assert "Leviathan" in derivation.because[0]
    (rate,) = explain("step.tokens_per_s", scenario=drafted()).derivations
    assert rate.text == "32 tokens / 10.16 ms"
    assert rate.value == pytest.approx(32 / 10.16e-3, rel=1e-3)
    of_cache = [float(one.value) for one in explain("memory.cache", scenario=drafted()).derivations]
    assert sum(of_cache) == tpsim.plan(drafted()).memory.cache_bytes


TABLE = "llama3-70b-v5e-decode"


def test_a_table_that_splits_a_cache_by_tokens_splits_drafts_and_blocks_as_layout_cache_does():
    """8,192 tokens and 3 more over two chips were refused, and half a block ended as a mistake of tpsim."""
    plain = tpsim.plan(TABLE)
    one = float(plain.memory.cache_bytes) / 8192
    blocks = tpsim.plan(TABLE, overrides=["workload.cache_block=16"])
    assert float(blocks.memory.cache_bytes) == pytest.approx(one * 8199.5, rel=1e-12)
    assert blocks.step.time_s == plain.step.time_s
    ahead = [f"workload.speculation={{tokens: 3, acceptance: 0.8, draft: {draft}}}" for draft in ("none", DRAFT)]
    alone, drafted_for = (tpsim.plan(TABLE, overrides=[change]) for change in ahead)
    assert float(alone.memory.cache_bytes) == pytest.approx(one * 8195, rel=1e-12)
    of_draft = drafted_for.memory.cache_bytes - alone.memory.cache_bytes
    assert float(of_draft / alone.memory.cache_bytes) == pytest.approx(PER_TOKEN[DRAFT] / PER_TOKEN[TARGET], rel=1e-12)
    told = drafted_for.resolved["workload"]["speculation"]["layout"]
    assert told["cache"] == {"t": ["halves"], "r": []}
    assert verify(TABLE, overrides=[ahead[1], "workload.cache_block=16"]).ok
    with pytest.raises(InputError, match=r"8193 .* not divisible by halves 2"):
        resolve(TABLE, overrides=["workload.context=8193"])


@pytest.mark.parametrize("draft", [DRAFT, "none"])
def test_whatever_is_told_of_drafts_is_explained(draft):
    """Each number by its own name, with the value that a plan has; what is stated is not."""
    plan = tpsim.plan(replies(draft=draft))
    told = {name: value for name, value in plan.serve.speculation.items() if name not in STATED}
    assert len(told) == {DRAFT: 10, "none": 7}[draft]
    listed = {name for name in names_in(plan) if name.startswith("serve.speculation.")}
    assert listed == {f"serve.speculation.{name}" for name in told}
    for name, value in told.items():
        (derivation,) = explain(f"serve.speculation.{name}", scenario=replies(draft=draft)).derivations
        assert derivation.value == value
        assert derivation.text
        assert "None" not in derivation.text


STATED = ("tokens", "acceptance", "draft")


def test_the_parts_of_an_explanation_come_to_what_it_explains():
    texts = {
        name: explain(f"serve.speculation.{name}", scenario=drafted()).derivations[0].text
        for name in ("expected_tokens", "step_s", "speedup", "breakeven_acceptance")
    }
    ahead = tpsim.plan(drafted()).serve.speculation
    draft, verification, step, plain = (
        f"{seconds * 1e3:.4g} ms" for seconds in (ahead.draft_s, ahead.verification_s, ahead.step_s, ahead.plain_s)
    )
    assert texts == {
        "expected_tokens": "1 + a + ... + a^3, with a = 0.8",
        "step_s": f"3 x draft {draft} + verification {verification}",
        "speedup": f"2.952 tokens x {plain} without drafts / {step}",
        "breakeven_acceptance": f"the a of which 1 + a + ... + a^3 is {step} / {plain} without drafts",
    }


def test_a_draft_of_a_file_is_found_from_where_the_scenario_is_saved(tmp_path, monkeypatch):
    config = Path("tests/data/hf/llama-3-8b.json").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    own, again = Path("own"), Path("again.yaml")
    own.mkdir()
    (own / "draft.json").write_text(config, encoding="utf-8")
    (own / "asks.yaml").write_text(json.dumps(drafted(draft="draft.json")), encoding="utf-8")
    plan = tpsim.plan(own / "asks.yaml")
    again.write_text(plan.to_yaml(), encoding="utf-8")
    assert "own/draft.json" in again.read_text(encoding="utf-8")
    assert tpsim.plan(again).serve.tpot_s == plan.serve.tpot_s == tpsim.plan(drafted()).serve.tpot_s
    assert any(one.path.endswith("draft.json") for one in plan.inputs)


def test_grids_do_not_know_of_it():
    with pytest.raises(InputError, match="drafts cannot be priced in arrays"):
        tpsim.grid(drafted(), batches=[8], contexts=[64])


@pytest.mark.parametrize("cache", ["heads", "sequence"])
def test_the_step_that_verifies_runs_on_simulated_devices(cache):
    """Drafts lie where there is room: 64 tokens and 3 drafts are no multiple of 4, and a cache is split over them."""
    scenario = drafted(model=DRAFT, tp=4, context=64, layout={"cache": cache})
    result = verify(scenario)
    assert result.ok, result.verdict
    assert tpsim.plan(scenario).memory.cache_bytes == BATCH * 67 * 2 * PER_TOKEN[DRAFT] / 4


@pytest.mark.parametrize("stated", [{"layout": {"tp": "tensor", "cache": "sequence"}}, {"shardings": {}}])
def test_a_window_that_is_split_by_tokens_is_as_even_with_drafts_as_it_can_be(stated):
    """A window of 128 and 3 drafts are no multiple of 8: a chip holds an eighth of them in the mean."""
    table = {"*": {"g": "tensor", "v": "tensor"}, "cache": {"t": "tensor", "g": [], "r": []}}
    laid = {"shardings": table} if "shardings" in stated else stated
    work = {"kind": "decode", "batch": 8, "context": 4096}
    asked = {"tpsim": "scenario/1", "model": "gpt-oss-120b", "hardware": "dgx-h100", "mesh": {"tensor": 8}, **laid}
    ahead = {"speculation": {"tokens": 3, "acceptance": 0.8}}
    plain, drafts = (tpsim.plan({**asked, "workload": {**work, **more}}).memory.cache_bytes for more in ({}, ahead))
    layers = 18 * (4096 + 128), 18 * (4099 + 131)  # every other layer has a window
    assert drafts / plain == pytest.approx(layers[1] / layers[0], rel=1e-12)


# The module that predicts a token further on ----------------------------------------------------------------------

MODULE = "workload.speculation={tokens: 1, acceptance: 0.85, draft: mtp}"
JOINED = 2 * 7168 * 7168 + 2 * 7168
"""Parameters of DeepSeek-V3 that join a token's embedding to the stream, with the norms of both."""


def test_a_module_of_its_model_holds_a_layer_and_what_joins_and_borrows_the_tables():
    """Its norm of the end is the third of DeepSeek-V3's report; numbers of one byte, a scale for 128 x 128."""
    plan = tpsim.plan("deepseek-v3-h100-decode", overrides=[MODULE])
    own = plan.serve.speculation.draft_parameters_bytes
    stacks = [[{"repeat": 3, "of": ["latent", "dense"]}, {"repeat": n, "of": ["latent", "sparse"]}] for n in (58, 59)]
    fewer, more = (
        tpsim.plan(
            "deepseek-v3-h100-decode",
            overrides=["workload.context=4097", f"model={json.dumps(model(layers=layers))}"],
        ).memory
        for layers in stacks
    )
    layer = more.parameters_bytes - fewer.parameters_bytes
    assert own - layer == Fraction((JOINED + 7168) * 4097, 4096)
    assert plan.memory.parameters_bytes == fewer.parameters_bytes + own
    assert plan.serve.speculation.draft_cache_bytes == more.cache_bytes - fewer.cache_bytes
    question = plan.serve.speculation.drafting.question
    experts = 256 * 3 * 7168 * 2048
    on_chip = mtp_count(plan.question.model) - experts + experts // 128
    assert own == Fraction(on_chip * 4097, 4096)
    assert plan.serve.speculation.draft == question.model.name == "deepseek-v3's mtp"


def model(**fields):
    """DeepSeek-V3 with other layers."""
    return {"extends": "deepseek-v3", **fields, "params": None, "active": None}


def test_a_module_of_its_model_takes_a_layer_and_the_ends_and_what_joins():
    """As a model of one layer does, with its tables, and two products more that read 103 million weights."""
    plan = tpsim.plan("deepseek-v3-h100-decode", overrides=[MODULE])
    alone = [f"model={json.dumps(model(layers=[{'repeat': 1, 'of': ['latent', 'sparse']}]))}"]
    one = tpsim.plan("deepseek-v3-h100-decode", overrides=alone)
    more = plan.serve.speculation.draft_s - float(one.step.time_s)
    bandwidth = one.question.machine.chip.memory.bandwidth.value
    assert JOINED / bandwidth < more < 2.5 * JOINED / bandwidth
    assert [row.collective for row in plan.serve.speculation.drafting.rows] == [row.collective for row in one.rows]


@pytest.mark.parametrize("layout", [{"tp": "tensor"}, {"tp": "tensor", "cache": "batch"}])
def test_what_a_module_drafts_on_simulated_devices_is_what_one_device_drafts(layout):
    scenario = drafted(model="deepseek-v3", draft="mtp", layout=layout)
    question, memo = draft_of(resolve(scenario)), Memo()
    seen = trial(shrink(question, memo), priced(question, memo))
    arrays = [*compared(seen.sharded, seen.whole)]
    assert any("mtp.joined" in one.name for one in arrays)
    assert len(arrays) > 20
    assert all(one.difference < 1e-12 for one in arrays)
    assert any(op.output.name == "stream" for op in seen.sharded.program.ops)
