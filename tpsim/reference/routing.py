"""Routing on simulated devices: which experts each token chooses, and which token fills each of their rows.

A choice is a function of GLOBAL tokens, never of a device, so a sharded run and the run on one device choose alike.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.program.dims import GOALS
from tpsim.program.op import Array, Combine, Dispatch, Filled
from tpsim.program.tokens import Order, positions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.algebra.sharding import Sharding
    from tpsim.reference.blocks import Block, Blocks, Device
    from tpsim.reference.run import Choice, Run, Table

EMPTY = -1


def own(sizes: Mapping[str, Any], _b: Any, _s: Any, _i: Any, logits: Block, bias: Block | None = None) -> Block:
    """The model's own choice: the experts of the largest logits, of equal ones the first; a bias counts here alone.

    Where it is limited to some groups, they are of those whose best expert is the best, with a bias the best two.
    """
    scores = logits if bias is None else logits + bias
    if "gr" in sizes:
        grouped = scores.reshape(*scores.shape[:-1], int(sizes["gr"]), -1)
        groups = _best(np.sort(grouped, axis=-1)[..., -1 if bias is None else -PAIR :].sum(axis=-1), int(sizes["gt"]))
        scores = np.where(np.repeat(groups, grouped.shape[-1], axis=-1) > 0, scores, -np.inf)
    return _best(scores, int(sizes["k"]))


PAIR = 2
"""The experts of a group that are looked at together."""


def _best(scores: Block, many: int) -> Block:
    """1 for so many of the best, of equal ones the first, else 0."""
    chosen = np.zeros_like(scores)
    np.put_along_axis(chosen, np.argsort(-scores, axis=-1, kind="stable")[..., :many], 1.0, axis=-1)
    return chosen


def parts_reached(parts: int, chosen: Block) -> Block:
    """1 where a token has chosen any expert of a node, or rank, of which there are so many, else 0."""
    return np.asarray(chosen.reshape(*chosen.shape[:-1], parts, -1).max(axis=-1))


def evenly(order: Order = "contiguous", sharing: int = 1, *, apart: bool = False, ways: int = 1) -> Choice:
    """Every expert in turn: token after token, as devices have them, takes the next k of them.

    order, sharing  of the tokens of a sequence, and how many devices share them
    apart           instead of neighbours those that one token draws, each token all of them further on; then as many
                    tokens as there are `turns` choose each expert alike often, and go to each node or rank as often
    """

    def choose(sizes: Mapping[str, Any], b: Any, s: Any, i: Any, *_: Any) -> Block:
        length = int(sizes["s"])
        part, at = divmod(np.argsort(positions(order, length, sharing))[s], length // ways)
        place = (part * int(sizes["b"]) + b) * (length // ways) + at
        if apart:
            return np.asarray(_turned(sizes)[place % turns(sizes), i])
        return np.asarray((i - sizes["k"] * place) % sizes["n"] < sizes["k"], dtype=np.float64)

    return choose


def turns(sizes: Mapping[str, Any]) -> int:
    """How many tokens choose all experts alike often, and reach alike often all nodes or ranks that `sizes` has."""
    return int(sizes["n"]) // _step(sizes)


def _step(sizes: Mapping[str, Any]) -> int:
    """How many experts a turn goes on: a token has as many of each of those as of the others."""
    experts, apart = int(sizes["n"]), lcm(int(sizes.get("gr", 1)), *(int(sizes.get(dim, 1)) for dim in ("nn", "nr")))
    return gcd(experts // apart, int(sizes["k"])) if experts % apart == 0 else 1


def _turned(sizes: Mapping[str, Any]) -> Block:
    """The choice of as many tokens as there are turns: one that is drawn, turned by groups and inside of these."""
    n, groups, step = int(sizes["n"]), int(sizes.get("gr", 1)), _step(sizes)
    kept = np.arange(groups) < int(sizes.get("gt", 1))
    scores = np.where(np.repeat(kept, n // groups), np.random.default_rng(n).random(n), -np.inf)
    first = _best(scores.reshape(-1, step).T, int(sizes["k"]) // step).T.reshape(groups, -1)
    by = [(group, inside) for group in range(groups) for inside in range(0, n // groups, step)]
    return np.stack([np.roll(first, turn, axis=(0, 1)).ravel() for turn in by])


def turned_copies(sizes: Mapping[str, Any], parts: int) -> Fraction:
    """Of how many nodes, or ranks, out of so many the tokens have experts that choose `evenly`, but `apart`."""
    counts = parts_reached(parts, _turned(sizes)).sum(axis=-1)
    return Fraction(int(counts.sum()), counts.size)


def table(run: Run, filled: Filled) -> Table:
    """Which token fills each row: those of each part of the rows in the order of its tokens.

    Raises ValueError, naming expert and part, if more tokens choose an expert than it has rows there.
    """
    if filled not in run.tables:
        chosen, (parts, rows) = run.value(filled.chosen), _parts(run, filled)
        token_of = np.full((chosen.shape[-1], len(parts) * rows), EMPTY, dtype=np.int64)
        tokens = np.arange(chosen[..., 0].size).reshape(chosen.shape[:2])
        for part, window in enumerate(parts):
            ids = tokens[window].ravel()
            picks = chosen[window].reshape(ids.size, -1)
            for expert in range(picks.shape[-1]):
                own_ids = ids[picks[:, expert] > 0]
                if own_ids.size > rows:
                    chosen_by = f"{own_ids.size} tokens of part {part} choose expert {expert}"
                    raise ValueError(f"{chosen_by}, which has {rows} rows for them")
                token_of[expert, part * rows : part * rows + own_ids.size] = own_ids
        run.tables[filled] = token_of
    return run.tables[filled]


def _parts(run: Run, filled: Filled) -> tuple[list[tuple[slice, ...]], int]:
    """The tokens of each part of the rows, and how many rows an expert has there."""
    grid, type_ = run.grid, filled.chosen.type
    of = {grid.rank(device, filled.slots): grid.window(device, type_, run.sizes)[:2] for device in grid.devices}
    parts = [of[rank] for rank in range(len(of))]
    _, rows = GOALS[filled.chosen.dims[-1]]
    return parts, run.sizes[rows] // len(parts)


def marks(run: Run, array: Array, type_: Sharding, device: Device) -> Block:
    """1 for every element of a device's block of this type that is of a row that there is, else 0."""
    window = run.grid.window(device, type_, run.sizes)
    there = (_of(run, array)[window[:2]] != EMPTY) * 1.0
    shape = run.grid.tiling(type_, run.sizes).shape
    return np.broadcast_to(there.reshape(*there.shape, *(1 for _ in shape[2:])), shape)


