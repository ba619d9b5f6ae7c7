"""Groups of a move: how devices' blocks lie in the flat arrays that schedules cut, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tpsim.algebra.moves import Cuts, Move
    from tpsim.reference.blocks import Block, Blocks, Grid
    from tpsim.reference.network import Index


class MoveGroups:
    """All groups of one move: how blocks lie in the flat arrays that schedules cut, and back.

    Schedules count ranks as the wires do, blocks as the mesh does: `order` gives for each rank of a schedule its place
    along the mesh axes.
    """

    def __init__(self, grid: Grid, move: Move, members: Index, blocks: Blocks) -> None:
        self.grid, self.move, self.members = grid, move, members
        self.blocks = np.stack([blocks[device] for device in grid.devices])
        places = np.array([self.grid.rank(device, move.axes) for device in self.grid.devices])
        self.order = places[members[0]]
        self.n = members.shape[1]
        self.maximum = any(kind == "max" for axis, kind in move.before.owes if axis in move.axes)

    def stores(self, switches: int) -> Block:
        """Group, rank, element: what each device holds of the flat array; NaN what it does not, neutral in switches."""
        own = self._flat()
        neutral = np.full((own.shape[0], switches, own.shape[2]), -np.inf if self.maximum else 0.0)
        return np.concatenate([own, neutral], axis=1)

    def _flat(self) -> Block:
        own = self.blocks[self.members]
        groups, n = self.members.shape
        match self.move.kind:
            case "all_gather" | "permute":
                return self._alone(own.reshape(groups, n, 1, -1), n)
            case "reduce_scatter":
                return self._split(own).reshape(groups, n, -1)
            case "all_to_all":
                return self._alone(self._split(own).reshape(groups, n, 1, -1), n)
        return own.reshape(groups, n, -1).copy()

    def _alone(self, own: Block, n: int) -> Block:
        """Rank r holds row r of a flat array of n rows, and nothing else."""
        groups, _, _, size = own.shape
        stores = np.full((groups, n, n, size), np.nan)
        ranks = np.arange(n)
        stores[:, ranks, ranks] = own[:, :, 0]
        return stores.reshape(groups, n, n * size)

    def _split(self, own: Block) -> Block:
        """Blocks cut along the scattered dims into one chunk per rank: group, rank, chunk's rank, the chunk."""
        chunks = own[:, :, None]
        for place, shards in self._cut(self.move.scattered):
            parts = np.stack(np.split(chunks, shards, axis=3 + place), axis=3)
            chunks = parts.reshape(*own.shape[:2], -1, *parts.shape[4:])
        return np.asarray(chunks[:, :, self.order])

    def _cut(self, dims: Cuts) -> list[tuple[int, int]]:
        """The places of dims, and into how many parts each is cut."""
        return [(self.move.before.dims.index(dim), self.grid.mesh.size(*axes)) for dim, axes in dims]

    def moved(self, stores: Block) -> tuple[list[Block], int | None]:
        """Every device's block, in the order of the mesh, and the first that lacks a part; None if none does."""
        blocks = self._blocks_of(stores[:, : self.n])
        blocks, order = blocks.reshape(-1, *blocks.shape[2:]), np.argsort(self.members, axis=None)
        lacking = np.asarray(np.isnan(blocks).reshape(len(blocks), -1).any(axis=1))[order]
        return [blocks[at] for at in order], int(lacking.argmax()) if lacking.any() else None

    def _blocks_of(self, stores: Block) -> Block:
        """Group, rank, block."""
        groups, shape = stores.shape[0], self.blocks.shape[1:]
        ranks = np.arange(self.n)
        match self.move.kind:
            case "all_gather":
                return self._joined(stores.reshape(groups, self.n, self.n, *shape))
            case "permute":
                targets = self.targets()
                sources = [targets.index(rank) for rank in range(self.n)]
                return np.asarray(stores.reshape(groups, self.n, self.n, *shape)[:, ranks, sources])
            case "reduce_scatter":
                return np.asarray(stores.reshape(groups, self.n, self.n, *self._part())[:, ranks, ranks])
            case "all_to_all":
                chunks = stores.reshape(groups, self.n, self.n, self.n, *self._part())
                return self._joined(chunks[:, ranks, :, ranks].swapaxes(0, 1))
        return stores.reshape(groups, self.n, *shape)

    def _part(self) -> tuple[int, ...]:
        """The shape of one chunk of a block that is cut along the scattered dims."""
        shape = list(self.blocks.shape[1:])
        for place, shards in self._cut(self.move.scattered):
            shape[place] //= shards
        return tuple(shape)

    def _joined(self, chunks: Block) -> Block:
        """Group, rank, origin, chunk -> group, rank, block: side by side along the gathered dims."""
        joined = chunks[:, :, np.argsort(self.order)]
        for place, shards in reversed(self._cut(self.move.gathered)):
            parts = joined.reshape(*joined.shape[:2], -1, shards, *joined.shape[3:])
            joined = np.concatenate([parts[:, :, :, part] for part in range(shards)], axis=3 + place)
        return np.asarray(joined[:, :, 0])

    def targets(self) -> list[int]:
        """For each rank the rank whose block it holds: the same in every group.

        Raises ValueError if some block lies in another group, or groups differ.
        """
        patterns = {tuple(self._pattern(list(map(int, row)))) for row in self.members}
        if len(patterns) != 1:
            raise ValueError(f"groups of {self.move.before} -> {self.move.after} over {self.move.axes} differ")
        return list(patterns.pop())

    def _pattern(self, devices: Sequence[int]) -> list[int]:
        shape = {
            dim: size * self.grid.mesh.size(*axes)
            for dim, size, axes in zip(self.move.before.dims, self.blocks.shape[1:], self.move.before.on, strict=True)
        }
        before, after = (self.grid.tiling(type_, shape) for type_ in (self.move.before, self.move.after))
        coordinates = [self.grid.devices[device] for device in devices]
        wanted = {after.at[device]: rank for rank, device in enumerate(coordinates)}
        tiles = [before.at[device] for device in coordinates]
        if before.shape != after.shape or len(wanted) != len(devices) or set(tiles) != set(wanted):
            raise ValueError(f"{self.move.before} -> {self.move.after} is no permute over {self.move.axes}")
        return [wanted[tile] for tile in tiles]


class ShiftedGroup(MoveGroups):
    """Blocks that go to the next device, as the mesh counts them."""

    def targets(self) -> list[int]:
        """The same in every group."""
        place = {at: rank for rank, at in enumerate(map(int, self.order))}
        return [place[(int(at) + 1) % self.n] for at in self.order]
