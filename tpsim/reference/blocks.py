"""Shards of one array: which block of the global array a device holds, and the array from its blocks."""

from __future__ import annotations

from functools import cached_property
from itertools import product as combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tpsim.algebra.sharding import extent, line_in
from tpsim.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.algebra.sharding import Line, Sharding

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
            shards, whole = self.mesh.size(*axes), extent(dim, shape, self.mesh.axes)
            if whole % shards:
                raise ValueError(f"{dim}={whole} does not split over {shards} devices")
            size = whole // shards
            start = self.rank(device, axes) * size
            parts.append(slice(start, start + size))
        return tuple(parts)

    def scatter(self, array: Block, sharding: Sharding) -> Blocks:
        """Every device's block of a complete global array."""
        return self.placed(array, sharding, dict(zip(sharding.dims, array.shape, strict=True)))

    def placed(self, array: Block, sharding: Sharding, shape: Mapping[str, int]) -> Blocks:
        """The same of one with a line, whose extent follows from what lies in it."""
        return {device: array[self.window(device, sharding, shape)] for device in self.devices}

    def extents(self, sharding: Sharding, shape: Mapping[str, int]) -> list[int]:
        """Elements of every dim of a type."""
        return [extent(dim, shape, self.mesh.axes) for dim in sharding.dims]

    def lined(self, blocks: Blocks, line: Line, shape: Mapping[str, int]) -> Blocks:
        """What each device has laid out in a line, filled up with zeros."""
        room = extent(line, shape, self.mesh.axes) // self.mesh.size(*line.shards)
        order = [line.of.dims.index(dim) for dim in (*line.merged, *line.rest)]
        lines = {}
        for device, block in blocks.items():
            turned = block.transpose(order)
            flat = turned.reshape(-1, *turned.shape[len(line.merged) :])
            lines[device] = np.concatenate([flat, np.zeros((room - len(flat), *flat.shape[1:]))])
        return lines

    def unlined(self, blocks: Blocks, line: Line, shape: Mapping[str, int]) -> Blocks:
        """What each device has of a line as it was before: without what fills it up."""
        order = [(*line.merged, *line.rest).index(dim) for dim in line.of.dims]
        (own, *_) = (self.window(device, line.of, shape) for device in self.devices[:1])
        lengths = dict(zip(line.of.dims, (part.stop - part.start for part in own), strict=True))
        sizes = [lengths[dim] for dim in (*line.merged, *line.rest)]
        many = prod(lengths[dim] for dim in line.merged)
        return {device: block[:many].reshape(sizes).transpose(order) for device, block in blocks.items()}

    def relaid(self, array: Block, before: Sharding, after: Sharding, shape: Mapping[str, int]) -> Block:
        """A whole array as a type has it whose dims lie in a line, or did before."""
        line = line_in(after) or line_in(before)
        if before.dims == after.dims or line is None:
            return array
        if line in after.dims:
            to, blocks = line.begun, self.lined(self.scatter(array, line.of), line, shape)
        else:
            to, blocks = line.of, self.unlined(self.placed(array, line.begun, shape), line, shape)
        return self.assemble(blocks, to, shape)[0]

    def assemble(self, blocks: Blocks, sharding: Sharding, shape: Mapping[str, int]) -> tuple[Block, float]:
        """The global array from its blocks, owed sums and maxima paid, and the largest difference between replicas.

        Raises ValueError, naming the device, for a block of the wrong shape.
        """
        whole = np.full(self.extents(sharding, shape), np.nan)
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
        holders = {device: [other for other in self.group(device, axes) if other in blocks] for device in blocks}
        return {device: combine([blocks[other] for other in together], axis=0) for device, together in holders.items()}


def gap(block: Block, other: Block) -> float:
    """The largest difference between two blocks; 0 for empty ones."""
    return float(np.max(np.abs(block - other), initial=0.0))
