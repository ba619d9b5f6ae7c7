"""The steps of a shard in symbols: named as dims and axes, priced on the wires where the mesh lies."""

from __future__ import annotations

import pytest
import sympy

import tpsim
from tpsim.quantity.errors import InputError

B, D, F, X, Y, RANKS = sympy.symbols("B D F X Y n_X", positive=True)
GATHER = "A[B,D] . W[D_X,F] -> Z[B,F]"


def symbolic(expr=GATHER, mesh="X=16", **options):
    return tpsim.shard(expr, mesh=mesh, **{"planner": "book", "cost_model": "book"} | options).symbolic


def test_bytes_and_flops_are_formulas_in_dims_and_axes():
    gather, matmul = symbolic()
    assert (gather.op, gather.axes, gather.output) == ("all_gather", ("X",), "W[D, F]")
    assert sympy.simplify(gather.wire_bytes_per_device - 2 * D * F * (X - 1) / X) == 0
    assert gather.logical_bytes == 2 * D * F
    assert matmul.flops_per_device == 2 * B * D * F
    assert matmul.flops_of_mesh == 2 * B * D * F * X


def test_without_a_machine_nothing_takes_time():
    assert [(step.latency_s, step.bandwidth_s, step.time_s) for step in symbolic()] == [(None, None, None)] * 2


def test_the_numbers_of_the_mesh_decide_only_what_is_closed():
    ring, line = (symbolic(mesh=mesh, hw="tpu-v5e")[0].bandwidth_s for mesh in ("X=16", "X=8"))
    assert float(sympy.simplify(ring / (2 * D * F / 90e9))) == pytest.approx(1)
    assert float(sympy.simplify(line / (2 * D * F * (X - 1) / X / 45e9))) == pytest.approx(1)


def test_symbols_with_numbers_for_them_give_the_numbers_of_the_same_shard():
    options = {"mesh": "X=16,Y=4", "hw": "tpu-v5e", "cost_model": "additive", "planner": "book"}
    expr = "A[B_Y,D_X] . W[D_X,F] -> Z[B_Y,F]"
    numbers = tpsim.shard(expr, dims="B=64,D=4096,F=8192", **options).steps
    symbols = tpsim.shard(expr, **options).symbolic
    sizes = {B: 64, D: 4096, F: 8192, X: 16, Y: 4}
    for step, found in zip(numbers, symbols, strict=True):
        for name in ("wire_bytes_per_device", "flops_per_device", "latency_s", "bandwidth_s", "time_s"):
            assert float(sympy.sympify(getattr(found, name)).subs(sizes)) == pytest.approx(step[name]), (found.op, name)


def test_an_axis_over_two_levels_keeps_the_inner_ones_size():
    (gather,) = symbolic("A[B_X,D] -> A[B,D]", mesh="X=16", hw="book-h100")
    inner, outer = 2 * B * D * sympy.Rational(7, 8) / 450e9, 2 * B * D / 8 * (X / 8 - 1) / (X / 8) / 50e9
    for ranks in (16, 64):
        sizes = {B: 4096, D: 4096, X: ranks}
        assert float(gather.bandwidth_s.subs(sizes)) == pytest.approx(float(sympy.Max(inner, outer).subs(sizes)))


def test_a_slice_is_free_and_an_array_alone_has_no_steps():
    (cut,) = symbolic("A[B,D] -> A[B_X,D]", hw="tpu-v5e")
    assert (cut.op, cut.wire_bytes_per_device, cut.time_s) == ("slice", 0, 0)
    assert symbolic("A[B_X,D]", hw="tpu-v5e") == []


def test_an_axis_that_bears_a_dims_name_is_written_with_an_n():
    (gather,) = symbolic("A[X_X] -> A[X]")
    assert sympy.simplify(gather.wire_bytes_per_device - 2 * X * (RANKS - 1) / RANKS) == 0


def test_seconds_in_symbols_have_a_break_even():
    gather, matmul = symbolic(hw="tpu-v5e")
    assert float(tpsim.breakeven(matmul.time_s, gather.bandwidth_s, "B")) == pytest.approx(197e12 / 90e9)
    with pytest.raises(InputError, match="occurs in neither"):
        tpsim.breakeven(matmul.time_s, gather.bandwidth_s, "Q")


def test_repetition_counts_what_the_other_axes_of_the_mesh_repeat():
    result = tpsim.shard("A[B_X,D] . W[D,F]", mesh="X=4,Y=2", dims="B=8,D=8,F=8")
    assert result.repetition == 2
    assert tpsim.shard("A[B_X,D] . W[D,F]", mesh="X=4").repetition is None
