"""Any table of axes, not only the named schemes: the sharded program equals the unsharded one, or is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.generators import formats, meshes, practices, schemes, tables
from tests.models import GEMMA, GPT, LLAMA, NEOX, QWEN
from tests.reference.judge import difference, inputs
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import ShardingError
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import Layout
from tpsim.program.lower import lower
from tpsim.program.practice import Practice
from tpsim.reference.execute import execute

if TYPE_CHECKING:
    from tpsim.program.model import Model
    from tpsim.reference.run import Run

BF16 = Dtypes()
DROPPING = replace(GPT, name="dropping", dropout=0.2)
MODELS = {model.name: model for model in (LLAMA, GPT, NEOX, QWEN, GEMMA, DROPPING)}


def sizes(model: Model, microbatches: int) -> dict[str, int]:
    return {**model.dims(sequences=4, seq=8), "m": microbatches}


def run(
    model: Model, layout: Layout, practice: Practice, mesh: Mesh, microbatches: int, *, dtypes: Dtypes = BF16
) -> Run:
    """One layer."""
    program = lower(model, layout, practice, dtypes, mesh.order, microbatches=microbatches)
    return execute(program, mesh, sizes(model, microbatches), inputs(sizes(model, microbatches)))


@cache
def whole(name: str, practice: Practice, microbatches: int, dtypes: Dtypes = BF16) -> Run:
    return run(MODELS[name], Layout(table={"*": {}}), practice, Mesh({}), microbatches, dtypes=dtypes)


# Too many refusals fail hypothesis' own health check: the law cannot become an empty one.
@settings(max_examples=12)
@given(data=st.data(), name=st.sampled_from(sorted(MODELS)), mesh=meshes(devices=8), practice=practices())
def test_any_layout_equals_the_unsharded_program_or_is_refused(data, name, mesh, practice):
    table = data.draw(tables(mesh, sizes(MODELS[name], 1)))
    where, microbatches = Layout(table=table), data.draw(st.integers(1, 2))
    practice, dtypes = data.draw(formats(practice))
    try:
        sharded = run(MODELS[name], where, practice, mesh, microbatches, dtypes=dtypes)
    except ShardingError:
        reject()
    assert difference(sharded, whole(name, practice.under(where), microbatches, dtypes)) < 1e-9


@settings(max_examples=6)
@given(data=st.data(), name=st.sampled_from(sorted(MODELS)), practice=practices(), microbatches=st.integers(2, 3))
def test_any_tensor_and_data_parallelism_equals_the_unsharded_program(data, name, practice, microbatches):
    mesh = Mesh({"X": 2, "Y": 2, "Z": 2})
    where = data.draw(schemes(mesh, sizes(MODELS[name], 1)))
    practice, dtypes = data.draw(formats(practice))
    sharded = run(MODELS[name], where, practice, mesh, microbatches, dtypes=dtypes)
    assert difference(sharded, whole(name, practice.under(where), microbatches, dtypes)) < 1e-9


# Rare among random ones: the product in backward must settle, and an owed cotangent is repeated along a dim.
UNNAMED = {
    "products split on what they sum over": {"block": {"h": ("X", "Y")}},
    "heads split inside": {"*": {"d": ("X",), "f": ("Y",)}},
    "data split where weights are": {"stored": {"h": ("Y",)}, "*": {"b": ("X",), "f": ("Y",)}},
}


@pytest.mark.parametrize("table", UNNAMED.values(), ids=UNNAMED)
@pytest.mark.parametrize(
    "switches",
    [Practice(), Practice(cotangents="per_use", qkv="fused"), Practice(attention="plain")],
    ids=["once", "per-use", "plain"],
)
def test_layouts_without_a_name_equal_the_unsharded_program(table, switches):
    sharded = run(GPT, Layout(table={"*": {}} | table), switches, Mesh({"X": 2, "Y": 2}), 2)
    assert difference(sharded, whole(GPT.name, switches, 2)) < 1e-10
