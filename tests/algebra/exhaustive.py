"""Every way to a product, without a planner: all types, every move as a relation of two types, all paths (Floyd)."""

from __future__ import annotations

from itertools import permutations, product
from math import prod

import numpy as np

from tpsim.algebra.moves import Move
from tpsim.algebra.sharding import Sharding


def types(dims, axes):
    """Every type of an array over these axes, sums owed included."""
    found = []
    for homes in product((None, "owed", *dims), repeat=len(axes)):
        at = dict(zip(axes, homes, strict=True))
        rows = [[axis for axis in axes if at[axis] == dim] for dim in dims]
        owes = frozenset((axis, "sum") for axis in axes if at[axis] == "owed")
        found += [Sharding(tuple(dims), on, owes) for on in product(*map(permutations, rows))]
    return found


def one_move(old, new):
    """The kind of the move from one type to another, and the axes that take part; None if it takes several."""
    if old == new or new.owed_axes - old.owed_axes:
        return None
    changed = [(a, b) for a, b in zip(old.on, new.on, strict=True) if a != b]
    less = [a[len(b) :] for a, b in changed if a[: len(b)] == b]
    more = [b[len(a) :] for a, b in changed if b[: len(a)] == a]
    return (moved if old.owes == new.owes else settled)(old.owed_axes - new.owed_axes, changed, less, more)


def settled(paid, changed, less, more):
    """A move that pays: to all, or into parts."""
    if not changed:
        return "all_reduce", tuple(sorted(paid))
    onto = tuple(axis for part in more for axis in part)
    return ("reduce_scatter", onto) if len(more) == len(changed) and set(onto) == paid and not less else None


def moved(_, changed, less, more):
    """A move that pays nothing."""
    if len(more) == len(changed):
        return "slice", tuple(axis for part in more for axis in part)
    if len(less) == len(changed):
        return "all_gather", tuple(axis for part in less for axis in part)
    if len(changed) == len(less) + len(more) and less == more:
        return "all_to_all", less[0]
    ((have, want), *others) = changed
    if others or sorted(have) != sorted(want):
        return None
    places = [at for at, (a, b) in enumerate(zip(have, want, strict=True)) if a != b]
    return "permute", have[places[0] : places[-1] + 1]


class Array:
    """All types of an array, and the least that the way from each to each other costs."""

    def __init__(self, dims, axes, price, even=lambda _: True):
        self.types = [type_ for type_ in types(dims, axes) if even(type_)]
        self.place = {type_: at for at, type_ in enumerate(self.types)}
        least = np.full((len(self.types),) * 2, np.inf)
        for (i, old), (j, new) in product(enumerate(self.types), repeat=2):
            if old == new:
                least[i, j] = 0
            elif known := one_move(old, new):
                least[i, j] = price(Move(*known, old, new))
        for via in range(len(self.types)):
            least = np.minimum(least, least[:, via, None] + least[via])
        self.least = least


class Products:
    """Every product of two arrays that meet in any of their types.

    dims  of the operands and of the result
    work  what the product costs, by the axes that split it
    """

    def __init__(self, dims, axes, price, work, even=lambda _: True):
        self.dims = dims
        self.arrays = [Array(own, axes, price, even) for own in dims]
        met = [(i, j, *self._met(a, b)) for i, a in enumerate(self.left.types) for j, b in enumerate(self.right.types)]
        self.meetings = np.array([(i, j, self.arrays[2].place[c]) for i, j, c, _ in met if c in self.arrays[2].place])
        self.work = np.array([work(used) for *_, c, used in met if c in self.arrays[2].place])

    @property
    def left(self):
        return self.arrays[0]

    @property
    def right(self):
        return self.arrays[1]

    def _met(self, a, b):
        """What the product of two types is of, and the axes that split it; nothing if their blocks do not meet."""
        split = dict(zip(a.dims, a.on, strict=True)) | dict(zip(b.dims, b.on, strict=True))
        used = [axis for axes in split.values() for axis in axes]
        owed = [*a.owed_axes, *b.owed_axes]
        alike = all(a.axes(dim) == b.axes(dim) for dim in a.dims if dim in b.dims)
        if not alike or len(set(used + owed)) < len(used + owed):
            return None, used
        out = self.dims[2]
        summed = [axis for dim, axes in split.items() if dim not in out for axis in axes]
        owes = frozenset((axis, "sum") for axis in (*owed, *summed))
        return Sharding(tuple(out), tuple(split[dim] for dim in out), owes), used

    def cheapest(self, left, right, out):
        """The least that any way costs from these types of the operands to this one of the result."""
        (i, j, k), (a, b, c) = self.meetings.T, self.arrays
        there = a.least[a.place[left], i] + b.least[b.place[right], j]
        return (there + self.work + c.least[k, c.place[out]]).min(initial=np.inf)


def elements(move, dims, sizes):
    """Elements of the whole array that takes part in a move."""
    held = prod(dims[dim] for dim in move.before.dims) / prod(sizes[axis] for axis in move.before.sharded_axes)
    return held * (1 if "reduce" in move.kind else prod(sizes[axis] for axis in move.axes))
