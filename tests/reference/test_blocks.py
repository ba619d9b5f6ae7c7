"""Models of several kinds of layers, with every option of attention and of norms, against the unsharded run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.models import LLAMA
from tests.reference.judge import difference, run, unsharded
from tpsim.algebra.mesh import Mesh
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.model import Attention, Latent, LayerKind, Mlp
from tpsim.program.op import Einsum, Reshard
from tpsim.program.practice import Practice
from tpsim.program.serving import Serving, lower_serving

HEADS = {"heads": 8, "kv_heads": 4, "head_dim": 4}
MLP = Mlp(kind="swiglu_clamped", hidden=32, bias=True)
NEAR = Attention(**HEADS, mask="window", window=3, softcap=0.5, scale=2.0, qk_norm="all", bias="all")
FAR = Attention(**HEADS, sinks=True, qk_norm="head", rope=False)
CHUNK = Attention(**HEADS, mask="chunk", window=4, bias="all")
GEMMA = replace(
    LLAMA,
    name="small-gemma-3",
    kinds={"near": LayerKind(NEAR, MLP), "far": LayerKind(FAR, MLP)},
    stack=(("near", 1), ("far", 1)),
    norms="both",
    tie_embeddings=True,
    embedding_scale=True,
    logit_softcap=0.8,
)
"""Local and global layers, each with options that the other has not."""

LLAMA_4 = replace(
    LLAMA,
    name="small-llama-4",
    kinds={"chunk": LayerKind(CHUNK, MLP), "whole": LayerKind(FAR, MLP)},
    stack=(("chunk", 1), ("whole", 1)),
    norms="post",
)
LATENT = Latent(heads=4, query_rank=8, kv_rank=8, nope=4, rope=2, value=6)
DEEPSEEK = replace(
    LLAMA,
    name="small-deepseek",
    kinds={
        "narrow": LayerKind(LATENT, Mlp(kind="swiglu", hidden=32)),
        "straight": LayerKind(LATENT.model_copy(update={"query_rank": None}), Mlp(kind="swiglu", hidden=32)),
    },
    stack=(("narrow", 1), ("straight", 1)),
    mtp=("narrow", 1),
)
MODELS = {model.name: model for model in (GEMMA, LLAMA_4, DEEPSEEK)}


@cache
def whole(name, practice):
    return unsharded(MODELS[name], practice)


@pytest.mark.parametrize(
    ("name", "zero", "sequence_parallel", "practice"),
    [
        (GEMMA.name, 1, True, PRACTICES["megatron"]),
        (GEMMA.name, 3, False, Practice(attention="plain")),
        (DEEPSEEK.name, 1, True, PRACTICES["megatron"]),
        (DEEPSEEK.name, 3, False, Practice(attention="plain")),
        (DEEPSEEK.name, 1, True, Practice(recompute=("full",), replay="whole")),
        (DEEPSEEK.name, 3, False, Practice(recompute=("full",), replay="needed")),
        (DEEPSEEK.name, 1, False, Practice(recompute=("full",), replay="whole", recompute_layers=1)),
        (LLAMA_4.name, 2, True, Practice(recompute=("full",), replay="whole", recompute_layers=1)),
    ],
)
def test_layers_of_several_kinds_equal_the_unsharded_program(name, zero, sequence_parallel, practice):
    where = layout(tp=("X",), dp=("D",), zero=zero, sequence_parallel=sequence_parallel)
    sharded = run(MODELS[name], where, practice, Mesh({"D": 2, "X": 2}))
    assert difference(sharded, whole(name, practice)) < 1e-10


def test_what_predicts_further_tokens_is_for_training_alone():
    served = lower_serving(DEEPSEEK, layout(), Practice(), Dtypes(), (), serving=Serving(phase="decode"))
    assert not [op.output.name for op in served.ops if "mtp" in op.output.name]


@pytest.mark.parametrize("replay", ["whole", "needed"])
def test_what_predicts_further_tokens_is_recomputed_as_layers_are_unless_some_of_these_alone_are(replay):
    """Its layer, and the norms and products around it; what looks words up, and its logits, run once in any case."""

    def replayed(**drop):
        ops = whole(DEEPSEEK.name, Practice(replay=replay, **drop)).program.ops
        products = [op for op in ops if isinstance(op, Einsum) and op.where.again == "replay"]
        return [{op.output.name for op in products if op.where.place == place} for place in ("layer", "head")]

    of_layer, further = replayed(recompute=("full",))
    joined = {"mtp.stream", "mtp.embedding"}
    norms = {name for name in further - of_layer if name.startswith("mtp_")}
    assert of_layer
    assert {name.partition(".")[0] for name in norms} == {"mtp_stream", "mtp_embedding", "mtp_final"}
    assert further - norms - {"mlp.out"} == of_layer - {"mlp.out"} | joined
    assert "mlp.out" in further  # the last norm reads it; what the next layer reads is kept
    assert replayed(recompute=("full",), recompute_layers=1)[1] == set()
    assert replayed() == [set(), set()]


CUBE = Mesh({"D": 2, "C": 2, "X": 2})
KEYS = ("attention.latents", "attention.rotated_keys")


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_tokens_that_devices_share_travel_as_latents(zero):
    """One gather of latents and one of rotated keys forward, their scatters backward; ZeRO shards what they are."""
    shared = {"cp": ("C",), "dp": ("D",), "tp": ("X",), "sequence_parallel": True, "besides": ("u", "x")}
    where = layout(**shared, zero=zero)
    sharded = run(DEEPSEEK, where, Practice(), CUBE)
    assert difference(sharded, whole(DEEPSEEK.name, Practice())) < 1e-10
    if zero:
        assert {"u": ("D", "C"), "x": ("D", "C")}.items() <= where.table["state"].items()
    for act, sends in (("F", ["all_gather [b_D, t_C, x]", "all_gather [b_D, t_C, a]"]), ("B", SCATTERS)):
        moves = [
            f"{move.kind} {move.before}"
            for op in sharded.program.ops
            if isinstance(op, Reshard) and op.output.name.removeprefix("d.") in KEYS and op.where.act == act
            for move in op.moves
            if move.kind != "slice"
        ]
        assert Counter(moves) == dict.fromkeys(sends, 2 * 3)  # microbatches, layers and what predicts a token more


SCATTERS = ["reduce_scatter [b_D, t, x]{U_CX}", "reduce_scatter [b_D, t, a]{U_CX}"]
"""Over C alone: what heads owe over X is settled where the latent was made."""

NARROW = replace(DEEPSEEK, name="small-deepseek-narrow", stack=(("narrow", 2),), mtp=None)
COMPRESSED = {
    "query.normed": "[b_D, s_X, u]",
    "attention.latents": "[b_D, t_X, x]",
    "attention.k_rope": "[b_D, s_X, a]",
}
"""What travels in the stream's place, as it is made where the stream's tokens are split."""


def moved(program, acts, kind):
    """Of attention's activations over X, how often in a layer and microbatch."""
    moves = [
        f"{op.output.name} {move.before}"
        for op in program.ops
        if isinstance(op, Reshard) and op.where.block == "attention" and op.where.act in acts
        for move in op.moves
        if move.kind == kind and move.axes == ("X",) and op.output.role == "activation"
    ]
    return {name: many / 4 for name, many in Counter(moves).items()}


