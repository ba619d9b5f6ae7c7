"""The verb plan, on scenarios of the shipped library."""

from __future__ import annotations

import gc
import json
import weakref

import pytest

import tpsim
from tpsim.answers.collective import collective
from tpsim.answers.plan import plan
from tpsim.answers.plan_step import pace_at
from tpsim.pages.plan import page
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.report.answer import Assumption

ASKED = [
    *(
        "scenario",
        "model",
        "hardware",
        "chips",
        "mesh",
        "placement",
        "zero",
        "sequence_parallel",
        "global_batch",
        "seq",
    ),
    *("microbatches", "cost_model", "planner", "guesses", "tpsim"),
]
ROW_KEYS = [
    "phase",
    "layer",
    "block",
    "op",
    "array",
    "collective",
    "axis",
    "ranks",
    "dtype",
    "count",
    "logical_bytes",
    "wire_bytes_per_device",
    "payload_bytes",
    "time_s",
    "latency_s",
    "bandwidth_s",
    "busy_s",
    "exposed_s",
    "hidden_s",
    "pulls",
    "algorithm",
    "protocol",
    "formula",
    "because",
]
TENSOR_ONLY = {
    "tpsim": "scenario/1",
    "model": "llama-3-70b",
    "hardware": "dgx-h100",
    "mesh": {"tensor": 8},
    "layout": {"tp": ["tensor"]},
    "practice": "megatron",
    "workload": {"kind": "train", "global_batch": 8, "seq": 4096, "dtype": "bf16", "grad_dtype": "f32"},
}


@pytest.fixture(scope="module")
def answer():
    return plan("llama3-70b-h100")


@pytest.fixture(scope="module")
def document(answer):
    return answer.to_json()


def test_a_plan_states_its_schema_version_inputs_and_what_it_leaves_out(document):
    assert list(document) == ["schema", "tpsim", "inputs", "resolved", "result", "assumptions", "not_modelled"]
    assert document["schema"] == "tpsim.plan/2"
    assert document["tpsim"] == tpsim.__version__
    assert all(len(one["sha256"]) == 64 for one in document["inputs"])
    assert any(one.startswith("memory that stands in no list of arrays") for one in document["not_modelled"])


def test_rows_have_the_columns_that_scripts_rely_on_in_order(document):
    assert all(list(row) == ROW_KEYS for row in document["result"]["collectives"])


def test_a_plan_is_plain_json_and_the_same_every_time(document):
    assert json.dumps(document) == json.dumps(plan("llama3-70b-h100").to_json())


def test_payload_busy_and_exposed_are_of_all_calls_and_the_rest_of_one(document):
    for row in document["result"]["collectives"]:
        assert row["payload_bytes"] == row["count"] * row["logical_bytes"]
        assert row["busy_s"] == pytest.approx(row["count"] * row["time_s"])
        assert 0 <= row["exposed_s"] <= row["busy_s"] * (1 + 1e-12)


@pytest.mark.parametrize("scenario", ["qwen2-7b-h100", "gemma-7b-v5e", "gpt3-175b-a100-interleaved"])
def test_what_nothing_hides_has_no_hidden_seconds_of_rounding(scenario):
    rows = plan(scenario).rows
    assert any(row.hidden_s == 0 for row in rows)
    assert not [row.array for row in rows if 0 < row.hidden_s < 1e-9 * row.busy_s]


@pytest.mark.parametrize("key", ["by_axis", "by_phase", "by_block", "by_collective"])
def test_totals_by_any_key_add_up_to_the_step(document, key):
    rows, totals = document["result"]["collectives"], document["result"]["totals"][key].values()
    assert sum(t["payload_bytes"] for t in totals) == sum(row["payload_bytes"] for row in rows)
    assert sum(t["exposed_s"] for t in totals) == pytest.approx(document["result"]["step"]["exposed_s"])


def test_the_step_is_compute_and_exposed_communication(document):
    step = document["result"]["step"]
    assert step["time_s"] == pytest.approx(step["compute_s"] + step["exposed_s"] + step["stragglers_s"])
    assert step["exposed_s"] <= step["communication_s"]
    assert 0 < step["mfu"] < 1


