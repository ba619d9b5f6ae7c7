"""What traced ops stand for: how often they run in a step, and the FLOPs of each."""

from __future__ import annotations

import pytest

from tests.models import LLAMA, loops
from tpsim.cost.collectives import collectives
from tpsim.cost.memory import memory
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Einsum, Program, Where


@pytest.mark.parametrize(("layer", "microbatch", "times"), [(None, None, 1), (0, None, 40), (None, 0, 4), (1, 1, 160)])
def test_an_op_runs_once_per_layer_and_microbatch_that_its_traced_one_stands_for(layer, microbatch, times):
    program = Program((), (), {"layers": 2, "microbatches": 3}, {})
    where = Where(
        "F", "mlp", loops=tuple(one for one in (("layers", layer), ("microbatches", microbatch)) if None not in one)
    )
    assert program.times(where, {"layers": 80, "microbatches": 12}) == times


@pytest.mark.parametrize("zero", [0, 3])
def test_tracing_more_layers_or_microbatches_changes_no_total(zero):
    where = layout(dp=("D",), tp=("X",), zero=zero, sequence_parallel=True)
    sizes = Sizes(LLAMA.dims(sequences=8, seq=16), {"D": 2, "X": 4}, loops(12, 6))
    found = []
    for layers, microbatches in ((1, 1), (2, 1), (1, 2), (3, 2)):
        program = lower(
            LLAMA, where, PRACTICES["megatron"], Dtypes(), ("D", "X"), layers=layers, microbatches=microbatches
        )
        calls = [one for one in collectives(program, coalesce=False) if one.op != "activation" or one.per_microbatch]
        sent = sum(one.wire_bytes(sizes) * one.count(sizes) for one in calls)
        found.append((sent, sum(one.count(sizes) for one in calls), memory(program, sizes).static_bytes))
    assert found == [found[0]] * 4


def test_a_look_up_has_no_flops_and_a_split_product_its_share_of_two_per_multiplication():
    axes = {"X": 4}
    program = lower(LLAMA, layout(tp=("X",)), PRACTICES["ideal"], Dtypes(), ("X",))
    dims = LLAMA.dims(sequences=8, seq=16)
    flops = {op.output.name: op.flops(dims, axes) for op in program.ops if isinstance(op, Einsum)}
    assert (flops["embedding.out"], flops["logits.target"]) == (0, 0)
    assert flops["mlp.up"] == 2 * 8 * 16 * 16 * 32 // 4
