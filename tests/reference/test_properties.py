"""Laws of reshards and products, held against real arrays on simulated devices."""

from __future__ import annotations

from dataclasses import replace
from math import inf, lcm

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.arrays import every_move
from tests.generators import arrays, extents, meshes, operands, products, reshards, shardings
from tests.machines import SWITCHED, TORUS
from tests.reference.site import Site, hold, loads_as_claimed, machine, spread
from tpsim.algebra.contract import flops, local_product
from tpsim.algebra.legality import OwedError, owed_after
from tpsim.algebra.moves import move, wire
from tpsim.algebra.planner import Prices, book, product_ways, reshard_ways
from tpsim.algebra.reshard import Routes
from tpsim.algebra.sharding import ShardingError
from tpsim.reference.blocks import Grid

DIMS = ("I", "J", "K", "L")
SMALL = meshes(devices=8)
FABRICS = pytest.mark.parametrize("fabric", [TORUS, SWITCHED], ids=["torus", "switch"])


def prices(mesh, sizes, call=0, flop=0):
    """Injected elements, and so much more per collective and per FLOP."""

    def price(move):
        paid = call if move.kind != "slice" else 0
        return paid + wire(move.kind, move.logical_elements(sizes, mesh.axes), move.ranks(mesh.axes))

    return Prices(price, lambda work: flop * work, lambda ask: flops(ask, sizes, mesh.axes))


def cut(data, mesh, dims):
    """Sizes that split evenly, the first one into pieces that halve and third again."""
    return {dim: size * (1 if at else 12) for at, (dim, size) in enumerate(data.draw(extents(mesh, dims)).items())}


@FABRICS
@given(data=st.data(), mesh=meshes())
def test_every_path_carries_the_array_to_the_declared_blocks_in_the_claimed_messages(fabric, data, mesh):
    before, after = data.draw(reshards(mesh, DIMS[: data.draw(st.integers(1, 2))]))
    site = Site.of(machine(fabric), mesh, data.draw(extents(mesh, before.dims)))
    whole = data.draw(arrays([*site.sizes.values()]))
    for plan in reshard_ways("A", before, after, mesh.order, prices(mesh, site.sizes)).plans:
        blocks = spread(site.devices.grid, whole, before)
        for step in plan.moves:
            blocks, _ = site.played(blocks, step)
        assert hold(site.devices.grid, blocks, after, whole)


@FABRICS
@given(data=st.data(), mesh=meshes())
def test_every_legal_move_gives_the_declared_blocks_in_the_claimed_messages(fabric, data, mesh):
    before = data.draw(shardings(mesh, ("I", "J")))
    moves = [*every_move(before, mesh.order)] or [move("all_reduce", before, before, ())]
    drawn = data.draw(st.sampled_from(moves))
    site = Site.of(machine(fabric), mesh, cut(data, mesh, before.dims))
    whole = data.draw(arrays([*site.sizes.values()]))
    blocks, call = site.played(spread(site.devices.grid, whole, before), drawn)
    loads_as_claimed(site, drawn, call)
    assert hold(site.devices.grid, blocks, drawn.after, whole)


@FABRICS
@settings(max_examples=25)
@given(data=st.data(), mesh=SMALL)
def test_every_plan_gives_the_product_in_the_declared_sharding(fabric, data, mesh):
    ask = data.draw(st.one_of(products(mesh), operands(mesh)))
    site = Site.of(machine(fabric), mesh, data.draw(extents(mesh, ask.all_dims)))
    grid = site.devices.grid
    whole = {name: data.draw(arrays([site.sizes[dim] for dim in type_.dims])) for name, type_ in ask.operands}
    expected = multiplied(ask, [whole[name] for name, _ in ask.operands])
    for plan in ways(ask, mesh, prices(mesh, site.sizes)):
        held = {name: spread(grid, whole[name], type_) for name, type_ in ask.operands}
        for step in plan.steps:
            name, type_ = step.output
            if step.move:
                held[name], _ = site.played(held[name], step.move)
            else:
                held[name] = {at: multiplied(ask, [held[x][at] for x, _ in step.inputs]) for at in grid.devices}
        assert hold(grid, held[name], type_, expected)
        assert ask.wanted in (None, type_)


def ways(ask, mesh, priced):
    """The plans of a product; none where it cannot be had: nothing that is summed leaves what is wanted owed."""
    try:
        return product_ways(ask, mesh.order, priced).plans
    except ShardingError:
        summed = [dim for dim in ask.all_dims if dim not in ask.dims]
        owed = {owed for _, type_ in ask.operands for owed in type_.owes}
        assert not summed
        assert not ask.wanted.owes <= owed  # a max that is owed is no sum that is wanted
        return ()


@given(data=st.data(), mesh=SMALL)
def test_what_devices_multiply_alone_has_the_type_that_is_said(data, mesh):
    ask = data.draw(st.one_of(products(mesh), operands(mesh)))
    grid, sizes = Grid(mesh), data.draw(extents(mesh, ask.all_dims))
    whole = [data.draw(arrays([sizes[dim] for dim in type_.dims])) for _, type_ in ask.operands]
    try:
        type_ = local_product(ask)
    except ShardingError:
        return
    held = [spread(grid, array, type_) for array, (_, type_) in zip(whole, ask.operands, strict=True)]
    blocks = {at: multiplied(ask, [operand[at] for operand in held]) for at in grid.devices}
    assert hold(grid, blocks, type_, multiplied(ask, whole))


