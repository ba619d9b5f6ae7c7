"""Where the operands of a product may meet: every pair of types that multiply, with the cheapest moves there and on."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.contract import Contraction, local_product
from tpsim.algebra.search import Cost, Graph, Search
from tpsim.algebra.sharding import Sharding, ShardingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tpsim.algebra.planner import Prices

EFFORT = 15_000
"""Moves that are priced for the sake of other ways than the cheapest: all that there are over three axes."""
MOST = 200_000
"""Moves that one search prices at most: more than all over five axes."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A way: the types in which the operands meet, and what the cheapest moves there and on and the product cost."""

    ready: Contraction
    result: Sharding
    price: Any
    flops: Any
    calls: int
    steps: int

    @property
    def rank(self) -> tuple[Any, Any, int, int]:
        """What orders ways: price, then FLOPs, then calls, then steps."""
        return self.price, self.flops, self.calls, self.steps

    @property
    def types(self) -> tuple[Sharding, Sharding, Sharding]:
        """Of the operands and of the product."""
        (_, left), (_, right) = self.ready.operands
        return left, right, self.result

    def then(self, cost: Cost) -> Meeting:
        """The same with more moves."""
        price, calls, steps = cost
        return Meeting(self.ready, self.result, self.price + price, self.flops, self.calls + calls, self.steps + steps)


Ahead = tuple["Callable[[Sharding], Any]", ...]
"""The least that is yet to be paid at a type of the left operand, of the right one, and of the result."""


@dataclass(slots=True)
class Meetings:
    """Three searches that grow together: out of either operand's type, and back from the type that is wanted.

    A way is found as soon as they have come to its three types. One through a type that a search has not come to costs
    at least what that search reaches: so the cheapest way is known to be it long before all types have been seen.
    loose  the order of axes on a dim is forgotten, which leaves few types
    ways   the ways, as they are met
    """

    ask: Contraction
    wanted: Sharding
    order: Sequence[str]
    prices: Prices
    loose: bool = False
    ahead: Ahead = (lambda _: 0,) * 3
    ways: list[Meeting] = field(default_factory=list)
    searches: tuple[Search, ...] = field(init=False)
    _met: tuple[_Index, _Index] = field(default_factory=lambda: ({}, {}))
    _waiting: dict[Sharding, list[Meeting]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin at the operands' types and at the wanted one."""
        types = (*(type_ for _, type_ in self.ask.operands), self.wanted)
        known = (self.order, self.prices.move, self.prices.even, self.loose)
        self.searches = tuple(
            Search(Graph(type_.dims, *known), [(type_, 0)], back=at == RESULT, ahead=ahead)
            for at, (type_, ahead) in enumerate(zip(types, self.ahead, strict=True))
        )

    @property
    def tried(self) -> int:
        """Moves that have been priced."""
        return sum(search.tried for search in self.searches)

    def search(self, enough: int, most: int) -> Any:
        """Price moves until all ways are found; or until the cheapest is, and `enough` are priced; or `most`.

        The answer is the price up to which all ways have been found; infinity for all.
        """
        best = inf
        while True:
            reaches = [search.reach for search in self.searches]
            horizon = min(reaches)
            if horizon == inf or self.tried > most or (self.tried > enough and horizon > best):
                return horizon
            at = reaches.index(horizon)
            type_, known = self.searches[at].settle(), len(self.ways)
            for meeting in self._waiting.pop(type_, ()) if at == RESULT else self._paired(at, type_):
                self._note(meeting)
            best = min([best, *(way.price for way in self.ways[known:])])

    def _paired(self, side: int, type_: Sharding) -> Iterator[Meeting]:
        """A type of one operand brought together with all of the other that split the shared dims alike."""
        split = tuple(type_.axes(dim) for dim in self.ask.shared)
        own = {axis for dim in type_.dims if dim not in self.ask.shared for axis in type_.axes(dim)}
        busy = frozenset(own | type_.owed_axes)
        self._met[side].setdefault(split, {}).setdefault(busy, []).append(type_)
        for axes, types in self._met[1 - side].get(split, {}).items():
            for other in types if busy.isdisjoint(axes) else ():
                yield from self._meeting(*((other, type_) if side else (type_, other)))

    def _meeting(self, left: Sharding, right: Sharding) -> Iterator[Meeting]:
        """The operands in these types, unless the law of owed sums forbids their product."""
        ready = self.ask.between(left, right)
        try:
            result = local_product(ready)
        except ShardingError:
            return
        work = self.prices.flops(ready)
        alone = Meeting(ready, result, self.prices.product(work), work, 0, 1)
        yield alone.then(self.searches[0].settled[left]).then(self.searches[1].settled[right])

    def _note(self, meeting: Meeting) -> None:
        """Take up operands that meet: a way, if the result's search has come to their product."""
        settled = self.searches[RESULT].settled
        if meeting.result not in settled:
            self._waiting.setdefault(meeting.result, []).append(meeting)
        elif meeting.price != inf:
            self.ways.append(meeting.then(settled[meeting.result]))

    def least_ahead(self) -> Ahead:
        """What is yet to be paid at least at a type of each array, if its order of axes is forgotten."""
        return tuple(map(self._least, range(len(self.searches))))

    def _least(self, at: int) -> Callable[[Sharding], Any]:
        search, rest = self.searches[at], dict[Sharding, Any]()
        for way in self.ways:
            type_ = way.types[at]
            rest[type_] = min(rest.get(type_, inf), way.price - search.settled[type_][0])
        onward = Search(search.graph, rest.items(), back=at != RESULT)
        while onward.reach != inf:
            onward.settle()
        return lambda type_: onward.settled.get(loosely(type_), (inf,))[0]


RESULT = 2
"""The place of the result's search, after those of the operands."""

_Index = dict[tuple[tuple[str, ...], ...], dict[frozenset[str], list[Sharding]]]
"""Types of an operand by the axes of the dims that it shares, and by the axes that only it uses."""


def loosely(type_: Sharding) -> Sharding:
    """The type that stands for all that differ from this one in the order of axes on a dim."""
    return Sharding(type_.dims, tuple(tuple(sorted(axes)) for axes in type_.on), type_.owes)


def meetings(ask: Contraction, wanted: Sharding, order: Sequence[str], prices: Prices) -> tuple[Meetings, Any]:
    """The ways to a product, the cheapest among them, and the price up to which all have been found.

    Where there are many, types are searched without the order of axes on a dim first: that leaves few, and says what
    any way costs at least from a type on. The search with order follows what costs least in all by that measure (A*).
    """
    known = Meetings(ask, wanted, order, prices)
    if known.search(EFFORT, EFFORT) == inf:
        return known, inf
    (_, left), (_, right) = ask.operands
    rough = Meetings(ask.between(loosely(left), loosely(right)), loosely(wanted), order, prices, loose=True)
    if (horizon := rough.search(MOST, MOST)) != inf:
        return known, horizon
    known = Meetings(ask, wanted, order, prices, ahead=rough.least_ahead())
    return known, known.search(EFFORT, MOST)
