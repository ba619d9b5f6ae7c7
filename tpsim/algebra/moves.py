"""The moves: what may change an array's type and into what, how many bytes take part (V) and how many are injected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, combinations_with_replacement, pairwise, permutations
from itertools import product as choices
from typing import Any, Literal

from tpsim.algebra.sharding import Owed, OwedKind, Sharding
from tpsim.quantity.size import Size, over, product, where_many

MoveKind = Literal[
    "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "slice", "send", "load", "store"
]
MOVES: tuple[MoveKind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "slice")


Cuts = tuple[tuple[str, tuple[str, ...]], ...]
"""Dims with the mesh axes by which one type splits them further than another, major first."""


@dataclass(frozen=True, slots=True)
class Move:
    """One collective (or the free slice) that turns an array of type `before` into type `after`.

    axes     the mesh axes that take part together, major first; of several dims those of the first dim come first
    members  how many of the devices along them take part; None: all
    streamed  block after block by hops to the next device, beside what is made of each; what it moves is the same. A
              permute that changes nothing is one such hop: it brings home the sums of a scatter that began there

    A send goes from each device to its like on another rank of a pipeline: V is what one device holds. So it is of a
    load, from a device's host to the device, and of a store, from the device to its host: no other takes part.
    """

    kind: MoveKind
    axes: tuple[str, ...]
    before: Sharding
    after: Sharding
    members: int | None = None
    streamed: bool = False

    @property
    def travels(self) -> bool:
        """True for what comes to a device, or leaves it, without any other device."""
        return self.kind in HOMEWARD

    @property
    def gathered(self) -> Cuts:
        """The dims that give up minor axes: in a gather each device ends with the whole of what these split."""
        return cut(self.before, self.after)

    @property
    def scattered(self) -> Cuts:
        """The dims that take up minor axes: in a slice, a scatter or an all-to-all a device keeps one part of these."""
        return cut(self.after, self.before)

    @property
    def reordered(self) -> tuple[str, ...]:
        """`axes` in the order in which they shard afterwards, major first: what a permute changes."""
        return reordered(self.before, self.after)[1] if self.kind == "permute" and not self.streamed else self.axes

    def ranks(self, axes: Mapping[str, Size]) -> Any:
        """Devices that take part in one such collective."""
        return self.members or product(axes[axis] for axis in self.axes)

    def logical_elements(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """Elements of the full array taking part, per remaining shard of the other axes (V in elements).

        An all-to-all and a permute count the whole array over their axes too.
        """
        return self.taking_part(self.before.local_elements(dims, axes), axes)

    def taking_part(self, array_bytes: Any, axes: Mapping[str, Size]) -> Any:
        """The same, of what one device holds before."""
        return array_bytes * self.ranks(axes) if self.kind in GATHERED else array_bytes


def cut(fine: Sharding, coarse: Sharding) -> Cuts:
    """The dims that `fine` splits by more axes than `coarse`, with the minor axes that it has more."""
    dims = zip(fine.dims, fine.on, coarse.on, strict=True)
    return tuple((dim, axes[len(kept) :]) for dim, axes, kept in dims if len(axes) > len(kept))


def reordered(before: Sharding, after: Sharding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The run of axes that change places on one dim, from the first to the last of them, as it was and as it comes."""
    ((source, want),) = ((source, want) for source, want in zip(before.on, after.on, strict=True) if source != want)
    changed = [place for place, (old, new) in enumerate(zip(source, want, strict=True)) if old != new]
    run = slice(changed[0], changed[-1] + 1)
    return source[run], want[run]


GATHERED = frozenset({"all_gather", "all_to_all", "permute"})
"""Moves that start from a shard: V is what a device holds before, times the ranks."""


WIRE: Mapping[MoveKind, Callable[[Size, Size], Any]] = {
    "all_gather": lambda V, n: over(V * (n - 1), n),
    "reduce_scatter": lambda V, n: over(V * (n - 1), n),
    "all_reduce": lambda V, n: over(2 * V * (n - 1), n),
    "all_to_all": lambda V, n: over(V * (n - 1), n * n),
    "permute": lambda V, n: where_many(n, over(V, n)),
    "slice": lambda V, n: 0 * V * n,
    "send": lambda V, n: V,  # noqa: ARG005 - from one device to another, however many there are
    "load": lambda V, n: V,  # noqa: ARG005 - from the host of one device
    "store": lambda V, n: V,  # noqa: ARG005
}

HOMEWARD: frozenset[MoveKind] = frozenset({"load", "store"})
"""Moves between a device and its host."""


