"""Worked examples of How to Scale Your Model and of Pope et al. 2022 on inference, asked of plans."""

from __future__ import annotations

import pytest

from tests.answers.test_serve import attention, served
from tpsim.cost.memory import local_bytes

BOOK = "book-tpu-v5e-ring"
GQA = {"extends": "llama-2-13b", "kv_heads": 8, "params": None}


@pytest.mark.parametrize(
    ("model", "batch", "due_s"),
    [
        *(("llama-2-13b", 1, 4.985e-3), ("llama-2-13b", 8, 12.134e-3), ("llama-2-13b", 16, 20.305e-3)),
        *(("llama-2-13b", 32, 36.646e-3), ("llama-2-13b", 64, 69.329e-3), ("llama-2-13b", 240, 249.085e-3)),
        *((GQA, 1, 4.168e-3), (GQA, 8, 5.598e-3), (GQA, 64, 17.037e-3), (GQA, 240, 52.988e-3)),
    ],
)
def test_llama_13b_on_eight_v5e_takes_what_its_bytes_take(model, batch, due_s):
    """How to Scale Your Model, chapter on inference: 26e9 bytes of weights, 6.7e9 or 1.34e9 of cache per sequence."""
    plan = served(model, BOOK, batch=batch, context=8192, overrides=["cost_model=book"])
    fewer = (2 * 5120**2 * 2 - 2 * 5120 * 1024 * 2) * 40 / 6.56e12 if model is GQA else 0  # weights of keys and values
    assert plan.step.compute_s == pytest.approx(due_s - fewer, rel=0.05)  # tpsim counts activations, too
    if batch == 240:
        assert batch / plan.step.compute_s == pytest.approx(4529.3 if model is GQA else 963.5, rel=0.05)


def test_llama_70b_in_int8_serves_32_sequences_from_eight_v5e():
    """The same book: 112e9 bytes, 17.07 ms on 4x2, half of that on 4x4; it divides by a rounded 17 ms."""
    fields = {
        "batch": 32,
        "context": 8192,
        "param_dtype": "int8",
        "cache_dtype": "int8",
        "overrides": ["cost_model=book"],
    }
    plan = served(hw=BOOK, **fields)
    held = 8 * plan.memory.static_bytes
    assert 8 * plan.memory.cache_bytes == 42_949_672_960
    assert held == pytest.approx(112e9, rel=0.015)
    assert -(-held // 16_000_000_000) == 8  # 7.1 chips of 16 GB: the book's rounded 112e9 are 7
    assert plan.step.compute_s == pytest.approx(17.07e-3, rel=0.07)  # activations, too: one copy per chip
    assert 32 / plan.step.compute_s == pytest.approx(1874, rel=0.07)


BOOKISH = {
    "extends": "llama-3-8b",
    "hidden": 4096,
    "ffn": {"kind": "swiglu", "hidden": 16_384},
    "heads": 32,
    "head_dim": 256,
    "layers": 64,
    "vocab": 32_128,
    "vocab_padded": 32_128,
    "params": None,
}


@pytest.mark.parametrize(("kv_heads", "due"), [(8, 7), (1, 56)])
def test_sixteen_v5e_have_room_for_seven_long_sequences_and_for_eight_times_as_many_of_one_kv_head(kv_heads, due):
    """The same book, question 2: 18.4e9 parameters and the cache in int8, 128,000 tokens."""
    fields = {"context": 128_000, "param_dtype": "int8", "cache_dtype": "int8", "overrides": ["layout.cache=sequence"]}
    plan = served({**BOOKISH, "kv_heads": kv_heads}, BOOK, 16, **fields)
    assert plan.serve.largest_batch == due


PALM = {
    "extends": "llama-3-8b",
    "hidden": 18_432,
    "ffn": {"kind": "swiglu", "hidden": 73_728},
    "heads": 64,
    "layers": 118,
    "vocab": 256_000,
    "vocab_padded": 256_000,
    "params": None,
}


@pytest.mark.parametrize(
    ("kv_heads", "head_dim", "by", "batch", "published"),
    [
        (64, 128, "heads", 128, 1320),
        (64, 128, "heads", 512, 330),
        (1, 256, "heads", 128, 660),
        (1, 256, "heads", 512, 165),
        (1, 256, "batch", 128, 43_000),
        (1, 256, "batch", 512, 10_700),
    ],
)
def test_palm_on_64_v4_holds_the_contexts_that_were_published(kv_heads, head_dim, by, batch, published):
    """Pope et al. 2022, table 1: the longest context with 30 % of memory for the cache; a band, as it is a reading."""
    model = {**PALM, "kv_heads": kv_heads, "head_dim": head_dim}
    plan = served(model, "tpu-v4", 64, batch=batch, context=1, overrides=[f"layout.cache={by}"])
    assert 0.3 * plan.memory.capacity_bytes / plan.memory.cache_bytes == pytest.approx(published, rel=0.1)


@pytest.fixture(scope="module")
def of_attention():
    """The kernel of attention of a prompt, or of a step of decoding, with the sizes that it is evaluated at."""

    def kernel(**work):
        plan = served("llama-2-13b", BOOK, 1, **work)
        (one,) = (kernel for kernel in plan.lowered.kernels if kernel.where.kernel == "attention")
        return one, plan.sizes

    return kernel


def test_attention_does_half_its_tokens_flops_a_byte_of_a_prompt_and_one_of_decoding(of_attention):
    """IN-02: S*T/(S + T); at 480 tokens the 240 FLOPs a byte from which a v5e is bound by products."""
    for tokens in (480, 4800):
        one, sizes = of_attention(kind="prefill", prompt=tokens)
        assert one.flops(sizes) == one.memory_bytes(sizes) * tokens // 2
    one, sizes = of_attention(context=4096)
    assert one.flops(sizes) / one.memory_bytes(sizes) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "work", "due"), [("bf16", "bf16", 240.24), ("int8", "bf16", 120.12), ("int8", "int8", 240.24)]
)
def test_a_product_takes_as_long_as_its_weights_from_so_many_tokens(weights, work, due):
    """IN-01: peak over the memory's bandwidth, halved by weights of half the bytes."""
    plan = served("llama-2-13b", BOOK, 1, batch=64, context=8, param_dtype=weights, dtype=work)
    kernel = next(one for one in plan.lowered.kernels if one.ops[0].output.name == "mlp.up")
    assert critical(plan, kernel, work) == pytest.approx(due, rel=1e-4)


