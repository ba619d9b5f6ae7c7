"""Plans for a product or a reshard: what the book does, and every other way worth a look, with prices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Any, Literal

from tpsim.algebra.because import operand_reason, product_reason, result_reason
from tpsim.algebra.contract import Contraction, local_product, met_by_the_book
from tpsim.algebra.meetings import Meetings, meetings
from tpsim.algebra.moves import Move, MoveKind
from tpsim.algebra.reshard import Routes, book_path, cheap
from tpsim.algebra.sharding import Sharding, ShardingError, joined
from tpsim.quantity.size import total

Planner = Literal["book", "cheapest"]
Planning = Literal["book", "any"]
"""Who would choose a plan: the book, or none but the cheapest planner."""

StepKind = MoveKind | Literal["matmul"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan: a move of one array, or the product that every device does alone.

    inputs, output  names and types; a product has two inputs
    move            None for the product
    """

    op: StepKind
    inputs: tuple[tuple[str, Sharding], ...]
    output: tuple[str, Sharding]
    because: str
    move: Move | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to compute a product (or to reshard an array), with its price.

    planner  who would choose it: ``book``, or ``any`` for one of the other ways
    price    all moves plus the product, in the unit of the prices given
    flops    of one device
    """

    planner: Planning
    steps: tuple[PlannedStep, ...]
    price: Any
    flops: Any

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves alone."""
        return tuple(step.move for step in self.steps if step.move)

    @property
    def rank(self) -> tuple[Any, Any, int, int]:
        """What orders plans: price, then FLOPs, then calls, then steps."""
        return self.price, self.flops, self.calls, len(self.steps)

    @property
    def calls(self) -> int:
        """How many collectives run; slices are none."""
        return sum(move.kind != "slice" for move in self.moves)


@dataclass(frozen=True, slots=True)
class Prices:
    """What the planners compare: numbers of one unit, seconds or bytes.

    move     the price of one move, as searches take it; infinity forbids it
    product  the price of so many FLOPs on one device. 0 where the unit is wire bytes: FLOPs then only break ties, so a
             plan that moves less may repeat work; seconds count both
    flops    FLOPs of one device for a product as it stands
    even     whether an array can have a type: all splits come out even
    """

    move: Callable[[Move], Any]
    product: Callable[[Any], Any]
    flops: Callable[[Contraction], Any]
    even: Callable[[Sharding], bool] = lambda _: True

    def known(self, move: Move) -> bool:
        """True if a move has a price."""
        return bool(self.move(move) != inf)


@dataclass(frozen=True, slots=True)
class ProductWays:
    """What was found.

    plans    cheapest first, the book's among them if it has one
    horizon  the price up to which every way was looked at; infinity if all were
    refused  why the book has none
    """

    plans: tuple[Plan, ...]
    horizon: Any = inf
    refused: ShardingError | None = None


def book(ask: Contraction, order: Sequence[str], prices: Prices) -> Plan:
    """The book's plan: bring the operands together as the four cases say, multiply, then go to the wanted type.

    Without a wanted type the result stays as the product leaves it, sums owed included.
    Raises ShardingError if that is no way to the wanted type: it owes what the product does not leave.
    """
    ready = met_by_the_book(ask, order, prices.move)
    after = book_path(local_product(ready), ask.wanted, order, prices.known) if ask.wanted else ()
    pairs = zip(ask.operands, ready.operands, strict=True)
    before = [book_path(old, new, order, prices.known) for (_, old), (_, new) in pairs]
    return _plan("book", (ask, ready), before, after, prices)


def product_ways(ask: Contraction, order: Sequence[str], prices: Prices) -> ProductWays:
    """The cheapest way, the book's, and others worth a look.

    Each axis in `order` may split any one dim of the product, in any order there, or none, or what an operand owes over
    it may stay owed: that fixes the types in which the operands meet and what the result owes. They travel there, and
    the result on, by the cheapest moves. No such way is cheaper than the first plan.
    order  mesh axes, major first, that may take part
    Raises ShardingError if there is no way at all.
    """
    wanted, by_book, refused = _attempted(ask, order, prices)
    met, horizon = meetings(ask, wanted, order, prices)
    if refused and not met.ways:
        if horizon == inf:
            raise refused
        many = f"{len(order)} mesh axes are too many to search for others"
        raise ShardingError(f"the book has no way to {ask.name}{wanted}; {many}")
    return ProductWays(_worthwhile(by_book, _plans(ask, met, prices)), horizon, refused)


