"""The four cases: the types in which the book lets the operands of a product meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.algebra.contract import Contraction, clashes
from tpsim.algebra.legality import OwedError, owed_after
from tpsim.algebra.reshard import book_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.algebra.sharding import Sharding


def met_by_the_book(ask: Contraction, order: Sequence[str], price: Callable[[Move], Any]) -> Contraction:
    """The product with its operands as the four cases bring them together.

    What the law of owed sums forbids in a product is settled first. Case 2 gathers the operand that is split (both, if
    on different axes), or slices the other one where the result is wanted owing. In case 4 the operand gives way whose
    shared axis the wanted result does not carry; if it carries both or neither, the one that is cheaper to gather.
    """
    return _clear(_aligned(_legal(ask)), order, price)


def _legal(ask: Contraction) -> Contraction:
    """The product with as much settled as its law asks for."""
    try:
        owed_after("multiply", ask.operands)
    except OwedError as error:
        left, right = (
            type_.owing(owed for owed in type_.owes if name != error.array or owed[0] != error.axis)
            for name, type_ in ask.operands
        )
        return _legal(ask.between(left, right))
    return ask


def _aligned(ask: Contraction) -> Contraction:
    """Case 2: both operands as the book would have them on the dims they share."""
    (_, left), (_, right) = ask.operands
    for dim in ask.shared:
        target = _agreed(ask, dim, left, right)
        left, right = _with_only(left, dim, target), _with_only(right, dim, target)
    return ask.between(left, right)


def _agreed(ask: Contraction, dim: str, left: Sharding, right: Sharding) -> tuple[str, ...]:
    """The axes on which a shared dim meets: what both have in common, or what the result wants.

    A batch dim is wanted split; a contracted dim is, where all that the other operand lacks is wanted owed.
    """
    mine, yours = left.axes(dim), right.axes(dim)
    if dim in ask.dims:
        wish = ask.wanted.axes(dim) if ask.wanted else ()
        return mine if mine in (yours, wish) or not yours else yours
    common = 0
    while common < min(len(mine), len(yours)) and mine[common] == yours[common]:
        common += 1
    longer = max(mine, yours, key=len)
    owed = ask.wanted.owed_axes if ask.wanted else frozenset()
    return longer if mine[:common] in (mine, yours) and owed.issuperset(longer[common:]) else mine[:common]


def _with_only(type_: Sharding, dim: str, axes: tuple[str, ...]) -> Sharding:
    """The type with `dim` on `axes`, which every other dim gives up."""
    for other in type_.dims:
        if other != dim:
            type_ = _without(type_, other, axes)
    return type_.with_axes(dim, axes)


def _clear(ask: Contraction, order: Sequence[str], price: Callable[[Move], Any]) -> Contraction:
    """Case 4: one operand gives way on every axis that both would carry into different dims of the result."""
    while clashes(ask):
        axis, mine, yours = clashes(ask)[0]
        (_, left), (_, right) = ask.operands
        without = ask.between(_without(left, mine, [axis]), right), ask.between(left, _without(right, yours, [axis]))
        carried = _carried(ask, mine, axis)
        if carried == _carried(ask, yours, axis):
            ask = min(reversed(without), key=lambda other: _way_cost(ask, other, order, price))
        else:
            ask = without[carried]
    return ask


def _carried(ask: Contraction, dim: str, axis: str) -> bool:
    """True if the wanted result splits this dim over this axis."""
    return bool(ask.wanted and dim in ask.dims and axis in ask.wanted.axes(dim))


def _without(type_: Sharding, dim: str, axes: Sequence[str]) -> Sharding:
    return type_.with_axes(dim, (axis for axis in type_.axes(dim) if axis not in axes))


def _way_cost(old: Contraction, new: Contraction, order: Sequence[str], price: Callable[[Move], Any]) -> Any:
    """What the moves of the operand cost that gives way."""
    pairs = zip(old.operands, new.operands, strict=True)
    return sum(price(move) for (_, was), (_, now) in pairs for move in book_path(was, now, order))
