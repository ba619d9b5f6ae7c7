"""ZeRO where stages take turns: what a step gathers and scatters once, and what in each microbatch."""

from __future__ import annotations

import pytest

import tpsim
from tpsim.algebra.mesh import Mesh
from tpsim.claims.verify import verify
from tpsim.question.zero import parts_of_latents

ASKED = {"model": "llama-3-8b", "hw": "dgx-h100", "pp": 2, "dp": 4, "seq": 8192, "batch": 32, "microbatches": 8}
LAYER = 218_112_000
"""Parameters of a layer of Llama 3 8B."""


def planned(zero, practice="fsdp2", *overrides):
    return tpsim.plan(**ASKED, zero=zero, practice=practice, overrides=overrides)


def sent(plan, collective):
    """Bytes of all calls on weights, or gradients, of the layers of a stage."""
    rows = [row for row in plan.rows if row.collective == collective and row.layer]
    return sum(row.count * row.logical_bytes for row in rows)


@pytest.mark.parametrize("zero", [2, 3])
def test_microbatches_of_a_stage_share_what_fsdp2_gathers_and_scatters(zero):
    """PyTorch reduces gradients behind the last microbatch, and torchtitan keeps weights gathered until then."""
    shared, once = planned(zero), planned(1)
    assert sent(shared, "all_gather") == sent(once, "all_gather") == 16 * LAYER * 2
    assert sent(shared, "reduce_scatter") == sent(once, "reduce_scatter") == 16 * LAYER * 4
    assert (shared.memory.peak_bytes, shared.step.time_s) == (once.memory.peak_bytes, once.step.time_s)
    whole = 16 * LAYER + 128_256 * 4096  # of the first stage, which keeps weights in bf16 and adds gradients up in f32
    assert shared.memory.parameters_bytes + shared.memory.gradients_bytes == pytest.approx(6 * whole, rel=1e-4)
    note = f"ZeRO {zero} of stages is ZeRO 1: microbatches share"
    assert [text.startswith(note) for text in (one.text for one in shared.assumptions) if "of stages is" in text] == [
        True
    ]


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_what_microbatches_share_of_weights_in_f32_is_one_copy_in_bf16_of_shards(zero):
    """FSDP2 gathers what it casts of shards in f32, and holds one unsharded copy of it, however many are in flight."""
    wide = planned(zero, "fsdp2", "workload.param_dtype=f32")
    narrow = planned(zero, "fsdp2", "practice.settled=sent")
    assert sent(wide, "all_gather") == 16 * LAYER * 2
    whole = 16 * LAYER + 128_256 * 4096
    assert wide.memory.parameters_bytes == pytest.approx(2 * whole, rel=1e-4)
    assert wide.memory.optimizer_bytes == pytest.approx((4 + 8) * whole / 4, rel=1e-4)
    assert (wide.memory.peak_bytes, wide.step.time_s) == (narrow.memory.peak_bytes, narrow.step.time_s)


@pytest.mark.parametrize(("settled", "dtype"), [("sent", "bf16"), ("parameters", "f32")])
def test_gradients_are_held_as_the_shards_are_that_shared_weights_are_gathered_of(settled, dtype):
    asked = ("workload.param_dtype=f32", "workload.grad_dtype=bf16", f"practice.settled={settled}")
    plan = planned(3, "fsdp2", *asked)
    clipped = [op for op in plan.memo.lowered(plan.question).program.ops if op.output.name.startswith("clipped.")]
    assert {op.inputs[0].dtype for op in clipped} == {dtype}


def test_who_gathers_weights_for_each_microbatch_holds_them_whole_in_their_own_format():
    """Under autocast, as of DeepSpeed's ZeRO 1, what is cast lies beside whole weights in f32: of layers one copy."""
    whole = 16 * LAYER + 128_256 * 4096
    held = planned(1, "deepspeed", "workload.param_dtype=f32").memory.parameters_bytes
    assert held == pytest.approx(4 * whole + 2 * 16 * LAYER, 1e-4)


