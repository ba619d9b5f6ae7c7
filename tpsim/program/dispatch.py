"""Rows of tokens for experts: how they are born, where experts want them, and how they come back to their tokens.

A part of the rows holds those of the tokens of its own devices, so rows are split as tokens are, and the axes that
experts lie on stand last. To pin them to the experts is then one exchange between the rows and the experts.

Copies of tokens for nodes, or ranks, are rows like those for experts: what goes there makes rows for the experts there.
So each level is an exchange over its own axes, and the axes of the first one stand last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Owed, Sharding, ShardingError, joined
from tpsim.program.copies import DIMS_OF, Level
from tpsim.program.dims import EXPERTS, GOALS
from tpsim.program.op import Array, Combine, Dispatch, Filled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tpsim.algebra.moves import Axes
    from tpsim.program.layout import Layout
    from tpsim.program.practice import Rows
    from tpsim.program.trace import Trace

SCORED = "i"

TOKENS = ("b", "s")

CHOICE = "top_k"
"""The index function that says which experts a token goes to."""

REACHED = "reached"
"""That which says on which nodes, or ranks, these lie."""

COUNTED = "counted"
"""That which says how many tokens of each rank choose an expert."""

SOURCES = "js"


def choice(trace: Trace, scores: Array, *biases: Array) -> Array:
    """Which experts each token goes to, by its scores and what is added to them for the choice alone.

    Raises ShardingError if no device has all scores of a token.
    """
    if split := scores.type.axes(SCORED):
        raise ShardingError(
            f"{scores} is split on {SCORED} over {joined(split)}: a choice needs all scores; gather them"
        )
    return trace.index(CHOICE, scores.dims, scores.dtype, scores, *biases, born=scores.type)


def dispatch(
    trace: Trace,
    name: str,
    x: Array,
    chosen: Array,
    *,
    like: Array | None = None,
    levels: Sequence[Level] = (),
) -> Array:
    """Rows of what each token has, one for every expert that it chose: ``x[b, s, h]`` to ``[n, c, h]``.

    x       of copies of tokens rows are made where they are, of those of the goals that lie there
    chosen  the choice of experts, or of nodes or ranks: the dims of the rows are its
    like    other rows of the same choice, whose axes these have, too; none: rows are split as tokens are, and experts
            over the axes of their home that tokens are not split over, for nobody needs the rows of others
    levels  over whose axes they leave, one after another
    """
    if like:
        (home, slots), filled = like.type.on[:2], like.filled
    elif x.filled:
        (home, slots), filled = x.type.on[:2], Filled(chosen, x.filled.slots)
    else:
        home, slots = _born(trace.layout, chosen, levels)
        filled = Filled(chosen, slots)
    if x.type.owed_axes & {*home, *slots}:
        x = trace.settled(x, f"rows of {x.name} are split over the same axis")
    rest = x.dims[2:] if x.filled else tuple(dim for dim in x.dims if dim not in (*TOKENS, SCORED))
    dims = (*(like.dims[:2] if like else GOALS[chosen.dims[-1]]), *rest)
    type_ = Sharding(dims, (home, slots, *(x.type.axes(dim) for dim in rest)), x.type.owes)
    rows = Array(name, type_, trace.region, x.dtype, active=x.active, filled=filled)
    return trace.emit(Dispatch((x, chosen), rows, trace.where))


def narrowed(trace: Trace, x: Array, rows: Rows) -> Array:
    """What tokens have in the number format in which it goes to experts."""
    return trace.lin(f"{x.name}.narrow", x, dtype=rows.dtype) if rows.dtype not in {None, x.dtype} else x


def combine(trace: Trace, name: str, rows: Array, chosen: Array, like: Array) -> Array:
    """Rows added up where their tokens are: ``rows[n, c, h]`` to the dims of `like`, ``[b, s, h]`` or ``[b, s, i]``.

    Over the axes that experts are still split over each device has the rows of its own: their sum is owed. Of an array
    over experts there is nothing to add, and it is split as they are. Copies get the rows that were made of them.

    Raises ShardingError if rows are not split as tokens, or as their copies, are.
    """
    home, slots = rows.type.on[:2]
    tokens = _tokens(chosen)
    if (rows.type.on[:2] != like.type.on[:2]) if like.filled else ({*slots} != {*tokens}):
        where = like if like.filled else f"its tokens {chosen.type}"
        raise ShardingError(f"{name}: {rows} does not lie as {where}; bring it back first")
    if like.filled:
        type_ = Sharding(like.dims, rows.type.on, rows.type.owes)
        sums = Array(name, type_, trace.region, rows.dtype, active=rows.active, filled=like.filled)
        return trace.emit(Combine((rows, chosen), sums, trace.where))
    scored = SCORED in like.dims
    axes = {
        **dict(zip(rows.dims, rows.type.on, strict=True)),
        **{dim: chosen.type.axes(dim) for dim in TOKENS},
        SCORED: home,
    }
    own: list[Owed] = [(axis, "sum") for axis in home if not scored]
    because = f"each device of {joined(home)} has the rows of its own experts, so {name} owes a sum over {joined(home)}"
    type_ = Sharding(like.dims, tuple(axes[dim] for dim in like.dims), rows.type.owes | {*own})
    sums = Array(name, type_, trace.region, rows.dtype, active=rows.active)
    return trace.emit(Combine((rows, chosen), sums, trace.where, because if home and not scored else ""))


def copied(trace: Trace, x: Array, chosen: Array, levels: Sequence[Level]) -> Iterator[tuple[Array, Array]]:
    """Of each level the copies of tokens, or of their copies, as they are born and as they have come.

    Raises ShardingError for experts on axes that no tokens are split over: what comes there is no copy.
    """
    for level in levels:
        to, *_ = DIMS_OF[level.of]
        index = trace.index(
            REACHED, (*TOKENS, to), chosen.dtype, chosen, born=Sharding((*TOKENS, to), (*chosen.type.on[:2], ()))
        )
        born = dispatch(trace, f"dispatch.{level.of}s", x, index, levels=levels)
        x = gone(trace, born, level, born.name)
        yield born, x


def counted(trace: Trace, chosen: Array, levels: Sequence[Level]) -> Iterator[Array]:
    """How many rows each rank has for every expert, to go ahead of them; nothing where rows stay where they are."""
    home, slots = _born(trace.layout, chosen, levels)
    if (home, slots) != trace.layout.at_experts:
        goal, _ = GOALS[SCORED]
        born = Sharding((goal, SOURCES), (home, slots))
        yield trace.index(COUNTED, born.dims, "int32", chosen, born=born)


def gone(trace: Trace, rows: Array, level: Level, name: str) -> Array:
    """Rows, or copies, that have gone over the axes of a level."""
    home, slots = rows.type.on[:2]
    axes = _on(trace.layout, level)
    to = Sharding(rows.dims, ((*home, *axes), _without(slots, axes), *rows.type.on[2:]), rows.type.owes)
    because = f"{name} goes to the {level.of}s that experts of its tokens lie on, told apart by {joined(axes)}"
    return trace.reshard(rows, to, because if axes else "", name=name)


def returned(trace: Trace, rows: Array, level: Level, chosen: Array, copies: tuple[Array, Array]) -> Array:
    """What rows of a level make of the copies that they were made of, back where these were born.

    copies  as they were born, and as they had come
    """
    born, there = copies
    name = f"combine.{level.of}s"
    back = combine(trace, name, rows, chosen, there)
    return from_experts(trace, back, born.type, name)


def to_experts(trace: Trace, rows: Array, name: str) -> Array:
    """Rows brought to their experts: an exchange over the home of these, a gather over what splits each of them."""
    home, stay = trace.layout.at_experts
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
    to = Sharding(rows.dims, (*born.on[:2], *rows.type.on[2:]), frozenset(owes))
    because = "; ".join([*reasons, f"{name} comes back from the experts to its tokens"])
    return trace.reshard(rows, to, because, region="routed", name=name)


def _born(layout: Layout, chosen: Array, levels: Sequence[Level]) -> tuple[Axes, Axes]:
    """The axes of experts and of rows where rows are born: those that leave stand last, the home of experts behind.

    Of that home what leaves first stands last.
    """
    tokens, (home, width) = _tokens(chosen), layout.homes
    first = [axis for level in reversed(levels) for axis in _on(layout, level)]
    free = next((place for place, axis in enumerate(home) if axis in tokens), len(home))
    leave = [axis for axis in (*width, *_without(home, first), *first) if axis in tokens]
    if first and {*home} - {*tokens}:
        raise ShardingError(
            f"experts lie on {joined(home)}, and tokens are not split over all of it: there is no copy to send"
        )
    return home[:free], (*_without(tokens, leave), *leave)


def _on(layout: Layout, level: Level) -> Axes:
    """The axes of a level that the layout puts experts on."""
    return tuple(axis for axis in level.axes if axis in layout.homes[0])


def _tokens(chosen: Array) -> Axes:
    """The axes that tokens are split over."""
    return tuple(axis for dim in TOKENS for axis in chosen.type.axes(dim))


def _without(axes: Axes, others: Collection[str]) -> Axes:
    return tuple(axis for axis in axes if axis not in others)
