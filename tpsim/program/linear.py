"""Linear attention: a state per sequence and head in place of keys and values of all tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from tpsim.quantity.spec import Count, Strict

Rule = Literal["gated_delta", "kda", "mamba2"]

CHUNKS: Mapping[Rule, int] = {"gated_delta": 64, "kda": 64, "mamba2": 256}
"""Tokens that a kernel takes at once where a block does not say: flash-linear-attention's chunks, and Mamba's."""


class Linear(Strict):
    """Linear attention: what it has read of a sequence is a matrix of numbers per head, however long that is.

    heads lg * lr of values, key_heads lg of queries and keys; key_dim ld, value_dim lo; taps lw of a convolution over
    tokens in front of it (4: each token and the three before)

    rule   gated_delta: the state decays by head, and a token's value replaces what its key finds there (Yang et al.
           2024, arXiv 2412.06464); kda: it decays by head and key dim (Kimi Linear 2025, arXiv 2510.26692); mamba2: it
           decays by head, and values are added (Dao and Gu 2024, arXiv 2405.21060: key heads are its groups, key dims
           its states)
    rank   of the products that make decays and gates in two steps; None: in one
    chunk  lc: tokens that its kernel takes at once; None: as many as the rule usually does
    """

    noun: ClassVar[str] = "a linear attention"
    keeps_state: ClassVar[bool] = True
    attention: Literal["linear"] = "linear"
    rule: Rule = "gated_delta"
    heads: Count
    key_heads: Count
    key_dim: Count
    value_dim: Count
    taps: Count = 4
    rank: Count | None = None
    chunk: Count | None = None

    @model_validator(mode="after")
    def _whole(self) -> Linear:
        """Every key head serves as many value heads; no rank of what is none. Raises ValueError where it cannot."""
        if self.rule == "mamba2" and self.rank:
            raise ValueError("mamba2 makes its decays and gates in one step: leave rank out")
        if self.heads % self.key_heads:
            raise ValueError(f"{self.heads} heads are not divisible by {self.key_heads} key_heads")
        return self

    @property
    def delta(self) -> bool:
        """True for the delta rule: what a key finds in the state is taken from its value."""
        return self.rule != "mamba2"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of its dims."""
        heads = {"lg": self.key_heads, "lr": self.heads // self.key_heads, "ld": self.key_dim, "lo": self.value_dim}
        rank = {"lu": self.rank} if self.rank else {}
        return {
            **heads,
            "lw": self.taps,
            "lp": self.taps - 1,
            "lpe": self.taps - 1,
            "lc": self.chunk or CHUNKS[self.rule],
            **rank,
        }

    def resized(self, dims: Mapping[str, int]) -> Linear:
        """The same with dims of these sizes."""
        heads = {"heads": dims["lg"] * dims["lr"], "key_heads": dims["lg"]}
        rank = {"rank": dims["lu"]} if self.rank else {}
        sizes = {"key_dim": dims["ld"], "value_dim": dims["lo"], "taps": dims["lw"]}
        return self.model_copy(update={**heads, **sizes, **rank})
