"""What a schedule puts on every link, exactly: it is read message by message, without values and without a formula."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from tpsim.fabric.wires import Segment, joined
from tpsim.quantity.size import whole
from tpsim.reference.collectives import Stretch, schedule
from tpsim.reference.permutes import rank_strides

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.reference.schedule import Piece, Schedule, Send, Step

Link = tuple[int, ...]
"""A directed link: the segment's index, then what tells it from the others there."""


@dataclass(frozen=True, slots=True)
class LevelLoad:
    """What one level's links carry.

    steps   of the run in which something crosses this level
    sent    bytes that a device sends over it, on average
    total   bytes on its busiest directed link over the whole run
    serial  sum over steps of its busiest link
    """

    steps: int
    sent: Fraction
    total: Fraction
    serial: Fraction


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of a schedule puts on the wires.

    steps        messages that wait for one another
    wire         bytes that a device injects, on average: without those that it only passes on
    carried      bytes that a device sends, on average, forwarded ones included
    link_total   bytes on the busiest directed link over the whole run
    link_serial  sum over steps of the busiest link, of the level where that is most
    levels       the same for each level of the network
    uplink       bytes on the busiest uplink that the devices of a node share, in either direction; 0 if none do
    """

    steps: int
    wire: Fraction
    carried: Fraction
    link_total: Fraction
    link_serial: Fraction
    levels: Mapping[str, LevelLoad]
    uplink: Fraction


def load(kind: MoveKind, parts: Sequence[Stretch], V: int | Fraction = 1) -> Load:
    """What a move over `parts` puts on the wires; V is the bytes of the whole array that takes part.

    Every group that shares the wires (a segment's stride) runs at the same time.
    """
    segments = [segment for part in parts for segment in part.segments]
    return read(schedule(kind, tuple(parts)), kind, segments, V)


def read(plan: Schedule, kind: MoveKind, segments: Sequence[Segment], V: int | Fraction = 1) -> Load:
    """What any schedule over these segments puts on the wires."""
    unit = Fraction(V) / (plan.blocks * plan.units)
    devices = max(plan.n, 1)
    units = plan.blocks * plan.units
    sends = [send for step in plan.steps for send in step]
    own = sum(injected(plan, kind, send.source, send.pieces, units) for send in sends)
    counts = _Counts(segments, plan.n)
    for step in plan.steps:
        counts.take(step)
    levels = {name: counts.level(name, unit, devices) for name in dict.fromkeys(segment.level for segment in segments)}
    return Load(
        steps=counts.steps,
        wire=own * unit / devices,
        carried=sum((level.sent for level in levels.values()), Fraction(0)),
        link_total=max((level.total for level in levels.values()), default=Fraction(0)),
        link_serial=max((level.serial for level in levels.values()), default=Fraction(0)),
        levels=levels,
        uplink=max(counts.uplinks.values(), default=0) * unit,
    )


def injected(plan: Schedule, kind: MoveKind, source: int, pieces: Iterable[Piece], total: int) -> int:
    """How much of a message is its sender's own, not only passed on; a switch injects nothing.

    In an all-to-all and a permute a device's own is what it starts with; all else ends with sums or copies at every
    device on the way.
    total  the array, in what the pieces count
    """
    if source >= plan.n:
        return 0
    low, high = own_part(plan, kind, source, total)
    return sum(max(min(stop, high) - max(start, low), 0) for start, stop in pieces)


def own_part(plan: Schedule, kind: MoveKind, source: int, total: int) -> Piece:
    """The stretch of the array of which what a sender sends is its own."""
    alone = kind in {"all_to_all", "permute"}
    return (source * total // plan.n, (source + 1) * total // plan.n) if alone else (0, total)


def hops(segment: Segment) -> int:
    """Links that a hop of a group crosses one after another: those of every group that shares them."""
    return 1 if joined(segment.topology) else whole(segment.stride)


def passes(members: int) -> int:
    """How often a byte crosses the path through the host: between two devices once, among more by way of its memory."""
    return min(max(members - 1, 0), 2)


class _Counts:
    """Units per directed link, step after step."""

    def __init__(self, segments: Sequence[Segment], n: int) -> None:
        self.segments = segments
        self.n = n
        self.strides = rank_strides(segments)
        self.totals: dict[Link, int] = defaultdict(int)
        self.serials: dict[str, int] = defaultdict(int)
        self.used: dict[str, int] = defaultdict(int)
        self.sent: dict[str, int] = defaultdict(int)
        self.uplinks: dict[Link, int] = defaultdict(int)
        self.steps = 0

    def take(self, step: Step) -> None:
        """Count a step: as many sub-steps as links that its longest hop crosses."""
        slots: list[dict[Link, int]] = [{} for _ in range(max(hops(self.segments[send.along]) for send in step))]
        for send in step:
            size, segment = send.size, self.segments[send.along]
            if send.source < self.n:
                self.sent[segment.level] += size * hops(segment)
            if segment.sharing is not None:
                self._into(send, whole(segment.sharing))
            for slot, link, times in self._links(send, segment):
                slots[slot][link] = slots[slot].get(link, 0) + size * times
        for loads in slots:
            self._close(loads)

    def _into(self, send: Send, sharing: int) -> None:
        """Count a message out of its sender's node and into its receiver's, and those of the node's other groups."""
        at = send.along
        nodes = self.strides[at] * whole(self.segments[at].n)
        for way, rank in enumerate((send.source, send.target)):
            if rank < self.n:
                self.uplinks[at, rank % nodes, way] += send.size * sharing * nodes // self.n

    def _close(self, loads: Mapping[Link, int]) -> None:
        """Count a sub-step, after which everyone waits."""
        busiest: dict[str, int] = defaultdict(int)
        for link, size in loads.items():
            level = self.segments[link[0]].level
            busiest[level] = max(busiest[level], size)
            self.totals[link] += size
        for level, size in busiest.items():
            self.serials[level] += size
            self.used[level] += 1
        self.steps += 1

    def level(self, name: str, unit: Fraction, devices: int) -> LevelLoad:
        """The counts of one level in bytes."""
        busiest = max((size for link, size in self.totals.items() if self.segments[link[0]].level == name), default=0)
        sent = self.sent[name] * unit / devices
        return LevelLoad(self.used[name], sent, busiest * unit, self.serials[name] * unit)

    def _links(self, send: Send, segment: Segment) -> Sequence[tuple[int, Link, int]]:
        """Every (sub-step, directed link, how often each byte crosses it) of a hop."""
        match segment.topology:
            case "switch":
                return [(0, port, 1) for port in self._ports(send)]
            case "mesh":
                return [(0, (send.along, send.source, send.target), 1)]
            case "host":
                return [(0, (send.along, self._row(send)), passes(whole(segment.n)) * whole(segment.stride))]
        if segment.stride == 1:
            return [(0, (send.along, send.source, send.way), 1)]
        return [(hop, link, 1) for hop, link in self._interleaved(send, segment)]

    def _ports(self, send: Send) -> Iterator[Link]:
        """The port out of the source and the one into the target; a switch itself has none."""
        if send.source < self.n:
            yield send.along, send.source, 1
        if send.target < self.n:
            yield send.along, send.target, -1

    def _row(self, send: Send) -> int:
        """What tells a sender's host, or its row of a torus, from the others."""
        stride = self.strides[send.along]
        return send.source - send.source // stride % whole(self.segments[send.along].n) * stride

    def _interleaved(self, send: Send, segment: Segment) -> Iterator[tuple[int, Link]]:
        """The same hop of every group that shares the wires, one link of the wires after another."""
        groups, size, stride = whole(segment.stride), whole(segment.n), self.strides[send.along]
        place, row = send.source // stride % size, self._row(send)
        for group in range(groups):
            for hop in range(groups):
                at = (place * groups + group + send.way * hop) % (size * groups)
                yield hop, (send.along, row, at, send.way)
