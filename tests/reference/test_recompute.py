"""A recomputed step gives what the one that keeps everything gives, on one device, on many, and stage by stage."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.models import GPT, LLAMA, NEOX, QWEN, deep
from tests.reference.judge import difference, run, unsharded
from tpsim.algebra.mesh import Mesh
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.kinds import stack
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Scale
from tpsim.program.practice import Practice
from tpsim.program.schedules import SCHEDULES, pipeline_schedule
from tpsim.reference.compare import compared
from tpsim.reference.execute import execute
from tpsim.reference.run import leaves

MEGATRON, XLA = PRACTICES["megatron"], PRACTICES["xla"]
PRACTICES_OF = {
    "plain": Practice(attention="plain"),
    "selective": replace(MEGATRON, attention="plain", recompute=("attention",)),
    "selective, as needed": Practice(attention="plain", recompute=("attention",)),
    "selective, fused": replace(MEGATRON, recompute=("attention",)),
    "full": replace(MEGATRON, recompute=("full",)),
    "full, plain": replace(MEGATRON, attention="plain", recompute=("full",)),
    "full, as needed": replace(XLA, recompute=("full",)),
    "full, of the first layer": replace(MEGATRON, recompute=("full",), recompute_layers=1),
    "full, weights kept": Practice(recompute=("full",), replay="whole"),
    "named": Practice(recompute=("mlp.act", "attention.mixed", "norm", "mlp.in"), regather=True),
}


"""A step that keeps everything is the same one for all ways to recompute."""


def results(one):
    return {name: one.value(array) for name, array in one.program.results.items()}


# Of the others what differs is where kernels and layers are replayed: positions, parallel blocks, biases.
OTHERS = ((GPT, "named"), (GPT, "full"), (NEOX, "named"), (NEOX, "selective"), (QWEN, "full"))
CASES = [*product((LLAMA,), PRACTICES_OF), *OTHERS]


@pytest.mark.parametrize(("model", "name"), CASES, ids=[f"{model.name}, {name}" for model, name in CASES])
def test_a_recomputed_step_gives_the_gradients_of_one_that_keeps_everything(model, name):
    practice = PRACTICES_OF[name]
    whole = unsharded(model, practice)
    plain = results(
        unsharded(model, replace(practice, recompute=(), recompute_layers=None, replay="needed", attention="plain"))
    )
    for result, value in results(whole).items():
        assert float(np.max(np.abs(value - plain[result]), initial=0.0)) < 1e-12, result
    zero, sp = ((0, False), (0, True), (3, True))[CASES.index((model, name)) % 3]  # each stands beside its neighbours
    where = layout(tp=("X",), dp=("D",), zero=zero, sequence_parallel=sp)
    assert difference(run(model, where, practice, Mesh({"D": 2, "X": 4})), whole) < 1e-10


# What is replayed knows no order but that of its own action: one schedule meets them all.
ON_RANKS = [
    *((name, "full") for name in SCHEDULES),
    ("1f1b", "selective"),
    ("zb-h1", "full, as needed"),
    ("interleaved", "full, of the first layer"),
]


@pytest.mark.parametrize(("name", "practice"), ON_RANKS)
def test_every_schedule_recomputes_each_stage_on_its_own_ranks(name, practice):
    chosen, v, p, m = PRACTICES_OF[practice], 2 if SCHEDULES[name].several else 1, 2, 4
    each = 1 if chosen.recompute_layers is None else 2
    model, mesh = deep(GPT, p * v * each), Mesh({"pipe": p, "tensor": 2})
    laid = layout(tp=("tensor",), pp=("pipe",))
    sizes = {**model.dims(sequences=2, seq=4), "m": m}
    program = lower(model, laid, chosen, Dtypes(), mesh.order, layers=(each,) * (p * v), microbatches=m)
    stacked = (stack(chosen, each) * (p * v),)
    whole = lower(model, layout(), chosen.under(laid), Dtypes(), (), layers=stacked, microbatches=m)
    staged = execute(program, mesh, sizes, leaves(sizes), schedule=pipeline_schedule(name, p, v, m))
    alone = execute(whole, Mesh({}), sizes, leaves(sizes))
    assert max(one.difference for one in compared(staged, alone)) < 1e-10


def test_the_judge_notices_a_replay_that_computes_something_else():
    sizes, mesh = {**LLAMA.dims(sequences=4, seq=8), "m": 2}, Mesh({"X": 4})
    program = lower(LLAMA, layout(tp=("X",)), PRACTICES_OF["full"], Dtypes(), ("X",), layers=2, microbatches=2)
    wrong = next(op for op in program.ops if op.where.again == "replay" and op.output.name == "residual")
    other = replace(wrong, scales=(*wrong.scales[:-1], Scale(1.001)))
    broken = replace(program, ops=tuple(other if op is wrong else op for op in program.ops))
    whole = unsharded(LLAMA, PRACTICES_OF["full"])
    assert difference(execute(broken, mesh, sizes, leaves(sizes)), whole) > 1e-4
