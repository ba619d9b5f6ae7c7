"""Multi-head latent attention (DeepSeek-V2 2024, 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tpsim.algebra.sharding import ShardingError
from tpsim.program.blocks.attention import softmax, turned
from tpsim.program.blocks.norm import norm
from tpsim.program.op import Array, Scale
from tpsim.program.saved import STATISTIC
from tpsim.program.text import Parameter, Text
from tpsim.program.tokens import INDEXER, SELECTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Latent
    from tpsim.program.practice import Practice


def parameters(block: Latent, _: Practice) -> Iterator[Parameter]:
    """Queries by way of a narrow array if there is one; a latent, and from it what the heads read; one rotated key."""
    source = "h"
    if block.query_rank:
        source = "u"
        yield Parameter("Wqdown", ("h", "u"), "attention")
        yield Parameter("gain_query", ("u",), "attention")
    yield Parameter("Wq", (source, "g", "d"), "attention")
    yield Parameter("Wqrope", (source, "g", "a"), "attention")
    yield Parameter("Wdown", ("h", "x"), "attention")
    yield Parameter("gain_latent", ("x",), "attention")
    yield Parameter("Wkrope", ("h", "a"), "attention")
    yield Parameter("Wk", ("x", "g", "d"), "attention")
    yield Parameter("Wv", ("x", "g", "o"), "attention")
    yield Parameter("Wo", ("h", "g", "o"), "attention", first=("h",))
    if block.top:
        yield Parameter("Wiq", ("u", "gi", "di"), "attention")
        yield Parameter("Wik", ("h", "di"), "attention")
        yield Parameter("Wiw", ("h", "gi"), "attention")
        yield from (Parameter(f"{kind}_index", ("di",), "attention") for kind in ("gain", "shift"))


class Heads(NamedTuple):
    """What attention is made from.

    query, rotated_query  without positions, and the part with
    latent, rotated_key   of a token
    indexer  its queries, how much each of its heads counts, and a token's key
    """

    query: Array
    rotated_query: Array
    latent: Array
    rotated_key: Array
    indexer: tuple[Array, Array, Array] | None = None


def write(text: Text, block: Latent, x: Array) -> Array:
    """Attention with keys and values of every head made from the latent; one or the other devices hand each other.

    A score is that of the parts without positions plus that of the rotated parts: nothing is laid side by side.
    """
    with text.inside("attention", "block"):
        heads = headed(text, block, x)
        read = as_read(text, heads.latent, heads.rotated_key)
        made = expanded(text, block, (heads.query, heads.rotated_query), read)
        return text.linear("attention.out", ("b", "s", "h"), made, "Wo")


PLACES = {"block": "block", "stream": "compressed"}
"""`Practice.latents` -> the region in which latents are made, and normed."""


def headed(text: Text, block: Latent, x: Array) -> Heads:
    """What attention is made from."""
    place = PLACES[text.practice.latents]
    with text.inside("attention", place):
        read = text.trace.pin(x, place, "attention reads the normed stream", name="attention.in")
        source = _source(text, block, read)
        q, q_rope = _queries(text, source)
        latent = text.linear("attention.latent", ("b", "s", "x"), read, "Wdown")
        latent = norm(text, latent, "latent", dims=("x",), region=place, kind="rmsnorm")
        k_rope = text.linear("attention.k_rope", ("b", "s", "a"), read, "Wkrope")
        index = _indexed(text, _whole(text, read), source) if block.top else None
    return Heads(q, q_rope, latent, _rotated(text, _whole(text, k_rope)), index)


def _whole(text: Text, x: Array) -> Array:
    """What is compressed as heads read it: where it is made with the stream's tokens it leaves these here."""
    return x if x.region == "block" else text.trace.pin(x, "block", "heads read what is compressed")


def _indexed(text: Text, x: Array, source: Array) -> tuple[Array, Array, Array]:
    """Of an indexer queries, how much each of its heads counts, and a token's key: the same on all chips of a sequence.

    Source: DeepSeek-V3.2 (2025), equation 1, and its inference/model.py: Indexer, which rotates a half of a head.
    """
    with text.inside("attention", "block"):
        query = text.linear("index.query", ("b", "s", "gi", "di"), source, "Wiq")
        counts = text.linear("index.counts", ("b", "s", "gi"), x, "Wiw")
        key = text.linear("index.key", ("b", "s", "di"), x, "Wik")
        key = norm(text, key, "index", dims=("di",), region="block", kind="layernorm")
        query, key = (turned(text, x, "di", "die", "index_rotation") for x in (query, key))
        return query, counts, key


