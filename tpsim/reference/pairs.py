"""Collectives over two levels of switches at once: ports inside a node, a network card per device between nodes."""

from __future__ import annotations

from tpsim.reference.schedule import Schedule, Send

PORT, CARD = 0, 1


def flat_ring_gather(inner: int, nodes: int) -> Schedule:
    """One one-way ring per rail over all devices, each carrying its share of every chunk; a rail leaves a node once."""
    return _flat_ring(inner, nodes, 1)


def flat_ring_scatter(inner: int, nodes: int) -> Schedule:
    """The same rings, sums instead of copies."""
    return _flat_ring(inner, nodes, -1).backwards()


def _flat_ring(inner: int, nodes: int, way: int) -> Schedule:
    n = inner * nodes
    rings = [_order(inner, nodes, rail)[::way] for rail in range(inner)]
    steps = tuple(
        tuple(
            _hop(ring[place], ring[(place + 1) % n], ring[(place - step) % n] * inner + rail, nodes)
            for rail, ring in enumerate(rings)
            for place in range(n)
        )
        for step in range(n - 1)
    )
    return Schedule(n, n, inner, steps)


def _order(inner: int, nodes: int, rail: int) -> list[int]:
    """Ranks round one ring: through every device of a node, then on to the next node."""
    return [(rail + 1 + place) % inner * nodes + node for node in range(nodes) for place in range(inner)]


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
