"""From a model and a layout to the program of a step of inference: a prompt read, or new tokens decoded.

The same transformer forward alone, with keys and values that outlive the step in a cache. It lies as region `cache`
says: by heads (as attention does), by batch (attention data parallel), or by tokens (decode context parallel, where
softmax owes a max, a sum and a weighted sum). No op here names an axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.program.blocks.attention import headed, opened, weights
from tpsim.program.blocks.norm import norm
from tpsim.program.blocks.vocabulary import embedded, further, further_parameters, head
from tpsim.program.dims import HELD
from tpsim.program.kinds import ALIKE, Layers, model_kind
from tpsim.program.lower import ROOT, leaves_of, stacks_of
from tpsim.program.model import Attention, Latent, Model
from tpsim.program.op import Append, Array, Program
from tpsim.program.saved import STATISTIC
from tpsim.program.text import Text
from tpsim.program.trace import Path, Trace, book_path
from tpsim.program.transformer import forward

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tpsim.program.blocks.latent import Heads
    from tpsim.program.dtypes import Dtypes
    from tpsim.program.layout import Layout
    from tpsim.program.linear import Linear
    from tpsim.program.practice import Practice

Sampling = Literal["gather", "argmax"]
"""How the next token is found where the vocabulary is split: its logits are gathered, or their maxima compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What steers the structure of a step of inference.

    phase     prefill: of a prompt, whose last token is sampled from; decode: of new tokens, all of which are
    cached    True if earlier tokens are in the cache, which attention then reads; False for a prompt from nothing
    sampling  how the next token is found over a split vocabulary
    further   True of the module that predicts a token further on, alone: it drafts from the stream of its model
    """

    phase: Literal["prefill", "decode"]
    cached: bool = True
    sampling: Sampling = "gather"
    further: bool = False


def lower_serving(
    model: Model,
    layout: Layout,
    practice: Practice,
    dtypes: Dtypes,
    order: tuple[str, ...],
    *,
    serving: Serving,
    layers: int | tuple[int | Layers, ...] | None = None,
    path: Path = book_path,
) -> Program:
    """The typed program of a step of inference; arguments as `lower` has them.

    Its results are what is sampled from, and the caches behind the step.
    Raises ShardingError if the layout asks for what the algebra forbids, with the reason in the notation.
    """
    trace, practice = Trace(layout, order, ROOT, path=path), practice.under(layout)
    joining = _joining(trace, model, dtypes) if serving.further else {}
    model = replace(model, dropout=0.0, mtp=None)  # what predicts further tokens is no layer of its own
    stacks = stacks_of(layers, practice, model)
    leaves = {**leaves_of(trace, model, practice, dtypes, stacks), **joining}
    served = Served(
        trace,
        model,
        practice,
        dtypes,
        leaves,
        others={"gqa": attention, "mla": latent_attention, "linear": linear_attention},
        caches=_caches(trace, model, leaves, dtypes),
        serving=serving,
    )
    with trace.at(ROOT.inside("microbatches", 0)):
        begin = joined if serving.further else embedded
        results = {"sampled": forward(served, stacks, sampled, begin)}
    results |= {f"cache.{layer}.{name}": array for (name, layer), array in served.appended.items()}
    kinds = [kind for stack in stacks for kind in stack]
    traced = {**Counter(kinds), ALIKE: len(kinds), "microbatches": 1, "chunks": max(1, len(stacks) - 1)}
    plain = practice.attention == "plain"
    borrowed = BORROWED if serving.further else ()
    return Program(tuple(trace.ops), order, traced, layout.table, results, plain=plain, borrowed=borrowed)


BORROWED = ("E", "O")
"""Tables that a module which predicts a token further on has from its model."""


def _joining(trace: Trace, model: Model, dtypes: Dtypes) -> dict[tuple[str, int | None], Array]:
    """The parameters that join a token's embedding to the stream of its model; the norm of the end stands anyway."""
    leaves: dict[tuple[str, int | None], Array] = {}
    with trace.at(ROOT.but(place="embedding")):
        for parameter in further_parameters(model):
            if not parameter.name.endswith("mtp_final"):
                leaf = trace.leaf(parameter.name, parameter.dims, "stored", dtypes.weights_of(parameter.block), "param")
                leaves[parameter.name, None] = leaf
    return leaves


