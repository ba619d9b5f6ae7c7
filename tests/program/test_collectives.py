"""The collectives that fall out of the algebra, per layout: the table to expect, held against what is derived."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.models import GEMMA, GPT, LLAMA, NEOX, QWEN, blocks, parameters
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Program, Reshard
from tpsim.program.practice import Practice

if TYPE_CHECKING:
    from tpsim.program.model import Model

ORDER = ("D", "X", "Y")
KEEP = Practice()
AGAIN = Practice(regather=True, reshard_after_forward=True)
TP = layout(tp=("X",))
SP = layout(tp=("X",), sequence_parallel=True)
DP = layout(dp=("D",))


def derive(model: Model, where: object, practice: Practice = KEEP, layers: int = 1, microbatches: int = 1) -> Program:
    return lower(model, where, practice, Dtypes(), ORDER, layers=layers, microbatches=microbatches)  # type: ignore[arg-type]


def collectives(
    program: Program, phase: str, *, layer: int | str | None = "any", names: tuple[str, ...] = ()
) -> Counter[str]:
    """How often each ``kind_axes type`` occurs, slices left out; `names` keeps arrays whose name starts so."""
    return Counter(
        f"{move.kind}_{''.join(move.axes)} {move.before}"
        for op in program.ops
        if isinstance(op, Reshard) and op.where.phase == phase and layer in ("any", op.where.index("layers"))
        for move in op.moves
        if move.kind != "slice" and (not names or op.output.name.startswith(names))
    )


def activations(program: Program, phase: str) -> Counter[str]:
    """Collectives of one layer that are not about parameters or their gradients."""
    return collectives(program, phase, layer=0, names=("attention", "mlp", "d.", "block"))


@pytest.mark.parametrize("model", [GPT, LLAMA], ids=["gpt", "llama"])
@pytest.mark.parametrize("qkv", ["separate", "fused"])
def test_tensor_parallel_layer_has_two_all_reduces_forward_and_two_backward(model, qkv):
    program = derive(model, TP, Practice(qkv=qkv))
    assert collectives(program, "forward", layer=0) == {"all_reduce_X [b, s, h]{U_X}": 2}
    assert collectives(program, "backward", layer=0) == {"all_reduce_X [b, s, h]{U_X}": 2}
    assert collectives(program, "update") == {}


@pytest.mark.parametrize("model", [LLAMA, NEOX], ids=["in a row", "side by side"])
def test_cotangents_that_owe_nothing_travel_as_one_under_every_practice(model):
    """The residual's and the norms' of the embedding: none of them is of a product with a redistribution of its own."""
    program = derive(model, SP, Practice(cotangents="per_use"))
    assert collectives(program, "backward", layer=None, names=("d.embedding",)) == {"all_gather_X [b, s_X, h]": 1}


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["llama", "gpt"])
def test_activations_are_of_their_own_dtype_whatever_weights_are_stored_as(model):
    dtypes = Dtypes(activations="fp8", params="f32", gradients="bf16", loss="f64")
    program = lower(model, SP, KEEP, dtypes, ORDER)
    stream = [op for op in program.ops if {"b", "h"} <= set(op.output.dims)]
    assert {op.output.dtype for op in stream if op.where.phase == "forward"} == {"fp8"}
    assert {op.output.dtype for op in stream if isinstance(op, Reshard)} == {"fp8"}


@pytest.mark.parametrize(("model", "count"), [(GPT, 6), (LLAMA, 7)], ids=["gpt", "gated"])
def test_settling_per_use_pays_once_per_projection(model, count):
    program = derive(model, TP, Practice(cotangents="per_use"))
    both = collectives(program, "forward", layer=0) + collectives(program, "backward", layer=0)
    assert both == {"all_reduce_X [b, s, h]{U_X}": count}


def test_a_fused_projection_settled_per_use_is_one_use():
    program = derive(GPT, TP, Practice(cotangents="per_use", qkv="fused"))
    assert collectives(program, "backward", layer=0) == {"all_reduce_X [b, s, h]{U_X}": 2}


@pytest.mark.parametrize(("model", "arrays"), [(LLAMA, 2), (GPT, 6)], ids=["gains", "gains-shifts-biases"])
def test_kept_sequence_parallelism_has_four_gathers_and_four_scatters(model, arrays):
    program = derive(model, SP)
    once = {"all_gather_X [b, s_X, h]": 2, "reduce_scatter_X [b, s, h]{U_X}": 2}
    assert activations(program, "forward") == once
    assert activations(program, "backward") == once
    assert collectives(program, "backward", layer=0, names=("grad.",)) == {"all_reduce_X [h]{U_X}": arrays}


def test_regathered_sequence_parallelism_has_two_gathers_more():
    program = derive(GPT, SP, AGAIN)
    assert activations(program, "forward") == {"all_gather_X [b, s_X, h]": 2, "reduce_scatter_X [b, s, h]{U_X}": 2}
    assert activations(program, "backward") == {"all_gather_X [b, s_X, h]": 4, "reduce_scatter_X [b, s, h]{U_X}": 2}


@pytest.mark.parametrize(("regather", "weights"), [(True, False), (False, True)])
def test_activations_and_weights_are_gathered_again_by_switches_of_their_own(regather, weights):
    where = layout(tp=("X",), dp=("D",), zero=3, sequence_parallel=True)
    program = derive(LLAMA, where, Practice(regather=regather, reshard_after_forward=weights))
    again = [op for op in program.ops if isinstance(op, Reshard) and op.where.again]
    assert {op.output.role for op in again} == ({"activation"} if regather else {"param"})


def test_parameters_used_on_the_sharded_stream_are_summed_once_per_step_for_any_number_of_microbatches():
    program = derive(GPT, SP, microbatches=3)
    assert collectives(program, "backward", layer=0, names=("grad.",)) == {"all_reduce_X [h]{U_X}": 6}


def test_parallel_residual_shares_one_forward_all_reduce():
    program = derive(NEOX, TP)
    assert collectives(program, "forward", layer=0) == {"all_reduce_X [b, s, h]{U_X}": 1}
    assert collectives(program, "backward", layer=0) == {"all_reduce_X [b, s, h]{U_X}": 2}


def test_blocks_that_share_a_norm_share_its_gather_and_have_one_gain():
    apart, shared = (derive(replace(NEOX, shared_norm=share), SP) for share in (False, True))
    gather = "all_gather_X [b, s_X, h]"
    assert [collectives(program, "forward", layer=0)[gather] for program in (apart, shared)] == [2, 1]
    gains = [{one.name for one in parameters(replace(NEOX, shared_norm=share))} for share in (False, True)]
    assert gains[0] - gains[1] == {"gain_mlp", "shift_mlp"}


def test_vocabulary_parallel_embedding_owes_forward_only():
    program = derive(LLAMA, TP)
    assert collectives(program, "forward", names=("embedding",)) == {"all_reduce_X [b, s, h]{U_X}": 1}
    assert collectives(program, "backward", names=("d.embedding", "grad.E")) == {}


def test_vocabulary_parallel_embedding_scatters_and_gathers_under_sequence_parallelism():
    program = derive(LLAMA, SP)
    assert collectives(program, "forward", names=("embedding",)) == {"reduce_scatter_X [b, s, h]{U_X}": 1}
    assert collectives(program, "backward", names=("d.embedding",)) == {"all_gather_X [b, s_X, h]": 1}


def test_parallel_cross_entropy_is_three_all_reduces_and_the_output_layer_one_backward():
    program = derive(LLAMA, TP)
    forward = collectives(program, "forward", layer=None, names=("logits", "loss", "head"))
    assert forward == {"all_reduce_X [b, s]{M_X}": 1, "all_reduce_X [b, s]{U_X}": 2}
    assert collectives(program, "backward", layer=None) == {"all_reduce_X [b, s, h]{U_X}": 1}


def test_the_head_gathers_and_scatters_under_sequence_parallelism_and_its_gain_owes():
    program = derive(LLAMA, SP)
    assert collectives(program, "forward", names=("head",)) == {"all_gather_X [b, s_X, h]": 1}
    backward = collectives(program, "backward", layer=None, names=("d.head", "grad."))
    assert backward == {"reduce_scatter_X [b, s, h]{U_X}": 1, "all_reduce_X [h]{U_X}": 1}


def test_gathered_cross_entropy_moves_the_logits_and_nothing_else():
    program = derive(LLAMA, TP, Practice(cross_entropy="gathered"))
    assert collectives(program, "forward", layer=None, names=("logits", "loss")) == {"all_gather_X [b, s, v_X]": 1}
    assert collectives(program, "backward", layer=None) == {"all_reduce_X [b, s, h]{U_X}": 1}


@pytest.mark.parametrize("microbatches", [1, 3])
def test_data_parallelism_reduces_every_gradient_once_per_step(microbatches):
    program = derive(LLAMA, DP, microbatches=microbatches)
    layer = collectives(program, "backward", layer=0)
    assert sum(layer.values()) == 9
    assert all(key.startswith("all_reduce_D") for key in layer)
    assert collectives(program, "forward") == {"all_reduce_D []{U_D}": 1}
    assert collectives(program, "update") == {}


def test_gradients_reduced_per_microbatch_are_reduced_in_each():
    program = derive(LLAMA, DP, Practice(gradients="per_microbatch"), microbatches=3)
    assert sum(collectives(program, "backward", layer=0).values()) == 27


@pytest.mark.parametrize(("practice", "gathers"), [(KEEP, 0), (AGAIN, 9)], ids=["kept", "resharded"])
def test_fsdp_gathers_and_scatters_every_parameter(practice, gathers):
    program = derive(LLAMA, layout(dp=("D",), zero=3), practice)
    forward, backward = (collectives(program, phase, layer=0) for phase in ("forward", "backward"))
    kinds = Counter({key.split()[0]: 0 for key in backward})
    for key, count in backward.items():
        kinds[key.split()[0]] += count
    assert sum(forward.values()) == 9
    assert all(key.startswith("all_gather_D") for key in forward)
    assert +kinds == +Counter({"reduce_scatter_D": 9, "all_gather_D": gathers})


@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["llama", "gpt"])
def test_zero_3_gathers_every_weight_again_also_those_that_no_derivative_reads(model):
    """As a group of a module is gathered: PyTorch's fully_shard before its backward, DeepSpeed's pre-backward hook."""
    program = derive(model, layout(dp=("D",), zero=3), AGAIN)
    again = [op.output.name for op in program.ops if isinstance(op, Reshard) and op.where.again]
    assert sorted(again) == sorted({parameter.name for parameter in parameters(model)})


@pytest.mark.parametrize(
    ("zero", "practice", "backward", "update"),
    [
        (1, KEEP, set(), {"reduce_scatter_D", "all_gather_D"}),
        (1, Practice(zero1="all_reduce"), {"all_reduce_D"}, {"all_gather_D"}),
        (2, KEEP, {"reduce_scatter_D"}, {"all_gather_D"}),
    ],
    ids=["zero1-scatter", "zero1-all-reduce", "zero2"],
)
def test_zero_moves_gradients_to_the_optimizer_and_weights_back(zero, practice, backward, update):
    program = derive(LLAMA, layout(dp=("D",), zero=zero), practice)
    assert {key.split()[0] for key in collectives(program, "backward", layer=0)} == backward
    assert {key.split()[0] for key in collectives(program, "update", layer=0)} == update


def test_zero_2_scatters_gradients_in_every_microbatch_and_gathers_weights_once():
    program = derive(LLAMA, layout(dp=("D",), zero=2), microbatches=3)
    assert sum(collectives(program, "backward", layer=0).values()) == 27
    assert sum(collectives(program, "update", layer=0).values()) == 9


def test_hybrid_sharding_scatters_over_one_axis_and_reduces_the_rest_over_the_other():
    hybrid = layout(dp=("D", "F"), tp=("X",), zero=3, sequence_parallel=True)
    table = {**hybrid.table, **{region: {"h": ("F",)} for region in ("stored", "grad", "state")}}
    program = lower(LLAMA, type(hybrid)(table), AGAIN, Dtypes(), ("D", "F", "X"))
    assert activations(program, "forward") == {
        "all_gather_X [b_DF, s_X, h]": 2,
        "reduce_scatter_X [b_DF, s, h]{U_X}": 2,
    }
    weights, gains = (both_phases(program, names=(f"grad.{name}",)) for name in ("W2", "gain"))
    assert weights == {"backward reduce_scatter_F [h, f_X]{U_DF}": 1, "update all_reduce_D [h_F, f_X]{U_D}": 1}
    assert gains == {"backward reduce_scatter_F [h]{U_DFX}": 2, "update all_reduce_DX [h_F]{U_DX}": 2}


def both_phases(program: Program, **which: object) -> Counter[str]:
    """Collectives of layer 0 in backward and update, each with its phase."""
    phases = {phase: collectives(program, phase, layer=0, **which) for phase in ("backward", "update")}  # type: ignore[arg-type]
    return Counter({f"{phase} {key}": count for phase, found in phases.items() for key, count in found.items()})


@pytest.mark.parametrize("zero", [2, 3])
def test_of_a_gradient_only_what_its_buffer_takes_up_is_paid_in_every_microbatch(zero):
    program = derive(LLAMA, layout(tp=("X",), dp=("D",), zero=zero, sequence_parallel=True), microbatches=3)
    gains = both_phases(program, names=("grad.gain",))
    assert gains == {"backward reduce_scatter_D [h]{U_DX}": 2 * 3, "update all_reduce_X [h_D]{U_X}": 2}


def test_what_zero_leaves_whole_is_summed_once_per_step():
    where = layout(tp=("X",), dp=("D",), zero=2, whole=("d",))
    found = both_phases(derive(QWEN, where, microbatches=3), names=("grad.b",))
    assert found == {"update all_reduce_D [g_X, r, d]{U_D}": 1, "update all_reduce_D [g_X, d]{U_D}": 2}


@pytest.mark.parametrize(("zero", "scatter"), [(0, set()), (2, {"backward reduce_scatter_D [h]{U_DX}"})])
def test_every_sum_is_paid_in_every_microbatch_where_a_practice_says_so(zero, scatter):
    where, practice = (
        layout(tp=("X",), dp=("D",), zero=zero, sequence_parallel=True),
        Practice(gradients="per_microbatch"),
    )
    found = both_phases(derive(LLAMA, where, practice, microbatches=3), names=("grad.gain",))
    settled = "backward all_reduce_X [h_D]{U_X}" if scatter else "backward all_reduce_DX [h]{U_DX}"
    assert found == dict.fromkeys([settled, *scatter], 2 * 3)


@pytest.mark.parametrize("model", [LLAMA, GEMMA], ids=lambda model: model.name)
@pytest.mark.parametrize(("qkv", "dims", "count"), [("separate", "d", 2), ("fused", "kv, d", 1)])
def test_fewer_kv_heads_than_tp_owes_their_weight_gradients_over_the_rest(model, qkv, dims, count):
    split = min(1, model.kv_heads - 1)
    program = derive(blocks(model, {"bias": "none"}), layout(tp=("X", "Y"), kv_split=split), Practice(qkv=qkv))
    assert collectives(program, "forward", layer=0) == {"all_reduce_XY [b, s, h]{U_XY}": 2}
    heads, rest = ("g_X", "Y") if split else ("g", "XY")
    assert collectives(program, "backward", layer=0) == {
        "all_reduce_XY [b, s, h]{U_XY}": 2,
        f"all_reduce_{rest} [h, {heads}, {dims}]{{U_{rest}}}": count,
    }


@pytest.mark.parametrize(("qkv", "uses"), [("separate", 3), ("fused", 2), ("fused_kv", 2)])
def test_settled_per_use_queries_apart_from_keys_and_values_are_a_use_of_their_own(qkv, uses):
    program = derive(LLAMA, layout(tp=("X", "Y"), kv_split=1), Practice(cotangents="per_use", qkv=qkv))
    settled = [
        move.axes
        for op in program.ops
        if isinstance(op, Reshard) and op.output.name == "d.attention.in" and op.where.phase == "backward"
        for move in op.moves
    ]
    assert settled == [("X", "Y")] * uses


@pytest.mark.parametrize("practice", [*PRACTICES.values()], ids=[*PRACTICES])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_layer_costs_what_a_second_layer_adds(practice, zero):
    where = layout(tp=("X",), dp=("D",), zero=zero, sequence_parallel=True)
    one, two, three = (derive(LLAMA, where, practice, layers=n) for n in (1, 2, 3))
    for phase in ("forward", "backward", "update"):
        totals = [collectives(program, phase) for program in (one, two, three)]
        assert totals[2] - totals[1] == totals[1] - totals[0] == collectives(one, phase, layer=0)


def test_every_collective_says_why_it_exists():
    program = derive(GPT, layout(tp=("X",), dp=("D",), zero=3, sequence_parallel=True), AGAIN)
    reasons = [op.because for op in program.ops if isinstance(op, Reshard) and op.moves]
    assert all(reasons)
    out = next(op for op in program.ops if isinstance(op, Reshard) and op.output.name == "mlp.out")
    assert out.because == (
        "case 3: both operands are split on f over X, so mlp.out owes a sum over X; "
        "mlp.out[b_D, s, h]{U_X} enters region residual, which declares [b_D, s_X, h]"
    )
