"""How the moves of a program run: on which network, and over which parts of it with which algorithms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpsim.algebra.moves import Move
from tpsim.fabric.wires import Segment
from tpsim.program.op import Reshard
from tpsim.reference.collectives import Part
from tpsim.reference.network import Network

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh

Parts = Callable[[Move, float, Reshard], Sequence[Part]]
"""The parts of the network that a move runs over, innermost first: from the move, its V in bytes, and its cause."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """A network and how every move runs on it."""

    network: Network
    parts: Parts


def rings(mesh: Mesh) -> Wiring:
    """Every mesh axis a closed ring of its own; several axes together are a torus."""

    def parts(move: Move, _volume: float, _op: Reshard) -> Sequence[Part]:
        return on_rings(mesh, move)

    return Wiring(Network.rings(mesh), parts)


def on_rings(mesh: Mesh, move: Move) -> Sequence[Part]:
    """How a move runs where every mesh axis is a ring of its own."""
    busy = [axis for axis in move.axes if mesh.axes[axis] > 1]
    segments = tuple(Segment("rings", axis, "ring", mesh.axes[axis]) for axis in busy)
    if move.kind == "permute" or move.streamed:
        return [Part(segments, "permute")]
    if len(segments) > 1:
        return [Part(segments, "rotated")]
    return [Part(segments, "shortest" if move.kind == "all_to_all" else "ring")]