def joined(text: Served) -> Array:
    """What a module that predicts a token further on begins with: the model's stream and the last token's embedding."""
    with text.inside("mlp", "residual"):
        stream = text.trace.leaf("stream", ("b", "s", "h"), "residual", text.dtypes.activations, "activation")
    return further(text, stream, embedded(text))


def _caches(
    trace: Trace, model: Model, leaves: dict[tuple[str, int | None], Array], dtypes: Dtypes
) -> dict[tuple[str, int | None], Array]:
    """The caches of every traced layer, each where the layer is."""
    homes = {layer: trace.producer[weight].where for (name, layer), weight in leaves.items() if name == "Wo"}
    caches: dict[tuple[str, int | None], Array] = {}
    for layer, where in homes.items():
        with trace.at(where):
            block = model.kinds[model_kind(where.kind)].attention
            region = "heads" if block.keeps_state else "cache"
            usual = dtypes.activations if block.keeps_state else dtypes.cache or dtypes.activations
            for name, dims in caches_of(block).items():
                dtype = CACHED.get(name, usual)
                caches[name, layer] = trace.leaf(f"cache.{name}", dims, region, dtype, "cache")
    return caches


def caches_of(block: Attention | Latent | Linear) -> Mapping[str, tuple[str, ...]]:
    """The caches of a layer by its attention, and their dims: t tokens, of which the last s are the step's own.

    Of a window or a chunk as many tokens are held as a step reads of it, each where another one stood that none reads
    any more. Of latent attention the latent of a token and its rotated key, and of an indexer its key: they have no
    heads, and are copied where these are split. Of linear attention the state, and of its convolutions the last tokens.
    """
    if block.keeps_state:
        from tpsim.program.blocks.linear import HELD_OF

        return HELD_OF
    window = isinstance(block, Attention) and block.window
    if isinstance(block, Latent):
        return {"C": ("b", "t", "x"), "R": ("b", "t", "a"), **({"I": ("b", "t", "di")} if block.top else {})}
    return dict.fromkeys("KV", ("b", HELD if window else "t", "g", "d"))


CACHED: Mapping[str, str] = {"I": "fp8_128", "S": STATISTIC}
"""In which some are stored, whatever the others are: keys of an indexer, whose scores are in fp8 (DeepSeek-V3.2 2025,
2.1), and states (transformers, qwen3_5: mamba_ssm_dtype float32).
"""

PAIR = "f64"
"""The dtype of a logit beside its place in the vocabulary: one number of eight bytes, whose maximum is taken."""


def rows_type(cache: Sharding) -> Sharding:
    """The type in which the rows of new tokens come to a cache of that type: whole where it is split over tokens."""
    return cache.renamed({"t": "s", HELD: "s"}).with_axes("s", ())


def append(trace: Trace, cache: Array, new: Array) -> Array:
    """`cache` with the rows of `new` behind those that it has: every device writes those that fall into its block.

    What holds no tokens of its own is replaced as a whole.

    Raises ShardingError if the rows do not lie as the cache does, or are split over tokens.
    """
    whole = new.dims == cache.dims
    if new.type != (due := cache.type if whole else rows_type(cache.type)):
        raise ShardingError(f"{new} cannot be written into {cache}: rows must come as {due}")
    array = replace(cache, region=trace.region, active=False)
    because = f"{cache.name} holds the keys or values of all tokens; those of new ones are written behind them"
    because = f"{cache.name} holds what all tokens have left; the new ones change it" if whole else because
    return trace.emit(Append((cache, new), array, trace.where, because))