def multiplied(ask, values):
    letters = dict(zip(ask.all_dims, "abcd", strict=False))
    sides = ["".join(letters[dim] for dim in dims) for dims in (ask.left[1].dims, ask.right[1].dims, ask.dims)]
    return np.einsum(f"{sides[0]},{sides[1]}->{sides[2]}", *values)


OBJECTIVES = {"call": st.sampled_from([0, 1, 1000]), "flop": st.sampled_from([0, 1])}


@given(data=st.data(), mesh=meshes(), **OBJECTIVES)
def test_the_cheapest_reshard_is_never_dearer_than_the_book(data, mesh, call, flop):
    before, after = data.draw(reshards(mesh, ("I", "J")))
    sizes = data.draw(extents(mesh, before.dims))
    found = reshard_ways("A", before, after, mesh.order, prices(mesh, sizes, call, flop)).plans
    by_book = next(plan for plan in found if plan.planner == "book")
    assert found[0].price <= by_book.price


@given(data=st.data(), mesh=meshes(axes=("X", "Y")), **OBJECTIVES)
def test_no_first_move_leads_to_a_way_cheaper_than_the_cheapest(data, mesh, call, flop):
    before, after = data.draw(reshards(mesh, ("I", "J")))
    price = prices(mesh, data.draw(extents(mesh, before.dims)), call, flop).move
    routes = Routes(mesh.order, price)
    for first in every_move(before, mesh.order):
        if after.owes <= first.after.owes:
            assert cost(routes, before, after, price) <= price(first) + cost(routes, first.after, after, price), first


def cost(routes, before, after, price):
    return sum(map(price, routes.path(before, after)))


@given(data=st.data(), mesh=SMALL, **OBJECTIVES)
def test_the_cheapest_product_is_never_dearer_than_the_book(data, mesh, call, flop):
    ask = data.draw(products(mesh))
    priced = prices(mesh, data.draw(extents(mesh, ask.all_dims)), call, flop)
    found = product_ways(ask, mesh.order, priced).plans
    assert found[0].price <= book(ask, mesh.order, priced).price
    for plan in found:
        (alone,) = (ask.between(*(type_ for _, type_ in step.inputs)) for step in plan.steps if step.op == "matmul")
        assert plan.price == sum(map(priced.move, plan.moves)) + priced.product(priced.flops(alone))


def even_prices(mesh, sizes):
    """Injected elements; no type that splits a dim unevenly."""
    return replace(prices(mesh, sizes), even=lambda type_: fits(type_, mesh, sizes))


def fits(type_, mesh, sizes):
    return all(sizes[dim] % mesh.size(*axes) == 0 for dim, axes in zip(type_.dims, type_.on, strict=True))


def least(mesh, *types):
    """The smallest sizes that every one of these types splits evenly."""
    on = [(dim, mesh.size(*axes)) for type_ in types for dim, axes in zip(type_.dims, type_.on, strict=True)]
    return {dim: lcm(*(size for other, size in on if other == dim)) for dim, _ in on}


@given(data=st.data(), mesh=meshes())
def test_the_cheapest_reshard_never_splits_unevenly(data, mesh):
    before, after = data.draw(reshards(mesh, ("I", "J")))
    sizes = least(mesh, before, after)
    best = reshard_ways("A", before, after, mesh.order, even_prices(mesh, sizes)).plans[0]
    assert best.price < inf
    assert all(fits(move.after, mesh, sizes) for move in best.moves)


@given(data=st.data(), mesh=SMALL)
def test_the_cheapest_product_never_splits_unevenly(data, mesh):
    ask = data.draw(products(mesh))
    sizes = least(mesh, *(type_ for type_ in (ask.left[1], ask.right[1], ask.wanted) if type_))
    best = product_ways(ask, mesh.order, even_prices(mesh, sizes)).plans[0]
    assert best.price < inf
    assert all(fits(move.after, mesh, sizes) for move in best.moves)


@given(data=st.data(), mesh=meshes())
def test_operands_must_be_settled_exactly_where_what_is_owed_meets_what_is_split_or_owed(data, mesh):
    ask = data.draw(operands(mesh))
    if not meets(ask):
        assert owed_after("multiply", ask.operands) == ask.left[1].owes | ask.right[1].owes
        return
    with pytest.raises(OwedError) as error:
        owed_after("multiply", ask.operands)
    assert str(error.value).endswith(f"settle {error.value.array} over {error.value.axis} first")
    assert error.value.axis in dict(ask.operands)[error.value.array].owed_axes


def meets(ask):
    """True if an operand owes a max, or a sum over an axis on which the other is split or owes."""
    (_, left), (_, right) = ask.operands
    kinds = {kind for _, kind in left.owes | right.owes}
    return "max" in kinds or any(
        mine.owed_axes & {*other.owed_axes, *other.sharded_axes} for mine, other in ((left, right), (right, left))
    )
