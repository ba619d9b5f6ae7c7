"""What a device computes of an op that moves nothing, from its own blocks alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial, reduce
from itertools import chain
from math import prod
from operator import add, mul
from string import ascii_letters
from zlib import crc32

import numpy as np

from tpsim.program.dispatch import CHOICE, COUNTED, REACHED
from tpsim.program.op import Append, Array, Bcast, Einsum, Index, Lin, Map, Max, Op, Rename, Scale
from tpsim.program.recurrence import Recurrence
from tpsim.program.tokens import TOKENS
from tpsim.reference.blocks import Block, Blocks, Device, Grid, Tiling
from tpsim.reference.functions import INDEX, POINTWISE, past
from tpsim.reference.recurrence import work_of as recurred
from tpsim.reference.routing import parts_reached
from tpsim.reference.run import Choice, Positions, Work

Dims = tuple[str, ...]
KNOWN = 4096
"""Of how many sorts of ops it is kept how a device works on them: those of all layers and microbatches are of one."""

Numbers = Callable[[Device], list[Positions]]
"""The global indices of a device's block, per dim."""


SIDE_BY_SIDE = (Einsum, Map, Lin, Bcast, Max, Rename)
"""Ops that do one thing to several blocks of an array at once: these lie side by side, along a dim before others."""


def made(op: Op, work: Work, inputs: Sequence[Blocks], devices: Sequence[Device]) -> Blocks:
    """What each device makes of its own blocks of an op's inputs."""
    if isinstance(op, SIDE_BY_SIDE) and len(devices) > 1:
        with suppress(ValueError):  # blocks that are not as large, as none but a wrong program has them
            beside = [np.array([blocks[device] for device in devices]) for blocks in inputs]
            return dict(zip(devices, work(devices[0], beside), strict=True))
    return {device: work(device, [blocks[device] for blocks in inputs]) for device in devices}


def work_of(op: Op, grid: Grid, sizes: Mapping[str, int], choose: Choice, positions: Positions | None = None) -> Work:
    """What an op does on any device, whose blocks of an array are all as large; one that is `SIDE_BY_SIDE` to many.

    choose     which experts tokens go to
    positions  in the sequence, of tokens as devices have them one after another; None if they have neighbours
    """
    match op:
        case Einsum():
            return _einsum(op.output.dims, *(x.dims for x in op.inputs))
        case Index():
            indices = partial(numbers, op.output, grid, sizes, positions)
            own = partial(index_block, op, sizes, indices, choose=choose if op.fn == CHOICE else None)
            return own if op.inputs else _of_tiles(own, grid.tiling(op.output.type, sizes))
        case Append() | Recurrence():
            return partial(_appended, op, grid, sizes) if isinstance(op, Append) else recurred(op, sizes)
        case Max():
            axis = op.inputs[0].dims.index(op.dim) - len(op.inputs[0].dims)
            return lambda _, blocks: np.asarray(blocks[0].max(axis=axis))
        case Rename():
            return lambda _, blocks: blocks[0]
    return _elementwise_of(op, grid, sizes)


def _elementwise_of(op: Op, grid: Grid, sizes: Mapping[str, int]) -> Work:
    """What an op does that acts on each element, whatever dims its inputs have."""
    dims, shape = op.output.dims, grid.tiling(op.output.type, sizes).shape
    elementwise, aligned = _elementwise(op, sizes), [alignment(x.dims, dims) for x in op.inputs]

    def work(_: Device, blocks: list[Block]) -> Block:
        result = elementwise([align(block) for align, block in zip(aligned, blocks, strict=True)])
        whole = (*result.shape[: result.ndim - len(shape)], *shape)
        return result if result.shape == whole else np.broadcast_to(result, whole)

    return work


def _of_tiles(work: Work, tiling: Tiling) -> Work:
    """What reads no block, and so is one thing on all devices that hold the same tile."""
    known: dict[int, Block] = {}

    def tile(device: Device, blocks: list[Block]) -> Block:
        at = tiling.at[device]
        if at not in known:
            known[at] = work(device, blocks)
        return known[at]

    return tile


def _appended(op: Append, grid: Grid, sizes: Mapping[str, int], device: Device, blocks: list[Block]) -> Block:
    """The cache with the rows of new tokens in their places, as far as these fall into the device's block of it.

    Where it holds a window alone, the place of a token is taken by the one that comes so many later. What holds no
    tokens of its own is replaced.
    """
    if op.inputs[1].dims == op.output.dims:
        return blocks[1]
    along = op.inputs[1].dims.index("s")
    cache, new = np.moveaxis(blocks[0].copy(), along, 0), np.moveaxis(blocks[1], along, 0)
    first, room = grid.window(device, op.output.type, sizes)[along].start, sizes[op.output.dims[along]]
    for token, row in enumerate(new, start=past(sizes)):
        if 0 <= token % room - first < len(cache):
            cache[token % room - first] = row
    return np.moveaxis(cache, 0, along)


def _elementwise(op: Op, sizes: Mapping[str, int]) -> Callable[[list[Block]], Block]:
    """An op that acts on each element of blocks whose dims are already in the output's order."""
    match op:
        case Map():
            return partial(_pointwise, op)
        case Lin():
            scales = [_coefficient(scale, sizes) for scale in op.scales]
            return lambda blocks: np.asarray(reduce(add, map(mul, scales, blocks)))
        case Bcast():
            return lambda blocks: blocks[0]
    raise NotImplementedError(type(op).__name__)


