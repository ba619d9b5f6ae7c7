"""Shards of one array: which block of the global array a device holds, and the moves as plain functions of blocks."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Grid:
    """The devices of a mesh and where each stands in a sharding."""

    mesh: Mesh

    @property
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
        """The global array from its blocks, owed sums and maxima paid, and the largest difference between replicas."""
        paid = blocks
        for kind in ("sum", "max"):
            axes = [axis for axis in self.mesh.order if (axis, kind) in sharding.owes]
            paid = self.reduced(paid, axes, kind) if axes else paid
        whole = np.full([shape[dim] for dim in sharding.dims], np.nan)
        spread = 0.0
        for device, block in paid.items():
            window = whole[self.window(device, sharding, shape)]
            if window.shape != block.shape:
                raise ValueError(f"device {device} holds {block.shape}, {sharding} says {window.shape}")
            if not np.isnan(window).any() and window.size:
                spread = max(spread, float(np.max(np.abs(window - block))))
            whole[self.window(device, sharding, shape)] = block
        return whole, spread

    def move(self, blocks: Blocks, move: Move) -> Blocks:
        """The blocks after one move."""
        return MOVE[move.kind](self, blocks, move)

    def reduced(self, blocks: Blocks, axes: Sequence[str], kind: str) -> Blocks:
        """Every device's block summed (or maximised) over its group along `axes`."""
        combine: Callable[..., Block] = np.sum if kind == "sum" else np.max
        return {device: combine([blocks[other] for other in self.group(device, axes)], axis=0) for device in blocks}


def _place(move: Move, dim: str | None) -> int:
    if dim is None:
        raise ValueError(f"{move.kind} names no dim")
    return move.before.dims.index(dim)


def _all_gather(grid: Grid, blocks: Blocks, move: Move) -> Blocks:
    place = _place(move, move.dim)
    return {d: np.concatenate([blocks[o] for o in grid.group(d, move.axes)], axis=place) for d in blocks}


def _sliced(grid: Grid, device: Device, block: Block, move: Move, dim: str | None) -> Block:
    shards = grid.mesh.size(*move.axes)
    return np.split(block, shards, axis=_place(move, dim))[grid.rank(device, move.axes)]


def _slice(grid: Grid, blocks: Blocks, move: Move) -> Blocks:
    return {d: _sliced(grid, d, block, move, move.dim) for d, block in blocks.items()}


def _all_reduce(grid: Grid, blocks: Blocks, move: Move) -> Blocks:
    (kind,) = {kind for axis, kind in move.before.owes if axis in move.axes}
    return grid.reduced(blocks, move.axes, kind)


def _reduce_scatter(grid: Grid, blocks: Blocks, move: Move) -> Blocks:
    return _slice(grid, _all_reduce(grid, blocks, move), move)


def _all_to_all(grid: Grid, blocks: Blocks, move: Move) -> Blocks:
    gathered = _all_gather(grid, blocks, move)
    return {d: _sliced(grid, d, block, move, move.to_dim) for d, block in gathered.items()}


def _permute(grid: Grid, blocks: Blocks, move: Move) -> Blocks:
    """Every device takes the block it should hold from some device that holds it."""
    shape = {
        dim: size * grid.mesh.size(*axes)
        for dim, size, axes in zip(move.before.dims, next(iter(blocks.values())).shape, move.before.on, strict=True)
    }
    owed = move.before.owed_axes

    def key(device: Device, sharding: Sharding) -> tuple[object, ...]:
        window = grid.window(device, sharding, shape)
        return (*((part.start, part.stop) for part in window), grid.rank(device, sorted(owed)))

    held = {key(device, move.before): block for device, block in blocks.items()}
    return {device: held[key(device, move.after)] for device in blocks}


MOVE: Mapping[str, Callable[[Grid, Blocks, Move], Blocks]] = {
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "permute": _permute,
    "slice": _slice,
}
