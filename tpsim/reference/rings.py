"""Collectives on closed rings, on lines, and on rings over devices of which each two share a cable."""

from __future__ import annotations

from collections.abc import Sequence

from tpsim.reference.schedule import Piece, Schedule, Send, Step, joined, unit

HALVES = 2


def two_way_gather(n: int) -> Schedule:
    """Every chunk goes both ways round at once; for even n the antipode gets half of it from each side."""
    return _both_ways(n, [2 * (step + 1) == n for step in range(n // 2)])


def opposite_gather(n: int) -> Schedule:
    """Half of every chunk goes all the way round, the other half the other way."""
    return _both_ways(n, [True] * (n - 1))


def _both_ways(n: int, halved: Sequence[bool]) -> Schedule:
    """Every chunk goes on both ways round in each step, half of it each way where it is halved there."""
    steps = []
    for step, half in enumerate(halved):
        sends = []
        for at in range(n):
            forth, back = (at - step) % n * HALVES, (at + step) % n * HALVES
            sends.append(Send(at, (at + 1) % n, ((forth, forth + HALVES - half),), way=1))
            sends.append(Send(at, (at - 1) % n, ((back + half, back + HALVES),), way=-1))
        steps.append(tuple(sends))
    return Schedule(n, n, HALVES, tuple(steps))


def one_way_gather(n: int, way: int = 1) -> Schedule:
    """Every chunk goes all the way round."""
    steps = tuple(
        tuple(Send(at, (at + way) % n, (unit((at - way * step) % n),), way=way) for at in range(n))
        for step in range(n - 1)
    )
    return Schedule(n, n, 1, steps)


def one_way_scatter(n: int) -> Schedule:
    """Sums collected once round, in the direction in which the ring runs."""
    return one_way_gather(n, -1).backwards()


def shortest_exchange(n: int, *, split: bool = True) -> Schedule:
    """All-to-all by the shortest way; the chunk for the antipode of an even ring goes half each way, or one way."""
    return Schedule(
        n,
        n * n,
        HALVES,
        tuple(
            tuple(send for at in range(n) for way in (1, -1) for send in _onward(n, step, at, way, split=split))
            for step in range(n // 2)
        ),
    )


def one_way_exchange(n: int) -> Schedule:
    """All-to-all round one direction."""
    steps = []
    for step in range(n - 1):
        farther = ([_chunk(n, at - step, at - step + far, 1) for far in range(step + 1, n)] for at in range(n))
        steps.append(tuple(Send(at, (at + 1) % n, joined(pieces), way=1) for at, pieces in enumerate(farther)))
    return Schedule(n, n * n, 1, tuple(steps))


def _onward(n: int, step: int, at: int, way: int, *, split: bool) -> Step:
    """What a device sends one way in a step: the chunks of the device `step` behind it that are not yet there."""
    origin = at - way * step
    pieces = [_chunk(n, origin, origin + way * far, HALVES) for far in range(step + 1, (n + 1) // 2)]
    if n % 2 == 0:
        start, stop = _chunk(n, origin, origin + n // 2, HALVES)
        share = (start + (way < 0), stop - (way > 0)) if split else (start, stop if way > 0 else start)
        pieces.append(share)
    own_pieces = joined(pieces)
    return (Send(at, (at + way) % n, own_pieces, way=way),) if own_pieces else ()


def _chunk(n: int, source: int, target: int, units: int) -> Piece:
    start = (source % n * n + target % n) * units
    return start, start + units


def line_gather(n: int) -> Schedule:
    """Every chunk goes both ways until the ends."""
    steps = []
    for step in range(n - 1):
        forth = [Send(at, at + 1, ((at - step, at - step + 1),), way=1) for at in range(step, n - 1)]
        back = [Send(at, at - 1, ((at + step, at + step + 1),), way=-1) for at in range(1, n - step)]
        steps.append((*forth, *back))
    return Schedule(n, n, 1, tuple(steps))


def centre_and_back(n: int, pieces: int) -> Schedule:
    """All-reduce in `pieces` that follow each other: sums travel to the middle device, results back from it."""
    if n == 1:
        return Schedule(n, n, pieces, ())
    centre = n // 2
    steps: list[list[Send]] = [[] for _ in range(2 * centre + pieces - 1)]
    for piece in range(pieces):
        cut = (piece * n, (piece + 1) * n)
        for at in range(n):
            way, far = (1 if at < centre else -1), abs(at - centre)
            if far:
                # The two sides may differ by one device: the shorter one waits.
                steps[piece + centre - far].append(Send(at, at + way, (cut,), way=way, add=True))
                steps[piece + centre + far - 1].append(Send(at + way, at, (cut,), way=-way))
    return Schedule(n, n, pieces, tuple(map(tuple, steps)))


def lockstep_line_exchange(n: int) -> Schedule:
    """All-to-all in n-1 steps: everything that has still to go moves on in each."""
    steps = []
    for step in range(n - 1):
        forth = [Send(at, at + 1, (_chunks(n, at - step, at + 1, n),), way=1) for at in range(step, n - 1)]
        back = [Send(at, at - 1, (_chunks(n, at + step, 0, at),), way=-1) for at in range(1, n - step)]
        steps.append((*forth, *back))
    return Schedule(n, n * n, 1, tuple(steps))


def farthest_first_line_exchange(n: int) -> Schedule:
    """All-to-all with one chunk per link and slot: farthest target first, its own before others'.

    Device i passes on i+1 chunks for each device to its right, so its link is busy for (i+1)(n-1-i) slots on end.
    """
    slots: list[list[Send]] = [[] for _ in range(n * n // 4)]
    for at in range(n - 1):
        slot = 0
        for target in range(n - 1, at, -1):
            for source in range(at, -1, -1):
                chunk, mirrored = source * n + target, (n - 1 - source) * n + n - 1 - target
                slots[slot].append(Send(at, at + 1, ((chunk, chunk + 1),), way=1))
                slots[slot].append(Send(n - 1 - at, n - 2 - at, ((mirrored, mirrored + 1),), way=-1))
                slot += 1
    return Schedule(n, n * n, 1, tuple(map(tuple, slots)))


def _chunks(n: int, source: int, first: int, end: int) -> tuple[int, int]:
    return source * n + first, source * n + end


def mesh_rings(n: int) -> list[list[int]]:
    """One-way rings over n devices that cross every cable equally often each way: once for odd n, else twice.

    The last device closes the paths over the others. For n = 4 and 6 no rings cross every cable once.
    """
    return [[n - 1, *path] for path in mesh_paths(n - 1)] or [[0]]


def mesh_paths(n: int) -> list[list[int]]:
    """Paths over n devices that cross every cable equally often each way: once for even n, else twice.

    A zigzag 0, 1, -1, 2, -2, ... from every device: for even n its steps 1, -2, 3, ... are all different round n. For
    odd n each odd one comes twice, and the mirrored zigzags have the even ones. As many paths begin at every device,
    and as many end there. Source: Walecki's rings (Lucas 1883), Williams' squares (1949).
    """
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(n)]
    zigzags = [[(first + at) % n for at in zigzag] for first in range(n)]
    return zigzags + ([[-at % n for at in path] for path in zigzags] if n % 2 else [])
