"""Linear attention (Qwen3-Next, Kimi Linear): its recurrence, FLOPs and bytes by hand, states, and runs on devices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import tpsim
from tpsim.claims.verify import verify
from tpsim.cost.compute import kernel_s
from tpsim.cost.memory import kept, local_bytes
from tpsim.program.model_file import load_model
from tpsim.program.op import Array
from tpsim.program.recurrence import Recurrence
from tpsim.quantity.errors import InputError
from tpsim.reference import recurrence as reference
from tpsim.reference.functions import INDEX
from tpsim.reference.run import Run

CONFIGS = Path(__file__).parents[1] / "data" / "hf"
DELTA, KDA = "qwen3-next-80b-a3b", "kimi-linear-48b-a3b"
GROUPS, GROUP = (str(CONFIGS / f"{name}.json") for name in ("nemotron-3-nano-30b", "granite-4.0-h-small"))
LAYERS, HEADS, KEY_HEADS, DIM, TAPS, CHUNK = 36, 32, 16, 128, 4, 64
TRAIN = {"global_batch": 64, "seq": 4096, "dtype": "bf16"}
DECODE = {"kind": "decode", "batch": 64, "context": 4096, "dtype": "bf16"}
PROMPT = {"kind": "prefill", "batch": 64, "prompt": 4096, "dtype": "bf16"}
SMALL = {"mesh": {"data": 2, "tensor": 2}, "layout": {"dp": "data", "tp": "tensor"}}


def asked(work=TRAIN, model=DELTA, mesh=None, **layout):
    """A scenario on eight data shards, unless a mesh is given with its layout."""
    return {
        "tpsim": "scenario/1",
        "name": "linear",
        "model": model,
        "hardware": "dgx-h200",
        "mesh": mesh or {"data": 8},
        "layout": layout or {"dp": "data", "ep": "data"},
        "workload": work,
    }


def kernel(plan, act="F"):
    """The kernel of the recurrence of a linear layer."""
    return next(one for one in plan.lowered.kernels if one.in_chunks and one.where.act == act)


# The recurrence ----------------------------------------------------------------------------------------------------

BATCH, TOKENS, KEYS, VALUES, WIDE, MADE = 2, 5, 2, 3, 4, 3
DIMS = (("b", "s", "lg", "ld"), ("b", "s", "lg", "ld"), ("b", "s", "lg", "lr", "lo"), *[("b", "s", "lg", "lr")] * 2)
BY_KEY = (*DIMS[:3], ("b", "s", "lg", "lr", "ld"), DIMS[4])
SIZES = {"b": BATCH, "s": TOKENS, "lg": KEYS, "lr": VALUES, "ld": WIDE, "lo": MADE}


def operands(dims, seed=0):
    """Queries, keys, values, logarithms of decays, strengths."""
    rng = np.random.default_rng(seed)
    drawn = [rng.normal(size=[SIZES[dim] for dim in own]) for own in dims]
    return [*drawn[:3], -np.abs(drawn[3]), 1 / (1 + np.exp(-drawn[4]))]


def in_one_go(q, k, v, g, strength, *, delta=True):
    """The same as products of all tokens with all: what a token writes is solved for, not run through."""
    g = g if g.ndim == 5 else np.repeat(g[..., None], WIDE, axis=-1)
    fallen = np.cumsum(g, axis=1)
    between = np.exp(fallen[:, :, None] - fallen[:, None, :])  # b s t g r d
    met = np.einsum("bsgd,btgd,bstgrd->bgrst", k, k, between) * np.tri(TOKENS, k=-1)
    seen = np.einsum("bsgd,btgd,bstgrd->bgrst", q, k, between) * np.tri(TOKENS)
    scaled = np.moveaxis(strength, 1, -1)  # b g r s
    found = np.eye(TOKENS) + scaled[..., None] * met * delta
    written = np.linalg.solve(found, scaled[..., None] * np.einsum("bsgro->bgrso", v))
    return np.einsum("bgrst,bgrto->bsgro", seen, written)


RULES = pytest.mark.parametrize(
    ("dims", "delta"), [(DIMS, True), (BY_KEY, True), (DIMS, False)], ids=["gated_delta", "kda", "mamba2"]
)


@RULES
def test_token_after_token_is_what_solving_for_all_of_them_gives(dims, delta):
    drawn = operands(dims)
    read, _ = reference._run(dims, drawn, delta=delta)
    assert np.allclose(read, in_one_go(*drawn, delta=delta), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("place", range(5))
@RULES
def test_a_cotangent_is_what_a_small_change_of_its_operand_does(dims, delta, place):
    drawn, dy = operands(dims), np.random.default_rng(1).normal(size=(BATCH, TOKENS, KEYS, VALUES, MADE))
    pulled = reference._pulled(place, dims, [dy, *drawn], delta=delta)
    change = np.random.default_rng(2).normal(size=drawn[place].shape)
    ends = []
    for step in (1e-6, -1e-6):
        moved = [x + step * change if at == place else x for at, x in enumerate(drawn)]
        ends.append((reference._run(dims, moved, delta=delta)[0] * dy).sum())
    assert (pulled * change).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_a_state_goes_on_where_it_was_left():
    drawn = operands(DIMS)
    whole, end = reference._run(DIMS, drawn)
    first, left = reference._run(DIMS, [x[:, :3] for x in drawn])
    begun = (*DIMS, ("b", "lg", "lr", "ld", "lo"))
    rest, last = reference._run(begun, [*(x[:, 3:] for x in drawn), left])
    assert np.allclose(np.concatenate([first, rest], axis=1), whole)
    assert np.allclose(last, end)


# FLOPs and bytes ---------------------------------------------------------------------------------------------------


def test_forward_flops_are_those_of_the_closed_form_and_backward_has_twice_as_many():
    """Kimi Linear (2025), equation 13, per head: 6Td^2 + 3TCd + TC^2."""
    plan = tpsim.plan(asked())
    tokens = 4096 * 64 // 8
    head = 6 * tokens * DIM**2 + 3 * tokens * CHUNK * DIM + tokens * CHUNK**2
    assert kernel(plan).flops(plan.sizes) == HEADS * head
    assert kernel(plan, "B").flops(plan.sizes) == 2 * HEADS * head
    assert kernel(plan).useful_flops(plan.sizes) == 8 * HEADS * head


def test_without_a_delta_rule_heads_share_the_products_of_their_key_head():
    """By hand: of 64 heads of 64 numbers in 8 groups with states of 128, in chunks of 128 tokens."""
    plan = tpsim.plan(asked(model=GROUPS))
    tokens = 4096 * 64 // 8
    heads = 64 * (2 * 2 * 128 * 64 + 128 * 64)  # into the state, out of it, and within a chunk
    groups = 8 * 128 * 128
    assert kernel(plan).flops(plan.sizes) == tokens * (heads + groups)
    assert kernel(plan, "B").flops(plan.sizes) == 2 * tokens * (heads + groups)


def test_a_scan_by_chunks_moves_states_and_squares_in_full_precision():
    """By state-spaces/mamba's forward: states of chunks, these in turn, products of keys and queries."""
    plan = tpsim.plan(asked(model=GROUPS))
    one, tokens, chunk = kernel(plan), 4096 * 64 // 8, 128
    keys, values = 2 * 8 * 128, 2 * 64 * 64
    states, squares = 64 * 128 * 64 / chunk, 4 * 8 * chunk
    made, in_turn, products = keys + values + 4 * states, 6 * states, 2 * keys + 2 * squares + 2 * states
    assert one.passed_bytes(plan.sizes) == tokens * (made + in_turn + products)
    assert (len(one.passes), len(kernel(plan, "B").passes)) == (3, 12)


