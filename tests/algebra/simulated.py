"""Simulated devices that hold blocks and run moves by messages within a group: they know no formula and no planner."""

from __future__ import annotations

from itertools import product as every
from math import prod

import numpy as np
from hypothesis import strategies as st

from tpsim.algebra.sharding import Sharding

SIZES = {"X": 2, "Y": 3, "Z": 2}
DIM = 12


class Devices:
    """One block per device; the mesh is `sizes`, and the blocks are of type `type`."""

    def __init__(self, whole, type_, sizes, seed=0):
        self.sizes, self.type = sizes, type_
        self.coordinates = [dict(zip(sizes, place, strict=True)) for place in every(*map(range, sizes.values()))]
        rng = np.random.default_rng(seed)
        parts = self._parts(whole, type_, rng)
        self.blocks = [self._cut(parts(at), type_, at) for at in self.coordinates]

    def _parts(self, whole, type_, rng):
        """What each device owes: random parts whose sum (or max) is the whole array."""
        owed = [axis for axis in self.sizes if axis in type_.owed_axes]
        kinds = set(dict(type_.owes).values())
        assert len(kinds) < 2
        made = {}
        places = list(every(*(range(self.sizes[axis]) for axis in owed)))
        if "max" in kinds:
            made = {place: whole - rng.integers(1, 9, whole.shape) for place in places[1:]}
            made[places[0]] = whole
        else:
            made = {place: rng.integers(-9, 9, whole.shape) for place in places[1:]}
            made[places[0]] = whole - sum(made.values(), np.zeros_like(whole))
        return lambda at: made[tuple(at[axis] for axis in owed)]

    def rank(self, at, axes):
        """Place of a device among those along `axes`, major first."""
        number = 0
        for axis in axes:
            number = number * self.sizes[axis] + at[axis]
        return number

    def part(self, block, place, axes, at):
        pieces = np.split(block, prod(self.sizes[axis] for axis in axes), axis=place)
        return pieces[self.rank(at, axes)]

    def _cut(self, block, type_, at):
        for place, axes in enumerate(type_.on):
            block = self.part(block, place, axes, at)
        return block

    def group(self, at, axes):
        """Numbers of the devices that differ from this one along `axes` only, in rank order."""
        same = [n for n, c in enumerate(self.coordinates) if all(c[a] == at[a] for a in c if a not in axes)]
        return sorted(same, key=lambda n: self.rank(self.coordinates[n], axes))

    def run(self, move):
        """Every device sends and receives; a block is built from its group's blocks only."""
        assert move.before == self.type
        self.blocks = [self._received(move, at) for at in self.coordinates]
        self.type = move.after

    def _received(self, move, at):
        own = self.blocks[self.coordinates.index(at)]
        group = self.group(at, move.axes)
        blocks = [self.blocks[number] for number in group]
        if move.kind == "slice":
            return self._parts_of(own, move, at)
        if move.kind == "all_gather":
            return self._together(blocks, move, group)
        if move.kind == "reduce_scatter":
            return self._parts_of(sum(blocks), move, at)
        if move.kind == "all_reduce":
            kinds = {kind for axis, kind in move.before.owes if axis in move.axes}
            return sum(blocks) if kinds == {"sum"} else np.max(blocks, axis=0)
        if move.kind == "all_to_all":
            return self._together([self._parts_of(block, move, at) for block in blocks], move, group)
        return self._permuted(move, at, group)

    def _parts_of(self, block, move, at):
        """Of every dim that is split further this device's part."""
        for place, (had, has) in enumerate(zip(move.before.on, move.after.on, strict=True)):
            if len(has) > len(had):
                block = self.part(block, place, has[len(had) :], at)
        return block

    def _together(self, blocks, move, group):
        """Every block at its place along the dims that are split less."""
        fewer = [had[len(has) :] for had, has in zip(move.before.on, move.after.on, strict=True)]
        shape = [prod(self.sizes[axis] for axis in axes) * n for axes, n in zip(fewer, blocks[0].shape, strict=True)]
        whole = np.full(shape, np.nan)
        for number, block in zip(group, blocks, strict=True):
            starts = [self.rank(self.coordinates[number], axes) for axes in fewer]
            window = [slice(at * n, (at + 1) * n) for at, n in zip(starts, block.shape, strict=True)]
            whole[tuple(window)] = block
        return whole

    def _permuted(self, move, at, group):
        """The block of the group's member that holds what this device must hold afterwards."""
        wanted = [self.rank(at, axes) for axes in move.after.on]
        for number in group:
            there = self.coordinates[number]
            if [self.rank(there, axes) for axes in move.before.on] == wanted:
                return self.blocks[number]
        raise AssertionError("nobody in the group holds the block")

    def holds(self, whole):
        """True if the blocks are those of `whole` under the present type, owed parts taken together."""
        owed = tuple(self.type.owed_axes)
        for at in self.coordinates:
            blocks = [self.blocks[number] for number in self.group(at, owed)]
            kinds = set(dict(self.type.owes).values())
            settled = np.max(blocks, axis=0) if kinds == {"max"} else sum(blocks)
            if not np.array_equal(settled, self._cut(whole, self.type, at)):
                return False
        return True