def _attempted(
    ask: Contraction, order: Sequence[str], prices: Prices
) -> tuple[Sharding, list[Plan], ShardingError | None]:
    """The type that is wanted, the book's plan, or why it has none."""
    try:
        plan = book(ask, order, prices)
    except ShardingError as error:
        if ask.wanted is None:
            raise
        return ask.wanted, [], error
    refused = _unpriced(plan, prices)
    return plan.steps[-1].output[1], [] if refused else [plan], refused


def _unpriced(plan: Plan, prices: Prices) -> ShardingError | None:
    """The refusal of a plan that makes a move without a price."""
    unknown = [f"{move.kind} over {joined(move.axes)}" for move in plan.moves if not prices.known(move)]
    return ShardingError(f"no price is known of {unknown[0]}") if unknown else None


def _worthwhile(by_book: Sequence[Plan], others: Iterable[Plan]) -> tuple[Plan, ...]:
    """The plans to show, cheapest first: the cheapest and the book's, then the simplest and those that beat the book.

    Simple is what makes at most one call more than the book, or than the cheapest if the book has no way. A way is left
    out if another is no dearer, does no more work, and makes only some of its moves.
    others  the cheapest, then in the order of their calls, so that what beats a way comes before it
    """
    kept: list[tuple[Plan, frozenset[Any]]] = []
    for plan in chain(by_book, others):
        known, moves = kept[0][0] if kept else plan, _paid(plan)
        simple = plan.calls <= known.calls + 1 or plan.price < known.price
        beaten = any(other.price <= plan.price and other.flops <= plan.flops and paid <= moves for other, paid in kept)
        if simple and not beaten:
            kept.append((plan, moves))
        if len(kept) == SHOWN:
            break
    return tuple(sorted((plan for plan, _ in kept), key=lambda plan: plan.rank))


SHOWN = 12
"""How many plans are listed: enough for every textbook way over two axes, few enough to read."""


def _paid(plan: Plan) -> frozenset[Any]:
    """The paid moves of a plan: which array, what, over which axes, on which dims."""
    return frozenset(
        (step.output[0], step.move.kind, step.move.axes, step.move.gathered, step.move.scattered)
        for step in plan.steps
        if step.move and step.move.kind != "slice"
    )


def _plan(
    planner: Planning,
    asked_and_ready: tuple[Contraction, Contraction],
    before: Iterable[Sequence[Move]],
    after: Sequence[Move],
    prices: Prices,
) -> Plan:
    """The steps in order: moves of the operands, the product, moves of the result."""
    ask, ready = asked_and_ready
    steps = [
        step
        for side, ((name, _), moves) in enumerate(zip(ask.operands, before, strict=True))
        for step in _steps(name, moves, partial(operand_reason, ask, side))
    ]
    steps.append(PlannedStep("matmul", ready.operands, (ask.name, local_product(ready)), product_reason(ready)))
    steps += _steps(ask.name, after, partial(result_reason, ask.name, wanted=ask.wanted))
    work = prices.flops(ready)
    price = total(prices.move(step.move) for step in steps if step.move) + prices.product(work)
    return Plan(planner, tuple(steps), price, work)


def _steps(name: str, moves: Iterable[Move], because: Callable[[Move], str]) -> list[PlannedStep]:
    return [PlannedStep(move.kind, ((name, move.before),), (name, move.after), because(move), move) for move in moves]


def _plans(ask: Contraction, met: Meetings, prices: Prices) -> Iterator[Plan]:
    """The plans of the ways that were found: the cheapest, then all others, the simplest first."""
    *sides, back = met.searches
    cheapest = min(met.ways, key=lambda way: way.rank, default=None)
    for way in sorted(met.ways, key=lambda way: (way is not cheapest, way.calls, *way.rank)):
        pairs = zip(sides, way.ready.operands, strict=True)
        before = [cheap(search.way(type_)) for search, (_, type_) in pairs]
        yield _plan("any", (ask, way.ready), before, cheap(back.way(way.result)), prices)


def reshard_ways(name: str, before: Sharding, after: Sharding, order: Sequence[str], prices: Prices) -> ProductWays:
    """The ways from one type to another, cheapest first, the book's among them if it has a price.

    Raises ShardingError if there is none.
    """
    ways: dict[Planning, tuple[Move, ...]] = {
        "any": Routes(order, prices.move, prices.even).path(before, after),
        "book": book_path(before, after, order, prices.known),
    }
    because = partial(result_reason, name, wanted=after)
    cheapest, by_book = (
        Plan(planner, tuple(_steps(name, moves, because)), total(map(prices.move, moves)), 0)
        for planner, moves in ways.items()
    )
    refused = _unpriced(by_book, prices)
    known = [] if refused else [by_book]
    plans = known if cheapest.moves == by_book.moves else [cheapest, *known]
    return ProductWays(tuple(sorted(plans, key=lambda plan: plan.rank)), refused=refused)