def test_heads_of_one_key_head_are_split_and_share_its_keys():
    """Granite: all heads read one group, so that its keys are on every device and a norm owes a sum."""
    plan = tpsim.plan(asked(model=GROUP, mesh={"data": 2, "tensor": 4}, dp="data", tp="tensor"))
    assert plan.question.layout.table["*"]["lr"] == ("tensor",)
    assert "lg" not in plan.question.layout.table["*"]
    owed = [row for row in plan.rows if row.array == "state.squares" and row.phase == "forward"]
    assert owed
    assert {row.collective for row in owed} == {"all_reduce"}


def test_a_step_of_decoding_is_one_chunk_of_its_own_tokens():
    for tokens in (1, 4):
        plan = tpsim.plan(asked({**DECODE, "tokens": tokens}))
        head = 6 * DIM**2 + 3 * tokens * DIM + tokens**2
        assert kernel(plan).flops(plan.sizes) == 8 * tokens * HEADS * head


def test_a_chunked_kernel_moves_what_its_parts_hand_on():
    """By flash-linear-attention's forward: w, u, the inverse, the states before chunks, and what is written."""
    plan = tpsim.plan(asked())
    one, tokens = kernel(plan), 4096 * 64 // 8
    keys, values, small = KEY_HEADS * DIM, HEADS * DIM, HEADS
    inverse = HEADS * CHUNK  # which it keeps
    own = 2 * (2 * keys + 2 * values + small + inverse) + 4 * small  # strengths in bf16, decays in f32
    assert one.memory_bytes(plan.sizes) == tokens * own
    w = u = values
    states = HEADS * DIM * DIM / CHUNK
    passed = (2 * (w + u) + keys) + (2 * states + 2 * u + keys)
    assert one.passed_bytes(plan.sizes) == tokens * 2 * passed
    assert len(one.passes) == 2
    assert len(kernel(plan, "B").passes) == 6


