"""Seconds of a chip alone: products in waves of tiles, attention, memory, pauses between kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.quantity.size import Size, ceil_over, over, smallest, where_positive

if TYPE_CHECKING:
    from tpsim.machine.parts import Machine, Tile


def waves(tile: Tile, rows: Size, columns: Size, batch: Size, *, shared: bool = False) -> Any:
    """Waves of tiles that `batch` products of so many rows and columns take: the last one as long as the others.

    A tile is dealt out to each of the chip's units; either side of it may lie along the rows.

    shared  True where products are cut otherwise, as kernels for few rows are: into tiles about as low as these where
            a chip has such; where units are left without a tile they share the depth (split-K), so that all of them
            work on what there is
    Source: NVIDIA, Matrix Multiplication Background User's Guide, tile and wave quantization.
    """
    long, short = tile.rows.value, tile.columns.value
    tiles = smallest(
        ceil_over(rows, long) * ceil_over(columns, short), ceil_over(rows, short) * ceil_over(columns, long)
    )
    whole = ceil_over(batch * tiles, tile.units.value)
    if not shared:
        return whole
    filled = over(batch * rows * columns, long * short * tile.units.value)
    least = short if tile.least is None else tile.least.value
    low = over(least * ceil_over(smallest(rows, columns, short), least), short)
    return where_positive(tile.units.value - batch * tiles, filled, whole * low)


def wave_flops(tile: Tile) -> Any:
    """FLOPs of a wave for each element of the sums behind its results."""
    return 2 * tile.units.value * tile.rows.value * tile.columns.value


def attention_s(
    machine: Machine,
    flops: Size,
    dtype: str,
    *,
    backward: bool,
    latents: bool = False,
    efficiency: float | None = None,
) -> Any:
    """Seconds of a fused attention's FLOPs, by the share of the peak that such kernels reach.

    latents     True where cached latents are keys and values of all heads
    efficiency  replaces the profile's; a profile without one takes that of matrix products
    """
    own = machine.chip.attention_efficiency
    if efficiency is None and own is not None:
        efficiency = (own.backward if backward else (latents and own.latents) or own.forward).value
    return compute_s(machine, flops, dtype, efficiency)


def compute_s(machine: Machine, flops: Size, dtype: str, efficiency: float | None = None) -> Any:
    """Seconds of `flops` operations in products of `dtype` on one chip.

    efficiency  share of the peak; None takes the profile's
    """
    share = machine.chip.matmul_efficiency.value if efficiency is None else efficiency
    return over(flops, machine.peak(dtype).value * share)


def memory_s(machine: Machine, volume: Size) -> Any:
    """Seconds to read or write `volume` bytes of one chip's memory."""
    return over(volume, machine.chip.memory.bandwidth.value * machine.chip.memory_efficiency.value)


def pause_s(machine: Machine) -> Any:
    """Seconds between two kernels on one chip."""
    pause = machine.chip.kernel_pause
    return 0 if pause is None else pause.value


def late_s(machine: Machine, seconds: Any, calls: Any, ranks: Any) -> Any:
    """Seconds in which a rank waits, at `calls` equally far apart in `seconds` of work, for the last of `ranks`.

    Each call waits for the longest pause that any rank had since the call before. Pauses longer than d are as rare as
    1/d^2, so that the longest in t seconds of n ranks is sqrt(n t c) in the mean (a Frechet variable), c being the
    chip's `interruption`; what a rank alone pauses is in its own seconds.
    """
    own = machine.chip.interruption
    return 0 if own is None else (own.value * calls * seconds) ** 0.5 * (ranks**0.5 - 1)
