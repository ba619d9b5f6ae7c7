"""Why a move or a product happens, in words: the text that every step of a plan carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Sharding, joined

if TYPE_CHECKING:
    from tpsim.algebra.contract import Contraction
    from tpsim.algebra.moves import Cuts, Move


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
        "all_gather": lambda: "; ".join(_gather_reason(ask, side, *part) for part in move.gathered),
        "slice": lambda: f"free: {name} is whole {_along(move)}, each device keeps what it will multiply",
        "all_to_all": lambda: f"{axes} moves {_across(move, name)}, in place of a gather",
        "permute": lambda: f"the shards of {name} change places, so that its axes come in the order needed",
        "all_reduce": lambda: f"{_owed(move, name)} is settled before the product",
        "reduce_scatter": lambda: f"{_owed(move, name)} is settled before the product",
    }
    return texts[move.kind]()


def _gather_reason(ask: Contraction, side: int, dim: str, over: tuple[str, ...]) -> str:
    name, split = ask.operands[side]
    other, other_split = ask.operands[1 - side]
    axes = joined(over)
    if dim in ask.shared and split.axes(dim) != other_split.axes(dim):
        how = f"over {joined(other_split.axes(dim))}" if other_split.axes(dim) else "not at all"
        return f"case 2: {name} is split on {dim} over {axes} and {other} {how}, so {name} is gathered over {axes}"
    clash = [there for axis in over for there in other_split.dims if axis in other_split.axes(there) and there != dim]
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
    texts = {
        "all_gather": lambda: f"{name} is not wanted split {_split(move.gathered)}, so it is gathered",
        "slice": lambda: f"free: {name} is whole {_along(move)}, each device keeps its own part",
        "all_to_all": lambda: f"{axes} moves {_across(move, name)}: the devices exchange blocks",
        "permute": lambda: f"only the minor axis of a dim can come or go, so the shards of {name} change places",
        "all_reduce": lambda: f"{_owed(move, name)} is wanted whole on every device",
        "reduce_scatter": lambda: f"{name} {_goal(move, wanted)}, so each device takes the sum of its own part only",
    }
    return texts[move.kind]()


def _goal(move: Move, wanted: Sharding | None) -> str:
    """What a sum is scattered for."""
    if wanted is not None and all(set(axes) <= set(wanted.axes(dim)) for dim, axes in move.scattered):
        return f"is wanted split {_split(move.scattered)}"
    return f"is settled in parts of {' and '.join(dim for dim, _ in move.scattered)} first"


def _split(cut: Cuts) -> str:
    """How an array is split: ``on I over X and on J over Y``."""
    return " and ".join(f"on {dim} over {joined(axes)}" for dim, axes in cut)


def _along(move: Move) -> str:
    """Where a slice finds an array whole."""
    return " and ".join(f"on {dim} along {joined(axes)}" for dim, axes in move.scattered)


def _across(move: Move, name: str) -> str:
    """Between which dims an all-to-all goes."""
    ((dim, _),), ((to_dim, _),) = move.gathered, move.scattered
    return f"from {dim} to {to_dim} of {name}"


def _owed(move: Move, name: str) -> str:
    kinds = sorted({kind for axis, kind in move.before.owes if axis in move.axes})
    return f"the {'/'.join(kinds)} that {name} owes over {joined(move.axes)}"
