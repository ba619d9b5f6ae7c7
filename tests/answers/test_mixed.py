"""Prompts read in pieces beside decoding: what steps have by a scheduler that runs them one by one, and their seconds.

The scheduler knows nothing of means: it holds slots, gives every sequence that decodes a token, and what is left of a
step to prompts in the order in which they came (Agrawal et al. 2024, Sarathi-Serve, algorithm 3).
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise

import pytest

import tpsim
from tpsim.answers.explain import explain
from tpsim.answers.mixed import NOUNS, apart_s, mixed_s, step_s
from tpsim.answers.plan import priced
from tpsim.answers.plan_derivations import names_in
from tpsim.claims.shrink import shrink
from tpsim.claims.verify import verify
from tpsim.cost.compute import kernel_s
from tpsim.pages.plan import page
from tpsim.quantity.errors import InputError
from tpsim.question.mixed import Mixed, Reads, kinds_of, mixed_of
from tpsim.question.scenario import resolve

TYPICAL = {"batch": 32, "prompt": 1024, "output": 256}


def asked(model="llama-3-70b", mesh=None, layout=None, hardware="dgx-h100", more=None, **work):
    """A scenario of prompts and replies on eight chips, unless something else is said."""
    return {
        "tpsim": "scenario/1",
        "name": "pieces",
        "model": model,
        "hardware": hardware,
        "mesh": mesh or {"tensor": 8},
        "layout": layout or {"tp": "tensor"},
        "workload": {"kind": "serve", **TYPICAL, **work},
        **(more or {}),
    }


def planned(step_tokens=512, **others):
    """The plan where steps have so many tokens at most."""
    return tpsim.plan(asked(step_tokens=step_tokens, **others))


# What steps have -------------------------------------------------------------------------------------------------


def scheduled(mixed: Mixed, watched: int):
    """Steps as a scheduler makes them: how many decode, and pieces of prompts, (tokens, those behind them too).

    It begins with replies evenly far, and is watched for so many steps when it has come to rest.
    """
    slots, tokens, prompt, steps = int(mixed.slots), int(mixed.tokens), mixed.prompt, mixed.steps
    places = (number * (steps + 1) // slots for number in range(slots))
    sequences = [[prompt, steps - place + 1] if place else [0, steps] for place in places]
    made = []
    for _ in range(watched + 8 * (prompt + steps)):
        decoding = [sequence for sequence in sequences if sequence[0] == prompt]
        room, pieces = tokens - len(decoding), []
        for sequence in sequences:
            if sequence[0] < prompt and room:
                new = min(room, prompt - sequence[0])
                sequence[0] += new
                room -= new
                pieces.append((new, sequence[0]))
        made.append((len(decoding), tuple(pieces)))
        for sequence in decoding:
            sequence[1] -= 1
        ended = sum(not sequence[1] for sequence in sequences)
        sequences = [sequence for sequence in sequences if sequence[1]] + [[0, steps] for _ in range(ended)]
    return made[-watched:]


def at_rest(mixed: Mixed):
    """The same over whole turns of all slots."""
    return scheduled(mixed, 6 * round(mixed.pieces + mixed.steps))


DRAWN = [
    Mixed(slots=32, tokens=512, prompt=1024, steps=255),
    Mixed(slots=32, tokens=320, prompt=1024, steps=255),
    Mixed(slots=32, tokens=2048, prompt=1024, steps=255),
    Mixed(slots=8, tokens=256, prompt=2048, steps=127),
    Mixed(slots=1, tokens=100, prompt=250, steps=7),
    Mixed(slots=1, tokens=4096, prompt=250, steps=7),
    Mixed(slots=4, tokens=64, prompt=200, steps=400),
    Mixed(slots=20, tokens=30, prompt=50, steps=200),
]


@pytest.mark.parametrize("mixed", DRAWN, ids=str)
def test_steps_have_what_a_scheduler_gives_them_where_one_prompt_is_read_at_a_time(mixed):
    made = at_rest(mixed)
    reading = [step for step in made if step[1]]
    assert mixed.share == pytest.approx(len(reading) / len(made), rel=1e-9)
    assert {decoding for decoding, _ in reading} == {mixed.slots - 1}
    assert {len(pieces) for _, pieces in reading} == {1} == {mixed.reading}
    per_step = sum(decoding + sum(new for new, _ in pieces) for decoding, pieces in made) / len(made)
    assert mixed.due == pytest.approx(per_step, rel=1e-9)
    assert {new for _, ((new, _),) in reading} == {reads.tokens for reads in mixed.reads}
    for reads in mixed.reads:
        behind = [behind for _, ((new, behind),) in reading if new == reads.tokens]
        assert reads.share == pytest.approx(len(behind) / len(made), rel=1e-9)
        assert reads.attended == pytest.approx(sum(behind) / len(behind), rel=1e-9)
        assert reads.most == max(behind)


def drawn(draws, others):
    """What steps may have, drawn: of batches that fill all slots, and of which `others` holds."""
    while True:
        slots, prompt, steps = draws.randint(2, 200), draws.randint(1, 2000), draws.randint(1, 300)
        mixed = Mixed(slots, draws.randint(slots, slots + 4000), prompt, steps)
        if mixed.due <= mixed.tokens and others(mixed):
            yield mixed


def test_as_many_decode_in_the_mean_as_a_scheduler_lets():
    draws = random.Random(7)  # noqa: S311 - no secrets
    for mixed in islice(drawn(draws, lambda mixed: mixed.share == 1), 12):
        made = scheduled(mixed, 3000)
        decoding = sum(decoding for decoding, _ in made) / len(made)
        read = sum(new for _, pieces in made for new, _ in pieces) / len(made)
        assert mixed.slots - mixed.reading == pytest.approx(decoding, rel=0.03), mixed
        assert sum(reads.share for reads in mixed.reads) == pytest.approx(1, rel=1e-12)
        each = sum(reads.share * reads.reading * reads.tokens for reads in mixed.reads)
        assert each == pytest.approx(read, rel=0.03), mixed


def test_steps_read_one_prompt_more_or_less_where_they_read_several():
    mixed = Mixed(slots=45, tokens=4000, prompt=100, steps=29)
    made = at_rest(mixed)
    several = {many: sum(len(pieces) == many for _, pieces in made) / len(made) for many in (1, 2)}
    assert {reads.reading: reads.share for reads in mixed.reads} == pytest.approx(several, rel=1e-9)
    assert mixed.reading == 1.5


def test_where_steps_do_not_keep_up_a_scheduler_leaves_slots_empty():
    mixed = Mixed(slots=32, tokens=64, prompt=1024, steps=255)
    assert mixed.due > mixed.tokens
    assert max(decoding for decoding, _ in scheduled(mixed, 3000)) < mixed.slots - 1


# Seconds ---------------------------------------------------------------------------------------------------------


def run(plan, made):
    """Requests per second, TPOT and the longest step of a scheduler whose steps are priced one by one."""
    question, mixed = plan.question, mixed_of(plan.question)

    @cache
    def seconds(decoding, pieces):
        if not pieces:
            return float(step_s(question, plan.memo))
        many, (new, behind) = len(pieces), (sum(numbers) / len(pieces) for numbers in zip(*pieces, strict=True))
        there = replace(mixed, slots=decoding + many)
        of = replace(question, workload=replace(question.workload, global_batch=decoding + many))
        return mixed_s(kinds_of(of, there, Reads(1, many, new, behind, behind)), plan.memo)

    each = [(decoding, seconds(decoding, pieces)) for decoding, pieces in made]
    decoded, whole = sum(decoding for decoding, _ in each), sum(took for _, took in each)
    tpot = sum(decoding * took for decoding, took in each) / decoded
    return decoded / question.workload.steps / whole, tpot, max(took for _, took in each)


@pytest.mark.parametrize("budget", [320, 512, 2048])
def test_tokens_take_as_long_as_in_a_scheduler_whose_steps_are_priced_one_by_one(budget):
    plan = planned(budget)
    requests, tpot, longest = run(plan, at_rest(mixed_of(plan.question)))
    assert plan.serve.tpot_s == pytest.approx(tpot, rel=1e-9)
    assert plan.serve.requests_per_s == pytest.approx(requests, rel=1e-9)
    assert plan.serve.mixed.longest_s == pytest.approx(longest, rel=1e-9)
    assert plan.serve.served_tokens_per_s_chip == pytest.approx(requests * TYPICAL["output"] / 8, rel=1e-9)


@pytest.mark.parametrize("several", [False, True], ids=["pieces that share steps", "several prompts at once"])
def test_nearly_as_long_where_prompts_share_steps(several):
    """By the mean of all that a step has they came out up to a fifth apart: kernels have tiles, bytes or FLOPs bind."""
    draws = random.Random(3)  # noqa: S311 - no secrets
    for mixed in islice(drawn(draws, lambda mixed: mixed.reading > 1 if several else mixed.pieces % 1), 6):
        asks = {"batch": mixed.slots, "prompt": mixed.prompt, "output": mixed.steps + 1}
        plan = planned(mixed.tokens, **asks)
        requests, tpot, _ = run(plan, scheduled(mixed, 3000))
        assert plan.serve.tpot_s == pytest.approx(tpot, rel=0.04), mixed
        assert plan.serve.requests_per_s == pytest.approx(requests, rel=0.04), mixed


@pytest.mark.parametrize("name", ["dense", "windows", "latents"])
def test_alone_in_its_slot_a_prompt_takes_as_long_as_one_that_is_read_alone(name):
    """Whole in one step, and the last of its pieces behind those that are in the cache."""
    chips = {"mesh": {"tensor": 8}, "model": SPACE[name].get("model", "llama-3-70b"), "hardware": "dgx-h200"}

    def read(**work):
        alone = {"kind": "prefill", "batch": 1, "prompt": 1024, **work}
        return tpsim.plan({**asked(**chips), "workload": alone}).step.time_s

    whole, pieces = planned(4096, batch=1, **chips), planned(384, batch=1, **chips)
    assert whole.serve.ttft_s == pytest.approx(read(), rel=1e-12)
    assert whole.serve.mixed.decoding == 0
    assert whole.serve.tpot_s == whole.step.time_s
    mixed = mixed_of(pieces.question)
    last = mixed_s(kinds_of(pieces.question, mixed, mixed.reads[-1]), pieces.memo)
    assert last == pytest.approx(read(cached=768), rel=1e-12)
    assert mixed.pieces == 3
    assert pieces.serve.ttft_s > whole.serve.ttft_s


SPACE = {
    "dense": {},
    "over data, too": {"mesh": {"data": 2, "tensor": 4}, "layout": {"dp": "data", "tp": "tensor"}},
    "in stages": {"mesh": {"pipe": 2, "tensor": 4}, "layout": {"pp": "pipe", "tp": "tensor"}},
    "cache by sequences": {"layout": {"tp": "tensor", "cache": "batch"}},
    "cache by tokens": {"layout": {"tp": "tensor", "cache": "sequence"}},
    "windows": {"model": "gpt-oss-120b"},
    "products in pieces": {"more": {"practice": {"overlap": {"tensor": "split"}}}},
    "experts": {"model": "qwen3-235b-a22b", "layout": {"tp": "tensor", "ep": "tensor"}},
    "latents": {"model": "deepseek-v3", "mesh": {"data": 4, "tensor": 8}, "layout": {"dp": "data", "tp": "tensor"}},
}
"""What is unlike in how a step is laid out: its parts, and what it sends."""


@pytest.mark.parametrize("name", SPACE)
def test_a_step_of_both_takes_no_less_than_either_and_no_more_than_one_after_the_other(name):
    plan = planned(1024, **SPACE[name])
    question, memo, mixed = plan.question, plan.memo, mixed_of(plan.question)
    for reads in mixed.reads:
        kinds = kinds_of(question, mixed, reads)
        both, read, decoded = mixed_s(kinds, memo), step_s(kinds.pieces, memo), step_s(kinds.replies, memo)
        assert max(read, decoded) < both < read + decoded


def parts(question, memo):
    """Seconds of kernels and collectives that are apart, and of all others, of a step in one stage."""
    plan = priced(question, memo)
    asks = question.machine, question.products, question.matmul_efficiency
    kernels = [(one.where, one.count(plan.sizes) * kernel_s(one, plan.sizes, *asks)) for one in plan.lowered.kernels]
    both = dict.fromkeys((True, False), 0.0)
    for where, seconds in (*kernels, *((row.call.where, row.exposed_s) for row in plan.rows)):
        both[where.apart] += float(seconds)
    assert sum(both.values()) == pytest.approx(plan.step.time_s, rel=1e-9)
    return both


@pytest.mark.parametrize("name", [name for name in SPACE if name not in ("in stages", "products in pieces")])
def test_a_step_of_both_is_what_all_tokens_share_and_attention_of_each_kind_kernel_by_kernel(name):
    plan = planned(1024, **SPACE[name])
    mixed = mixed_of(plan.question)
    for reads in mixed.reads:
        kinds = kinds_of(plan.question, mixed, reads)
        shared, read, decoded = (parts(question, plan.memo) for question in kinds)
        whole = shared[False] + read[True] + decoded[True]
        assert min(shared[False], read[True], decoded[True]) > 0
        assert mixed_s(kinds, plan.memo) == pytest.approx(whole, rel=1e-9)


def test_all_sequences_are_in_a_step_with_their_tokens_and_none_of_it_is_launched_from_a_graph():
    plan = planned(1024, layout={"tp": "tensor", "cache": "batch"})
    mixed = mixed_of(plan.question)
    assert mixed == Mixed(slots=4, tokens=128, prompt=1024, steps=255), "each chip has sequences of its own"
    kinds = kinds_of(plan.question, mixed, mixed.reads[0])
    whole, read, decoded = (question.workload for question in kinds)
    assert (whole.global_batch, read.global_batch, decoded.global_batch) == (32, 8, 24)
    assert whole.global_batch * whole.seq == pytest.approx(8 * 125 + 24, rel=1e-12)
    assert plan.question.force.launch == "graph"
    assert {question.force.launch for question in kinds} == {None}


def test_attention_of_a_stack_in_stages_takes_as_long_as_that_of_one_in_one_piece():
    staged = planned(mesh={"pipe": 2, "tensor": 4}, layout={"pp": "pipe", "tp": "tensor"})
    whole = planned(mesh={"tensor": 4})
    assert apart_s(staged.question, staged.memo) == pytest.approx(apart_s(whole.question, whole.memo), rel=1e-12)
    assert staged.serve.mixed.step_s > whole.serve.mixed.step_s


FAST = {
    "extends": "dgx-h100",
    "chip": {"peak": {"bf16": "1e20 FLOP/s"}, "memory_efficiency": 1, "kernel_pause": None, "tile": None},
}
"""Chips that only bytes keep busy."""


def test_where_bytes_bind_a_step_of_both_reads_weights_once_and_each_cache_as_far_as_it_is_attended_to():
    """By hand: of Llama-3-8B on one chip, 31 replies at 1,152 tokens and the second half of a prompt of 1,024."""
    plan = planned(512 + 31, model="llama-3-8b", hardware=FAST, mesh={"tensor": 1}, layout={"tp": "tensor"})
    mixed = mixed_of(plan.question)
    (reads,) = mixed.reads
    last = reads._replace(attended=1024)
    assert (reads.tokens, reads.attended) == (512, 768)
    weights = 2 * (8_030_261_248 - 128_256 * 4096)  # all but the embedding's table
    cache = 2 * 2 * 32 * 8 * 128 * (31 * 1152 + 1024)
    rows, h, f, kv, v = 31 + 512, 4096, 14336, 1024, 128_256
    normed = 2 * (2 * h)  # each norm reads and writes a row
    block = 2 * (h + (h + 2 * kv)) + 2 * 2 * (h + kv) + 2 * 2 * kv + 2 * 2 * h + 2 * (h + h) + 2 * (2 * h + h)
    mlp = 2 * (h + 2 * f) + 2 * (2 * f + f) + 2 * (f + h) + 2 * (2 * h + h)
    due = weights + cache + rows * 32 * (2 * normed + block + mlp) + 32 * 2 * 2 * v
    took = mixed_s(kinds_of(plan.question, mixed, last), plan.memo)
    assert took * 3.35e12 == pytest.approx(due, rel=0.02)


def test_more_tokens_a_step_bring_a_first_token_sooner_and_hold_up_all_others():
    plans = [planned(budget) for budget in (320, 512, 1024, 2048)]
    for less, more in pairwise(plans):
        assert more.serve.ttft_s <= less.serve.ttft_s
        assert more.serve.tpot_s >= less.serve.tpot_s
        assert more.serve.mixed.longest_s >= less.serve.mixed.longest_s
        assert more.memory.peak_bytes >= less.memory.peak_bytes


def test_what_heads_read_of_latents_is_held_for_whole_prompts():
    """Keys and values of every head are made of all that a piece attends to, the last one of all of a prompt."""
    short, long = (planned(512, prompt=prompt, **SPACE["latents"]) for prompt in (8192, 16384))
    assert long.memory.working_bytes == pytest.approx(2 * short.memory.working_bytes, rel=0.1)


def test_in_every_slot_is_a_sequence_for_all_of_its_time():
    plan = planned()
    serve, mixed = plan.serve, plan.serve.mixed
    mean = mixed.share * mixed.step_s + (1 - mixed.share) * mixed.decode_s
    begun = mixed_of(plan.question).begun
    assert serve.requests_per_s == pytest.approx(begun / mean, rel=1e-12)
    assert serve.reply_s == pytest.approx(serve.ttft_s + 255 * serve.tpot_s, rel=1e-12)
    assert serve.prompts_share is None


# Memory ----------------------------------------------------------------------------------------------------------


def test_memory_has_arrays_of_a_step_and_not_of_all_prompts():
    turns, pieces = tpsim.plan(asked()), planned(512)
    assert turns.memory.working_bytes == pytest.approx(32 * 1024 / 512 * pieces.memory.working_bytes, rel=0.01)
    assert pieces.memory.cache_bytes == turns.memory.cache_bytes


def test_the_largest_batch_is_one_that_steps_keep_up_with():
    most = planned(512).serve.largest_batch
    assert planned(512, batch=most).question.workload.global_batch == most
    assert planned(512, batch="largest").question.workload.global_batch == most
    with pytest.raises(InputError) as caught:
        planned(512, batch=most + 1)
    assert caught.value.problems[0].slug == "too-few-step-tokens"
    assert planned(100_000).serve.largest_batch > 1000, "where memory is what is full"


# What is refused, and said ---------------------------------------------------------------------------------------


def test_steps_that_do_not_keep_up_are_refused_with_tokens_that_do():
    with pytest.raises(InputError) as caught:
        planned(64)
    (problem,) = caught.value.problems
    assert problem.slug == "too-few-step-tokens"
    assert problem.remedy == "write at least 160, or a batch of at most 13"
    assert planned(64, batch=13).serve.mixed.share > 0.9
    assert planned(160).serve.mixed.share > 0


REFUSED = {
    "speculation": ({"speculation": {"tokens": 2, "acceptance": 0.5}}, {}),
    "microbatches": ({"microbatches": 2}, {"mesh": {"pipe": 2, "tensor": 4}, "layout": {"pp": "pipe", "tp": "tensor"}}),
    "prefill": ({}, {"more": {"prefill": {"mesh": {"tensor": 8}, "layout": {"tp": "tensor"}}}}),
    "kernel_launch": ({}, {"more": {"assume": {"kernel_launch": "5 us"}}}),
    "planner": ({}, {"more": {"planner": "cheapest"}}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_such_steps_are_not_planned_with_is_refused_by_name(name):
    work, others = REFUSED[name]
    with pytest.raises(InputError) as caught:
        planned(**work, **others)
    (problem,) = caught.value.problems
    assert problem.slug == "not-supported-yet"
    assert name in problem.message
    assert "workload.step_tokens" in problem.message


def test_pieces_of_a_prompt_attend_to_a_prefix_that_is_cached_and_do_not_read_it():
    """Alone in its slot a prompt takes as long as the rest of one that is read alone."""
    plan = planned(4096, batch=1, prompt=4096, cached=3072)
    alone = {"kind": "prefill", "batch": 1, "prompt": 4096, "cached": 3072}
    assert plan.serve.ttft_s == pytest.approx(tpsim.plan({**asked(), "workload": alone}).step.time_s, rel=1e-12)
    mixed = mixed_of(planned(512, prompt=4096, cached=3072).question)
    fresh = mixed_of(planned(512, prompt=1024).question)
    assert mixed == replace(fresh, cached=3072)
    assert [reads.attended for reads in mixed.reads] == [reads.attended + 3072 for reads in fresh.reads]
    assert [reads.most for reads in mixed.reads] == [reads.most + 3072 for reads in fresh.reads]


def test_a_reply_of_one_token_has_nothing_to_decode():
    with pytest.raises(InputError) as caught:
        planned(output=1)
    assert caught.value.problems[0].slug == "nothing-to-decode"


@pytest.mark.parametrize("foreign", ["max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens"])
def test_names_of_servers_lead_to_the_field(foreign):
    with pytest.raises(InputError) as caught:
        tpsim.plan(asked(**{foreign: 2048}))
    assert "workload.step_tokens" in caught.value.problems[0].remedy


def test_every_number_of_it_is_explained_by_its_value():
    plan = planned()
    told = plan.serve.mixed
    assert {name for name in names_in(plan) if name.startswith("serve.mixed.")} == {f"serve.mixed.{x}" for x in NOUNS}
    assert {*NOUNS} | {"step_tokens"} == {*told}
    for name in NOUNS:
        (derivation,) = explain(f"serve.mixed.{name}", asked(step_tokens=512)).derivations
        assert derivation.value == pytest.approx(getattr(told, name), rel=1e-12)
    (tpot,) = explain("serve.tpot_s", asked(step_tokens=512)).derivations
    assert "prompts" in tpot.what


def test_a_plan_says_how_prompts_are_read():
    plan = planned()
    (line,) = [line.text for line in plan.lines if line.label == "servers"]
    assert line.startswith("pieces of up to 481 tokens of prompts in 37.2 % of steps, ")
    notes = " ".join(page(plan, verbose=False).notes)
    assert "a prompt in 3 steps of " in notes
    assert "in turn" not in notes
    assert not any("step_tokens" in text for text in plan.not_modelled)
    assert any("step_tokens" in text for text in tpsim.plan(asked()).not_modelled)
    told = json.loads(json.dumps(plan.to_json()))["result"]["serve"]["mixed"]
    assert told["piece_tokens"] == 481
    assert tpsim.plan(asked()).to_json()["result"]["serve"].get("mixed") is None


def test_a_search_finds_the_tokens_of_a_step_as_plans_have_them():
    found = tpsim.search(
        asked(step_tokens=512), vary=["workload.step_tokens=64,256,1024"], by="served_tokens_per_s_chip"
    )
    for row in found.rows:
        assert row.served_tokens_per_s_chip == row.planned.plan.serve.served_tokens_per_s_chip
    budgets = [row.planned.question.inference.budget for row in found.rows]
    best = max((256, 1024), key=lambda budget: planned(budget).serve.served_tokens_per_s_chip)
    assert budgets[0] == best
    assert 64 not in budgets
    for row in found.rows:
        outcome = row.planned.outcome
        assert sum(outcome.parts.values()) == pytest.approx(outcome.step_s, rel=1e-9)
    assert any("too-few-step-tokens" in str(slug) for slug in found.refused)


def test_a_search_looks_at_no_parts_of_a_batch_beside_it():
    found = tpsim.search(asked(step_tokens=512), chips=8)
    assert found.best.planned.question.inference.budget == 512
    assert not any("not-supported-yet" in str(slug) for slug in found.refused)


def test_a_scenario_of_it_is_verified_as_one_of_its_steps_is():
    scenario = asked(step_tokens=512, layout={"tp": "tensor", "cache": "batch"})
    assert verify(scenario).ok
    assert priced(shrink(resolve(scenario))).serve.mixed is None
