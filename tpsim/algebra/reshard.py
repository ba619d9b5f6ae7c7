"""The ways from one array type to another: the book's greedy path and the cheapest path."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from itertools import combinations, permutations
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.moves import Move
from tpsim.algebra.sharding import Sharding, ShardingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


def book_path(src: Sharding, dst: Sharding, order: Sequence[str]) -> tuple[Move, ...]:
    """The moves that the book would make from `src` to `dst`; none if they are the same type.

    Greedy and purely structural: slice > reduce-scatter > all-to-all > all-reduce > all-gather, at the minor end of a
    dim only (so nothing is ever permuted). Neighbouring moves of one kind are one collective over the axes' product.
    order  mesh axes, major first: the order in which an all-reduce names its axes
    Raises ShardingError if no path exists (the wanted type owes what the given one does not).

    >>> src, dst = Sharding(("I",), ((),), frozenset({("X", "sum")})), Sharding(("I",), (("X",),))
    >>> [(move.kind, move.axes, move.dim) for move in book_path(src, dst, ("X",))]
    [('reduce_scatter', ('X',), 'I')]
    """
    reachable(src, dst)
    moves: list[Move] = []
    now = src
    while now != dst:
        move = next(_greedy(now, dst, order))
        moves = _joined(moves, move)
        now = move.after
    return tuple(moves)


def reachable(src: Sharding, dst: Sharding) -> None:
    """Raise ShardingError if no moves lead from `src` to `dst`."""
    if src.dims != dst.dims:
        raise ShardingError(f"{src} cannot become {dst}: a move keeps the dims and their order")
    new = sorted(axis for axis, _ in dst.owes - src.owes)
    if new:
        raise ShardingError(f"{src} cannot become {dst}: no move makes an array owe over {', '.join(new)}")


def _greedy(now: Sharding, dst: Sharding, order: Sequence[str]) -> Iterator[Move]:
    """Every useful move from `now`, best first by the book's preference."""
    yield from _slices(now, dst)
    yield from _scatters(now, dst)
    yield from _exchanges(now, dst)
    yield from _reductions(now, dst, order)
    yield from _gathers(now, dst)