def test_replicated_kv_heads_show_as_kv_heads_in_formulas():
    rows = plan("llama3-70b-kv-replication").records()
    keys = [row["formula"] for row in rows if row["array"] == "grad.Wk" and "tensor_rep" in row["axis"]]
    assert keys == ["8*dh*h*(-kv_heads + t)/(d*t)"]


@pytest.mark.parametrize("qkv", ["fused", "separate"])
def test_beyond_the_kv_heads_a_chip_repeats_keys_and_values_and_nothing_else(qkv):
    flags = {"model": "llama-3-70b", "hw": "trn2-ultra", "tp": 16, "dp": 4, "zero": 1, "batch": 16, "seq": 4096}
    result = plan(overrides=[f"practice.qkv={qkv}"], **flags)
    layers, h, keys_and_values = 80, 8192, 2 * 8192 * 8 * 128
    split = layers * (2 * h * h + 3 * h * 28672) + 2 * h * 128256
    held = split // 16 + layers * keys_and_values // 8 + (2 * layers + 1) * h
    assert result.memory.parameters_bytes == 2 * held
    (sums,) = (row for row in result.collectives if row["axis"] == "tensor_rep")
    assert (sums["collective"], sums["phase"], sums["op"]) == ("all_reduce", "update", "gradient")
    assert sums["payload_bytes"] == 4 * layers * keys_and_values // 8 // 4


def test_memory_is_parameters_gradients_and_optimizer_of_one_chip(document):
    held = document["result"]["memory"]
    whole = held["parameters_bytes"] * 8 / 2
    assert whole == pytest.approx(70.6e9, rel=0.01)
    assert held["gradients_bytes"] == 2 * held["parameters_bytes"]
    assert held["static_bytes"] == held["parameters_bytes"] + held["gradients_bytes"] + held["optimizer_bytes"]
    assert held["peak_bytes"] == held["static_bytes"] + held["kept_bytes"] + held["working_bytes"]
    assert held["peak_action"] == "forward (F) of microbatch 0"  # at the loss, whose logits Megatron keeps in 6 bytes


def test_useful_flops_are_six_per_weight_and_token_and_the_scores(answer):
    model, tokens = answer.question.model, answer.tokens
    weights = (
        model.layers * model.hidden * (2 * model.head_dim * (model.heads + model.kv_heads) + 3 * model.ffn_hidden)
        + model.hidden * model.vocab_padded
    )
    scores = 12 * model.layers * model.heads * model.head_dim * tokens * answer.question.workload.seq
    assert answer.compute.useful_flops == 6 * weights * tokens + scores


@pytest.mark.parametrize("counted", ["full", "causal"])
def test_shares_of_peak_are_the_flops_that_stand_beside_them(counted):
    asked = {"scenario": "llama3-70b-h100", "overrides": [f"assume.mfu={counted}"]}
    step, peak, chips = plan(**asked).to_json()["result"]["step"], 989e12, 256
    assert step["mfu"] == pytest.approx(step["useful_flops"] / (step["time_s"] * chips * peak))
    assert step["hfu"] == pytest.approx(step["flops_per_device"] / (step["time_s"] * peak))
    (told,) = tpsim.explain("step.flops_per_device", **asked).derivations
    assert told.value == step["flops_per_device"]
    tokens, pairs = 512 * 4096, (4096 if counted == "full" else 4097 / 2)
    products = 6 * (80 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) + 8192 * 128256) * tokens
    assert step["useful_flops"] == products + 12 * 80 * 8192 * tokens * pairs


@pytest.mark.parametrize("seq", [2048, 32_768])
def test_of_a_window_shares_of_peak_count_the_keys_that_it_has(seq):
    """Mistral has 4,096 tokens in its window: its whole s by s would be eight times what any token reads."""
    flags = {"model": "mistral-7b", "hw": "dgx-h100", "tp": 8, "seq": seq, "batch": 2}
    result = plan(**flags)
    products = 6 * (32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14_336) + 4096 * 32_000) * 2 * seq
    assert result.step.useful_flops == products + 12 * 32 * 4096 * 2 * seq * min(seq, 4096)
    (told,) = tpsim.explain("step.flops_per_device", **flags).derivations
    assert told.value == result.step.flops_per_device
    assert result.step.flops_counted.endswith("of windows and chunks s by theirs")


