"""Runs a program on simulated devices in numpy: every device holds its block of every array, moves are real messages.

The same function runs a program on one device: lower the model without axes. It knows no formula and no machine.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tpsim.algebra.sharding import flat_dim, unpacked
from tpsim.program.op import Array, Combine, Dispatch, Join, Leaf, Op, Program, Reshard
from tpsim.reference import streamed
from tpsim.reference.calls import Tally, bytes_of
from tpsim.reference.devices import Devices
from tpsim.reference.local_ops import SIDE_BY_SIDE, made, work_of
from tpsim.reference.network import Wiring, rings
from tpsim.reference.ranks import Ranks
from tpsim.reference.routing import carried, emptied, marks, own
from tpsim.reference.run import Choice, Inputs, RanCollective, Run, label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.reference.blocks import Block, Blocks, Device
    from tpsim.reference.collectives import Stretch


def execute(
    program: Program,
    mesh: Mesh,
    sizes: Mapping[str, int],
    inputs: Inputs,
    *,
    wiring: Wiring | None = None,
    schedule: PipelineSchedule | None = None,
    beside: Mapping[str, int] | None = None,
    choose: Choice = own,
    padded: bool = False,
) -> Run:
    """Run every op of `program` on the devices of `mesh`.

    sizes   elements of every dim, and ``m``, the microbatches that the loss is a mean over
    inputs  global value of each leaf
    wiring  how moves run; None: every mesh axis is a closed ring of its own
    schedule  the orders of the ranks of a program that is cut into stages; None: every device runs every op
    beside  name of an array -> bytes per element that its stack keeps as long as it is there
    choose  which experts tokens go to: their own choice, unless another is drawn
    padded  True: rows that nothing fills are sent and held like the others, as where experts have a capacity

    Raises ValueError, naming array and device, if a collective leaves a device without a part of its block, and where
    ranks wait for each other.
    """
    wired = wiring or rings(mesh)
    kernels = streamed.kernels(program)
    _check_homes(program)
    run = Run(program, Devices(wired.network), wired, sizes, inputs, choose, kernels, beside or {}, schedule, padded)

    def do(op: Op) -> None:
        run.blocks[op.output] = _blocks(run, op)

    def counted(op: Op) -> None:
        do(op)
        run.live.made(op, elements(run, op.output), run.inside(op))
        run.live.read(op)

    def ended(rank: int) -> None:
        run.live.ended(rank, run.of_rank(rank))

    if schedule is None:
        for op in program.ops:
            do(op)
    else:
        turns = run.live.lifetimes.turns
        Ranks(program, schedule, turns, counted, partial(_posted, run), partial(_taken, run), ended).run()
    return run


def _check_homes(program: Program) -> None:
    """Refuse an op that reads what lives in another memory. Raises ValueError, naming it."""
    for op in program.ops:
        moves = [move for move in (op.moves if isinstance(op, Reshard) else ()) if move.travels]
        homes = {str(x.home) for x in op.inputs}
        if moves:
            ends = {"load": ("host", "device"), "store": ("device", "host")}
            homes = homes ^ {ends[moves[0].kind][0]} | {ends[move.kind][1] for move in moves}
        if homes - {op.output.home}:
            raise ValueError(f"{op.output} is made on the {op.output.home} of what lives on the {' and '.join(homes)}")


def reruns(run: Run, blocks: Mapping[Array, Block], ops: Sequence[Op], wanted: Array) -> Block:
    """What `wanted` comes to in several runs at once, on one device; all else is as it was, nothing is counted.

    blocks  of some arrays the other blocks, those of all runs side by side, along a dim before all others
    ops     what is done with them, and hangs on them; what none of these reads any more is dropped
    """
    (device,), again = run.grid.devices, copy(run)
    again.blocks, again.causes = {**run.blocks, **{x: {device: block} for x, block in blocks.items()}}, []
    last = {x: op for op in ops for x in op.inputs}
    for op in ops:
        again.blocks[op.output] = _side_by_side(again, op, device)
        for x in {*op.inputs}:
            if last[x] is op:
                del again.blocks[x]
    return again.blocks[wanted][device]


def _side_by_side(run: Run, op: Op, device: Device) -> Blocks:
    """What an op makes of blocks some of which lie side by side: at once, or of one after another."""
    if isinstance(op, SIDE_BY_SIDE) or (isinstance(op, Reshard) and not op.moves):
        return _blocks(run, op)
    several = {x: run.blocks[x][device] for x in op.inputs if run.blocks[x][device].ndim > len(x.dims)}
    own = []
    for blocks in zip(*several.values(), strict=True):
        single = copy(run)
        alone = {x: {device: block} for x, block in zip(several, blocks, strict=True)}
        single.blocks = {x: run.blocks[x] for x in op.inputs} | alone
        own.append(_blocks(single, op)[device])
    return {device: np.array(own)}


def elements(run: Run, array: Array) -> dict[Device, int]:
    """Of an array's block on every device that has one; of ragged rows those that are sent and held."""
    blocks = run.blocks[array]
    if not array.filled or run.padded:
        return {device: block.size for device, block in blocks.items()}
    return {device: int(marks(run, array, array.type, device).sum()) for device in blocks}


