"""How many numbers a model holds, whichever way its projections are written."""

from __future__ import annotations

from math import prod

import pytest

from tests.models import GPT, LLAMA, QWEN, blocks
from tpsim.program.counts import parameter_count, parameter_counts
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Leaf
from tpsim.program.practice import Practice


def test_biases_on_the_projections_alone_add_one_per_query_key_and_value_feature():
    without = parameter_counts(blocks(QWEN, {"bias": "none"}))
    added = QWEN.layers * (QWEN.heads + 2 * QWEN.kv_heads) * QWEN.head_dim
    assert parameter_counts(QWEN) == {**without, "attention": without["attention"] + added}


def test_a_model_with_biases_has_one_on_the_gate_too():
    counts = [parameter_counts(blocks(LLAMA, ffn={"bias": bias}))["mlp"] for bias in (False, True)]
    assert counts[1] - counts[0] == LLAMA.layers * (2 * LLAMA.ffn_hidden + LLAMA.hidden)


@pytest.mark.parametrize(
    "model", [LLAMA, GPT, QWEN, blocks(LLAMA, {"bias": "all"}, {"bias": True})], ids=lambda model: model.name
)
@pytest.mark.parametrize("qkv", ["separate", "fused"])
def test_a_program_holds_the_parameters_of_its_model(model, qkv):
    program = lower(model, layout(), Practice(qkv=qkv), Dtypes(), (), layers=model.layers)
    sizes = model.dims(sequences=1, seq=8)
    leaves = [op.output for op in program.ops if isinstance(op, Leaf) and op.output.role == "param"]
    assert sum(prod(sizes[dim] for dim in leaf.dims) for leaf in leaves) == parameter_count(model, padded=True)