def test_a_share_above_the_peak_is_said_to_count_what_is_not_run():
    """By the book products reach their peak; of long sequences half of the scores are left out, and counted."""
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 8, "seq": 131_072, "batch": 2, "cost_model": "book"}
    whole, seen = plan(**flags), plan(**flags, overrides=["assume.mfu=causal"])
    assert whole.step.mfu > 1 > seen.step.mfu
    said = [[note.text for note in result.assumptions if "above 1" in note.text] for result in (whole, seen)]
    assert said == [
        ["a share above 1 counts scores that the mask hides, which are not run (assume.mfu: causal counts none)"],
        [],
    ]


def test_at_the_break_even_the_step_is_bound_by_both(answer):
    scale = answer.step.breakeven_tokens_per_chip * answer.chips / answer.tokens
    assert pace_at(answer, scale * 1.01) <= 1 < pace_at(answer, scale * 0.99)


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama-3-8b", "hw": "dgx-a100", "tp": 8, "dp": 8, "practice": "fsdp2"},
        {"model": "mixtral-8x7b", "hw": "dgx-h100", "tp": 8, "dp": 64, "zero": 1, "practice": "megatron"},
    ],
)
def test_the_break_even_is_the_same_from_every_batch_and_where_plans_turn(asked):
    """Kernels of few tokens read weights, and fill no wave: they take longer than their share of those of many."""
    turns = [plan(**asked, seq=2048, batch=many * asked["dp"]).step.breakeven_tokens_per_chip for many in (1, 4, 32)]
    assert turns == pytest.approx(turns[:1] * 3, rel=1e-5)
    below, above = (plan(**asked, seq=2048, batch=many * asked["dp"]).step for many in sequences_about(turns[0]))
    assert below.bound_by.startswith("communication")
    assert above.bound_by == "compute"


def sequences_about(tokens_per_chip):
    """The next whole numbers of sequences of 2,048 tokens that 8 chips share: below and above."""
    sequences = 8 * tokens_per_chip / 2048
    return int(sequences), int(sequences) + 1


@pytest.mark.parametrize(("settled", "gradient"), [("sent", 4), ("parameters", 4 + 2 + 2)])
def test_the_update_reads_and_writes_every_state_once_and_a_shard_of_them_under_zero_1(settled, gradient):
    """Llama-3 8B: master and two moments read and written 24, weight 2 bytes a parameter, over memory.

    Its gradient in f32 is read as it was sent, or cast and read as weights are.
    """
    overrides = ("practice.clip=none", f"practice.settled={settled}")
    whole, shard = (plan("llama3-8b-b200-fsdp", zero=zero, overrides=overrides) for zero in (0, 1))
    chip, dp = whole.question.machine.chip, whole.chips
    seconds = (24 + 2 + gradient) * 8_030_261_248 / chip.memory.bandwidth.value / chip.memory_efficiency.value
    assert whole.to_json()["result"]["step"]["update_s"] == pytest.approx(seconds, rel=0.01)
    assert shard.step.update_s == pytest.approx(seconds / dp, rel=0.05)


def test_a_violated_requirement_is_said_in_the_verdict():
    slow = plan("llama3-70b-h100", overrides=("require.step=< 1 us",))
    assert not slow.ok
    assert "require step < 1 us is violated" in slow.verdict


def test_a_frame_has_a_row_per_collective(answer):
    frame = answer.to_frame()
    assert list(frame.columns)[: len(ROW_KEYS)] == ROW_KEYS
    assert list(frame.columns)[len(ROW_KEYS) :] == ASKED
    assert all(frame[name].nunique() == 1 for name in ASKED)
    assert len(frame) == len(answer.rows)


@pytest.mark.parametrize("scenario", ["llama3-70b-h100", "llama3-405b-h100-pipeline", "llama3-70b-h100-decode"])
def test_a_plan_is_freed_as_soon_as_nobody_holds_it(scenario):
    """No circle of references keeps it, and its programs, until somebody looks for such."""
    made = plan(scenario)
    assert made.to_json()
    left = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert left() is None
    finally:
        gc.enable()


def test_the_package_has_no_other_names():
    with pytest.raises(AttributeError) as error:
        _ = tpsim.paln
    assert str(error.value) == "module 'tpsim' has no attribute 'paln'"


