"""The cheapest plan against every way there is: the same kinds of moves, found without the planner's searches."""

from __future__ import annotations

from math import inf, prod

import numpy as np
import pytest

from tests.algebra.exhaustive import Products, elements
from tests.algebra.test_contract import asked
from tpsim.algebra import meetings
from tpsim.algebra.contract import Contraction, flops
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import wire
from tpsim.algebra.planner import Prices, product_ways
from tpsim.algebra.sharding import ShardingError
from tpsim.answers.shard_way import PlacedMachine, Pricing
from tpsim.fabric.placement import place
from tpsim.machine.profile import load

MATRICES, BATCHED, SUMMED = ("IJ", "JK", "IK"), ("BIJ", "BJK", "BIK"), ("IJL", "JK", "KI")
BYTES = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "all_to_all": 0.25, "permute": 0.7, "slice": 0}


def pick(rng, values):
    return values[rng.integers(len(values))]


def made_up(rng, axes, shape):
    """Prices of no machine: every kind of move and every group of axes has a rate and a start of its own."""
    sizes, dims = {axis: pick(rng, [2, 3, 4]) for axis in axes}, {dim: pick(rng, [6, 60, 600]) for dim in "BIJKL"}
    rates, per_flop = {}, pick(rng, [0, 0.01, 0.1])

    def price(move):
        group = (move.kind, frozenset(move.axes))
        rate, start = rates.setdefault(group, (rng.uniform(0.5, 2), pick(rng, [0, 10, 1000])))
        return 0 if move.kind == "slice" else start + rate * BYTES[move.kind] * elements(move, dims, sizes)

    def work(used):
        every = {dim for part in shape for dim in part}
        return per_flop * prod(dims[dim] for dim in every) / prod(sizes[axis] for axis in used)

    def flops(ask):
        return work({axis for _, type_ in ask.operands for axis in type_.sharded_axes}) / (per_flop or 1)

    prices = Prices(price, lambda done: per_flop * done, flops)
    return Products(shape, axes, price, work), prices


def on_a_machine(name, sizes, binding, rng, shape):
    """Seconds on a machine; dims may be too short to be split by every axis."""
    machine, mesh = load(name), Mesh(sizes)
    dims = {dim: pick(rng, [4, 1024, 4096, 8192]) for dim in sorted({dim for part in shape for dim in part})}
    clock = PlacedMachine(machine, place(machine.levels, mesh, binding), "bf16", "additive")
    prices = Pricing(mesh, dims, "bf16", clock).prices()
    once = 2 * prod(dims.values())

    def work(used):
        return prices.product(once / prod(sizes[axis] for axis in used))

    return Products(shape, tuple(sizes), prices.move, work, prices.even), prices


def random_product(rng, every):
    """Operands and a result of any types."""
    left, right, out = (pick(rng, array.types) for array in every.arrays)
    return Contraction(("A", left), ("B", right), "C", out.dims, out)


def dearer(rng, every, prices, axes, count):
    """Products whose first plan costs other than the cheapest way, refusals included; and how many were planned."""
    wrong, ways = [], 0
    for _ in range(count):
        ask = random_product(rng, every)
        least = every.cheapest(ask.left[1], ask.right[1], ask.wanted)
        try:
            found = product_ways(ask, axes, prices).plans[0].price
        except ShardingError:
            found = inf
        ways += found < inf
        if found > least * (1 + 1e-9) or found < least * (1 - 1e-9):
            wrong.append((str(ask.left[1]), str(ask.right[1]), str(ask.wanted), found, least))
    return wrong, ways


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", [MATRICES, BATCHED, SUMMED], ids=["matrices", "batched", "summed"])
def test_no_way_of_two_axes_is_cheaper_than_the_first_plan(shape, seed):
    rng = np.random.default_rng(seed)
    every, prices = made_up(rng, "XY", shape)
    wrong, ways = dearer(rng, every, prices, ("X", "Y"), 30)
    assert not wrong
    assert ways > 10


def test_no_way_of_three_axes_is_cheaper_than_the_first_plan():
    rng = np.random.default_rng(0)
    every, prices = made_up(rng, "XYZ", MATRICES)
    wrong, ways = dearer(rng, every, prices, ("X", "Y", "Z"), 30)
    assert not wrong
    assert ways > 10


def test_no_way_is_cheaper_than_the_first_plan_where_the_search_ends_as_soon_as_it_may(monkeypatch):
    monkeypatch.setattr(meetings, "EFFORT", 0)
    rng = np.random.default_rng(0)
    every, prices = made_up(rng, "XYZ", MATRICES)
    wrong, ways = dearer(rng, every, prices, ("X", "Y", "Z"), 20)
    assert not wrong
    assert ways > 5


def bytes_of(dims, sizes):
    """Prices in elements on the wire, and the moves that were priced."""
    asked_for = []

    def price(move):
        asked_for.append(move)
        return wire(move.kind, move.logical_elements(dims, sizes), move.ranks(sizes))

    return Prices(price, lambda _: 0, lambda ask: flops(ask, dims, sizes)), asked_for


@pytest.mark.parametrize(
    "text",
    [
        "A[I_X,J_YZ] . B[J_W,K] -> C[I,K_XYZ]",
        "A[I_WX,J_YZ] . B[J_ZY,K_XW] -> C[I_Z,K_YW]{U_X}",
        "A[I_X,J_Y]{U_Z} . B[J_W,K]{U_Z} -> C[I_YX,K]",
    ],
)
def test_over_four_axes_the_hasty_search_finds_what_the_whole_one_does(text, monkeypatch):
    sizes, dims = dict.fromkeys("XYZW", 2), {"I": 64, "J": 256, "K": 1024}
    whole = product_ways(asked(text), tuple(sizes), bytes_of(dims, sizes)[0])
    monkeypatch.setattr(meetings, "EFFORT", 0)
    hasty = product_ways(asked(text), tuple(sizes), bytes_of(dims, sizes)[0])
    assert (whole.horizon, hasty.horizon < inf) == (inf, True)
    assert hasty.plans[0].price == whole.plans[0].price < hasty.horizon


def test_over_five_axes_few_moves_are_priced_and_the_answer_says_from_where_on_ways_are_left_out():
    sizes, dims = dict.fromkeys("XYZWV", 2), dict.fromkeys("IJK", 4096)
    prices, asked_for = bytes_of(dims, sizes)
    found = product_ways(asked("A[I_X,J_YZ] . B[J_W,K_V] -> C[I,K_XYZ]"), tuple(sizes), prices)
    assert len(asked_for) < 40_000
    assert found.plans[0].price < found.horizon < inf


MACHINES = [
    ("tpu-v5e", {"X": 4, "Y": 4}, None),
    ("tpu-v4", {"X": 4, "Y": 4}, {"X": ("ici.0",), "Y": ("dcn",)}),
    ("dgx-h100", {"X": 4, "Y": 8}, None),
    ("mi300x", {"X": 2, "Y": 4}, None),
]


@pytest.mark.parametrize(("name", "sizes", "binding"), MACHINES, ids=[name for name, *_ in MACHINES])
def test_no_way_takes_fewer_seconds_on_a_machine_than_the_first_plan(name, sizes, binding):
    rng = np.random.default_rng(len(name))
    every, prices = on_a_machine(name, sizes, binding, rng, MATRICES)
    wrong, ways = dearer(rng, every, prices, tuple(sizes), 40)
    assert not wrong
    assert ways > 10
