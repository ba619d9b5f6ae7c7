"""What is asked of both: products, reshards and layers, each on its mesh, and the sizes of the dims."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tests.models import LLAMA

if TYPE_CHECKING:
    from collections.abc import Mapping

ONE = {"X": 8}
TWO = {"X": 4, "Y": 2}
SQUARE = {"X": 2, "Y": 2}
ALIKE = {"I": 128, "J": 136, "K": 144}
"""Arrays of about one size, as if no sizes were given, but no two of the same."""
LONG = {"I": 64, "J": 1024, "K": 128}
"""A long contraction, as in training: the sum is the smallest of the three arrays."""


@dataclass(frozen=True, slots=True)
class Question:
    """An expression with its mesh, the sizes of dims and what XLA is to compute in."""

    expression: str
    mesh: Mapping[str, int] = field(hash=False)
    sizes: Mapping[str, int] = field(default_factory=lambda: ALIKE, hash=False)
    dtype: str = "float32"

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes of the dims that it names."""
        return {dim: size for dim, size in self.sizes.items() if dim in self.expression}

    def __str__(self) -> str:
        mesh = ",".join(f"{axis}={size}" for axis, size in self.mesh.items())
        return f"{self.expression} on {mesh} in {self.dtype}"


_A = ("A[I, J]", "A[I_X, J]", "A[I, J_X]")
_B = ("B[J, K]", "B[J_X, K]", "B[J, K_X]")
_C = ("C[I, K]", "C[I_X, K]", "C[I, K_X]")
PRODUCTS = tuple(Question(f"{a} . {b} -> {c}", ONE) for a in _A for b in _B for c in _C)
"""All products over one axis: nine shardings of the operands, three of the result."""

_CHANGES = (
    ("I_XY, J", "I_X, J"),
    ("I_XY, J", "I_Y, J"),
    ("I_YX, J", "I_X, J"),
    ("I_XY, J", "I, J"),
    ("I_XY, J", "I_YX, J"),
    ("I_XY, J", "I_X, J_Y"),
    ("I_XY, J", "I_Y, J_X"),
    ("I_XY, J", "I, J_XY"),
    ("I_X, J", "I, J_X"),
    ("I_X, J", "I_Y, J"),
    ("I_X, J", "I, J_Y"),
    ("I_X, J", "I_XY, J"),
    ("I_X, J", "I_YX, J"),
    ("I_X, J_Y", "I_Y, J_X"),
    ("I_X, J_Y", "I_XY, J"),
    ("I_X, J_Y", "I, J"),
)
RESHARDS = tuple(Question(f"A[{before}] -> A[{after}]", TWO) for before, after in _CHANGES)
"""Sixteen changes of type over two axes: gathers of either axis, exchanges, permutes, free slices."""
SWAP = Question("A[I_X, J_Y] -> A[I_Y, J_X]", SQUARE)
"""Two axes of one size change places."""

_WANTED = ("I, K", "I_X, K", "I_Y, K", "I, K_X", "I, K_Y", "I_XY, K", "I_YX, K", "I, K_XY", "I_X, K_Y", "I_Y, K_X")
OWED = tuple(
    Question(f"A[I, J_{axes}] . B[J_{axes}, K] -> C[{c}]", TWO, LONG) for axes in ("X", "Y", "XY") for c in _WANTED
)
"""Thirty sums owed over one or both of two axes, and where they are to go."""
SHORT = replace(OWED[0], dtype="bfloat16")
"""The first of them in what models are trained in."""

EXPRESSIONS = (*PRODUCTS, *RESHARDS, SWAP, *OWED, SHORT)

AXIS = "X"
FOUR = {AXIS: 4}
MODEL = LLAMA
WORK = {"b": 2, "s": 8, "t": 8}
"""A microbatch of the small model."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer with its gradients.

    ffn          gelu, or swiglu with its gate
    sequence     the residual stream is split by tokens
    once         the stream enters a block through one door, so that its cotangents are added before they are summed
    partitioned  XLA finds the collectives; else they are written by hand
    """

    ffn: Literal["gelu", "swiglu"]
    sequence: bool
    once: bool = True
    partitioned: bool = False

    def __str__(self) -> str:
        stream = "sequence" if self.sequence else "whole"
        way = "partitioner" if self.partitioned else "hand"
        return f"{self.ffn} {stream} {way} {'once' if self.once else 'per use'}"


LAYERS = tuple(
    Layer(ffn, sequence, once, partitioned)
    for ffn in ("gelu", "swiglu")
    for sequence, once, partitioned in (
        (False, True, False),
        (False, False, False),
        (False, True, True),
        (True, True, False),
        (True, True, True),
    )
)
