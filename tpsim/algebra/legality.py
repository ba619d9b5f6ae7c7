"""What may be done to an array that still owes a sum or a max, one table, and the types that ops make by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tpsim.algebra.sharding import Owed, Sharding, ShardingError

Operation = Literal["linear", "nonlinear", "pullback", "add", "multiply"]
"""linear    a linear map of one operand: a scale, a sum over a dim, a product with a constant
nonlinear  a pointwise function of the value: GELU, exp, a division
pullback   the transpose of a pointwise function, applied to a cotangent: linear in the cotangent
add        a sum of two operands
multiply   a product of two operands, contracted or not"""

State = Literal["sum", "max", "sharded", "whole"]
"""How one array lies on one mesh axis: it owes a sum or a max, a dim is sharded, or every device holds the same."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Whether an operation is legal on operands that lie so on one axis: if so the result owes what they owe.

    because  why; ``{owing}``, ``{other}`` and ``{axis}`` stand for the arrays and the mesh axis
    """

    legal: bool
    because: str


_SETTLE = "settle {owing} over {axis} first"
_TERM = Rule(legal=False, because="a max must be known before it is added to; " + _SETTLE)
_FACTOR = Rule(legal=False, because="a max must be known before it is multiplied; " + _SETTLE)

RULES: Mapping[tuple[Operation, tuple[State, ...]], Rule] = {
    ("linear", ("sum",)): Rule(legal=True, because="the map of a sum is the sum of the maps"),
    ("linear", ("max",)): Rule(legal=False, because="a linear map does not commute with a max; " + _SETTLE),
    ("nonlinear", ("sum",)): Rule(
        legal=False, because="a nonlinear function of a sum is not the sum of the functions; " + _SETTLE
    ),
    ("nonlinear", ("max",)): Rule(legal=False, because="{owing} is not known yet on any device; " + _SETTLE),
    ("pullback", ("sum",)): Rule(legal=True, because="the pullback is linear in the cotangent"),
    ("pullback", ("max",)): Rule(legal=False, because="a cotangent is a sum, never a max; " + _SETTLE),
    ("add", ("sum", "sum")): Rule(legal=True, because="both owe alike: parts are added to parts"),
    ("add", ("sum", "whole")): Rule(
        legal=False, because="{other} would be added once per device of {axis}; " + _SETTLE
    ),
    ("add", ("sum", "sharded")): Rule(legal=False, because="the parts of {owing} and {other} do not match; " + _SETTLE),
    ("add", ("sum", "max")): Rule(legal=False, because="a sum and a max cannot be owed together; " + _SETTLE),
    ("add", ("max", "max")): Rule(legal=False, because="the max of a sum is not the sum of the maxima; " + _SETTLE),
    ("add", ("max", "whole")): _TERM,
    ("add", ("max", "sharded")): _TERM,
    ("multiply", ("sum", "whole")): Rule(legal=True, because="a product is linear in {owing}"),
    ("multiply", ("sum", "sum")): Rule(
        legal=False, because="a product of two sums is not the sum of the products; " + _SETTLE
    ),
    ("multiply", ("sum", "sharded")): Rule(
        legal=False,
        because="each device would multiply its part of {owing} by another block of {other}; " + _SETTLE,
    ),
    ("multiply", ("sum", "max")): _FACTOR,
    ("multiply", ("max", "max")): _FACTOR,
    ("multiply", ("max", "whole")): _FACTOR,
    ("multiply", ("max", "sharded")): _FACTOR,
}
"""Every combination in which something is owed. Operands of `add` and `multiply` stand in either order."""


class OwedError(ShardingError):
    """An operation on an array that must be settled first; `array` and `axis` say which and over what."""

    def __init__(self, message: str, array: str, axis: str) -> None:
        super().__init__(message)
        self.array = array
        self.axis = axis


def state(type_: Sharding, axis: str) -> State:
    """How an array of this type lies on a mesh axis."""
    kinds: dict[str, State] = dict(type_.owes)
    return kinds.get(axis, "sharded" if axis in type_.sharded_axes else "whole")


Operands = Sequence[tuple[str, Sharding]]
"""Names, which serve what is refused, and types."""


def owed_after(operation: Operation, operands: Operands) -> frozenset[Owed]:
    """What the result owes.

    Raises OwedError when the table forbids the operation; the text says why, in the notation.

    >>> y = Sharding(("h",), ((),), frozenset({("X", "sum")}))
    >>> owed_after("linear", [("y", y)])
    frozenset({('X', 'sum')})
    """
    owes: set[Owed] = set().union(*(type_.owes for _, type_ in operands))
    for axis in sorted({axis for axis, _ in owes}):
        _judge(operation, operands, axis)
    return frozenset(owes)


def _judge(operation: Operation, operands: Operands, axis: str) -> None:
    """Raise OwedError unless the table allows the operation on this axis."""
    places: list[State] = ["sum", "max", "sharded", "whole"]
    ordered = sorted(operands, key=lambda operand: places.index(state(operand[1], axis)))
    rule = RULES[operation, tuple(state(type_, axis) for _, type_ in ordered)]
    if not rule.legal:
        (owing, type_), other = ordered[0], ordered[-1][0]
        reason = rule.because.format(owing=owing, other=other, axis=axis)
        raise OwedError(f"{owing}{type_} owes a {state(type_, axis)} over {axis}: {reason}", owing, axis)


def split_alike(operation: str, operands: Operands) -> dict[str, tuple[str, ...]]:
    """Each dim's axes over all operands of `operation`.

    Raises ShardingError for a dim that is sharded in two ways, and for an axis on two dims.
    """
    shards: dict[str, tuple[str, ...]] = {}
    for _, type_ in operands:
        for dim, axes in zip(type_.dims, type_.on, strict=True):
            if shards.setdefault(dim, axes) != axes:
                raise ShardingError(
                    f"{operation}: {_listed(operands)} are split differently on {dim}; one of them needs a pin"
                )
    used = [axis for axes in shards.values() for axis in axes]
    if len(used) != len(set(used)):
        twice = next(axis for axis in used if used.count(axis) > 1)
        both = f"{_listed(operands)} split two different dims over {twice}"
        raise ShardingError(f"{operation}: case 4: {both}; gather one of them first")
    return shards


def _listed(operands: Operands) -> str:
    return " and ".join(f"{name}{type_}" for name, type_ in operands)


def product(
    name: str, dims: tuple[str, ...], operands: Operands
) -> tuple[Sharding, Sequence[tuple[str, tuple[str, ...]]]]:
    """The type of a product, and the dims that it is summed over though they are split, with their axes.

    Raises ShardingError if shared dims are sharded differently, if one axis would shard two dims (case 4), or if an
    owed operand meets an operand that owes or is sharded over the same axis.
    """
    shards = split_alike(name, operands)
    owes = owed_after("multiply" if len(operands) > 1 else "linear", operands)
    summed = [(dim, axes) for dim, axes in shards.items() if axes and dim not in dims]
    owes |= {(axis, "sum") for _, axes in summed for axis in axes}
    return Sharding(dims, tuple(shards[dim] for dim in dims), owes), summed


def pointwise(name: str, operands: Operands, *, pulled: bool) -> Sharding:
    """The type of a function of each element, or of what its pullback, whose first operand is a cotangent, makes.

    Raises OwedError for operands that are not complete, but the cotangent.
    """
    cotangent, whole = (operands[:1], operands[1:]) if pulled else ((), operands)
    for operand in whole:
        owed_after("nonlinear", [operand])
    owes = frozenset(owed for operand in cotangent for owed in owed_after("pullback", [operand]))
    shards = split_alike(name, operands)
    return Sharding(tuple(shards), tuple(shards.values()), owes)


def owe_alike(types: Sequence[Sharding]) -> bool:
    """True for types of the same dims that owe the same."""
    first = types[0]
    return all(type_.owes == first.owes and {*type_.dims} == {*first.dims} for type_ in types)


def weighted_sum(name: str, operands: Operands) -> Sharding:
    """The type of a weighted sum. Raises OwedError for operands that owe a max."""
    for operand in operands:
        owed_after("linear", [operand])
    shards = split_alike(name, operands)
    return Sharding(tuple(shards), tuple(shards.values()), operands[0][1].owes)