@pytest.mark.parametrize("zero", [0, 3])
def test_latents_that_are_made_where_the_stream_lies_travel_in_its_place(zero):
    """As Megatron-LM's do: products that compress are duplicated, those behind them gather tokens."""
    where = layout(tp=("X",), dp=("D",), zero=zero, sequence_parallel=True, besides=("u", "x"))
    practice = PRACTICES["megatron"]
    sharded = run(NARROW, where, practice, CUBE)
    assert difference(sharded, unsharded(NARROW, practice)) < 1e-10
    gathered = {f"{name} {made}": 1 for name, made in COMPRESSED.items()}
    assert moved(sharded.program, "F", "all_gather") == gathered
    again = {one: 1 for one in gathered if "k_rope" not in one}  # attention keeps its keys
    assert moved(sharded.program, "BW", "all_gather") == {"d.attention.out [b_D, s_X, h]": 1, **again}
    back = {f"d.{name} {made.replace('_X', '').replace(']', ']{U_X}')}": 1 for name, made in COMPRESSED.items()}
    assert moved(sharded.program, "BW", "reduce_scatter") == back


def test_what_heads_owe_of_latents_is_settled_at_them_where_tokens_are_whole():
    where = layout(tp=("X",), dp=("D",), zero=1, besides=("u", "x"))
    sharded = run(NARROW, where, PRACTICES["megatron"], CUBE)
    assert difference(sharded, unsharded(NARROW, PRACTICES["megatron"])) < 1e-10
    owed = {f"d.{name} {made.replace('_X', '').replace(']', ']{U_X}')}": 1 for name, made in COMPRESSED.items()}
    assert moved(sharded.program, "BW", "all_reduce") == owed
    block = run(NARROW, where, replace(PRACTICES["megatron"], latents="block"), CUBE)
    assert moved(block.program, "BW", "all_reduce") == {"d.attention.in [b_D, s, h]{U_X}": 1}


@pytest.mark.parametrize("sequence_parallel", [True, False])
@pytest.mark.parametrize("name", [DEEPSEEK.name, NARROW.name])
def test_latents_of_the_stream_s_tokens_may_have_context_beside_them(name, sequence_parallel):
    model, practice = {**MODELS, NARROW.name: NARROW}[name], Practice(latents="stream", regather=True)
    shared = {"cp": ("C",), "dp": ("D",), "tp": ("X",), "sequence_parallel": sequence_parallel}
    sharded = run(model, layout(**shared, zero=2, besides=("u", "x")), practice, CUBE)
    assert difference(sharded, unsharded(model, practice)) < 1e-10


