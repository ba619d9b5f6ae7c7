"""Twelve layouts counted again by hand: what the papers say a device sends, holds and computes, a few lines for each.

The count knows nothing of tpsim; the figures of the verb `plan` must be these to the last digit. Its sources:

Megatron     Shoeybi et al. 2019, arXiv 1909.08053, section 3: what is cut over t ranks, and the sums f and g
Korthikanti  Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2: the stream between the cuts is cut over s
ZeRO         Rajbhandari et al. 2020, arXiv 1910.02054, sections 3.1 and 5 (what is held) and 7 (what is sent)
FSDP         PyTorch, `torch.distributed.fsdp.fully_shard`: `reshard_after_forward`, gradients scattered per backward
             and then held in the parameters' own format (`_fsdp_collectives.py`, foreach_reduce)
GQA          Ainslie et al. 2023, arXiv 2305.13245: a key and value head serves several query heads
PaLM         Chowdhery et al. 2022, arXiv 2204.02311, appendix B: 6 N + 12 L H Q T FLOPs per token
rings        Patarasuk and Yuan 2009: a gather or a scatter of V bytes sends V (n-1)/n, an all-reduce is one of each

Symbols: t tensor ranks, D data ranks, m microbatches, b sequences of one microbatch on one device, s tokens, h hidden.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tpsim

BF16, F32, ADAM = 2, 4, 12
"""Bytes of an element; of Adam per bf16 weight: its f32 copy, momentum and variance (ZeRO 3.1, K = 12)."""


# --- the question ---


@dataclass(frozen=True)
class Model:
    """As published: Brown et al. 2020, table 2.1, vocabulary padded (Korthikanti, table 3); Llama 3's config.json."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    matrices: int  # of the MLP: 3 with a gate
    positions: int  # learned ones; 0 where they are rotary
    vectors: int  # 1 where a product adds a bias and a norm a shift
    tables: int  # of the vocabulary: 1 where input and output share it


MODELS = {
    "llama-3-70b": Model(80, 8192, 64, 8, 128, 28672, 128256, 3, 0, 0, 2),
    "gpt3-175b": Model(96, 12288, 96, 96, 128, 49152, 51200, 2, 2048, 1, 1),
}


@dataclass(frozen=True)
class Switches:
    """What a practice does, as `tpsim plan -v` prints it."""

    fused: bool = False  # queries, keys and values are one product
    per_use: bool = False  # each product that reads the stream has its cotangent summed by itself
    regather: bool = False  # backward gathers the stream again
    reshard: tuple[str, ...] = ()  # of these backward gathers the parameters again


PRACTICES = {
    "megatron": Switches(fused=True, regather=True, reshard=("layers", "ends")),
    "fsdp2": Switches(reshard=("layers",)),  # the root has the ends, and keeps them (_fsdp_state.py, _lazy_init)
    "xla": Switches(per_use=True, reshard=("layers",)),
    "ideal": Switches(),
}


@dataclass(frozen=True)
class Layout:
    model: str
    machine: str
    practice: str
    tp: int
    dp: int
    zero: int
    sp: bool
    batch: int
    seq: int
    microbatches: int
    gradient: int  # bytes of an element

    @property
    def tokens(self):
        """b*s"""
        return self.batch // self.dp // self.microbatches * self.seq


# --- the count ---


def ring(volume, ranks):
    """Bytes that a rank sends in one gather or one scatter of `volume` bytes; an all-reduce is both (rings)."""
    return Fraction(volume) * (ranks - 1) / ranks