def test_a_plan_says_which_chips_of_the_slice_it_leaves_idle():
    asked = {"model": "llama-3-8b", "hw": "tpu-v5e", "batch": 24, "seq": 4096}
    said = "8 of the 32 chips of ici slice 8x4 idle: none is sold as 6x4"
    plan = tpsim.plan(**asked, dp=24)
    assert said in plan.verdict
    assert Assumption(said, "derived") in plan.assumptions
    assert "idle" not in tpsim.plan(**asked, dp=8).verdict


def test_a_part_of_the_peak_that_rounding_leaves_is_none():
    """Rows of experts chosen by chance are no whole number; what comes and goes leaves 5e-7 bytes of it."""
    asked = {
        "tpsim": "scenario/1",
        "model": "gpt-oss-120b",
        "hardware": "dgx-b200",
        "mesh": {"data": 2, "expert": 2, "tensor": 4},
        "layout": {"dp": ["data", "expert"], "ep": ["expert", "tensor"], "tp": "tensor", "zero": 2},
        "workload": {"global_batch": 16, "seq": 4096, "microbatches": 4},
        "practice": {"base": "megatron", "zero1": "all_reduce", "copies": "each"},
        "recompute": "full",
        "assume": {"routing": {"load": "uniform"}},
    }
    memory = plan(asked).memory
    assert all(size >= 1 for size in memory.working.values())
    assert sum(memory.working.values()) == pytest.approx(float(memory.working_bytes))


def many_shards(dp, practice, *overrides):
    """Llama-3-8B over so many nodes, each a data shard of the others' weights."""
    flags = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 8, "zero": 1, "seq": 4096, "dp": dp, "batch": 8 * dp}
    return plan(None, overrides=overrides, practice=practice, **flags)


def test_layers_send_their_gradients_and_their_new_weights_as_one_bucket():
    """The bucket of `collective` at 32 times a layer's bytes; all that a stack sends is what its layers send alone."""
    joined, alone = (many_shards(128, "megatron", f"practice.bucket={of}") for of in ("step", "layer"))
    for sort in ("reduce_scatter", "all_gather"):
        (row,), (single,) = (
            [row for row in answer.rows if row.collective == sort and row.call.per_layer and "data" in row.axis]
            for answer in (joined, alone)
        )
        assert (row.count, single.count, row.logical_bytes) == (1, 32, 32 * single.logical_bytes)
        whole = collective(sort, hw="dgx-h100", ranks=128, level="network", sizes=[row.logical_bytes])
        assert row.time_s == whole.rows[0].time_s < single.busy_s
        assert "32 layers travel as one bucket" in row.because
    for name in ("payload_bytes", "wire_bytes_per_device", "formula"):
        assert getattr(joined.totals["by_step"]["step"], name) == getattr(alone.totals["by_step"]["step"], name)


