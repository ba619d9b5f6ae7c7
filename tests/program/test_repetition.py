"""What the devices of a layout repeat: keys and values beyond their heads, and no sum more often than it is owed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.generators import meshes, schemes, tables
from tests.models import GEMMA, LLAMA, blocks, loops
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import ShardingError
from tpsim.cost.collectives import collectives
from tpsim.cost.kernels import kernels
from tpsim.cost.memory import memory
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import Layout
from tpsim.program.lower import lower
from tpsim.program.practice import Practice
from tpsim.program.transformer import parameter_count, parameter_counts

MODELS = st.sampled_from([LLAMA, blocks(GEMMA, {"bias": "none"})])
CUBE = Mesh({"X": 2, "Y": 2, "Z": 2})
MICROBATCHES = 3


def at(model, mesh):
    """Eight sequences of eight tokens in each microbatch."""
    return Sizes(model.dims(sequences=8, seq=8), mesh.axes, loops(model.layers, MICROBATCHES))


def flops(program, sizes):
    """FLOPs of one device in a step."""
    return sum(one.flops(sizes) * one.count(sizes) for one in kernels(program))


@settings(max_examples=15)
@given(data=st.data(), model=MODELS, qkv=st.sampled_from(["separate", "fused"]))
def test_nothing_but_keys_and_values_is_repeated_and_they_only_beyond_their_heads(data, model, qkv):
    sizes = at(model, CUBE)
    where = data.draw(schemes(CUBE, sizes.dims))
    program = lower(model, replace(where, table=unstored(where)), Practice(qkv=qkv), Dtypes(), CUBE.order)
    copies, tensor = CUBE.size(*where.table["*"]["r"]), CUBE.size(*where.roles["tp"])
    keys_and_values = 2 * model.hidden * model.kv_heads * model.head_dim * model.layers
    held = parameter_count(model, padded=True) + (copies - 1) * keys_and_values
    norms = parameter_counts(model)["norms"]
    assert memory(program, sizes).parameters_bytes * tensor / 2 == held + (tensor - 1) * norms
    tokens = 8 * 8 * MICROBATCHES
    useful = sum(one.useful_flops(sizes) * one.count(sizes) for one in kernels(program))
    scores_again = 2 * tokens * 8 * model.heads * model.head_dim * model.layers  # fused attention makes them twice
    repeated = (copies - 1) * 6 * tokens * keys_and_values
    assert flops(program, sizes) * CUBE.devices == useful + scores_again + repeated


def unstored(where):
    """The table without ZeRO's shards of parameters, whose products need them whole."""
    return {region: dims for region, dims in where.table.items() if region != "stored"}


@settings(max_examples=15)
@given(data=st.data(), model=MODELS, mesh=meshes(devices=8), practice=st.sampled_from([*PRACTICES.values()]))
def test_under_any_table_fused_projections_hold_and_multiply_what_separate_ones_do(data, model, mesh, practice):
    sizes = at(model, mesh)
    where = Layout(data.draw(tables(mesh, sizes.dims)))
    found = []
    for qkv in ("separate", "fused", "fused_kv"):
        try:
            program = lower(model, where, replace(practice, qkv=qkv), Dtypes(), mesh.order)
        except ShardingError:
            reject()
        found.append((flops(program, sizes), memory(program, sizes).static_bytes))
    assert found == [found[0]] * 3


@settings(max_examples=15)
@given(data=st.data(), model=MODELS, practice=st.sampled_from([*PRACTICES.values()]))
def test_no_gradient_is_settled_in_a_microbatch_but_by_scattering_it_into_its_buffer(data, model, practice):
    where = data.draw(schemes(CUBE, at(model, CUBE).dims))
    program = lower(model, where, practice, Dtypes(), CUBE.order, microbatches=2)
    found = [one for one in collectives(program, coalesce=False) if one.op == "gradient"]
    often = {(one.kind, one.axes) for one in found if one.per_microbatch}
    data_axes = where.table.get("grad", {}).get("h", ())
    assert often == ({("reduce_scatter", data_axes)} if data_axes else set())
    assert not any(
        set(one.axes) & set(data_axes) for one in found if not one.per_microbatch and one.kind == "all_reduce"
    )