def test_experts_take_as_long_as_their_weights_from_as_many_tokens_as_all_of_them_are_more_than_those_of_a_token():
    """TF-08: int8 weights of 256 experts, 8 of a token, products in bf16: 120 * 32 = 3,840 by a rounded 120."""
    plan = served("deepseek-v3", BOOK, 1, batch=64, context=8, param_dtype="int8")
    kernel = next(one for one in plan.lowered.kernels if one.ops[0].output.name == "experts.up")
    assert critical(plan, kernel, "bf16") == pytest.approx(3840, rel=2e-3)


def critical(plan, kernel, dtype):
    """Tokens at which a product with a weight takes as long as to read that."""
    machine, tokens = plan.question.machine, plan.question.workload.global_batch
    (weight,) = (x for x in kernel.reads if x.role == "param")
    read_s = local_bytes(weight, plan.sizes) / machine.chip.memory.bandwidth.value
    return read_s * machine.peak(dtype).value * tokens / kernel.flops(plan.sizes)


def test_a_cache_of_8192_tokens_in_int8_and_one_byte_each():
    """TF-11: 2 * 8192 * 64 layers * 8192."""
    plan = served(attention(64, 64, 128, 64), tp=1, context=8192, cache_dtype="int8")
    assert plan.memory.cache_bytes == 8_589_934_592


@pytest.mark.parametrize(("dtype", "chips", "due"), [("bf16", 16, 0.276), ("int8", 8, 0.553), ("int4", 4, 1.105)])
def test_43_sequences_fill_the_memory_that_is_read_for_each_token(dtype, chips, due):
    """AI-05, AI-06: 16 GB in 19.5 ms, the book's 19; 512 tokens a reply: requests a second and chip."""
    formats = {"param_dtype": dtype, "cache_dtype": dtype, "overrides": ["cost_model=book", "layout.cache=sequence"]}
    plan = served(hw=BOOK, tp=chips, batch=43, context=8192, **formats)
    assert plan.memory.static_bytes == pytest.approx(16e9, rel=0.015)
    assert 43 / (512 * plan.step.compute_s) / chips == pytest.approx(due, rel=0.12)  # activations are counted, too


def test_a_prompt_of_8192_tokens_on_16_v5e_and_the_servers_of_prompts_that_keep_up_with_one_of_replies():
    """AI-09, AI-11: 0.9096 s at 40 % of peak, without attention's scores; 2.99 servers for 32 replies of 512 tokens."""
    plan = served(hw=BOOK, tp=16, batch=1, kind="prefill", prompt=8192)
    table, scores = 2 * 128_256 * 8192 * 8192, 4 * 8192 * 8192 * 8192 * 80
    products = plan.compute.useful_flops + 2 * table - scores
    prompt_s = products / (16 * plan.question.machine.peak("bf16").value * 0.4)
    assert prompt_s == pytest.approx(0.9096, rel=0.01)
    assert prompt_s * 32 / (512 * 0.019) == pytest.approx(2.99, rel=0.01)
