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
    (a, left), (b, _) = ask.operands
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
        f"{name} owes a sum over {joined(sorted(type_.owed_axes))} and a product is linear in {name}, "
        f"so {ask.name} owes it too"
        for name, type_ in ask.operands
        if type_.owed_axes
    ]
    together = " and ".join(dim for dim in ask.contracted if dim in ask.shared)
    alone = f"case 1: neither {a} nor {b} is split on {together}" if together else "case 1: nothing is contracted"
    return "; ".join(reasons) or f"{alone}, so each device multiplies what it holds"


def operand_reason(ask: Contraction, side: int, move: Move) -> str:
    """Why an operand moves before the product."""
    name, _ = ask.operands[side]
    axes = joined(move.axes)
    texts = {
        "all_gather": lambda: _gather_reason(ask, side, move),
        "slice": lambda: f"free: {name} is whole on {move.dim} along {axes}, each device keeps what it will multiply",
        "all_to_all": lambda: f"{axes} moves from {move.dim} to {move.to_dim} of {name}, in place of a gather",
        "permute": lambda: f"the shards of {name} change places, so that its axes come in the order needed",
        "all_reduce": lambda: f"the sum that {name} owes over {axes} is settled before the product",
        "reduce_scatter": lambda: f"the sum that {name} owes over {axes} is settled before the product",
    }
    return texts[move.kind]()


def _gather_reason(ask: Contraction, side: int, move: Move) -> str:
    name, mine = ask.operands[side]
    other, theirs = ask.operands[1 - side]
    axes, dim = joined(move.axes), str(move.dim)
    if dim in ask.shared and mine.axes(dim) != theirs.axes(dim):
        how = f"over {joined(theirs.axes(dim))}" if theirs.axes(dim) else "not at all"
        return f"case 2: {name} is split on {dim} over {axes} and {other} {how}, so {name} is gathered over {axes}"
    clash = [there for axis in move.axes for there in theirs.dims if axis in theirs.axes(there) and there != dim]
    if clash:
        return (
            f"case 4: {axes} splits {dim} of {name} and {clash[0]} of {other}, and no result carries both, "
            f"so {name} gives way and is gathered"
        )
    gain = f"owes nothing over {axes}" if dim in ask.contracted else f"is not split on {dim} over {axes}"
    return f"{name} is gathered on {dim} over {axes} before the product, so that {ask.name} {gain}"


def result_reason(name: str, move: Move, wanted: Sharding | None) -> str:
    """Why an array moves towards the type that is wanted."""
    axes = joined(move.axes)
    kinds = {kind for axis, kind in move.before.owes if axis in move.axes}
    lands = wanted is not None and move.dim is not None and set(move.axes) <= set(wanted.axes(move.dim))
    goal = f"is wanted split on {move.dim} over {axes}" if lands else f"is settled in parts of {move.dim} first"
    return {
        "all_gather": f"{name} is not wanted split on {move.dim} over {axes}, so it is gathered",
        "slice": f"free: {name} is whole on {move.dim} along {axes}, each device keeps its own part",
        "all_to_all": f"{axes} moves from {move.dim} to {move.to_dim} of {name}: the devices exchange blocks",
        "permute": f"only the minor axis of a dim can come or go, so the shards of {name} change places",
        "all_reduce": f"the {'/'.join(sorted(kinds))} that {name} owes over {axes} is wanted whole on every device",
        "reduce_scatter": f"{name} {goal}, so each device takes the sum of its own part only",
    }[move.kind]