def test_a_state_is_as_large_whatever_was_read():
    state = LAYERS * HEADS * DIM * DIM * 4
    rows = LAYERS * (TAPS - 1) * (2 * KEY_HEADS + HEADS) * DIM * 2
    whole = 12 * 2 * 2 * 256 * 2
    for context in (4096, 65_536):
        plan = tpsim.plan(asked({**DECODE, "context": context}))
        assert plan.serve.state_bytes_per_sequence == state + rows == 77_266_944
        assert plan.serve.cache_bytes_per_token == whole
        assert plan.memory.cache_bytes == 8 * (state + rows + whole * context)


def test_the_dtype_of_keys_and_values_is_not_that_of_states():
    """They are in f32, and what convolutions keep in the dtype of activations."""
    plain, packed = (tpsim.plan(asked({**DECODE, **more})) for more in ({}, {"cache_dtype": "fp8_128"}))
    assert packed.serve.cache_bytes_per_token < plain.serve.cache_bytes_per_token
    assert packed.serve.state_bytes_per_sequence == plain.serve.state_bytes_per_sequence


def test_decoding_reads_and_writes_the_state_of_every_sequence():
    plan = tpsim.plan(asked(DECODE))
    one = kernel(plan)
    held = [x for x in (*one.reads, *one.writes) if x.dims == ("b", "lg", "lr", "ld", "lo")]
    assert len(held) == 2
    assert sum(local_bytes(x, plan.sizes) for x in held) == 2 * 8 * HEADS * DIM * DIM * 4
    assert one.memory_bytes(plan.sizes) > 0.99 * 2 * 8 * HEADS * DIM * DIM * 4
    assert one.passes == ()
    assert not one.fused  # what is read and the state behind it are made by one kernel that is no attention


def test_a_layer_of_linear_attention_takes_as_long_at_any_context(tmp_path):
    """A model of nothing else: a step of decoding does not know how long its sequences are."""
    path = alone(tmp_path)
    took = [tpsim.plan(asked({**DECODE, "context": context}, path, dp="data")).step.time_s for context in (64, 65_536)]
    assert took[0] == took[1]
    prompts = [tpsim.plan(asked({**PROMPT, "prompt": prompt}, path, dp="data")).step for prompt in (8192, 16_384)]
    assert prompts[1].time_s / prompts[0].time_s == pytest.approx(2, rel=0.02)


def alone(folder, ffn=4096, **changes):
    """A model of linear attention and plain feed-forwards alone."""
    block = {"attention": "linear", "heads": 16, "key_heads": 8, "key_dim": 64, "value_dim": 64, **changes}
    model = {
        "tpsim": "model/2",
        "name": "alone",
        "hidden": 1024,
        "vocab": 32_000,
        "blocks": {"linear": block, "dense": {"ffn": "mlp", "kind": "swiglu", "hidden": ffn}},
        "layers": [{"repeat": 8, "of": ["linear", "dense"]}],
    }
    (folder / "alone.json").write_text(json.dumps(model))
    return str(folder / "alone.json")


def test_the_peak_of_products_of_layers_in_few_bits_is_not_that_of_a_state():
    """At a share of the peak so small that no kernel is bound by its bytes."""
    took = []
    for dtype in ("bf16", "fp8_128"):
        plan = tpsim.plan(asked({**PROMPT, "dtype": dtype}))
        took.append(kernel_s(kernel(plan), plan.sizes, plan.question.machine, plan.question.products, 0.01))
    assert took[0] == took[1]


def test_zero_shards_all_but_what_decays_are_made_of(tmp_path):
    """Taps of convolutions and the gain of a state have no dim of the stream: they are cut by those of a head."""
    path = alone(tmp_path)
    whole, cut = (tpsim.plan(asked(model=path, dp="data", zero=zero)).memory.parameters_bytes for zero in (0, 3))
    left = 8 * 2 * 16 * 2  # rates and biases of 8 layers, a number in bf16 for each head
    assert cut == (whole - left) / 8 + left


