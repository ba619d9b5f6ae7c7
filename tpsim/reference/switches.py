"""Collectives through a switch, where devices have one port in and one out, or over two levels of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.reference import rings
from tpsim.reference.levels import Axis, nested
from tpsim.reference.schedule import Schedule, Send, joined, unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.algebra.moves import MoveKind


def ring_gather(n: int) -> Schedule:
    """A one-way ring laid over the ports."""
    ring = rings.one_way_gather(n)
    steps = tuple(tuple(send._replace(way=0) for send in step) for step in ring.steps)
    return Schedule(ring.n, ring.blocks, ring.units, steps)


def direct_gather(n: int) -> Schedule:
    """Every chunk straight to everyone."""
    return _at_once(n, n, [Send(at, to, (unit(at),)) for at in range(n) for to in range(n) if to != at])


def doubling_gather(n: int) -> Schedule:
    """All-gather by doubling (Bruck et al. 1997): in round k everything, up to what lacks, to the device 2^k before."""
    steps, reach = [], 1
    while reach < n:
        count = min(reach, n - reach)
        steps.append(
            tuple(
                Send(at, (at - reach) % n, joined(unit((at + ahead) % n) for ahead in range(count))) for at in range(n)
            )
        )
        reach *= 2
    return Schedule(n, n, 1, tuple(steps))


def one_shot(n: int) -> Schedule:
    """All-reduce: everyone sends everything to everyone, who adds."""
    return _at_once(n, n, [Send(at, to, ((0, n),), add=True) for at in range(n) for to in range(n) if to != at])


def in_switch(n: int) -> Schedule:
    """All-reduce by the switch: each owner reads the sum of all copies of its chunk, then stores it to everyone."""
    return summed(n).then(multicast(n))


def summed(n: int) -> Schedule:
    """Reduce-scatter by the switch: each owner reads the sum of all copies of its chunk."""
    read = [Send(at, n, ((0, n),), add=True) for at in range(n)]
    read += [Send(n, owner, (unit(owner),)) for owner in range(n)]
    return _at_once(n, n, read, switches=1)


def multicast(n: int) -> Schedule:
    """All-gather by the switch: each owner stores its chunk to everyone."""
    store = [Send(owner, n, (unit(owner),)) for owner in range(n)]
    store += [Send(n, at, ((0, n),)) for at in range(n)]
    return _at_once(n, n, store, switches=1)


def in_network(n: int) -> Schedule:
    """All-reduce by the network: its switches read everything from everyone and store the sum to everyone."""
    up = [Send(at, n, ((0, n),), add=True) for at in range(n)]
    down = [Send(n, at, ((0, n),)) for at in range(n)]
    return _at_once(n, n, [*up, *down], switches=1)


def _at_once(n: int, blocks: int, sends: Sequence[Send], switches: int = 0) -> Schedule:
    """All in one step; one device alone sends nothing."""
    return Schedule(n, blocks, 1, (tuple(sends),), switches) if n > 1 else Schedule(n, blocks, 1, ())


def tree(n: int) -> Schedule:
    """All-reduce over two binary trees of half the array each, up and down, in one piece each.

    Every second rank is a leaf of the first tree; the second one is the same with its ranks mirrored (even n) or moved
    by one, so that its inner nodes are leaves of the first.
    """
    parents = _parents(n)
    depth = max((_depth(parents, rank) for rank in range(n)), default=0)
    heights = _heights(parents, n)
    steps: list[list[Send]] = [[] for _ in range(2 * depth)]
    for half in (0, 1):
        cut = (half * n, (half + 1) * n)
        for child, parent in parents.items():
            low, high = (_moved(rank, n) if half else rank for rank in (child, parent))
            steps[heights[child]].append(Send(low, high, (cut,), add=True))
            steps[depth - 1 + _depth(parents, child)].append(Send(high, low, (cut,)))
    return Schedule(n, n, 2, tuple(map(tuple, steps)))


def pairwise_exchange(n: int) -> Schedule:
    """All-to-all with one peer after the other."""
    steps = tuple(tuple(_straight(n, at, (at + far) % n) for at in range(n)) for far in range(1, n))
    return Schedule(n, n * n, 1, steps)


def direct_exchange(n: int) -> Schedule:
    """All-to-all with all peers at once."""
    return _at_once(n, n * n, [_straight(n, at, to) for at in range(n) for to in range(n) if to != at])


def _straight(n: int, at: int, to: int) -> Send:
    return Send(at, to, (unit(at * n + to),))


def _parents(n: int) -> dict[int, int]:
    """Parents in a binary tree over the ranks with rank 0 at its root (Sanders, Speck and Traeff 2009)."""
    parents = {}
    for rank in range(1, n):
        bit = rank & -rank
        up = (rank ^ bit) | (bit << 1)
        parents[rank] = up if up < n else rank ^ bit
    return parents


def _depth(parents: dict[int, int], rank: int) -> int:
    return 0 if rank not in parents else 1 + _depth(parents, parents[rank])


def _heights(parents: dict[int, int], n: int) -> list[int]:
    """How many steps each rank waits for what is below it."""
    heights = [0] * n
    for rank in range(n):
        at, height = rank, 0
        while at in parents:
            at, height = parents[at], height + 1
            heights[at] = max(heights[at], height)
    return heights


def _moved(rank: int, n: int) -> int:
    return n - 1 - rank if n % 2 == 0 else (rank + 1) % n


PORT, CARD = 0, 1


def flat_ring_gather(inner: int, nodes: int) -> Schedule:
    """One-way rings over all devices at once, each with an equal part of every chunk; each leaves a node once.

    Every device's card and every cable inside a node belongs to as many rings as any other; a node alone has cables.
    """
    return _flat_ring(inner, nodes, 1)


def flat_ring_scatter(inner: int, nodes: int) -> Schedule:
    """The same rings, sums instead of copies."""
    return _flat_ring(inner, nodes, -1).backwards()


def _flat_ring(inner: int, nodes: int, way: int) -> Schedule:
    n = inner * nodes
    loops = [order[::way] for order in _orders(inner, nodes)]
    steps = tuple(
        tuple(
            _hop(ring[place], ring[(place + 1) % n], ring[(place - step) % n] * len(loops) + rail, nodes)
            for rail, ring in enumerate(loops)
            for place in range(n)
        )
        for step in range(n - 1)
    )
    return Schedule(n, n, len(loops), steps)


def _orders(inner: int, nodes: int) -> list[list[int]]:
    """Ranks round every ring: through every device of a node, then on to the next node; one node closes its own."""
    if nodes == 1:
        return rings.mesh_rings(inner)
    return [[at * nodes + node for node in range(nodes) for at in path] for path in rings.mesh_paths(inner)]


def _hop(source: int, target: int, piece: int, nodes: int) -> Send:
    return Send(source, target, ((piece, piece + 1),), CARD if source % nodes != target % nodes else PORT)


def two_level_exchange(inner: int, nodes: int) -> Schedule:
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
    return _under(inner, nodes, tree(nodes))


def in_switch_network(inner: int, nodes: int) -> Schedule:
    """All-reduce by sums inside the nodes' switches and inside those of the network, one per rail."""
    return _under(inner, nodes, in_network(nodes))


def _under(inner: int, nodes: int, between: Schedule) -> Schedule:
    """All-reduce by sums inside the nodes' switches, and `between` the nodes on what every device then holds."""

    def in_node(kind: MoveKind) -> Schedule:
        return summed(inner) if kind == "reduce_scatter" else multicast(inner)

    return nested(
        [Axis(inner, (PORT,), in_node), Axis(nodes, (CARD,), lambda _: between)],
        "all_reduce",
        (CARD, PORT),
    )
