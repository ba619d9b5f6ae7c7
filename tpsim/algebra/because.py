"""Why a move or a product happens, in words: the text that every step of a plan carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Sharding, subscript

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpsim.algebra.contract import Contraction
    from tpsim.algebra.moves import Move


def joined(axes: Iterable[str]) -> str:
    """Axes as they are spoken of: ``XY``, or ``dp,tp`` for longer names."""
    return subscript("", axes).removeprefix("_").strip("{}")


def product_reason(ask: Contraction) -> str:
    """Why the product needs nothing, or what it leaves owed."""
    (a, left), (b, right) = ask.operands
    reasons = [
        f"case 3: both operands are split on {dim} over {joined(left.axes(dim))}, "
        f"so {ask.name} owes a sum over {joined(left.axes(dim))}"
        for dim in ask.contracted
        if dim in ask.shared and left.axes(dim)
    ]
    reasons += [
        f"{dim} of {name} is summed away and split over {joined(type_.axes(dim))}, "
        f"so {ask.name} owes a sum over {joined(type_.axes(dim))}"
        for name, type_ in ask.operands
        for dim in type_.dims
        if dim in ask.contracted and dim not in ask.shared and type_.axes(dim)
    ]
    reasons += [
        f"{name} owes a sum over {joined(sorted(type_.owed_axes))} and a product is linear in {name}, so {ask.name} owes it too"
        for name, type_ in ask.operands
        if type_.owed_axes
    ]
    together = " and ".join(dim for dim in ask.contracted if dim in ask.shared)
    alone = f"case 1: neither {a} nor {b} is split on {together}" if together else "case 1: nothing is contracted"
    return "; ".join(reasons) or f"{alone}, so each device multiplies what it holds"


def operand_reason(ask: Contraction, side: int, move: Move) -> str:
    """Why an operand moves before the product."""
    name, _ = ask.operands[side]
    other, theirs = ask.operands[1 - side]
    axes = joined(move.axes)
    if move.kind == "slice":
        return f"free: every device along {axes} holds all of {move.dim} of {name} and keeps the part that it will multiply"
    if move.kind == "all_to_all":
        return f"{axes} moves from {move.dim} to {move.to_dim} of {name}, which is cheaper than to gather {name}"
    if move.kind == "permute":
        return f"the shards of {name} change places, so that its axes come in the order needed"
    if move.kind in ("all_reduce", "reduce_scatter"):
        return f"the sum that {name} owes over {axes} is settled before the product"
    if move.dim in ask.shared:
        how = f"over {joined(theirs.axes(move.dim))}" if theirs.axes(move.dim) else "not at all"
        return f"case 2: {name} is split on {move.dim} over {axes} and {other} {how}, so {name} is gathered over {axes}"
    clash = [dim for axis in move.axes for dim in theirs.dims if axis in theirs.axes(dim)]
    if clash:
        return (
            f"case 4: {axes} splits {move.dim} of {name} and {clash[0]} of {other}, and no result carries both, "
            f"so {name} gives way and is gathered"
        )
    return f"the result is not to be split on {move.dim} over {axes}, and {name} may be gathered before the product"


def result_reason(name: str, move: Move, wanted: Sharding | None) -> str:
    """Why an array moves towards the type that is wanted."""
    axes = joined(move.axes)
    if move.kind == "all_reduce":
        kind = "max" if any(kind == "max" and axis in move.axes for axis, kind in move.before.owes) else "sum"
        return (
            f"the {kind} that {name} owes over {axes} is settled, and every device along {axes} needs the whole of it"
        )
    if move.kind == "reduce_scatter":
        lands = wanted is not None and set(move.axes) <= set(wanted.axes(move.dim or ""))
        goal = (
            f"is wanted split on {move.dim} over {axes}"
            if lands
            else f"can be settled one part of {move.dim} per device"
        )
        return f"{name} {goal}, so each device takes the sum of its own part only"
    if move.kind == "all_to_all":
        return f"{axes} moves from {move.dim} to {move.to_dim} of {name}: each device exchanges blocks with the others"
    if move.kind == "permute":
        return f"a gather takes the minor axis only, so the shards of {name} change places first"
    if move.kind == "slice":
        return f"free: every device along {axes} holds all of {move.dim} of {name} and keeps its own part"
    return f"{name} is not wanted split on {move.dim} over {axes}, so it is gathered"
