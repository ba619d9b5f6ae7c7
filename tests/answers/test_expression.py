"""The formulas of a shard: bytes and FLOPs in symbols named as dims and axes, from the rows that hold the numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

import tpsim
from tpsim.cost.formula import evaluated

GATHER = "A[B,D] . W[D_X,F] -> Z[B,F]"


def formulas(expr=GATHER, mesh="X=16", **options):
    return [tuple(one.values()) for one in tpsim.shard(expr, mesh=mesh, planner="book", **options).formulas]


def test_bytes_and_flops_are_formulas_in_dims_and_axes():
    assert formulas() == [("all_gather", "2*D*F*(X - 1)/X", "0"), ("matmul", "0", "2*B*D*F")]


@pytest.mark.parametrize("mesh", ["X=16,Y=4", "X=2,Y=8"])
def test_formulas_with_numbers_for_their_symbols_give_the_numbers_of_the_same_shard(mesh):
    result = tpsim.shard("A[B_Y,D_X] . W[D_X,F] -> Z[B_Y,F]", mesh, dims="B=64,D=4096,F=8192", planner="book")
    sizes = result.dims | result.mesh.axes
    for step, texts in zip(result.steps, result.formulas, strict=True):
        for name in ("wire_bytes_per_device", "flops_per_device"):
            assert evaluated(texts[name], sizes) == Fraction(getattr(step, name)), (step.op, name)


def test_a_slice_is_free_and_an_array_alone_has_no_steps():
    assert formulas("A[B,D] -> A[B_X,D]", hw="tpu-v5e") == [("slice", "0", "0")]
    assert formulas("A[B_X,D]", hw="tpu-v5e") == []


def test_an_axis_that_bears_a_dims_name_is_written_with_an_n():
    assert formulas("A[X_X] -> A[X]") == [("all_gather", "2*X*(n_X - 1)/n_X", "0")]


def test_a_dim_that_bears_a_models_name_keeps_its_own():
    """A model's t is printed T and its d dh, because t and d are sizes of axes there."""
    assert formulas("A[t_X,d] -> A[t,d]") == [("all_gather", "2*d*t*(X - 1)/X", "0")]


def test_a_step_of_an_expression_is_an_op_of_its_program_with_a_row_of_the_ledger():
    result = tpsim.shard(GATHER, "X=16", dims="B=64,D=4096,F=8192", hw="tpu-v5e", planner="book")
    gather, product = result.steps
    leaves = [op.output.name for op in result.way.program.ops[:2]]
    assert (leaves, [step.made for step in result.steps]) == (["A", "W"], list(result.way.program.ops[2:]))
    assert (result.way.rows, product.row) == ([gather.row], None)
    assert gather.row.payload_bytes == gather.logical_bytes == 2 * 4096 * 8192


def test_devices_count_what_the_other_axes_of_the_mesh_repeat():
    result = tpsim.shard("A[B_X,D] . W[D,F]", mesh="X=4,Y=2", dims="B=8,D=8,F=8")
    assert result.way.flops_per_device * result.mesh.devices == 2 * (2 * 8 * 8 * 8)
