"""Collectives through a switch: every device has one port in and one out."""

from __future__ import annotations

from tpsim.reference import rings
from tpsim.reference.schedule import Schedule, Send, joined


def ring_gather(n: int) -> Schedule:
    """A one-way ring laid over the ports."""
    return _ported(rings.one_way_gather(n))


def direct_gather(n: int) -> Schedule:
    """Every chunk straight to everyone."""
    sends = tuple(Send(at, to, ((at, at + 1),)) for at in range(n) for to in range(n) if to != at)
    return Schedule(n, n, 1, (sends,) if sends else ())


def doubling_gather(n: int) -> Schedule:
    """All-gather by doubling (Bruck et al. 1997): in round k everything, up to what lacks, to the device 2^k before."""
    steps, reach = [], 1
    while reach < n:
        count = min(reach, n - reach)
        steps.append(
            tuple(
                Send(at, (at - reach) % n, joined(_one((at + ahead) % n) for ahead in range(count))) for at in range(n)
            )
        )
        reach *= 2
    return Schedule(n, n, 1, tuple(steps))


def one_shot(n: int) -> Schedule:
    """All-reduce: everyone sends everything to everyone, who adds."""
    sends = tuple(Send(at, to, ((0, n),), add=True) for at in range(n) for to in range(n) if to != at)
    return Schedule(n, n, 1, (sends,) if sends else ())


def in_switch(n: int) -> Schedule:
    """All-reduce by the switch: each owner reads the sum of all copies of its chunk, then stores it to everyone."""
    return summed(n).then(multicast(n))


def summed(n: int) -> Schedule:
    """Reduce-scatter by the switch: each owner reads the sum of all copies of its chunk."""
    read = [Send(at, n, ((0, n),), add=True) for at in range(n)]
    read += [Send(n, owner, (_one(owner),)) for owner in range(n)]
    return Schedule(n, n, 1, (tuple(read),), switches=1) if n > 1 else Schedule(n, n, 1, ())


def multicast(n: int) -> Schedule:
    """All-gather by the switch: each owner stores its chunk to everyone."""
    store = [Send(owner, n, (_one(owner),)) for owner in range(n)]
    store += [Send(n, at, ((0, n),)) for at in range(n)]
    return Schedule(n, n, 1, (tuple(store),), switches=1) if n > 1 else Schedule(n, n, 1, ())


def in_network(n: int) -> Schedule:
    """All-reduce by the network: its switches read everything from everyone and store the sum to everyone."""
    up = [Send(at, n, ((0, n),), add=True) for at in range(n)]
    down = [Send(n, at, ((0, n),)) for at in range(n)]
    return Schedule(n, n, 1, ((*up, *down),), switches=1) if n > 1 else Schedule(n, n, 1, ())


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
    sends = tuple(_straight(n, at, to) for at in range(n) for to in range(n) if to != at)
    return Schedule(n, n * n, 1, (sends,) if sends else ())


def _straight(n: int, at: int, to: int) -> Send:
    return Send(at, to, (_one(at * n + to),))


def _ported(ring: Schedule) -> Schedule:
    """The same messages through ports."""
    steps = tuple(tuple(send._replace(way=0) for send in step) for step in ring.steps)
    return Schedule(ring.n, ring.blocks, ring.units, steps)


def _one(block: int) -> tuple[int, int]:
    return block, block + 1


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
