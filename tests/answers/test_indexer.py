"""Latent attention to what an indexer chooses (DeepSeek-V3.2): parameters, bytes and FLOPs by hand, and runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tpsim
from tpsim.claims.verify import verify
from tpsim.cost.compute import kernel_s
from tpsim.cost.memory import local_bytes
from tpsim.machine.chip_seconds import memory_s, pause_s
from tpsim.program.model_file import load_model
from tpsim.program.op import Index
from tpsim.program.tokens import INDEXER
from tpsim.program.transformer import parameter_count
from tpsim.quantity.errors import InputError
from tpsim.reference.functions import INDEX, MASKED

SPARSE, DENSE = "deepseek-v3.2", "deepseek-v3"
LAYERS, HEADS, TOP = 61, 128, 2048
INDEX_HEADS, INDEX_DIM, LATENT, ROTATED = 64, 128, 512, 64
DECODE = {"kind": "decode", "context": 65_536}
CHIPS = {"mesh": {"data": 32}, "layout": {"dp": "data", "ep": "data"}}
SMALL = {"mesh": {"data": 2, "tensor": 2}, "layout": {"dp": "data", "tp": "tensor", "ep": ["data", "tensor"]}}


def asked(model=SPARSE, mesh=None, layout=None, **work):
    """A scenario of decoding, 8 sequences a chip, unless `work` says otherwise."""
    return {
        "tpsim": "scenario/1",
        "name": "chosen",
        "model": model,
        "hardware": "superpod-h100",
        "mesh": mesh or CHIPS["mesh"],
        "layout": layout or CHIPS["layout"],
        "workload": {"batch": 256, "dtype": "bf16", **({} if "kind" in work else DECODE), **work},
    }


def planned(model=SPARSE, **work):
    return tpsim.plan(asked(model, **work))


def kernel(plan, name):
    """The kernel of that name of a layer with experts."""
    return next(one for one in plan.lowered.kernels if one.where.kernel == name and one.where.kind.startswith("sparse"))


def took(plan, one):
    question = plan.question
    return float(kernel_s(one, plan.sizes, question.machine, question.products, question.matmul_efficiency))


def test_an_indexer_adds_the_parameters_of_its_products_and_of_its_norm():
    added = LAYERS * (1536 * INDEX_HEADS * INDEX_DIM + 7168 * INDEX_DIM + 7168 * INDEX_HEADS + 2 * INDEX_DIM)
    dense, sparse = (parameter_count(load_model(name).model) for name in (DENSE, SPARSE))
    assert sparse - dense == added


def test_a_token_takes_132_bytes_of_a_cache_more_in_every_layer():
    """128 numbers of fp8 and a scale of four bytes, as vLLM and SGLang store them."""
    dense, sparse = planned(DENSE).serve, planned().serve
    assert dense.cache_bytes_per_token == LAYERS * 2 * (LATENT + ROTATED)
    assert sparse.cache_bytes_per_token - dense.cache_bytes_per_token == LAYERS * 132


@pytest.mark.parametrize("context", [1024, 2048, 4096, 65_536])
def test_a_step_of_decoding_scores_all_tokens_and_reads_what_is_chosen(context):
    plan, sequences = planned(context=context), 8
    read, scored = kernel(plan, "attention"), kernel(plan, INDEXER)
    seen = min(context, TOP)
    assert read.run_flops(plan.sizes) == sequences * seen * 2 * HEADS * (2 * LATENT + ROTATED)
    cached = [x for x in read.reads if x.role == "cache"]
    whole = sum(local_bytes(x, plan.sizes) for x in cached)
    others = sum(local_bytes(x, plan.sizes) for x in (*read.reads, *read.writes) if x not in cached)
    assert whole == sequences * context * 2 * (LATENT + ROTATED)
    assert read.memory_bytes(plan.sizes) == pytest.approx(whole * seen / context + others, rel=1e-12)
    assert scored.run_flops(plan.sizes) == sequences * context * 2 * INDEX_HEADS * INDEX_DIM
    keys = sequences * context * 132
    queries = sequences * 2 * INDEX_HEADS * (INDEX_DIM + 1)
    assert scored.memory_bytes(plan.sizes) == pytest.approx(keys + queries, rel=1e-12)
    assert scored.passed_bytes(plan.sizes) == 2 * 4 * sequences * context


def test_several_new_tokens_read_what_each_of_them_chooses_as_far_as_there_are_others():
    for context, read in ((65_536, 4 * TOP), (3 * TOP, 3 * TOP)):
        plan = planned(context=context, tokens=4)
        one = kernel(plan, "attention")
        cached = sum(local_bytes(x, plan.sizes) for x in one.reads if x.role == "cache")
        others = sum(local_bytes(x, plan.sizes) for x in (*one.reads, *one.writes) if x.role != "cache")
        assert one.memory_bytes(plan.sizes) == pytest.approx(cached * read / context + others, rel=1e-12)


def test_mfu_counts_no_keys_that_nothing_chooses():
    plan = planned()
    read, scored = kernel(plan, "attention"), kernel(plan, INDEXER)
    for one, keys in ((read, TOP), (scored, 65_536)):
        flops = one.flops(plan.sizes)
        assert one.counted(flops, plan.sizes, "full") == pytest.approx(flops * keys / 65_536, rel=1e-12)


def test_where_all_tokens_are_chosen_attention_takes_as_long_as_without_an_indexer():
    sparse, dense = (planned(model, context=TOP) for model in (SPARSE, DENSE))
    assert took(sparse, kernel(sparse, "attention")) == took(dense, kernel(dense, "attention"))
    assert sparse.step.time_s > dense.step.time_s
    far, dense_far = (planned(model, context=8 * TOP) for model in (SPARSE, DENSE))
    assert took(far, kernel(far, "attention")) == took(sparse, kernel(sparse, "attention"))
    assert took(dense_far, kernel(dense_far, "attention")) > 4 * took(dense, kernel(dense, "attention"))


def test_a_prompt_scores_the_tokens_before_each_and_its_scores_are_never_held_at_once():
    s, read_alone = 32_768, {"kind": "prefill", "batch": 32, "prompt": 32_768}
    plan, dense = planned(**read_alone), planned(DENSE, **read_alone)
    scored, read = kernel(plan, INDEXER), kernel(plan, "attention")
    assert scored.run_flops(plan.sizes) == s * (s + 1) // 2 * 2 * INDEX_HEADS * INDEX_DIM
    pairs = TOP * (TOP + 1) // 2 + (s - TOP) * TOP
    assert read.run_flops(plan.sizes) == pairs * 2 * HEADS * (2 * LATENT + ROTATED)
    assert plan.memory.working_bytes - dense.memory.working_bytes < 4 * s * s / 2


def test_scores_that_are_hidden_take_no_time_and_choosing_reads_all_others():
    plan = planned(kind="prefill", batch=32, prompt=32_768)
    scored, machine = kernel(plan, INDEXER), plan.question.machine
    products_s = took(plan, replace(scored, skips=False, passes=())) - pause_s(machine)
    seen = scored.run_flops(plan.sizes) / scored.flops(plan.sizes)
    chosen_s = memory_s(machine, scored.passed_bytes(plan.sizes)) + 2 * pause_s(machine)
    assert took(plan, scored) == pytest.approx(seen * products_s + chosen_s, rel=1e-9)


def test_scores_count_at_the_peak_of_fp8_where_products_of_layers_do():
    plans = [planned(kind="prefill", batch=32, prompt=32_768, dtype=dtype) for dtype in ("bf16", "fp8_128")]
    scored, read = ([took(plan, kernel(plan, name)) for plan in plans] for name in (INDEXER, "attention"))
    assert scored[1] < 0.7 * scored[0]
    assert read[1] == read[0]


# Runs ------------------------------------------------------------------------------------------------------------


def test_the_best_tokens_are_chosen_of_those_that_are_not_hidden_the_first_of_equals():
    scores = np.array([[[3.0, 1.0, 2.0, MASKED], [1.0, 1.0, 1.0, 1.0], [5.0, MASKED, MASKED, MASKED]]])
    mask = INDEX["selected_mask"]({"w": 2}, None, None, None, scores)
    assert (mask == 0).tolist() == [
        [[True, False, True, False], [True, True, False, False], [True, False, False, False]]
    ]


LAID = {
    "cache by heads": SMALL,
    "cache by sequences": {**SMALL, "layout": {**SMALL["layout"], "cache": "batch"}},
    "data alone": CHIPS,
}


@pytest.mark.parametrize("name", LAID)
@pytest.mark.parametrize("work", [{}, {"kind": "prefill", "prompt": 4096, "cached": 1024}], ids=["decode", "prefill"])
def test_devices_choose_and_attend_as_one_does(name, work):
    checked = verify(asked(**LAID[name], **work))
    assert checked.ok, checked


def test_a_choice_that_every_device_makes_by_its_own_places_is_caught(monkeypatch):
    """Steps of decoding would choose otherwise than a prompt with their tokens does."""

    def by_length(*asked):
        *_, scores = asked
        many = scores.shape[-1]
        return np.where(scores > MASKED / 2, -1.0 * ((np.arange(many) + many) % 2), MASKED)

    monkeypatch.setitem(INDEX, "selected_mask", by_length)
    assert not verify(asked(**SMALL)).ok


def test_the_mask_of_attention_is_what_the_indexer_chooses():
    plan = planned()
    (chosen,) = {
        op.output
        for op in plan.lowered.program.ops
        if isinstance(op, Index) and op.fn == "selected_mask" and op.where.kind.startswith("sparse")
    }
    hidden = [op for op in plan.lowered.program.ops if chosen in op.inputs]
    assert [op.output.name for op in hidden] == ["attention.masked"]


# What is refused -------------------------------------------------------------------------------------------------


def refused(scenario, slug):
    with pytest.raises(InputError) as caught:
        tpsim.plan(scenario)
    (problem,) = caught.value.problems
    assert problem.slug == slug
    return problem


def test_training_is_refused():
    train = {**asked(), "workload": {"global_batch": 64, "seq": 4096}}
    problem = refused(train, "not-supported-yet")
    assert "indexer" in problem.message
    assert tpsim.plan({**train, "model": DENSE}).step.time_s > 0


@pytest.mark.parametrize("table", [False, True], ids=["by a word", "by a table"])
def test_a_cache_that_is_split_by_tokens_is_refused(table):
    scenario = asked(mesh={"data": 8, "tensor": 4}, layout={"dp": "data", "tp": "tensor", "cache": "sequence"})
    if table:
        scenario["shardings"] = {"*": {"b": "data"}, "block": {"g": "tensor"}, "cache": {"t": "tensor", "g": []}}
        scenario.pop("layout")
    assert "indexer" in refused(scenario, "split-choice").message


@pytest.mark.parametrize("lacks", ["index_heads", "index_dim", "top", "query_rank"])
def test_part_of_an_indexer_is_refused(lacks, tmp_path):
    block = {
        "attention": "mla",
        "heads": 8,
        "kv_rank": 64,
        "nope": 16,
        "rope": 8,
        "value": 16,
        "query_rank": 32,
        "index_heads": 4,
        "index_dim": 8,
        "top": 16,
    }
    del block[lacks]
    model = {
        "tpsim": "model/2",
        "name": "own",
        "hidden": 64,
        "vocab": 128,
        "blocks": {"latent": block, "dense": {"ffn": "mlp", "kind": "swiglu", "hidden": 128}},
        "layers": [{"repeat": 2, "of": ["latent", "dense"]}],
    }
    (tmp_path / "own.json").write_text(json.dumps(model))
    with pytest.raises(InputError, match=lacks):
        load_model(str(tmp_path / "own.json"))


def test_a_published_config_is_the_model_of_the_library():
    folder = Path(__file__).parents[1] / "data" / "hf"
    assert tpsim.plan({**asked(), "model": str(folder / "deepseek-v3.2.json")}).step.time_s == planned().step.time_s