@dataclass(slots=True)
class Served(Text):
    """The text of one step of inference.

    caches    (name, layer) -> the leaf
    appended  the caches behind the step
    """

    caches: Mapping[tuple[str, int | None], Array] = field(default_factory=dict)
    serving: Serving = field(kw_only=True)
    appended: dict[tuple[str, int | None], Array] = field(default_factory=dict)

    def held(self, name: str) -> Array:
        """A cache of the layer as it was before the step."""
        return self.caches[name, self.trace.where.layer]

    def keep(self, name: str, new: Array) -> Array:
        """The same cache with new rows, or as they make it."""
        array = append(self.trace, self.held(name), new)
        self.appended[name, self.trace.where.layer] = array
        return array

    def apart(self) -> AbstractContextManager[None]:
        """What follows prompts and replies of one step do each alone."""
        return self.trace.at(self.trace.where.but(apart=True))


def attention(text: Served, block: Attention, x: Array) -> Array:
    """Attention over a cache to which the step's own keys and values have been added."""
    trace = text.trace
    with text.inside("attention", "block"):
        x = trace.pin(x, "block", "attention reads the normed stream", name="attention.in")
        q, k, v = headed(text, block, x)
    with text.apart():
        mixed = _attended(text, block, (q, k, v))
    with text.inside("attention", "block"):
        return text.linear("attention.out", ("b", "s", "h"), opened(text, block, x, mixed), "Wo")


def _attended(text: Served, block: Attention, heads: tuple[Array, Array, Array]) -> Array:
    """What queries take of all values, those of the cache too; keys and values of new tokens are written into it."""
    trace, (q, k, v) = text.trace, heads
    caches = _cached(text, {"K": k, "V": v})
    region = "cache" if text.serving.cached else "heads"
    if not text.serving.cached:
        with text.inside("attention", "heads"):
            own = [trace.rename(name, trace.pin(x, "heads", ""), "s", "t") for name, x in (("K", k), ("V", v))]
    keys, values = caches if text.serving.cached else own
    with text.inside("attention", region, "attention"):
        query = trace.lin("attention.wide", trace.pin(q, region, ""), dtype=STATISTIC)
        mixed = trace.einsum("attention.mixed", ("b", "s", "g", "r", "d"), weights(text, block, query, keys), values)
    with text.inside("attention", "block"):
        return _narrow(text, mixed, q.dtype)


def linear_attention(text: Served, block: Linear, x: Array) -> Array:
    """Attention to a state, which new tokens change."""
    from tpsim.program.blocks.linear import serve

    return serve(text, block, x)


def latent_attention(text: Served, block: Latent, x: Array) -> Array:
    """Attention over latents: of a prompt with keys and values of every head, of decoding absorbed.

    Absorbed: queries are brought to where latents lie, and what attention makes of these is brought to values; so no
    key and no value of an earlier token is made again (DeepSeek-V2 2024, 2.1.2). A prompt has so many queries that
    they cost less FLOPs with keys and values of all that it reads, cached tokens too (vLLM, mla/common.py).
    """
    from tpsim.program.blocks import latent

    with text.inside("attention", "block"):
        heads = latent.headed(text, block, x)
    with text.apart():
        made = _of_latents(text, block, heads)
    with text.inside("attention", "block"):
        return text.linear("attention.out", ("b", "s", "h"), made, "Wo")


