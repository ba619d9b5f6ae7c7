"""The wires that a mesh stands on: where devices stand, which links a hop crosses, over which parts a move runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpsim.algebra.moves import Move
from tpsim.fabric.placement import Placement
from tpsim.fabric.slices import AxisPiece, Carrier
from tpsim.fabric.wires import Segment, SegmentTopology, joined
from tpsim.program.op import Reshard
from tpsim.reference.blocks import Grid
from tpsim.reference.collectives import Stretch

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh

Index = NDArray[np.int64]

NOWHERE = -1
"""What lies beyond the end of a line."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A physical axis or a switched level with the devices on it.

    next   way -> per device the one beside it; `NOWHERE` beyond an end. Empty where all are joined.
    first  per device the first one of its own switch, mesh, host, or row of a torus
    nodes  per device the first one of its node, whose devices share an uplink; nothing where none do
    """

    name: str
    level: str
    topology: SegmentTopology
    next: Mapping[int, Index]
    first: Index
    nodes: Index


class Digit(NamedTuple):
    """The part of a mesh axis that lies on one lane.

    n      devices
    reach  how far neighbours are apart on the lane
    apart  how far they are apart in the mesh's own order
    """

    lane: str
    n: int
    reach: int
    apart: int


@dataclass(frozen=True, slots=True)
class Network:
    """A mesh on its wires.

    digits  per mesh axis where its devices lie, innermost (fastest) first
    """

    grid: Grid
    lanes: Mapping[str, Lane]
    digits: Mapping[str, Sequence[Digit]]

    @classmethod
    def of(cls, placement: Placement) -> Network:
        """The wires of a placement."""
        digits, lanes = _digits(placement), {}
        everyone = np.arange(placement.mesh.devices)
        inside = everyone  # the first of those that differ by their places on lanes further inside alone
        for name, carrier in placement.carriers.items():
            here = [digit for parts in digits.values() for digit in parts if digit.lane == name]
            if here:
                nodes = inside if carrier.shared else np.zeros(0, dtype=np.int64)
                lanes[name] = _lane(carrier, placement.levels[carrier.level], here, everyone, nodes)
                inside = inside - (everyone - lanes[name].first)
        return cls(Grid(placement.mesh), lanes, digits)

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
        digits = [digit for axis in axes for digit in self.digits[axis]]
        by_lane = {segment.axis: [digit for digit in digits if digit.lane == segment.axis] for segment in segments}
        sizes = {name: prod(digit.n for digit in here) for name, here in by_lane.items()}
        whole = sum(map(len, by_lane.values())) == len(digits)
        if not whole or any(sizes[segment.axis] != segment.n for segment in segments):
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


def _digits(placement: Placement) -> dict[str, list[Digit]]:
    """Where the devices of every mesh axis lie."""
    digits: dict[str, list[Digit]] = {axis: [] for axis in placement.mesh.order}
    apart, inside = 1, dict.fromkeys(placement.carriers, 1)
    for axis in reversed(placement.mesh.order):  # minor axes lie inside
        for piece in placement.pieces[axis]:
            lane = piece.carrier
            reach = inside[lane] if joined(placement.carriers[lane].topology) else piece.stride
            digits[axis].append(Digit(lane, piece.n, reach, apart))
            apart, inside[lane] = apart * piece.n, inside[lane] * piece.n
    return digits


def _offsets(digits: Sequence[Digit]) -> Index:
    """What places along one lane add to a device's index, in the order of the wires."""
    offsets = np.zeros(1, dtype=np.int64)
    for digit in sorted(digits, key=lambda digit: digit.reach):
        offsets = np.add.outer(np.arange(digit.n) * digit.apart, offsets).reshape(-1)
    return offsets


def _lane(carrier: Carrier, level: str, digits: Sequence[Digit], everyone: Index, nodes: Index) -> Lane:
    """The lane with every device's neighbours on it."""
    offsets, topology = _offsets(digits), carrier.topology
    place = np.zeros_like(everyone)
    for digit in digits:
        place += everyone // digit.apart % digit.n * digit.reach
    row = everyone - offsets[place]
    ways = () if joined(topology) else (1,) if topology == "one_way_ring" else (1, -1)
    beside = {way: _beside(row, place, offsets, way, is_open=topology == "line") for way in ways}
    return Lane(carrier.name, level, topology, beside, row, nodes)


def _beside(row: Index, place: Index, offsets: Index, way: int, *, is_open: bool) -> Index:
    to = place + way
    neighbour = row + offsets[to % len(offsets)]
    beyond = (to < 0) | (to >= len(offsets))
    return np.where(beyond, NOWHERE, neighbour) if is_open else neighbour


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
