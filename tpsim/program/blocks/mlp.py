"""The feed-forward that works for every token, gated or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.model import GATED, FeedForward, Mlp
from tpsim.program.text import Parameter, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.op import Array
    from tpsim.program.practice import Practice


def parameters(block: Mlp, _: Practice) -> Iterator[Parameter]:
    """Two weights, three of a gated one, and their biases."""
    yield from projections(block.kind, "mlp", (), "f", bias=block.bias)


def projections(
    kind: FeedForward, block: str, leading: tuple[str, ...], hidden: str, *, bias: bool = False
) -> Iterator[Parameter]:
    """Those of a feed-forward, or of many with a dim for `leading`, which bear other names.

    Of many a row is one of each, as FSDP2 shards them where they are fewer than shards (torchtitan, Shard(1)).
    """
    names, own = ("1", "2", *(("gate",) if kind in GATED else ())), "" if block == "mlp" else f"_{block}"
    for name in names:
        rows = ("h",) if name == "2" else (hidden,)
        yield Parameter(f"W{name}{own}", (*leading, "h", hidden), block, first=rows)
    for name in names if bias else ():
        yield Parameter(f"b{name}{own}", (*leading, "h" if name == "2" else hidden), block)


def write(text: Text, block: Mlp, x: Array) -> Array:
    """Column-split, pointwise, row-split: the output owes a sum wherever f is split."""
    with text.inside("mlp", "block"):
        x = text.entered(x, "mlp.in", "the MLP reads the normed stream")
        return text.linear("mlp.out", ("b", "s", "h"), activated(text, block.kind, ("b", "s", "f"), x), "W2")


def activated(text: Text, kind: FeedForward, inner: tuple[str, ...], x: Array, gates: Array | None = None) -> Array:
    """What the feed-forward of a block multiplies by its second weight; times `gates`, if there are any."""
    block, region = text.trace.where.block, text.trace.region
    own = "" if block == "mlp" else f"_{block}"
    factors = [text.linear(f"{block}.up", inner, x, f"W1{own}", f"b1{own}")]
    if kind in GATED:
        factors.insert(0, text.linear(f"{block}.gate", inner, x, f"Wgate{own}", f"bgate{own}"))
    with text.inside(block, region, f"activation.{block}"):
        act = text.trace.map(f"{block}.act", kind, *factors)
        return act if gates is None else text.trace.einsum(f"{block}.weighed", inner, act, gates)
