"""The ways from one array type to another: the book's greedy path and the cheapest path."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.moves import Move, MoveKind, idle, move
from tpsim.algebra.sharding import Sharding, ShardingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tpsim.algebra.search import Graph, Search


def book_path(
    src: Sharding, dst: Sharding, order: Sequence[str], known: Callable[[Move], bool] = lambda _: True
) -> tuple[Move, ...]:
    """The moves that the book would make from `src` to `dst`; none if they are the same type.

    Greedy and purely structural: slice > reduce-scatter > all-to-all > all-reduce > all-gather, at the minor end of a
    dim only (so nothing is ever permuted). Neighbouring gathers, scatters and slices are one over the axes' product,
    whatever dims they lie on.
    order  mesh axes, major first: the order in which an all-reduce names its axes
    known  whether a move has a price: without one neighbours stay apart
    Raises ShardingError if no path exists (the wanted type owes what the given one does not).

    >>> src, dst = Sharding(("I", "J"), (("X",), ("Y",))), Sharding(("I", "J"), ((), ()))
    >>> [(move.kind, move.axes, move.gathered) for move in book_path(src, dst, ("X", "Y"))]
    [('all_gather', ('X', 'Y'), (('I', ('X',)), ('J', ('Y',))))]
    """
    reachable(src, dst)
    moves: list[Move] = []
    now = src
    while now != dst:
        kind, after = next(_greedy(now, dst))
        moves.append(move(kind, now, after, order))
        now = after
    return joined(moves, ("slice", "all_gather", "reduce_scatter"), known)


def reachable(src: Sharding, dst: Sharding) -> None:
    """Raise ShardingError if no moves lead from `src` to `dst`."""
    if src.dims != dst.dims:
        raise ShardingError(f"{src} cannot become {dst}: a move keeps the dims and their order")
    new = sorted(axis for axis, _ in dst.owes - src.owes)
    if new:
        raise ShardingError(f"{src} cannot become {dst}: no move makes an array owe over {', '.join(new)}")


Step = tuple["MoveKind", Sharding]
"""A move and the type that it leads to."""


def _greedy(now: Sharding, dst: Sharding) -> Iterator[Step]:
    """Every useful move from `now`, best first by the book's preference."""
    yield from _slices(now, dst)
    yield from _scatters(now, dst)
    yield from _exchanges(now, dst)
    yield from _reductions(now, dst)
    yield from _gathers(now, dst)


def _wanted(now: Sharding, dst: Sharding) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Dims that only lack axes at their minor end, with the axes they lack."""
    for dim, source, want in zip(now.dims, now.on, dst.on, strict=True):
        if len(source) < len(want) and want[: len(source)] == source:
            yield dim, want[len(source) :]


def _slices(now: Sharding, dst: Sharding) -> Iterator[Step]:
    for dim, lacking in _wanted(now, dst):
        if idle(now, lacking[:1]):
            yield "slice", _laid(now, dim, lacking[:1])


def _scatters(now: Sharding, dst: Sharding) -> Iterator[Step]:
    for dim, lacking in _wanted(now, dst):
        if (lacking[0], "sum") in now.owes:
            yield "reduce_scatter", _laid(now, dim, lacking[:1])


def _exchanges(now: Sharding, dst: Sharding) -> Iterator[Step]:
    """All-to-alls of as many axes at once as stand in the same order at both ends."""
    for to_dim, lacking in _wanted(now, dst):
        for dim, axes in zip(now.dims, now.on, strict=True):
            for size in range(min(len(axes), len(lacking)), 0, -1):
                if dim != to_dim and axes[-size:] == lacking[:size]:
                    yield "all_to_all", _laid(now.with_axes(dim, axes[:-size]), to_dim, lacking[:size])


def _reductions(now: Sharding, dst: Sharding) -> Iterator[Step]:
    """One all-reduce of every owed sum (then of every owed max) that no dim of `dst` takes up."""
    for kind in ("sum", "max"):
        taken_up = dst.sharded_axes if kind == "sum" else ()
        settled = {(axis, owed) for axis, owed in now.owes - dst.owes if owed == kind and axis not in taken_up}
        if settled:
            yield "all_reduce", now.owing(now.owes - settled)


def _gathers(now: Sharding, dst: Sharding) -> Iterator[Step]:
    for dim, source, want in zip(now.dims, now.on, dst.on, strict=True):
        if want[: len(source)] != source:
            yield "all_gather", now.with_axes(dim, source[:-1])


def _laid(now: Sharding, dim: str, axes: tuple[str, ...]) -> Sharding:
    """`now` with `dim` split further by `axes`; what was owed over them is settled."""
    return now.owing(owed for owed in now.owes if owed[0] not in axes).with_axes(dim, now.axes(dim) + axes)


def joined(moves: Sequence[Move], kinds: Sequence[MoveKind], known: Callable[[Move], bool]) -> tuple[Move, ...]:
    """The same moves with neighbours of one of these kinds as one, over the axes of both and on the dims of both."""
    path: list[Move] = []
    for step in moves:
        alike = bool(path) and step.kind == path[-1].kind and step.kind in kinds
        both = move(step.kind, path[-1].before, step.after, ()) if alike else step
        path[-1:] = [both] if not path or (alike and known(both)) else [path[-1], step]
    return tuple(path)


def cheap(moves: Sequence[Move]) -> tuple[Move, ...]:
    """A way that a search has found, with its free slices joined: of what is paid the search has priced both."""
    return joined(moves, ("slice",), lambda _: True)


class Routes:
    """The cheapest ways between array types, with the price of each move worked out once.

    order  the mesh axes that may take part. One that is in neither type is used too where it pays: sliced for free at
           first and gathered at last; leave it out to keep it idle
    price  what one move costs, as `Graph` takes it; infinity forbids a move
    even   whether an array can have a type
    """

    def __init__(
        self, order: Sequence[str], price: Callable[[Move], Any], even: Callable[[Sharding], bool] = lambda _: True
    ) -> None:
        self._order, self._price, self._even = order, price, even
        self._graphs: dict[tuple[str, ...], Graph] = {}
        self._searches: dict[Sharding, Search] = {}

    def path(self, src: Sharding, dst: Sharding) -> tuple[Move, ...]:
        """The cheapest moves from `src` to `dst`; fewer collectives, then fewer moves, among equals.

        Never dearer than the book's. Raises ShardingError if no path exists, or only ones of infinite price.
        """
        from tpsim.algebra.search import Graph, Search

        reachable(src, dst)
        if src not in self._searches:
            graph = self._graphs.setdefault(src.dims, Graph(src.dims, self._order, self._price, self._even))
            self._searches[src] = Search(graph, [(src, 0)])
        search = self._searches[src]
        while dst not in search.settled:
            if search.reach == inf:
                raise ShardingError(f"{src} cannot become {dst}: every way needs a split that does not come out even")
            search.settle()
        return cheap(search.way(dst))