def _of_latents(text: Served, block: Latent, heads: Heads) -> Array:
    """What queries take of the values of all latents, or of those that an indexer chooses.

    These are absorbed in a prompt, too: of what is chosen every query has tokens of its own (DeepSeek-V3.2 2025, 2.1).
    """
    from tpsim.program.blocks import latent

    trace, queries = text.trace, (heads.query, heads.rotated_query)
    own = {"C": heads.latent, "R": heads.rotated_key, **({"I": heads.indexer[-1]} if heads.indexer else {})}
    latents, rotated, *keys = _cached(text, own)
    if text.serving.phase == "prefill" and not heads.indexer:
        new = heads.latent, heads.rotated_key
        read = _rows_of(text, latents, rotated, new[0].dtype) if text.serving.cached else latent.as_read(text, *new)
        return latent.expanded(text, block, queries, read)
    hidden = latent.selected(text, heads.indexer, *keys) if heads.indexer else None
    with text.inside("attention", "block"):
        query = text.linear("attention.absorbed", ("b", "s", "g", "x"), heads.query, "Wk")
    with text.inside("attention", "cache", "attention"):
        query, q_rope = (
            trace.lin("attention.wide", trace.pin(x, "cache", ""), dtype=STATISTIC)
            for x in (query, heads.rotated_query)
        )
        taken = latent.weights(text, block, (query, q_rope), (latents, rotated), hidden)
        mixed = trace.einsum("attention.mixed", ("b", "s", "g", "x"), taken, latents)
    with text.inside("attention", "block"):
        narrow = _narrow(text, mixed, heads.query.dtype)
        return text.linear("attention.values", ("b", "s", "g", "o"), narrow, "Wv")


def sampled(text: Served, x: Array) -> Array:
    """What the next tokens are found in: all logits, or the largest one of each row."""
    trace = text.trace
    if text.serving.phase == "prefill":
        with text.inside("head", "residual"):
            end = trace.index("last", ("s",), x.dtype)
            x = trace.pin(trace.einsum("head.last", ("b", "h"), x, end), "residual", "", name="head.last")
    logits = head(text, norm(text, x, "final"))
    with text.inside("sampling", "vocab"):
        if text.serving.sampling == "gather":
            whole, because = logits.type.with_axes("v", ()), "the next token is drawn from all logits"
            return _capped(text, trace.reshard(logits, whole, because, name="sampled"))
        best = trace.max("sampled", _capped(text, logits), "v", dtype=PAIR)
        return trace.settled(best, "the most likely token of the whole vocabulary is taken")


def _capped(text: Served, logits: Array) -> Array:
    """Logits as the model caps them, by a kernel of its own."""
    if not text.model.logit_softcap:
        return logits
    with text.inside("sampling", "vocab", "cap"):
        return text.capped(logits.name, logits, text.model.logit_softcap)


def _cached(text: Served, rows: Mapping[str, Array]) -> list[Array]:
    """The caches with the step's own rows, which are brought to where these lie."""
    trace, arrays = text.trace, []
    with text.inside("attention", "cache", "cache.append"):
        for name, new in rows.items():
            cache = text.held(name)
            because = "; ".join([*trace.owed_because(new), f"the cache {name} takes them"])
            moved = trace.reshard(new, rows_type(cache.type), because, region="cache")
            if moved.dtype != cache.dtype:
                moved = trace.lin(f"{moved.name}.cast", moved, dtype=cache.dtype)
            arrays.append(text.keep(name, moved))
    return arrays


def _rows_of(text: Served, latents: Array, rotated: Array, dtype: str) -> tuple[Array, Array]:
    """What is cached, as a prompt reads what it makes itself: each sequence in one piece, where heads are."""
    trace = text.trace
    with text.inside("attention", "cache"):
        rows = [trace.lin(f"attention.{cached.name}", cached, dtype=dtype) for cached in (latents, rotated)]
    with text.inside("attention", "block"):
        latents, rotated = (trace.pin(x, "block", "heads read the latents of all tokens") for x in rows)
    return latents, rotated


def _narrow(text: Served, mixed: Array, dtype: str) -> Array:
    """What attention makes, in its own number format where the next product reads it.

    Over split tokens it owes a sum, which is paid in full precision before; else it is narrow when its kernel ends.
    """
    trace, owes = text.trace, not mixed.type.complete
    if not owes:
        with text.inside("attention", mixed.region, "attention"):
            mixed = trace.lin("attention.narrow", mixed, dtype=dtype)
    mixed = trace.pin(mixed, "block", "")
    return trace.lin("attention.narrow", mixed, dtype=dtype) if owes else mixed
