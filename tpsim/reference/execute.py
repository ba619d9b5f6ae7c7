"""Runs a program on simulated devices in numpy: every device holds its block of every array, moves are real messages.

The same function runs a program on one device: lower the model without axes. It knows no formula and no machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import ascii_letters
from typing import TYPE_CHECKING

import numpy as np

from tpsim.program.op import Array, Bcast, Einsum, Index, Leaf, Lin, Map, Max, Op, Program, Rename, Reshard, Scale
from tpsim.reference.blocks import Block, Blocks, Device, Grid, gap
from tpsim.reference.devices import Call, Devices, bytes_of
from tpsim.reference.functions import INDEX, POINTWISE
from tpsim.reference.wiring import Wiring, rings

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh

Inputs = Callable[[str, tuple[int, ...]], Block]
"""Gives the global value of a leaf by its label, e.g. ``0.Wq``, ``tokens.1`` or ``variance.E``, and its shape."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A collective of the run: the op that caused it, and what it sent."""

    op: Reshard
    call: Call


@dataclass(slots=True)
class Run:
    """One execution: the blocks of every array, by array, and every collective in the order of the ops."""

    program: Program
    devices: Devices
    wiring: Wiring
    sizes: Mapping[str, int]
    inputs: Inputs
    blocks: dict[Array, Blocks] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)

    @property
    def grid(self) -> Grid:
        """Where every device stands on the mesh."""
        return self.devices.grid

    @property
    def calls(self) -> list[Call]:
        """Every collective in the order of the ops."""
        return [cause.call for cause in self.causes]

    def value(self, array: Array) -> Block:
        """The global value of `array`, owed sums and maxima paid.

        Raises ValueError, naming array and device, if a device holds a wrong block or replicas differ.
        """
        try:
            whole, spread = self.grid.assemble(self.blocks[array], array.type, self.sizes)
        except ValueError as error:
            raise ValueError(f"{array}: {error}") from None
        if spread > SAME * (1.0 + float(np.max(np.abs(whole), initial=0.0))):
            raise ValueError(f"{array}: replicas differ by {spread}: device {self._unlike(array)} holds a wrong block")
        return whole

    def _unlike(self, array: Array) -> Device:
        """The device whose block is farthest from what most of its replicas hold."""
        paid = self.grid.paid(self.blocks[array], array.type)
        replicas: dict[tuple[tuple[int, int], ...], list[Block]] = {}
        windows = {}
        for device, block in paid.items():
            cuts = self.grid.window(device, array.type, self.sizes)
            windows[device] = tuple((cut.start, cut.stop) for cut in cuts)
            replicas.setdefault(windows[device], []).append(block)
        return max(paid, key=lambda device: gap(paid[device], np.median(replicas[windows[device]], axis=0)))


SAME = 1e-9
"""How far replicas may lie apart, relative to their size: sums of another order round differently."""


def execute(
    program: Program, mesh: Mesh, sizes: Mapping[str, int], inputs: Inputs, *, wiring: Wiring | None = None
) -> Run:
    """Run every op of `program` on the devices of `mesh`.

    sizes   elements of every dim, and ``m``, the microbatches that the loss is a mean over
    inputs  global value of each leaf
    wiring  how moves run; None: every mesh axis is a closed ring of its own

    Raises ValueError, naming array and device, if a collective leaves a device without a part of its block.
    """
    wired = wiring or rings(mesh)
    run = Run(program, Devices(wired.network), wired, sizes, inputs)
    for op in program.ops:
        run.blocks[op.output] = _blocks(run, op)
    return run


def label(array: Array, op: Op) -> str:
    """Call a leaf by its name with its layer before and its microbatch behind."""
    layer, microbatch = op.where.index("layers"), op.where.index("microbatches")
    return f"{'' if layer is None else f'{layer}.'}{array.name}{'' if microbatch is None else f'.{microbatch}'}"