def _wanted(now: Sharding, dst: Sharding) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Dims that only lack axes at their minor end, with the axes they lack."""
    for dim, have, want in zip(now.dims, now.on, dst.on, strict=True):
        if len(have) < len(want) and want[: len(have)] == have:
            yield dim, want[len(have) :]


def _slices(now: Sharding, dst: Sharding) -> Iterator[Move]:
    for dim, lacking in _wanted(now, dst):
        if lacking[0] not in now.owed_axes and lacking[0] not in now.sharded_axes:
            yield slice_of(now, dim, lacking[:1])


def _scatters(now: Sharding, dst: Sharding) -> Iterator[Move]:
    for dim, lacking in _wanted(now, dst):
        if (lacking[0], "sum") in now.owes:
            yield reduce_scatter(now, dim, lacking[:1])


def _exchanges(now: Sharding, dst: Sharding) -> Iterator[Move]:
    """All-to-alls of as many axes at once as stand in the same order at both ends."""
    for to_dim, lacking in _wanted(now, dst):
        for dim, have in zip(now.dims, now.on, strict=True):
            for size in range(min(len(have), len(lacking)), 0, -1):
                if dim != to_dim and have[-size:] == lacking[:size]:
                    yield all_to_all(now, dim, to_dim, lacking[:size])


def _reductions(now: Sharding, dst: Sharding, order: Sequence[str]) -> Iterator[Move]:
    """One all-reduce of every owed sum (then of every owed max) that no dim of `dst` takes up."""
    for kind in ("sum", "max"):
        taken_up = dst.sharded_axes if kind == "sum" else ()
        settled = {axis for axis, owed in now.owes - dst.owes if owed == kind and axis not in taken_up}
        if settled:
            yield all_reduce(now, tuple(sorted(settled, key=order.index)))


def _gathers(now: Sharding, dst: Sharding) -> Iterator[Move]:
    for dim, have, want in zip(now.dims, now.on, dst.on, strict=True):
        if want[: len(have)] != have:
            yield all_gather(now, dim, have[-1:])


def slice_of(now: Sharding, dim: str, axes: tuple[str, ...]) -> Move:
    """Each device keeps its own part of `dim`: free, and `axes` become the minor axes of the dim."""
    return Move("slice", axes, now, now.with_axes(dim, now.axes(dim) + axes), dim=dim)


def all_gather(now: Sharding, dim: str, axes: tuple[str, ...]) -> Move:
    """The minor `axes` of `dim` are given up: every device ends with the whole of what they split."""
    return Move("all_gather", axes, now, now.with_axes(dim, now.axes(dim)[: -len(axes)]), dim=dim)


def reduce_scatter(now: Sharding, dim: str, axes: tuple[str, ...]) -> Move:
    """The sums owed over `axes` are taken, and each device keeps its part along `dim`."""
    settled = now.owing(owed for owed in now.owes if owed[0] not in axes)
    return Move("reduce_scatter", axes, now, settled.with_axes(dim, now.axes(dim) + axes), dim=dim)


def all_reduce(now: Sharding, axes: tuple[str, ...]) -> Move:
    """What is owed over `axes` is settled, and every device holds the result."""
    return Move("all_reduce", axes, now, now.owing(owed for owed in now.owes if owed[0] not in axes))


def all_to_all(now: Sharding, dim: str, to_dim: str, axes: tuple[str, ...]) -> Move:
    """The minor `axes` of `dim` become the minor axes of `to_dim`, in the same order."""
    given_up = now.with_axes(dim, now.axes(dim)[: -len(axes)])
    return Move("all_to_all", axes, now, given_up.with_axes(to_dim, now.axes(to_dim) + axes), dim=dim, to_dim=to_dim)


def _joined(moves: list[Move], move: Move) -> list[Move]:
    """`moves` and `move`, as one collective where the last is of the same kind on the same dim."""
    last = moves[-1] if moves else None
    alike = last is not None and (last.kind, last.dim) == (move.kind, move.dim)
    if last is None or not alike or move.kind not in ("slice", "all_gather", "reduce_scatter"):
        return [*moves, move]
    # A gather takes the minor axis first, the others lay the major axis first: axes stay positional, major first.
    axes = move.axes + last.axes if move.kind == "all_gather" else last.axes + move.axes
    return [*moves[:-1], replace(move, axes=axes, before=last.before)]


class Routes:
    """The graph of array types: moves between them with their prices, each worked out once.

    order  the mesh axes that may take part. One that is in neither type is used too where it pays: sliced for free at
           first and gathered at last; leave it out to keep it idle
    price  what one move costs: any numbers that add up; infinity forbids a move
    """

    def __init__(self, order: Sequence[str], price: Callable[[Move], Any]) -> None:
        """A graph without any type visited yet."""
        self.order = tuple(order)
        self._price = price
        # Types are numbered as they are met: a search compares and hashes numbers, which is ten times as fast.
        self._types: list[Sharding] = []
        self._numbers: dict[Sharding, int] = {}
        self._leaving: dict[int, tuple[tuple[Any, int, Move], ...]] = {}
        self._found: dict[tuple[Sharding, Sharding], tuple[Move, ...]] = {}

    def path(self, src: Sharding, dst: Sharding) -> tuple[Move, ...]:
        """The cheapest moves from `src` to `dst`; fewer moves among equals. Never dearer than the book's.

        Raises ShardingError if no path exists, or only ones of infinite price.
        """
        if (src, dst) not in self._found:
            reachable(src, dst)
            self._found[src, dst] = self._search(src, dst)
        return self._found[src, dst]

    def _search(self, src: Sharding, dst: Sharding) -> tuple[Move, ...]:
        """Dijkstra's algorithm over types."""
        start, goal = self._number(src), self._number(dst)
        queue: list[tuple[Any, int, int]] = [(0, 0, start)]
        best: dict[int, tuple[Any, int]] = {start: (0, 0)}
        last: dict[int, Move] = {}
        while queue:
            cost, length, now = heappop(queue)
            if now == goal:
                return self._walk(last, start, goal)
            if (cost, length) != best[now] or not dst.owes <= self._types[now].owes:
                continue
            for price, after, move in self._moves_from(now):
                offer = (cost + price, length + 1)
                if after not in best or offer < best[after]:
                    best[after], last[after] = offer, move
                    heappush(queue, (*offer, after))
        raise ShardingError(f"{src} cannot become {dst}: every way needs a split that does not come out even")

    def _number(self, type_: Sharding) -> int:
        if type_ not in self._numbers:
            self._numbers[type_] = len(self._types)
            self._types.append(type_)
        return self._numbers[type_]

    def _moves_from(self, now: int) -> tuple[tuple[Any, int, Move], ...]:
        if now not in self._leaving:
            priced = ((self._price(move), move) for move in every_move(self._types[now], self.order))
            self._leaving[now] = tuple((cost, self._number(move.after), move) for cost, move in priced if cost != inf)
        return self._leaving[now]

    def _walk(self, last: Mapping[int, Move], start: int, goal: int) -> tuple[Move, ...]:
        """The moves that led from one type to the other, with neighbouring slices of one dim written as one."""
        backwards = []
        while goal != start:
            backwards.append(last[goal])
            goal = self._number(last[goal].before)
        moves: list[Move] = []
        for move in reversed(backwards):
            # Only what is free is joined here: for the others the search has already priced both ways.
            moves = _joined(moves, move) if move.kind == "slice" else [*moves, move]
        return tuple(moves)


