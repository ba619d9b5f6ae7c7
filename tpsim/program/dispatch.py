"""Rows of tokens for experts: how they are born, where experts want them, and how they come back to their tokens.

A part of the rows holds those of the tokens of its own devices, so rows are split as tokens are, and the axes that
experts lie on stand last. To pin them to the experts is then one exchange between the rows and the experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Sharding, ShardingError, joined
from tpsim.program.dims import RAGGED
from tpsim.program.op import Array, Combine, Dispatch, Filled

if TYPE_CHECKING:
    from collections.abc import Collection

    from tpsim.algebra.sharding import Owed
    from tpsim.program.layout import Axes, Layout, Rows
    from tpsim.program.trace import Trace

EXPERTS = "n"
"""The dim of experts where they lie; the router scores them as `SCORED`."""

SCORED = "i"

TOKENS = ("b", "s")

CHOICE = "top_k"
"""The index function that says which experts a token goes to."""


def choice(trace: Trace, scores: Array, *biases: Array) -> Array:
    """Which experts each token goes to, by its scores and what is added to them for the choice alone.

    Raises ShardingError if no device has all scores of a token.
    """
    if split := scores.type.axes(SCORED):
        raise ShardingError(
            f"{scores} is split on {SCORED} over {joined(split)}: a choice needs all scores; gather them"
        )
    return trace.index(CHOICE, scores.dims, scores.dtype, scores, *biases, born=scores.type)


def homes(layout: Layout) -> tuple[Axes, Axes]:
    """The axes that experts lie on, and those that split each of them."""
    home, width = layout.type_in((EXPERTS, "y"), "experts").on
    return home, width


def at_experts(layout: Layout) -> tuple[Axes, Axes]:
    """The axes of experts and of rows where these are at their experts: what tokens are split over and experts not."""
    home, width = homes(layout)
    tokens = layout.type_in(TOKENS, "routed").sharded_axes
    return home, _without(tokens, {*home, *width})


def dispatch(trace: Trace, name: str, x: Array, chosen: Array, born: Sharding | None = None) -> Array:
    """Rows of what each token has, one for every expert that it chose: ``x[b, s, h]`` to ``[n, c, h]``.

    born  the type of other rows of the same choice, whose axes these have, too; none: rows are split as tokens are,
          and experts over the axes of their home that tokens are not split over, for nobody needs the rows of others
    """
    home, slots = (born.axes(EXPERTS), born.axes(RAGGED)) if born else _born(trace.layout, chosen)
    if x.type.owed_axes & {*home, *slots}:
        x = trace.settled(x, f"rows of {x.name} are split over the same axis")
    rest = tuple(dim for dim in x.dims if dim not in (*TOKENS, SCORED))
    type_ = Sharding((EXPERTS, RAGGED, *rest), (home, slots, *(x.type.axes(dim) for dim in rest)), x.type.owes)
    made = Array(name, type_, trace.region, x.dtype, active=x.active, filled=Filled(chosen, slots))
    return trace.emit(Dispatch((x, chosen), made, trace.where))


def narrowed(trace: Trace, x: Array, rows: Rows) -> Array:
    """What tokens have in the number format in which it goes to experts."""
    return trace.lin(f"{x.name}.narrow", x, dtype=rows.dtype) if rows.dtype else x


def combine(trace: Trace, name: str, rows: Array, chosen: Array, like: Sharding) -> Array:
    """Rows added up where their tokens are: ``rows[n, c, h]`` to the dims of `like`, ``[b, s, h]`` or ``[b, s, i]``.

    Over the axes that experts are still split over each device has the rows of its own: their sum is owed. Of an array
    over experts there is nothing to add, and it is split as they are.

    Raises ShardingError if rows are not split as tokens are.
    """
    home, slots = rows.type.axes(EXPERTS), rows.type.axes(RAGGED)
    tokens = _tokens(chosen)
    if {*slots} != {*tokens}:
        raise ShardingError(f"{name}: {rows} does not lie as its tokens {chosen.type}; bring it back first")
    scored = SCORED in like.dims
    axes = {
        **dict(zip(rows.dims, rows.type.on, strict=True)),
        **{dim: chosen.type.axes(dim) for dim in TOKENS},
        SCORED: home,
    }
    own: list[Owed] = [(axis, "sum") for axis in home if not scored]
    because = f"each device of {joined(home)} has the rows of its own experts, so {name} owes a sum over {joined(home)}"
    type_ = Sharding(like.dims, tuple(axes[dim] for dim in like.dims), rows.type.owes | {*own})
    made = Array(name, type_, trace.region, rows.dtype, active=rows.active)
    return trace.emit(Combine((rows, chosen), made, trace.where, because if home and not scored else ""))


def to_experts(trace: Trace, rows: Array, name: str) -> Array:
    """Rows brought to their experts: an exchange over the home of these, a gather over what splits each of them."""
    home, stay = at_experts(trace.layout)
    rest = rows.dims[2:]
    split = trace.layout.type_in((EXPERTS, *rest), "experts")
    to = Sharding(rows.dims, (home, stay, *(split.axes(dim) for dim in rest)))
    because = f"{name} goes to the experts of its tokens, which lie as {EXPERTS}_{{{joined(home)}}}" if home else name
    return trace.reshard(rows, to, because, region="experts", name=name)


def from_experts(trace: Trace, rows: Array, born: Sharding, name: str) -> Array:
    """Rows brought back to where they were born; sums that no axis of theirs takes up stay owed, for tokens are fewer.

    born  the type of the rows that went out
    """
    owes = [owed for owed in rows.type.owes if owed[0] not in born.sharded_axes]
    reasons = trace.owed_because(rows)
    to = Sharding(rows.dims, (born.axes(EXPERTS), born.axes(RAGGED), *rows.type.on[2:]), frozenset(owes))
    because = "; ".join([*reasons, f"{name} comes back from the experts to its tokens"])
    return trace.reshard(rows, to, because, region="routed", name=name)


def _born(layout: Layout, chosen: Array) -> tuple[Axes, Axes]:
    """The axes of experts and of rows where rows are born: those that leave stand last, the home of experts behind."""
    tokens, (home, width) = _tokens(chosen), homes(layout)
    free = next((place for place, axis in enumerate(home) if axis in tokens), len(home))
    leave = [axis for axis in (*width, *home) if axis in tokens]
    return home[:free], (*_without(tokens, leave), *leave)


def _tokens(chosen: Array) -> Axes:
    """The axes that tokens are split over."""
    return tuple(axis for dim in TOKENS for axis in chosen.type.axes(dim))


def _without(axes: Axes, others: Collection[str]) -> Axes:
    return tuple(axis for axis in axes if axis not in others)
