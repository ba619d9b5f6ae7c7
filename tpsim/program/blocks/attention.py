"""Grouped-query attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.blocks.norm import norm
from tpsim.program.dims import HELD
from tpsim.program.op import Array, Scale
from tpsim.program.saved import STATISTIC
from tpsim.program.text import MINUS, Parameter, Text
from tpsim.program.trace import ONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.program.model import Attention
    from tpsim.program.practice import Practice

HEADS: Mapping[str, tuple[str, ...]] = {"q": ("g", "r", "d"), "k": ("g", "d"), "v": ("g", "d")}
"""The dims of a token's queries, keys and values."""

PROJECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "separate": HEADS,
    "fused": {"qkv": ("g", "j", "d")},
    "fused_kv": {"kv": ("g", "kv", "d"), "q": HEADS["q"]},
}
"""`Practice.qkv` -> what is projected by one product each, and its dims; a fused one has slots: key, value, queries."""

HOLDS: Mapping[str, str] = {"t": "", HELD: "held_"}
"""Dims of keys -> what names of masks begin with there."""

SLOTS = frozenset({"j", "kv"})
"""Dims of the slots of what is projected together."""


def parameters(block: Attention, practice: Practice) -> Iterator[Parameter]:
    """A weight for each product, with biases on those of queries, keys and values, or on all."""
    projections = PROJECTIONS[practice.qkv]
    for name, dims in projections.items():
        yield Parameter(f"W{name}", ("h", *dims), "attention")
    yield Parameter("Wo", ("h", *HEADS["q"]), "attention", first=("h",))
    if block.bias != "none":
        for name, dims in projections.items():
            yield Parameter(f"b{name}", dims, "attention")
    if block.bias == "all":
        yield Parameter("bo", ("h",), "attention")
    for name in "qk" if block.qk_norm != "none" else "":
        yield Parameter(f"gain_{name}", ("d",) if block.qk_norm == "head" else HEADS[name], "attention")
    if block.sinks:
        yield Parameter("sinks", ("g", "r"), "attention")
    if block.gate:
        yield Parameter("Wopen", ("h", *HEADS["q"]), "attention")


def write(text: Text, block: Attention, x: Array) -> Array:
    """Attention to the tokens before; its output owes a sum wherever the heads are split."""
    trace = text.trace
    with text.inside("attention", "block"):
        x = text.entered(x, "attention.in", "attention reads the normed stream")
        q, k, v = headed(text, block, x)
        k, v = trace.rename("attention.keys", k, "s", "t"), trace.rename("attention.values", v, "s", "t")
    with text.inside("attention", "heads", "attention"):
        streamed = text.practice.context == "ring"
        q, k, v = (trace.pin(head, "heads", "", streamed=streamed and head is not q) for head in (q, k, v))
        mixed = trace.einsum("attention.mixed", ("b", "s", "g", "r", "d"), weights(text, block, q, k), v)
    with text.inside("attention", "block"):
        return text.linear(
            "attention.out", ("b", "s", "h"), opened(text, block, x, trace.pin(mixed, "block", "")), "Wo"
        )


def opened(text: Text, block: Attention, x: Array, mixed: Array) -> Array:
    """What heads make, as far as its gate lets it through, which reads what they do; of most models all of it."""
    if not block.gate:
        return mixed
    gate = text.linear("attention.gate", mixed.dims, x, "Wopen")
    with text.inside("attention", "block", "activation.gate"):
        return text.trace.map("attention.opened", "mul", text.trace.map("attention.open", "sigmoid", gate), mixed)


def headed(text: Text, block: Attention, x: Array) -> tuple[Array, Array, Array]:
    """Queries, keys and values as attention reads them: projected, normed and rotated."""
    q, k, v = _projected(text, x)
    q, k = _normed(text, block, q, "q"), _normed(text, block, k, "k")
    return _rotated(text, block, q), _rotated(text, block, k), v


