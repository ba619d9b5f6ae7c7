"""A* over array types: the cheapest ways out of types, or into them, as far as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any

from tpsim.algebra.moves import Axes, Move, MoveKind, On, entering, leaving, move, reordered
from tpsim.algebra.sharding import Owed, Sharding

Cost = tuple[Any, int, int]
"""What orders ways: price, then collectives, then moves."""


@dataclass(slots=True)
class Graph:
    """The types of one array, numbered as they are met, and the moves between them.

    dims   of the array
    order  mesh axes, major first, that may take part
    price  what a move costs, as numbers that compare; infinity forbids it. Moves of one kind over the same axes of an
           array that is split as finely cost the same; permutes do if they change the same axes alike
    even   whether an array can have a type
    loose  the order of axes on a dim is forgotten: every way with it is one without it, at a price no higher
    """

    dims: tuple[str, ...]
    order: Sequence[str]
    price: Callable[[Move], Any]
    even: Callable[[Sharding], bool]
    loose: bool = False
    types: list[Sharding] = field(default_factory=list)
    _numbers: dict[tuple[On, frozenset[Owed]], int] = field(default_factory=dict)
    _prices: dict[Hashable, Any] = field(default_factory=dict)

    def number(self, on: On, owes: frozenset[Owed]) -> int:
        """A search compares and hashes numbers, which is ten times as fast as types. Negative for what cannot be."""
        known = self._numbers.get((on, owes))
        if known is None:
            type_ = Sharding(self.dims, on, owes)
            known = len(self.types) if self.even(type_) else -1
            self._numbers[on, owes] = known
            if known >= 0:
                self.types.append(type_)
        return known

    def neighbours(self, at: int, *, back: bool) -> Iterator[tuple[MoveKind, Axes, int]]:
        """The moves out of a type, or into it, with the types at their other ends."""
        moves = (entering if back else leaving)(self.types[at], self.order, loose=self.loose)
        for kind, axes, on, owes in moves:
            beyond = self.number(on, owes)
            if beyond >= 0:
                yield kind, axes, beyond

    def move(self, kind: MoveKind, first: int, last: int) -> Move:
        """The move of a kind between two types; without order, one whose axes stand as it needs them."""
        before, after = self.types[first], self.types[last]
        return move(kind, *(_apart(before, after) if self.loose else (before, after)), self.order)

    def cost(self, kind: MoveKind, axes: Axes, first: int, last: int) -> Any:
        """Its price."""
        before = self.types[first]
        among = reordered(before, self.types[last]) if kind == "permute" else frozenset(axes)
        alike = (kind, among, frozenset(before.sharded_axes))
        if alike not in self._prices:
            self._prices[alike] = self.price(self.move(kind, first, last))
        return self._prices[alike]


def _apart(before: Sharding, after: Sharding) -> tuple[Sharding, Sharding]:
    """Both types with the axes that they share on a dim first, so that what comes or goes is minor."""
    pairs = [(_sharing(source, want), _sharing(want, source)) for source, want in zip(before.on, after.on, strict=True)]
    first, last = zip(*pairs, strict=True) if pairs else ((), ())
    return Sharding(before.dims, first, before.owes), Sharding(after.dims, last, after.owes)


def _sharing(axes: Axes, others: Axes) -> Axes:
    return tuple(sorted(axes, key=lambda axis: (axis not in others, axis)))


@dataclass(slots=True)
class Search:
    """The cheapest ways from some types to all others, or from all others to them, settled one after another.

    starts   where ways begin, and what has been paid there
    ahead    the least that is yet to be paid at a type: what costs more in all comes later. 0 is always right
    settled  what the way to each type costs, as far as the search has come
    tried    moves that have been priced
    """

    graph: Graph
    starts: Iterable[tuple[Sharding, Any]]
    back: bool = False
    ahead: Callable[[Sharding], Any] = lambda _: 0
    settled: dict[Sharding, Cost] = field(default_factory=dict)
    tried: int = 0
    _open: list[tuple[Any, int, int, int]] = field(default_factory=list)
    _best: dict[int, Cost] = field(default_factory=dict)
    _ahead: dict[int, Any] = field(default_factory=dict)
    _last: dict[int, tuple[MoveKind, int]] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for type_, price in self.starts:
            self._offer(self.graph.number(type_.on, type_.owes), (price, 0, 0))

    def _offer(self, at: int, cost: Cost) -> bool:
        """Take up a way to a type if it is the best so far."""
        if at in self._best and self._best[at] <= cost:
            return False
        self._best[at] = cost
        heappush(self._open, (cost[0] + self._yet(at), *cost[1:], at))
        return True

    def _yet(self, at: int) -> Any:
        if at not in self._ahead:
            self._ahead[at] = self.ahead(self.graph.types[at])
        return self._ahead[at]

    @property
    def reach(self) -> Any:
        """The least that a way through a type costs that is not settled; infinity if there is none."""
        while self._open and self._open[0][-1] in self._done:
            heappop(self._open)
        return self._open[0][0] if self._open else inf

    def settle(self) -> Sharding:
        """The next type; only while `reach` is not infinite."""
        at = heappop(self._open)[-1]
        self._done.add(at)
        for kind, axes, beyond in self.graph.neighbours(at, back=self.back):
            # What is settled, or leads nowhere, needs no price: that saves more than half of them.
            if beyond not in self._done and self._yet(beyond) != inf:
                self._follow(at, kind, axes, beyond)
        type_ = self.graph.types[at]
        self.settled[type_] = self._best[at]
        return type_

    def _follow(self, at: int, kind: MoveKind, axes: Axes, beyond: int) -> None:
        self.tried += 1
        paid = self.graph.cost(kind, axes, *((beyond, at) if self.back else (at, beyond)))
        price, calls, steps = self._best[at]
        if paid != inf and self._offer(beyond, (price + paid, calls + (kind != "slice"), steps + 1)):
            self._last[beyond] = (kind, at)

    def way(self, type_: Sharding) -> tuple[Move, ...]:
        """The moves between the start and a settled type, in the order in which they are made."""
        moves = list(self._walk(self.graph.number(type_.on, type_.owes)))
        return tuple(moves if self.back else reversed(moves))

    def _walk(self, at: int) -> Iterator[Move]:
        while at in self._last:
            kind, other = self._last[at]
            yield self.graph.move(kind, *((at, other) if self.back else (other, at)))
            at = other
