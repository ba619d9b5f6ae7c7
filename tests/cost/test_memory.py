"""Bytes held by one chip."""

from __future__ import annotations

import pytest

from tests.models import LLAMA, loops
from tpsim.cost.memory import memory
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.practice import Practice
from tpsim.program.transformer import parameter_count


def test_a_layer_s_parameters_and_gradients_are_held_once_per_layer_and_not_per_microbatch(program, sizes):
    held = memory(program, sizes)
    elements = 2 * 8192 * 28672 // 8 * 80
    assert held.parameters_bytes == 2 * elements
    assert held.gradients_bytes == 4 * elements
    assert held.optimizer_bytes == 0
    assert held.static_bytes == held.parameters_bytes + held.gradients_bytes


def test_a_program_without_a_vocabulary_has_no_logits(program, sizes):
    assert memory(program, sizes).logits_bytes == 0


@pytest.mark.parametrize(
    ("params", "optimizer", "moments", "each"),
    [
        ("bf16", "f32", None, 4 + 2 * 4),
        ("f32", "f32", None, 2 * 4),
        ("f32", "bf16", None, 2 * 2),
        ("bf16", "f16", None, 2 * 2),
        ("bf16", "f32", "bf16", 4 + 2 * 2),  # DeepSeek-V3 2024, 3.3.3; Megatron-LM's precision-aware optimizer
        ("bf16", "f32", "fp8", 4 + 2 * 1),
        ("f32", "f32", "int8", 2 * 1),
    ],
)
@pytest.mark.parametrize("gradients", ["f32", "bf16"])
def test_an_optimizer_keeps_two_moments_and_its_own_copy_of_weights_where_that_is_finer(
    params, optimizer, moments, each, gradients
):
    dtypes = Dtypes(params=params, optimizer=optimizer, moments=moments, gradients=gradients)
    program = lower(LLAMA, layout(), Practice(), dtypes, ())
    sizes = Sizes(LLAMA.dims(sequences=1, seq=8), {}, loops(LLAMA.layers))
    held, parameters = memory(program, sizes), parameter_count(LLAMA, padded=True)
    assert held.optimizer_bytes == each * parameters
    assert held.gradients_bytes == {"f32": 4, "bf16": 2}[gradients] * parameters
    assert held.parameters_bytes == {"f32": 4, "bf16": 2}[params] * parameters


def held_by(zero, practice=None):
    where = layout(tp=("T",), dp=("D",), zero=zero)
    program = lower(LLAMA, where, practice or Practice(), Dtypes(), ("D", "T"))
    return memory(program, Sizes(LLAMA.dims(sequences=4, seq=8), {"D": 4, "T": 2}, loops(LLAMA.layers)))


def test_each_zero_stage_shards_one_kind_of_array_more():
    whole, *stages = (held_by(zero) for zero in range(4))
    shards = [
        (
            whole.parameters_bytes / one.parameters_bytes,
            whole.gradients_bytes / one.gradients_bytes,
            whole.optimizer_bytes / one.optimizer_bytes,
        )
        for one in stages
    ]
    assert shards == [(1, 1, 4), (1, 4, 4), (4, 4, 4)]


@pytest.mark.parametrize("zero1", ["scatter", "all_reduce"])
@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_that_are_settled_once_per_step_are_held_whole_until_then(zero, zero1):
    whole = held_by(0).gradients_bytes
    assert held_by(zero, Practice(gradients="per_step", zero1=zero1)).gradients_bytes == whole
    assert held_by(zero, Practice(zero1=zero1)).gradients_bytes == whole // 4


def test_gathered_logits_are_held_whole_on_every_tensor_rank():
    parallel, gathered = held_by(0), held_by(0, Practice(cross_entropy="gathered"))
    assert parallel.logits_bytes in {4 // 4 * 8 * 32 // 2 * width for width in (2, 4)}
    assert gathered.logits_bytes == 2 * parallel.logits_bytes
