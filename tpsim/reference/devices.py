"""Simulated devices: they hold real shards, exchange real messages step by step, and count what they send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.reference import permutes
from tpsim.reference.calls import Counter, Sized, Tally
from tpsim.reference.collectives import Stretch, schedule
from tpsim.reference.groups import MoveGroups, ShiftedGroup
from tpsim.reference.linkload import injected, own_part

if TYPE_CHECKING:
    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.fabric.wires import Segment
    from tpsim.reference.blocks import Block, Blocks, Grid
    from tpsim.reference.network import Index, Network
    from tpsim.reference.schedule import Schedule, Send

ElementRange = tuple[int, int]
Message = tuple["Send", tuple[ElementRange, ...]]
"""A send with its stretches of the flattened array."""
Letter = Sequence["Block"]
"""What a message carries: for each of its stretches the values of every group."""

Sent = tuple[Message, Letter]


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a mesh on their network."""

    network: Network
    _cuts: dict[tuple[int, int], list[list[Message]]] = field(default_factory=dict)
    _tallies: dict[tuple[object, ...], Tally] = field(default_factory=dict)
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
        parts: Sequence[Stretch],
        array: str = "",
        *,
        plan: Schedule | None = None,
        filled: Blocks | None = None,
    ) -> tuple[Blocks, Tally]:
        """Every device's block after one move of an array, and the elements that were sent for it.

        parts   how it runs, innermost first
        plan    another schedule than that of the parts: a test's wrong one
        filled  of an array over ragged rows, 1 where an element is of a row that there is: nothing else is counted

        Raises ValueError, naming array and device, if a device is left without what it should hold.
        """
        if move.kind == "slice":
            return self.grid.sliced(blocks, move), self._idle()
        if self.grid.mesh.size(*move.axes) == 1:
            return dict(blocks), self._idle()
        segments, members = self._wires(move, parts)
        group = MoveGroups(self.grid, move, members, blocks)
        run = plan or self._plan(move, group, parts, segments)
        stores = self._played(run, group)
        moved, lacking = group.moved(stores)
        if lacking is not None:
            raise ValueError(f"{array}: device {self.grid.devices[lacking]} was never sent a part of its block")
        if filled is None:
            tally = self._tally(run, move, segments, members, stores.shape[-1])
        else:
            tally = self._ragged(run, move, segments, MoveGroups(self.grid, move, members, filled))
        return dict(zip(self.grid.devices, moved, strict=True)), tally

    def shifted(self, move: Move, blocks: Blocks, parts: Sequence[Stretch]) -> tuple[Blocks, Tally]:
        """Every device's block on the next device along the axes of a move, and what was sent for it."""
        segments, members = self._wires(move, parts)
        hop = replace(move, kind="permute")
        group = ShiftedGroup(self.grid, hop, members, blocks)
        run = self._plan(hop, group, parts, segments)
        stores = self._played(run, group)
        moved, _ = group.moved(stores)
        tally = self._tally(run, hop, segments, members, stores.shape[-1])
        return dict(zip(self.grid.devices, moved, strict=True)), tally

    def _wires(self, move: Move, parts: Sequence[Stretch]) -> tuple[tuple[Segment, ...], Index]:
        """The segments that a move runs on, and the devices of its groups on these."""
        segments = tuple(segment for part in parts for segment in part.segments)
        return segments, self.network.members(move.axes, segments)

    def _played(self, run: Schedule, group: MoveGroups) -> Block:
        """What each device holds of the flat array of its group when all steps are done."""
        stores = group.stores(run.switches)
        for step in self._messages(run, stores.shape[-1]):
            self._step(step, run, stores, np.maximum if group.maximum else np.add)
        return stores

    def _plan(self, move: Move, group: MoveGroups, parts: Sequence[Stretch], segments: Sequence[Segment]) -> Schedule:
        if move.kind != "permute":
            return schedule(move.kind, tuple(parts))
        targets = group.targets()
        key = (tuple(segments), tuple(targets))
        if key not in self._permutes:
            self._permutes[key] = permutes.routed(segments, targets)
        return self._permutes[key]

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
                    target = stores[:, send.target, low:high]
                    target[...] = combine(target, values) if send.add else values
            sent += zip(now, letters, strict=True)
        return sent

    def _messages(self, run: Schedule, elements: int) -> list[list[Message]]:
        """The schedule with its stretches in elements, those of none left out."""
        key = (id(run), elements)
        if key not in self._cuts:
            self._kept.append(run)  # an id is only good while its schedule lives
            self._cuts[key] = [list(_cut(run, step, elements)) for step in run.steps]
        return self._cuts[key]

    def _idle(self) -> Tally:
        nothing = np.zeros(self.grid.mesh.devices, dtype=np.int64)
        return Tally(nothing, nothing, nothing, nothing, 0, {})

    def _tally(self, run: Schedule, move: Move, segments: tuple[Segment, ...], members: Index, elements: int) -> Tally:
        key = (id(run), move.axes, move.kind, segments, elements)
        if key not in self._tallies:
            counter = Counter(self.network, run, segments, members)
            for step in self._messages(run, elements):
                counter.take(_whole(run, message, move.kind, elements) for message in step)
            self._tallies[key] = counter.tally()
        return self._tallies[key]

    def _ragged(self, run: Schedule, move: Move, segments: tuple[Segment, ...], marks: MoveGroups) -> Tally:
        """What is sent where some rows are empty: marks of the others travel as the rows do, and are counted."""
        counter = Counter(self.network, run, segments, marks.members)
        stores = marks.stores(run.switches)
        for step in self._messages(run, stores.shape[-1]):
            sent = self._step(step, run, stores, np.maximum)
            counter.take(_marked(run, *message, move.kind, stores.shape[-1]) for message in sent)
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
    total, kept = (sum(np.nansum(marks, axis=1) for marks in group) for group in (letter, own))
    return send, np.asarray(total, dtype=np.int64), np.asarray(kept, dtype=np.int64)
