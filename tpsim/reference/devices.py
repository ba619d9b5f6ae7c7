"""Simulated devices: they hold real shards, exchange real messages step by step, and count what they send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tpsim.fabric.wires import joined
from tpsim.program.layout import DTYPE_BYTES
from tpsim.quantity.errors import unknown
from tpsim.quantity.size import whole
from tpsim.reference import permutes
from tpsim.reference.collectives import schedule
from tpsim.reference.linkload import hops, injected, own_part, passes
from tpsim.reference.network import NOWHERE, Index, Lane, Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tpsim.algebra.moves import Cuts, Move, MoveKind
    from tpsim.fabric.wires import Segment
    from tpsim.reference.blocks import Block, Blocks, Grid
    from tpsim.reference.collectives import Part
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
class Call:
    """One collective as it ran, for all groups of the mesh at once.

    injected  bytes that each device injected: without those that it only passed on
    sent, received, messages  of each device, in the order of the mesh; forwarded ones included
    levels    what the links of each level carried
    uplink    bytes on the busiest uplink that devices of a node share, in either direction; 0 if none do
    """

    kind: MoveKind
    axes: tuple[str, ...]
    dtype: str
    array: str
    injected: Counts
    sent: Counts
    received: Counts
    messages: Counts
    steps: int
    levels: Mapping[str, LevelCall]
    uplink: int = 0

    @property
    def link_total(self) -> int:
        """Bytes on the busiest directed link."""
        return max((level.total for level in self.levels.values()), default=0)

    @property
    def link_serial(self) -> int:
        """Sum over steps of the busiest link, of the level where that is most."""
        return max((level.serial for level in self.levels.values()), default=0)


Cut = tuple[int, int]
Message = tuple["Send", tuple[Cut, ...]]
"""A send with its stretches of the flattened array."""
Letter = Sequence["Block"]
"""What a message carries: for each of its stretches the values of every group."""

Sent = tuple[Message, Letter]
Size = int | Counts
"""Elements, the same in all groups or of each."""
Sized = tuple["Send", Size, Size]
"""A send, its elements, and those of them that are its sender's own."""


@dataclass(frozen=True, slots=True)
class _Tally:
    """What a schedule sends when its array has so many elements; in elements."""

    injected: Counts
    sent: Counts
    received: Counts
    messages: Counts
    steps: int
    levels: Mapping[str, LevelCall]
    uplink: int = 0

    def call(self, move: Move, dtype: str, array: str) -> Call:
        """The same in bytes of a dtype."""
        each = bytes_of(dtype)
        levels = {name: _in_bytes(level, each) for name, level in self.levels.items()}
        counts = (each * self.injected, each * self.sent, each * self.received, self.messages)
        return Call(move.kind, move.axes, dtype, array, *counts, self.steps, levels, each * self.uplink)


def bytes_of(dtype: str) -> Any:
    """Bytes per element. Raises InputError for an unknown dtype."""
    if dtype not in DTYPE_BYTES:
        raise unknown(dtype, "dtype", DTYPE_BYTES)
    return DTYPE_BYTES[dtype]


