"""What a transformer is: its sizes and switches, and kinds of layers made of blocks from a closed vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tpsim.program.copies import Router
from tpsim.program.dims import DIMS, completed
from tpsim.program.kinds import ALIKE, Layers
from tpsim.quantity.spec import Count, Flag, Strict

if TYPE_CHECKING:
    from tpsim.program.linear import Linear

FeedForward = Literal["gelu", "relu", "relu2", "swiglu", "geglu", "swiglu_clamped"]
GATED: frozenset[str] = frozenset({"swiglu", "geglu", "swiglu_clamped"})
"""Feed-forwards that multiply two projections; swiglu_clamped: that of gpt-oss, with bounds; relu2: ReLU squared."""

Positions = Literal["rope", "learned", "alibi", "none"]
"""How a model knows where tokens stand; alibi: scores fall with the distance, by head (Press et al. 2022)."""

Positive = Annotated[float, Field(gt=0)]


class Attention(Strict):
    """Grouped-query attention: heads (g*r), kv_heads g, head_dim d.

    bias     on the projections of queries, keys and values (qkv), on the output's too (all)
    rope     False: the model's rotary positions leave this block out (Llama 4, every fourth layer)
    qk_norm  RMSNorm of queries and keys, each head by itself (head), or all heads of a token together (all)
    mask     what a token reads: all before it, the last `window` (window), or those of its `window` alike (chunk)
    softcap  scores become softcap * tanh(scores / softcap)
    sinks    a learned logit per head joins each softmax and has no value
    scale    scores are divided by its root; None: by that of head_dim
    gate     what heads make is multiplied by the sigmoid of a projection of the stream (Qwen3-Next)
    """

    keeps_state: ClassVar[bool] = False
    attention: Literal["gqa"] = "gqa"
    heads: Count
    kv_heads: Count
    head_dim: Count
    bias: Literal["none", "qkv", "all"] = "none"
    rope: Flag = True
    qk_norm: Literal["none", "head", "all"] = "none"
    mask: Literal["causal", "window", "chunk"] = "causal"
    window: Count | None = None
    softcap: Positive | None = None
    sinks: Flag = False
    scale: Positive | None = None
    gate: Flag | None = None

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of its dims."""
        queries, dim, window = self.heads // self.kv_heads, self.head_dim, {"w": self.window} if self.window else {}
        return {"g": self.kv_heads, "r": queries, "d": dim, "e": dim, "j": queries + 2, "kv": 2, **window}

    def resized(self, dims: Mapping[str, int]) -> Attention:
        """The same with dims of these sizes."""
        window = {"window": dims["w"]} if self.window else {}
        sizes = {"heads": dims["g"] * dims["r"], "kv_heads": dims["g"], "head_dim": dims["d"]}
        return self.model_copy(update={**sizes, **window})


class Latent(Strict):
    """Multi-head latent attention (DeepSeek-V2 2024, 2.1): keys and values are made from one latent per token.

    heads g, kv_rank x, nope d (a head's dims without positions), rope a (those with, keys have one for all heads),
    value o; query_rank u, None: queries are made from the stream itself

    A query may read no more than the `top` w keys that an indexer scores best, of which it has `index_heads` gi with
    `index_dim` di numbers each, made from the latent of queries; keys have one for all (DeepSeek-V3.2 2025, 2.1).
    """

    noun: ClassVar[str] = "a latent attention"
    keeps_state: ClassVar[bool] = False
    attention: Literal["mla"] = "mla"
    heads: Count
    kv_rank: Count
    nope: Count
    rope: Count
    value: Count
    query_rank: Count | None = None
    index_heads: Count | None = None
    index_dim: Count | None = None
    top: Count | None = None

    @model_validator(mode="after")
    def _whole(self) -> Latent:
        """An indexer has all of its sizes, and a latent of queries to read. Raises ValueError for part of them."""
        stated = [name for name in INDEXER if getattr(self, name) is not None]
        if stated and (len(stated) < len(INDEXER) or self.query_rank is None):
            lacks = [name for name in (*INDEXER, "query_rank") if getattr(self, name) is None]
            raise ValueError(f"{stated[0]} is a size of an indexer, which has {', '.join(lacks)}, too")
        return self

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of its dims."""
        heads = {"g": self.heads, "r": 1, "d": self.nope, "a": self.rope, "ae": self.rope, "o": self.value}
        stated = {dim: size for name, dim in OPTIONAL.items() if (size := getattr(self, name))}
        image = {"die": self.index_dim} if self.index_dim else {}
        return {**heads, "x": self.kv_rank, **stated, **image}

    def resized(self, dims: Mapping[str, int]) -> Latent:
        """The same with dims of these sizes."""
        named = {"heads": "g", "kv_rank": "x", "nope": "d", "rope": "a", "value": "o"}
        named |= {name: dim for name, dim in OPTIONAL.items() if getattr(self, name)}
        return self.model_copy(update={name: dims[dim] for name, dim in named.items()})


INDEXER = ("index_heads", "index_dim", "top")
"""The sizes of an indexer."""

OPTIONAL: Mapping[str, str] = {"query_rank": "u", **dict(zip(INDEXER, ("gi", "di", "w"), strict=True))}
"""The sizes that a latent attention need not have, and their dims."""


class Mlp(Strict):
    """A feed-forward of every token: hidden f; bias: on all of its projections."""

    noun: ClassVar[str] = "a feed-forward"
    ffn: Literal["mlp"] = "mlp"
    kind: FeedForward
    hidden: Count
    bias: Flag = False

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of its dims."""
        return {"f": self.hidden}

    def resized(self, dims: Mapping[str, int]) -> Mlp:
        """The same with dims of these sizes."""
        return self.model_copy(update={"hidden": dims["f"]})


