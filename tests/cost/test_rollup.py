"""What a program sends: rows, their merging, and sums of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sympy

from tests.models import LLAMA, loops
from tpsim.cost.collectives import collectives, travelling
from tpsim.cost.rollup import KEYS, Total, price, rolled_up, wire_text
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Reshard


def test_every_move_that_is_no_slice_is_a_row(program):
    found = collectives(program, coalesce=False)
    assert [(c.where.phase, c.kind, c.array, c.axes) for c in found] == [
        ("forward", "all_reduce", "y", ("tensor",)),
        ("backward", "all_reduce", "dx", ("tensor",)),
        ("backward", "all_reduce", "dw1", ("data",)),
        ("backward", "all_reduce", "dw2", ("data",)),
    ]


def test_gradients_of_a_layer_travel_as_one_call_when_coalesced_and_send_the_same_bytes(program, sizes):
    apart, together = (collectives(program, coalesce=c) for c in (False, True))
    assert [c.array for c in together] == ["y", "dx", "dw1 dw2"]
    assert sum(c.wire_bytes(sizes) * c.count(sizes) for c in apart) == sum(
        c.wire_bytes(sizes) * c.count(sizes) for c in together
    )


def test_an_activation_is_sent_per_layer_and_microbatch_and_a_gradient_once_per_step_and_layer(program, sizes):
    counts = {c.array: c.count(sizes) for c in collectives(program, coalesce=False)}
    assert counts == {"y": 160, "dx": 160, "dw1": 80, "dw2": 80}


def test_bytes_of_a_call_are_those_of_the_array_per_data_shard(program, sizes):
    y = collectives(program, coalesce=False)[0]
    assert y.logical_bytes(sizes) == 16 * 4096 * 8192 * 2 // 4
    assert y.wire_bytes(sizes) == 2 * (16 * 4096 * 8192 * 2 // 4) * 7 // 8


def test_collectives_of_one_rank_are_dropped(program):
    found = collectives(program, coalesce=True)
    assert [c.array for c in travelling(found, {"data": 1, "tensor": 8})] == ["y", "dx"]


def test_equal_shapes_are_priced_once(program, sizes, pricer):
    asked = []
    seconds = pricer

    def counting(*question):
        asked.append(question)
        return seconds(*question)

    rows = price(collectives(program, coalesce=False), sizes, counting)
    assert len(rows) == 4
    assert len(asked) == 2


@pytest.mark.parametrize("key", KEYS)
def test_sums_by_any_key_add_up_to_the_step(key, program, sizes, pricer):
    rows = price(collectives(program, coalesce=False), sizes, pricer)
    parts = rolled_up(rows, KEYS[key]).values()
    assert sum(part.wire_bytes_per_device for part in parts) == Total(rows).wire_bytes_per_device
    assert sum(part.time_s for part in parts) == Total(rows).time_s


def test_a_step_of_nothing_sends_nothing():
    assert Total(()).payload_bytes == 0
    assert Total(()).time_s == 0


def test_a_tensor_parallel_mlp_prints_its_formula(program, sizes):
    alone = replace(sizes, axes={"data": 1, "tensor": 8})
    symbols = replace(alone, roles={"tp": ("tensor",), "dp": ("data",)}).symbols
    layer = [c for c in collectives(program, coalesce=False) if c.per_microbatch]
    assert wire_text(layer, symbols, per=symbols.repeats) == "8*b*h*s*(t - 1)/t"
    both = replace(sizes, roles={"tp": ("tensor",), "dp": ("data",)}).symbols
    assert wire_text(layer, both, per=both.repeats) == "8*b*h*s*(t - 1)/(d*t)"


def test_a_role_of_two_axes_shows_its_product_as_one_symbol():
    axes = Sizes({"b": 4}, {"kv": 8, "rep": 2}, loops(2), {"tp": ("kv", "rep")}).symbols.axes
    assert str(axes["kv"] * axes["rep"]) == "t"


def test_ints_arrays_and_symbols_give_the_same_bytes_and_counts(program, sizes):
    roles = {"tp": ("tensor",), "dp": ("data",)}
    symbols = replace(sizes, roles=roles).symbols
    many = Sizes(
        {dim: np.array([float(size)]) for dim, size in sizes.dims.items()},
        {axis: np.array([float(size)]) for axis, size in sizes.axes.items()},
        {loop: np.array([float(size)]) for loop, size in sizes.loops.items()},
    )
    values = {symbols.loops["layers"]: 80, symbols.loops["microbatches"]: 2}
    values |= {symbols.dims[dim]: size for dim, size in sizes.dims.items()}
    values |= {symbols.axes[axis]: size for axis, size in sizes.axes.items()}
    for one in collectives(program, coalesce=True):
        for cost in (type(one).logical_bytes, type(one).wire_bytes, type(one).count, type(one).ranks):
            exact = cost(one, sizes)
            assert np.asarray(cost(one, many)).item() == exact
            assert sympy.sympify(cost(one, symbols)).subs(values) == exact


def hybrid():
    """Two traced layers and microbatches over two axes, with every kind of array on the wire."""
    where = layout(dp=("D",), tp=("X",), zero=3, sequence_parallel=True)
    program = lower(LLAMA, where, PRACTICES["megatron"], Dtypes(), ("D", "X"), layers=2, microbatches=2)
    return program, Sizes(LLAMA.dims(sequences=8, seq=16), {"D": 2, "X": 4}, loops(2, 2))


def test_calls_travel_together_only_within_a_phase_layer_microbatch_kind_axes_and_dtype():
    program, _ = hybrid()
    apart, together = (collectives(program, coalesce=coalesce) for coalesce in (False, True))
    assert "slice" not in {one.kind for one in apart}
    alone = [one for one in apart if one.op not in {"param", "gradient", "state"}]
    company = {
        (one.where.phase, one.where.loops, one.where.again, one.op, one.kind, one.axes, one.dtype)
        for one in apart
        if one not in alone
    }
    assert len(together) == len(alone) + len(company)
    for one in together:
        assert {(part.move.kind, part.move.axes, part.dtype) for part in one.parts} == {(one.kind, one.axes, one.dtype)}


@pytest.mark.parametrize("coalesce", [False, True])
def test_a_price_that_is_shared_is_every_call_s_own(coalesce, pricer_for):
    program, sizes = hybrid()
    for row in price(collectives(program, coalesce=coalesce), sizes, pricer_for(sizes)):
        assert row.logical_bytes == row.call.logical_bytes(sizes)
        assert row.wire_bytes_per_device == row.call.wire_bytes(sizes) == row.timing.wire


def test_launches_count_as_latency(program, sizes, pricer):
    (row, *_) = price(collectives(program, coalesce=False), sizes, pricer)
    launched = replace(row, timing=replace(row.timing, launch_s=3.0))
    assert Total((launched,)).latency_s - Total((row,)).latency_s == pytest.approx(3 * 160)


def test_a_total_counts_every_call(program, sizes, pricer):
    rows = [
        replace(row, timing=replace(row.timing, carried=5, link_serial=7, link_total=11, bandwidth_s=0.5))
        for row in price(collectives(program, coalesce=False), sizes, pricer)
    ]
    calls = 160 + 160 + 80 + 80
    found = Total(tuple(rows))
    assert (found.carried_bytes_per_device, found.link_serial_bytes, found.bandwidth_s) == (
        5 * calls,
        7 * calls,
        0.5 * calls,
    )
    payload = sum(row.logical_bytes * row.count for row in rows)
    assert found.payload_bytes == payload != sum(row.logical_bytes for row in rows)


@pytest.mark.parametrize("coalesce", [False, True])
def test_zero_1_slices_are_free_and_new_weights_of_a_layer_travel_together(coalesce):
    where = layout(tp=("X",), dp=("D",), zero=1)
    dtypes = Dtypes(params="f32")
    program = lower(LLAMA, where, replace(PRACTICES["ideal"], zero1="all_reduce"), dtypes, ("D", "X"))
    assert any(move.kind == "slice" for op in program.ops if isinstance(op, Reshard) for move in op.moves)
    found = collectives(program, coalesce=coalesce)
    assert "slice" not in {one.kind for one in found}
    homeward = [one for one in found if one.where.phase == "update" and one.per_layer]
    assert sum(len(one.parts) for one in homeward) == 9
    assert len(homeward) == (1 if coalesce else 9)


def test_shapes_that_differ_in_dtype_or_axes_are_priced_apart(program):
    y, *_, gradient = collectives(program, coalesce=False)
    (part,) = y.parts
    wider = replace(y, parts=(replace(part, output=replace(part.output, dtype="f32")),))
    elsewhere = replace(y, parts=(replace(part, move=replace(part.move, axes=("data",))),))
    assert len({y.shape, wider.shape, elsewhere.shape, gradient.shape}) == 4