def _projected(text: Text, x: Array) -> Iterator[Array]:
    """Queries, keys and values: a product each, or one for those that are fused, whose selection costs nothing."""
    arrays = {
        name: text.linear(f"attention.{name}", ("b", "s", *dims), x, f"W{name}", f"b{name}")
        for name, dims in PROJECTIONS[text.practice.qkv].items()
    }
    for name, dims in HEADS.items():
        (fused,) = (array for array in arrays if name in array)
        if fused != name:
            slots = arrays[fused]
            wanted = tuple(dim for dim in (*slots.dims, *dims) if dim in SLOTS or dim == "r")
            chosen = text.trace.index(f"{name}_slot", wanted, x.dtype)
            arrays[name] = text.trace.einsum(f"attention.{name}", ("b", "s", *dims), slots, chosen)
        yield arrays[name]


def _rotated(text: Text, block: Attention, x: Array) -> Array:
    return turned(text, x, "d", "e", "rotation") if text.model.positions == "rope" and block.rope else x


def turned(text: Text, x: Array, dim: str, image: str, rotation: str) -> Array:
    """Rotary positions on a dim as a product with a table of rotations, so that the transpose comes free."""
    dims = tuple(image if own == dim else own for own in x.dims)
    with text.inside("attention", "block", f"rotary.{x.name}"):
        table = text.trace.index(rotation, ("s", dim, image), x.dtype)
        return text.trace.rename(x.name, text.trace.einsum(x.name, dims, x, table), image, dim)


def _normed(text: Text, block: Attention, x: Array, name: str) -> Array:
    """Queries or keys with each head brought to unit mean square, or all heads of a token together."""
    if block.qk_norm == "none":
        return x
    dims = ("d",) if block.qk_norm == "head" else HEADS[name]
    return norm(text, x, name, dims=dims, region="block", kind="rmsnorm")


def weights(text: Text, block: Attention, q: Array, k: Array) -> Array:
    """How much of each value a query takes: the softmax of scores, which may be capped before."""
    trace, sinks = text.trace, text.use("sinks") if block.sinks else None
    (keys,) = HOLDS.keys() & {*k.dims}
    scores = trace.einsum("attention.scores", ("b", "g", "r", "s", keys), q, k)
    scale = Scale(block.scale**-0.5) if block.scale else Scale(1.0, (("d", -0.5),))
    if block.softcap:
        scores, scale = text.capped("attention", scores, block.softcap, scale), ONE
    if text.model.positions == "alibi":
        falls = trace.index("alibi", ("g", "r", "s", keys), scores.dtype)
        scores, scale = trace.lin("attention.biased", scores, falls, scales=(scale, ONE)), ONE
    return softmax(text, scores, scale, mask=f"{HOLDS[keys]}{block.mask}_mask", sinks=sinks, keys=keys)


def softmax(
    text: Text,
    scores: Array,
    scale: Scale,
    *,
    mask: str = "causal_mask",
    sinks: Array | None = None,
    keys: str = "t",
    hidden: Array | None = None,
) -> Array:
    """Softmax of masked, scaled scores over the keys, and of sinks; split keys owe a max, then a sum.

    hidden  what hides some, if it is no mask of places alone
    """
    trace, rest = text.trace, tuple(dim for dim in scores.dims if dim != keys)
    hidden = hidden or trace.index(mask, ("s", keys), scores.dtype)
    scores = trace.lin("attention.masked", scores, hidden, scales=(scale, ONE))
    top = trace.settled(trace.max("attention.max", scores, keys), "exp needs the whole row's maximum")
    weight = trace.map("attention.exp", "exp", trace.lin("attention.shifted", scores, top, scales=(ONE, MINUS)))
    total = trace.einsum("attention.sum_exp", rest, weight, dtype=STATISTIC)
    total = trace.settled(total, "softmax divides by the whole sum")
    if sinks is not None:
        beside = trace.lin("attention.sink_shifted", sinks, top, scales=(ONE, MINUS))
        total = trace.lin("attention.with_sink", total, trace.map("attention.sink_exp", "exp", beside), dtype=STATISTIC)
    if text.practice.attention == "fused":
        _logsum(text, top, total)
    return text.dropped("attention", trace.map("attention.softmax", "div", weight, total))


def _logsum(text: Text, top: Array, total: Array) -> None:
    """What backward subtracts in place of the maximum: softmax is the same for any, and the sum is one then."""
    trace = text.trace
    trace.instead[top] = trace.lin("attention.logsum", trace.map("attention.log", "log", total), top)
    trace.instead[total] = trace.index("one", total.dims, total.dtype, born=total.type)
