"""What inference comes to, through `tpsim.plan`: published and worked examples, and laws that hold for all of them."""

from __future__ import annotations

import json

import pytest

import tpsim
from tpsim.answers.changes import LEAST
from tpsim.answers.explain import explain_list
from tpsim.answers.verdict import percent
from tpsim.cost.compute import kernel_s
from tpsim.cost.memory import local_bytes
from tpsim.pages.plan import page
from tpsim.program.dims import BUSY
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show

DATASHEET = {"extends": "dgx-h100", "chip": {"memory_efficiency": 1}}
"""A DGX of H100 whose memory is as fast as its datasheet says: 3.35 TB/s."""


def served(model="llama-3-70b", hw="dgx-h100", tp=8, overrides=(), **workload):
    """The plan of a step on `tp` chips; of decoding unless `workload` says otherwise."""
    scenario = {
        "tpsim": "scenario/1",
        "name": "served",
        "model": model,
        "hardware": hw,
        "mesh": {"tensor": tp},
        "layout": {"tp": "tensor"},
        "workload": {"kind": "decode", **workload},
    }
    return tpsim.plan(scenario, overrides=overrides)


def attention(heads, kv_heads, head_dim, layers):
    """A model with this attention: nothing else decides what its cache takes."""
    fields = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "layers": layers, "params": None}
    return {"extends": "llama-3-8b", **fields}


CACHES = {
    "Llama-3-8B and Mixtral-8x7B": (attention(32, 8, 128, 32), 131_072),
    "Llama-3.1-405B": (attention(128, 8, 128, 126), 516_096),
    "Mixtral-8x22B": (attention(48, 8, 128, 56), 229_376),
    "Qwen3-8B": (attention(32, 8, 128, 36), 147_456),
    "Qwen3-32B": (attention(64, 8, 128, 64), 262_144),
    "Qwen3-235B-A22B": (attention(64, 4, 128, 94), 192_512),
    "Qwen3-30B-A3B": (attention(32, 4, 128, 48), 98_304),
    "gpt-oss-120b, windows not counted": (attention(64, 8, 64, 36), 73_728),
    "Llama-4-Scout": (attention(40, 8, 128, 48), 196_608),
    "Phi-3-mini": (attention(32, 32, 96, 32), 393_216),
    "Gemma-2-27B, windows not counted": (attention(32, 16, 128, 46), 376_832),
    "Gemma-3-27B, windows not counted": (attention(32, 16, 128, 62), 507_904),
    "Falcon-7B": (attention(71, 1, 64, 32), 8_192),
    "Falcon-40B": (attention(128, 8, 64, 60), 122_880),
    "BLOOM-176B": (attention(112, 112, 128, 70), 4_014_080),
    "OPT-175B and GPT-3": (attention(96, 96, 128, 96), 4_718_592),
}
"""Published shapes (their config.json) -> bytes of the cache per token: 2 x layers x kv heads x head dim, in bf16."""


@pytest.mark.parametrize(("model", "due"), CACHES.values(), ids=CACHES)
def test_a_token_takes_as_much_of_the_cache_as_published_shapes_say(model, due):
    plan = served(model, tp=1, context=8)
    assert plan.serve.cache_bytes_per_token == due
    assert plan.memory.cache_bytes == 8 * due


CONFIGS = "tests/data/hf"
WINDOWS = {
    "Gemma-3-27B": (f"{CONFIGS}/gemma-3-27b.json", 131_072, 11_173_625_856, 0.168),
    "Gemma-2-27B": (f"{CONFIGS}/gemma-2-27b.json", 8_192, 2_315_255_808, 0.75),
    "gpt-oss-120b": (f"{CONFIGS}/gpt-oss-120b.json", 131_072, 4_836_556_800, 0.5005),
    "Llama-4-Maverick": (f"{CONFIGS}/llama-4-maverick.json", 1_048_576, 52_747_567_104, 0.2559),
}
"""Published configs -> tokens, bytes of a sequence's cache, and their share of what it were without windows."""


@pytest.mark.parametrize(("config", "tokens", "due", "share"), WINDOWS.values(), ids=WINDOWS)
def test_the_cache_of_a_window_holds_what_it_reads_and_no_more(config, tokens, due, share):
    """10 of 62 layers of Gemma 3 read all tokens, the others 1,024; of the others half, or a quarter, read all."""
    plan = served(config, tp=1, context=tokens)
    assert plan.memory.cache_bytes == due
    kinds = plan.question.model.stack
    reads_all = sum(layers for kind, layers in kinds if not plan.question.model.kinds[kind].attention.window)
    whole = plan.serve.cache_bytes_per_token * tokens * plan.question.model.layers // reads_all
    assert due / whole == pytest.approx(share, rel=2e-3)


def test_short_contexts_fill_no_window_and_new_tokens_are_held_beside_it():
    """Of 18 layers with a window of 128 tokens and 18 that read all: 2,048 bytes a token and layer."""
    sizes = {tokens: served("gpt-oss-120b", tp=1, **work).memory.cache_bytes for tokens, work in WORKS.items()}
    assert sizes == {64: 36 * 64 * 2048, 130: 18 * (130 + 128) * 2048, 1000: 18 * (1000 + 131) * 2048}


WORKS = {64: {"context": 64}, 130: {"context": 130}, 1000: {"context": 1000, "tokens": 4}}

LATENT = """\
tpsim: model/2
name: deepseek-v3-without-experts
source: {title: config.json of DeepSeek-V3, read: 2026-11-21}
hidden: 7168
vocab: 129280
blocks:
  latent: {attention: mla, heads: 128, query_rank: 1536, kv_rank: 512, nope: 128, rope: 64, value: 128}
  dense: {ffn: mlp, kind: swiglu, hidden: 18432}
layers:
  - {repeat: 61, of: [latent, dense]}
"""


@pytest.fixture(scope="module")
def latents(tmp_path_factory):
    """Decoding with the attention of DeepSeek-V3, which keeps latents: 512 + 64 numbers a token and layer."""
    path = tmp_path_factory.mktemp("models") / "latent.yaml"
    path.write_text(LATENT, encoding="utf-8")
    return served(str(path), batch=8, context=4096)


