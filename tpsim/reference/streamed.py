"""Arrays that come block after block: real hops to the next device, and a kernel that never has all of one.

What the kernel sums over blocks it corrects by what it knew of the row's maximum and sum before (Milakov and Gimelshein
2018; Liu et al. 2023, ring attention); backward knows both from forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tpsim.program.op import Array, Einsum, Index, Max, Op, Program, Reshard
from tpsim.reference.calls import Tally
from tpsim.reference.local_ops import alignment, index_block, numbers, work_of
from tpsim.reference.local_ops import made as of_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.reference.blocks import Block, Blocks, Device
    from tpsim.reference.collectives import Stretch
    from tpsim.reference.run import Positions, Run, Steps, Work

KEYS = "t"
"""The dim whose blocks travel."""


def gathered(run: Run, move: Move, blocks: Blocks, parts: Sequence[Stretch]) -> tuple[Steps, Tally]:
    """What each device has step after step, n - 1 hops to the next device, and what was sent for it."""
    steps, hops = [blocks], []
    for _ in range(run.grid.mesh.size(*move.axes) - 1):
        moved, sent = _hop(run, move, steps[-1], parts)
        steps.append(moved)
        hops.append(sent)
    return steps, _together(hops, len(blocks))


def whole(run: Run, move: Move, steps: Steps) -> Blocks:
    """What each device has had by the end: its blocks side by side."""
    n, at = len(steps), move.before.dims.index(KEYS)
    ranks = {device: run.grid.rank(device, move.axes) for device in steps[0]}
    return {
        device: np.concatenate([steps[(rank - block) % n][device] for block in range(n)], axis=at)
        for device, rank in ranks.items()
    }


def scattered(run: Run, move: Move, blocks: Blocks, parts: Sequence[Stretch], op: Op) -> tuple[Blocks, Tally]:
    """The sum of each block at its home: it begins behind it, goes round, and every device adds its own to it.

    Where a hop follows it begins at its home, and is behind it then.
    """
    n, at, hops = run.grid.mesh.size(*move.axes), move.before.dims.index(KEYS), []
    ahead = isinstance(op, Reshard) and any(hop.streamed and hop.kind == "permute" for hop in op.moves)
    pieces = {device: np.split(block, n, axis=at) for device, block in blocks.items()}

    def own(device: Device, step: int) -> Block:
        return pieces[device][(run.grid.rank(device, move.axes) - step + ahead) % n]

    sums = {device: own(device, 1 % n) for device in blocks}
    for step in range(1, n):
        sums, sent = _hop(run, move, sums, parts)
        hops.append(sent)
        sums = {device: block + own(device, (step + 1) % n) for device, block in sums.items()}
    return sums, _together(hops, len(blocks))


def brought(run: Run, move: Move, blocks: Blocks, parts: Sequence[Stretch]) -> tuple[Blocks, Tally]:
    """Sums that are behind their homes, there."""
    moved, sent = _hop(run, move, blocks, parts)
    return moved, _together([sent], len(blocks))


def _hop(run: Run, move: Move, blocks: Blocks, parts: Sequence[Stretch]) -> tuple[Blocks, Tally]:
    """Every block on the next device."""
    return among(run, blocks, lambda every: run.devices.shifted(move, every, parts))


def among(run: Run, blocks: Blocks, play: Callable[[Blocks], tuple[Blocks, Tally]]) -> tuple[Blocks, Tally]:
    """What `play` makes of blocks, and what is counted, on the devices that have any.

    Devices of other stages have none: beside them the network plays the same with copies, which nobody keeps.
    """
    if len(blocks) == len(run.grid.devices):
        return play(blocks)
    likes = {run.like(device): block for device, block in blocks.items()}
    moved, counted = play({device: blocks.get(device, likes[run.like(device)]) for device in run.grid.devices})
    places = [place for place, device in enumerate(run.grid.devices) if device in blocks]
    counts = {name: getattr(counted, name)[places] for name in COUNTS}
    return {device: moved[device] for device in blocks}, replace(counted, **counts)


COUNTS = ("injected", "sent", "received", "messages")


def _together(hops: Sequence[Tally], devices: int) -> Tally:
    """All hops as the one collective that they are."""
    injected, sent, received, messages = (
        sum((getattr(hop, name) for hop in hops), np.zeros(devices, np.int64)) for name in COUNTS
    )
    steps, uplink = (sum(getattr(hop, name) for hop in hops) for name in ("steps", "uplink"))
    return Tally(injected, sent, received, messages, steps, {}, uplink)


# Kernels ---------------------------------------------------------------------------------------------------------


def kernels(program: Program) -> Mapping[Op, tuple[Op, ...]]:
    """Each op of a kernel that reads streamed arrays -> all ops of that run of the kernel."""
    came = {op.output for op in program.ops if isinstance(op, Reshard) and any(move.streamed for move in op.moves)}
    groups: dict[object, list[Op]] = {}
    for op in program.ops if came else ():
        if op.where.kernel:
            groups.setdefault((op.where.kernel, op.where.loops, op.where.act), []).append(op)
    read = [ops for ops in groups.values() if any(x in came for op in ops for x in op.inputs)]
    return {op: tuple(ops) for ops in read for op in ops}


def sums_blocks(op: Op) -> bool:
    """True for what makes one value of all blocks: a sum or a maximum over them."""
    return KEYS not in op.output.dims and any(KEYS in x.dims for x in op.inputs)


@dataclass(slots=True)
class KernelRun:
    """One run of a kernel, block after block.

    known    what has one value from the start, though this kernel would sum it over blocks: what backward reads of rows
    running  sums and maxima over the blocks so far
    now      what is made of the current blocks
    hangs    array -> the running ones that its value hangs on
    needed   what goes into blocks
    """

    run: Run
    ops: Sequence[Op]
    known: dict[Array, Blocks]
    running: dict[Array, Blocks] = field(default_factory=dict)
    now: dict[Array, Blocks] = field(default_factory=dict)
    hangs: dict[Array, frozenset[Array]] = field(default_factory=dict)
    works: dict[Op, Work] = field(default_factory=dict)
    needed: set[Array] = field(default_factory=set)

    def __post_init__(self) -> None:
        for op in reversed(self.ops):
            if KEYS in op.output.dims or op.output in self.needed:
                self.needed.update(op.inputs)

    def results(self) -> Mapping[Array, Blocks]:
        """What it sums over blocks."""
        streams = {x: self.run.streams[x] for op in self.ops for x in op.inputs if x in self.run.streams}
        move, steps = next(iter(streams.values()))
        blocks = len(steps)
        sizes = {**self.run.sizes, KEYS: self.run.sizes[KEYS] // blocks}
        for step in range(blocks):
            before = dict(self.running)
            self.now = {x: blocks[step] for x, (_, blocks) in streams.items()}
            with np.errstate(over="ignore"):  # a sink outweighs without end what a mask hides
                for op in self.ops:
                    if KEYS in op.output.dims or sums_blocks(op) or self._of_rows(op):
                        self._do(op, move, sizes, step, before)
        return self.running

    def _do(self, op: Op, move: Move, sizes: Mapping[str, int], step: int, before: Mapping[Array, Blocks]) -> None:
        run = self.run
        if isinstance(op, Index):
            work: Work = partial(index_block, op, run.sizes, partial(self._numbers, op.output, move, step))
        else:
            work = self.works.setdefault(op, work_of(op, run.grid, sizes, run.choose, run.positions))
        inputs = [self._value(x) for x in op.inputs]
        blocks = of_devices(op, work, inputs, run.holders(op.where))
        summed = [x for x in op.inputs if x not in self.known]
        self.hangs[op.output] = frozenset(
            y for x in summed for y in ({x} if x in self.running else self.hangs.get(x, ()))
        )
        if sums_blocks(op):
            self.running[op.output] = self._merged(op, before, blocks) if op.output in before else blocks
        elif KEYS not in op.output.dims:
            rows = self.running if any(x in self.running for x in summed) else self.known
            rows[op.output] = blocks
        else:
            self.now[op.output] = blocks

    def _of_rows(self, op: Op) -> bool:
        """True for what is made of sums over blocks, row by row, and goes into blocks."""
        return op.output in self.needed and any(x in self.running or x in self.known for x in op.inputs)

    def _numbers(self, array: Array, move: Move, step: int, device: Device) -> list[Positions]:
        """The global indices of an array that is as wide as the block of a step."""
        run, n = self.run, self.run.grid.mesh.size(*move.axes)
        per_dim = numbers(array, run.grid, run.sizes, run.positions, device)
        block = (run.grid.rank(device, move.axes) - step) % n
        return [
            np.split(indices, n)[block] if dim == KEYS else indices
            for dim, indices in zip(array.dims, per_dim, strict=True)
        ]

    def _value(self, x: Array) -> Blocks:
        for values in (self.known, self.now, self.running):
            if x in values:
                return values[x]
        return self.run.blocks[x]

    def _merged(self, op: Op, before: Mapping[Array, Blocks], blocks: Blocks) -> Blocks:
        """What was there before, corrected by what is known better now, with what this block makes."""
        old = before[op.output]
        if isinstance(op, Max):
            return {device: np.maximum(old[device], block) for device, block in blocks.items()}
        factors = {sums: self._factor(sums, before, op.output) for sums in self.hangs[op.output]}
        corrected = {}
        for device, block in blocks.items():
            kept = old[device]
            for factor in factors.values():
                kept = kept * factor[device]
            corrected[device] = kept + block
        return corrected

    def _factor(self, sums: Array, before: Mapping[Array, Blocks], of: Array) -> Blocks:
        """By what a sum changes since a row's maximum, or its sum, is known better.

        Of what was divided by a sum without end, as beside a sink while all blocks so far are hidden, nothing is left.
        """
        align = alignment(sums.dims, of.dims)
        largest = any(isinstance(op, Max) and op.output is sums for op in self.ops)
        factors = {}
        for device, new in self.running[sums].items():
            old = before[sums][device]
            change = np.exp(old - new) if largest else np.where(np.isinf(old), 0.0, old) / new
            factors[device] = align(change)
        return factors


def results(run: Run, ops: Sequence[Op]) -> Mapping[Array, Blocks]:
    """What a kernel sums over the blocks that come to it, of those ops whose inputs are there."""
    there, known = [], {*run.blocks}
    for op in ops:
        if known.issuperset(op.inputs):
            there.append(op)
            known.add(op.output)
    return KernelRun(run, there, _of_rows(run, there)).results()


def _of_rows(run: Run, ops: Sequence[Op]) -> dict[Array, Blocks]:
    """In backward, the sum over keys of a weight times its cotangent: that of the output times its own (Dao 2022)."""
    if any(isinstance(op, Max) for op in ops):
        return {}
    sums = [op.output for op in ops if sums_blocks(op)]
    row = next(x for x in sums if "d" not in x.dims)
    out = next(x for op in ops if isinstance(op, Einsum) for x in op.inputs if x.name == MIXED)
    loops, name = ops[0].where.loops, MIXED.removeprefix("d.")
    mixed = next(op.output for op in run.program.ops if op.output.name == name and op.where.loops == loops)
    order = [out.dims.index(dim) for dim in mixed.dims]
    letters = "".join(mixed.dims)
    pulled = {
        device: -np.einsum(f"{letters},{letters}->{''.join(row.dims)}", block, run.blocks[out][device].transpose(order))
        for device, block in run.blocks[mixed].items()
        if device in run.blocks[out]
    }
    return {row: pulled}


MIXED = "d.attention.mixed"