@pytest.mark.parametrize(("practice", "zero"), [("xla", 0), ("xla", 1), ("deepspeed", 0), ("ideal", 0), ("ideal", 3)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_weights_that_are_kept_for_backward_are_one_array_however_many_microbatches_are_in_flight(
    practice, zero, schedule
):
    """The first of two stages has two or eight in flight; none of them has layers' weights of its own."""
    asked = f"pipeline.schedule={schedule}"
    plan, narrow = (planned(zero, practice, f"workload.param_dtype={dtype}", asked) for dtype in ("f32", "bf16"))
    stored = (4 / 4 if zero == 3 else 4) * (16 * LAYER + 128_256 * 4096)
    first = plan.each_in_step[0]
    assert first.parameters_bytes == pytest.approx(stored + 2 * 16 * LAYER, rel=1e-4)
    assert first.peak.parts["kept"] == narrow.each_in_step[0].peak.parts["kept"]
    assert first.peak.parts.get("weights", 0) <= 2 * 128_256 * 4096


@pytest.mark.parametrize(
    "override", ["practice.staged=each", "practice.reshard_after_forward=true", "practice.gradients=auto"]
)
def test_who_states_when_weights_and_gradients_travel_has_them_so_in_each_microbatch(override):
    each = planned(3, "fsdp2", override)
    assert sent(each, "all_gather") == 2 * 8 * 16 * LAYER * 2
    assert sent(each, "reduce_scatter") == 8 * 16 * LAYER * 4


@pytest.mark.parametrize("override", ["practice.reshard_after_forward=false", "practice.gradients=per_step"])
def test_who_states_that_they_travel_once_has_what_is_shared(override):
    assert planned(3, "fsdp2", override).question.layout.zero == 1


def test_weights_around_the_layers_stay_for_backward_in_fsdp2():
    """The root's are not resharded: FSDP2, _fsdp_state.py, _lazy_init; PyTorch FSDP, _post_forward_reshard."""
    asked = {**ASKED, "pp": 1, "dp": 8, "microbatches": 1, "zero": 3, "practice": "fsdp2"}
    calls = {}
    for switch in ("layers", "true"):
        plan = tpsim.plan(**asked, overrides=[f"practice.reshard_after_forward={switch}"])
        gathers = [row for row in plan.rows if row.collective == "all_gather"]
        calls[switch] = [sum(row.count for row in gathers if bool(row.layer) is inside) for inside in (True, False)]
    assert calls == {"layers": [64, 1], "true": [64, 2]}
    assert tpsim.plan(**asked).question.practice.reshard_after_forward == "layers"


@pytest.mark.parametrize(("model", "units"), [("llama-3-8b", "root"), ("gpt3-175b", "ends")])
def test_weights_that_are_gathered_behind_the_last_reader_of_their_unit_are_freed_by_themselves(model, units):
    """Of the root, which backward gathers again, the embedding and learned positions: no derivative reads them."""
    overrides = ["practice.reshard_after_forward=true", f"practice.units={units}"]
    asked = {"hw": "dgx-h100", "dp": 2, "zero": 3, "seq": 128, "batch": 4, "practice": "fsdp2", "overrides": overrides}
    seen = verify(model={"extends": model, "layers": 2, "params": None}, **asked)
    assert seen.ok, seen.verdict


def around_layers(units, model="llama-3-8b"):
    """What is gathered, and scattered, around the layers in calls of their own: phase -> blocks; and the peak."""
    asked = {**ASKED, "model": model, "pp": 1, "dp": 8, "microbatches": 1, "zero": 3, "practice": "fsdp2"}
    plan = tpsim.plan(**asked, overrides=[f"practice.units={units}"])
    rows = [row for row in plan.rows if row.op in ("param", "gradient") and not row.layer]
    return [(row.phase, row.op, {*row.block.split(",")}) for row in rows], plan.memory.peak_bytes


def test_the_root_of_fsdp2_is_one_unit_and_torchtitan_has_two():
    """torchtitan, distributed/fsdp.py: the embedding is resharded after forward, final norm and head are not."""
    embedding, head = {"embedding"}, {"norm", "head"}
    root, kept = around_layers("root")
    ends, freed = around_layers("ends")
    assert root == [("forward", "param", embedding | head), ("backward", "gradient", embedding | head)]
    assert sorted(ends, key=str) == sorted(
        [
            *(("forward", "param", unit) for unit in (embedding, head)),
            ("backward", "param", embedding),
            *(("backward", "gradient", unit) for unit in (head, embedding)),
        ],
        key=str,
    )
    assert kept - freed == 2 * 128_256 * 4096  # the embedding in bf16, at the end of forward
    assert around_layers("ends", "gemma-7b") == around_layers("root", "gemma-7b")  # a tied embedding is the head's


def test_a_scan_of_layers_keeps_shards_of_their_weights():
    """MaxText trained 64B on v5e of 16 GB, which cannot hold them gathered in bf16: 128 GB (README of its configs)."""
    asked = {"model": "llama-3-70b", "hw": "tpu-v5p", "dp": 64, "zero": 3, "seq": 4096, "batch": 64, "practice": "xla"}
    kept, again = (
        tpsim.plan(**asked, recompute="full", overrides=[f"practice.reshard_after_forward={switch}"])
        for switch in ("false", "layers")
    )
    layers = 2 * 80 * 855_654_400
    assert kept.memory.peak_bytes - again.memory.peak_bytes == pytest.approx(layers, rel=0.02)
    assert (kept.memory.fits, again.memory.fits) == (False, True)
    assert tpsim.plan(**asked, recompute="full").memory.peak_bytes == again.memory.peak_bytes


def test_only_stages_of_a_bundle_that_shares_do():
    assert planned(3, "megatron").question.layout.zero == 3
    assert planned(3, "megatron", "practice.staged=shared").question.layout.zero == 1
    assert tpsim.plan(**{**ASKED, "pp": 1}, zero=3, practice="fsdp2").question.layout.zero == 3


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_biases_of_experts_are_sharded_like_their_weights(zero):
    """All but sinks and the router's bias, which are too short to be split."""
    plan = tpsim.plan(model="gpt-oss-120b", hw="dgx-h100", dp=64, seq=1024, batch=64, zero=zero)
    parameters, short = 116_829_156_672, 36 * (128 + 64)
    assert plan.memory.optimizer_bytes == 12 * ((parameters - short) // 64 + short)


def test_biases_of_experts_too_short_for_dp_stay_whole_and_the_plan_says_so():
    plan = tpsim.plan(model="gpt-oss-120b", hw="dgx-h100", tp=2, dp=64, seq=1024, batch=64, zero=1)
    note = "biases of experts (2880) do not divide over dp 64: ZeRO leaves them whole"
    assert note in [one.text for one in plan.assumptions]


def held_by(shards, experts, *overrides, **flags):
    asked = {"model": "deepseek-v3", "hw": "dgx-h100", "dp": shards, "ep": experts, "seq": 4096, "batch": shards}
    return tpsim.plan(**asked, **flags, overrides=overrides)


WHOLE = "practice.padding=none"


@pytest.mark.parametrize(("practice", "more"), [("megatron", 1e-4), ("fsdp2", 1e-2)])
@pytest.mark.parametrize("experts", [1, 64])
def test_weights_on_latents_are_filled_up_as_all_others_where_their_ranks_do_not_divide(practice, more, experts):
    """On one axis of 1,024, which divides neither ranks of 1,536 and 512 nor heads, they were whole on every chip.

    FSDP2 has whole rows: one of the router's 256 and of 64 rotated keys on the first devices, none on the others.
    """
    half, full = (held_by(shards, experts, zero=1, practice=practice) for shards in (512, 1024))
    assert 2 * full.memory.optimizer_bytes == pytest.approx(half.memory.optimizer_bytes, rel=more)
    (text,) = (one.text for one in full.assumptions if "fills" in one.text)
    begins = "query latent 1536 and latent of keys and values 512 are not divisible by dp 1024, which ZeRO splits "
    assert text.startswith(f"{begins}parameters over: ")


def test_weights_on_latents_lie_over_heads_too_where_their_ranks_divide_by_a_part_of_the_shards():
    """Ranks of 1,536 and 512 do not divide by 1,024: states of queries, keys and values were whole, 40 GB of a chip."""
    half, full = (held_by(shards, 64, WHOLE, zero=1).memory.optimizer_bytes for shards in (512, 1024))
    assert 2 * full == pytest.approx(half, rel=1e-3)


def test_a_plan_says_over_what_zero_leaves_weights_on_latents_whole():
    """An axis of 1,024 divides neither ranks of 1,536 and 512 nor 128 heads."""
    (text,) = (one.text for one in held_by(1024, 1, WHOLE, zero=1).assumptions if "latents" in one.text)
    beginning = "weights on latents do not divide over dp 1024, by their ranks and by heads: "
    assert text == f"{beginning}ZeRO leaves them whole over data"
    assert not any("latents" in one.text for one in held_by(512, 1, WHOLE, zero=1).assumptions)


def test_of_axes_that_divide_a_rank_those_of_the_most_devices_are_taken_not_the_most_axes():
    """Of 2 x 2 x 64 shards a rank of 64 takes the 64, and heads the others."""
    mesh = Mesh({"a": 2, "b": 2, "c": 64})
    assert parts_of_latents({"u": 64, "x": 64}, mesh, ("a", "b", "c"), heads=4) == {
        "u": ("c",),
        "x": ("c",),
        "g": ("a", "b"),
    }


def test_what_ranks_and_heads_leave_of_the_shards_splits_head_dims_where_it_divides_them():
    """Of 2 x 32 shards ranks of 48 take the 2, and 7 heads nothing: the 32 split 64 numbers of each head."""
    latent = {"attention": "mla", "heads": 7, "kv_rank": 48, "query_rank": 48, "nope": 64, "value": 64, "rope": 64}
    few = {"extends": "deepseek-v3", "layers": [{"repeat": 2, "of": ["latent", "dense"]}], "mtp": None}
    few["blocks"] = {"latent": latent, "dense": {"ffn": "mlp", "kind": "swiglu", "hidden": 18432}}
    asked = {"tpsim": "scenario/1", "model": few, "hardware": "dgx-h100", "mesh": {"a": 2, "b": 32}}
    asked |= {"workload": {"seq": 512, "global_batch": 64, "microbatches": 1}}
    plan = tpsim.plan({**asked, "layout": {"dp": ["a", "b"], "zero": 1}, "practice": {"padding": "none"}})
    assert plan.question.layout.type_in(("u", "g", "d"), "state").on == (("a",), (), ("b",))
