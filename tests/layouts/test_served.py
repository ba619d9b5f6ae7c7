"""What a search knows of layouts of inference before it plans them: memory as in plans, seconds that none undercuts."""

from __future__ import annotations

import pytest

from tpsim.answers.planned import Planned
from tpsim.answers.ranking import weigh
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.space import spaces
from tpsim.question.memo import Memo

DECODING = {"kind": "decode", "batch": 64, "context": 2048}
PROMPTS = {"kind": "prefill", "batch": 16, "prompt": 1024}
REPLIES = {"kind": "serve", "batch": 32, "prompt": 512, "output": 64}
LARGEST = {**DECODING, "batch": "largest"}
LATENT = {
    "extends": "deepseek-v3",
    "layers": [{"repeat": 1, "of": ["latent", "dense"]}, {"repeat": 5, "of": ["latent", "sparse"]}],
}

READING = {
    "hardware": {"extends": "dgx-h100", "chip": {"price_per_hour": 3.0}},
    "mesh": {"tensor": 4},
    "layout": {"tp": "tensor"},
    "batch": 48,
}
"""Servers that read many prompts at once, on chips that cost half as much again."""
CHEAP = {"extends": "dgx-h100", "chip": {"price_per_hour": 2.0}}

SERVED = {
    "decoding": ("llama-3-8b", "dgx-h100", DECODING, {}, 8),
    "prompts": ("llama-3-8b", "dgx-h100", PROMPTS, {}, 8),
    "prompts and replies": ("llama-3-70b", "dgx-h100", REPLIES, {}, 16),
    "prompts and replies in all that memory has room for": (
        *("llama-3-70b", "dgx-h100", {**REPLIES, "batch": "largest"}),
        *({"assume": {"price_per_chip_hour": 2}}, 16),
    ),
    "replies to prompts that others read": ("llama-3-70b", CHEAP, REPLIES, {"prefill": READING}, 16),
    "as many of these as memory has room for": (
        *("llama-3-70b", CHEAP, {**REPLIES, "batch": "largest"}),
        *({"prefill": READING}, 16),
    ),
    "as many sequences as memory has room for": ("llama-3-8b", "dgx-h100", LARGEST, {}, 8),
    "in blocks": ("llama-3-8b", "dgx-h100", {**LARGEST, "cache_block": 256}, {}, 8),
    "experts": ("mixtral-8x7b", "dgx-h100", DECODING, {}, 16),
    "experts, as many as memory has room for": ("mixtral-8x7b", "dgx-h100", LARGEST, {}, 16),
    "windows and sinks, in blocks with scales": (
        "gpt-oss-120b",
        "dgx-h100",
        {**DECODING, "expert_dtype": "mxfp4"},
        {},
        8,
    ),
    "latents, of experts on nodes": (
        LATENT,
        "superpod-h100",
        DECODING,
        {"practice": {"rows": {"dispatch": "node"}}},
        32,
    ),
    "latents, as many as memory has room for": (LATENT, "superpod-h100", LARGEST, {}, 16),
    "one kv head for several devices": ("llama-3-8b", "dgx-h100", DECODING, {}, 32),
    "a torus": ("llama-3-8b", "tpu-v5e", DECODING, {}, 16),
    "a host that launches": ("llama-3-8b", "dgx-h100", DECODING, {"assume": {"kernel_launch": "10 us"}}, 8),
    "overheads, by the book": (
        *("llama-3-8b", "dgx-h100", DECODING),
        *({"cost_model": "book", "assume": {"memory": {"context": "2 GB", "fragmentation": 0.1}}}, 8),
    ),
    "messages that take long": (
        *("llama-3-8b", {"extends": "dgx-h100", "levels": {"nvlink": {"link": {"hop_latency": "1 ms"}}}}),
        *(DECODING, {}, 8),
    ),
}


@pytest.mark.parametrize(("model", "hardware", "work", "more", "chips"), SERVED.values(), ids=SERVED)
def test_memory_is_that_of_plans_and_no_plan_is_faster_than_its_bound(model, hardware, work, more, chips):
    asked = {"tpsim": "scenario/1", "model": model, "hardware": hardware, "workload": work, **more}
    memo = Memo()
    several = spaces(asked, flags={"chips": chips}, overrides=(), vary=(), memo=memo)
    found, near = evaluate(several, memo, weigh), []
    for candidate in found.candidates:
        planned = Planned(candidate, memo)
        memory = planned.plan.memory
        assert candidate.peak_bytes == pytest.approx(float(memory.peak_bytes), rel=1e-12)
        assert candidate.room_bytes == pytest.approx(float(memory.room_bytes), abs=1e-12 * memory.capacity_bytes)
        assert candidate.family.tokens == planned.plan.tokens
        if candidate.room_bytes >= 0:
            assert candidate.step_s < planned.value("step")
            near.append(candidate.step_s / planned.value("step"))
            if candidate.family.paid_s is not None and planned.plan.run:
                paid_s = planned.plan.run.step_s * planned.plan.tokens / planned.plan.run.step_tokens
                assert 0.9 * paid_s < float(candidate.family.paid_s[candidate.at]) < paid_s
        else:
            assert candidate.step_s == 0
    assert len(near) > 4
    assert min(near) > (0.3 if "kernel_launch" in str(more) else 0.88)  # some messages take longer than others
