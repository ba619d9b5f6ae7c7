"""What a collective of the devices sent: bytes of each device and link, counted for all groups of the mesh at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tpsim.fabric.wires import Segment, joined
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.quantity.errors import unknown
from tpsim.quantity.size import whole
from tpsim.reference.linkload import hops, passes
from tpsim.reference.network import NOWHERE, Index, Lane, Network

if TYPE_CHECKING:
    from tpsim.reference.schedule import Schedule, Send


Counts = NDArray[np.int64]


LinkName = tuple[str, str, int]
"""A directed link: physical axis or level, direction, and the device at its start.

``+``, ``-``  to the device beside it
``out``       the port of a device into the switch; ``in`` the port into it
``to 3``      the cable to device 3
``host``      the path through the host whose first device it is
"""


@dataclass(frozen=True, slots=True)
class LevelCall:
    """What one level's links carried in a call: bytes per directed link, the busiest one's, and per step in sum."""

    links: Mapping[LinkName, int]
    total: int
    serial: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What all groups of the mesh send at once: in elements where a schedule is counted, in bytes where a program ran.

    injected  by each device, without what it only passed on
    sent, received, messages  of each device, in the order of the mesh; forwarded ones included
    levels    what the links of each level carried
    uplink    on the busiest uplink that devices of a node share, in either direction; 0 if none do
    """

    injected: Counts
    sent: Counts
    received: Counts
    messages: Counts
    steps: int
    levels: Mapping[str, LevelCall]
    uplink: int = 0

    def in_bytes(self, dtype: str) -> Tally:
        """The same in bytes of a dtype."""
        width = bytes_of(dtype)
        levels = {
            name: LevelCall(
                {link: width * count for link, count in level.links.items()}, width * level.total, width * level.serial
            )
            for name, level in self.levels.items()
        }
        counts = (width * self.injected, width * self.sent, width * self.received, self.messages)
        return Tally(*counts, self.steps, levels, width * self.uplink)

    @property
    def link_total(self) -> int:
        """On the busiest directed link."""
        return max((level.total for level in self.levels.values()), default=0)

    @property
    def link_serial(self) -> int:
        """Sum over steps of the busiest link, of the level where that is most."""
        return max((level.serial for level in self.levels.values()), default=0)


Size = int | Counts
"""Elements, the same in all groups or of each."""


Sized = tuple["Send", Size, Size]
"""A send, its elements, and those of them that are its sender's own."""


def bytes_of(dtype: str) -> Any:
    """Bytes per element. Raises InputError for an unknown dtype."""
    if dtype not in DTYPE_BYTES:
        raise unknown(dtype, "dtype", DTYPE_BYTES)
    return DTYPE_BYTES[dtype]


