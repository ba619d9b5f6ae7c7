"""What a program sends: rows, their merging, and sums of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sympy

from tpsim.cost import formula
from tpsim.cost.rollup import KEYS, Sizes, collectives, price, rolled_up, total_of, travelling


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
    assert sum(part.wire for part in parts) == total_of(rows).wire
    assert sum(part.busy_s for part in parts) == total_of(rows).busy_s


def test_a_step_of_nothing_sends_nothing():
    assert total_of(()).payload == 0
    assert total_of(()).busy_s == 0


def test_a_tensor_parallel_mlp_prints_its_formula(program, sizes):
    alone = replace(sizes, axes={"data": 1, "tensor": 8})
    symbols = formula.symbols(alone, {"tp": ("tensor",), "dp": ("data",)})
    layer = [c for c in collectives(program, coalesce=False) if c.per_microbatch]
    assert formula.wire_text(layer, symbols, per=symbols.layers * symbols.microbatches) == "8*b*h*s*(t - 1)/t"
    both = formula.symbols(sizes, {"tp": ("tensor",), "dp": ("data",)})
    assert formula.wire_text(layer, both, per=both.layers * both.microbatches) == "8*b*h*s*(t - 1)/(d*t)"


def test_a_role_of_two_axes_shows_its_product_as_one_symbol(sizes):
    sizes = Sizes({"b": 4}, {"kv": 8, "rep": 2}, 2, 1)
    axes = formula.symbols(sizes, {"tp": ("kv", "rep")}).axes
    assert str(axes["kv"] * axes["rep"]) == "t"


def test_ints_arrays_and_symbols_give_the_same_bytes_and_counts(program, sizes):
    roles = {"tp": ("tensor",), "dp": ("data",)}
    symbols = formula.symbols(sizes, roles)
    many = Sizes(
        {dim: np.array([float(size)]) for dim, size in sizes.dims.items()},
        {axis: np.array([float(size)]) for axis, size in sizes.axes.items()},
        np.array([80.0]),
        np.array([2.0]),
    )
    values = {symbols.layers: 80, symbols.microbatches: 2}
    values |= {symbols.dims[dim]: size for dim, size in sizes.dims.items()}
    values |= {symbols.axes[axis]: size for axis, size in sizes.axes.items()}
    for one in collectives(program, coalesce=True):
        for cost in (type(one).logical_bytes, type(one).wire_bytes, type(one).count, type(one).ranks):
            exact = cost(one, sizes)
            assert np.asarray(cost(one, many)).item() == exact
            assert sympy.sympify(cost(one, symbols)).subs(values) == exact