def _in_bytes(level: LevelCall, each: int) -> LevelCall:
    return LevelCall(
        {link: each * count for link, count in level.links.items()}, each * level.total, each * level.serial
    )


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a mesh on their network."""

    network: Network
    _cuts: dict[tuple[int, int], list[list[Message]]] = field(default_factory=dict)
    _tallies: dict[tuple[object, ...], _Tally] = field(default_factory=dict)
    _permutes: dict[tuple[object, ...], Schedule] = field(default_factory=dict)
    _kept: list[Schedule] = field(default_factory=list)

    @property
    def grid(self) -> Grid:
        """Where every device stands on the mesh."""
        return self.network.grid

    def play(
        self,
        move: Move,
        blocks: Blocks,
        parts: Sequence[Part],
        dtype: str,
        array: str = "",
        *,
        plan: Schedule | None = None,
        filled: Blocks | None = None,
    ) -> tuple[Blocks, Call]:
        """Every device's block after one move of an array, and what was sent for it.

        parts   how it runs, innermost first
        plan    another schedule than that of the parts: a test's wrong one
        filled  of an array over ragged rows, 1 where an element is of a row that there is: nothing else is counted

        Raises ValueError, naming array and device, if a device is left without what it should hold.
        """
        if move.kind == "slice":
            return self.grid.sliced(blocks, move), self._idle().call(move, dtype, array)
        if self.grid.mesh.size(*move.axes) == 1:
            return dict(blocks), self._idle().call(move, dtype, array)
        segments = tuple(segment for part in parts for segment in part.segments)
        members = self.network.members(move.axes, segments)
        group = self._group(move, members, blocks)
        run = plan or self._plan(move, group, parts, segments)
        stores = group.stores(run.switches)
        for step in self._messages(run, stores.shape[-1]):
            self._step(step, run, stores, np.maximum if group.maximum else np.add)
        moved = group.moved(stores)
        self._complete(moved, array)
        if filled is None:
            tally = self._tally(run, move, segments, members, stores.shape[-1])
        else:
            tally = self._ragged(run, move, segments, self._group(move, members, filled))
        return dict(zip(self.grid.devices, moved, strict=True)), tally.call(move, dtype, array)

    def shifted(self, move: Move, blocks: Blocks, parts: Sequence[Part]) -> tuple[Blocks, Call]:
        """Every device's block on the next device along the axes of a move, and what was sent for it."""
        segments = tuple(segment for part in parts for segment in part.segments)
        members = self.network.members(move.axes, segments)
        hop = replace(move, kind="permute")
        group = _Shifted(self, hop, members, np.stack([blocks[device] for device in self.grid.devices]))
        run = self._plan(hop, group, parts, segments)
        stores = group.stores(run.switches)
        for each in self._messages(run, stores.shape[-1]):
            self._step(each, run, stores, np.add)
        moved = group.moved(stores)
        tally = self._tally(run, hop, segments, members, stores.shape[-1])
        return dict(zip(self.grid.devices, moved, strict=True)), tally.call(move, "int8", "")

    def _plan(self, move: Move, group: _Group, parts: Sequence[Part], segments: Sequence[Segment]) -> Schedule:
        if move.kind != "permute":
            return schedule(move.kind, tuple(parts))
        targets = group.targets()
        key = (tuple(segments), tuple(targets))
        if key not in self._permutes:
            self._permutes[key] = permutes.routed(segments, targets)
        return self._permutes[key]

    def _group(self, move: Move, members: Index, blocks: Blocks) -> _Group:
        return _Group(self, move, members, np.stack([blocks[device] for device in self.grid.devices]))

    def _step(
        self, step: Sequence[Message], run: Schedule, stores: Block, combine: Any
    ) -> list[tuple[Message, Letter]]:
        """Exchange the messages of a step; what is sent is what was there before it, but switches pass on at once."""
        sent: list[Sent] = []
        for from_switch in (False, True) if run.switches else (False,):
            now = [message for message in step if (message[0].source >= run.n) == from_switch]
            letters = [[stores[:, send.source, low:high].copy() for low, high in cuts] for send, cuts in now]
            for (send, cuts), letter in zip(now, letters, strict=True):
                for (low, high), values in zip(cuts, letter, strict=True):
                    held = stores[:, send.target, low:high]
                    held[...] = combine(held, values) if send.add else values
            sent += zip(now, letters, strict=True)
        return sent

    def _messages(self, run: Schedule, elements: int) -> list[list[Message]]:
        """The schedule with its stretches in elements, those of none left out."""
        key = (id(run), elements)
        if key not in self._cuts:
            self._kept.append(run)  # an id is only good while its schedule lives
            self._cuts[key] = [list(_cut(run, step, elements)) for step in run.steps]
        return self._cuts[key]

    def _complete(self, moved: Sequence[Block], array: str) -> None:
        for device, block in zip(self.grid.devices, moved, strict=True):
            if np.isnan(block).any():
                raise ValueError(f"{array}: device {device} was never sent a part of its block")

    def _idle(self) -> _Tally:
        nothing = np.zeros(self.grid.mesh.devices, dtype=np.int64)
        return _Tally(nothing, nothing, nothing, nothing, 0, {})

    def _tally(self, run: Schedule, move: Move, segments: tuple[Segment, ...], members: Index, elements: int) -> _Tally:
        key = (id(run), move.axes, move.kind, segments, elements)
        if key not in self._tallies:
            counter = _Counter(self.network, run, segments, members)
            for step in self._messages(run, elements):
                counter.take(_whole(run, message, move.kind, elements) for message in step)
            self._tallies[key] = counter.tally()
        return self._tallies[key]

    def _ragged(self, run: Schedule, move: Move, segments: tuple[Segment, ...], marks: _Group) -> _Tally:
        """What is sent where some rows are empty: marks of the others travel as the rows do, and are counted."""
        counter = _Counter(self.network, run, segments, marks.members)
        stores = marks.stores(run.switches)
        for step in self._messages(run, stores.shape[-1]):
            sent = self._step(step, run, stores, np.maximum)
            counter.take(_marked(run, *one, move.kind, stores.shape[-1]) for one in sent)
        return counter.tally()