def _blocks(run: Run, op: Op) -> Blocks:
    if isinstance(op, Leaf):
        shape = tuple(run.sizes[dim] for dim in op.output.dims)
        return run.grid.scatter(run.inputs(label(op.output, op), shape), op.output.type)
    if isinstance(op, Reshard):
        return _moved(run, op)
    return {device: _local(run, op, device) for device in run.grid.devices}


def _moved(run: Run, op: Reshard) -> Blocks:
    """The blocks of an array after all moves of a change of type."""
    blocks, dtype = run.blocks[op.inputs[0]], op.output.dtype
    for move in op.moves:
        volume = float(move.logical_elements(run.sizes, run.grid.mesh.axes)) * bytes_of(dtype)
        parts = () if move.kind == "slice" else run.wiring.parts(move, volume, op)
        blocks, call = run.devices.play(move, blocks, parts, dtype, str(op.output))
        run.causes.append(Cause(op, call))
    return blocks


def _local(run: Run, op: Op, device: Device) -> Block:
    """What one device computes from its own blocks."""
    blocks = [run.blocks[x][device] for x in op.inputs]
    match op:
        case Einsum():
            return _einsum(op, blocks)
        case Index():
            return _index(run, op, device, blocks)
        case Max():
            return np.asarray(blocks[0].max(axis=op.inputs[0].dims.index(op.dim)))
        case Rename():
            return blocks[0]
    aligned = [_aligned(block, x, op.output) for block, x in zip(blocks, op.inputs, strict=True)]
    return np.broadcast_to(_elementwise(run, op, aligned), _shape(run, op.output, device))


def _elementwise(run: Run, op: Op, blocks: list[Block]) -> Block:
    """An op that acts on each element of blocks whose dims are already in the output's order."""
    match op:
        case Map():
            return _pointwise(op, blocks)
        case Lin():
            terms = [_coefficient(run, scale) * block for scale, block in zip(op.scales, blocks, strict=True)]
            return np.asarray(sum(terms[1:], terms[0]))
        case Bcast():
            return blocks[0]
    raise NotImplementedError(type(op).__name__)


def _einsum(op: Einsum, blocks: list[Block]) -> Block:
    letters = dict(
        zip(dict.fromkeys(dim for x in (*op.inputs, op.output) for dim in x.dims), ascii_letters, strict=False)
    )
    sides = ["".join(letters[dim] for dim in x.dims) for x in (*op.inputs, op.output)]
    # One plain loop: blocks are small, and the threads of a matrix library cost more than they save.
    return np.asarray(np.einsum(f"{','.join(sides[:-1])}->{sides[-1]}", *blocks))


def _index(run: Run, op: Index, device: Device, blocks: list[Block]) -> Block:
    """An index array's block: its function of the device's own global indices."""
    out = op.output
    windows = run.grid.window(device, out.type, run.sizes)
    grids = np.meshgrid(*(np.arange(w.start, w.stop) for w in windows), indexing="ij", sparse=True) if windows else []
    inputs = [_aligned(block, x, out) for block, x in zip(blocks, op.inputs, strict=True)]
    return np.broadcast_to(INDEX[op.fn](run.sizes, *grids, *inputs), [w.stop - w.start for w in windows])


def _pointwise(op: Map, blocks: list[Block]) -> Block:
    function = POINTWISE[op.fn]
    if op.partial is None:
        return function.value(*blocks)
    return np.asarray(blocks[0] * function.partials[op.partial](*blocks[1:]))


def _aligned(block: Block, x: Array, out: Array) -> Block:
    """`block` with its dims in the order of `out`, and a dim of one where `x` lacks it."""
    order = [x.dims.index(dim) for dim in out.dims if dim in x.dims]
    shape = [block.shape[x.dims.index(dim)] if dim in x.dims else 1 for dim in out.dims]
    return block.transpose(order).reshape(shape)


def _shape(run: Run, array: Array, device: Device) -> list[int]:
    return [part.stop - part.start for part in run.grid.window(device, array.type, run.sizes)]


def _coefficient(run: Run, scale: Scale) -> float:
    value = scale.value
    for dim, power in scale.powers:
        value *= float(run.sizes[dim]) ** power
    return value
