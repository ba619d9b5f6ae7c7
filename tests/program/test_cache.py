"""Inference: which collectives fall out of a step for each way that the cache is split, and what a step refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.models import GPT, LLAMA
from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import Layout, cache_row, layout
from tpsim.program.lower import ROOT
from tpsim.program.op import Array, Max, Reshard
from tpsim.program.practice import Practice
from tpsim.program.serving import Serving, append, lower_serving
from tpsim.program.trace import Trace

DECODE = Serving(phase="decode")
PREFILL = Serving(phase="prefill", cached=False)
TP = layout(tp=("X",))


def cached(by):
    return Layout({**TP.table, "cache": cache_row(by, tp=("X",), dp=())})


def program(laid, serving=DECODE, **others):
    asked = {"model": LLAMA, "practice": Practice(qkv="fused"), "dtypes": Dtypes(), "order": ("X", "Y"), **others}
    return lower_serving(layout=laid, serving=serving, **asked)


def sent(made, block="attention"):
    """Array, collective, type before and dtype of every move of a block, but for free slices."""
    ops = [op for op in made.ops if isinstance(op, Reshard) and op.where.block == block]
    return [
        (op.output.name.removeprefix("attention."), move.kind, str(move.before), op.output.dtype)
        for op in ops
        for move in op.moves
        if move.kind != "slice"
    ]


OUT = ("out", "all_reduce", "[b, s, h]{U_X}", "bf16")
DECODED = {
    "heads": [OUT],
    "batch": [
        ("k", "all_to_all", "[b, s, g_X, d]", "bf16"),
        ("v", "all_to_all", "[b, s, g_X, d]", "bf16"),
        ("q", "all_to_all", "[b, s, g_X, r, d]", "bf16"),
        ("narrow", "all_to_all", "[b_X, s, g, r, d]", "bf16"),
        OUT,
    ],
    "sequence": [
        ("k", "all_gather", "[b, s, g_X, d]", "bf16"),
        ("v", "all_gather", "[b, s, g_X, d]", "bf16"),
        ("q", "all_gather", "[b, s, g_X, r, d]", "bf16"),
        ("max", "all_reduce", "[b, g, r, s]{M_X}", "f32"),
        ("sum_exp", "all_reduce", "[b, g, r, s]{U_X}", "f32"),
        ("mixed", "reduce_scatter", "[b, s, g, r, d]{U_X}", "f32"),
        OUT,
    ],
}
"""Way that the cache is split -> what attention sends in a step of decoding: all of it follows from the table."""


@pytest.mark.parametrize("by", DECODED)
def test_what_a_step_of_decoding_sends_follows_from_where_the_cache_lies(by):
    assert sent(program(cached(by))) == DECODED[by]


@pytest.mark.parametrize("by", DECODED)
def test_a_prompt_from_nothing_attends_to_its_own_keys_and_sends_them_to_the_cache_alone(by):
    rows = [one for one in DECODED[by] if one[0] in "kv"]
    assert sent(program(cached(by), PREFILL)) == [*rows, OUT]


def test_a_step_of_inference_runs_forward_alone_and_hands_out_its_caches():
    made = program(TP, model=GPT, practice=Practice())
    assert {op.where.act for op in made.ops} == {"F"}
    assert list(made.results) == ["sampled", "cache.0.K", "cache.0.V"]
    leaves = [op.output for op in made.ops if op.output.role == "cache" and not op.inputs]
    assert [str(leaf) for leaf in leaves] == ["cache.K[b, t, g_X, d]", "cache.V[b, t, g_X, d]"]
    assert not any("dropped" in op.output.name for op in made.ops)


def test_the_largest_logit_travels_beside_its_place_in_eight_bytes():
    argmax = Serving(phase="decode", sampling="argmax")
    assert sent(program(TP), "sampling") == [("sampled", "all_gather", "[b, s, v_X]", "bf16")]
    assert sent(program(TP, argmax), "sampling") == [("sampled", "all_reduce", "[b, s]{M_X}", "f64")]


@pytest.mark.parametrize(("sampling", "capped"), [("gather", "[b, s, v]"), ("argmax", "[b, s, v_X]")])
def test_logits_are_capped_before_one_of_them_is_taken(sampling, capped):
    """Gemma 2; vLLM, layers/logits_processor.py: gathered ones, or, of the largest alone, those of each rank."""
    serving, cap = Serving(phase="decode", sampling=sampling), 30.0
    made = program(TP, serving, model=replace(LLAMA, logit_softcap=cap))
    scaled, tanh, back = (op for op in made.ops if op.where.kernel == "cap")
    assert (scaled.inputs[0].name, str(scaled.output.type), scaled.scales[0].value) == (
        {"gather": "sampled", "argmax": "logits"}[sampling],
        capped,
        1 / cap,
    )
    assert (tanh.fn, tanh.inputs, back.inputs, back.scales[0].value) == ("tanh", (scaled.output,), (tanh.output,), cap)
    taken = [
        made.results["sampled"],
        *(x for op in made.ops if isinstance(op, Max) and op.dim == "v" for x in op.inputs),
    ]
    assert back.output in taken
    assert sent(made, "sampling") == sent(program(TP, serving), "sampling")


def test_of_a_prompt_the_last_token_alone_reaches_the_vocabulary():
    assert sent(program(TP, PREFILL), "sampling") == [("sampled", "all_gather", "[b, v_X]", "bf16")]


def test_rows_are_kept_in_the_number_format_of_the_cache():
    made = program(TP, dtypes=Dtypes(cache="fp8"))
    assert [made.results[name].dtype for name in ("cache.0.K", "cache.0.V")] == ["fp8", "fp8"]
    assert sent(program(cached("sequence"), dtypes=Dtypes(cache="fp8")))[0][3] == "bf16"  # cast where it is written


def test_queries_split_over_a_second_axis_need_two_exchanges_where_the_cache_lies_by_batch():
    """Book IN-17: heads over Y, the batch of the cache over Z."""
    table = {"*": {"g": ("Y",), "r": ("Z",), "f": ("Y", "Z"), "v": ("Y", "Z")}, "cache": {"b": ("Z",), "r": ()}}
    found = sent(program(Layout(table), order=("Y", "Z"), practice=Practice()))
    assert [(name, kind) for name, kind, *_ in found] == [
        ("q", "all_to_all"),
        ("narrow", "all_to_all"),
        ("out", "all_reduce"),
    ]
    assert found[-1][2] == "[b, s, h]{U_YZ}"


def test_rows_that_lie_otherwise_than_the_cache_cannot_be_written_into_it():
    trace = Trace(TP, ("X",), ROOT)
    cache = Array("K", Sharding(("b", "t", "g", "d"), ((), (), ("X",), ())), "cache", "bf16", "cache")
    rows = Array("k", Sharding(("b", "s", "g", "d"), ((), (), (), ())), "cache", "bf16")
    with pytest.raises(ShardingError) as error:
        append(trace, cache, rows)
    assert str(error.value) == (
        "k[b, s, g, d] cannot be written into K[b, t, g_X, d]: rows must come as [b, s, g_X, d]"
    )