def test_deepseek_v3_decodes_with_two_experts_a_chip_and_everything_else_on_all():
    """Its parameters at one byte: 17,117,648,384 on every chip, and 2 x 58 experts of 44,040,192."""
    sizes = ["workload.param_dtype=int8", "workload.vocab_dtype=int8", "workload.context=4989"]
    plan = tpsim.plan("deepseek-v3-h100-decode", overrides=sizes)
    assert plan.memory.parameters_bytes == 17_117_648_384 + 58 * 2 * 44_040_192 == 22_226_310_656
    assert plan.serve.cache_bytes_per_token == 70_272
    assert plan.memory.cache_bytes == 128 * 4989 * 70_272
    assert {row.collective for row in plan.rows} == {"all_to_all"}


@pytest.mark.parametrize(
    ("config", "due"), [("deepseek-v2", 69_120), ("deepseek-v2-lite", 31_104), ("kimi-k2", 70_272)]
)
def test_a_latent_and_its_rotated_key_are_all_that_is_kept_of_a_token(config, due):
    """576 numbers a layer, in bf16; of DeepSeek-V3's heads, which 320 numbers have each, 71 times as much."""
    assert served(f"{CONFIGS}/{config}.json", tp=1, context=8).serve.cache_bytes_per_token == due
    heads = served(attention(128, 128, 160, 61), tp=1, context=8).serve.cache_bytes_per_token
    assert heads == 4_997_120 == pytest.approx(71.1 * 70_272, rel=1e-3)


def test_latents_take_70_kb_a_token_and_are_copied_where_heads_are_split(latents):
    assert latents.serve.cache_bytes_per_token == 61 * 576 * 2 == 70_272
    assert latents.serve.copies == 8
    split = served(latents.question.stated.file.model, batch=8, context=4096, overrides=["layout.cache=sequence"])
    assert split.serve.copies == 1
    assert split.memory.cache_bytes * 8 == latents.memory.cache_bytes


def test_absorbed_attention_over_latents_does_more_work_on_fewer_bytes(latents):
    """Per query and cached token 2 x 128 x (576 + 512) FLOPs of 1,152 bytes: 241.8 FLOPs a byte."""
    (one,) = (kernel for kernel in latents.lowered.kernels if kernel.where.kernel == "attention")
    pairs = 8 * 4096
    flops = one.flops(latents.sizes) * 8 / pairs  # heads lie on 8 chips
    cached = sum(local_bytes(x, latents.sizes) for x in one.reads if x.role == "cache") / pairs
    assert (flops, cached) == (278_528, 1_152)
    assert flops / cached == pytest.approx(241.8, rel=1e-3)


def test_decoding_over_latents_takes_what_flashmla_publishes_for_128_heads():
    """FlashMLA's deep dive: 2 x heads x keys x (576 + 512) FLOPs of a token, at up to 660 TFLOP/s on H800."""
    steps = [served("deepseek-v3", DATASHEET, tp=1, batch=64, context=tokens).step for tokens in (4096, 8192)]
    due = 61 * 64 * 2 * 128 * 4096 * (576 + 512) / 660e12
    assert steps[1].compute_s - steps[0].compute_s == pytest.approx(due, rel=1e-3)


def test_a_prompt_makes_every_head_of_latents_and_works_a_third_as_much_on_each_pair():
    """2 x 128 x (192 + 128) FLOPs per query and key: 3.4 times less than absorbed, on heads of 40,960 numbers."""
    plan = served("deepseek-v3", tp=1, kind="prefill", prompt=4096)
    one = next(kernel for kernel in plan.lowered.kernels if kernel.where.kernel == "attention")
    assert one.flops(plan.sizes) / 4096**2 == 81_920 == pytest.approx(278_528 / 3.4)


def test_a_prompt_behind_cached_latents_makes_every_head_of_them_as_well():
    """vLLM's MLA (mla/common.py): of prompts the way with the fewest FLOPs, of decoding that with the fewest bytes."""
    plan = served("deepseek-v3", tp=1, kind="prefill", prompt=4096, cached=3072)
    kernels = {op.output.name: kernel for kernel in plan.lowered.kernels for op in kernel.ops}
    assert kernels["attention.mixed"].flops(plan.sizes) / (1024 * 4096) == 81_920
    for name in ("attention.k", "attention.v"):
        assert kernels[name].flops(plan.sizes) == 2 * 4096 * 512 * 128 * 128
    assert "attention.absorbed" not in kernels


@pytest.mark.parametrize("by", ["batch", "sequence"])
def test_cached_latents_that_chips_share_come_to_the_heads_of_a_prompt(by):
    """In place of queries, keys and values of heads: 512 and 64 numbers of each of the 8 x 4,096 tokens."""
    asked = {"kind": "prefill", "batch": 8, "prompt": 4096, "cached": 3072, "overrides": [f"layout.cache={by}"]}
    rows = [row for row in served("deepseek-v3", **asked).rows if row.block == "attention"]
    brought = {row.array: row.logical_bytes for row in rows if row.collective == "all_gather"}
    assert brought == {"attention.cache.C": 2 * 8 * 4096 * 512, "attention.cache.R": 2 * 8 * 4096 * 64}


