"""What a change of axes puts on the wires: every block goes the shortest way, and every directed link is counted.

A block goes along one axis of a torus after another, inner ones first, the shortest way along each, half each way where
both are as long; through a switch it goes straight to its place, so that what lies inside is not crossed. There is no
closed form in the numbers of devices: the blocks are summed, so these must be numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.algebra.moves import wire
from tpsim.fabric.wires import Segment, SegmentTopology, joined
from tpsim.machine.cable_forms import host_passes
from tpsim.machine.forms import Traffic
from tpsim.quantity.size import Size, largest, over, product, total, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.fabric.change import Change


@dataclass(frozen=True, slots=True)
class Changing:
    """A change of axes over several parts of a route, all of which work at once.

    whole  steps of the longest way, bytes over the busiest link of any part
    parts  the same for each part of the route
    uplinks  bytes on a node's busiest uplink, for each part; 0 where nothing is shared
    hops   of every way that a block goes, per part
    """

    whole: Traffic
    parts: tuple[Traffic, ...]
    uplinks: tuple[Any, ...]
    hops: frozenset[tuple[int, ...]]

    def latency_s(self, hop_s: Sequence[Any]) -> Any:
        """Seconds of the longest way whose hops take so long on each part."""
        return largest(*(total(many * seconds for many, seconds in zip(way, hop_s, strict=True)) for way in self.hops))


def changing(parts: Sequence[Sequence[Segment]], V: Size, change: Change) -> Changing:
    """What a change of axes moves; V bytes of the whole array, the parts innermost first.

    Where every device sends at the rate at which the busiest link is never idle, no link has too much to do, and the
    last byte comes when that link has passed all of its own, after the hops of the longest way: streamed.
    """
    segments = tuple(segment for part in parts for segment in part)
    n, paths = product(segment.n for segment in segments), crossed(segments, change)
    ends = [*accumulate((len(part) for part in parts), initial=0)]
    spans = [range(start, end) for start, end in pairwise(ends)]
    hops = frozenset(tuple(sum(way[at] for at in span) for span in spans) for way in paths.ways)
    runs = tuple(_traffic(paths, span, V, n) for span in spans)
    uplinks = tuple(over(V, n) * max(paths.uplinks[at] for at in span) for span in spans)
    return Changing(_traffic(paths, range(len(segments)), V, n), runs, uplinks, hops)


def _traffic(paths: Crossed, span: range, V: Size, n: Size) -> Traffic:
    block = over(V, n)
    busiest = block * max(paths.busiest[at] for at in span)
    steps = max(sum(way[at] for at in span) for way in paths.ways)
    return Traffic(steps, wire("permute", V, n), block * sum(paths.sent[at] for at in span), busiest, busiest, block)


# Counting --------------------------------------------------------------------------------------------------------

HALVES = 2
"""Parts of a block that may go different ways."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """What the blocks of all groups cross; in blocks of V/n.

    busiest  per segment, what its busiest directed link carries
    sent     per segment, what a device sends over it on average, forwarded blocks included
    ways     the hops of every way that a block goes, per segment
    uplinks  per segment, what the devices of a node send together, or get, where they share an uplink; else 0
    """

    busiest: tuple[Fraction, ...]
    sent: tuple[Fraction, ...]
    ways: frozenset[tuple[int, ...]]
    uplinks: tuple[int, ...]


@cache
def crossed(segments: tuple[Segment, ...], change: Change) -> Crossed:
    """What every block crosses on the way to its place; segments innermost first, their sizes numbers."""
    targets, places = change.targets(), [change.places(segment) for segment in segments]
    straight = _straight(segments, places, targets)
    first = at = _positions(segments, places)
    busiest, sent, hops, uplinks = [], [], [], []
    for number, segment in enumerate(segments):
        apart = prod(whole(later.n) for later in segments[number + 1 :])
        here, there = places[number], [places[number][target] for target in targets]
        after = [position + (to - by) * apart for position, by, to in zip(at, here, there, strict=True)]
        leaves = first if segment.topology == "switch" else at
        moving = [rank for rank in range(len(at)) if here[rank] != there[rank] and number >= straight[rank]]
        steps = [_Step(leaves[rank], after[rank], here[rank], there[rank]) for rank in moving]
        lengths = dict(zip(moving, _lengths(segment, steps), strict=True))
        busiest.append(Fraction(_busiest(segment, apart, steps) * _groups(segment), HALVES))
        uplinks.append(_of_nodes(segment, apart, steps, len(at)))
        sent.append(Fraction(sum(lengths.values()), len(at)))
        hops.append([lengths.get(rank, 0) for rank in range(len(at))])
        at = after
    return Crossed(tuple(busiest), tuple(sent), frozenset(zip(*hops, strict=True)), tuple(uplinks))


class _Step(NamedTuple):
    """A block that moves along a segment: its positions among all devices, and its places there, before and after."""

    leaves: int
    comes: int
    here: int
    there: int


def _straight(segments: Sequence[Segment], places: Sequence[Sequence[int]], targets: Sequence[int]) -> Sequence[int]:
    """For each block the number of the outermost switch that it crosses, and nothing inside of it; -1 for none."""
    sources = [-1] * len(targets)
    for number, segment in enumerate(segments):
        if segment.topology == "switch":
            own = places[number]
            sources = [number if own[rank] != own[target] else sources[rank] for rank, target in enumerate(targets)]
    return sources


def _positions(segments: Sequence[Segment], places: Sequence[Sequence[int]]) -> list[int]:
    """Places on all segments as one number each, the first segment slowest."""
    positions = [0] * len(places[0])
    for segment, own in zip(segments, places, strict=True):
        positions = [before * whole(segment.n) + place for before, place in zip(positions, own, strict=True)]
    return positions


def _busiest(segment: Segment, apart: int, steps: Sequence[_Step]) -> int:
    """Parts of blocks over the busiest directed link of all segments of this kind in a group.

    apart  how far the positions of neighbours are apart
    """
    if segment.topology == "switch":
        ports = Counter(step.leaves for step in steps), Counter(step.comes for step in steps)
        return HALVES * max((count for port in ports for count in port.values()), default=0)
    load: dict[int, int] = defaultdict(int)
    n = whole(segment.n)
    for leaves, _, here, there in steps:
        row = (leaves - here * apart) * 2 * n * n
        for link, parts in leg(segment.topology, n, here, there)[1]:
            load[row + link] += parts
    return max(load.values(), default=0)


def _of_nodes(segment: Segment, apart: int, steps: Sequence[_Step], n: int) -> int:
    """Blocks that leave or reach the busiest node, if its devices share an uplink; other groups in it do alike.

    apart  how far the positions of neighbours are apart: devices of a node have the same place here and on later ones
    n      devices of the group
    """
    if segment.sharing is None:
        return 0
    nodes = whole(segment.n) * apart
    ends = Counter(step.leaves % nodes for step in steps), Counter(step.comes % nodes for step in steps)
    most = max((count for end in ends for count in end.values()), default=0)
    return most * whole(segment.sharing) * nodes // n


def _lengths(segment: Segment, steps: Sequence[_Step]) -> list[int]:
    """The links that each block crosses one after another: of interleaved groups those of the others too."""
    if segment.topology == "switch":
        return [1] * len(steps)
    n, stride = whole(segment.n), 1 if joined(segment.topology) else whole(segment.stride)
    return [leg(segment.topology, n, step.here, step.there)[0] * stride for step in steps]


def _groups(segment: Segment) -> int:
    """How often what one group sends crosses a link: every group that shares it sends as much."""
    passes = whole(host_passes(segment.n)) if segment.topology == "host" else 1
    return passes * whole(segment.stride)


def _leg(topology: SegmentTopology, n: int, here: int, there: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Hops from place to place of a segment that is no switch, and how many parts of a block go over each of its links.

    The directed links of a segment are numbered below 2*n*n.
    """
    if topology == "host":
        return 1, ((0, HALVES),)
    if topology == "mesh":
        return 1, ((here * n + there, HALVES),)
    ways = _shortest(topology, n, here, there)
    links = [2 * ((here + way * hop) % n) + (way > 0) for way, hops in ways for hop in range(hops)]
    return ways[0][1], tuple((link, HALVES // len(ways)) for link in links)


leg = cache(_leg)


def _shortest(topology: SegmentTopology, n: int, here: int, there: int) -> tuple[tuple[int, int], ...]:
    """The shortest ways along a ring or a line: direction and hops."""
    onward = (there - here) % n
    if topology == "line":
        return ((1, there - here) if there > here else (-1, here - there),)
    if topology == "one_way_ring" or 2 * onward < n:
        return ((1, onward),)
    back = (-1, n - onward)
    return (back,) if 2 * onward > n else ((1, onward), back)
