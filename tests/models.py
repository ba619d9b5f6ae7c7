"""Small models for tests: every size divides by every mesh that a test uses."""

from __future__ import annotations

from dataclasses import replace

from tpsim.program.kinds import ALIKE
from tpsim.program.model import LayerKind, Moe, dense
from tpsim.program.transformer import end_parameters, layer_parameters


def deep(model, layers):
    """A model of one kind with so many layers."""
    return replace(model, stack=((ALIKE, layers),))


def blocks(model, attention=None, ffn=None):
    """A model of one kind with some fields of its blocks changed."""
    (kind,) = model.kinds.values()
    changed = LayerKind(kind.attention.model_copy(update=attention), kind.ffn.model_copy(update=ffn))
    return replace(model, kinds={ALIKE: changed})


def parameters(model):
    """Every parameter of a model of one kind, those of a layer once."""
    return (*end_parameters(model), *layer_parameters(model, *model.kinds.values()))


def loops(layers, microbatches=1):
    """How often the loops of a program run."""
    return {"layers": layers, "microbatches": microbatches, "chunks": 1}


LLAMA = dense(
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

GPT = dense(
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

QWEN = replace(blocks(LLAMA, {"bias": "qkv"}, {"kind": "geglu"}), name="small-qwen", tie_embeddings=True)
"""Biases on the projections only."""

GEMMA = replace(blocks(QWEN, {"kv_heads": 1}), name="small-gemma")
"""One key/value head for all queries: no tensor parallelism splits it."""


def mixture(**fields):
    """LLAMA with experts in place of its MLP."""
    (kind,) = LLAMA.kinds.values()
    block = Moe(ffn="moe", **{"experts": 8, "top": 2, "hidden": 8, **fields})
    return replace(LLAMA, name="small-mixture", kinds={ALIKE: LayerKind(kind.attention, block)})


MIXTURE = mixture()
"""Experts in place of an MLP, two of eight for a token."""

MIDDLE = dense(
    name="middle-llama",
    hidden=4096,
    layers=6,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn="swiglu",
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