class Counter:
    """Counts elements per device and directed link, for all groups at once."""

    def __init__(self, network: Network, run: Schedule, segments: Sequence[Segment], members: Index) -> None:
        self.network, self.run, self.segments, self.members = network, run, segments, members
        self.lanes = [network.lanes[segment.axis] for segment in segments]
        count = network.grid.mesh.devices
        self.injected, self.sent, self.received, self.messages = np.zeros((4, count), dtype=np.int64)
        self.loads = {
            lane.name: np.zeros((len(_directions(network, lane.name)), count), dtype=np.int64) for lane in self.lanes
        }
        self.serials: dict[str, int] = defaultdict(int)
        self.uplinks = {lane.name: np.zeros((2, count), dtype=np.int64) for lane in self.lanes if lane.nodes.size}

    def take(self, step: Iterable[Sized]) -> None:
        """Count a step: as many sub-steps as links that its longest hop crosses."""
        slots: dict[int, dict[str, Counts]] = {}
        for send, size, own in step:
            if send.source < self.run.n:
                self.injected[self.members[:, send.source]] += own
            self._cross(send, size, slots)
        for loads in slots.values():
            self._close(loads)

    def _close(self, loads: Mapping[str, Counts]) -> None:
        busiest: dict[str, int] = defaultdict(int)
        for name, load in loads.items():
            level = self.network.lanes[name].level
            busiest[level] = max(busiest[level], int(load.max()))
            self.loads[name] += load
        for level, size in busiest.items():
            self.serials[level] += size

    def _cross(self, send: Send, size: Size, slots: dict[int, dict[str, Counts]]) -> None:
        lane, segment = self.lanes[send.along], self.segments[send.along]
        if joined(lane.topology):
            self._across(lane, send, size, _slot(slots, 0, self.loads, lane.name))
            return
        at = self.members[:, send.source]
        for hop in range(whole(segment.stride)):
            _slot(slots, hop, self.loads, lane.name)[(1 - send.way) // 2, at] += size
            to = lane.next[send.way][at]
            if (to == NOWHERE).any():
                raise ValueError(f"{lane.name} ends before rank {send.target}")
            self._count(at, to, size)
            at = to
        if not np.array_equal(at, self.members[:, send.target]):
            raise ValueError(f"rank {send.target} is not beside rank {send.source} on {lane.name}")

    def _across(self, lane: Lane, send: Send, size: Size, load: Counts) -> None:
        """One hop where every device reaches every other one."""
        source, target = (self.members[:, rank] if rank < self.run.n else None for rank in (send.source, send.target))
        if source is not None:
            self.sent[source] += size
            self.messages[source] += 1
        if target is not None:
            self.received[target] += size
        for load_to, end in zip(self.uplinks.get(lane.name, ()), (source, target), strict=False):
            if end is not None:
                np.add.at(load_to, lane.nodes[end], size)
        times = passes(whole(self.segments[send.along].n)) if lane.topology == "host" else 1
        for way, at in _crossed(lane, source, target):
            np.add.at(load, np.broadcast_arrays(way, at), size * times)

    def _count(self, at: Index, to: Index, size: Size) -> None:
        self.sent[at] += size
        self.messages[at] += 1
        self.received[to] += size

    def tally(self) -> Tally:
        """What was counted."""
        levels = {}
        for level in dict.fromkeys(lane.level for lane in self.lanes):
            links = {
                (name, direction, int(device)): int(load[way, device])
                for name, load in self.loads.items()
                if self.network.lanes[name].level == level
                for way, direction in enumerate(_directions(self.network, name))
                for device in np.flatnonzero(load[way])
            }
            levels[level] = LevelCall(links, max(links.values(), default=0), self.serials[level])
        uplink = max((int(load.max()) for load in self.uplinks.values()), default=0)
        strides = [hops(segment) for segment in self.segments]
        # steps in which an array this small has nothing to send count, too
        steps = sum(max(strides[send.along] for send in step) for step in self.run.steps)
        return Tally(self.injected, self.sent, self.received, self.messages, steps, levels, uplink)


def _crossed(lane: Lane, source: Index | None, target: Index | None) -> Iterator[tuple[int | Index, Index]]:
    """The links of a hop between devices that all reach each other; None is the switch itself.

    Raises ValueError if a source is not joined to its target.
    """
    if lane.topology == "switch":
        yield from ((way, port) for way, port in enumerate((source, target)) if port is not None)
        return
    if source is None or target is None or not np.array_equal(lane.first[source], lane.first[target]):
        raise ValueError(f"{lane.name} joins no such devices")
    yield (target, source) if lane.topology == "mesh" else (0, lane.first[source])


def _slot(slots: dict[int, dict[str, Counts]], at: int, like: Mapping[str, Counts], name: str) -> Counts:
    loads = slots.setdefault(at, {})
    if name not in loads:
        loads[name] = np.zeros_like(like[name])
    return loads[name]


def _directions(network: Network, lane: str) -> tuple[str, ...]:
    match network.lanes[lane].topology:
        case "switch":
            return "out", "in"
        case "mesh":
            return tuple(f"to {device}" for device in range(network.grid.mesh.devices))
        case "host":
            return ("host",)
    return "+", "-"
