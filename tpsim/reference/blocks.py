"""Shards of one array: which block of the global array a device holds, and the array from its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.algebra.sharding import Sharding

Block = NDArray[np.float64]
Device = tuple[int, ...]
"""A device's coordinates on the mesh, one per axis, in the mesh's order."""
Blocks = dict[Device, Block]


@dataclass(frozen=True)
class Grid:
    """The devices of a mesh and where each stands in a sharding."""

    mesh: Mesh

    @cached_property
    def devices(self) -> list[Device]:
        """All coordinates, last axis fastest."""
        return list(combinations(*(range(size) for size in self.mesh.axes.values())))

    def rank(self, device: Device, axes: Sequence[str]) -> int:
        """Where `device` stands along `axes` together, major first."""
        rank = 0
        for axis in axes:
            rank = rank * self.mesh.axes[axis] + device[self.mesh.order.index(axis)]
        return rank

    def group(self, device: Device, axes: Sequence[str]) -> list[Device]:
        """The devices that differ from `device` along `axes` only, in rank order."""
        fixed = [place for place, axis in enumerate(self.mesh.order) if axis not in axes]
        members = [other for other in self.devices if all(other[place] == device[place] for place in fixed)]
        return sorted(members, key=lambda other: self.rank(other, axes))

    def window(self, device: Device, sharding: Sharding, shape: Mapping[str, int]) -> tuple[slice, ...]:
        """The part of the global array that `device` holds.

        Raises ValueError if a dim does not split evenly.
        """
        parts = []
        for dim, axes in zip(sharding.dims, sharding.on, strict=True):
            shards = self.mesh.size(*axes)
            if shape[dim] % shards:
                raise ValueError(f"{dim}={shape[dim]} does not split over {shards} devices")
            size = shape[dim] // shards
            start = self.rank(device, axes) * size
            parts.append(slice(start, start + size))
        return tuple(parts)

    def scatter(self, array: Block, sharding: Sharding) -> Blocks:
        """Every device's block of a complete global array."""
        shape = dict(zip(sharding.dims, array.shape, strict=True))
        return {device: array[self.window(device, sharding, shape)] for device in self.devices}

    def assemble(self, blocks: Blocks, sharding: Sharding, shape: Mapping[str, int]) -> tuple[Block, float]:
        """The global array from its blocks, owed sums and maxima paid, and the largest difference between replicas.

        Raises ValueError, naming the device, for a block of the wrong shape.
        """
        whole = np.full([shape[dim] for dim in sharding.dims], np.nan)
        spread = 0.0
        for device, block in self.paid(blocks, sharding).items():
            window = whole[here := self.window(device, sharding, shape)]
            if window.shape != block.shape:
                raise ValueError(f"device {device} holds {block.shape}, {sharding} says {window.shape}")
            if not np.isnan(window).any():
                spread = max(spread, gap(window, block))
            whole[here] = block
        return whole, spread

    def paid(self, blocks: Blocks, sharding: Sharding) -> Blocks:
        """The blocks with the sums and maxima paid that the type owes."""
        for kind in ("sum", "max"):
            axes = [axis for axis in self.mesh.order if (axis, kind) in sharding.owes]
            blocks = self.reduced(blocks, axes, kind) if axes else blocks
        return blocks

    def sliced(self, blocks: Blocks, move: Move) -> Blocks:
        """Every device's own part of what it held whole: the one move that sends nothing."""
        for dim, axes in move.scattered:
            place, shards = move.before.dims.index(dim), self.mesh.size(*axes)
            blocks = {
                device: np.split(block, shards, axis=place)[self.rank(device, axes)] for device, block in blocks.items()
            }
        return blocks

    def reduced(self, blocks: Blocks, axes: Sequence[str], kind: str) -> Blocks:
        """Every device's block summed (or maximised) over those of its group along `axes` that hold one."""
        combine: Callable[..., Block] = np.sum if kind == "sum" else np.max
        held = {device: [other for other in self.group(device, axes) if other in blocks] for device in blocks}
        return {device: combine([blocks[other] for other in together], axis=0) for device, together in held.items()}


def gap(block: Block, other: Block) -> float:
    """The largest difference between two blocks; 0 for empty ones."""
    return float(np.max(np.abs(block - other), initial=0.0))