@lru_cache(KNOWN)
def _einsum(out: Dims, *inputs: Dims) -> Work:
    match inputs:
        case left, right if {*left}.symmetric_difference(right).issubset(out):
            return _product(left, right, out)
    letters = dict(zip(dict.fromkeys(chain(*inputs, out)), ascii_letters, strict=False))
    sides = ["..." + "".join(letters[dim] for dim in dims) for dims in (*inputs, out)]
    signature = f"{','.join(sides[:-1])}->{sides[-1]}"
    return lambda _, blocks: np.asarray(np.einsum(signature, *blocks))


def _product(left: Dims, right: Dims, out: Dims) -> Work:
    """A product of two arrays by products of matrices, one for each place along all dims but those of a matrix.

    numpy's einsum would loop over the last dim alone, however short; matrices are so small that a library of matrices
    begins no threads.
    """
    batch = [dim for dim in left if dim in right and dim in out]
    summed = [dim for dim in left if dim in right and dim not in out]
    rows, columns = ([dim for dim in own if dim not in (*batch, *summed)] for own in (left, right))
    dims = (*batch, *rows, *columns)
    back = [dims.index(dim) for dim in out]
    first = _turned(left, (*batch, *rows, *summed))
    second = _turned(right, (*batch, *summed, *columns))

    def work(_: Device, blocks: list[Block]) -> Block:
        (a, beside), (b, others) = first(blocks[0]), second(blocks[1])
        sizes = dict(zip(left, blocks[0].shape[len(beside) :], strict=True))
        sizes |= zip(right, blocks[1].shape[len(others) :], strict=True)
        sums, wide = prod(sizes[dim] for dim in summed), prod(sizes[dim] for dim in columns)
        of_each = [sizes[dim] for dim in batch]
        a = a.reshape((*beside, *of_each, *([sizes[dim] for dim in rows] or [1]), sums))
        b = b.reshape((*others, *of_each, *(1 for _ in rows[1:]), sums, wide))
        beside = beside or others
        whole = np.matmul(a, b).reshape((*beside, *(sizes[dim] for dim in dims)))
        return np.asarray(whole.transpose((*range(len(beside)), *(len(beside) + place for place in back))))

    return work


def _turned(own: Dims, dims: Dims) -> Callable[[Block], tuple[Block, tuple[int, ...]]]:
    """Gives a block its own dims in another order, and how many blocks lie side by side in it."""
    order = [own.index(dim) for dim in dims]

    def turned(block: Block) -> tuple[Block, tuple[int, ...]]:
        more = block.ndim - len(order)
        return block.transpose(*range(more), *(more + place for place in order)), block.shape[:more]

    return turned


def index_block(
    op: Index,
    sizes: Mapping[str, int],
    indices_of: Numbers,
    device: Device,
    blocks: list[Block],
    *,
    choose: Choice | None = None,
) -> Block:
    """An index array's block: its function of the device's own global indices; a draw is of its name and loops."""
    if op.fn == REACHED:
        return parts_reached(sizes[op.output.dims[-1]], blocks[0])
    own = indices_of(device)
    if op.fn == COUNTED:
        return np.asarray(blocks[0].sum(axis=(0, 1))[own[0], None])
    grids = np.meshgrid(*own, indexing="ij", sparse=True) if own else []
    inputs = [alignment(x.dims, op.output.dims)(block) for block, x in zip(blocks, op.inputs, strict=True)]
    draw = {"rate": op.rate, "seed": crc32(repr((op.output.name, op.where.loops)).encode())}
    fn = INDEX[op.fn] if choose is None else choose
    return np.broadcast_to(fn({**sizes, **draw}, *grids, *inputs), [len(indices) for indices in own])


def numbers(
    array: Array, grid: Grid, sizes: Mapping[str, int], positions: Positions | None, device: Device
) -> list[Positions]:
    """The global indices of a device's block of an array, per dim; of tokens their positions."""
    parts = grid.window(device, array.type, sizes)
    orders = [positions if dim in TOKENS else None for dim in array.dims]
    return [np.arange(w.start, w.stop) if at is None else at[w] for at, w in zip(orders, parts, strict=True)]


def _pointwise(op: Map, blocks: list[Block]) -> Block:
    function = POINTWISE[op.fn]
    if op.partial is None:
        return function.value(*blocks)
    return np.asarray(blocks[0] * function.partials[op.partial](*blocks[1:]))


@lru_cache(KNOWN)
def alignment(own: Dims, out: Dims) -> Callable[[Block], Block]:
    """Gives a block, or several, its own dims in the order of `out`, and a dim of one where it lacks it."""
    order = [own.index(dim) for dim in out if dim in own]
    places = tuple(slice(None) if dim in own else None for dim in out)
    beside, cuts = [0, *(place + 1 for place in order)], (slice(None), *places)
    return lambda block: block.transpose(order)[places] if block.ndim == len(order) else block.transpose(beside)[cuts]


def _coefficient(scale: Scale, sizes: Mapping[str, int]) -> float:
    value = scale.value
    for dim, power in scale.powers:
        value *= float(sizes[dim]) ** power
    return value
