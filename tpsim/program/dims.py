"""What sizes a program has: dims of its arrays, loops that it stands in, roles of its mesh axes; one row for each.

Every letter that a formula prints, and every word for it, is here and nowhere else; docs/symbols.md shows the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from tpsim.program.kinds import ALIKE, KEPT, RECOMPUTED
from tpsim.quantity.size import over, product

RAGGED = "c"
"""The dim of the rows that an expert gets: as many as tokens choose it, so no two experts or sources have as many."""

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpsim.program.model import Model


@dataclass(frozen=True, slots=True)
class Quantity:
    """A size by the name that programs, layouts and files give it.

    symbol   what formulas print: the literature's letter where there is one, a word elsewhere; "" for a number
    meaning  in words, as errors and explanations say it
    """

    symbol: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Dim(Quantity):
    """A dim of arrays.

    size     of it, given the model, sequences per microbatch over all data shards, and tokens per sequence; 0 where a
             model has none
    split    False for one that no layout may split
    made_of  other dims that it is the product of, and those that it is over: formulas have these in its place
    """

    size: Callable[[Model, int, int], Any]
    split: bool = True
    made_of: tuple[tuple[str, ...], tuple[str, ...]] | None = None


def _of_experts(model: Model, field: str) -> int:
    """A size of a model's experts; 0 without any."""
    return getattr(model.experts, field) if model.experts else 0


DIMS: Mapping[str, Dim] = {
    "b": Dim("b", "sequences per microbatch over all data shards", lambda _, b, __: b),
    "s": Dim("s", "tokens per sequence", lambda _, __, s: s),
    "t": Dim("T", "tokens as keys, as many as s", lambda _, __, s: s),
    "h": Dim("h", "hidden size", lambda model, _, __: model.hidden),
    "g": Dim("kv_heads", "key/value heads", lambda model, _, __: model.kv_heads),
    "r": Dim("queries_per_kv", "query heads per key/value head", lambda model, _, __: model.queries_per_kv),
    "d": Dim("dh", "head dim", lambda model, _, __: model.head_dim),
    "e": Dim("dh", "head dim under rotation", lambda model, _, __: model.head_dim, split=False),
    "j": Dim(
        "qkv_slots",
        "slots of a fused projection per key/value head: key, value, queries",
        lambda model, _, __: model.queries_per_kv + 2,
        split=False,
    ),
    "f": Dim("f", "ffn hidden size", lambda model, _, __: model.ffn_hidden),
    "v": Dim("v", "padded vocabulary", lambda model, _, __: model.vocab_padded),
    "p": Dim("positions", "learned positions", lambda model, _, s: model.max_positions or s),
    "kv": Dim("", "slots of a projection fused of key and value", lambda *_: 2, split=False),
    "n": Dim("E", "experts", lambda model, _, __: _of_experts(model, "experts")),
    "i": Dim("E", "experts as the router scores them", lambda model, _, __: _of_experts(model, "experts"), split=False),
    "k": Dim("k", "experts per token", lambda model, _, __: _of_experts(model, "top"), split=False),
    "y": Dim("fe", "hidden size of an expert", lambda model, _, __: _of_experts(model, "hidden")),
    "z": Dim("fs", "hidden size of the experts that all tokens share", lambda model, _, __: _of_experts(model, "shared")),
    "q": Dim("", "capacity factor", lambda model, _, __: 1 if model.experts else 0, split=False),
    RAGGED: Dim("", "rows per expert, on average", lambda *_: 0, split=False, made_of=(("b", "s", "k", "q"), ("n",))),
}
"""The dims of a transformer's arrays."""


def completed(dims: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of dims with those that are made of others, as far as there are all of these."""
    made = {name: dim.made_of for name, dim in DIMS.items() if dim.made_of and {*chain(*dim.made_of)} <= dims.keys()}
    return {**dims, **{name: over(*(product(dims[one] for one in side) for side in of)) for name, of in made.items()}}


LOOPS: Mapping[str, Quantity] = {
    ALIKE: Quantity("L", "layers"),
    RECOMPUTED: Quantity("L_recomputed", "layers that are recomputed"),
    KEPT: Quantity("L_kept", "layers that keep all that backward reads"),
    "microbatches": Quantity("m", "microbatches"),
    "chunks": Quantity("chunks", "chunks of layers on each stage of a pipeline"),
}
"""What a program is traced once of and runs several times."""

ROLES: Mapping[str, Quantity] = {
    "tp": Quantity("t", "tensor parallelism"),
    "dp": Quantity("d", "data parallelism"),
    "pp": Quantity("stages", "pipeline parallelism"),
}
"""What mesh axes are for; the symbol is that of all axes of a role together."""

MEANINGS: Mapping[str, str] = {
    one.symbol: one.meaning for one in (*reversed(tuple(DIMS.values())), *LOOPS.values(), *ROLES.values())
}
"""What each symbol of a formula is, in words; of two dims with one symbol, the first one's."""