@pytest.mark.parametrize("prompt", [2048, 32_768])
def test_tokens_that_are_cached_already_make_no_prompt_slower(prompt):
    """Nor do more of them; of a token or two it takes longer to bring what is cached side by side."""
    asked = {"hw": "dgx-b200", "kind": "prefill", "batch": 2, "prompt": prompt}
    steps = [served("deepseek-v3", **asked, cached=cached).step.time_s for cached in (0, 64, 128, prompt // 2)]
    assert steps == sorted(steps, reverse=True)


def test_32_experts_more_lie_nine_to_a_chip_of_32():
    """DeepSeek-V3 with 288 experts over 32 chips at one byte: 58 x 9 of 44,040,192 beside what all chips have."""
    sparse = "{ffn: moe, experts: 288, top: 8, hidden: 2048, shared: 2048, score: sigmoid, choice_bias: true}"
    latent = "{attention: mla, heads: 128, query_rank: 1536, kv_rank: 512, nope: 128, rope: 64, value: 128}"
    blocks = f"blocks: {{latent: {latent}, sparse: {sparse}, dense: {{ffn: mlp, kind: swiglu, hidden: 18432}}}}"
    wider = [f"model={{extends: deepseek-v3, {blocks}, params: null, active: null}}"]
    asked = [*wider, "mesh={data: 32}", "workload.batch=1024", "workload.param_dtype=int8", "workload.vocab_dtype=int8"]
    held = tpsim.plan("deepseek-v3-h100-decode", overrides=asked).memory.parameters_bytes
    routers = 58 * 32 * (7168 + 1)  # those score 32 more
    assert held - routers == 17_117_648_384 + 22_988_980_224


@pytest.fixture(scope="module")
def llama():
    """Llama-3 70B on eight H100, 32 sequences of 4,096 tokens."""
    return served(batch=32, context=4096, hw=DATASHEET)


def test_a_step_of_llama_70b_on_eight_h100_reads_its_weights_and_its_cache(llama):
    assert llama.memory.parameters_bytes / 3.35e12 == pytest.approx(5.265e-3, rel=1e-3)
    assert 8 * llama.memory.cache_bytes == 42_949_672_960
    assert llama.memory.cache_bytes / 3.35e12 == pytest.approx(1.603e-3, rel=1e-3)
    assert llama.serve.cache_bytes_per_token == 327_680
    read_s = (llama.memory.parameters_bytes + llama.memory.cache_bytes) / 3.35e12
    pauses_s = 80 * 14 * 2e-6  # the profile's 2 us behind each of 14 kernels a layer
    assert llama.step.compute_s == pytest.approx(read_s + pauses_s, rel=0.02)
    assert llama.serve.bytes_bound_share == pytest.approx(read_s / llama.step.compute_s, rel=0.03)
    assert llama.serve.pauses_share == pytest.approx(pauses_s / llama.step.compute_s, rel=0.02)


def test_a_step_of_short_kernels_is_bound_by_the_pauses_between_them():
    """No faster memory shortens these: of 8B over eight chips, 2.0 GB each, they were said to be reading."""
    small = served(model="llama-3-8b", batch=1, context=1024, hw=DATASHEET)
    pauses_s, read_s = 32 * 14 * 2e-6, small.memory.parameters_bytes / 3.35e12
    assert pauses_s > read_s
    assert small.serve.pauses_share == pytest.approx(pauses_s / small.step.compute_s, rel=0.02)
    share = small.serve.pauses_share * small.step.compute_s / small.step.time_s
    assert f"bound by pauses between kernels ({percent(share)})" in small.verdict


def test_pauses_are_those_of_the_stage_that_the_step_hangs_on():
    """Of four the last: 8 layers of 14 kernels, a norm and the head; no embedding, which is on the first."""
    stages = ["mesh={pipe: 4, tensor: 2}", "layout={tp: tensor, pp: pipe}"]
    plan = served("llama-3-8b", batch=4, context=512, overrides=stages)
    assert plan.serve.pauses_share == pytest.approx((8 * 14 + 2) * 2e-6 / plan.step.compute_s)


def test_a_prompt_s_rate_has_its_unit():
    prompt = served(kind="prefill", batch=1, prompt=512)
    assert f"; {512 / prompt.step.time_s / 8:,.0f} tokens/s per chip; largest batch" in prompt.verdict


def test_160_small_all_reduces_a_token_take_the_floor_of_their_protocol(llama):
    layers = [row for row in llama.rows if row.layer is not None]
    assert [(row.array, row.count, row.logical_bytes) for row in layers] == [
        ("attention.out", 80, 524_288),
        ("mlp.out", 80, 524_288),
    ]
    assert {row.wire_bytes_per_device for row in layers} == {917_504}
    (one, _) = served(batch=1, context=4096).rows[1:3]
    assert one.logical_bytes == 16_384
    assert 10e-6 < one.time_s < 25e-6  # 15 to 20 us as measured; 0.04 us at the links' speed


def test_decoding_is_launched_from_a_graph_and_a_prompt_by_the_default_harness():
    said = [one.text for one in served(context=8).assumptions]
    assert "collectives are launched by graph, as a step of decoding is" in said
    slow = served(context=8, overrides=["collectives.launch=framework"])
    assert slow.rows[1].time_s - served(context=8).rows[1].time_s == pytest.approx(22e-6)  # as the profile has it
    prompt = served(kind="prefill", prompt=8)
    assert prompt.question.force.launch is None
    assert "collectives.launch" in prompt.question.left_open


def test_a_prompt_of_8192_tokens_sends_and_computes_what_was_worked_out():
    plan = served(kind="prefill", prompt=8192, batch=1)
    layers = [row for row in plan.rows if row.layer is not None]
    assert {(row.logical_bytes, row.wire_bytes_per_device) for row in layers} == {(134_217_728, 234_881_024)}
    sent = sum(row.wire_bytes_per_device * row.count for row in layers)
    assert sent == 160 * 234_881_024
    assert sent / 450e9 == pytest.approx(83.5e-3, rel=1e-3)
    table = 2 * 128_256 * 8192 * 8192  # of the embedding, which is looked up, and of the head but for one token
    scores = 4 * 8192 * 8192 * 8192 * 80
    assert plan.compute.useful_flops == pytest.approx(1.156e15 - 2 * table + scores, rel=2e-3)
    assert plan.serve.tpot_s is None
    assert plan.serve.ttft_s == plan.step.time_s


HIDDEN, WIDE, TOP, SCORED = 4096, 14_336, 2, 8
"""Of Mixtral-8x7B; Llama-3-8B has one MLP as wide."""


@pytest.mark.parametrize(
    ("model", "mlps", "beside"), [("llama-3-8b", 1, 0), ("mixtral-8x7b", TOP, 2 * TOP + 2 * SCORED)]
)
def test_what_a_gated_activation_reads_is_there_until_it_has_written(model, mlps, beside):
    """Per token the stream, of each MLP its activation's inputs and output, and of experts gates and scores."""
    plan = served(model, tp=1, kind="prefill", batch=4, prompt=4096)
    assert plan.memory.working_bytes == 4 * 4096 * (2 * HIDDEN + mlps * 3 * 2 * WIDE + beside)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_last_token_is_taken_out_of_a_prompt_and_no_other_is_read_for_it(sequence_parallel):
    """4 prompts of 2,048 tokens: 4 rows of 8,192 numbers are read and written."""
    split = [f"layout.sequence_parallel={sequence_parallel}"]
    plan = served(kind="prefill", batch=4, prompt=2048, overrides=split)
    (taken,) = (one for one in plan.lowered.kernels if {x.name for x in one.writes} == {"head.last"})
    assert taken.memory_bytes(plan.sizes) == 2 * 4 * 8192 * 2


def test_scores_that_no_kernel_keeps_to_itself_take_memory_while_they_are_there():
    """Plain attention of 8 prompts of 4,096 tokens: 16 heads of a chip have scores of 4 bytes each."""
    fused, plain = (
        served("llama-3-8b", tp=2, kind="prefill", batch=8, prompt=4096, overrides=[f"practice.attention={one}"])
        for one in ("fused", "plain")
    )
    scores = 8 * 16 * 4096**2 * 4
    assert fused.memory.working_bytes < scores
    assert scores < plain.memory.working_bytes < 1.2 * scores
    assert 2 * plain.serve.largest_batch < fused.serve.largest_batch


def test_a_cache_split_by_tokens_pays_a_max_a_sum_and_a_weighted_sum():
    plan = served(batch=32, context=4096, overrides=["layout.cache=sequence"])
    volumes = {row.array.removeprefix("attention."): row.logical_bytes for row in plan.rows if row.block == "attention"}
    assert volumes["q"] == 524_288
    softmax = [volumes[name] for name in ("max", "sum_exp", "mixed")]
    assert softmax == [8_192, 8_192, 1_048_576]
    assert sum(softmax) == 1_064_960  # what one packed call would carry


def test_a_reply_takes_its_prompt_which_gives_a_token_and_a_step_for_each_further_one():
    reply = served(kind="serve", batch=4, prompt=64, output=9)
    assert reply.serve.ttft_s == served(kind="prefill", batch=4, prompt=64).step.time_s
    each = [served(batch=4, context=64 + token).step.time_s for token in range(1, 9)]
    assert reply.serve.tpot_s == pytest.approx(sum(each) / 8, rel=1e-12)
    assert reply.serve.reply_s == pytest.approx(reply.serve.ttft_s + sum(each), rel=1e-12)
    assert reply.memory.cache_bytes == served(batch=4, context=73).memory.cache_bytes
    assert reply.serve.tokens_per_s_user == pytest.approx(1 / reply.serve.tpot_s)
    assert reply.serve.tokens_per_s_chip == pytest.approx(4 / reply.serve.tpot_s / 8)
    alone = served(kind="serve", batch=4, prompt=64, output=1)
    assert alone.serve.reply_s == alone.serve.ttft_s == reply.serve.ttft_s


def test_servers_that_do_both_take_prompts_and_replies_in_turn():
    """By hand: 4 prompts of 64 in one step, 8 steps behind it; 36 tokens on 8 chips."""
    reply = served(kind="serve", batch=4, prompt=64, output=9)
    cycle_s = served(kind="prefill", batch=4, prompt=64).step.time_s + 8 * reply.step.time_s
    assert reply.serve.requests_per_s == pytest.approx(4 / cycle_s, rel=1e-12)
    assert reply.serve.prompts_share == pytest.approx(reply.serve.ttft_s / cycle_s, rel=1e-12)
    assert reply.serve.served_tokens_per_s_chip == pytest.approx(36 / cycle_s / 8, rel=1e-12)
    line = reply.lines[2]
    said = f"prompts {percent(reply.serve.prompts_share)} of the time: {4 / cycle_s:.3g} requests/s"
    assert (line.label, line.text) == (
        "servers",
        f"prompts and replies in turn, {said}; {36 / cycle_s / 8:,.0f} tokens/s per chip of all",
    )
    alone = served(kind="serve", batch=4, prompt=64, output=1).serve
    assert (alone.prompts_share, alone.served_tokens_per_s_chip) == (1, 4 / alone.ttft_s / 8)
    step = served(batch=4, context=64).serve
    assert step.requests_per_s is step.prompts_share is step.served_tokens_per_s_chip is None


def test_a_million_tokens_of_replies_cost_what_their_prompts_take_too():
    price = ["assume.price_per_chip_hour=2"]
    reply = served(kind="serve", batch=4, prompt=1024, output=16, overrides=price)
    each = 8 * reply.serve.reply_s / 3600 * 2 / (4 * 16)
    assert reply.run.price_per_million_tokens == pytest.approx(1e6 * each)
    assert reply.run.text.endswith(" per million tokens of replies with their prompts at 2 a chip hour")
    step = served(batch=4, context=1024, overrides=price)
    assert step.run.price_per_million_tokens == pytest.approx(1e6 * 8 * step.step.time_s / 3600 * 2 / 4)


@pytest.mark.parametrize("attention", ["fused", "plain"])
@pytest.mark.parametrize(
    ("model", "hw", "work"),
    [
        ("gpt-oss-120b", "dgx-h100", {"prompt": 110, "output": 40}),
        (f"{CONFIGS}/llama-4-scout.json", "dgx-h200", {"prompt": 8185, "output": 12}),
    ],
)
def test_steps_behind_a_prompt_read_of_windows_and_chunks_what_each_of_them_has(model, hw, work, attention):
    """Windows of 128 tokens fill up on the way; behind 8,192 tokens a new chunk begins, of which little is there."""
    asked = {"model": model, "hw": hw, "batch": 64, "overrides": [f"practice.attention={attention}"]}
    reply = served(**asked, kind="serve", **work)
    contexts = range(work["prompt"] + 1, work["prompt"] + work["output"])
    each = [served(**asked, context=tokens).step.time_s for tokens in contexts]
    assert reply.serve.tpot_s == pytest.approx(sum(each) / len(each), rel=1e-9)


def test_a_new_chunk_reads_its_own_tokens_alone():
    """Of Llama 4 Scout 36 of 48 layers have chunks of 8,192 tokens: 4,096 bytes a token and layer, over 8 chips."""
    full, first = (
        served(f"{CONFIGS}/llama-4-scout.json", "dgx-h200", batch=64, context=tokens, overrides=["layout.ep=tensor"])
        for tokens in (8192, 8193)
    )
    fewer = 64 * (36 * 8191 - 12) * 4096 / 8
    bandwidth = full.question.machine.chip.memory.bandwidth.value * full.question.machine.chip.memory_efficiency.value
    assert full.step.compute_s - first.step.compute_s == pytest.approx(fewer / bandwidth, rel=1e-3)
    assert first.memory.cache_bytes > full.memory.cache_bytes  # where the old ones stood there is still room


BOTH = """\
tpsim: model/2
name: both
source: {title: made up, read: 2026-11-23}
hidden: 4096
vocab: 32000
blocks:
  window: {attention: gqa, heads: 32, kv_heads: 8, head_dim: 128, mask: window, window: 4096}
  chunk: {attention: gqa, heads: 32, kv_heads: 8, head_dim: 128, mask: chunk, window: 4096}
  mlp: {ffn: mlp, kind: swiglu, hidden: 14336}
layers:
  - {repeat: 4, cycle: [[window, mlp], [chunk, mlp]]}
"""


def test_a_window_and_a_chunk_of_one_model_are_read_each_as_it_is(tmp_path):
    """Where all that is held is computed their kernels have one shape; a chunk that begins takes its products' time."""
    (path := tmp_path / "both.yaml").write_text(BOTH, encoding="utf-8")
    full, first = (
        served(str(path), tp=1, batch=16, context=tokens, overrides=["practice.causal=whole"]).step.compute_s
        for tokens in (4096, 4097)
    )
    read, products = 16 * 4096 * 4096 / (3.35e12 * 0.731), 16 * 32 * 4096 * 128 * 4 / (989e12 * 0.16)
    assert full - first == pytest.approx(4 * (read - products), rel=5e-3)


def test_a_step_reads_the_experts_that_have_rows_and_no_others():
    """Of gpt-oss-120b 4 of 128 experts for a sequence: each layer reads as many more for each of the first 32."""
    steps = {batch: served("gpt-oss-120b", tp=1, batch=batch, context=64) for batch in (1, 2, 32, 33)}
    kernel = next(kernel for kernel in steps[1].lowered.kernels if "W2_experts" in {x.name for x in kernel.reads})
    read = {batch: kernel.memory_bytes(plan.sizes) for batch, plan in steps.items()}
    expert = 2 * 2880 * 2880
    assert 4 * expert < read[1] < 4.01 * expert
    assert 8 * expert < read[2] < 8.01 * expert
    assert 128 * expert < read[32] < read[33] < 128.4 * expert


@pytest.mark.parametrize(("load", "due"), [("balanced", 0.25), ("uniform", 1 - (1 - 4 / 128) ** 8)])
def test_what_share_of_experts_has_rows(load, due):
    routing = f"assume.routing.load={load}"
    plan = served("gpt-oss-120b", tp=1, batch=8, context=64, overrides=[routing])
    assert float(plan.sizes.dims[BUSY]) == pytest.approx(due)
    idle = f"{100 * (1 - due):.3g} % of a chip's experts have no rows, and are not read"
    assert idle in [assumption.text for assumption in plan.assumptions]


def test_assumptions_of_the_largest_batch_are_those_of_so_many_sequences():
    filled = served("gpt-oss-120b", tp=8, batch="largest", context=4096)
    stated = served("gpt-oss-120b", tp=8, batch=filled.question.workload.global_batch, context=4096)
    assert filled.question.workload.global_batch > 32  # of fewer an expert may have no row
    assert filled.question.assumptions[:-1] == stated.question.assumptions


def test_the_chip_with_most_rows_reads_one_expert_at_least():
    plan = served("gpt-oss-120b", tp=8, batch=1, context=64, overrides=["layout.ep=tensor"])
    assert plan.sizes.dims[BUSY] * 16 == 1  # of half a row in the mean


def test_rows_of_the_fullest_rank_that_fill_no_tile_take_as_long_as_those_of_any_other():
    """4 rows of each of two experts for 2, in tiles of 128: what is rounded up is what the fullest rank has."""
    took = []
    for load in ("balanced", 2):
        fast = {"extends": "tpu-v5e", "chip": {"memory": {"bandwidth": "1000000 TB/s"}}}  # products bind
        scenario = {
            "tpsim": "scenario/1",
            "model": "mixtral-8x7b",
            "hardware": fast,
            "mesh": {"expert": 4},
            "layout": {"dp": "expert", "ep": "expert"},
            "assume": {"routing": {"load": load}},
            "workload": {"kind": "decode", "batch": 8, "context": 64},
        }
        plan = tpsim.plan(scenario)
        kernel = next(kernel for kernel in plan.lowered.kernels if "W2_experts" in {x.name for x in kernel.reads})
        question = plan.question
        took.append(kernel_s(kernel, plan.sizes, question.machine, question.products, question.matmul_efficiency))
    assert plan.sizes.dims["c"] == 2
    assert kernel.peak(plan.sizes) == 2
    assert took[0] == pytest.approx(took[1])


def test_a_step_by_chance_takes_no_longer_for_fewer_sequences():
    """Fewer rows lie less evenly; where they fill no tile the fullest rank is not slower for that."""
    asked = {"hw": "tpu-v5e", "overrides": ["layout.ep=tensor", "assume.routing.load=uniform"]}
    steps = [served("mixtral-8x7b", tp=8, batch=n, context=64, **asked).step.compute_s for n in (16, 32, 64, 128)]
    assert steps == sorted(steps)


def test_stages_work_one_after_the_other_and_hold_as_much_between_them():
    whole = served(batch=8, context=512, tp=8)
    staged = served(
        batch=8, context=512, tp=4, overrides=["mesh={pipe: 2, tensor: 4}", "layout={tp: tensor, pp: pipe}"]
    )
    assert staged.serve.cache_bytes_per_token == whole.serve.cache_bytes_per_token
    assert sum(one.cache_bytes for one in staged.each) * 4 == whole.memory.cache_bytes * 8
    first, last = staged.pipeline.step.told.stages
    sent = next(row for row in first.rows if row.collective == "send")
    assert (sent.logical_bytes, sent.count) == (8 * 8192 * 2, 1)
    alone = float(first.compute.time_s + first.exposed_s)  # its message on the way, too
    assert staged.step.time_s == pytest.approx(alone + last.compute.time_s + last.exposed_s, rel=1e-3)
    assert "bound by stages that work one after the other" in staged.verdict


@pytest.mark.parametrize("work", [{"batch": 8, "context": 512}, {"kind": "prefill", "batch": 8, "prompt": 512}])
@pytest.mark.parametrize("stages", [2, 8])
def test_a_step_in_stages_is_all_their_work_and_every_message_between_them(stages, work):
    """The message to the last stage, which sends none itself, is one of them."""
    cut = ["layout={tp: tensor, pp: pipe}"]
    one, staged = (
        served("llama-3-8b", overrides=[f"mesh={{pipe: {ranks}, tensor: 2}}", *cut], **work) for ranks in (1, stages)
    )
    parts = staged.pipeline.parts_s
    hops = [name for name in parts if name.startswith("send")]
    sent_s = parts["send"] * (stages - 1) if hops == ["send"] else sum(parts[name] for name in hops)
    assert sent_s > 0
    assert staged.step.time_s == pytest.approx(one.step.time_s + sent_s, rel=1e-9)
    assert staged.step.time_s == pytest.approx(staged.pipeline.step.time_s, rel=1e-12)
    for stage in staged.stages:
        own_s = stage.compute_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert own_s == pytest.approx(staged.step.time_s, rel=1e-9)


def test_what_a_prompt_takes_is_said_with_all_that_it_is_made_of():
    """In stages, and launched by a slow host, its compute and communication are not all of it."""
    stages = ["mesh={pipe: 2, tensor: 4}", "layout={tp: tensor, pp: pipe}", "assume.kernel_launch=50 us"]
    reply = served("llama-3-8b", kind="serve", batch=1, prompt=64, output=8, overrides=stages)
    step = reply.prefill.step
    parts = (step.compute_s, step.exposed_s, step.bubble_s, step.host_s)
    assert step.time_s == pytest.approx(sum(parts))
    assert min(parts) > 0
    compute, exposed, bubble, host = (show(float(part), "seconds") for part in parts)
    made_of = f"compute {compute} + exposed communication {exposed} + bubble {bubble} + host {host}"
    notes = [note for note in page(reply, verbose=False).notes if note.startswith("prompts ")]
    assert notes == [f"prompts {show(step.time_s, 'seconds')} = {made_of}; all are read at once"]


def test_a_plan_in_stages_says_what_it_leaves_out_between_two_steps():
    said = "tokens on their way from the last stage, which samples them, to the first"
    plans = [served(tp=4, overrides=[f"mesh={{pipe: {n}, tensor: 4}}", "layout.pp=pipe"], context=8) for n in (1, 2)]
    assert [said in plan.not_modelled for plan in plans] == [False, True]


def test_the_largest_batch_is_the_last_one_with_room():
    most = served(batch=1, context=4096, overrides=["layout.cache=sequence"]).serve.largest_batch
    rooms = [
        served(batch=batch, context=4096, overrides=["layout.cache=sequence"]).memory for batch in (most, most + 1)
    ]
    assert [one.room_bytes >= 0 for one in rooms] == [True, False]
    assert served("llama-3-405b", tp=8, context=8).serve.largest_batch == 0


def test_weights_and_cache_in_fewer_bytes_take_fewer_seconds_and_travel_as_before(llama):
    fewer = served(batch=32, context=4096, hw=DATASHEET, param_dtype="int8", cache_dtype="fp8")
    assert 2 * fewer.memory.parameters_bytes == llama.memory.parameters_bytes
    assert 2 * fewer.memory.cache_bytes == llama.memory.cache_bytes
    pauses_s = 80 * 14 * 2e-6
    assert fewer.step.compute_s - pauses_s == pytest.approx((llama.step.compute_s - pauses_s) / 2, rel=0.05)
    assert [row.logical_bytes for row in fewer.rows] == [row.logical_bytes for row in llama.rows]


@pytest.mark.parametrize(
    ("dtype", "of_weights", "of_cache"),
    [("fp8_128", 1 + 4 / 128**2, 33 / 32), ("mxfp4", 17 / 32, 17 / 32), ("int4", 1 / 2, 1 / 2)],
)
def test_blocks_that_share_a_scale_count_it(llama, dtype, of_weights, of_cache):
    """Weights in fp8 have a scale for each square of 128 by 128 (DeepSeek-V3, README_WEIGHTS.md: weight_block_size)."""
    plan = served(batch=32, context=4096, hw=DATASHEET, param_dtype=dtype, cache_dtype=dtype)
    assert plan.memory.parameters_bytes / llama.memory.parameters_bytes == pytest.approx(of_weights / 2)
    assert plan.memory.cache_bytes / llama.memory.cache_bytes == pytest.approx(of_cache / 2)


def test_weights_in_few_bits_take_what_is_published_where_embedding_and_output_are_not():
    """Meta-Llama-3-8B-Instruct-FP8: 9.08 GB, its lm_head ignored; a step reads the output in bf16, too."""
    formats = {"batch": 1, "context": 1024, "param_dtype": "fp8"}
    whole, published = (served("llama-3-8b", tp=1, **formats, **own) for own in ({}, {"vocab_dtype": "bf16"}))
    tables = 2 * 128_256 * 4096
    assert published.memory.parameters_bytes - whole.memory.parameters_bytes == tables
    assert published.memory.parameters_bytes == pytest.approx(9.08e9, rel=1e-3)
    read_s = tables / 2 / (3.35e12 * 0.731)
    assert published.step.compute_s - whole.step.compute_s == pytest.approx(read_s, rel=1e-3)
    assert published.to_json()["resolved"]["dtypes"]["vocab"] == "bf16"


def test_a_plan_of_inference_says_so_in_its_document_and_its_verdict(llama):
    said = llama.to_json()["result"]
    assert list(said["serve"]) == [
        *("tpot_s", "tokens_per_s_user", "tokens_per_s_chip"),
        *("bytes_bound_share", "pauses_share", "largest_batch", "cache_bytes_per_token"),
    ]
    assert said["memory"]["gradients_bytes"] == said["memory"]["optimizer_bytes"] == said["memory"]["kept_bytes"] == 0
    assert "a step of decoding: bound by reading weights and cache" in llama.verdict
    assert "weights 17.64 GB, cache 5.369 GB" in llama.verdict
    assert json.dumps(llama.to_json()["resolved"]["workload"]) == (
        '{"batch": 32, "sampling": "gather", "kind": "decode", "context": 4096, "tokens": 1}'
    )
    trained = tpsim.plan(model="gpt-tiny", hw="dgx-h100", batch=1, seq=16).to_json()["result"]
    assert "serve" not in trained
    assert "cache_bytes" not in trained["memory"]


def test_a_cache_that_chips_hold_twice_is_split_where_that_is_faster():
    """Of eight kv heads over 16 chips; with a prompt of as many tokens the reply would come later."""
    table = {"tp": 16, "batch": 64}
    plan = served(**table, context=32768)
    assert plan.memory.fits is False
    assert plan.change.set == "layout.cache=batch"
    assert plan.change.time_s == served(**table, context=32768, overrides=["layout.cache=batch"]).step.time_s
    assert served(tp=8, batch=64, context=8192).change is None
    roomy = {"extends": "dgx-h100", "chip": {"memory": {"capacity": "200 GB"}}}
    asked = {"kind": "serve", "hw": roomy, "tp": 16, "batch": 32, "prompt": 32768, "output": 2}
    reply, split = served(**asked), served(**asked, overrides=["layout.cache=batch"])
    assert split.step.time_s < reply.step.time_s * (1 - LEAST)
    assert split.serve.reply_s > reply.serve.reply_s
    assert reply.memory.fits
    assert reply.change is None


def explained(name, scenario, **flags):
    """Formula and value of a number."""
    first, *_ = tpsim.explain(name, scenario, **flags).derivations
    return first.text, first.value


def test_formulas_of_inference_come_to_their_values():
    """Of two stages a step was "compute 5.747 ms + exposed communication" and 14.59 ms.

    A turning point that nobody works out was "at no multiple of 4 tokens"; pauses were in no formula.
    """
    scenario = "llama3-70b-h100-decode"
    text, value = explained("serve.reply_s", scenario)
    plan = tpsim.plan(scenario)
    assert value == pytest.approx(plan.prefill.step.time_s + 255 * plan.step.time_s)
    assert text.startswith("1.469 s + 255 x 13.48 ms")
    assert " + bubble 6." in explained("serve.tpot_s", scenario, mesh="pipe=2,tensor=8", pp="pipe")[0]
    assert explained("breakeven", scenario) == ("where the bound turns is not worked out for inference", None)
    assert explained("step.compute_s", scenario)[0].endswith(" + kernel_pause")
    for name in ("bytes_bound_share", "pauses_share"):
        text, share = explained(f"serve.{name}", scenario)
        some, _, whole = text.replace(" ms", "").partition(" of ")
        assert share == plan.serve[name] == pytest.approx(float(some) / float(whole), rel=1e-3)
        assert float(whole) == pytest.approx(1e3 * plan.step.compute_s, rel=1e-3)


def test_numbers_of_inference_are_explained():
    scenario = "llama3-70b-h100-decode"
    (one,) = tpsim.explain("serve.cache_bytes_per_token", scenario).derivations
    assert (str(one.expression), one.value) == ("4*L*dh*kv_heads", 327_680)
    (held,) = tpsim.explain("memory.cache", scenario).derivations
    assert str(held.expression) == "4*L*T*b*dh*kv_heads*m/t"
    assert tpsim.explain("serve.ttft_s", scenario).derivations[0].value > 0
    with pytest.raises(InputError, match=r'"memory.cache" is not a number of'):
        tpsim.explain("memory.cache", "llama3-70b-h100")


@pytest.mark.parametrize("kind", ["prefill", "decode", "serve"])
def test_every_number_that_is_listed_of_inference_is_explained(kind):
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 8, "overrides": [f"workload={WORKLOADS[kind]}"]}
    listed = [name.name for name in explain_list(**asked).names if name.name.startswith("serve.")]
    assert ("serve.tpot_s" in listed) == (kind != "prefill")
    assert ("serve.ttft_s" in listed) == (kind != "decode")
    assert all(tpsim.explain(name, **asked).derivations for name in listed)


WORKLOADS = {
    "prefill": "{kind: prefill, batch: 2, prompt: 64}",
    "decode": "{kind: decode, batch: 2, context: 64}",
    "serve": "{kind: serve, batch: 2, prompt: 64, output: 8}",
}


def test_inference_can_be_required_to_answer_in_time():
    demands = "require={tpot: < 20 ms, ttft: < 1 us, tokens_per_s_user: '> 10'}"
    plan = served(kind="serve", batch=1, prompt=64, output=8, overrides=[demands])
    assert [(one.name, one.ok) for one in plan.require] == [
        ("ttft", False),
        ("tpot", True),
        ("tokens_per_s_user", True),
    ]
    assert "require ttft < 1 us is violated" in plan.verdict
    with pytest.raises(InputError, match=r'"ttft" cannot be required'):
        tpsim.plan(model="gpt-tiny", hw="dgx-h100", batch=1, seq=16, overrides=["require={ttft: < 1 s}"])


def test_the_largest_batch_may_be_asked_for():
    """As many sequences as `serve.largest_batch` says of one; a prompt and its reply have the longer one's room."""
    one = served(batch=8, context=4096, overrides=["layout.cache=batch"])
    filled = served(batch="largest", context=4096, overrides=["layout.cache=batch"])
    assert filled.question.workload.global_batch == filled.serve.largest_batch == one.serve.largest_batch
    assert filled.to_json()["resolved"]["workload"]["batch"] == one.serve.largest_batch
    assert f"batch {one.serve.largest_batch:,} is the largest that memory has room for" in [
        said.text for said in filled.assumptions
    ]
    reply = served(kind="serve", batch="largest", prompt=1024, output=1024)
    assert reply.serve.ttft_s == served(kind="prefill", batch=reply.serve.largest_batch, prompt=1024).step.time_s
    assert tpsim.verify(reply.question.stated.file.model_dump(exclude_unset=True)).ok
    with pytest.raises(InputError, match=r"no-room.*memory of dgx-h100 has no room for a sequence"):
        served("llama-3-405b", batch="largest", context=8)


def test_a_change_of_the_largest_batch_is_a_plan_of_the_largest_batch_that_it_leaves_room_for():
    """Steps of unlike batches are compared by the token, and the line says how many sequences there are then."""
    split = ["layout.sequence_parallel=true"]
    read = {"kind": "prefill", "batch": "largest", "prompt": 4096}
    prompts, due = served(**read), served(**read, overrides=split)
    assert due.question.workload.global_batch > prompts.question.workload.global_batch
    change = prompts.change
    assert [f"{change.set}"] == split
    assert (change.time_s, change.peak_bytes) == (due.step.time_s, due.memory.peak_bytes)
    assert change.relative == pytest.approx(prompts.serve.tokens_per_s_chip / due.serve.tokens_per_s_chip - 1)
    told = f"{due.serve.largest_batch:,} sequences, {show(due.step.time_s, 'seconds')} a step"
    assert f"{told} ({percent(change.relative)} per token), peak" in prompts.verdict

    context = {"tp": 16, "batch": "largest", "context": 32768}
    copied, cut = served(**context), served(**context, overrides=["layout.cache=batch"])
    assert copied.change.time_s == cut.step.time_s > copied.step.time_s
    assert copied.change.relative < 0


@pytest.mark.parametrize(
    ("tp", "sampling", "logits"),
    [(1, "gather", 1), (8, "gather", 1 + 1 / 8), (8, "argmax", 1 / 8)],
)
def test_the_logits_that_tokens_are_drawn_from_are_held_while_they_are(tp, sampling, logits):
    """4,096 rows of 128,256 logits in bf16: all of them on each device, beside its own part of the vocabulary."""
    workload = f"workload={{kind: decode, batch: 4096, context: 16, sampling: {sampling}}}"
    memory = tpsim.plan(model="llama-3-70b", hw="dgx-h100", tp=tp, overrides=[workload]).memory
    held = 4096 * 128256 * 2 * logits
    assert held <= memory.working_bytes
    if tp > 1 and sampling == "gather":
        assert memory.working_bytes == held


@pytest.mark.parametrize(
    ("model", "tp", "copies"), [("gpt-oss-120b", 8, 1), ("gpt-oss-120b", 16, 2), ("gemma-2-27b", 4, 1)]
)
def test_chips_that_hold_the_same_part_of_a_cache_are_counted_where_some_layers_have_windows(model, tp, copies):
    """Of 8 and 16 kv heads; the cache of a window is no part that is held twice."""
    found = served(model, tp=tp, batch=16, context=4096).serve
    assert found.copies == copies


def test_of_a_model_whose_layers_all_have_windows_a_long_context_is_decoded():
    """Mistral 7B: 4,096 tokens in each of 32 caches of 8 heads of 128; a token more takes nothing."""
    plan = served("mistral-7b", tp=8, batch=16, context=32768)
    assert plan.memory.cache_bytes == 16 * 4096 * 2 * 32 * 128 * 2
    assert (plan.serve.copies, plan.serve.cache_bytes_per_token) == (1, 0)
    assert page(plan, verbose=True).tables


def test_of_a_paged_cache_the_last_block_of_a_sequence_lacks_half_in_the_mean():
    """Of lengths as chance has them: 1, 2, ... tokens of 16 in the last block. Nothing else changes."""
    block, work = 16, {"model": "llama-3-8b", "batch": 64, "context": 4096}
    lacking = sum(-(-length // block) * block - length for length in range(1, block + 1)) / block
    plain, paged = served(**work), served(**work, cache_block=block)
    assert lacking == 7.5
    assert paged.memory.cache_bytes * 8 == 64 * (4096 + lacking) * 131_072
    assert paged.step.time_s == plain.step.time_s
    assert paged.memory.parameters_bytes == plain.memory.parameters_bytes
    assert paged.serve.largest_batch < plain.serve.largest_batch
    assert paged.serve.copies == 1
    assert served(**work, cache_block=1).memory == plain.memory
    split = served(**work, cache_block=block, overrides=["layout.cache=sequence"])
    assert split.memory.cache_bytes == paged.memory.cache_bytes
    texts = {one.text for one in paged.assumptions}
    assert any("blocks of 16 tokens" in text for text in texts)
    unpaged, not_paged = (" ".join(plan.not_modelled) for plan in (plain, paged))
    assert "workload.cache_block" in unpaged
    assert "workload.cache_block" not in not_paged


def test_a_window_s_cache_that_is_full_lacks_nothing_more_for_blocks():
    """Its tokens take each other's places: of Mistral's 4,096 all stand in full blocks."""
    plain, paged = (served("mistral-7b", context=32_000, **more).memory for more in ({}, {"cache_block": 64}))
    assert plain.cache_bytes == paged.cache_bytes


@pytest.mark.parametrize("block", [None, 32])
def test_a_grid_has_room_for_as_many_sequences_as_plans_do_in_blocks_too(block):
    plan = served(model="llama-3-8b", context=4096, batch=8, cache_block=block)
    (row,) = tpsim.grid(plan.question.stated.document, batches=[8], contexts=[4096]).rows
    assert row["peak_bytes"] == pytest.approx(float(plan.memory.peak_bytes), rel=1e-12)


REPLIES = {"kind": "serve", "batch": 16, "prompt": 4096, "output": 128}


@pytest.mark.parametrize("name", ["llama-3-70b", "gpt-oss-120b"])
def test_a_prompt_of_which_a_prefix_is_cached_is_read_before_its_reply_as_it_is_read_alone(name):
    both = served(name, **REPLIES, cached=3072)
    alone = served(name, kind="prefill", batch=16, prompt=4096, cached=3072)
    whole = served(name, **REPLIES)
    assert both.serve.ttft_s == alone.step.time_s < whole.serve.ttft_s
    assert both.step.time_s == whole.step.time_s, "replies attend to as much"
    assert both.memory.cache_bytes == whole.memory.cache_bytes, "and it has a place of its own in every sequence"
    assert both.memory.peak_bytes <= whole.memory.peak_bytes
    assert both.serve.requests_per_s > whole.serve.requests_per_s
    assert "3,072 of them cached" in str(page(both, verbose=False).facts)


def test_of_a_prompt_of_which_a_prefix_is_cached_something_is_left_to_read():
    with pytest.raises(InputError, match="cached 4096 is more than a prompt of 4096 tokens can have"):
        served(**REPLIES, cached=4096)


def test_beside_servers_of_prompts_they_have_the_prefix_and_all_of_the_cache_moves():
    whole, cached = (
        tpsim.plan("llama3-70b-h100-disaggregated", overrides=[f"workload.cached={many}"]) for many in (0, 3072)
    )
    assert cached.serve.servers.transfer_bytes == whole.serve.servers.transfer_bytes
    assert cached.serve.ttft_s < whole.serve.ttft_s
    assert cached.serve.servers.ratio < whole.serve.servers.ratio


def test_a_search_reads_prompts_behind_what_is_cached_as_a_plan_does():
    found = tpsim.search("llama3-70b-h100-decode", chips=8, overrides=["workload.cached=512"])
    for row in found.rows:
        assert row.ttft_s == row.planned.plan.serve.ttft_s
    assert found.best.ttft_s < tpsim.search("llama3-70b-h100-decode", chips=8).best.ttft_s
