"""Products of sharded arrays: what each device can multiply alone, and the four cases in which operands meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tpsim.algebra.legality import OwedError, owed_after
from tpsim.algebra.reshard import book_path
from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.frozen import dataclass
from tpsim.quantity.size import Size, over, product

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.algebra.moves import Move

Case = Literal[1, 2, 3, 4]


@dataclass(frozen=True, slots=True)
class Contraction:
    """A product to plan: two named operands, the result's name and dims, and the type wanted if there is one.

    Dims that both operands have and the result lacks are contracted; dims that all three have are batch dims.
    """

    left: tuple[str, Sharding]
    right: tuple[str, Sharding]
    name: str
    dims: tuple[str, ...]
    wanted: Sharding | None = None

    @property
    def operands(self) -> tuple[tuple[str, Sharding], tuple[str, Sharding]]:
        """Both operands."""
        return self.left, self.right

    @property
    def all_dims(self) -> tuple[str, ...]:
        """Every dim of the operands, once."""
        return tuple(dict.fromkeys((*self.left[1].dims, *self.right[1].dims)))

    @property
    def shared(self) -> tuple[str, ...]:
        """Dims that both operands have: they must be split alike."""
        return tuple(dim for dim in self.left[1].dims if dim in self.right[1].dims)

    @property
    def contracted(self) -> tuple[str, ...]:
        """Dims that are summed away."""
        return tuple(dim for dim in self.all_dims if dim not in self.dims)

    def between(self, left: Sharding, right: Sharding) -> Contraction:
        """The same product with the operands in other types."""
        return Contraction((self.left[0], left), (self.right[0], right), self.name, self.dims, self.wanted)


def free_dims(left: Sequence[str], right: Sequence[str]) -> tuple[str, ...]:
    """The result's dims when an expression does not state them: those that only one operand has.

    >>> free_dims(("I", "J"), ("J", "K"))
    ('I', 'K')
    """
    return (*(dim for dim in left if dim not in right), *(dim for dim in right if dim not in left))


def cases(ask: Contraction) -> tuple[Case, ...]:
    """Which of the book's four cases the operands are in; several at once on several axes, (1,) if none else.

    2  a shared dim is split in one operand and not alike in the other: on one only, or on different axes
    3  both operands split a contracted dim over the same axes
    4  one axis splits different dims of the two operands, and neither is contracted
    """
    (_, left), (_, right) = ask.operands
    settled: set[Case] = set()
    for dim in ask.shared:
        alike = left.axes(dim) == right.axes(dim)
        if not alike:
            settled.add(2)
        elif left.axes(dim) and dim in ask.contracted:
            settled.add(3)
    if clashes(ask):
        settled.add(4)
    return tuple(sorted(settled)) or (1,)


def clashes(ask: Contraction) -> tuple[tuple[str, str, str], ...]:
    """Case 4: each (axis, dim of the left operand, dim of the right one) that the result cannot carry together."""
    (_, left), (_, right) = ask.operands
    return tuple(
        (axis, mine, yours)
        for mine in left.dims
        for axis in left.axes(mine)
        for yours in right.dims
        if axis in right.axes(yours) and mine != yours and mine not in ask.shared and yours not in ask.shared
    )


def local_product(ask: Contraction) -> Sharding:
    """The result's type when each device multiplies what it holds; nothing moves.

    Raises ShardingError when the blocks do not meet, and OwedError when an operand must be settled first.

    >>> a, b = Sharding(("I", "J"), ((), ("X",))), Sharding(("J", "K"), (("X",), ()))
    >>> str(local_product(Contraction(("A", a), ("B", b), "C", ("I", "K"))))
    '[I, K]{U_X}'
    """
    (a, left), (b, right) = ask.operands
    owes = owed_after("multiply", ask.operands)
    for dim in ask.shared:
        if left.axes(dim) != right.axes(dim):
            raise ShardingError(f"{a}{left} and {b}{right} split {dim} differently: their blocks do not meet")
    axes = split_of(ask)
    taken = [axis for used in axes.values() for axis in used]
    twice = sorted({axis for axis in taken if taken.count(axis) > 1})
    if twice:
        raise ShardingError(
            f"{a}{left} . {b}{right} would split two dims over {twice[0]}: only diagonal blocks are known"
        )
    sums = {(axis, "sum") for dim in ask.contracted for axis in axes[dim]}
    return Sharding(ask.dims, tuple(axes[dim] for dim in ask.dims), frozenset({*owes, *sums}))  # type: ignore[arg-type]


def split_of(ask: Contraction) -> Mapping[str, tuple[str, ...]]:
    """The axes that split each dim of the product."""
    split: dict[str, tuple[str, ...]] = {}
    for _, type_ in ask.operands:
        split |= dict(zip(type_.dims, type_.on, strict=True))
    return split


def flops(ask: Contraction, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
    """FLOPs of one device: 2 per multiplied pair that is summed, 1 if nothing is; replicas repeat them.

    The elements are the product of all dims, divided by every axis that splits one of them.
    """
    elements = over(
        product(dims[dim] for dim in ask.all_dims),
        product(axes[axis] for used in split_of(ask).values() for axis in used),
    )
    return (2 if ask.contracted else 1) * elements


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
