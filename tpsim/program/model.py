"""What a dense transformer is: the sizes and choices from which the unsharded program is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

FeedForward = Literal["gelu", "relu", "swiglu", "geglu"]
GATED: frozenset[str] = frozenset({"swiglu", "geglu"})


LARGEST = 10**9
"""No size of a model is larger: it is a slip of the keyboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A dense decoder-only transformer.

    hidden h, layers L, heads (g*r), kv_heads g, head_dim d, ffn_hidden f, vocab_padded v, positions p (learned only)
    bias      biases on every linear layer of the block (also LayerNorm shifts follow `norm`)
    qkv_bias  biases on the query, key and value projections only
    params    the published parameter count, None if not stated
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: FeedForward
    ffn_hidden: int
    vocab: int
    vocab_padded: int
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    bias: bool = False
    qkv_bias: bool = False
    positions: Literal["rope", "learned", "none"] = "rope"
    max_positions: int | None = None
    parallel_residual: bool = False
    tie_embeddings: bool = False
    params: float | None = None

    @property
    def queries_per_kv(self) -> int:
        """r: query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def gated(self) -> bool:
        """True if the MLP multiplies two projections (SwiGLU, GeGLU)."""
        return self.ffn in GATED

    def dims(self, *, sequences: int, seq: int) -> Mapping[str, int]:
        """Sizes of the program's dims for `sequences` per microbatch (over all data shards) of `seq` tokens.

        b sequences, s and t (keys) tokens, h hidden, g kv heads, r queries per kv head, d head dim, e its image
        under rotation, j slots of a fused projection (kv of one without queries), f ffn hidden, v padded vocabulary,
        p learned positions.
        """
        return {
            "b": sequences,
            "s": seq,
            "t": seq,
            "h": self.hidden,
            "g": self.kv_heads,
            "r": self.queries_per_kv,
            "d": self.head_dim,
            "e": self.head_dim,
            "j": self.queries_per_kv + 2,
            "kv": 2,
            "f": self.ffn_hidden,
            "v": self.vocab_padded,
            "p": self.max_positions or seq,
        }