def emptied(run: Run, array: Array, blocks: Blocks) -> Blocks:
    """The same with nothing in rows that there are not: a bias does not fill them."""
    if (_of(run, array) != EMPTY).all():
        return blocks
    return {device: block * marks(run, array, array.type, device) for device, block in blocks.items()}


def _of(run: Run, array: Array) -> Table:
    """Which token fills each row of an array. Raises ValueError for one that has no ragged rows."""
    if array.filled is None:
        raise ValueError(f"{array} has no rows that tokens fill")
    return table(run, array.filled)


def carried(run: Run, op: Dispatch | Combine) -> Blocks:
    """Every device's rows of its tokens, or the sum of rows where their tokens are."""
    x = op.inputs[0]
    blocks = {device: run.blocks[x][device] for device in run.holders(op.where)}
    if isinstance(op, Dispatch):
        return {device: _dispatched(run, op, device, block) for device, block in blocks.items()}
    return {device: _combined(run, op, device, block) for device, block in blocks.items()}


def _dispatched(run: Run, op: Dispatch, device: Device, block: Block) -> Block:
    x, out = op.inputs[0], op.output
    if x.filled:
        rows = block[_copies(run, x, out, device)]
        rows[_rows_of(run, out, device) == EMPTY] = 0.0
        return np.asarray(rows)
    ids, own_ids = _rows(run, out, op.inputs[1], device)
    flat = block.reshape(-1, *block.shape[2:])
    if "i" in x.dims:
        experts = run.grid.window(device, out.type, run.sizes)[0]
        rows = flat[own_ids, np.arange(experts.start, experts.stop)[:, None]]
        return np.asarray(np.where(ids == EMPTY, 0.0, rows))
    rows = flat[own_ids]
    rows[ids == EMPTY] = 0.0
    return np.asarray(rows)


