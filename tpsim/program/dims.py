"""What sizes a program has: dims of its arrays, loops that it stands in, roles of its mesh axes; one row for each.

Every letter that a formula prints, and every word for it, is here and nowhere else; docs/symbols.md shows the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpsim.program.kinds import ALIKE, KEPT, RECOMPUTED

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

    size   of it, given the model, sequences per microbatch over all data shards, and tokens per sequence
    split  False for one that no layout may split
    """

    size: Callable[[Model, int, int], int]
    split: bool = True


DIMS: Mapping[str, Dim] = {
    "b": Dim("b", "sequences per microbatch over all data shards", lambda _, b, __: b),
    "s": Dim("s", "tokens per sequence", lambda _, __, s: s),
    "t": Dim("T", "tokens as keys, in training as many as s", lambda _, __, s: s),
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
}
"""The dims of a transformer's arrays."""

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
