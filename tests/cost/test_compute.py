"""Seconds of kernels: tiles and waves, bytes, attention, and what replaces the chip's own shares."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.conftest import array, typed
from tpsim.calibrate.calibrate import adjusted
from tpsim.cost.compute import compute, kernel_s
from tpsim.cost.kernels import kernels
from tpsim.machine.chip_seconds import waves
from tpsim.machine.profile import load
from tpsim.program.op import Einsum, Program, Where
from tpsim.program.practice import Practice

A100, BARE = load("dgx-a100"), load("dgx2-v100")
"""A machine with a tile, and one without."""


def seconds(program, sizes, machine=A100, efficiency=None):
    return compute(kernels(program), sizes, machine, "bf16", efficiency)


@pytest.mark.parametrize(
    ("rows", "columns", "found", "share"), [(2048, 4608, 3, 0.889), (2048, 1024, 1, 0.593), (4096, 4096, 5, 0.948)]
)
def test_tiles_are_dealt_out_in_whole_waves(rows, columns, found, share):
    """Tiles of 256 x 128 on 108 units: 288, 64 and 512 of them."""
    tile = A100.chip.tile
    assert waves(tile, rows, columns, 1) == waves(tile, columns, rows, 1) == found
    assert rows * columns / (found * 108 * 256 * 128) == pytest.approx(share, abs=5e-4)


def test_a_batch_of_products_shares_waves():
    assert waves(A100.chip.tile, 256, 128, 108) == 1
    assert waves(A100.chip.tile, 256, 128, 109) == 2


def test_tiles_of_a_reply_are_as_low_as_its_rows():
    """A grouped product of 16 experts with 8 rows each costs a sixteenth of what whole tiles of 128 rows would."""
    for rows, cut in ((8, 8), (3, 8), (9, 16)):
        whole, low = (waves(A100.chip.tile, rows, 2880, 16, shared=shared) for shared in (False, True))
        assert low == whole * cut / A100.chip.tile.columns.value
    assert waves(A100.chip.tile, 128, 2880, 16, shared=True) == waves(A100.chip.tile, 128, 2880, 16)
    array = load("tpu-v4").chip.tile  # loads its weights whole, however few rows stream through
    assert waves(array, 8, 2880, 16, shared=True) == waves(array, 8, 2880, 16)


def test_a_large_product_takes_its_waves_at_the_share_that_waves_reach(program, sizes):
    first = kernels(program)[0]  # 65,536/4 tokens x 8,192 by 28,672/8 columns
    tiles = (16 * 4096 // 4 // 256) * (28672 // 8 // 128)
    wave = 108 * 256 * 128 * 2 * 8192 / (312e12 * 0.735)
    assert kernel_s(first, sizes, A100, "bf16", None) == pytest.approx(-(-tiles // 108) * wave + 2e-6)


def test_a_stated_efficiency_is_the_whole_factor_and_turns_waves_off(program, sizes):
    first = kernels(program)[0]
    assert kernel_s(first, sizes, A100, "bf16", 0.5) == pytest.approx(first.flops(sizes) / (312e12 * 0.5) + 2e-6)


def test_without_a_tile_the_chips_efficiency_is_the_whole_factor(program, sizes):
    first, peak = kernels(program)[0], BARE.chip.peak["f16"].value
    assert kernel_s(first, sizes, BARE, "f16", None) == pytest.approx(first.flops(sizes) / (peak * 0.55))


def test_thin_products_take_their_memory_traffic(program, sizes):
    thin = replace(sizes, dims={**sizes.dims, "b": 4, "s": 1})
    moved = (8192 + 28672 // 8 + 8192 * 28672 // 8) * 2
    bandwidth = BARE.chip.memory.bandwidth.value * BARE.chip.memory_efficiency.value
    assert kernel_s(kernels(program)[0], thin, BARE, "f16", None) == pytest.approx(moved / bandwidth)


def test_flops_of_a_chip_are_its_share_of_the_products(program, sizes):
    tokens, weights = 16 * 4096, 8192 * 28672
    forward = 2 * 2 * tokens * weights
    assert sum(m.flops(sizes) for m in kernels(program) if m.where.phase == "forward") == forward // 32


def test_useful_flops_do_not_depend_on_the_mesh(program, sizes):
    alone = replace(sizes, axes={"data": 1, "tensor": 1})
    assert seconds(program, sizes).useful_flops == seconds(program, alone).useful_flops == seconds(program, alone).flops


@given(
    at=st.fixed_dictionaries({"b": st.integers(1, 64), "s": st.integers(1, 64), "h": st.integers(1, 512)}),
    grown=st.sampled_from("bsh"),
    by=st.integers(1, 300),
)
def test_no_step_of_more_is_shorter(whole_step, at, grown, by):
    """Seconds fall in no size; dims of a tiny GPT, in units of what its axes divide."""
    found, sizes = whole_step
    dims = {**sizes.dims, "b": 2 * at["b"], "s": 2 * at["s"], "t": 2 * at["s"], "h": 8 * at["h"]}
    more = {**dims, grown: dims[grown] + (8 if grown == "h" else 2) * by}
    more["t"] = more["s"]
    before, after = (compute(found, replace(sizes, dims=d), A100, "bf16").seconds for d in (dims, more))
    assert all(after[phase] >= before[phase] for phase in before)


def test_a_kernel_takes_its_pause_however_small(program, sizes):
    hurried = adjusted(A100, {"chip.kernel_pause": 0.0})
    first = kernels(program)[0]
    gained = kernel_s(first, sizes, A100, "bf16", None) - kernel_s(first, sizes, hurried, "bf16", None)
    assert gained == pytest.approx(2e-6)


def test_kernels_of_equal_shape_take_as_long(whole_step):
    """A product and those that are its backward have the same arrays, and other rows, columns and sums."""
    found, sizes = whole_step
    large = replace(sizes, dims={**sizes.dims, "h": 6144, "f": 24576, "v": 51200, "s": 2048, "t": 2048, "b": 8})
    one_by_one = sum(kernel_s(one, large, A100, "bf16", None) * one.count(large) for one in found)
    assert compute(found, large, A100, "bf16").time_s == pytest.approx(one_by_one, rel=1e-12)


@pytest.mark.parametrize(("width", "reached"), [(448, 0.735), (450, 0.045), (456, 0.735)])
def test_scores_of_heads_that_are_no_multiple_of_8_wide_reach_a_share_of_their_own(sizes, width, reached):
    """14 of 312 TFLOP/s in runs with heads of 150; by it those of 108 and 450 are predicted within 8 %."""
    q, k = array("q", typed("bgsd")), array("k", typed("bgtd"))
    scores = Einsum((q, k), array("scores", typed("bgst")), Where("F", "layer", "attention"))
    program = Program((scores,), (), {}, {}, {"scores": scores.output})
    at = replace(sizes, dims={"b": 1, "g": 8, "s": 2048, "t": 2048, "d": width})
    found = -(-8 * (2048 // 256) * (2048 // 128) // 108)
    (one,) = kernels(program, Practice(attention="plain"))
    wave = 2 * 108 * 256 * 128 * width
    assert kernel_s(one, at, A100, "bf16", None) == pytest.approx(found * wave / (312e12 * reached) + 2e-6)
