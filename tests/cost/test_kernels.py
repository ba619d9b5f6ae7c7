"""Kernels: which ops stand in one, what it reads and writes, its FLOPs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest

from tests.models import GPT, LLAMA, blocks, loops, mixture, parameters
from tpsim.cost.compute import kernel_s
from tpsim.cost.kernels import kernels
from tpsim.cost.sizes import Sizes
from tpsim.machine.chip_seconds import memory_s, pause_s
from tpsim.machine.profile import load
from tpsim.program.dtypes import DTYPE_BYTES, Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Einsum, Lin, is_cast, is_matrix_product
from tpsim.program.practice import Practice
from tpsim.quantity.size import total

B, S, T, D = 4, 8, 2, 2
"""Sequences over all data shards, tokens, and devices of the axes T and D."""
TOKENS = B // D * S
"""Of one device."""


def found(model, practice=None, dtypes=None, **stated):
    """Kernels by act and by the name of what they belong to, in order; sizes beside them."""
    where, practice = layout(tp=("T",), dp=("D",), **stated), practice or Practice()
    program = lower(model, where, practice, dtypes or Dtypes(), ("D", "T"))
    sizes = Sizes(model.dims(sequences=B, seq=S), {"D": D, "T": T}, loops(model.layers))
    return kernels(program, practice), sizes


def layer_bytes(model, practice=None, **stated):
    """Bytes of each kernel of a layer that bears a name, by act and name, weights of norms left out."""
    every, sizes = found(model, practice, **stated)
    named = [one for one in every if one.where.kernel and one.where.place == "layer"]
    small = {"h", "g", "d", "r", "f"}
    moved = {}
    for one in named:
        arrays = [x for x in (*one.reads, *one.writes) if not set(x.dims) <= small]
        key = one.where.act, one.where.kernel
        each = (sizes.local_elements(x.type) * (1 if x.dtype == "int8" else 2) for x in arrays)
        moved[key] = moved.get(key, 0) + sum(each)
    return moved


def test_pointwise_kernels_move_their_inputs_and_outputs_and_nothing_between():
    """Of bsh (or of bsf, split over T): 2 in a norm, 3 in an add, 2 in GELU; backward a norm reads one more.

    A norm puts two numbers per token beside that, and reads them in backward.
    """
    kept = 2 * 2 * TOKENS
    stream, inner = 2 * TOKENS * GPT.hidden, 2 * TOKENS * GPT.ffn_hidden // T
    moved = layer_bytes(GPT)
    assert {key: moved[key] for key in moved if key[1] != "attention"} == {
        ("F", "norm.attention"): 2 * stream + kept,
        ("F", "add.attention"): 3 * stream,
        ("F", "norm.mlp"): 2 * stream + kept,
        ("F", "activation.mlp"): 2 * inner,
        ("F", "add.mlp"): 3 * stream,
        ("W", "add.mlp"): stream,
        ("B", "activation.mlp"): 3 * inner,
        ("B", "norm.mlp"): 3 * stream + 2 * TOKENS + kept,
        ("B", "add.attention"): 3 * stream + 2 * TOKENS,
        ("B", "norm.attention"): 3 * stream + 2 * TOKENS + kept,
    }


def test_a_gated_activation_reads_both_its_inputs_and_backward_writes_both_cotangents():
    inner = 2 * TOKENS * LLAMA.ffn_hidden // T
    moved = layer_bytes(LLAMA)
    assert (moved["F", "activation.mlp"], moved["B", "activation.mlp"]) == (3 * inner, 5 * inner)


def test_the_stream_over_tokens_makes_norms_and_adds_of_a_device_smaller():
    whole, split = layer_bytes(GPT), layer_bytes(GPT, sequence_parallel=True)
    assert {key: whole[key] // split[key] for key in split if key[1].startswith(("norm", "add"))} == {
        key: T for key in split if key[1].startswith(("norm", "add"))
    }


def test_fused_attention_moves_queries_keys_values_and_its_output():
    heads = 2 * TOKENS * GPT.heads * GPT.head_dim // T
    kept = 2 * TOKENS * GPT.heads // T  # the log of the sum, a number per head and token
    moved = layer_bytes(GPT)
    assert moved["F", "attention"] == 4 * heads + kept
    assert moved["B", "attention"] == 7 * heads + kept  # q, k, v, d.out in, three cotangents out


def test_plain_attention_passes_over_the_scores():
    """8 bytes of each forward and 14 backward, with the sums that it is kept with; beside them queries, keys, values.

    Dropout is a pass of its own, with its mask of a byte: 5 bytes more each way.
    """
    scores = B // D * S * S * GPT.heads // T
    heads = 2 * TOKENS * GPT.heads * GPT.head_dim // T
    sums = 2 * TOKENS * GPT.heads // T
    for rate, passes in ((0, 0), (0.1, 5)):
        moved = layer_bytes(replace(GPT, dropout=rate), Practice(attention="plain"))
        assert moved["F", "attention"] == (8 + passes) * scores + 4 * heads + sums
        assert moved["B", "attention"] == (14 + passes) * scores + 8 * heads + sums


@pytest.mark.parametrize(("gradients", "each"), [("f32", 30), ("bf16", 28)])
def test_the_update_reads_and_writes_every_state_once(gradients, each):
    """16-bit weights, master, two moments: 12 read, 12 and 2 written, and the gradient read, per parameter."""
    every, sizes = found(GPT, dtypes=Dtypes(gradients=gradients))
    update = [one for one in every if one.where.act == "U"]
    elements = sum(sizes.local_elements(x.type) for one in update for x in one.reads if x.name.startswith("master."))
    assert elements > 0
    assert sum(one.memory_bytes(sizes) for one in update) == each * elements
    assert len(update) == len({one.where.place for one in update})  # one kernel for a part of the stack


def test_a_weight_gradient_is_added_up_in_its_own_precision():
    every, sizes = found(GPT)
    (one,) = [one for one in every if any(x.name == "grad.W1" for x in one.writes)]
    inner, weights = TOKENS * GPT.ffn_hidden // T, GPT.hidden * GPT.ffn_hidden // T
    assert one.memory_bytes(sizes) == 2 * (TOKENS * GPT.hidden + inner) + 2 * 4 * weights


@pytest.mark.parametrize(
    ("copies", "gradients", "each"),
    [
        ("fused", "f32", []),
        ("added", "bf16", [2 + 2 + 2]),
        ("added", "f32", [2 + 4 + 4]),
        ("cast", "f32", [2 + 4, 4 + 4 + 4]),
        ("cast", "bf16", [2 + 2 + 2]),
        ("flat", "f32", [2 + 2, 2 + 4, 4 + 4]),
        ("flat", "bf16", [2 + 2, 2 + 2]),
        ("each", "f32", [2 + 4]),
        ("each", "bf16", [2 + 2]),
    ],
)
def test_a_framework_s_passes_over_a_gradient_are_kernels_behind_what_makes_it(copies, gradients, each):
    every, sizes = found(GPT, Practice(copies=copies), Dtypes(gradients=gradients))
    (one,) = [one for one in every if any(x.name == "grad.W1" for x in one.writes)]
    weights = GPT.hidden * GPT.ffn_hidden // T
    passed = [sum(DTYPE_BYTES[x.dtype] for x in moved) for moved in one.passes]
    assert (passed, one.passed_bytes(sizes)) == (each, sum(each) * weights)
    alone = 2 * TOKENS * GPT.hidden + 2 * TOKENS * GPT.ffn_hidden // T + 2 * weights
    assert (one.memory_bytes(sizes) == alone) == (copies != "fused")


def test_fsdp2_copies_gathered_weights_out_of_their_buffer_once_in_each_pass():
    every, _ = found(GPT, PRACTICES["fsdp2"], zero=3)
    read = [one for one in every if one.passes and any(x.name == "W1" for x in one.reads)]
    assert [one.where.act for one in read] == ["F", "B"]
    assert all([(x.name, x.dtype) for x in one.passes[0]] == 2 * [("W1", "bf16")] for one in read)


@pytest.mark.parametrize(("zero", "acts"), [(3, {"F": 3, "B": 1}), (0, {"F": 3})])
def test_weights_of_a_layer_are_cast_by_one_kernel_and_by_one_more_where_they_are_gathered_again(zero, acts):
    every, sizes = found(GPT, PRACTICES["fsdp2"], Dtypes(params="f32"), zero=zero)
    casts = [kernel for kernel in every if is_cast(kernel.ops[0])]
    assert Counter(kernel.where.act for kernel in casts) == acts  # around layers, where they stay; of the traced one
    names = {parameter.name for parameter in parameters(GPT) if parameter.places == ("layer",)}
    for kernel in (kernel for kernel in casts if kernel.where.place == "layer"):
        assert sorted(x.name for x in kernel.reads) == sorted(names)
        elements = total(sizes.local_elements(x.type) for x in kernel.reads)
        assert kernel.memory_bytes(sizes) == (4 + 2) * elements
        assert all(bool(x.type.axes("h")) == (zero > 0) for x in kernel.reads if "h" in x.dims)


def test_casts_of_weights_cut_no_kernel_in_two():
    practice = replace(PRACTICES["fsdp2"], settled="sent")
    mixed, narrow = (found(GPT, practice, dtypes, zero=3)[0] for dtypes in (Dtypes(params="f32"), Dtypes()))
    others = [kernel.where for kernel in mixed if not is_cast(kernel.ops[0])]
    assert others == [kernel.where for kernel in narrow]


def test_passes_take_their_bytes_and_a_pause_each_beside_the_product():
    machine = load("dgx-a100")
    every, sizes = found(GPT, Practice(copies="flat"))
    (one,) = [one for one in every if any(x.name == "grad.W1" for x in one.writes)]
    with_them, without = (kernel_s(some, sizes, machine, "bf16", None) for some in (one, replace(one, passes=())))
    passed = memory_s(machine, one.passed_bytes(sizes)) + 3 * pause_s(machine)
    assert with_them - without == pytest.approx(passed)
    norms = [one for one in every if one.where.kernel.startswith("norm") and one.passes]
    assert [len(one.passes) for one in norms] == 3 * [3 * 2]  # of gains and shifts: at the end, twice in a layer


def test_a_bias_is_added_by_the_product_before_it():
    every, _ = found(GPT)
    forward = [one for one in every if one.where.act == "F" and one.where.place == "layer" and not one.where.kernel]
    assert [one.ops[-1].output.name for one in forward] == [
        *(f"attention.{name}" for name in ("q", "k", "v", "out")),
        *("mlp.up", "mlp.out"),
    ]
    assert all(one.products for one in forward)


def test_a_sum_of_terms_that_one_kernel_makes_leaves_it_added_up():
    """What only a norm reads has its cotangent from that norm alone: no kernel copies it behind."""
    stream = 2 * TOKENS * LLAMA.hidden
    for model in (GPT, LLAMA, replace(LLAMA, norms="both"), blocks(LLAMA, {"qk_norm": "head"})):
        every, sizes = found(model)
        makers = {x: one for one in every for x in one.writes}
        for one in (one for one in every if {*map(type, one.ops)} == {Lin} and one.where.act in {"B", "W"}):
            made = [makers.get(x) for x in one.reads if x.role != "param"]
            assert any(other is not made[0] for other in made) or made[0] is None or made[0].loops != one.loops
        (last,) = [one for one in every if (one.where.act, one.where.kernel) == ("B", "norm.final")]
        assert last.memory_bytes(sizes) // stream == 3


def test_parts_that_one_kernel_makes_are_joined_by_another():
    """Queries, keys and values of one projection: a split's backward lays cotangents side by side."""
    every, sizes = found(GPT, PRACTICES["megatron"])
    (join,) = [one for one in every if any(x.name == "d.attention.qkv" for x in one.writes)]
    assert join.memory_bytes(sizes) == 2 * 3 * 2 * TOKENS * GPT.heads * GPT.head_dim // T