def cheapest_path(src: Sharding, dst: Sharding, order: Sequence[str], price: Callable[[Move], Any]) -> tuple[Move, ...]:
    """The moves from `src` to `dst` of least total price, among all types and all moves, permutes included.

    order  mesh axes, major first, that may take part
    price  what one move costs, as numbers that compare: bytes or seconds; infinity forbids a move

    >>> by_axes = lambda move: 0 if move.kind == "slice" else len(move.axes)
    >>> src, dst = Sharding(("I", "J"), (("X",), ())), Sharding(("I", "J"), ((), ("X",)))
    >>> [move.kind for move in cheapest_path(src, dst, ("X",), by_axes)]
    ['all_to_all']
    """
    return Routes(order, price).path(src, dst)


def every_move(now: Sharding, order: Sequence[str]) -> Iterator[Move]:
    """Every move that is legal on an array of type `now`, over one or several axes at once."""
    free = [axis for axis in order if axis not in now.owed_axes and axis not in now.sharded_axes]
    yield from (slice_of(now, dim, (axis,)) for dim in now.dims for axis in free)
    sums = [axis for axis in order if (axis, "sum") in now.owes]
    for axes in _selections(sums, permutations):
        yield from (reduce_scatter(now, dim, axes) for dim in now.dims)
    maxima = [axis for axis in order if (axis, "max") in now.owes]
    for owed in (sums, maxima):
        yield from (all_reduce(now, axes) for axes in _selections(owed, combinations))
    for dim, have in zip(now.dims, now.on, strict=True):
        for start in range(len(have)):
            yield all_gather(now, dim, have[start:])
            yield from (all_to_all(now, dim, other, have[start:]) for other in now.dims if other != dim)
        yield from (permute(now, dim, axes) for axes in permutations(have) if axes != have)


def _selections(
    axes: Sequence[str], ways: Callable[[Sequence[str], int], Iterable[tuple[str, ...]]]
) -> Iterator[tuple[str, ...]]:
    for size in range(1, len(axes) + 1):
        yield from ways(axes, size)


def permute(now: Sharding, dim: str, axes: tuple[str, ...]) -> Move:
    """The shards of `dim` change places among the devices, so that `axes` shard it in this order.

    The devices of the run from the first to the last axis that changes place take part, major first.
    """
    have = now.axes(dim)
    changed = [place for place, (old, new) in enumerate(zip(have, axes, strict=True)) if old != new]
    return Move("permute", have[changed[0] : changed[-1] + 1], now, now.with_axes(dim, axes))
