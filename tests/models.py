"""Small models for tests: every size divides by every mesh that a test uses."""

from __future__ import annotations

from dataclasses import replace

from tpsim.program.model import Model


def loops(layers, microbatches=1):
    """How often the loops of a program run."""
    return {"layers": layers, "microbatches": microbatches, "chunks": 1}


LLAMA = Model(
    name="small-llama",
    hidden=16,
    layers=2,
    heads=8,
    kv_heads=4,
    head_dim=4,
    ffn="swiglu",
    ffn_hidden=32,
    vocab=32,
    vocab_padded=32,
)
"""Grouped-query attention, gated MLP, RMSNorm, rotary positions, untied."""

GPT = Model(
    name="small-gpt",
    hidden=16,
    layers=2,
    heads=8,
    kv_heads=8,
    head_dim=4,
    ffn="gelu",
    ffn_hidden=32,
    vocab=30,
    vocab_padded=32,
    norm="layernorm",
    bias=True,
    positions="learned",
    max_positions=12,
    tie_embeddings=True,
)
"""Full attention, GELU, LayerNorm, biases everywhere, learned positions, tied embedding."""

NEOX = replace(
    GPT, name="small-neox", parallel_residual=True, positions="rope", max_positions=None, tie_embeddings=False
)
"""Attention and MLP side by side."""

QWEN = replace(LLAMA, name="small-qwen", qkv_bias=True, ffn="geglu", tie_embeddings=True)
"""Biases on the projections only."""

GEMMA = replace(LLAMA, name="small-gemma", kv_heads=1, qkv_bias=True, ffn="geglu", tie_embeddings=True)
"""One key/value head for all queries: no tensor parallelism splits it."""

MIDDLE = replace(
    LLAMA,
    name="middle-llama",
    hidden=4096,
    layers=6,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn_hidden=16384,
    vocab=32768,
    vocab_padded=32768,
)
"""Of a real model's proportions, for prices; too large to execute."""

SMALL_SCENARIO = {
    "tpsim": "scenario/1",
    "model": {"extends": "llama-3-8b", "layers": 8},
    "hardware": "dgx-h100",
    "chips": 16,
    "workload": {"global_batch": 64, "seq": 4096, "dtype": "bf16", "grad_dtype": "f32"},
}
"""Eight layers on two nodes, its layout left open."""