@pytest.mark.parametrize("model", [GPT, LLAMA, replace(GPT, dropout=0.1)])
@pytest.mark.parametrize("recompute", ["full", "attention"])
def test_what_runs_once_more_as_a_whole_writes_what_it_wrote(model, recompute):
    """But for numbers per token and masks of dropout, which it keeps for backward only now."""
    every, _ = found(model, replace(PRACTICES["megatron"], recompute=(recompute,)))
    again = [one for one in every if one.where.again == "replay"]
    ran = [one for one in every if one.where.act == "F" and one.where.place == "layer"]
    if recompute != "full":
        ran = [one for one in ran if one.where.kernel.startswith(recompute)]
    assert [written(one) for one in again] == [written(one) for one in ran] != []


def written(kernel):
    """Names of what a kernel puts into memory that is as wide as the stream, heads, or the MLP."""
    return {x.name for x in kernel.writes if not {*x.dims} <= {"b", "s", "g", "r"} and x.dtype != "int8"}


@pytest.mark.parametrize("recompute", [("full",), ("attention",), ("attention.mixed", "attention.v")], ids=", ".join)
@pytest.mark.parametrize("base", PRACTICES)
@pytest.mark.parametrize("model", [GPT, LLAMA, mixture()], ids=lambda model: model.name)
def test_what_runs_once_more_is_as_many_kernels_as_it_was_and_puts_no_scores_into_memory(model, base, recompute):
    """A fused kernel does not stop for what it reads to be recomputed: it began, and went on behind that."""
    every, _ = found(model, replace(PRACTICES[base], recompute=recompute))
    ran = [one for one in every if one.where.act == "F" and one.where.place == "layer" and one.where.kernel]
    named = [one.where.kernel for one in every if one.where.again == "replay" and one.where.kernel]
    again = Counter(kernel.removesuffix(".again") for kernel in named)
    assert {*again.values()} == {1}
    assert {"attention"} <= again.keys() <= {one.where.kernel for one in ran}
    attention = [one for one in every if one.on_scores]
    assert [one.fused for one in attention] == [True] * 3
    assert not [x for one in attention for x in (*one.reads, *one.writes) if {"s", "t"} <= {*x.dims}]


