"""Collectives among devices of which each two share a cable: rings and paths that together use all cables alike."""

from __future__ import annotations

from tpsim.reference.schedule import Schedule, Send


def ring_gather(n: int) -> Schedule:
    """One-way rings over all devices at once, each with an equal part of every chunk."""
    orders = rings(n)
    steps = tuple(
        tuple(
            Send(order[place], order[(place + 1) % n], (_part(order[(place - step) % n], ring, len(orders)),))
            for ring, order in enumerate(orders)
            for place in range(n)
        )
        for step in range(n - 1)
    )
    return Schedule(n, n, len(orders), steps)


def rings(n: int) -> list[list[int]]:
    """One-way rings over n devices that cross every cable equally often each way: once for odd n, else twice.

    The last device closes the paths over the others. For n = 4 and 6 no rings cross every cable once.
    """
    return [[n - 1, *path] for path in paths(n - 1)] or [[0]]


def paths(n: int) -> list[list[int]]:
    """Paths over n devices that cross every cable equally often each way: once for even n, else twice.

    A zigzag 0, 1, -1, 2, -2, ... from every device: for even n its steps 1, -2, 3, ... are all different round n. For
    odd n each odd one comes twice, and the mirrored zigzags have the even ones. As many paths begin at every device,
    and as many end there. Source: Walecki's rings (Lucas 1883), Williams' squares (1949).
    """
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(n)]
    rings = [[(first + at) % n for at in zigzag] for first in range(n)]
    return rings + ([[-at % n for at in path] for path in rings] if n % 2 else [])


def _part(block: int, part: int, parts: int) -> tuple[int, int]:
    return block * parts + part, block * parts + part + 1
