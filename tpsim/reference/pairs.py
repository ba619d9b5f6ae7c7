"""Collectives over two levels of switches at once: ports inside a node, a network card per device between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.reference import meshes, switches
from tpsim.reference.levels import Axis, nested
from tpsim.reference.schedule import Schedule, Send

if TYPE_CHECKING:
    from tpsim.algebra.moves import MoveKind

PORT, CARD = 0, 1


def flat_ring_gather(inner: int, nodes: int) -> Schedule:
    """One-way rings over all devices at once, each with an equal part of every chunk; each leaves a node once.

    Every device's card and every cable inside a node belongs to as many rings as any other.
    """
    return _flat_ring(inner, nodes, 1)


def flat_ring_scatter(inner: int, nodes: int) -> Schedule:
    """The same rings, sums instead of copies."""
    return _flat_ring(inner, nodes, -1).backwards()


def _flat_ring(inner: int, nodes: int, way: int) -> Schedule:
    n = inner * nodes
    rings = [order[::way] for order in _orders(inner, nodes)]
    steps = tuple(
        tuple(
            _hop(ring[place], ring[(place + 1) % n], ring[(place - step) % n] * len(rings) + rail, nodes)
            for rail, ring in enumerate(rings)
            for place in range(n)
        )
        for step in range(n - 1)
    )
    return Schedule(n, n, len(rings), steps)


def _orders(inner: int, nodes: int) -> list[list[int]]:
    """Ranks round every ring: through every device of a node, then on to the next node; one node closes its own."""
    if nodes == 1:
        return meshes.rings(inner)
    return [[at * nodes + node for node in range(nodes) for at in path] for path in meshes.paths(inner)]


def _hop(source: int, target: int, piece: int, nodes: int) -> Send:
    return Send(source, target, ((piece, piece + 1),), CARD if source % nodes != target % nodes else PORT)


def pairwise_exchange(inner: int, nodes: int) -> Schedule:
    """All-to-all with one peer after the other, straight: those in the node first, then those of every other node."""
    n = inner * nodes
    shifts = [(far, node) for node in range(nodes) for far in range(inner) if (far, node) != (0, 0)]
    return Schedule(n, n * n, 1, tuple(_shifted(inner, nodes, far, node) for far, node in shifts))


def _shifted(inner: int, nodes: int, far: int, node: int) -> tuple[Send, ...]:
    """Everyone sends to the device `far` places and `node` nodes further on."""
    n = inner * nodes
    sends = []
    for at in range(n):
        to = (at // nodes + far) % inner * nodes + (at % nodes + node) % nodes
        sends.append(_hop(at, to, at * n + to, nodes))
    return tuple(sends)


def in_switch_tree(inner: int, nodes: int) -> Schedule:
    """All-reduce by sums inside the nodes' switches and over trees between the nodes, one per rail."""
    return _under(inner, nodes, switches.tree(nodes))


def in_switch_network(inner: int, nodes: int) -> Schedule:
    """All-reduce by sums inside the nodes' switches and inside those of the network, one per rail."""
    return _under(inner, nodes, switches.in_network(nodes))


def _under(inner: int, nodes: int, between: Schedule) -> Schedule:
    """All-reduce by sums inside the nodes' switches, and `between` the nodes on what every device then holds."""

    def in_node(kind: MoveKind) -> Schedule:
        return switches.summed(inner) if kind == "reduce_scatter" else switches.multicast(inner)

    return nested(
        [Axis(inner, (PORT,), in_node), Axis(nodes, (CARD,), lambda _: between)],
        "all_reduce",
        (CARD, PORT),
    )