def test_a_lookup_reads_what_it_finds_and_not_the_table():
    every, sizes = found(LLAMA)
    assert every[0].memory_bytes(sizes) == 2 * 2 * TOKENS * LLAMA.hidden


def test_a_causal_kernel_leaves_out_what_the_mask_hides_unless_practice_computes_it():
    for practice, share in ((Practice(), (S + 1) / (2 * S)), (Practice(causal="whole"), 1), (PRACTICES["xla"], 1)):
        every, sizes = found(GPT, practice)
        attention = [one for one in every if one.where.kernel == "attention"]
        assert len(attention) == 2
        assert all(one.run_flops(sizes) == share * one.flops(sizes) for one in attention)
    every, sizes = found(GPT, Practice(attention="plain"))
    assert all(one.run_flops(sizes) == one.flops(sizes) for one in every)


def test_all_products_are_in_kernels_once():
    for model in (GPT, LLAMA):
        every, sizes = found(model)
        inside = sum(one.flops(sizes) for one in every)
        ops = dict.fromkeys(op for one in every for op in one.ops)
        assert inside == sum(op.flops(sizes.dims, sizes.axes) for op in ops if is_matrix_product(op)) > 0


@dataclass(frozen=True)
class Named:
    dims: tuple[str, ...]
    role: str = "activation"


def product(left: str, right: str, out: str) -> Einsum:
    return Einsum((Named(tuple(left)), Named(tuple(right))), Named(tuple(out)), None)


def test_a_sum_of_elementwise_products_is_no_matrix_product():
    assert is_matrix_product(product("bsh", "hf", "bsf"))
    assert is_matrix_product(product("bsgrd", "btgd", "bgrst"))
    assert not is_matrix_product(product("bsh", "bsh", "h"))
