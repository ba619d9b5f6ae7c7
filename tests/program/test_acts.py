"""Which part of backward every op is, where it stands, and what a fused kernel is made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
import sympy

from tests.models import GPT, LLAMA, NEOX
from tpsim.algebra.sharding import ShardingError
from tpsim.cost.kernels import kernels
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import layout
from tpsim.program.lower import lower, parted
from tpsim.program.op import Reshard, Where
from tpsim.program.practice import Practice
from tpsim.program.trace import Trace

TP = layout(tp=("X",))
SP = layout(tp=("X",), sequence_parallel=True)
FSDP = layout(dp=("D",), zero=3)
REGATHER = Practice(regather=True)
DROPPED = Practice(reshard_after_forward=True)


def derive(model, where, practice, layers=2, microbatches=1):
    return lower(model, where, practice, Dtypes(), ("D", "X"), layers=layers, microbatches=microbatches)


b, s, h = sympy.symbols("b s h", positive=True)


@pytest.mark.parametrize(
    ("where", "practice"),
    [(TP, Practice()), (TP, Practice(qkv="fused")), (SP, Practice()), (SP, REGATHER), (FSDP, DROPPED)],
    ids=["tp", "tp fused", "sp kept", "sp regathered", "fsdp"],
)
def test_products_of_a_layer_part_as_the_zero_bubble_paper_says(where, practice):
    """F 24bsh^2 + 4bs^2h, B 24bsh^2 + 8bs^2h, W 24bsh^2 FLOPs: Qi et al. 2023, table 1, of plain attention."""
    program = derive(GPT, where, replace(practice, attention="plain"))
    sizes = {"b": b, "s": s, "t": s, "h": h, "g": 8, "r": 1, "d": h / 8, "j": 3, "f": 4 * h}
    flops = defaultdict(int)
    for one in kernels(program):
        if one.products and one.where.index("layers") == 1:
            flops[one.where.act] += sum(op.flops(sizes, {"D": 1, "X": 1}) for op in one.products)
    linear, scores = 24 * b * s * h**2, 4 * b * s**2 * h
    expected = {"F": linear + scores, "B": linear + 2 * scores, "W": linear}
    assert {act: sympy.simplify(flops[act] - expected[act]) for act in flops} == dict.fromkeys("FBW", 0)


def test_gathers_and_scatters_for_parameters_are_of_w_and_those_of_the_stream_of_b():
    program = derive(LLAMA, SP, REGATHER)
    acts = {}
    for op in program.ops:
        if isinstance(op, Reshard) and op.where.phase == "backward" and op.where.index("layers") == 1:
            acts |= {(move.kind, op.output.name): op.where.act for move in op.moves if move.kind != "slice"}
    assert acts == {
        ("all_gather", "d.mlp.out"): "B",
        ("all_gather", "d.attention.out"): "B",
        ("all_gather", "mlp.in"): "W",
        ("all_gather", "attention.in"): "W",
        ("reduce_scatter", "d.mlp.in"): "B",
        ("reduce_scatter", "d.attention.in"): "B",
        ("all_reduce", "grad.gain_attention"): "W",
        ("all_reduce", "grad.gain_mlp"): "W",
    }


def test_weights_are_gathered_again_for_the_stream_and_scattered_for_themselves():
    program = derive(LLAMA, FSDP, DROPPED)
    moved = [op for op in program.ops if isinstance(op, Reshard) and op.where.act in "BW" and op.where.place == "layer"]
    acts = Counter((move.kind, op.where.act) for op in moved for move in op.moves)
    assert acts == {("all_gather", "B"): 18, ("reduce_scatter", "W"): 18}


@pytest.mark.parametrize("model", [GPT, LLAMA, NEOX], ids=lambda model: model.name)
@pytest.mark.parametrize(("where", "practice"), [(TP, Practice()), (SP, REGATHER), (FSDP, DROPPED)])
def test_b_reads_nothing_that_w_makes(model, where, practice):
    program = derive(model, where, practice, microbatches=2)
    made = {op.output: op.where.act for op in program.ops}
    assert [str(op.output) for op in program.ops if op.where.act == "B" and "W" in {made[x] for x in op.inputs}] == []
    assert {op.where.act for op in program.ops} == set("FBWU")


@pytest.mark.parametrize("model", [GPT, LLAMA, NEOX], ids=lambda model: model.name)
def test_one_array_is_handed_from_one_part_of_the_stack_to_the_next_each_way(model):
    program = derive(model, SP, REGATHER, layers=3)
    where = {op.output: (op.where.place, op.where.index("layers")) for op in program.ops}
    read = defaultdict(set)
    for op in program.ops:
        for x in op.inputs:
            if x.role == "activation" and where[x] != (here := (op.where.place, op.where.index("layers"))):
                read[op.where.act, where[x], here].add(x)
    down = list(pairwise([("embedding", None), ("layer", 0), ("layer", 1), ("layer", 2), ("head", None)]))
    up = [(above, below) for below, above in down[1:]]
    stream = {way: len(arrays) for way, arrays in read.items() if way[0] in "FB"}
    assert stream == {**{("F", *pair): 1 for pair in down}, **{("B", *pair): 1 for pair in up}}
    assert len(read["W", ("layer", 0), ("embedding", None)]) == 1  # nothing leaves the embedding: all of it is W


def test_a_fused_kernel_is_of_b_or_of_w_as_a_whole():
    program = derive(GPT, TP, Practice())
    acts = defaultdict(set)
    for op in program.ops:
        if op.where.kernel and op.where.phase == "backward":
            acts[op.where.kernel, op.where.loops].add(op.where.act)
    assert set(map(len, acts.values())) == {1}
    assert acts["norm.attention", (("microbatches", 0), ("layers", 1))] == {"B"}


def test_without_the_stream_all_of_backward_is_for_parameters():
    program = derive(GPT, TP, Practice())
    undone = [replace(op, where=replace(op.where, act="B")) if op.where.act == "W" else op for op in program.ops]
    gradients = [x for op in undone if op.where.act == "U" for x in op.inputs]
    assert "B" not in {op.where.act for op in parted(undone, [], gradients) if op.where.place == "layer"}


KERNELS = {"norm", "attention", "rotary", "activation", "add", "loss"}


@pytest.mark.parametrize("model", [GPT, LLAMA, NEOX], ids=lambda model: model.name)
def test_kernels_hold_no_weights_products_and_no_moves(model):
    program = derive(model, SP, REGATHER, layers=1)
    inside = [op for op in program.ops if op.where.kernel]
    assert {op.where.kernel.partition(".")[0] for op in inside} == KERNELS - ({"rotary"} if model is GPT else set())
    assert [op for op in inside if isinstance(op, Reshard)] == []
    with_weights = [one for one in kernels(program) if one.products and one.where.kernel not in ("", "attention")]
    assert with_weights == []


def test_an_op_reads_only_what_its_stage_holds():
    trace = Trace(TP, ("X",), Where("F", "mlp", "layer"))
    x = trace.leaf("x", ("b", "h"), "residual", "bf16", "param")
    trace.lin("here", x)
    with (
        trace.at(replace(trace.where, chunks=(1,))),
        pytest.raises(ShardingError, match=r"there of chunk 1 reads x, which chunk 0 holds"),
    ):
        trace.lin("there", x)