def _blocks(run: Run, op: Op) -> Blocks:
    if isinstance(op, Leaf):
        plain = unpacked(op.output.type)
        shape = tuple(run.sizes[dim] for dim in plain.dims)
        value = run.placed(run.inputs(label(op.output, op), shape), plain.dims)
        scattered = run.grid.placed(run.grid.relaid(value, plain, op.output.type, run.sizes), op.output.type, run.sizes)
        return {device: scattered[device] for device in run.holders(op.where)}
    if isinstance(op, Reshard):
        return _moved(run, op)
    if isinstance(op, Join):
        return _joined(run, op)
    if isinstance(op, Dispatch | Combine):
        return carried(run, op)
    if op in run.kernels and streamed.sums_blocks(op):
        if op.output not in run.summed:
            run.summed |= streamed.results(run, run.kernels[op])
        return run.summed[op.output]
    if op not in run.works:
        run.works[op] = work_of(op, run.grid, run.sizes, run.choose, run.positions)
    blocks = made(op, run.works[op], [run.blocks[x] for x in op.inputs], run.holders(op.where))
    return emptied(run, op.output, blocks) if op.output.filled else blocks


def _joined(run: Run, op: Join) -> Blocks:
    """What the chunks of each device have of an array, added up; nothing where they have none."""
    parts = [run.blocks[part] for part in op.inputs]
    chunks = {device: [part[device] for part in parts if device in part] for device in run.holders(op.where)}
    return {device: np.asarray(sum(own[1:], own[0])) if own else np.zeros(()) for device, own in chunks.items()}


def _moved(run: Run, op: Reshard) -> Blocks:
    """The blocks of an array after all moves of a change of type."""
    (x,), dtype = op.inputs, op.output.dtype
    blocks = {device: run.blocks[x][device] for device in run.holders(op.where)}
    line = None if x.dims == op.output.dims else flat_dim(op.output.type) or flat_dim(x.type)
    if line and line in op.output.dims:
        blocks = run.grid.lined(blocks, line, run.sizes)
    for move in op.moves:
        if move.travels:
            blocks, sent = _copied(blocks)
            run.causes.append(RanCollective(op, move, sent.in_bytes(dtype)))
            continue
        volume = float(move.logical_elements(run.sizes, run.grid.mesh.axes)) * bytes_of(dtype)
        parts = () if move.kind == "slice" else run.wiring.parts(move, volume, op)
        if move.streamed and move.kind == "all_gather":
            steps, sent = streamed.gathered(run, move, blocks, parts)
            run.streams[op.output] = move, steps
            blocks = streamed.whole(run, move, steps)
        elif move.streamed and move.kind == "permute":
            blocks, sent = streamed.brought(run, move, blocks, parts)
        elif move.streamed:
            blocks, sent = streamed.scattered(run, move, blocks, parts, op)
        else:
            blocks, sent = _played(run, move, blocks, parts, op)
        run.causes.append(RanCollective(op, move, sent.in_bytes(dtype)))
    return run.grid.unlined(blocks, line, run.sizes) if line and line in x.dims else blocks


def _played(run: Run, move: Move, blocks: Blocks, parts: Sequence[Stretch], op: Op) -> tuple[Blocks, Tally]:
    """One move among the devices that hold the array, and what they sent."""
    order = run.grid.devices
    if move.members and len(blocks) < len(order):
        return _exchanged(run, blocks)
    ragged = op.output.filled and not run.padded
    filled = {device: marks(run, op.output, move.before, device) for device in order} if ragged else None
    play = partial(run.devices.play, move, parts=parts, array=str(op.output), filled=filled)
    return streamed.among(run, blocks, play)


def _exchanged(run: Run, blocks: Blocks) -> tuple[Blocks, Tally]:
    """The sum of what two stages of several hold: each device sends its block to its like on the other."""
    sums: Blocks = {}
    for device, block in blocks.items():
        like = run.like(device)
        sums[like] = sums[like] + block if like in sums else block
    return {device: sums[run.like(device)] for device in blocks}, _a_block_each(blocks)


def _copied(blocks: Blocks) -> tuple[Blocks, Tally]:
    """What devices hold, in another memory: of a host what each of its devices has there."""
    return {device: block.copy() for device, block in blocks.items()}, _a_block_each(blocks)


def _a_block_each(blocks: Blocks, uplink: int = 0) -> Tally:
    """What is sent where every device sends its block in one message."""
    sent = np.array([block.size for block in blocks.values()], dtype=np.int64)
    return Tally(sent, sent, sent, np.ones_like(sent), 1, {}, uplink)


def _posted(run: Run, cut: Op) -> Blocks:
    """What the sender's devices put into the mailbox; they hold it no longer."""
    sent = {device: block.copy() for device, block in run.blocks[cut.inputs[0]].items()}
    run.live.read(cut)
    return sent


def _taken(run: Run, cut: Reshard, blocks: Blocks) -> None:
    """What the receiver's devices find in it, each the block of its like; counted as sent."""
    (move,) = cut.moves
    likes = {run.like(device): block for device, block in blocks.items()}
    run.blocks[cut.output] = {device: likes[run.like(device)] for device in run.holders(cut.where)}
    run.live.made(cut, elements(run, cut.output))
    place, homes = (
        {device: at for at, device in enumerate(run.grid.devices)},
        {run.like(device): device for device in blocks},
    )
    size = next(iter(blocks.values())).size
    ends = ((place[homes[run.like(to)]], place[to], size) for to in run.holders(cut.where))
    sent = _a_block_each(blocks, run.wiring.network.uplink(ends))
    run.causes.append(RanCollective(cut, move, sent.in_bytes(cut.output.dtype)))