class NoFeedForward(Strict):
    """None behind an attention that the next one follows (Nemotron-H)."""

    noun: ClassVar[str] = "no feed-forward"
    ffn: Literal["none"] = "none"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of its dims: there are none."""
        return {}

    def resized(self, _: Mapping[str, int]) -> NoFeedForward:
        """The same."""
        return self


class Moe(Strict):
    """A mixture of experts: experts n (i as the router scores them), top k of which work for a token; hidden y each.

    shared       hidden size z of what works for every token, beside the experts; None: nothing does
    score        of an expert for a token: softmax or sigmoid of the router's logits
    normalise    the scores of the chosen are divided by their sum
    choice_bias  a number per expert is added to scores for the choice alone (DeepSeek-V3)
    groups       experts are chosen from the best `top_groups` of so many groups: those with the best expert, or, where
                 a bias counts for the choice, with the best two together (DeepSeek-V2 and -V3, inference/model.py)
    bias         on the router and on all projections of the experts (gpt-oss)
    shared_gate  what works for every token is multiplied by the sigmoid of one number of the stream (Qwen3-Next)
    """

    noun: ClassVar[str] = "a mixture of experts"
    ffn: Literal["moe"] = "moe"
    kind: FeedForward = "swiglu"
    experts: Count
    top: Count
    hidden: Count
    shared: Count | None = None
    score: Literal["softmax", "sigmoid"] = "softmax"
    normalise: Flag = True
    choice_bias: Flag = False
    groups: Count = 1
    top_groups: Count = 1
    bias: Flag = False
    shared_gate: Flag | None = None

    @property
    def router(self) -> Router:
        """How a token chooses."""
        return Router(self.experts, self.top, self.groups, self.top_groups)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of its dims."""
        some = {"z": self.shared} if self.shared else {}
        some |= {"gr": self.groups, "gt": self.top_groups} if self.groups > 1 else {}
        return {"n": self.experts, "i": self.experts, "k": self.top, "y": self.hidden, "q": 1, **some}

    def resized(self, dims: Mapping[str, int]) -> Moe:
        """The same with dims of these sizes."""
        some = {"shared": dims["z"]} if self.shared else {}
        some |= {"groups": dims["gr"], "top_groups": dims["gt"]} if self.groups > 1 else {}
        return self.model_copy(update={"experts": dims["n"], "top": dims["k"], "hidden": dims["y"], **some})


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A kind of layers: what follows attention in it."""

    attention: Attention | Latent | Linear
    ffn: Mlp | Moe | NoFeedForward

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the dims of its blocks."""
        return {**self.attention.sizes, **self.ffn.sizes}

    def resized(self, dims: Mapping[str, int]) -> LayerKind:
        """The same with dims of these sizes."""
        return LayerKind(self.attention.resized(dims), self.ffn.resized(dims))


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer.

    hidden h, vocab_padded v, max_positions p (learned only)
    kinds            of layers, by name
    stack            the layers in order: so many of a kind, then so many of the next
    norms            of a block's input (pre), of its output before it joins the stream (post), or of both
    shared_norm      of a parallel residual both blocks read one norm of the stream (GPT-J, PaLM)
    embedding_scale  embeddings are multiplied by the root of h (Gemma)
    logit_softcap    logits become softcap * tanh(logits / softcap)
    mtp              the kind and the number of modules that predict tokens further on (DeepSeek-V3 2024, 2.2)
    dropout          the share of attention's weights, and of what joins the stream, that training drops
    params, active   the published parameter counts, of all and of those that work for a token; None if not stated
    """

    name: str
    hidden: int
    kinds: Mapping[str, LayerKind] = field(hash=False)
    stack: Layers
    vocab: int
    vocab_padded: int
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norms: Literal["pre", "post", "both"] = "pre"
    positions: Positions = "rope"
    max_positions: int | None = None
    parallel_residual: bool = False
    shared_norm: bool = False
    tie_embeddings: bool = False
    embedding_scale: bool = False
    logit_softcap: float | None = None
    mtp: tuple[str, int] | None = None
    dropout: float = 0.0
    params: float | None = None
    active: float | None = None

    @property
    def layers(self) -> int:
        """L: how many there are, of all kinds."""
        return sum(count for _, count in self.stack)

    @property
    def attentions(self) -> Iterator[Attention | Latent | Linear]:
        """The attention of each kind, those that read all tokens first."""
        every = (kind.attention for kind in self.kinds.values())
        return iter(sorted(every, key=lambda block: block.keeps_state))

    @cached_property
    def linear(self) -> tuple[Linear, ...]:
        """Its linear attentions, which keep a state in place of keys and values."""
        return tuple(kind.attention for kind in self.kinds.values() if kind.attention.keeps_state)  # type: ignore[misc]

    @property
    def chooses(self) -> bool:
        """True if an indexer chooses what attention reads."""
        return any(isinstance(block, Latent) and block.top for block in self.attentions)

    @cached_property
    def has_latents(self) -> bool:
        """True if any attention makes its keys and values from latents."""
        return any(isinstance(attention, Latent) for attention in self.attentions)

    @property
    def heads(self) -> int:
        """Query heads of a layer."""
        return next(self.attentions).heads

    @property
    def kv_heads(self) -> int:
        """g: heads of keys and values."""
        sizes = next(self.attentions).sizes
        return sizes["g"] if "g" in sizes else sizes["lg"]

    @property
    def head_dim(self) -> int:
        """d: of a head's queries and keys."""
        sizes = next(self.attentions).sizes
        return sizes["d"] if "d" in sizes else sizes["ld"]

    @property
    def ffn_hidden(self) -> int:
        """f: of the feed-forwards that all tokens share; 0 without any."""
        return next((kind.ffn.hidden for kind in self.kinds.values() if isinstance(kind.ffn, Mlp)), 0)

    @cached_property
    def experts(self) -> Moe | None:
        """The experts of its layers; None without any."""
        return next((kind.ffn for kind in self.kinds.values() if isinstance(kind.ffn, Moe)), None)

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        return {dim: size for kind in self.kinds.values() for dim, size in kind.sizes.items()}

    def dims(self, *, sequences: int, seq: int) -> Mapping[str, int]:
        """Sizes of the program's dims for `sequences` per microbatch (over all data shards) of `seq` tokens.

        Rows of an expert are as many as they are on average.
        """
        ends = {"b": sequences, "s": seq, "t": seq, "h": self.hidden, "v": self.vocab_padded}
        known = {**ends, **self._sizes, "p": self.max_positions or seq, "hh": self.hidden}
        return completed({name: known[name] for name in DIMS if name in known and (name != "hh" or self.mtp)})