@pytest.mark.parametrize("elements", [200_000_000, 27_271_168, 1])
def test_buckets_by_elements_are_full_ones_and_what_is_left(elements):
    answer = many_shards(128, "deepspeed", f"practice.bucket.elements={elements}")
    rows = [row for row in answer.rows if row.collective == "reduce_scatter" and row.call.per_layer]
    (own,) = {row.call.single.elements(row.sizes) for row in rows}
    most = -(-elements // own)
    left = [(1, 32 % most)] if 32 % most else []
    assert [(row.count, row.call.layers) for row in rows] == [(32 // most, most), *left]


def test_a_plan_says_what_both_ends_of_a_stack_in_its_bucket_would_take_less():
    answer = many_shards(1536, "megatron")
    (said,) = (text for text in answer.not_modelled if text.startswith("buckets with the embedding"))
    seconds = 0.0
    for sort in ("reduce_scatter", "all_gather"):
        sizes = [float(row.logical_bytes) for row in answer.rows if row.collective == sort and row.axis == "data"]
        *each, at_once = (
            collective(sort, hw="dgx-h100", ranks=1536, level="network", sizes=[size]).rows[0].time_s
            for size in (*sizes, sum(sizes))
        )
        seconds += sum(each) - at_once
    assert f" {show(seconds, 'seconds')} less" in said


@pytest.mark.parametrize(("dp", "practice"), [(2, "megatron"), (1536, "fsdp2")])
def test_nothing_is_said_of_both_ends_where_layers_send_alone_or_little_is_sent(dp, practice):
    answer = many_shards(dp, practice, "practice.overlap={gradients: none, weights: none}")
    assert not [text for text in answer.not_modelled if "buckets with" in text]


def test_fsdp2_gathers_weights_in_f32_as_it_does_those_in_bf16_and_holds_no_second_copy_of_them():
    """PyTorch, MixedPrecisionPolicy: param_dtype is that of the all-gather, shards stay as the optimizer has them."""
    mixed, narrow = (plan("llama3-8b-b200-fsdp", overrides=[f"workload.param_dtype={of}"]) for of in ("f32", "bf16"))
    sent, too = (
        [(row.collective, row.dtype, row.wire_bytes_per_device) for row in answer.rows if row.block != "clip"]
        for answer in (mixed, narrow)
    )
    assert sent == too
    assert {row.dtype for row in mixed.rows if row.op == "param"} == {"bf16"}
    elements = narrow.memory.parameters_bytes / 2
    assert mixed.memory.static_bytes == (4 + 4 + 8) * elements
    assert narrow.memory.static_bytes == (2 + 2 + 12) * elements  # reduced in f32, held as what they are of
    (switch,) = {mixed.question.resolved["practice"].get("cast"), narrow.question.resolved["practice"].get("cast")} - {
        None
    }
    assert switch == "shards"


def test_without_a_gather_casts_of_all_weights_are_kept_for_backward():
    """PyTorch, replicate_with_fsdp.py, and autocast: every weight has a copy in bf16 from forward to backward."""
    asked = ["workload.param_dtype=f32", "layout.zero=0", "workload.global_batch=64"]
    cast, read = (
        plan("llama3-8b-b200-fsdp", overrides=[*asked, f"practice.cast={by}"]) for by in ("shards", "products")
    )
    assert cast.memory.parameters_bytes == read.memory.parameters_bytes
    more = cast.memory.peak_bytes - read.memory.peak_bytes
    looked_up = 128_256 * 4096  # of its own cast backward reads nothing
    assert more == pytest.approx(cast.memory.parameters_bytes / 2 - 2 * looked_up, rel=0.02)


SIX_AXES = {
    "tpsim": "scenario/1",
    "model": "llama-3-8b",
    "hardware": "dgx-h100",
    "mesh": {"replica": 2, "shard": 2, "ring": 2, "heads": 2, "kv": 2, "rep": 2},
    "layout": {"dp": ["replica", "shard"], "cp": ["ring", "heads"], "tp": ["kv", "rep"], "zero": 1},
    "workload": {"seq": 8192},
}


def test_over_six_axes_there_are_more_ways_than_a_plan_looks_at_and_it_says_so():
    """A plan with -v, or as JSON, did not end within minutes, and took gigabytes."""
    result = plan(SIX_AXES)
    assert result.step.cheapest_saves_s is None
    assert (
        "what the planner cheapest would save is not worked out over so many mesh axes"
        in page(result, verbose=True).notes
    )
    with pytest.raises(InputError, match="looks at all ways over 5 mesh axes at most, not 6: replica, shard, ring, "):
        plan({**SIX_AXES, "planner": "cheapest"})


def test_axes_of_one_device_are_no_ways():
    """Of eight axes five have one device: they are looked at no longer than the three others alone."""
    ones = {"replica": 1, "data": 2, "context": 2, "c": 1, "kv": 4, "rep": 1, "e": 1, "f": 1}
    layout = {"dp": ["replica", "data"], "cp": ["context", "c"], "tp": ["kv", "rep"], "zero": 2}
    several = {**SIX_AXES, "mesh": ones, "layout": {**layout, "sequence_parallel": True}}
    layout = {"dp": "data", "cp": "context", "tp": "kv", "zero": 2}
    alone = {**SIX_AXES, "mesh": {"data": 2, "context": 2, "kv": 4}, "layout": {**layout, "sequence_parallel": True}}
    for planner in ("book", "cheapest"):
        result, other = (plan({**asked, "planner": planner}) for asked in (several, alone))
        assert result.step.time_s == pytest.approx(other.step.time_s, rel=1e-12)
        assert result.step.cheapest_saves_s == pytest.approx(other.step.cheapest_saves_s, rel=1e-9, abs=1e-12)
