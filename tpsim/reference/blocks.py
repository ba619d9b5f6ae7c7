"""Shards of one array: which block of the global array a device holds, and the array from its blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import product as combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tpsim.algebra.sharding import FlatDim, Sharding, extent, flat_dim

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move

Block = NDArray[np.float64]
Device = tuple[int, ...]
"""A device's coordinates on the mesh, one per axis, in the mesh's order."""
Blocks = dict[Device, Block]


@dataclass(frozen=True, slots=True)
class Tiling:
    """A global array of a type cut into tiles, all as large, and which of them each device holds.

    shape    of each tile
    at       the number of a device's tile, the last dim fastest
    windows  where it lies in the array
    """

    shape: tuple[int, ...]
    at: Mapping[Device, int]
    windows: Mapping[Device, tuple[slice, ...]]


@dataclass(frozen=True)
class Grid:
    """The devices of a mesh and where each stands in a sharding.

    _tilings  by axes and elements of every dim
    """

    mesh: Mesh
    _tilings: dict[tuple[object, ...], Tiling] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    def window(self, device: Device, sharding: Sharding, shape: Mapping[str, int]) -> tuple[slice, ...]:
        """The part of the global array that `device` holds.

        Raises ValueError if a dim does not split evenly.
        """
        return self.tiling(sharding, shape).windows[device]

    def tiling(self, sharding: Sharding, shape: Mapping[str, int]) -> Tiling:
        """How a global array of a type lies on the devices. Raises ValueError if a dim does not split evenly."""
        extents = tuple(self.extents(sharding, shape))
        if (sharding.on, extents) not in self._tilings:
            self._tilings[sharding.on, extents] = self._cut(sharding, extents)
        return self._tilings[sharding.on, extents]

    def _cut(self, sharding: Sharding, extents: Sequence[int]) -> Tiling:
        cuts = [self.mesh.size(*axes) for axes in sharding.on]
        for dim, cut, whole in zip(sharding.dims, cuts, extents, strict=True):
            if whole % cut:
                raise ValueError(f"{dim}={whole} does not split over {cut} devices")
        sizes = [whole // cut for whole, cut in zip(extents, cuts, strict=True)]
        at, windows = {}, {}
        for device in self.devices:
            ranks = [self.rank(device, axes) for axes in sharding.on]
            at[device] = reduce(lambda tile, part: tile * part[0] + part[1], zip(cuts, ranks, strict=True), 0)
            windows[device] = tuple(slice(r * size, (r + 1) * size) for r, size in zip(ranks, sizes, strict=True))
        return Tiling(tuple(sizes), at, windows)

    def placed(self, array: Block, sharding: Sharding, shape: Mapping[str, int]) -> Blocks:
        """Every device's block of a complete global array."""
        windows = self.tiling(sharding, shape).windows
        return {device: array[windows[device]] for device in self.devices}

    def extents(self, sharding: Sharding, shape: Mapping[str, int]) -> list[int]:
        """Elements of every dim of a type."""
        return [extent(dim, shape, self.mesh.axes) for dim in sharding.dims]

    def lined(self, blocks: Blocks, line: FlatDim, shape: Mapping[str, int]) -> Blocks:
        """What each device has laid out in a line, filled up with zeros."""
        room = extent(line, shape, self.mesh.axes) // self.mesh.size(*line.shards)
        order = [line.of.dims.index(dim) for dim in (*line.merged, *line.rest)]
        lines = {}
        for device, block in blocks.items():
            turned = block.transpose(order)
            flat = turned.reshape(-1, *turned.shape[len(line.merged) :])
            lines[device] = np.concatenate([flat, np.zeros((room - len(flat), *flat.shape[1:]))])
        return lines

    def unlined(self, blocks: Blocks, line: FlatDim, shape: Mapping[str, int]) -> Blocks:
        """What each device has of a line as it was before: without what fills it up."""
        order = [(*line.merged, *line.rest).index(dim) for dim in line.of.dims]
        lengths = dict(zip(line.of.dims, self.tiling(line.of, shape).shape, strict=True))
        sizes = [lengths[dim] for dim in (*line.merged, *line.rest)]
        many = prod(lengths[dim] for dim in line.merged)
        return {device: block[:many].reshape(sizes).transpose(order) for device, block in blocks.items()}

    def relaid(self, array: Block, before: Sharding, after: Sharding, shape: Mapping[str, int]) -> Block:
        """A whole array as a type has it whose dims lie in a line, or did before."""
        line = flat_dim(after) or flat_dim(before)
        if before.dims == after.dims or line is None:
            return array
        if line in after.dims:
            to, blocks = line.begun, self.lined(self.placed(array, line.of, shape), line, shape)
        else:
            to, blocks = line.of, self.unlined(self.placed(array, line.begun, shape), line, shape)
        return self.assemble(blocks, to, shape)[0]

    def assemble(self, blocks: Blocks, sharding: Sharding, shape: Mapping[str, int]) -> tuple[Block, float]:
        """The global array from its blocks, owed sums and maxima paid, and the largest difference between replicas.

        Raises ValueError, naming the device, for a block of the wrong shape.
        """
        tiling = self.tiling(sharding, shape)
        for device, block in blocks.items():
            if block.shape != tiling.shape:
                raise ValueError(f"device {device} holds {block.shape}, {sharding} says {tiling.shape}")
        whole, spread, there = np.full(self.extents(sharding, shape), np.nan), 0.0, set()
        for device, block in self.paid(blocks, sharding).items():
            here, at = tiling.windows[device], tiling.at[device]
            if at in there:
                spread = max(spread, gap(whole[here], block))
            whole[here] = block
            there.add(at)
        return whole, spread

    def paid(self, blocks: Blocks, sharding: Sharding) -> Blocks:
        """The blocks with what the type owes paid: one for each place that the owed axes do not tell apart."""
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
        """The blocks of each group along `axes` summed (or maximised): one for the group, under its first device."""
        combine: Callable[..., Block] = np.add if kind == "sum" else np.maximum
        owed = {self.mesh.order.index(axis) for axis in axes}
        reduced: Blocks = {}
        for device, block in blocks.items():
            first = tuple(0 if place in owed else at for place, at in enumerate(device))
            reduced[first] = combine(reduced[first], block) if first in reduced else block
        return reduced


def gap(block: Block, other: Block) -> float:
    """The largest difference between two blocks; 0 for empty ones."""
    return float(np.max(np.abs(block - other), initial=0.0))
