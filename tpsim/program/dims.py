"""What sizes a program has: dims of its arrays, loops that it stands in, roles of its mesh axes; one row for each.

Every letter that a formula prints, and every word for it, is here and nowhere else; docs/symbols.md shows the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tpsim.program.kinds import ALIKE, KEPT, RECOMPUTED
from tpsim.quantity.size import over, product

RAGGED = "c"
"""The dim of the rows that an expert gets: as many as tokens choose it, so no two experts or sources have as many."""

STEPS = "ts"
"""The size that says of how many steps of decoding the tokens as keys are the mean."""

CAPACITY = "q"
"""The dim of the capacity factor: what an expert has rows for, over the mean of what chooses it."""

EXPERTS = "n"
"""The dim of experts where they lie; a router scores them as another."""

BUSY = "nb"
"""The size that says which share of the experts on a device has rows."""

GOALS: Mapping[str, tuple[str, str]] = {"i": (EXPERTS, RAGGED), "nn": ("nn", "cn"), "nr": ("nr", "cr")}
"""By the last dim of a choice: the dim of what tokens go to, experts, nodes or ranks, and that of the rows there."""

ROWS = frozenset(rows for _, rows in GOALS.values())
"""The dims whose sizes hang on what tokens choose."""

CHUNKED = "lc"
"""The dim of the tokens that a kernel of linear attention takes at once."""

HELD = "th"
"""The dim of the tokens that a cache holds of which no more are read than a window has: split as all tokens are."""


@dataclass(frozen=True, slots=True)
class NamedSize:
    """A size by the name that programs, layouts and files give it.

    symbol   what formulas print: the literature's letter where there is one, a word elsewhere; "" for a number
    meaning  in words, as errors and explanations say it
    """

    symbol: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Dim(NamedSize):
    """A dim of arrays.

    split    False for one that no layout may split
    made_of  other dims that it is the product of, and those that it is over: formulas have these in its place
    """

    split: bool = True
    made_of: tuple[tuple[str, ...], tuple[str, ...]] | None = None


DIMS: Mapping[str, Dim] = {
    "b": Dim("b", "sequences per microbatch over all data shards"),
    "s": Dim("s", "tokens per sequence"),
    "t": Dim("T", "tokens as keys, in training as many as s"),
    HELD: Dim("held", "tokens that the cache of a window holds"),
    "h": Dim("h", "hidden size"),
    "g": Dim("kv_heads", "key/value heads"),
    "r": Dim("queries_per_kv", "query heads per key/value head"),
    "d": Dim("dh", "head dim"),
    "e": Dim("dh", "head dim under rotation", split=False),
    "j": Dim("qkv_slots", "slots of a fused projection per key/value head: key, value, queries", split=False),
    "f": Dim("f", "ffn hidden size"),
    "v": Dim("v", "padded vocabulary"),
    "p": Dim("positions", "learned positions"),
    "kv": Dim("", "slots of a projection fused of key and value", split=False),
    "w": Dim("window", "tokens that a window or a chunk of attention holds, or that an indexer chooses", split=False),
    "u": Dim("query_rank", "query latent"),
    "x": Dim("kv_rank", "latent of keys and values"),
    "a": Dim("rotary", "part of a head that is rotated", split=False),
    "o": Dim("value_dim", "head dim of values"),
    "n": Dim("experts", "experts"),
    "i": Dim("scored", "experts as the router scores them"),
    "k": Dim("top", "experts that work for a token", split=False),
    "y": Dim("expert_f", "hidden size of an expert"),
    "z": Dim("shared_f", "hidden size of shared experts"),
    CAPACITY: Dim("", "capacity factor", split=False),
    RAGGED: Dim(
        "", "rows per expert, on average: b * s * k * q / n", split=False, made_of=(("b", "s", "k", "q"), ("n",))
    ),
    "hh": Dim("h", "hidden size, of what joins in a module for further tokens", split=False),
    "ae": Dim("rotary", "rotated part of a head under rotation", split=False),
    "nn": Dim("nodes", "nodes that experts lie on", split=False),
    "kn": Dim("nodes_per_token", "nodes that a token's experts lie on, on average", split=False),
    "cn": Dim(
        "",
        "copies of tokens that a node gets, on average: b * s * kn / nn",
        split=False,
        made_of=(("b", "s", "kn"), ("nn",)),
    ),
    "nr": Dim("expert_ranks", "ranks that experts lie on", split=False),
    "kr": Dim("ranks_per_token", "ranks that a token's experts lie on, on average", split=False),
    "cr": Dim(
        "",
        "copies of tokens that a rank gets, on average: b * s * kr / nr",
        split=False,
        made_of=(("b", "s", "kr"), ("nr",)),
    ),
    "js": Dim("token_ranks", "ranks that rows of an expert come from", split=False),
    "gr": Dim("", "groups that a router has its experts in", split=False),
    "gt": Dim("", "of these, as many as it chooses a token's experts from", split=False),
    BUSY: Dim("", "share of the experts on a device that have rows", split=False),
    STEPS: Dim("", "steps of decoding that a reply's mean is of", split=False),
    "gi": Dim("index_heads", "heads of an indexer", split=False),
    "di": Dim("index_dim", "head dim of an indexer", split=False),
    "die": Dim("index_dim", "head dim of an indexer under rotation", split=False),
    "lg": Dim("key_heads", "heads of queries and keys of linear attention"),
    "lr": Dim("values_per_key", "value heads per head of queries and keys"),
    "ld": Dim("key_dim", "head dim of queries and keys of linear attention"),
    "lo": Dim("state_value_dim", "head dim of values of linear attention"),
    "lw": Dim("taps", "tokens that a convolution reads for one", split=False),
    "lt": Dim("", "tokens of a step as its convolutions read them", split=False, made_of=(("s", "lw"), ("lw",))),
    "lp": Dim("taps_before", "tokens before a step's own that its convolutions read", split=False),
    "lpe": Dim("taps_before", "the same, one step later", split=False),
    "lu": Dim("gate_rank", "rank of decays and gates of linear attention", split=False),
    CHUNKED: Dim("chunk", "tokens that linear attention takes at once, its chunk", split=False),
    "ln": Dim("", "pieces of a sequence that it takes one after another", split=False, made_of=(("s",), (CHUNKED,))),
}
"""The dims of a transformer's arrays."""