def test_what_a_convolution_makes_is_dropped_without_the_product_that_it_reads(tmp_path):
    """They were of one name: dropping one was to multiply once more for the other."""
    scenario = asked(model=alone(tmp_path), dp="data")
    whole, drop = tpsim.plan(scenario), {"drop": ["q.convolved", "k.convolved", "v.convolved"]}
    less = tpsim.plan({**scenario, "recompute": drop})
    made = 4096 * 64 // 8 * 16 * 64 * 2  # of queries and keys what they are brought to is kept in any case
    assert whole.memory.kept_bytes - less.memory.kept_bytes == 8 * made
    assert less.step.flops_per_device == whole.step.flops_per_device


def test_of_what_kernels_around_a_state_make_inside_they_keep_what_chunks_are_solved_by(tmp_path):
    """All else backward makes again: dropping it, too, frees nothing."""
    scenario = asked(model=alone(tmp_path), dp="data")
    drop = {"drop": ["convolution", "gates", "recurrence"]}
    plans = tpsim.plan(scenario), tpsim.plan({**scenario, "recompute": drop})
    inverse = 4096 * 64 // 8 * 16 * CHUNK * 2
    assert plans[0].memory.kept_bytes - plans[1].memory.kept_bytes == 8 * inverse


def test_what_kernels_of_chunks_hand_each_other_has_room_while_they_run(tmp_path):
    """Of chunks twice as long half as many states: by hand, of a model whose feed-forward is narrow."""
    plans = [tpsim.plan(asked(PROMPT, alone(tmp_path, ffn=64, chunk=chunk), dp="data")) for chunk in (64, 128)]
    tokens, states = 4096 * 64 // 8, 16 * 64 * 64 * 2
    working = [plan.memory.working_bytes for plan in plans]
    assert working[0] - working[1] == tokens * states * (1 / 64 - 1 / 128)


def test_a_device_that_does_not_hold_what_kernels_hand_each_other_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "inside", lambda *_: 0)
    checked = verify({**asked(model=alone(tmp_path, ffn=64)), **SMALL})
    assert [check.check for check in checked.checks if not check.ok] == ["memory"]


