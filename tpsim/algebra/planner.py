"""Plans for a product or a reshard: what the book does, and every other way worth a look, with prices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from tpsim.algebra.because import operand_reason, product_reason, result_reason
from tpsim.algebra.contract import Contraction, clashes, local_product
from tpsim.algebra.legality import owed_after
from tpsim.algebra.reshard import Routes, book_path, reachable
from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import Move, MoveKind

Planner = Literal["book", "cheapest"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan: a move of one array, or the product that every device does alone.

    inputs, output  names and types; a product has two inputs
    move            None for the product
    """

    op: MoveKind | Literal["matmul"]
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

    planner: Literal["book", "any"]
    steps: tuple[Step, ...]
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

    move     the price of one move; infinity forbids it
    product  the price of so many FLOPs on one device. 0 where the unit is wire bytes: FLOPs then only break ties, so a
             plan that moves less may repeat work; seconds count both
    flops    FLOPs of one device for a product as it stands
    """

    move: Callable[[Move], Any]
    product: Callable[[Any], Any]
    flops: Callable[[Contraction], Any]


def book(ask: Contraction, order: Sequence[str], prices: Prices) -> Plan:
    """The book's plan: gather what the four cases say, multiply, then go to the wanted type.

    Case 2 gathers the operand that is split (both, if on different axes). In case 4 the operand gives way whose shared
    axis the wanted result does not carry; if it carries both or neither, the one that is cheaper to gather.
    Without a wanted type the result stays as the product leaves it, sums owed included.
    """
    ready = _clear(_align(ask, order), order, prices)
    result = local_product(ready)
    after = book_path(result, ask.wanted, order) if ask.wanted else ()
    before = [book_path(old, new, order) for (_, old), (_, new) in zip(ask.operands, ready.operands, strict=True)]
    return _plan("book", (ask, ready), before, after, prices)


def _align(ask: Contraction, order: Sequence[str]) -> Contraction:
    """Case 2: both operands as the book would have them on the dims they share."""
    owed_after("multiply", ask.operands)
    (_, left), (_, right) = ask.operands
    for dim in ask.shared:
        target = _agreed(ask, dim, left, right)
        left, right = _with_only(left, dim, target), _with_only(right, dim, target)
    for (_, old), new in zip(ask.operands, (left, right), strict=True):
        book_path(old, new, order)
    return ask.between(left, right)


def _agreed(ask: Contraction, dim: str, left: Sharding, right: Sharding) -> tuple[str, ...]:
    """The axes on which a shared dim meets: what both have in common, or for a batch dim what the result wants."""
    mine, yours = left.axes(dim), right.axes(dim)
    if dim in ask.dims:
        wish = ask.wanted.axes(dim) if ask.wanted else ()
        return mine if mine in (yours, wish) or not yours else yours
    common = 0
    while common < min(len(mine), len(yours)) and mine[common] == yours[common]:
        common += 1
    return mine[:common]


def _with_only(type_: Sharding, dim: str, axes: tuple[str, ...]) -> Sharding:
    """The type with `dim` on `axes`, which every other dim gives up."""
    for other in type_.dims:
        if other != dim:
            type_ = type_.with_axes(other, (axis for axis in type_.axes(other) if axis not in axes))
    return type_.with_axes(dim, axes)


def _clear(ask: Contraction, order: Sequence[str], prices: Prices) -> Contraction:
    """Case 4: one operand gives way on every axis that both would carry into different dims of the result."""
    while clashes(ask):
        axis, mine, yours = clashes(ask)[0]
        (_, left), (_, right) = ask.operands
        choices = (
            (left, ask.between(_without(left, mine, axis), right), _carried(ask, mine, axis)),
            (right, ask.between(left, _without(right, yours, axis)), _carried(ask, yours, axis)),
        )
        first, second = choices
        if first[2] == second[2]:
            costs = [_way_cost(old, new.operands[side][1], order, prices) for side, (old, new, _) in enumerate(choices)]
            ask = first[1] if costs[0] < costs[1] else second[1]
        else:
            ask = second[1] if first[2] else first[1]
    return ask


def _carried(ask: Contraction, dim: str, axis: str) -> bool:
    """True if the wanted result splits this dim over this axis."""
    return bool(ask.wanted and dim in ask.dims and axis in ask.wanted.axes(dim))


def _without(type_: Sharding, dim: str, axis: str) -> Sharding:
    return type_.with_axes(dim, (other for other in type_.axes(dim) if other != axis))


def _way_cost(old: Sharding, new: Sharding, order: Sequence[str], prices: Prices) -> Any:
    return total(prices.move(move) for move in book_path(old, new, order))


def plans(ask: Contraction, order: Sequence[str], prices: Prices) -> tuple[Plan, ...]:
    """Every way worth a look, cheapest first, the book's among them.

    Each axis in `order` may split any one dim of the product, or none: that fixes the types in which the operands meet
    and what the result owes. Operands and result travel there and on by the cheapest moves. A way is left out when
    another is no dearer, does no more work, and makes only some of the same moves.
    order  mesh axes, major first, that may take part
    """
    by_book = book(ask, order, prices)
    wanted = ask.wanted or by_book.steps[-1].output[1]
    routes = Routes(order, prices.move)
    found = [by_book]
    for ready in _meetings(ask, order):
        try:
            result = local_product(ready)
            reachable(result, wanted)
            before = [routes.path(old, new) for (_, old), (_, new) in zip(ask.operands, ready.operands, strict=True)]
            if _hopeless(before, by_book, prices):
                continue
            after = routes.path(result, wanted)
        except ShardingError:
            continue  # this meeting cannot be reached, or does not lead to the wanted type
        found.append(_plan("any", (ask, ready), before, after, prices))
    return tuple(sorted(_worthwhile(found), key=lambda plan: plan.rank))


def _hopeless(before: Sequence[Sequence[Move]], by_book: Plan, prices: Prices) -> bool:
    """True if the operands' moves alone are neither simple nor cheaper than the whole of the book's plan."""
    moves = [move for path in before for move in path]
    calls = sum(move.kind != "slice" for move in moves)
    return calls > by_book.calls + 1 and total(map(prices.move, moves)) >= by_book.price


def _meetings(ask: Contraction, order: Sequence[str]) -> Iterator[Contraction]:
    """Every pair of operand types in which the operands split every dim of the product alike.

    Each axis finds a home: a dim, none (every device holds the same), or what is owed over it stays owed.
    """
    owed = {axis for _, type_ in ask.operands for axis in type_.owed_axes}
    choices = [(None, *ask.all_dims, *((_STILL_OWED,) if axis in owed else ())) for axis in order]
    for homes in every(*choices):
        kept = {axis for axis, home in zip(order, homes, strict=True) if home == _STILL_OWED}
        on_dim = {dim: [axis for axis, home in zip(order, homes, strict=True) if home == dim] for dim in ask.all_dims}
        for arranged in every(*(_arrangements(ask, dim, axes) for dim, axes in on_dim.items())):
            split = dict(zip(on_dim, arranged, strict=True))
            left, right = (_laid_out(type_, split, kept) for _, type_ in ask.operands)
            yield ask.between(left, right)


def _arrangements(ask: Contraction, dim: str, axes: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Orders of the axes on a dim: as in the mesh, or those that stand there already first, in their order."""
    types = [type_ for _, type_ in ask.operands] + ([ask.wanted] if ask.wanted else [])
    found = {tuple(axes): None}
    for there in (type_.axes(dim) for type_ in types if dim in type_.dims):
        staying = [axis for axis in there if axis in axes]
        found[*staying, *(axis for axis in axes if axis not in staying)] = None
    return found


