"""What numbers are stored and sent as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

STORED_AS: Mapping[str, str] = {"tf32": "f32", "fp8_128": "bf16"}
"""Dtypes of products alone -> what the arrays are that go in and come out.

tf32 rounds on the way (NVIDIA A100); fp8_128 are products of layers with their weights in fp8, a scale for each block,
the others and all arrays in bf16 (DeepSeek-V3 2024, 3.3).
"""

IN_LAYERS = frozenset({"fp8_128"})
"""Those of them in which products with the weights of layers are, and no others."""

Dtype = Literal["f64", "f32", "bf16", "f16", "fp8", "int8"]
"""What can be stated of arrays that are sent."""


class Format(NamedTuple):
    """How numbers are stored: bits of each, and of a scale that a block of so many shares."""

    bits: int
    scale_bits: int = 0
    block: int = 1

    @property
    def bytes_each(self) -> int | Fraction:
        """Of an element, its share of the scale included.

        >>> Format(8, 32, 128).bytes_each, Format(16).bytes_each
        (Fraction(33, 32), 2)
        """
        exact = Fraction(self.bits * self.block + self.scale_bits, 8 * self.block)
        return int(exact) if exact.denominator == 1 else exact


FORMATS: Mapping[str, Format] = {
    "f64": Format(64),
    "f32": Format(32),
    "bf16": Format(16),
    "f16": Format(16),
    "fp8": Format(8),
    "int8": Format(8),
    "int32": Format(32),
    "int4": Format(4),
    "fp8_128": Format(8, 32, 128),
    "fp8_128x128": Format(8, 32, 128 * 128),
    "mxfp4": Format(4, 8, 32),
}
"""How each dtype of arrays is stored; fp8_128: DeepSeek-V3's blocks of 128 with a scale in f32; mxfp4: OCP MX 1.0."""

WEIGHTS: Mapping[str, str] = {"fp8_128": "fp8_128x128"}
"""Dtype of arrays -> that of weights under its name: their blocks are squares (DeepSeek-V3, README_WEIGHTS.md)."""

DTYPE_BYTES: Mapping[str, Any] = {name: row.bytes_each for name, row in FORMATS.items()}
"""Bytes per element: an int, or a Fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtypes:
    """What each kind of array is stored and sent as; keys of `DTYPE_BYTES`.

    For None moments are as masters are in the optimizer, a cache is as activations are; experts, and both ends of the
    vocabulary, are as other parameters.

    shards  of parameters at rest, which the optimizer holds and updates, where what is whole all the step is gathered
            of these in another format (`params`); None: whatever is whole is what is at rest
    """

    activations: str = "bf16"
    params: str = "bf16"
    gradients: str = "f32"
    loss: str = "f32"
    optimizer: str = "f32"
    moments: str | None = field(default=None, repr=False)  # programs are called as they were
    cache: str | None = field(default=None, repr=False)
    experts: str | None = field(default=None, repr=False)
    vocab: str | None = field(default=None, repr=False)
    shards: str | None = field(default=None, repr=False)

    @property
    def at_rest(self) -> str:
        """What parameters are stored as between steps."""
        return self.shards or self.params

    def narrows(self, dtype: str) -> bool:
        """True for weights that are stored wider than activations, which products multiply them with."""
        return bool(DTYPE_BYTES[dtype] > DTYPE_BYTES[self.activations])

    def weights_of(self, block: str) -> str:
        """That of the parameters of a block.

        >>> [Dtypes(params="fp8_128", vocab="bf16").weights_of(block) for block in ("mlp", "head")]
        ['fp8_128x128', 'bf16']
        """
        own = {"experts": self.experts, "embedding": self.vocab, "head": self.vocab}.get(block) or self.params
        return WEIGHTS.get(own, own)