def _combined(run: Run, op: Combine, device: Device, block: Block) -> Block:
    rows, out = op.inputs[0], op.output
    shape = run.grid.tiling(out.type, run.sizes).shape
    if out.filled:
        sums, filled = np.zeros(shape), _rows_of(run, rows, device) != EMPTY
        for at, node, copy, copies in zip(filled, *_copies(run, out, rows, device), block, strict=True):
            sums[node[at], copy[at]] += copies[at]  # an expert has each token once
        return sums
    ids, own_ids = _rows(run, rows, op.inputs[1], device)
    copies = np.zeros((shape[0] * shape[1], *shape[2:]))
    here = ids != EMPTY
    if "i" in out.dims:
        expert, _ = np.nonzero(here)
        copies[own_ids[here], expert] = block[here]
    else:
        for at, ids, own_rows in zip(here, own_ids, block, strict=True):
            copies[ids[at]] += own_rows[at]  # an expert has each token once
    return copies.reshape(shape)


def _rows_of(run: Run, rows: Array, device: Device) -> Table:
    """The tokens of a device's rows, by their global number."""
    return _of(run, rows)[run.grid.window(device, rows.type, run.sizes)[:2]]


def _copies(run: Run, copies: Array, rows: Array, device: Device) -> tuple[Table, Table]:
    """For each row of a device the copy of its token there, by its place: of which node, and as which one.

    Raises ValueError, naming array and device, for a row whose token has no copy there.
    """
    ids, kept = _rows_of(run, rows, device), _rows_of(run, copies, device)
    (first, _), (at, _) = (run.grid.window(device, x.type, run.sizes)[:2] for x in (rows, copies))
    ratio = run.sizes[rows.dims[0]] // run.sizes[copies.dims[0]]
    node = np.broadcast_to((np.arange(first.start, first.stop) // ratio - at.start)[:, None], ids.shape)
    places = np.full((kept.shape[0], int(max(ids.max(), kept.max())) + 2), EMPTY, dtype=np.int64)
    for place, tokens in zip(places, kept, strict=True):
        place[tokens[tokens != EMPTY]] = np.flatnonzero(tokens != EMPTY)
    copy = places[node, ids]
    if (copy[ids != EMPTY] == EMPTY).any():
        raise ValueError(f"{rows}: device {device} was never sent a copy of each of its tokens in {copies}")
    return node, copy


def _rows(run: Run, rows: Array, tokens: Array, device: Device) -> tuple[Table, Table]:
    """The tokens of a device's rows, by their global number and by their place among its own."""
    ids = _rows_of(run, rows, device)
    b, s = run.grid.window(device, tokens.type, run.sizes)[:2]
    length = run.sizes["s"]
    own_ids = (ids // length - b.start) * (s.stop - s.start) + ids % length - s.start
    return ids, np.where(ids == EMPTY, 0, own_ids)


def _positions(run: Run, ids: Table) -> Table:
    """The same tokens by where they stand in their sequence, instead of where devices have them."""
    if run.positions is None:
        return ids
    length = run.sizes["s"]
    return np.where(ids == EMPTY, EMPTY, ids - ids % length + run.positions[ids % length])


def reordered(run: Run, array: Array, whole: Run, other: Array, value: Block) -> Block:
    """`value`, which has the rows of `other` on one device, in the order that the rows of `array` have here."""
    here, there = _positions(run, _of(run, array)), _of(whole, other)
    ordered = np.zeros_like(value)
    at = np.zeros((there.shape[0], int(there.max()) + 1), dtype=np.int64)
    expert, row = np.nonzero(there != EMPTY)
    at[expert, there[expert, row]] = row
    expert, row = np.nonzero(here != EMPTY)
    order = [array.dims.index(dim) for dim in GOALS[array.filled.chosen.dims[-1]]] if array.filled else []
    rest = [place for place in range(value.ndim) if place not in order]
    moved = value.transpose([*order, *rest])
    result = ordered.transpose([*order, *rest])
    result[expert, row] = moved[expert, at[expert, here[expert, row]]]
    return ordered
