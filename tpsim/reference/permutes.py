"""Permutes: every device's shard goes to one other device, axis by axis, the shortest way along each."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tpsim.fabric.wires import joined
from tpsim.reference.schedule import Schedule, Send, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.fabric.wires import Segment, SegmentTopology


def routed(segments: Sequence[Segment], targets: Sequence[int]) -> Schedule:
    """The shard of rank r goes to rank ``targets[r]``: along one segment after another, one hop a step."""
    n = prod(whole(segment.n) for segment in segments)
    at, steps = list(range(n)), []
    for along, segment in enumerate(segments):
        stride = prod(whole(later.n) for later in segments[along + 1 :])
        size = whole(segment.n)
        while True:
            step = []
            for block in range(n):
                here, there = at[block] // stride % size, targets[block] // stride % size
                if here != there:
                    to, way = _hop(segment.topology, size, here, there)
                    step.append(Send(at[block], at[block] + (to - here) * stride, ((block, block + 1),), along, way))
            if not step:
                break
            steps.append(tuple(step))
            for send in step:
                at[send.pieces[0][0]] = send.target
    return Schedule(n, n, 1, tuple(steps))


def _hop(topology: SegmentTopology, size: int, here: int, there: int) -> tuple[int, int]:
    """The next coordinate and the way to it."""
    if joined(topology):
        return there, 0
    if topology == "line":
        way = 1 if there > here else -1
    else:
        way = 1 if topology == "one_way_ring" or 2 * ((there - here) % size) <= size else -1
    return (here + way) % size, way


def beside(parts: Sequence[Sequence[Segment]]) -> list[int]:
    """The plainest permute: along the first axis of every part to the next place, round a ring or through a switch.

    On a line neighbours swap, and an odd one keeps its own. The shard of rank r goes to the rank that stands at r.
    """
    targets = [0]
    for part in parts:
        moving = next((at for at, segment in enumerate(part) if whole(segment.n) > 1), 0)
        for at, segment in enumerate(part):
            size = whole(segment.n)
            onward = [_next(segment.topology, size, place) if at == moving else place for place in range(size)]
            targets = [target * size + to for target in targets for to in onward]
    return targets


def _next(topology: SegmentTopology, size: int, place: int) -> int:
    onward = (place + 1) % size
    return onward if topology != "line" else place ^ 1 if place ^ 1 < size else place
