"""The wires that a mesh stands on: where devices stand, which links a hop crosses, over which parts a move runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tpsim.algebra.moves import Move
from tpsim.fabric.placement import Placement
from tpsim.fabric.slices import AxisPiece, Carrier
from tpsim.fabric.wires import Segment, joined
from tpsim.program.op import Reshard
from tpsim.reference.blocks import Grid
from tpsim.reference.collectives import Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpsim.algebra.mesh import Mesh
    from tpsim.fabric.wires import SegmentTopology

Index = NDArray[np.int64]

NOWHERE = -1
"""What lies beyond the end of a line."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A physical axis or a switched level with the devices on it.

    on     the mesh axes that lie here: mesh axis -> (devices, how far neighbours are apart)
    next   way -> per device the one beside it; `NOWHERE` beyond an end. Empty where all are joined.
    first  per device the first one of its own switch, mesh, host, or row of a torus
    nodes  per device the first one of its node, whose devices share an uplink; nothing where none do
    """

    name: str
    level: str
    topology: SegmentTopology
    on: Mapping[str, tuple[int, int]]
    next: Mapping[int, Index]
    first: Index
    nodes: Index


@dataclass(frozen=True, slots=True)
class Network:
    """A mesh on its wires.

    digits  per mesh axis the lanes that it lies on with its devices there, innermost (fastest) first
    """

    grid: Grid
    lanes: Mapping[str, Lane]
    digits: Mapping[str, tuple[tuple[str, int], ...]]

    @classmethod
    def of(cls, placement: Placement) -> Network:
        """The wires of a placement."""
        mesh, carriers, pieces = placement.mesh, placement.carriers, placement.pieces
        digits = {axis: tuple((piece.carrier, piece.n) for piece in pieces[axis]) for axis in mesh.order}
        on: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in carriers}
        for axis in reversed(mesh.order):  # minor axes lie inside
            for piece in pieces[axis]:
                inside = prod(size for size, _ in on[piece.carrier].values())
                stride = inside if joined(carriers[piece.carrier].topology) else piece.stride
                on[piece.carrier][axis] = (piece.n, stride)
        nobody = np.zeros(0, dtype=np.int64)
        lanes = {
            name: Lane(name, placement.levels[carrier.level], carrier.topology, on[name], {}, nobody, nobody)
            for name, carrier in carriers.items()
            if on[name]
        }
        bare = cls(Grid(mesh), lanes, digits)
        wired = {name: _wired(bare, lane) for name, lane in lanes.items()}
        first = np.arange(mesh.devices)  # of those that differ by their places on lanes further inside alone
        for name, lane in wired.items():
            wired[name] = replace(lane, nodes=first) if carriers[name].shared else lane
            first = first - (np.arange(mesh.devices) - lane.first)
        return replace(bare, lanes=wired)

    @classmethod
    def rings(cls, mesh: Mesh) -> Network:
        """Every mesh axis a closed ring of its own: wires for a mesh without a machine."""
        pieces = {axis: (AxisPiece(axis, size, 1),) if size > 1 else () for axis, size in mesh.axes.items()}
        carriers = {axis: Carrier(0, axis, "ring", size, closed=True) for axis, size in mesh.axes.items()}
        return cls.of(Placement(mesh, ("rings",), pieces, carriers, ""))

    def members(self, axes: Sequence[str], segments: Sequence[Segment]) -> Index:
        """The devices of every group along `axes`: one row per group, one column per rank on these segments.

        Raises ValueError if the segments do not make up the axes.
        """
        digits = [digit for axis in axes for digit in self._digits(axis)]
        by_lane = {segment.axis: [digit for digit in digits if digit[0] == segment.axis] for segment in segments}
        sizes = {name: prod(size for _, _, size, _ in own_digits) for name, own_digits in by_lane.items()}
        if any(sizes[segment.axis] != segment.n for segment in segments) or sum(map(len, by_lane.values())) != len(
            digits
        ):
            raise ValueError(f"segments {list(map(str, segments))} do not make up mesh axes {list(axes)}")
        offsets = np.zeros(1, dtype=np.int64)
        for segment in segments:
            offsets = np.add.outer(offsets, _offsets(by_lane[segment.axis])).reshape(-1)
        return np.add.outer(self._firsts(axes), offsets)

    def uplink(self, messages: Iterable[tuple[int, int, int]]) -> int:
        """Bytes on the busiest uplink, in either direction, of messages from device to device: source, target, size.

        A message takes the outermost of the lanes on which its ends differ.
        """
        loads: dict[tuple[str, int, int], int] = defaultdict(int)
        shared = any(lane.nodes.size for lane in self.lanes.values())
        for source, target, size in messages if shared else ():
            apart = (
                crossed
                for crossed in self.lanes.values()
                if source - crossed.first[source] != target - crossed.first[target]
            )
            *_, lane = apart
            for way, at in enumerate((source, target)) if lane.nodes.size else ():
                loads[lane.name, way, int(lane.nodes[at])] += size
        return max(loads.values(), default=0)

    def _firsts(self, axes: Sequence[str]) -> Index:
        indices = np.arange(self.grid.mesh.devices).reshape(tuple(self.grid.mesh.axes.values()))
        taken = tuple(0 if axis in axes else slice(None) for axis in self.grid.mesh.order)
        return np.atleast_1d(np.asarray(indices[taken])).reshape(-1)

    def _digits(self, axis: str) -> list[Digit]:
        """Where the devices of a mesh axis lie: (lane, order on it, devices, how far apart in the mesh's own order)."""
        later = self.grid.mesh.order[self.grid.mesh.order.index(axis) + 1 :]
        apart = self.grid.mesh.size(*later)
        digits = []
        for name, size in self.digits[axis]:
            digits.append((name, self.lanes[name].on[axis][1], size, apart))
            apart *= size
        return digits


Digit = tuple[str, int, int, int]


def _offsets(digits: Sequence[Digit]) -> Index:
    """What places along one lane add to a device's index, in the order of the wires."""
    offsets = np.zeros(1, dtype=np.int64)
    for _, _, size, apart in sorted(digits, key=lambda digit: digit[1]):
        offsets = np.add.outer(np.arange(size) * apart, offsets).reshape(-1)
    return offsets


def _wired(network: Network, lane: Lane) -> Lane:
    """The lane with every device's neighbours on it."""
    axes = list(lane.on)
    here = [digit for axis in axes for digit in network._digits(axis) if digit[0] == lane.name]  # noqa: SLF001
    offsets = _offsets(here)
    everyone = np.arange(network.grid.mesh.devices)
    place = np.zeros_like(everyone)
    for _, reach, size, apart in here:
        place += everyone // apart % size * reach
    row = everyone - offsets[place]
    ways = () if joined(lane.topology) else (1,) if lane.topology == "one_way_ring" else (1, -1)
    return replace(lane, next={way: _beside(row, place, offsets, way, lane) for way in ways}, first=row)


def _beside(row: Index, place: Index, offsets: Index, way: int, lane: Lane) -> Index:
    to = place + way
    neighbour = row + offsets[to % len(offsets)]
    beyond = (to < 0) | (to >= len(offsets))
    return np.where(beyond, NOWHERE, neighbour) if lane.topology == "line" else neighbour


Parts = Callable[[Move, float, Reshard], Sequence[Stretch]]
"""The parts of the network that a move runs over, innermost first: from the move, its V in bytes, and its cause."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """A network and how every move runs on it."""

    network: Network
    parts: Parts


def rings(mesh: Mesh) -> Wiring:
    """Every mesh axis a closed ring of its own; several axes together are a torus."""

    def parts(move: Move, _volume: float, _op: Reshard) -> Sequence[Stretch]:
        return on_rings(mesh, move)

    return Wiring(Network.rings(mesh), parts)


def on_rings(mesh: Mesh, move: Move) -> Sequence[Stretch]:
    """How a move runs where every mesh axis is a ring of its own."""
    busy = [axis for axis in move.axes if mesh.axes[axis] > 1]
    segments = tuple(Segment("rings", axis, "ring", mesh.axes[axis]) for axis in busy)
    if move.kind == "permute" or move.streamed:
        return [Stretch(segments, "permute")]
    if len(segments) > 1:
        return [Stretch(segments, "rotated")]
    return [Stretch(segments, "shortest" if move.kind == "all_to_all" else "ring")]