def _cut(run: Schedule, step: Sequence[Send], elements: int) -> Iterator[Message]:
    pieces = run.blocks * run.units
    for send in step:
        cuts = tuple(
            (start * elements // pieces, stop * elements // pieces)
            for start, stop in send.pieces
            if start * elements // pieces < stop * elements // pieces
        )
        if cuts:
            yield send, cuts


def _whole(run: Schedule, message: Message, kind: MoveKind, elements: int) -> Sized:
    """A message, its elements, and those of them that are its sender's own."""
    send, cuts = message
    return send, sum(high - low for low, high in cuts), injected(run, kind, send.source, cuts, elements)


def _marked(run: Schedule, message: Message, letter: Letter, kind: MoveKind, elements: int) -> Sized:
    """The same of the elements that are marked, in each group."""
    send, cuts = message
    first, last = own_part(run, kind, send.source, elements)
    own = [marks[:, max(first - low, 0) : max(last - low, 0)] for (low, _), marks in zip(cuts, letter, strict=True)]
    total, mine = (sum(np.nansum(marks, axis=1) for marks in each) for each in (letter, own))
    return send, np.asarray(total, dtype=np.int64), np.asarray(mine, dtype=np.int64)


class _Group:
    """All groups of one move: how blocks lie in the flat arrays that schedules cut, and back.

    Schedules count ranks as the wires do, blocks as the mesh does: `order` gives for each rank of a schedule its place
    along the mesh axes.
    """

    def __init__(self, devices: Devices, move: Move, members: Index, blocks: Block) -> None:
        self.grid, self.move, self.members, self.blocks = devices.grid, move, members, blocks
        places = np.array([self.grid.rank(device, move.axes) for device in self.grid.devices])
        self.order = places[members[0]]
        self.n = members.shape[1]
        self.maximum = any(kind == "max" for axis, kind in move.before.owes if axis in move.axes)

    def stores(self, switches: int) -> Block:
        """Group, rank, element: what each device holds of the flat array; NaN what it does not, neutral in switches."""
        held = self._held()
        neutral = np.full((held.shape[0], switches, held.shape[2]), -np.inf if self.maximum else 0.0)
        return np.concatenate([held, neutral], axis=1)

    def _held(self) -> Block:
        own = self.blocks[self.members]
        groups, n = self.members.shape
        match self.move.kind:
            case "all_gather" | "permute":
                return self._alone(own.reshape(groups, n, 1, -1), n)
            case "reduce_scatter":
                return self._split(own).reshape(groups, n, -1)
            case "all_to_all":
                return self._alone(self._split(own).reshape(groups, n, 1, -1), n)
        return own.reshape(groups, n, -1).copy()

    def _alone(self, own: Block, n: int) -> Block:
        """Rank r holds row r of a flat array of n rows, and nothing else."""
        groups, _, _, size = own.shape
        stores = np.full((groups, n, n, size), np.nan)
        ranks = np.arange(n)
        stores[:, ranks, ranks] = own[:, :, 0]
        return stores.reshape(groups, n, n * size)

    def _split(self, own: Block) -> Block:
        """Blocks cut along the scattered dims into one chunk per rank: group, rank, chunk's rank, the chunk."""
        chunks = own[:, :, None]
        for place, shards in self._cut(self.move.scattered):
            parts = np.stack(np.split(chunks, shards, axis=3 + place), axis=3)
            chunks = parts.reshape(*own.shape[:2], -1, *parts.shape[4:])
        return np.asarray(chunks[:, :, self.order])

    def _cut(self, dims: Cuts) -> list[tuple[int, int]]:
        """The places of dims, and into how many parts each is cut."""
        return [(self.move.before.dims.index(dim), self.grid.mesh.size(*axes)) for dim, axes in dims]

    def moved(self, stores: Block) -> list[Block]:
        """Every device's block, in the order of the mesh."""
        found = self._found(stores[:, : self.n])
        result: list[Block] = [np.empty(0)] * self.members.size
        for row, devices in zip(found, self.members, strict=True):
            for block, device in zip(row, devices, strict=True):
                result[device] = block
        return result

    def _found(self, stores: Block) -> Block:
        """Group, rank, block."""
        groups, shape = stores.shape[0], self.blocks.shape[1:]
        ranks = np.arange(self.n)
        match self.move.kind:
            case "all_gather":
                return self._joined(stores.reshape(groups, self.n, self.n, *shape))
            case "permute":
                return np.asarray(stores.reshape(groups, self.n, self.n, *shape)[:, ranks, self._sources()])
            case "reduce_scatter":
                return np.asarray(stores.reshape(groups, self.n, self.n, *self._part())[:, ranks, ranks])
            case "all_to_all":
                chunks = stores.reshape(groups, self.n, self.n, self.n, *self._part())
                return self._joined(chunks[:, ranks, :, ranks].swapaxes(0, 1))
        return stores.reshape(groups, self.n, *shape)

    def _part(self) -> tuple[int, ...]:
        """The shape of one chunk of a block that is cut along the scattered dims."""
        shape = list(self.blocks.shape[1:])
        for place, shards in self._cut(self.move.scattered):
            shape[place] //= shards
        return tuple(shape)

    def _joined(self, chunks: Block) -> Block:
        """Group, rank, origin, chunk -> group, rank, block: side by side along the gathered dims."""
        joined = chunks[:, :, np.argsort(self.order)]
        for place, shards in reversed(self._cut(self.move.gathered)):
            parts = joined.reshape(*joined.shape[:2], -1, shards, *joined.shape[3:])
            joined = np.concatenate([parts[:, :, :, part] for part in range(shards)], axis=3 + place)
        return np.asarray(joined[:, :, 0])

    def _sources(self) -> list[int]:
        targets = self.targets()
        return [targets.index(rank) for rank in range(self.n)]

    def targets(self) -> list[int]:
        """For each rank the rank whose block it holds: the same in every group.

        Raises ValueError if some block lies in another group, or groups differ.
        """
        patterns = {tuple(self._pattern(list(map(int, row)))) for row in self.members}
        if len(patterns) != 1:
            raise ValueError(f"groups of {self.move.before} -> {self.move.after} over {self.move.axes} differ")
        return list(patterns.pop())

    def _pattern(self, devices: Sequence[int]) -> list[int]:
        shape = {
            dim: size * self.grid.mesh.size(*axes)
            for dim, size, axes in zip(self.move.before.dims, self.blocks.shape[1:], self.move.before.on, strict=True)
        }
        coordinates = [self.grid.devices[device] for device in devices]
        wanted = {
            tuple((cut.start, cut.stop) for cut in self.grid.window(device, self.move.after, shape)): rank
            for rank, device in enumerate(coordinates)
        }
        held = [
            tuple((cut.start, cut.stop) for cut in self.grid.window(device, self.move.before, shape))
            for device in coordinates
        ]
        if len(wanted) != len(devices) or set(held) != set(wanted):
            raise ValueError(f"{self.move.before} -> {self.move.after} is no permute over {self.move.axes}")
        return [wanted[window] for window in held]


class _Shifted(_Group):
    """Blocks that go to the next device, as the mesh counts them."""

    def targets(self) -> list[int]:
        """The same in every group."""
        place = {at: rank for rank, at in enumerate(map(int, self.order))}
        return [place[(int(at) + 1) % self.n] for at in self.order]


class _Counter:
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

    def tally(self) -> _Tally:
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
        return _Tally(self.injected, self.sent, self.received, self.messages, self._steps(), levels, uplink)

    def _steps(self) -> int:
        """Steps of the schedule, those included in which an array this small has nothing to send."""
        strides = [hops(segment) for segment in self.segments]
        return sum(max(strides[send.along] for send in step) for step in self.run.steps)


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
