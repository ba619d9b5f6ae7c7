"""The FLOPs of a step and the seconds of its kernels on one chip."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tpsim.machine.chip_seconds import attention_s, compute_s, memory_s, pause_s, wave_flops, waves
from tpsim.program.dtypes import IN_LAYERS, STORED_AS
from tpsim.quantity.size import ceil_over, largest, over, product, total, where_equal

if TYPE_CHECKING:
    from tpsim.cost.kernel import Kernel
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.parts import Machine
    from tpsim.program.op import Phase
    from tpsim.program.tokens import Counted

FLOPS_COUNTED: Mapping[str, str] = {
    "full": "matrix products, attention's whole s by s among them",
    "causal": "matrix products, of attention's s by s what its mask lets through",
}
"""The FLOPs that shares of peak (MFU, HFU) count, by `assume.mfu`: sources do the one or the other."""


def flops_counted(by: str, dims: Mapping[str, Any]) -> str:
    """The same of a model with these dims: in a window or a chunk a token has no more keys than this holds."""
    text = FLOPS_COUNTED[by]
    return f"{text}, of windows and chunks s by theirs" if by == "full" and "w" in dims else text


PHASES: tuple[Phase, ...] = ("forward", "backward", "update")


@dataclass(frozen=True)
class Compute:
    """What one chip computes in a step.

    seconds  per phase; a kernel takes the longer of its FLOPs and its memory traffic
    kernels  that it runs
    sizes    of the chip
    """

    seconds: Mapping[Phase, Any]
    kernels: Sequence[Kernel] = field(repr=False, compare=False)
    sizes: Sizes = field(repr=False, compare=False)

    @property
    def time_s(self) -> Any:
        """Seconds of the whole step."""
        return total(self.seconds.values())

    @cached_property
    def flops(self) -> Any:
        """FLOPs of this chip, repeated work included."""
        return total(kernel.flops(self.sizes) * kernel.count(self.sizes) for kernel in self.kernels)

    @cached_property
    def useful_flops(self) -> Any:
        """FLOPs of all chips that run the same, without repetition by replication and without recompute."""
        return total(kernel.useful_flops(self.sizes) * kernel.count(self.sizes) for kernel in self.kernels)

    def counted(self, flops: Callable[[Kernel, Sizes], Any], by: Counted) -> Any:
        """Those of the FLOPs of its kernels, as `flops` has one's, that shares of peak count: see `Kernel.counted`."""
        runs = ((kernel, flops(kernel, self.sizes), kernel.count(self.sizes)) for kernel in self.kernels)
        return total(kernel.counted(run, self.sizes, by) * count for kernel, run, count in runs)


def kernel_s(kernel: Kernel, sizes: Sizes, machine: Machine, dtype: str, efficiency: float | None) -> Any:
    """Seconds of one run: the slower of matrix unit and memory, the passes behind it, and a pause behind each.

    On the host as long as its bytes take there.

    Arguments as of `compute`.
    """
    if kernel.home == "host":
        from tpsim.machine import host

        return host.memory_s(machine, kernel.memory_bytes(sizes), product(sizes.axes.values()))
    moved = memory_s(machine, kernel.memory_bytes(sizes))
    worked = _products_s(kernel, sizes, machine, dtype, efficiency)
    behind = memory_s(machine, kernel.passed_bytes(sizes)) if kernel.passes else 0
    return largest(moved, worked) + behind + pause_s(machine) * (1 + len(kernel.passes))


def known_s(known: dict[Hashable, Any], kernel: Kernel, *asked: Any) -> Any:
    """`kernel_s`, of kernels of equal shape the first one's: it knows no loops, so devices of any stage share it."""
    seconds = known.get(kernel.shape)
    if seconds is None:
        seconds = known[kernel.shape] = kernel_s(kernel, *asked)
    return seconds


def is_bytes_bound(kernel: Kernel, sizes: Sizes, machine: Machine, dtype: str, efficiency: float | None) -> bool:
    """True for a kernel that takes as long as its bytes; arguments as of `compute`."""
    moved = memory_s(machine, kernel.memory_bytes(sizes))
    return bool(moved >= _products_s(kernel, sizes, machine, dtype, efficiency))


def _products_s(kernel: Kernel, sizes: Sizes, machine: Machine, dtype: str, efficiency: float | None) -> Any:
    """Seconds of its products on the device with most rows, whatever their bytes; 0 without any.

    Whole waves of tiles where the machine has a tile.
    """
    if not kernel.products:
        return 0
    dtype = STORED_AS[dtype] if dtype in IN_LAYERS and not kernel.in_layers else dtype
    if kernel.fused:
        kind = {"backward": kernel.where.phase == "backward", "latents": kernel.on_latents}
        return attention_s(machine, kernel.run_flops(sizes), dtype, **kind, efficiency=efficiency)
    if kernel.in_chunks:
        return compute_s(machine, kernel.flops(sizes), dtype, efficiency)
    tile, hidden = machine.chip.tile, kernel.mask and kernel.skips
    seen = over(kernel.run_flops(sizes), kernel.flops(sizes)) if hidden else 1  # of an indexer
    if tile is None or efficiency is not None:
        return seen * compute_s(machine, kernel.flops(sizes) * kernel.peak(sizes), dtype, efficiency)
    rows, columns, depth, batch = kernel.sides
    sides = (rows, columns, batch)
    key = (tile.rows.value, tile.columns.value, tile.units.value, *sides, kernel.shared)
    many = partial(kernel.local_elements, sizes=sizes)
    count = sizes.once(key, lambda: waves(tile, *map(many, sides), shared=kernel.shared))
    return seen * count * compute_s(machine, wave_flops(tile) * many(depth), dtype, _share(kernel, sizes, machine))


def _share(kernel: Kernel, sizes: Sizes, machine: Machine) -> Any:
    """Share of the peak that a product reaches, None for the machine's own: less with heads that no unit loads whole.

    Source: NVIDIA, Matrix Multiplication Background User's Guide, requirements to use tensor cores.
    """
    odd = machine.chip.tile.odd_heads if machine.chip.tile else None
    if odd is None or not kernel.on_scores:
        return None
    width = sizes.dims["d"]
    return where_equal(8 * ceil_over(width, 8), width, machine.chip.matmul_efficiency.value, odd.value)


def compute(
    kernels: Sequence[Kernel],
    sizes: Sizes,
    machine: Machine,
    dtype: str,
    efficiency: float | None = None,
    *,
    known: dict[Hashable, Any] | None = None,
) -> Compute:
    """The seconds of `kernels` by a roofline per kernel.

    dtype       whose peak counts, a key of the chip's peaks
    efficiency  share of the peak that products reach whatever their shape; None takes the machine's own
    known       as `known_s` has it
    """
    known = {} if known is None else known
    alike = {kernel.loops: kernel for kernel in kernels}
    runs = {loops: kernel.count(sizes) for loops, kernel in alike.items()}
    seconds: dict[Phase, list[Any]] = {phase: [] for phase in PHASES}
    for kernel in kernels:
        each = known_s(known, kernel, sizes, machine, dtype, efficiency)
        seconds[kernel.where.phase].append(each * runs[kernel.loops])
    return Compute({phase: total(each) for phase, each in seconds.items()}, kernels, sizes)
