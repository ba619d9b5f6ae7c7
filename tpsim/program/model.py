"""What a dense transformer is: the sizes and choices from which the unsharded program is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tpsim.program.dims import DIMS, completed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.program.experts import Experts

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
    dropout   the share of attention's weights, and of what joins the stream, that training drops
    experts   what layers have in place of an MLP; None: they have one
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
    dropout: float = 0.0
    experts: Experts | None = None
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

        Rows per expert are the mean.
        """
        each = ((name, dim.size(self, sequences, seq)) for name, dim in DIMS.items())
        return completed({name: size for name, size in each if size})
