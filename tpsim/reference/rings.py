"""Collectives on closed rings, two-way and one-way."""

from __future__ import annotations

from tpsim.reference.schedule import Piece, Schedule, Send, Step, joined

HALVES = 2


def two_way_gather(n: int) -> Schedule:
    """Every chunk goes both ways round at once; for even n the antipode gets half of it from each side."""
    steps = []
    for step in range(n // 2):
        split = 2 * (step + 1) == n
        sends = []
        for at in range(n):
            forth, back = (at - step) % n * HALVES, (at + step) % n * HALVES
            sends.append(Send(at, (at + 1) % n, ((forth, forth + (1 if split else 2)),), way=1))
            sends.append(Send(at, (at - 1) % n, ((back + (1 if split else 0), back + 2),), way=-1))
        steps.append(tuple(sends))
    return Schedule(n, n, HALVES, tuple(steps))


def opposite_gather(n: int) -> Schedule:
    """Half of every chunk goes all the way round, the other half the other way."""
    steps = []
    for step in range(n - 1):
        sends = []
        for at in range(n):
            forth, back = (at - step) % n * HALVES, (at + step) % n * HALVES
            sends.append(Send(at, (at + 1) % n, ((forth, forth + 1),), way=1))
            sends.append(Send(at, (at - 1) % n, ((back + 1, back + 2),), way=-1))
        steps.append(tuple(sends))
    return Schedule(n, n, HALVES, tuple(steps))


def one_way_gather(n: int, way: int = 1) -> Schedule:
    """Every chunk goes all the way round."""
    steps = tuple(
        tuple(Send(at, (at + way) % n, (_one((at - way * step) % n),), way=way) for at in range(n))
        for step in range(n - 1)
    )
    return Schedule(n, n, 1, steps)


def one_way_scatter(n: int) -> Schedule:
    """Sums collected once round, in the direction in which the ring runs."""
    return one_way_gather(n, -1).backwards()


def shortest_exchange(n: int) -> Schedule:
    """All-to-all by the shortest way; the chunk for the antipode of an even ring goes half each way."""
    return _exchange(n, split=True)


def unsplit_exchange(n: int) -> Schedule:
    """All-to-all by the shortest way; the chunk for the antipode goes one way."""
    return _exchange(n, split=False)


def one_way_exchange(n: int) -> Schedule:
    """All-to-all round one direction."""
    steps = tuple(
        tuple(Send(at, (at + 1) % n, joined(_beyond(n, at - step, step)), way=1) for at in range(n))
        for step in range(n - 1)
    )
    return Schedule(n, n * n, 1, steps)


def _beyond(n: int, origin: int, step: int) -> list[Piece]:
    """Chunks of a device that have farther than `step` to go."""
    return [_chunk(n, origin, origin + far, 1) for far in range(step + 1, n)]


def _exchange(n: int, *, split: bool) -> Schedule:
    return Schedule(
        n,
        n * n,
        HALVES,
        tuple(
            tuple(send for at in range(n) for way in (1, -1) for send in _onward(n, step, at, way, split=split))
            for step in range(n // 2)
        ),
    )


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


def _one(block: int) -> Piece:
    return block, block + 1
