"""Inference: the same transformer forward alone, with keys and values that outlive the step in a cache.

A cache lies as region `cache` says: by heads (as attention does), by batch (attention data parallel), or by tokens
(decode context parallel, where softmax owes a max, a sum and a weighted sum). No op here names an axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.program.blocks.attention import headed, weights
from tpsim.program.blocks.head import head
from tpsim.program.blocks.norm import norm
from tpsim.program.kernels import STATISTIC
from tpsim.program.op import Append, Array
from tpsim.program.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpsim.program.layout import Axes
    from tpsim.program.model import Attention
    from tpsim.program.trace import Trace

CACHES: Mapping[str, tuple[str, ...]] = {"K": ("b", "t", "g", "d"), "V": ("b", "t", "g", "d")}
"""The caches of a layer, and their dims: t tokens, of which the last s are the step's own."""

Sampling = Literal["gather", "argmax"]
"""How the next token is found where the vocabulary is split: its logits are gathered, or their maxima compared."""

PAIR = "f64"
"""The dtype of a logit beside its place in the vocabulary: one number of eight bytes, whose maximum is taken."""

CacheLayout = Literal["heads", "batch", "sequence"]


def cache_row(by: CacheLayout, *, tp: Axes, dp: Axes) -> Mapping[str, Axes]:
    """The row of region `cache` that a word is short for; by heads it is as attention's heads are.

    >>> cache_row("sequence", tp=("X",), dp=("D",))
    {'b': ('D',), 't': ('X',), 'g': (), 'r': ()}
    """
    rows: Mapping[CacheLayout, Mapping[str, Axes]] = {
        "heads": {},
        "batch": {"b": (*dp, *tp), "g": (), "r": ()},
        "sequence": {"b": dp, "t": tp, "g": (), "r": ()},
    }
    return rows[by]


def rows_type(cache: Sharding) -> Sharding:
    """The type in which the rows of new tokens come to a cache of that type: whole where it is split over tokens."""
    return cache.renamed({"t": "s"}).with_axes("s", ())


def append(trace: Trace, cache: Array, new: Array) -> Array:
    """`cache` with the rows of `new` behind those that it has: every device writes those that fall into its block.

    Raises ShardingError if the rows do not lie as the cache does, or are split over tokens.
    """
    if new.type != (due := rows_type(cache.type)):
        raise ShardingError(f"{new} cannot be written into {cache}: rows must come as {due}")
    array = replace(cache, region=trace.region, active=False)
    because = f"{cache.name} holds the keys or values of all tokens; those of new ones are written behind them"
    return trace.emit(Append((cache, new), array, trace.where, because))


@dataclass(slots=True)
class Served(Text):
    """The text of one step of inference.

    caches    (name, layer) -> the leaf
    reads     True where earlier tokens are in the cache, which attention then reads; False for a prompt from nothing
    last      True where only the last token's logits are wanted, as of a prompt
    appended  the caches behind the step
    """

    caches: Mapping[tuple[str, int | None], Array] = field(default_factory=dict)
    reads: bool = True
    last: bool = False
    sampling: Sampling = "gather"
    appended: dict[tuple[str, int | None], Array] = field(default_factory=dict)


def attention(text: Served, block: Attention, x: Array) -> Array:
    """Attention over a cache to which the step's own keys and values have been added."""
    trace = text.trace
    with text.inside("attention", "block"):
        x = trace.pin(x, "block", "attention reads the normed stream", name="attention.in")
        q, k, v = headed(text, block, x)
    with text.inside("attention", "cache", "cache.append"):
        caches = [_cached(text, name, new) for name, new in (("K", k), ("V", v))]
    if text.reads:
        return _attended(text, block, "cache", (q, *caches))
    own = [_as_keys(text, name, new) for name, new in (("K", k), ("V", v))]
    return _attended(text, block, "heads", (q, *own))


def sampled(text: Served, x: Array) -> Array:
    """What the next tokens are found in: all logits, or the largest one of each row."""
    trace = text.trace
    if text.last:
        with text.inside("head", "residual"):
            end = trace.index("last", ("s",), x.dtype)
            x = trace.pin(trace.einsum("head.last", ("b", "h"), x, end), "residual", "", name="head.last")
    logits = head(text, norm(text, x, "final"))
    with text.inside("sampling", "vocab"):
        if text.sampling == "gather":
            whole = logits.type.with_axes("v", ())
            return trace.reshard(logits, whole, "the next token is drawn from all logits", name="sampled")
        best = trace.max("sampled", logits, "v", dtype=PAIR)
        return trace.settled(best, "the most likely token of the whole vocabulary is taken")


def _cached(text: Served, name: str, new: Array) -> Array:
    """The cache with the step's own rows, which are brought to where it lies."""
    trace, key = text.trace, (name, text.trace.where.index("layers"))
    cache = text.caches[key]
    because = "; ".join([*trace.owed_because(new), f"the cache {name} takes them"])
    rows = trace.reshard(new, rows_type(cache.type), because, region="cache")
    if rows.dtype != cache.dtype:
        rows = trace.lin(f"{rows.name}.cast", rows, dtype=cache.dtype)
    text.appended[key] = append(trace, cache, rows)
    return text.appended[key]


def _as_keys(text: Served, name: str, x: Array) -> Array:
    """The step's own keys or values where attention needs no others."""
    with text.inside("attention", "heads"):
        return text.trace.rename(name, text.trace.pin(x, "heads", ""), "s", "t")


def _attended(text: Served, block: Attention, region: str, heads: Sequence[Array]) -> Array:
    """Attention where keys and values lie as `region` says; over split tokens it owes, and pays, in full precision."""
    trace, (q, k, v) = text.trace, heads
    split = bool(k.type.axes("t"))
    with text.inside("attention", region, "attention"):
        asked = trace.lin("attention.wide", trace.pin(q, region, ""), dtype=STATISTIC)
        mixed = trace.einsum("attention.mixed", ("b", "s", "g", "r", "d"), weights(text, block, asked, k), v)
        mixed = mixed if split else trace.lin("attention.narrow", mixed, dtype=q.dtype)
    with text.inside("attention", "block"):
        mixed = trace.pin(mixed, "block", "")
        mixed = trace.lin("attention.narrow", mixed, dtype=q.dtype) if split else mixed
        return text.linear("attention.out", ("b", "s", "h"), mixed, "Wo")