def test_latents_are_those_of_the_block_where_heads_are_not_split():
    assert PRACTICES["megatron"].under(layout(dp=("D",))).latents == "block"
    assert PRACTICES["megatron"].under(layout(tp=("X",))).latents == "stream"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("practice", [Practice(), Practice(attention="plain")], ids=["fused", "plain"])
def test_gradients_of_every_option_equal_finite_differences(name, practice):
    """Along one direction through all parameters at once."""
    base, step, rng = whole(name, practice), 1e-5, np.random.default_rng(0)
    labels = [key.removeprefix("grad.") for key in base.program.results if key.startswith("grad.")]
    grads = {label: base.value(base.program.results[f"grad.{label}"]) for label in labels}
    values = {label: base.inputs(label, grads[label].shape) for label in labels}
    ways = {label: rng.normal(size=value.shape) for label, value in values.items()}
    for chosen in (labels, [label for label in labels if "sinks" in label or "gain_q" in label]):
        losses = []
        for sign in (1, -1):
            moved = {label: values[label] + sign * step * ways[label] for label in chosen}
            shifted = unsharded(MODELS[name], practice, replaced=moved)
            losses.append(float(shifted.value(shifted.program.results["loss"])))
        derived = sum(float(np.sum(grads[label] * ways[label])) for label in chosen)
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(derived, rel=1e-5, abs=1e-8)


def test_the_window_is_seen_by_what_it_hides():
    """A wider window changes the loss, until it is as long as the sequence: then it is a causal mask."""
    masks = ({"mask": "window", "window": 3}, {"mask": "window", "window": 8}, {"mask": "causal", "window": None})
    models = [
        replace(LLAMA, kinds={"layers": LayerKind(Attention(**HEADS, **mask), Mlp(kind="swiglu", hidden=32))})
        for mask in masks
    ]
    losses = [float(one.value(one.program.results["loss"])) for one in (unsharded(m, Practice()) for m in models)]
    assert losses[0] != pytest.approx(losses[1])
    assert losses[1] == losses[2]


HANDED = {
    "gathered": ({"cp": ("C",)}, "gather", {("all_gather", False)}),
    "ring": ({"cp": ("C",)}, "ring", {("all_gather", True)}),
    "heads": ({"cp": ("C",), "heads": ("C",)}, "gather", {("all_to_all", False)}),
    "both": ({"cp": ("C", "D"), "heads": ("D",)}, "ring", {("all_to_all", False), ("all_gather", True)}),
}
"""How devices share a sequence, and how keys and values of heads travel forward then."""


@pytest.mark.parametrize("latents", ["block", "stream"])
@pytest.mark.parametrize("way", HANDED)
def test_keys_and_values_made_of_latents_where_their_tokens_are_may_travel_in_place_of_these(way, latents):
    roles, context, sends = HANDED[way]
    practice = Practice(context=context, order="zigzag", handed="heads", latents=latents, regather=True)
    where = layout(tp=("X",), sequence_parallel=True, **roles)
    sharded = run(NARROW, where, practice, CUBE)
    assert difference(sharded, unsharded(NARROW, Practice(handed="heads"))) < 1e-10
    moves = [
        (op.output.name.rpartition(".")[2], move.kind, move.streamed)
        for op in sharded.program.ops
        if isinstance(op, Reshard) and op.where.act == "F" and "t" in op.output.dims
        for move in op.moves
        if move.axes != ("X",)
    ]
    kinds = {(kind, streamed) for _, kind, streamed in moves}
    assert Counter(name for name, *_ in moves) == dict.fromkeys(("k", "rotated_keys", "v"), 4 * len(kinds))
    assert kinds == sends


@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize("axes", [("C",), ("C", "D")], ids=["heads", "both"])
def test_latents_that_are_handed_on_to_devices_with_heads_of_their_own_make_keys_and_values_of_these_alone(axes, zero):
    """Nothing of a key or a value travels, and no cotangent of one: what heads owe of a latent is scattered at it."""
    where = layout(
        cp=axes, heads=axes[-1:], tp=("X",), sequence_parallel=True, zero=zero, besides=("u", "x"), latents=True
    )
    practice = Practice(order="zigzag")
    sharded = run(NARROW, where, practice, CUBE)
    assert difference(sharded, unsharded(NARROW, Practice())) < 1e-10
    kinds = {
        (op.where.act, op.output.name.removeprefix("d."), move.kind)
        for op in sharded.program.ops
        if isinstance(op, Reshard) and {*op.output.dims} & {"t"}
        for move in op.moves
        if move.kind != "slice"
    }
    forward = {("F", name, "all_gather") for name in KEYS}
    assert kinds == forward | {("B", name, "reduce_scatter") for name in KEYS}
