"""Collectives on lines: devices side by side whose ends are not joined."""

from __future__ import annotations

from tpsim.reference.schedule import Schedule, Send, Step


def gather(n: int) -> Schedule:
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


def exchange_lockstep(n: int) -> Schedule:
    """All-to-all in n-1 steps: everything that has still to go moves on in each."""
    steps = []
    for step in range(n - 1):
        forth = [Send(at, at + 1, (_chunks(n, at - step, at + 1, n),), way=1) for at in range(step, n - 1)]
        back = [Send(at, at - 1, (_chunks(n, at + step, 0, at),), way=-1) for at in range(1, n - step)]
        steps.append((*forth, *back))
    return Schedule(n, n * n, 1, tuple(steps))


def exchange_farthest_first(n: int) -> Schedule:
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
    return Schedule(n, n * n, 1, _tuples(slots))


def _tuples(slots: list[list[Send]]) -> tuple[Step, ...]:
    return tuple(map(tuple, slots))


def _chunks(n: int, source: int, first: int, end: int) -> tuple[int, int]:
    return source * n + first, source * n + end