FLAT = (
    *("name", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "ffn_hidden", "vocab", "vocab_padded"),
    *("norm", "bias", "qkv_bias", "positions", "max_positions", "parallel_residual", "tie_embeddings", "dropout"),
    *("shared_norm", "params"),
)
"""What says a model whose layers are alike and plain."""


def dense(
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ffn: FeedForward,
    ffn_hidden: int,
    layers: int,
    bias: bool = False,
    qkv_bias: bool = False,
    **others: Any,
) -> Model:
    """A model whose layers are all alike: grouped-query attention and an MLP; the `others` are fields of `Model`."""
    biased: Literal["none", "qkv", "all"] = "all" if bias else "qkv" if qkv_bias else "none"
    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, bias=biased)
    kind = LayerKind(attention, Mlp(kind=ffn, hidden=ffn_hidden, bias=bias))
    return Model(kinds={ALIKE: kind}, stack=((ALIKE, layers),), **others)


def as_stated(model: Model) -> dict[str, Any]:
    """What says all of a model, as plain data: arguments of `dense` where these do, else its own fields."""
    (kind, *others), own = model.kinds.values(), {field.name: getattr(model, field.name) for field in fields(model)}
    flat = {name: value for name, value in own.items() if name in FLAT}
    if not others and isinstance(kind.attention, Attention) and isinstance(kind.ffn, Mlp):
        heads = {name: getattr(kind.attention, name) for name in ("heads", "kv_heads", "head_dim")}
        ffn = {"ffn": kind.ffn.kind, "ffn_hidden": kind.ffn.hidden}
        biases = {"bias": kind.ffn.bias, "qkv_bias": kind.attention.bias == "qkv"}
        flat |= {"layers": model.layers, **heads, **ffn, **biases}
        flat = {name: flat[name] for name in FLAT}
        if dense(**flat) == model:
            return flat
    kinds = {name: [block.model_dump() for block in (kind.attention, kind.ffn)] for name, kind in model.kinds.items()}
    return {**own, "kinds": kinds}
