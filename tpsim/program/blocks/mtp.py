"""A module that predicts one token further (DeepSeek-V3 2024, 2.2): what stands before its layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.blocks import embedding, norm
from tpsim.program.text import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model
    from tpsim.program.op import Array
    from tpsim.program.text import Text

JOINED = ("stream", "embedding")
"""What joins: the stream of a token, and the embedding of the next."""


def parameters(model: Model) -> Iterator[Parameter]:
    """One product of both sides, as one of each; a norm of each, and one behind the layer."""
    for name in JOINED:
        yield Parameter(f"W_mtp_{name}", ("h", "hh"), "mlp", ("head",), first=("h",))
    for name in (*JOINED, "final"):
        yield from norm.parameters(model, f"mtp_{name}", "head")


def write(text: Text, x: Array) -> Array:
    """The stream behind the layers and the next token's embedding, normed, each times its half of a product."""
    sides = (x, embedding.looked_up(text, "labels", "mtp.embedding"))
    normed = [norm.norm(text, side, f"mtp_{name}") for name, side in zip(JOINED, sides, strict=True)]
    with text.inside("mlp", "residual"):
        halves = [
            text.linear(f"mtp.{name}", ("b", "s", "hh"), side, f"W_mtp_{name}")
            for name, side in zip(JOINED, normed, strict=True)
        ]
        return text.trace.rename("mtp.in", text.trace.lin("mtp.joined", *halves), "hh", "h")