def completed(dims: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of dims with those that are made of others, as far as there are all of these."""
    rule = {name: dim.made_of for name, dim in DIMS.items() if dim.made_of and {*chain(*dim.made_of)} <= dims.keys()}
    return {**dims, **{name: over(*(product(dims[dim] for dim in side) for side in of)) for name, of in rule.items()}}


LOOPS: Mapping[str, NamedSize] = {
    ALIKE: NamedSize("L", "layers"),
    RECOMPUTED: NamedSize("L_recomputed", "layers that are recomputed"),
    KEPT: NamedSize("L_kept", "layers that keep all that backward reads"),
    "microbatches": NamedSize("m", "microbatches"),
    "chunks": NamedSize("chunks", "chunks of layers on each stage of a pipeline"),
}
"""What a program is traced once of and runs several times."""


def loop(name: str) -> NamedSize:
    """A loop of those, or of layers of one of a model's kinds.

    >>> loop("sparse.kept")
    NamedSize(symbol='L_sparse_kept', meaning='sparse layers that keep all that backward reads')
    """
    kind, _, kept = name.rpartition(".")
    if name in LOOPS or not kind:
        return LOOPS.get(name, NamedSize(f"L_{name}", f"{name} layers"))
    return NamedSize(f"L_{kind}_{kept}", f"{kind} {LOOPS[kept].meaning}")


ROLES: Mapping[str, NamedSize] = {
    "tp": NamedSize("t", "tensor parallelism"),
    "dp": NamedSize("d", "data parallelism"),
    "cp": NamedSize("C", "context parallelism"),
    "pp": NamedSize("stages", "pipeline parallelism"),
}
"""What mesh axes are for; the symbol is that of all axes of a role together."""

MEANINGS: Mapping[str, str] = {
    size.symbol: size.meaning for size in (*reversed(tuple(DIMS.values())), *LOOPS.values(), *ROLES.values())
}
"""What each symbol of a formula is, in words; of two dims with one symbol, the first one's."""