_STILL_OWED = object()


def _laid_out(type_: Sharding, split: Mapping[str, tuple[str, ...]], kept: Collection[str]) -> Sharding:
    """The operand's dims on these axes, and of what it owes only this."""
    owes = frozenset(owed for owed in type_.owes if owed[0] in kept)
    return Sharding(type_.dims, tuple(split[dim] for dim in type_.dims), owes)


def _worthwhile(found: Sequence[Plan]) -> list[Plan]:
    """The plans to show: the simple ones and those that beat the book, without moves that buy nothing.

    Simple is what makes at most one call more than the book. The cheapest plan and the book's always stay.
    """
    kept: list[Plan] = []
    for plan in sorted(found, key=lambda plan: (*plan.rank, plan.planner != "book")):
        moves = _paid(plan)
        idle = any(_paid(other) <= moves and other.price <= plan.price and other.flops <= plan.flops for other in kept)
        if plan.price != inf and (plan.planner == "book" or not idle):
            kept.append(plan)
    known = next((plan for plan in kept if plan.planner == "book"), None)
    if known is None:
        return kept[:SHOWN]
    shown = [plan for plan in kept if plan.calls <= known.calls + 1 or plan.price < known.price]
    by_simplicity = sorted(shown, key=lambda plan: (plan is not kept[0], plan is not known, plan.calls, plan.rank))
    return by_simplicity[:SHOWN]


SHOWN = 12
"""How many plans are listed: enough for every textbook way over two axes, few enough to read."""


def _paid(plan: Plan) -> frozenset[tuple[str, MoveKind, tuple[str, ...], str | None, str | None]]:
    """The paid moves of a plan: which array, what, over which axes, on which dim."""
    return frozenset(
        (step.output[0], step.move.kind, step.move.axes, step.move.dim, step.move.to_dim)
        for step in plan.steps
        if step.move and step.move.kind != "slice"
    )


def _plan(
    planner: Literal["book", "any"],
    asked_and_ready: tuple[Contraction, Contraction],
    before: Iterable[Sequence[Move]],
    after: Sequence[Move],
    prices: Prices,
) -> Plan:
    """The steps in order: moves of the operands, the product, moves of the result."""
    ask, ready = asked_and_ready
    steps = [
        Step(move.kind, ((name, move.before),), (name, move.after), operand_reason(ask, side, move), move)
        for side, ((name, _), moves) in enumerate(zip(ask.operands, before, strict=True))
        for move in moves
    ]
    steps.append(Step("matmul", ready.operands, (ask.name, local_product(ready)), product_reason(ready)))
    steps += [
        Step(
            move.kind,
            ((ask.name, move.before),),
            (ask.name, move.after),
            result_reason(ask.name, move, ask.wanted),
            move,
        )
        for move in after
    ]
    work = prices.flops(ready)
    price = total(prices.move(step.move) for step in steps if step.move) + prices.product(work)
    return Plan(planner, tuple(steps), price, work)


def reshard_plans(
    name: str, before: Sharding, after: Sharding, order: Sequence[str], prices: Prices
) -> tuple[Plan, ...]:
    """The ways from one type to another, cheapest first, the book's among them."""
    ways: list[tuple[Literal["book", "any"], tuple[Move, ...]]] = [("book", book_path(before, after, order))]
    cheapest = Routes(order, prices.move).path(before, after)
    if cheapest != ways[0][1]:
        ways.append(("any", cheapest))
    found = [
        Plan(
            planner,
            tuple(Step(m.kind, ((name, m.before),), (name, m.after), result_reason(name, m, after), m) for m in moves),
            total(prices.move(move) for move in moves),
            0,
        )
        for planner, moves in ways
    ]
    return tuple(sorted(found, key=lambda plan: plan.rank))
