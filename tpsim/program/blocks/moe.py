"""A mixture of experts: a router, experts of which a few work for each token, and what works beside them for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.blocks.mlp import projections
from tpsim.program.text import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.layout import Practice
    from tpsim.program.model import Moe


def parameters(block: Moe, _: Practice) -> Iterator[Parameter]:
    """The router scores experts as i; experts are n; what they share works for every token."""
    yield Parameter("Wr", ("h", "i"), "router")
    if block.bias:
        yield Parameter("br", ("i",), "router")
    if block.choice_bias:
        yield Parameter("choice_bias", ("i",), "router")
    yield from projections(block.kind, "experts", ("n",), "y", bias=block.bias)
    if block.shared:
        yield from projections(block.kind, "shared", (), "z")