def wire(kind: MoveKind, V: Size, n: Size) -> Any:
    """Bytes that one device must inject, whatever algorithm runs.

    V  bytes of the full array taking part; n devices on the axis
    all-gather, reduce-scatter V(n-1)/n; all-reduce 2V(n-1)/n; all-to-all V(n-1)/n^2; permute V/n
    slice 0; one device injects nothing
    Source: How to Scale Your Model, chapter 3, with the finite factor (n-1)/n; proved by execution in tests/reference.

    >>> wire("all_reduce", 50_331_648, 8)
    88080384
    """
    return WIRE[kind](V, n)


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
    for dim, own in enumerate(on):
        for axes, kept in _parted(own, loose):
            rest = (*on[:dim], kept, *on[dim + 1 :])
            for other in range(len(on)):
                if other != dim:
                    yield "all_to_all", axes, (*rest[:other], _joined(rest[other], axes, loose), *rest[other + 1 :])
        for axes in () if loose else permutations(own):
            if axes != own:
                yield "permute", axes, (*on[:dim], axes, *on[dim + 1 :])


def _coarser(on: On, loose: bool) -> Iterator[tuple[Axes, On]]:
    """Axes that one or several dims may give up, and the dims without them."""
    for parted in choices(*((((), axes), *_parted(axes, loose)) for axes in on)):
        gathered = tuple(chain.from_iterable(gathered for gathered, _ in parted))
        if gathered:
            yield gathered, tuple(kept for _, kept in parted)


def _parted(axes: Axes, loose: bool) -> Iterator[tuple[Axes, Axes]]:
    """What a dim may give up, and what it then keeps: the minor axes, or any if their order does not matter."""
    if loose:
        yield from ((chosen, tuple(axis for axis in axes if axis not in chosen)) for chosen in _selections(axes))
    else:
        yield from ((axes[size:], axes[:size]) for size in range(len(axes)))


def _finer(on: On, axes: Sequence[str], most: int, loose: bool) -> Iterator[tuple[Axes, On]]:
    """One to `most` of `axes`, and dims with these at their minor ends, in any order."""
    placed = _sets if loose else _rows
    for size in range(1, most + 1 if on else 0):
        for chosen, parts in placed(axes, size, len(on)):
            yield chosen, tuple(_joined(axes, more, loose) for axes, more in zip(on, parts, strict=True))


def _rows(axes: Sequence[str], size: int, dims: int) -> Iterator[tuple[Axes, On]]:
    """So many of `axes` on dims, in every order."""
    for chosen in permutations(axes, size):
        for inner in combinations_with_replacement(range(size + 1), dims - 1):
            yield chosen, tuple(chosen[start:stop] for start, stop in pairwise((0, *inner, size)))


def _sets(axes: Sequence[str], size: int, dims: int) -> Iterator[tuple[Axes, On]]:
    """So many of `axes` on dims, whatever their order."""
    for chosen in combinations(axes, size):
        for homes in choices(range(dims), repeat=size):
            at_home = list(zip(chosen, homes, strict=True))
            yield chosen, tuple(tuple(axis for axis, home in at_home if home == dim) for dim in range(dims))


def _joined(axes: Axes, more: Axes, loose: bool) -> Axes:
    return tuple(sorted(axes + more)) if loose and more else axes + more


def _selections(axes: Sequence[str]) -> Iterator[Axes]:
    for size in range(1, len(axes) + 1):
        yield from combinations(axes, size)


def as_streamed(moves: tuple[Move, ...], dim: str, *, circle: bool) -> tuple[Move, ...]:
    """The moves with a scatter that comes first, but for slices, streamed, else a gather that comes last.

    Behind a scatter a gather undoes what was sliced before blocks came: it is no part of the stream. Nor is what a
    gather brings together of other dims than that whose blocks come: it is made before.
    """
    if moves and moves[-1].kind == "all_gather":
        *others, last = moves
        between = last.after.with_axes(dim, last.before.axes(dim))
        parts = ((last.before, between), (between, last.after))
        moves = (*others, *(move("all_gather", *ends, ()) for ends in parts if ends[0] != ends[1]))
    first = next((at for at, one in enumerate(moves) if one.kind != "slice"), 0)
    scattered = bool(moves) and moves[first].kind == "reduce_scatter"
    kind, place = ("reduce_scatter", first) if scattered else ("all_gather", len(moves) - 1)
    streamed = [replace(one, streamed=(one.kind, at) == (kind, place)) for at, one in enumerate(moves)]
    if circle and scattered:
        sums = streamed[first]
        streamed.insert(first + 1, Move("permute", sums.axes, sums.after, sums.after, streamed=True))
    return tuple(streamed)