def whole_array(dims, sizes, seed=0):
    return np.random.default_rng(seed).integers(-9, 9, tuple(sizes[dim] for dim in dims))


def run_moves(moves, src):
    """True if the moves carry an array of type `src` right."""
    whole = whole_array(src.dims, dict.fromkeys(src.dims, DIM))
    devices = Devices(whole, src, SIZES)
    for move in moves:
        devices.run(move)
    return devices.holds(whole)


def run_plan(plan, ask, sizes):
    """True if a plan's steps, run one after another, give the product."""
    dims = dict.fromkeys(ask.all_dims, DIM)
    whole = {name: whole_array(type_.dims, dims, seed) for seed, (name, type_) in enumerate(ask.operands)}
    held = {name: Devices(whole[name], type_, sizes) for name, type_ in ask.operands}
    letters = {dim: chr(ord("a") + place) for place, dim in enumerate(ask.all_dims)}
    spell = ["".join(letters[dim] for dim in each) for each in (ask.left[1].dims, ask.right[1].dims, ask.dims)]
    formula = f"{spell[0]},{spell[1]}->{spell[2]}"
    for step in plan.steps:
        if step.move:
            held[step.output[0]].run(step.move)
            continue
        left, right = (held[name] for name, _ in step.inputs)
        assert (left.type, right.type) == tuple(type_ for _, type_ in step.inputs)
        made = Devices.__new__(Devices)
        made.sizes, made.coordinates, made.type = sizes, left.coordinates, step.output[1]
        made.blocks = [np.einsum(formula, a, b) for a, b in zip(left.blocks, right.blocks, strict=True)]
        held[step.output[0]] = made
    names = [name for name, _ in ask.operands]
    return held[ask.name].holds(np.einsum(formula, whole[names[0]], whole[names[1]]))


@st.composite
def types(draw, dims=("I", "J"), owed=True, axes=tuple(SIZES)):
    """Any type: each axis on a dim, owed or unused, in any order."""
    homes = (*dims, None, *(("sum",) if owed else ()))
    on = dict.fromkeys(dims, ())
    owes = []
    for axis in draw(st.permutations(axes)):
        home = draw(st.sampled_from(homes))
        if home == "sum":
            owes.append((axis, "sum"))
        elif home:
            on[home] += (axis,)
    return Sharding(dims, tuple(on.values()), frozenset(owes))


@st.composite
def journeys(draw):
    """A type and one that can be reached from it: it owes no more."""
    src = draw(types())
    dst = draw(types(owed=False))
    kept = frozenset(owed for owed in src.owes if owed[0] not in dst.sharded_axes and draw(st.booleans()))
    return src, dst.owing(kept)
