"""The types that ops make of their operands' types, by the rules of the algebra; names serve what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.algebra.legality import owed_after, split_alike
from tpsim.algebra.sharding import Sharding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.program.op import Array


def product(
    name: str, dims: tuple[str, ...], xs: Sequence[Array]
) -> tuple[Sharding, Sequence[tuple[str, tuple[str, ...]]]]:
    """The type of a product, and the dims that it is summed over though they are split, with their axes.

    Raises ShardingError as `Trace.einsum` does.
    """
    shards = split_alike(name, [(x.name, x.type) for x in xs])
    owes = owed_after("multiply" if len(xs) > 1 else "linear", [(x.name, x.type) for x in xs])
    summed = [(dim, axes) for dim, axes in shards.items() if axes and dim not in dims]
    owes |= {(axis, "sum") for _, axes in summed for axis in axes}
    return Sharding(dims, tuple(shards[dim] for dim in dims), owes), summed


def pointwise(name: str, xs: Sequence[Array], *, pulled: bool) -> Sharding:
    """The type of a function of each element, or of what its pullback, whose first operand is a cotangent, makes.

    Raises OwedError for operands that are not complete, but the cotangent.
    """
    cotangent, whole = (xs[:1], xs[1:]) if pulled else ((), xs)
    for x in whole:
        owed_after("nonlinear", [(x.name, x.type)])
    owes = frozenset(owed for x in cotangent for owed in owed_after("pullback", [(x.name, x.type)]))
    shards = split_alike(name, [(x.name, x.type) for x in xs])
    return Sharding(tuple(shards), tuple(shards.values()), owes)


def owe_alike(xs: Sequence[Array]) -> bool:
    """True for arrays of the same dims that owe the same."""
    first = xs[0]
    return all(x.type.owes == first.type.owes and {*x.dims} == {*first.dims} for x in xs)


def weighted_sum(name: str, xs: Sequence[Array]) -> Sharding:
    """The type of a weighted sum. Raises OwedError for operands that owe a max."""
    for x in xs:
        owed_after("linear", [(x.name, x.type)])
    shards = split_alike(name, [(x.name, x.type) for x in xs])
    return Sharding(tuple(shards), tuple(shards.values()), xs[0].type.owes)
