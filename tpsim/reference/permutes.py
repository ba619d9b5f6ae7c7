"""Permutes: every device's shard goes to one other device, the shortest way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tpsim.fabric.wires import Segment, SegmentTopology, joined
from tpsim.quantity.size import whole
from tpsim.reference.schedule import Piece, Schedule, Send

HALVES = 2


def routed(segments: Sequence[Segment], targets: Sequence[int]) -> Schedule:
    """The shard of rank r goes to rank ``targets[r]``: one hop a step, waiting for nobody.

    Along one segment after another; half each way round where both are as long. A switch is crossed straight to the
    target, so that nothing is crossed that lies inside.
    """
    ways = [_halves(segments, source, target) for source, target in enumerate(targets)]
    longest = max((len(hops) for way in ways for _, hops in way), default=0)
    steps: list[list[Send]] = [[] for _ in range(longest)]
    for block, way in enumerate(ways):
        for (start, stop), hops in way:
            piece = (block * HALVES + start, block * HALVES + stop)
            for step, (source, target, along, direction) in zip(steps, hops, strict=False):
                step.append(Send(source, target, (piece,), along, direction))
    return Schedule(len(targets), len(targets), HALVES, tuple(map(tuple, steps)))


Hop = tuple[int, int, int, int]
"""Source, target, the segment, and the way along it."""


def _halves(segments: Sequence[Segment], source: int, target: int) -> list[tuple[Piece, list[Hop]]]:
    """The stretches of a shard with their hops: halves where two ways are as long, else all of it."""
    forth, back = (_hops(segments, source, target, tie) for tie in (1, -1))
    return [((0, HALVES), forth)] if forth == back else [((0, 1), forth), ((1, HALVES), back)]


def rank_strides(segments: Sequence[Segment]) -> list[int]:
    """How many ranks lie between neighbours along each segment; those along the last one follow each other."""
    return [prod(whole(later.n) for later in segments[at + 1 :]) for at in range(len(segments))]


def _hops(segments: Sequence[Segment], source: int, target: int, tie: int) -> list[Hop]:
    """The shortest way from rank to rank; `tie` is the way round a ring where both are as long."""
    strides, sizes = rank_strides(segments), [whole(segment.n) for segment in segments]
    apart = [at for at, n in enumerate(sizes) if source // strides[at] % n != target // strides[at] % n]
    straight = max((at for at in apart if segments[at].topology == "switch"), default=-1)
    at, hops = source, []
    if straight >= 0:
        to = target // strides[straight] * strides[straight] + source % strides[straight]
        hops, at = [(at, to, straight, 0)], to
    for along in (place for place in apart if place > straight):
        there = target // strides[along] % sizes[along]
        while (here := at // strides[along] % sizes[along]) != there:
            onward, way = _next_on(segments[along].topology, sizes[along], here, there, tie)
            hops.append((at, at + (onward - here) * strides[along], along, way))
            at = hops[-1][1]
    return hops


def _next_on(topology: SegmentTopology, size: int, here: int, there: int, tie: int) -> tuple[int, int]:
    """The next coordinate and the way to it."""
    if joined(topology):
        return there, 0
    ahead, behind = (there - here) % size, (here - there) % size
    if topology == "line":
        way = 1 if there > here else -1
    elif topology == "one_way_ring":
        way = 1
    else:
        way = tie if ahead == behind else 1 if ahead < behind else -1
    return (here + way) % size, way


def beside(parts: Sequence[Sequence[Segment]]) -> Schedule:
    """The plainest permute: one hop along the first axis of every part, one part after another.

    Round a ring or through a switch everyone sends to the next place; on a line neighbours swap, and an odd one keeps
    its own.
    """
    segments = [segment for part in parts for segment in part]
    n = prod(whole(segment.n) for segment in segments)
    at, steps, first = list(range(n)), [], 0
    for part in parts:
        along = first + next((place for place, segment in enumerate(part) if whole(segment.n) > 1), 0)
        steps.append([send for block in range(n) for send in _onward(segments, along, block, at[block])])
        for send in steps[-1]:
            at[send.pieces[0][0]] = send.target
        first += len(part)
    return Schedule(n, n, 1, tuple(tuple(step) for step in steps if step))


def _onward(segments: Sequence[Segment], along: int, block: int, at: int) -> Iterator[Send]:
    """The hop of a shard to the next place along a segment, if there is one."""
    topology, size = segments[along].topology, whole(segments[along].n)
    stride = rank_strides(segments)[along]
    here = at // stride % size
    to = here ^ 1 if topology == "line" else (here + 1) % size
    if to < size and to != here:
        way = 0 if joined(topology) else -1 if to < here and topology == "line" else 1
        yield Send(at, at + (to - here) * stride, ((block, block + 1),), along, way)
