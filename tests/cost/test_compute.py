"""Matrix products: FLOPs, memory traffic, rooflines."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tpsim.cost import compute as module
from tpsim.cost.compute import compute, is_matrix_product, matmuls
from tpsim.program.op import Einsum

PEAK, STREAM = 1e15, 1e12


@pytest.fixture(autouse=True)
def roofline(monkeypatch):
    """A chip of 1 PFLOP/s and 1 TB/s, so that only this file's lines are tested."""
    monkeypatch.setattr(module, "compute_s", lambda _, flops, __, efficiency: flops / (PEAK * efficiency))
    monkeypatch.setattr(module, "memory_s", lambda _, held: held / STREAM)


def seconds(program, sizes, efficiency=0.5):
    return compute(matmuls(program), sizes, None, "bf16", efficiency)


def test_flops_of_a_chip_are_its_share_of_the_products(program, sizes):
    tokens, weights = 16 * 4096, 8192 * 28672
    forward = 2 * 2 * tokens * weights
    assert sum(m.flops(sizes) for m in matmuls(program) if m.where.phase == "forward") == forward // 32


def test_useful_flops_do_not_depend_on_the_mesh(program, sizes):
    alone = replace(sizes, axes={"data": 1, "tensor": 1})
    assert seconds(program, sizes).useful_flops == seconds(program, alone).useful_flops == seconds(program, alone).flops


def test_large_products_take_their_flops_over_the_reached_peak(program, sizes):
    first = matmuls(program)[0]
    only = compute([first], sizes, None, "bf16", 0.5)
    assert only.time_s == pytest.approx(first.flops(sizes) * 160 / (PEAK * 0.5))


def test_thin_products_take_their_memory_traffic(program, sizes):
    thin = replace(sizes, dims={**sizes.dims, "b": 4, "s": 1})
    first = matmuls(program)[0]
    only = compute([first], thin, None, "bf16", 0.5)
    assert only.time_s == pytest.approx((8192 + 28672 // 8 + 8192 * 28672 // 8) * 2 * 160 / STREAM)


@dataclass(frozen=True)
class Named:
    dims: tuple[str, ...]
    role: str = "activation"


def product(left: str, right: str, out: str) -> Einsum:
    return Einsum((Named(tuple(left)), Named(tuple(right))), Named(tuple(out)), None)


def test_a_sum_of_elementwise_products_is_no_matrix_product():
    assert is_matrix_product(product("bsh", "hf", "bsf"))
    assert is_matrix_product(product("bsgrd", "btgd", "bgrst"))
    assert not is_matrix_product(product("bsh", "bsh", "h"))
