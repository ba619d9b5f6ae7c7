"""The unsharded dense transformer, written once, forward only: named-axis products between named regions.

Dims: b sequences, s tokens, t the same tokens as keys, h hidden, g key/value heads, r queries per key/value head,
d head dim (e its image under rotation), j the r + 2 slots of a fused projection (kv the 2 of one without queries),
f ffn hidden, v vocabulary, p learned positions. Regions: residual, block, heads, vocab; parameters are stored. No op
here names an axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from tpsim.program.kernels import STATISTIC
from tpsim.program.op import Array, Scale
from tpsim.program.trace import ONE, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tpsim.algebra.sharding import Sharding
    from tpsim.program.layout import Dtypes, Practice
    from tpsim.program.model import Model
    from tpsim.program.op import Where

MINUS = Scale(-1.0)

FUSED: Mapping[str, tuple[str, str]] = {"separate": ("", ""), "fused": ("qkv", "j"), "fused_kv": ("kv", "kv")}
"""`Practice.qkv` -> the projections that one array holds, and the dim of its slots: key, value, then the queries."""

HEADS: Mapping[str, tuple[str, ...]] = {
    "q": ("b", "s", "g", "r", "d"),
    "k": ("b", "s", "g", "d"),
    "v": ("b", "s", "g", "d"),
}
"""The dims of queries, keys and values."""


@dataclass(slots=True)
class Transformer:
    """Writes the forward pass of `model` into `trace`, one microbatch at a time."""

    trace: Trace
    model: Model
    practice: Practice
    dtypes: Dtypes
    weights: Mapping[tuple[str, int | None], Array]
    used: dict[tuple[Array, Sharding, int | None, tuple[int, ...]], Array] = field(default_factory=dict)

    def forward(self, stacks: Sequence[Sequence[str]]) -> Array:
        """One microbatch from token ids to its loss, a scalar that may still owe a sum over the data axes.

        stacks  the kind of every layer of each chunk; the stream is sent from one chunk to the next
        """
        trace, start = self.trace, self.trace.where
        with trace.at(replace(start, place="embedding", block="embedding")):
            x = self.embedding()
        numbers = count()
        for chunk, stack in enumerate(stacks):
            here = replace(start, chunks=(chunk,))
            x = self._cut(x, here) if chunk else x
            for kind in stack:
                with trace.at(replace(here, place="layer", kind=kind).inside("layers", next(numbers))):
                    x = self.layer(self._edge(x, "layer.in"))
        with trace.at(replace(start, place="head", chunks=(len(stacks) - 1,))):
            return self.loss(self.head(self._edge(x, "head.edge")))

    # --- parts, in order of execution ---

    def embedding(self) -> Array:
        """Token ids to the residual stream: a one-hot product with a vocabulary that may be split, plus positions."""
        trace = self.trace
        with self._in("embedding", "vocab"):
            ids = trace.leaf("tokens", ("b", "s"), "vocab", "int32", "index")
            hot = trace.index("one_hot", ("b", "s", "v"), self.dtypes.activations, ids)
            found = trace.einsum("embedding.out", ("b", "s", "h"), hot, self._use("E"), dtype=hot.dtype)
        with self._in("embedding", "residual"):
            x = trace.pin(found, "residual", "")
            if self.model.positions == "learned":
                where = trace.index("position_one_hot", ("s", "p"), self.dtypes.activations)
                found = trace.einsum("positions", ("s", "h"), where, self._use("P"), dtype=where.dtype)
                x = trace.lin("embedding.sum", x, found)
        with self._in("embedding", "residual", "add.embedding"):
            return self._dropped("add.embedding", x)

    def layer(self, x: Array) -> Array:
        """One layer: attention and MLP, one after the other or side by side (parallel residual)."""
        if self.model.parallel_residual:
            attended, fed = self.attention(self.norm(x, "attention")), self.mlp(self.norm(x, "mlp"))
            with self._in("residual", "block"):
                both = self.trace.lin("block.out", attended, fed)
            return self._added(x, both, "residual", "bo", "b2")
        x = self._added(x, self.attention(self.norm(x, "attention")), "attention", "bo")
        return self._added(x, self.mlp(self.norm(x, "mlp")), "mlp", "b2")

    def norm(self, x: Array, name: str) -> Array:
        """RMSNorm or LayerNorm on the residual stream."""
        trace, mean = self.trace, Scale(1.0, (("h", -1.0),))
        with self._in("norm", "residual", f"norm.{name}"):
            if self.model.norm == "layernorm":
                total = trace.einsum(f"{name}.sum", _without(x, "h"), x)
                centre = trace.lin(f"{name}.mean", total, scales=(mean,), dtype=STATISTIC)
                x = trace.lin(f"{name}.centred", x, centre, scales=(ONE, MINUS))
            squares = trace.einsum(f"{name}.squares", _without(x, "h"), trace.map(f"{name}.square", "square", x))
            variance = trace.lin(f"{name}.variance", squares, scales=(mean,), dtype=STATISTIC)
            unit = trace.map(f"{name}.unit", "unit", x, variance)
            scaled = trace.map(f"{name}.normed", "mul", unit, self._use(f"gain_{name}"))
            if self.model.norm == "layernorm":
                return trace.lin(f"{name}.shifted", scaled, self._use(f"shift_{name}"))
            return scaled

    def attention(self, x: Array) -> Array:
        """Grouped-query attention; its output owes a sum wherever the heads are split."""
        trace = self.trace
        with self._in("attention", "block"):
            x = trace.pin(x, "block", "attention reads the normed stream", name="attention.in")
            q, k, v = self._projected(x)
            q, k = self._rotated(q), self._rotated(k)
            k, v = trace.rename("attention.keys", k, "s", "t"), trace.rename("attention.values", v, "s", "t")
        with self._in("attention", "heads", "attention"):
            q, k, v = (trace.pin(head, "heads", "") for head in (q, k, v))
            mixed = trace.einsum("attention.mixed", ("b", "s", "g", "r", "d"), self._weights(q, k), v)
        with self._in("attention", "block"):
            return self._linear("attention.out", ("b", "s", "h"), trace.pin(mixed, "block", ""), "Wo")

    def mlp(self, x: Array) -> Array:
        """Column-split, pointwise, row-split: the output owes a sum wherever f is split."""
        trace, inner = self.trace, ("b", "s", "f")
        with self._in("mlp", "block"):
            x = trace.pin(x, "block", "the MLP reads the normed stream", name="mlp.in")
            up = self._linear("mlp.up", inner, x, "W1", "b1")
            if self.model.gated:
                gate = self._linear("mlp.gate", inner, x, "Wgate", "bgate")
            with self._in("mlp", "block", "activation.mlp"):
                act = trace.map("mlp.act", self.model.ffn, *([gate, up] if self.model.gated else [up]))
            return self._linear("mlp.out", ("b", "s", "h"), act, "W2")

    def head(self, x: Array) -> Array:
        """Final norm and output projection: logits over a vocabulary that may be split."""
        x = self.norm(x, "final")
        with self._in("head", "vocab"):
            x = self.trace.pin(x, "vocab", "the output layer reads the normed stream", name="head.in")
            return self._linear("logits", ("b", "s", "v"), x, "E" if self.model.tie_embeddings else "O")

    def loss(self, logits: Array) -> Array:
        """Mean cross entropy of the microbatch's tokens, over all tokens of the step."""
        trace, dtype = self.trace, self.dtypes.loss
        with self._in("loss", "vocab", "loss"):
            if self.practice.cross_entropy == "gathered":
                whole = trace.layout.type_in(logits.dims, "vocab").with_axes("v", ())
                logits = trace.reshard(logits, whole, "cross entropy is computed on gathered logits (practice)")
            logits = trace.lin("logits.cast", logits, dtype=dtype)
            labels = trace.leaf("labels", ("b", "s"), "vocab", "int32", "index")
            hot = trace.index("one_hot", ("b", "s", "v"), dtype, labels, born=logits.type)
            top = trace.settled(trace.max("logits.max", logits, "v"), "exp needs the whole row's maximum")
            weight = trace.map("loss.exp", "exp", trace.lin("loss.shifted", logits, top, scales=(ONE, MINUS)))
            total = trace.settled(trace.einsum("loss.sum_exp", ("b", "s"), weight), "log needs the whole row's sum")
            target = trace.einsum("logits.target", ("b", "s"), hot, logits)
            log = trace.map("loss.log", "log", total)
            tokens = trace.lin("loss.tokens", log, top, target, scales=(ONE, ONE, MINUS))
            mean = Scale(1.0, (("b", -1.0), ("s", -1.0), ("m", -1.0)))
            return trace.lin("loss.mean", trace.einsum("loss.part", (), tokens), scales=(mean,))

    # --- pieces ---

    def _projected(self, x: Array) -> Iterator[Array]:
        """Queries, keys and values: a product each, or one for those that are fused, whose selection costs nothing."""
        fused, slot = FUSED[self.practice.qkv]
        if fused:
            slots = self._linear(f"attention.{fused}", ("b", "s", "g", slot, "d"), x, f"W{fused}", f"b{fused}")
        for name, dims in HEADS.items():
            if name in fused:
                chosen = self.trace.index(f"{name}_slot", (slot, *(dim for dim in dims if dim == "r")), x.dtype)
                yield self.trace.einsum(f"attention.{name}", dims, slots, chosen)
            else:
                yield self._linear(f"attention.{name}", dims, x, f"W{name}", f"b{name}")

    def _rotated(self, x: Array) -> Array:
        """Rotary positions as a product with a rotation table, so that the transpose comes free."""
        if self.model.positions != "rope":
            return x
        turned = tuple("e" if dim == "d" else dim for dim in x.dims)
        with self._in("attention", "block", f"rotary.{x.name}"):
            table = self.trace.index("rotation", ("s", "d", "e"), x.dtype)
            return self.trace.rename(x.name, self.trace.einsum(x.name, turned, x, table), "e", "d")

    def _weights(self, q: Array, k: Array) -> Array:
        """Softmax of the masked, scaled scores over the keys t; a split t owes a max, then a sum."""
        trace = self.trace
        scores = trace.einsum("attention.scores", ("b", "g", "r", "s", "t"), q, k)
        mask = trace.index("causal_mask", ("s", "t"), q.dtype)
        scores = trace.lin("attention.masked", scores, mask, scales=(Scale(1.0, (("d", -0.5),)), ONE))
        top = trace.settled(trace.max("attention.max", scores, "t"), "exp needs the whole row's maximum")
        weight = trace.map("attention.exp", "exp", trace.lin("attention.shifted", scores, top, scales=(ONE, MINUS)))
        total = trace.einsum("attention.sum_exp", ("b", "g", "r", "s"), weight, dtype=STATISTIC)
        total = trace.settled(total, "softmax divides by the whole sum")
        if self.practice.attention == "fused":
            self._logsum(top, total)
        return self._dropped("attention", trace.map("attention.softmax", "div", weight, total))

    def _logsum(self, top: Array, total: Array) -> None:
        """What backward subtracts in place of the maximum: softmax is the same for any, and the sum is one then."""
        trace = self.trace
        trace.instead[top] = trace.lin("attention.logsum", trace.map("attention.log", "log", total), top)
        trace.instead[total] = trace.index("one", total.dims, total.dtype, born=total.type)

    def _linear(self, name: str, dims: tuple[str, ...], x: Array, weight: str, bias: str | None = None) -> Array:
        product = self.trace.einsum(name, dims, x, self._use(weight))
        return product if not bias or not self._has(bias) else self.trace.lin(name, product, self._use(bias))

    def _added(self, x: Array, y: Array, block: str, *biases: str) -> Array:
        """The residual add: what a block owes is settled here, because the stream is declared complete."""
        with self._in(block, "residual", f"add.{block}"):
            y = self.trace.pin(y, "residual", "")
            held = [self._use(bias) for bias in biases if self._has(bias)]
            if self.model.dropout and held:
                y, held = self.trace.lin(f"add.{block}.biased", y, *held), []
            return self.trace.lin("residual", x, self._dropped(f"add.{block}", y), *held)

    def _dropped(self, name: str, x: Array) -> Array:
        """What the model's dropout leaves of `x`."""
        return self.trace.dropped(name, x, self.model.dropout) if self.model.dropout else x

    def _cut(self, x: Array, here: Where) -> Array:
        """The stream where the stack is cut: sent, as the table has it there, to the chunk that is `here`."""
        (chunk,) = here.chunks
        where = replace(here, place="cut", block="cut").inside("chunks", chunk - 1)
        x = self._beside(x, "cut", replace(where, chunks=(chunk - 1,)), "cut.in")
        with self.trace.at(where, x.region):
            x = self.trace.send(x, "cut.out", "the layers behind the cut lie on another stage")
        return self._beside(x, "residual", where, "cut.out")

    def _beside(self, x: Array, region: str, where: Where, name: str) -> Array:
        """The stream as `region` has it, on one side of a cut."""
        if self.trace.layout.type_in(x.dims, region) == x.type:
            return x
        with self.trace.at(replace(where, place="side"), region):
            return self.trace.pin(x, region, "", name=name)

    def _edge(self, x: Array, name: str) -> Array:
        """The stream where a part of the stack begins: a pin that moves nothing, so that backward adds up before it."""
        with self._in("residual", "residual"):
            return self.trace.pin(x, "residual", "", name=name)

    def _has(self, name: str) -> bool:
        return (name, self.trace.where.index("layers")) in self.weights

    def _use(self, name: str) -> Array:
        """A parameter as the current region wants it; stored shards are gathered here, once per microbatch."""
        trace = self.trace
        weight = self.weights.get((name, trace.where.index("layers"))) or self.weights[name, None]
        wanted = trace.layout.type_in(weight.dims, trace.region)
        use = weight, wanted, trace.where.index("microbatches"), trace.where.chunks
        if use not in self.used:
            because = f"{weight.name} is stored as {weight.type} and used as {wanted}"
            self.used[use] = trace.reshard(weight, wanted, because)
        return self.used[use]

    def _in(self, block: str, region: str, kernel: str = "") -> AbstractContextManager[None]:
        return self.trace.at(replace(self.trace.where, block=block, kernel=kernel), region)


def _without(x: Array, dim: str) -> tuple[str, ...]:
    return tuple(other for other in x.dims if other != dim)