def weights(q):
    """(where, how often, elements on a tensor rank, tensor ranks over which their gradient is a partial sum)."""
    w, t = MODELS[q.model], q.tp
    queries, keys = w.heads * w.head_dim, w.kv_heads * w.head_dim
    copies = max(1, t // w.kv_heads)  # GQA: every rank holds the key and value head of its queries
    stream = t if q.sp else 1  # Korthikanti: between the cuts a rank sees s/t tokens
    cut = 2 * w.hidden * queries + w.matrices * w.hidden * w.ffn  # Megatron: Wq, Wo, the MLP
    cut += w.vectors * (queries + (w.matrices - 1) * w.ffn)  # Megatron: a bias is cut with its columns
    kv = 2 * keys * (w.hidden + w.vectors)  # Wk, Wv, their biases
    norms = w.hidden * (2 + 4 * w.vectors)  # two gains; two shifts, and the two biases that follow the sums
    ends = w.hidden * (1 + w.vectors + w.positions)  # the last norm, learned positions
    return [
        ("layers", w.layers, Fraction(cut, t), 1),
        ("layers", w.layers, Fraction(kv * copies, t), copies),
        ("layers", w.layers, Fraction(norms), stream),
        ("ends", 1, Fraction(w.tables * w.vocab * w.hidden, t), 1),  # Megatron: the vocabulary is cut
        ("ends", 1, Fraction(ends), stream),
    ]


def activations(q):
    """Bytes that a device sends per step for activations and their cotangents, by phase and block."""
    w, does, sp = MODELS[q.model], PRACTICES[q.practice], q.sp
    half = ring(q.tokens * w.hidden * BF16, q.tp)  # a gather or a scatter of the stream: half an all-reduce
    sent = {}
    for block, reads in (("attention", 1 if does.fused else 3), ("mlp", w.matrices - 1)):
        sums = reads if does.per_use else 1
        sent["forward", block] = w.layers * 2 * half  # Megatron: g; Korthikanti: gather and scatter
        # Megatron: f; Korthikanti: gather, scatter, and the input gathered again where it was not kept
        sent["backward", block] = w.layers * half * (1 + sums + does.regather if sp else 2 * sums)
    sent["forward", "embedding"] = half * (1 if sp else 2)  # Megatron: g after the cut table; Korthikanti: scatter
    sent["backward", "embedding"] = half * sp  # Korthikanti: the scatter's transpose
    sent["forward", "head"] = half * sp  # Korthikanti: gather before the cut table
    sent["backward", "head"] = half * (1 + does.regather if sp else 2)  # Megatron: f; Korthikanti: scatter
    sent["forward", "loss"] = 3 * 2 * ring(q.tokens * F32, q.tp)  # Megatron: maximum, sum, target logit per token
    step = Counter({place: bytes_ * q.microbatches for place, bytes_ in sent.items()})
    step["forward", "loss"] += 2 * ring(F32, q.dp)  # the mean loss of the step, to be reported
    return +step


def updates(q):
    """Bytes that a device sends per step for gradients and parameters, by what, where and over how many ranks."""
    m, sent = q.microbatches, Counter()
    for where, often, elements, partial in weights(q):
        gradient, weight = often * elements * q.gradient, often * elements * BF16
        if q.zero == 0:  # data parallelism: one sum per step over all who hold a part
            sent["gradients", where, q.dp * partial] += 2 * ring(gradient, q.dp * partial)
        else:  # ZeRO 7.2.1: scattered to the owner; FSDP: per microbatch, where nobody else keeps them
            sent["gradients", where, q.dp] += ring(gradient, q.dp) * (m if q.zero > 1 else 1)
            sent["gradients", where, partial] += 2 * ring(gradient / q.dp, partial)  # the owners' sum, once per step
        if q.zero in {1, 2}:  # ZeRO 7.2.1: the new weights are gathered once
            sent["new weights", where, q.dp] += ring(weight, q.dp)
        if q.zero == 3:  # ZeRO 7.2.2: gathered for forward, and once again for backward; FSDP: unless they were kept
            sent["parameters", where, q.dp] += ring(weight, q.dp) * m * (1 + (where in PRACTICES[q.practice].reshard))
    return +sent


def held(q):
    """Bytes on a device from step to step, each kind cut over the data ranks from its ZeRO stage on (ZeRO 5)."""
    elements = sum(often * one for _, often, one, _ in weights(q))
    waits = q.zero == 1 and q.dp > 1  # for the end of the step, when they are scattered
    gradient = BF16 if q.practice == "fsdp2" and not waits else q.gradient
    kinds = {"parameters": (BF16, 3), "gradients": (gradient, 2), "optimizer": (ADAM, 1)}
    return {kind: elements * size / (q.dp if q.zero >= stage else 1) for kind, (size, stage) in kinds.items()}


def flops(q):
    """Of one device and step: 6 per token and matrix element, 12 s per token, layer and query column (PaLM).

    2 s more where attention is fused, whose backward computes the scores again (FlashAttention).
    """
    w, t = MODELS[q.model], q.tp
    queries, keys = w.heads * w.head_dim, w.kv_heads * w.head_dim
    matrices = Fraction(2 * w.hidden * queries + w.matrices * w.hidden * w.ffn, t)  # Megatron: Wq, Wo, the MLP
    matrices += Fraction(2 * w.hidden * keys, min(t, w.kv_heads))  # GQA: a head held twice is computed twice
    per_token = w.layers * (6 * matrices + Fraction(14 * q.seq * queries, t)) + Fraction(6 * w.hidden * w.vocab, t)
    return q.microbatches * q.tokens * per_token


# --- the twelve, and what `plan` says of them ---

LAYOUTS = [
    Layout("llama-3-70b", "dgx-h100", "megatron", 8, 32, 1, True, 512, 4096, 4, F32),
    Layout("llama-3-70b", "trn2-ultra", "megatron", 16, 4, 1, False, 16, 4096, 1, F32),
    Layout("llama-3-70b", "tpu-v5p", "xla", 16, 8, 3, True, 64, 4096, 2, BF16),
    Layout("llama-3-70b", "dgx-h100", "fsdp2", 1, 128, 3, False, 256, 8192, 2, F32),
    Layout("llama-3-70b", "dgx-h100", "fsdp2", 2, 32, 2, True, 256, 8192, 4, BF16),
    Layout("llama-3-70b", "tpu-v5p", "ideal", 4, 8, 0, False, 32, 4096, 2, F32),
    Layout("gpt3-175b", "dgx-h100", "megatron", 8, 1, 0, True, 8, 2048, 8, F32),
    Layout("gpt3-175b", "dgx-h100", "megatron", 8, 16, 3, True, 128, 2048, 4, BF16),
    Layout("gpt3-175b", "tpu-v5p", "xla", 4, 8, 0, False, 32, 2048, 2, F32),
    Layout("gpt3-175b", "tpu-v5p", "xla", 2, 64, 2, False, 256, 2048, 4, F32),
    Layout("gpt3-175b", "dgx-h100", "fsdp2", 2, 32, 3, True, 128, 2048, 2, BF16),
    Layout("gpt3-175b", "trn2-ultra", "ideal", 16, 4, 1, True, 32, 2048, 2, F32),
]

twelve = pytest.mark.parametrize(
    "q", LAYOUTS, ids=lambda q: f"{q.model}-{q.practice}-tp{q.tp}-dp{q.dp}-zero{q.zero}{'-sp' * q.sp}"
)


@cache
def planned(q):
    asked = {name: getattr(q, name) for name in ("model", "practice", "tp", "dp", "zero", "sp", "batch", "seq")}
    dtype = {BF16: "bf16", F32: "f32"}[q.gradient]
    overrides = ["workload.dtype=bf16", f"workload.grad_dtype={dtype}", "practice.clip=none"]  # a number per device
    return tpsim.plan(**asked, hw=q.machine, microbatches=q.microbatches, overrides=overrides)


def sent(q, *, activation):
    """Wire bytes per step of `plan`'s rows: of activations by phase and block, else by what, where and ranks."""
    total = Counter()
    for row in planned(q).collectives:
        what = {"gradient": "gradients", "state": "new weights", "param": "parameters"}.get(row["op"])
        where = "ends" if row["layer"] is None else "layers"
        place = (what, where, row["ranks"]) if what else (row["phase"], row["block"])
        total[place] += Fraction(row["wire_bytes_per_device"]) * row["count"] * (activation != bool(what))
    return +total


def remembered(q):
    memory = planned(q).memory
    return {kind: getattr(memory, f"{kind}_bytes") for kind in ("parameters", "gradients", "optimizer")}


@twelve
def test_activations_send_what_tensor_and_sequence_parallelism_say(q):
    assert sent(q, activation=True) == activations(q)


@twelve
def test_gradients_and_parameters_send_what_zero_says(q):
    assert sent(q, activation=False) == updates(q)


@twelve
def test_a_chip_holds_what_zero_says(q):
    assert remembered(q) == held(q)


@twelve
def test_a_chip_computes_what_palm_says(q):
    assert planned(q).compute.flops == flops(q)


def test_the_twelve_cover_models_machines_practices_and_stages():
    seen = {field: {getattr(q, field) for q in LAYOUTS} for field in Layout.__dataclass_fields__}
    assert seen["model"] == set(MODELS)
    assert seen["practice"] == set(PRACTICES)
    assert seen["tp"] == {1, 2, 4, 8, 16}
    assert seen["zero"] == {0, 1, 2, 3}
    assert seen["sp"] == {False, True}
    assert len(seen["machine"]) == 3


# --- and of any other ---


@st.composite
def layouts(draw):
    """Legal questions of the two models: heads, hidden and the sequence divide by every tp and dp drawn."""
    tp, dp = draw(st.sampled_from([1, 2, 4, 8, 16, 32])), draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]))
    m, zero = draw(st.sampled_from([1, 2, 3, 8])), draw(st.integers(0, 3))
    seq, each = draw(st.sampled_from([512, 1536, 2048])), draw(st.integers(1, 3))
    model, practice = draw(st.sampled_from(sorted(MODELS))), draw(st.sampled_from(sorted(PRACTICES)))
    sp, gradient = draw(st.booleans()), draw(st.sampled_from([BF16, F32]))
    return Layout(model, "dgx-h100", practice, tp, dp, zero, sp, dp * m * each, seq, m, gradient)


@settings(max_examples=15)
@given(layouts())
def test_any_layout_of_both_models_is_what_the_papers_say(q):
    assert sent(q, activation=True) == activations(q)
    assert sent(q, activation=False) == updates(q)
    assert remembered(q) == held(q)
    assert planned(q).compute.flops == flops(q)