def selected(text: Text, index: tuple[Array, Array, Array], keys: Array) -> Array:
    """The mask of the keys that each query reads: the best of those before it, by the scores of all heads together.

    keys  of all tokens
    Raises ShardingError if no device has the scores of all tokens.
    """
    trace, (query, counts, _) = text.trace, index
    if split := keys.type.axes("t"):
        raise ShardingError(f"{keys} is split on t over {', '.join(split)}: to choose tokens takes the scores of all")
    with text.inside("attention", keys.region, INDEXER):
        query, counts = (trace.pin(x, keys.region, "") for x in (query, counts))
        scores = trace.map("index.scored", "relu", trace.einsum("index.scores", ("b", "s", "gi", "t"), query, keys))
        worth = trace.einsum("index.worth", ("b", "s", "t"), scores, counts, dtype=STATISTIC)
        worth = trace.lin("index.masked", worth, trace.index("causal_mask", ("s", "t"), worth.dtype))
        return trace.index(SELECTED, worth.dims, worth.dtype, worth, born=worth.type)


def expanded(text: Text, block: Latent, queries: tuple[Array, Array], read: tuple[Array, Array]) -> Array:
    """What attention makes with keys and values of every head.

    read  latents, and rotated keys, of the tokens that it reads: `as_read`, or those of a cache
    """
    trace, (q, q_rope) = text.trace, queries
    k, k_rope, v = _keys_and_values(text, *read)
    with text.inside("attention", "heads", "attention"):
        streamed = text.practice.context == "ring" and text.practice.handed == "heads"
        q, q_rope = trace.pin(q, "heads", ""), trace.pin(q_rope, "heads", "")
        k, k_rope, v = (trace.pin(array, "heads", "", streamed=streamed) for array in (k, k_rope, v))
        mixed = trace.einsum("attention.mixed", ("b", "s", "g", "o"), weights(text, block, (q, q_rope), (k, k_rope)), v)
    with text.inside("attention", "block"):
        return trace.pin(mixed, "block", "")


def as_read(text: Text, latent: Array, k_rope: Array) -> tuple[Array, Array]:
    """Latents, and rotated keys, of a step's own tokens as those that attention reads."""
    with text.inside("attention", latent.region):
        latents = text.trace.rename("attention.latents", latent, "s", "t")
    return latents, text.trace.rename("attention.rotated_keys", k_rope, "s", "t")


def _keys_and_values(text: Text, latent: Array, k_rope: Array) -> Iterator[Array]:
    """Keys without positions, rotated keys, and values: of all tokens that heads read, or of a device's own.

    Handed heads, attention is given a rotated key of each, as frameworks lay it beside the other part; else it reads
    one for all.
    """
    trace, handed = text.trace, text.practice.handed == "heads"
    with text.inside("attention", "block" if handed else "latent"):
        if handed:
            own = trace.layout.type_in(("b", "s", "x"), "block").renamed({"s": "t"})
            latent = trace.reshard(latent, own, "heads read what is compressed")
        else:
            latent, k_rope = trace.pin(latent, "latent", ""), trace.pin(k_rope, "latent", "")
        k = text.linear("attention.k", ("b", "t", "g", "d"), latent, "Wk")
        v = text.linear("attention.v", ("b", "t", "g", "o"), latent, "Wv")
        yield k
        k_rope = trace.bcast(k_rope.name, k_rope, k.type.renamed({"d": "a"}).with_axes("a", ()))
        yield trace.lin(k_rope.name, k_rope) if handed else k_rope
        yield v


def weights(
    text: Text,
    block: Latent,
    queries: tuple[Array, Array],
    keys: tuple[Array, Array],
    hidden: Array | None = None,
) -> Array:
    """What tokens take of each other: of queries and keys first the parts without positions, then the rotated ones.

    hidden  the mask, if it is not that of all later tokens
    The scale of scores is the root of a head's dims, both parts together.
    """
    plain, rotated = (
        text.trace.einsum(f"attention.{part}_scores", ("b", "g", "s", "t"), q, k)
        for part, q, k in zip(("plain", "rotated"), queries, keys, strict=True)
    )
    scores, scale = text.trace.lin("attention.scores", plain, rotated), Scale((block.nope + block.rope) ** -0.5)
    return softmax(text, scores, scale, hidden=hidden)


def _source(text: Text, block: Latent, x: Array) -> Array:
    """What queries are made from: a latent of their own, if they have one."""
    if block.query_rank:
        x = text.linear("attention.query_latent", ("b", "s", "u"), x, "Wqdown")
        x = norm(text, x, "query", dims=("u",), region=x.region, kind="rmsnorm")
    with text.inside("attention", "block"):
        return _whole(text, x)


def _queries(text: Text, x: Array) -> tuple[Array, Array]:
    """The parts of queries without positions, and those that are rotated."""
    with text.inside("attention", "block"):
        q = text.linear("attention.q", ("b", "s", "g", "d"), x, "Wq")
        return q, _rotated(text, text.linear("attention.q_rope", ("b", "s", "g", "a"), x, "Wqrope"))


def _rotated(text: Text, x: Array) -> Array:
    return turned(text, x, "a", "ae", "part_rotation")
