"""One definition: ints, float64 arrays and symbols go through the same lines and agree."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import sympy

from tests.models import MIDDLE, loops
from tpsim.cost.collectives import collectives
from tpsim.cost.kernels import kernels
from tpsim.cost.memory import memory
from tpsim.cost.rollup import KEYS, price, rolled_up
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower

SIZES = Sizes(MIDDLE.dims(sequences=16, seq=256), {"data": 4, "tensor": 8}, loops(MIDDLE.layers, 2))
ROLES = {"tp": ("tensor",), "dp": ("data",)}
VARIANTS = [
    pytest.param(practice, zero, sp, id=f"{practice}-zero{zero}-{'sp' if sp else 'tp'}")
    for practice, (zero, sp) in product(PRACTICES, [(0, False), (1, True), (3, False)])
]


def program(practice, zero, sp):
    placed = layout(tp=("tensor",), dp=("data",), zero=zero, sequence_parallel=sp)
    return lower(MIDDLE, placed, PRACTICES[practice], Dtypes(), ("data", "tensor"))


def as_arrays(sizes):
    def array(size):
        return np.array([float(size)])

    return Sizes(
        {dim: array(size) for dim, size in sizes.dims.items()},
        {axis: array(size) for axis, size in sizes.axes.items()},
        {loop: array(size) for loop, size in sizes.loops.items()},
    )


def values(symbols):
    known = {symbols.loops[loop]: size for loop, size in SIZES.loops.items()}
    for kind in ("dims", "axes"):
        for name, symbol in getattr(symbols, kind).items():
            known[symbol] = getattr(SIZES, kind)[name]
    return known


def same(exact, array, symbol, known):
    assert np.asarray(array).item() == exact
    assert sympy.sympify(symbol).subs(known) == exact


@pytest.mark.parametrize(("practice", "zero", "sp"), VARIANTS)
def test_bytes_ranks_and_counts_of_every_collective_agree_exactly(practice, zero, sp):
    symbols, arrays = replace(SIZES, roles=ROLES).symbols, as_arrays(SIZES)
    known = values(symbols)
    for one in collectives(program(practice, zero, sp), coalesce=PRACTICES[practice].coalesce):
        for cost in (one.logical_bytes, one.wire_bytes, one.count, one.ranks):
            same(cost(SIZES), cost(arrays), cost(symbols), known)


@pytest.mark.parametrize(("practice", "zero", "sp"), VARIANTS[:3])
def test_memory_and_flops_agree_exactly(practice, zero, sp):
    symbols, arrays = replace(SIZES, roles=ROLES).symbols, as_arrays(SIZES)
    known, traced = values(symbols), program(practice, zero, sp)
    for held in ("parameters_bytes", "gradients_bytes", "optimizer_bytes", "logits_bytes"):
        same(*(getattr(memory(traced, sizes), held) for sizes in (SIZES, arrays, symbols)), known)
    for one in kernels(traced):
        for cost in (one.flops, one.run_flops, one.useful_flops, one.memory_bytes):
            same(cost(SIZES), cost(arrays), cost(symbols), known)


@pytest.mark.parametrize("key", KEYS)
def test_roll_ups_agree_exactly_in_bytes_and_to_1e_12_in_seconds(key, pricer_for):
    symbols = replace(SIZES, roles=ROLES).symbols
    known = values(symbols)
    found = collectives(program("megatron", 1, True), coalesce=True)
    rolled = [rolled_up(price(found, s, pricer_for(s)), KEYS[key]) for s in (SIZES, as_arrays(SIZES), symbols)]
    for name, exact in rolled[0].items():
        array, symbol = rolled[1][name], rolled[2][name]
        for field in ("payload_bytes", "wire_bytes_per_device", "carried_bytes_per_device", "link_serial_bytes"):
            same(*(getattr(each, field) for each in (exact, array, symbol)), known)
        for field in ("latency_s", "bandwidth_s", "time_s", "exposed_s"):
            seconds = float(getattr(exact, field))
            assert np.asarray(getattr(array, field)).item() == pytest.approx(seconds, rel=1e-12)
            assert float(sympy.sympify(getattr(symbol, field)).subs(known)) == pytest.approx(seconds, rel=1e-12)
