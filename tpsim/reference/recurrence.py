"""The recurrence of linear attention in numpy, one token after another, and its pullback from the last token on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tpsim.program.dims import CHUNKED
from tpsim.program.recurrence import READ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.program.recurrence import Makes, Recurrence
    from tpsim.reference.blocks import Block
    from tpsim.reference.run import Work

Dims = tuple[str, ...]
FULL = (*READ[:-1], "ld", "lo")
"""The dims in whose order all is laid out: tokens second, then what a state has."""


OPERANDS = 5
"""Queries, keys, values, logarithms of decays, strengths."""


def work_of(op: Recurrence, sizes: Mapping[str, int]) -> Work:
    """What a device makes of its own blocks."""
    if (place := op.partial) is not None:
        dims = [x.dims for x in op.inputs[1 : OPERANDS + 1]]
        return lambda _, blocks: _pulled(place, dims, blocks[: OPERANDS + 1], delta=op.delta)
    dims = [x.dims for x in op.inputs]
    if op.makes in ("inverse", "products"):
        return lambda _, blocks: _square(op.makes, dims, blocks, sizes[CHUNKED])
    return lambda _, blocks: _run(dims, blocks, delta=op.delta)[op.makes == "state"]


def _square(makes: Makes, dims: Sequence[Dims], blocks: Sequence[Block], chunk: int) -> Block:
    """For every token what it is to those of its chunk: by what it reads of them, or by what its change is solved."""
    q, k, _, g, strength = [_laid(own, block) for own, block in zip(dims, blocks, strict=True)]
    fallen, tokens = np.cumsum(g, axis=1), np.arange(q.shape[1])
    between = np.exp(np.minimum(fallen[:, :, None] - fallen[:, None], 0))
    reads = q if makes == "products" else k
    met = np.moveaxis((reads[:, :, None] * k[:, None] * between).sum(axis=(-1, -2)), (1, 2), (-2, -1))
    before = (tokens[:, None] - tokens >= (makes == "inverse")) & (tokens[:, None] // chunk == tokens // chunk)
    met = met * before
    if makes == "inverse":
        scaled = np.moveaxis(strength[..., 0, 0], 1, -1)[..., None]
        met = np.linalg.inv(np.eye(len(tokens)) + scaled * met)
    places = tokens[:, None] // chunk * chunk + np.arange(chunk)
    there = places < len(tokens)
    rows = np.take_along_axis(met, np.broadcast_to(np.where(there, places, 0), (*met.shape[:-1], chunk)), axis=-1)
    return np.asarray(np.moveaxis(rows * there, -2, 1))


def _laid(dims: Dims, block: Block) -> Block:
    """A block in the order of `FULL`, with a dim of one for each that it lacks."""
    order = [dims.index(dim) for dim in FULL if dim in dims]
    return block.transpose(order)[tuple(slice(None) if dim in dims else None for dim in FULL)]


def _states(
    dims: Sequence[Dims], blocks: Sequence[Block], *, delta: bool
) -> tuple[list[Block], list[Block], list[Block]]:
    """Operands as they are laid out, and of every token the state before it, decayed, and what changes it."""
    q, k, v, g, strength, *begun = [_laid(own, block) for own, block in zip(dims, blocks, strict=True)]
    shape = np.broadcast_shapes(k.shape, v.shape)
    state = np.broadcast_to(begun[0][:, 0], (shape[0], *shape[2:])) if begun else np.zeros((shape[0], *shape[2:]))
    decayed, changes = [], []
    for t in range(shape[1]):
        state = np.exp(g[:, t]) * state
        decayed.append(state)
        found = (k[:, t] * state).sum(axis=-2, keepdims=True) if delta else 0
        changes.append(strength[:, t] * (v[:, t] - found))
        state = state + k[:, t] * changes[-1]
    return [q, k, v, g, strength, *begun], decayed, changes


def _run(dims: Sequence[Dims], blocks: Sequence[Block], *, delta: bool = True) -> tuple[Block, Block]:
    """What tokens read, and the state behind the last one."""
    (q, k, *_), decayed, changes = _states(dims, blocks, delta=delta)
    states = [before + k[:, t] * change for t, (before, change) in enumerate(zip(decayed, changes, strict=True))]
    made = np.stack([(q[:, t] * state).sum(axis=-2) for t, state in enumerate(states)], axis=1)
    return made, np.asarray(states[-1])


def _pulled(place: int, dims: Sequence[Dims], blocks: Sequence[Block], *, delta: bool = True) -> Block:
    """The cotangent of one operand, in its own dims."""
    operands, decayed, changes = _states(dims, blocks[1:], delta=delta)
    q, k, v, g, strength = operands
    dy, ahead = _laid(READ, blocks[0]), np.zeros_like(decayed[0])
    each = []
    for t in reversed(range(dy.shape[1])):
        before, change = decayed[t], changes[t]
        state = before + k[:, t] * change
        ahead = ahead + q[:, t] * dy[:, t]
        of_change = (k[:, t] * ahead).sum(axis=-2, keepdims=True)
        of_value = strength[:, t] * of_change
        found = (k[:, t] * before).sum(axis=-2, keepdims=True) if delta else 0
        of_state = ahead - k[:, t] * of_value if delta else ahead
        cotangents = (
            state * dy[:, t],
            ahead * change - (before * of_value if delta else 0),
            of_value,
            of_state * before,
            of_change * (v[:, t] - found),
        )
        each.append(cotangents[place])
        ahead = np.exp(g[:, t]) * of_state
    lacks = tuple(at for at, dim in enumerate(FULL) if dim not in dims[place])
    summed = np.stack(each[::-1], axis=1).sum(axis=lacks)
    own = [dim for dim in FULL if dim in dims[place]]
    return np.asarray(summed.transpose([own.index(dim) for dim in dims[place]]))
