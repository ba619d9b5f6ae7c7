"""The graph of array types: every move out of a type, and every move into one."""

from __future__ import annotations

from itertools import chain, combinations, combinations_with_replacement, pairwise, permutations, product
from typing import TYPE_CHECKING

from tpsim.algebra.moves import Move, cut, reordered
from tpsim.algebra.sharding import Owed, OwedKind, Sharding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpsim.algebra.moves import MoveKind

Axes = tuple[str, ...]
On = tuple[Axes, ...]
"""The axes of each dim."""
Neighbour = tuple["MoveKind", Axes, On, frozenset[Owed]]
"""A move, the axes that take part, and the type at its other end: the axes of its dims, and what is owed there."""

KINDS: tuple[OwedKind, ...] = ("sum", "max")


def move(kind: MoveKind, before: Sharding, after: Sharding, order: Sequence[str]) -> Move:
    """The move of a kind between two types: these say which axes take part.

    slice           each device keeps its own part of the dims that `after` splits further: free
    all_gather      the minor axes that `after` lacks are given up: every device ends with the whole of what they split
    reduce_scatter  the sums owed over the axes that `after` has more are taken, and each device keeps its part there
    all_reduce      what `after` no longer owes is settled, and every device holds the result; axes as in `order`
    all_to_all      the minor axes of one dim become the minor axes of another, in the same order
    permute         shards change places so that the same axes shard a dim in another order: the devices of the run from
                    the first to the last axis that changes place take part
    """
    if kind == "all_reduce":
        settled = before.owed_axes - after.owed_axes
        axes = tuple(axis for axis in order if axis in settled)
    elif kind == "permute":
        axes, _ = reordered(before, after)
    else:
        axes = tuple(chain.from_iterable(minor for _, minor in cut(before, after) or cut(after, before)))
    return Move(kind, axes, before, after)


def leaving(now: Sharding, order: Sequence[str], *, loose: bool = False) -> Iterator[Neighbour]:
    """Every legal move out of a type, over one or several axes and dims at once.

    Slices take one axis each: several are as free as one. An all-to-all changes one dim for one other.
    loose  the order of the axes on a dim is forgotten: any of them may be given up, and there are no permutes
    """
    yield from (("slice", axes, on, now.owes) for axes, on in _finer(now.on, idle(now, order), 1, loose))
    for kind in KINDS:
        owed = [axis for axis in order if (axis, kind) in now.owes]
        for axes in _selections(owed):
            yield "all_reduce", axes, now.on, now.owes.difference((axis, kind) for axis in axes)
        for axes, on in _finer(now.on, owed, len(owed), loose) if kind == "sum" else ():
            yield "reduce_scatter", axes, on, now.owes.difference((axis, kind) for axis in axes)
    yield from (("all_gather", axes, on, now.owes) for axes, on in _coarser(now.on, loose))
    yield from ((kind, axes, on, now.owes) for kind, axes, on in _within(now.on, loose))


def entering(end: Sharding, order: Sequence[str], *, loose: bool = False) -> Iterator[Neighbour]:
    """Every legal move into a type: what `leaving` has, seen from the other side."""
    free = idle(end, order)
    kinds = [kind for kind in KINDS if all(kind == owed for _, owed in end.owes)]
    for axes, on in _coarser(end.on, loose):
        if len(axes) == 1:
            yield "slice", axes, on, end.owes
        if "sum" in kinds:
            yield "reduce_scatter", axes, on, end.owes.union((axis, "sum") for axis in axes)
    for kind in kinds:
        yield from (("all_reduce", axes, end.on, end.owes.union((a, kind) for a in axes)) for axes in _selections(free))
    yield from (("all_gather", axes, on, end.owes) for axes, on in _finer(end.on, free, len(free), loose))
    yield from ((kind, axes, on, end.owes) for kind, axes, on in _within(end.on, loose))


def idle(type_: Sharding, order: Sequence[str]) -> list[str]:
    """The axes that neither shard a dim nor carry a sum."""
    busy = {*type_.owed_axes, *type_.sharded_axes}
    return [axis for axis in order if axis not in busy]


def _within(on: On, loose: bool) -> Iterator[tuple[MoveKind, Axes, On]]:
    """Moves that split an array as finely as before, each undone by one of its like: all-to-alls and permutes."""
    for dim, have in enumerate(on):
        for axes, kept in _parted(have, loose):
            rest = (*on[:dim], kept, *on[dim + 1 :])
            for other in range(len(on)):
                if other != dim:
                    yield "all_to_all", axes, (*rest[:other], _joined(rest[other], axes, loose), *rest[other + 1 :])
        for axes in () if loose else permutations(have):
            if axes != have:
                yield "permute", axes, (*on[:dim], axes, *on[dim + 1 :])


def _coarser(on: On, loose: bool) -> Iterator[tuple[Axes, On]]:
    """Axes that one or several dims may give up, and the dims without them."""
    for parted in product(*((((), axes), *_parted(axes, loose)) for axes in on)):
        given = tuple(chain.from_iterable(given for given, _ in parted))
        if given:
            yield given, tuple(kept for _, kept in parted)


def _parted(axes: Axes, loose: bool) -> Iterator[tuple[Axes, Axes]]:
    """What a dim may give up, and what it then keeps: the minor axes, or any if their order does not matter."""
    if loose:
        yield from ((given, tuple(axis for axis in axes if axis not in given)) for given in _selections(axes))
    else:
        yield from ((axes[size:], axes[:size]) for size in range(len(axes)))


def _finer(on: On, axes: Sequence[str], most: int, loose: bool) -> Iterator[tuple[Axes, On]]:
    """One to `most` of `axes`, and dims with these at their minor ends, in any order."""
    placed = _sets if loose else _rows
    for size in range(1, most + 1 if on else 0):
        for chosen, parts in placed(axes, size, len(on)):
            yield chosen, tuple(_joined(have, more, loose) for have, more in zip(on, parts, strict=True))


def _rows(axes: Sequence[str], size: int, dims: int) -> Iterator[tuple[Axes, On]]:
    """So many of `axes` on dims, in every order."""
    for chosen in permutations(axes, size):
        for inner in combinations_with_replacement(range(size + 1), dims - 1):
            yield chosen, tuple(chosen[start:stop] for start, stop in pairwise((0, *inner, size)))


def _sets(axes: Sequence[str], size: int, dims: int) -> Iterator[tuple[Axes, On]]:
    """So many of `axes` on dims, whatever their order."""
    for chosen in combinations(axes, size):
        for homes in product(range(dims), repeat=size):
            at_home = list(zip(chosen, homes, strict=True))
            yield chosen, tuple(tuple(axis for axis, home in at_home if home == dim) for dim in range(dims))


def _joined(have: Axes, more: Axes, loose: bool) -> Axes:
    return tuple(sorted(have + more)) if loose and more else have + more


def _selections(axes: Sequence[str]) -> Iterator[Axes]:
    for size in range(1, len(axes) + 1):
        yield from combinations(axes, size)
