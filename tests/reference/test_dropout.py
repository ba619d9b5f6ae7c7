"""Dropout's masks are drawn from global indices: a split step drops what an unsplit one does, forward and backward."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.models import GPT, LLAMA, NEOX
from tests.reference.judge import difference, run, unsharded
from tpsim.algebra.mesh import Mesh
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Index
from tpsim.program.practice import Practice
from tpsim.program.schedules import pipeline_schedule
from tpsim.reference.compare import compared, slopes
from tpsim.reference.execute import execute
from tpsim.reference.functions import INDEX
from tpsim.reference.run import leaves

RATE = 0.3
MODELS = [replace(model, dropout=RATE) for model in (GPT, LLAMA, NEOX)]
DROPPING = MODELS[0]
PRACTICES_OF = {
    "fused": Practice(),
    "plain": Practice(attention="plain"),
    "selective": replace(PRACTICES["megatron"], attention="plain", recompute=("attention",)),
    "full": replace(PRACTICES["megatron"], recompute=("full",)),
    "adds": Practice(recompute=("add",), replay="whole"),
}


# Where masks are drawn hangs on the practice; each model has them at other places.
SPLIT = [
    *((DROPPING, name) for name in PRACTICES_OF),
    *((model, name) for model in MODELS[1:] for name in ("plain", "full")),
]


@pytest.mark.parametrize(("model", "name"), SPLIT, ids=[f"{model.name}, {name}" for model, name in SPLIT])
def test_a_split_step_drops_what_an_unsplit_one_drops(model, name):
    practice, plain = PRACTICES_OF[name], SPLIT.index((model, name)) % 2
    where = layout(tp=("X",), dp=("D",), zero=0 if plain else 3, sequence_parallel=not plain)
    split = run(model, where, practice, Mesh({"D": 2, "X": 4}), layers=1)
    assert difference(split, unsharded(model, practice, layers=1)) < 1e-10


@pytest.mark.parametrize("practice", PRACTICES_OF.values(), ids=PRACTICES_OF)
def test_backward_has_the_masks_of_forward(practice):
    assert max(slope.difference for slope in slopes(unsharded(DROPPING, practice))) < 1e-6


def test_every_stage_of_a_pipeline_draws_the_masks_of_its_layers():
    mesh, sizes = Mesh({"pipe": 2, "tensor": 2}), {**GPT.dims(sequences=2, seq=4), "m": 4}
    laid, practice = layout(tp=("tensor",), pp=("pipe",)), PRACTICES_OF["full"]
    program = lower(DROPPING, laid, practice, Dtypes(), mesh.order, layers=(1, 1), microbatches=4)
    whole = lower(DROPPING, layout(), practice, Dtypes(), (), layers=2, microbatches=4)
    staged = execute(program, mesh, sizes, leaves(sizes), schedule=pipeline_schedule("1f1b", 2, 1, 4))
    alone = execute(whole, Mesh({}), sizes, leaves(sizes))
    assert max(one.difference for one in compared(staged, alone)) < 1e-10


def masks(one):
    """Of forward, by name, layer and microbatch."""
    made = [op for op in one.program.ops if op.output.name.endswith("mask") and op.where.act == "F"]
    named = {(op.output.name, op.where.loops): one.value(op.output) for op in made if op.output.role == "activation"}
    assert len(named) == 2 * (1 + 2 * 3)  # microbatches of an embedding and of two layers of three masks
    return named


def test_masks_of_layers_microbatches_and_places_are_unlike():
    for one, other in combinations(masks(unsharded(DROPPING, PRACTICES_OF["plain"])).values(), 2):
        assert one.shape != other.shape or 0.2 < np.mean(one != other) < 0.7


def test_masks_drop_their_rate_and_keep_the_mean():
    for mask in masks(unsharded(DROPPING, PRACTICES_OF["plain"])).values():
        assert set(np.unique(mask)) == {0.0, 1 / (1 - RATE)}
        assert np.mean(mask) == pytest.approx(1, abs=6 * np.sqrt(RATE / (1 - RATE) / mask.size))
    assert not [op for op in unsharded(GPT, Practice()).program.ops if isinstance(op, Index) and op.fn == "dropout"]


@pytest.mark.parametrize("again", ["kernel", "replay"])
def test_a_mask_that_backward_draws_otherwise_is_noticed(again):
    practice = PRACTICES_OF["fused" if again == "kernel" else "full"]
    whole = unsharded(DROPPING, practice)
    drawn = [op for op in whole.program.ops if isinstance(op, Index) and op.where.again == again and op.fn == "dropout"]
    assert drawn
    other = {op: replace(op, rate=RATE / 2) for op in drawn}
    broken = replace(whole.program, ops=tuple(other.get(op, op) for op in whole.program.ops))
    wrong = execute(broken, Mesh({}), whole.sizes, whole.inputs)
    assert max(slope.difference for slope in slopes(wrong)) > 1e-3


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_draw_is_even_over_every_index_and_independent_of_its_neighbours(rate):
    grids = np.meshgrid(np.arange(4096), np.arange(64), indexing="ij", sparse=True)
    rows = INDEX["dropout"]({"rate": rate, "seed": 7}, *grids)
    assert np.max(np.abs(rows.mean(axis=0) - (1 - rate))) < 6 * np.sqrt(rate * (1 - rate) / 4096)
    assert np.max(np.abs(np.corrcoef(rows.T) - np.eye(64))) < 6 / np.sqrt(4096)