@pytest.mark.parametrize(("model", "kind"), [(KDA, "linear_sparse"), (DELTA, "linear")], ids=["kda", "delta"])
def test_a_layer_keeps_what_kernels_of_flash_linear_attention_save(model, kind):
    """By hand, bytes per token from the normed stream to what multiplies Wo.

    Nothing of queries and keys between their convolutions and their norms, and of Kimi no decays, which are as wide as
    keys; its gates are made in two steps, so that what lies between is kept, too.
    """
    plan = tpsim.plan(asked(model=model))
    every = kept(plan.lowered.program, plan.sizes)
    here = [x for x in every if x.maker.where.kind == x.reader.where.kind == kind and x.maker.where.act == "F"]
    blocks = {"attention", "norm"}
    own = [x for x in here if x.maker.where.block in blocks and not x.array.name.startswith(("mlp.", "residual"))]
    token = sum(x.bytes_each for x in own) / (4096 * 64 // 8)
    by_key = model == KDA
    keys, values, small, square = 2 * (32 if by_key else 16) * DIM, 2 * HEADS * DIM, 2 * HEADS, 2 * HEADS * CHUNK
    stream = 2 * (2304 if by_key else 2048) + 4
    products = 2 * keys + values + values + small + (values + 2 * 2 * DIM if by_key else small)
    read = (
        2 * keys + values + square * (2 if by_key else 1) + (0 if by_key else 2 * small + small)
    )  # f32 decays, strengths
    norms = 2 * 4 * (32 if by_key else 16) + 4 * HEADS
    assert token == stream + products + read + norms + values + values  # what is read of states, and gated


def test_flops_tell_keys_from_values(tmp_path):
    plan = tpsim.plan(asked(model=alone(tmp_path, value_dim=32), dp="data"))
    head = 6 * 64 * 32 + CHUNK * (2 * 64 + 32 + CHUNK)
    assert kernel(plan).flops(plan.sizes) == 4096 * 64 // 8 * 16 * head


def test_tensor_parallelism_splits_states_and_what_changes_them(tmp_path):
    path, plans = alone(tmp_path), []
    for ways in (1, 4):
        mesh = {"data": 8 // ways, "tensor": ways}
        plans.append(tpsim.plan(asked({**DECODE, "batch": 64 // ways}, path, mesh, dp="data", tp="tensor")))
    one, four = plans
    assert one.memory.cache_bytes == 4 * four.memory.cache_bytes
    assert kernel(one).flops(one.sizes) == 4 * kernel(four).flops(four.sizes)


def test_chips_that_share_a_key_head_each_multiply_its_queries_and_keys(tmp_path):
    """Products of queries and keys are of a key head, of which each chip has all that it needs for its values."""
    path = alone(tmp_path, rule="mamba2", heads=16, key_heads=1, chunk=64)
    plan = tpsim.plan(asked(model=path, mesh={"data": 2, "tensor": 4}, dp="data", tp="tensor"))
    tokens = 4096 * 64 // 2
    of_values, of_keys = tokens * 16 * (4 * 64 * 64 + 64 * 64), tokens * 64 * 64
    assert kernel(plan).flops(plan.sizes) == of_values / 4 + of_keys
    assert kernel(plan, "B").flops(plan.sizes) == 2 * (of_values / 4 + of_keys)
    assert kernel(plan).useful_flops(plan.sizes) == 2 * (of_values + of_keys)


# Runs --------------------------------------------------------------------------------------------------------------

LAID = {
    "heads": SMALL,
    "tokens": {**SMALL, "layout": {**SMALL["layout"], "sequence_parallel": True, "zero": 3}},
    "experts": {**SMALL, "layout": {**SMALL["layout"], "sequence_parallel": True, "ep": ["data", "tensor"], "zero": 1}},
    "stages": {
        "mesh": {"pipe": 2, "data": 2, "tensor": 2},
        "layout": {**SMALL["layout"], "pp": "pipe"},
        "workload": {**TRAIN, "microbatches": 4},
    },
    "recomputed": {**SMALL, "recompute": {"base": "full"}},
}


TRAINED = {
    DELTA: LAID,
    KDA: ("tokens", "recomputed"),
    GROUPS: ("experts", "stages"),
    GROUP: ("heads", "tokens"),
}


PAIRS = [(model, name) for model, names in TRAINED.items() for name in names]


@pytest.mark.parametrize(("model", "name"), PAIRS, ids=[f"{Path(model).stem}, {name}" for model, name in PAIRS])
def test_training_on_devices_is_as_on_one(model, name):
    even = {"pipeline": {"layers": "nearly-even"}} if name == "stages" else {}
    checked = verify({**asked(model=model), **LAID[name], **even})
    assert checked.ok, checked


SERVED = {
    "heads": SMALL["layout"],
    "cache by sequences": {**SMALL["layout"], "cache": "batch"},
    "cache by tokens": {**SMALL["layout"], "cache": "sequence"},
    "experts": {**SMALL["layout"], "ep": ["data", "tensor"]},
}
WORK = {
    "decode": DECODE,
    "several tokens": {**DECODE, "tokens": 3},
    "prompt": PROMPT,
    "rest of a prompt": {**PROMPT, "cached": 1024},
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize(
    ("model", "name"), [*((DELTA, name) for name in SERVED), (GROUP, "heads")], ids=[*SERVED, "heads of one group"]
)
def test_inference_on_devices_is_as_on_one_and_decoding_as_a_prompt(model, name, work):
    checked = verify({**asked(WORK[work], model), "mesh": SMALL["mesh"], "layout": SERVED[name]})
    assert checked.ok, checked


def test_a_model_of_nothing_else_decodes_as_it_reads(tmp_path):
    assert verify({**asked(DECODE, alone(tmp_path, rule="kda", key_heads=16, rank=64)), **SMALL}).ok


@pytest.mark.parametrize("work", [DECODE, {**PROMPT, "cached": 1024}], ids=["decode", "rest of a prompt"])
def test_a_convolution_of_one_token_has_none_to_keep(tmp_path, work):
    model = alone(tmp_path, taps=1)
    assert tpsim.plan(asked(work, model, dp="data")).serve.state_bytes_per_sequence == 8 * 16 * 64 * 64 * 4
    assert verify({**asked(work, model), **SMALL}).ok


@pytest.mark.parametrize("wrong", ["taps_before", "taps_held", "taps_held_before"])
def test_convolutions_that_lose_what_stood_before_are_caught(monkeypatch, wrong):
    right = INDEX[wrong]
    monkeypatch.setitem(INDEX, wrong, lambda *asked: 0.5 * right(*asked))
    checked = verify({**asked({**DECODE, "tokens": 1}), **SMALL})
    assert [check.check for check in checked.checks if not check.ok] == ["cache"]


def test_a_state_that_does_not_fall_is_caught_by_decoding(monkeypatch):
    """Once it is handed on, and nowhere else: a prompt runs through all tokens at once."""
    right = reference._states

    def kept(dims, blocks, **how):
        handed_on = len(blocks) > 5
        return right(dims, [*blocks[:3], 0 * blocks[3], *blocks[4:]] if handed_on else blocks, **how)

    monkeypatch.setattr(reference, "_states", kept)
    checked = verify({**asked(DECODE), **SMALL})
    assert [check.check for check in checked.checks if not check.ok] == ["cache"]


def test_a_wrong_pullback_is_caught_by_differences(monkeypatch):
    right = reference._pulled

    def doubled(place, *asked, **how):
        return right(place, *asked, **how) * (2 if place == 3 else 1)

    monkeypatch.setattr(reference, "_pulled", doubled)
    checked = verify({**asked(), **SMALL})
    assert [check.check for check in checked.checks if not check.ok] == ["finite_differences"]


# Search, and what is refused -----------------------------------------------------------------------------------------


def test_a_search_gives_the_plans_that_it_names():
    vary = ["pp=1,2", "microbatches=2", "recompute=none", "zero=1"]
    found = tpsim.search(asked({**TRAIN, "global_batch": 32}), chips=16, top=3, vary=vary)
    assert found.rows
    for row in found.rows:
        assert row.plan.step.time_s == pytest.approx(tpsim.plan(yaml.safe_load(row.scenario())).step.time_s, rel=1e-9)


def refused(scenario, slug):
    with pytest.raises(InputError) as caught:
        tpsim.plan(scenario)
    assert caught.value.problems[-1].slug == slug
    return caught.value.problems[-1].message


def test_what_is_not_planned_is_refused_by_name():
    shared = asked(mesh={"data": 4, "context": 2}, dp="data", cp="context")
    assert "linear attention" in refused(shared, "not-supported-yet")
    drafts = {**DECODE, "speculation": {"tokens": 2, "acceptance": 0.7}}
    assert "linear attention" in refused(asked(drafts), "not-supported-yet")
    split = asked(mesh={"tensor": 32}, tp="tensor")
    assert "32 heads of 16 key heads" in refused(split, "heads-not-divisible")


@pytest.mark.parametrize(
    "changes", [{"key_heads": 3}, {"taps": 0}, {"rule": "mamba"}, {"rule": "mamba2", "rank": 64}], ids=str
)
def test_a_block_that_cannot_be_is_refused(tmp_path, changes):
    with pytest.raises(InputError):
        load_model(alone(tmp_path, **changes))


def test_a_gate_of_what_is_not_there_is_refused(tmp_path):
    path = alone(tmp_path)
    model = json.loads(Path(path).read_text())
    model["blocks"]["dense"] = {"ffn": "moe", "experts": 4, "top": 1, "hidden": 64, "shared_gate": True}
    Path(path).write_text(json.dumps(model))
    with pytest.raises(InputError, match="shared_gate"):
        load_model(path)
    model["blocks"]["dense"]["shared"] = 64
    Path(path).write_text(json.dumps(model))
    assert load_model(path)


@pytest.mark.parametrize("pattern", ["EM", "MEE", "MX", ""])
def test_a_pattern_that_is_not_made_of_mixers_is_refused_where_it_stands(tmp_path, pattern):
    config = json.loads(Path(GROUPS).read_text()) | {"hybrid_override_pattern": pattern}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="hybrid_override_pattern"):
        load_model(tmp_path / "config.json")


def test_a_table_that_splits_tokens_or_key_dims_is_refused_in_the_notation():
    rows = {"*": {"b": "data", "lg": "tensor"}, "block": {"ld": "tensor", "lg": []}}
    scenario = {**asked(), "mesh": SMALL["mesh"], "shardings": rows}
    scenario.pop("layout")
    with pytest.raises(InputError, match="ld is split over tensor"):
        tpsim.plan(scenario)


def test_the_op_says_what_it_multiplies_and_no_other_does():
    plan = tpsim.plan(asked())
    several = [op for op in plan.lowered.program.ops if op.in_chunks]
    assert several
    assert all(isinstance(op, Recurrence) for op in several)
    assert all(isinstance(x, Array) for op in several for x in op.read_back)
