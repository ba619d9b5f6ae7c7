"""Both ends of the stack: token ids to the stream, the stream to logits and their loss, and what predicts further."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.blocks.norm import norm
from tpsim.program.blocks.norm import parameters as norm_parameters
from tpsim.program.op import Array, Scale
from tpsim.program.text import MINUS, Parameter, Text
from tpsim.program.trace import ONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model

JOINED = ("stream", "embedding")
"""What joins: the stream of a token, and the embedding of the next."""


def embedding_parameters(model: Model) -> Iterator[Parameter]:
    """The table of tokens, and one of positions where they are learned."""
    yield Parameter(
        "E", ("h", "v"), "embedding", ("embedding", "head") if model.tie_embeddings or model.mtp else ("embedding",)
    )
    if model.positions == "learned":
        yield Parameter("P", ("h", "p"), "embedding", ("embedding",))


def looked_up(text: Text, ids: str, name: str) -> Array:
    """A one-hot product with a vocabulary that may be split: the embeddings of these ids."""
    trace, dtype = text.trace, text.dtypes.activations
    with text.inside("embedding", "vocab"):
        hot = trace.index("one_hot", ("b", "s", "v"), dtype, trace.leaf(ids, ("b", "s"), "vocab", "int32", "index"))
        vectors = trace.einsum(name, ("b", "s", "h"), hot, text.use("E"), dtype=dtype)
    with text.inside("embedding", "residual"):
        return trace.pin(vectors, "residual", "")


def embedded(text: Text) -> Array:
    """Embeddings of the tokens, plus positions."""
    trace, dtype, x = text.trace, text.dtypes.activations, looked_up(text, "tokens", "embedding.out")
    with text.inside("embedding", "residual"):
        if text.model.positions == "learned":
            where = trace.index("position_one_hot", ("s", "p"), dtype)
            positions = trace.einsum("positions", ("s", "h"), where, text.use("P"), dtype=dtype)
            x = trace.lin("embedding.sum", x, positions)
        if text.model.embedding_scale:
            x = trace.lin("embedding.scaled", x, scales=(Scale(1.0, (("h", 0.5),)),))
    with text.inside("embedding", "residual", "add.embedding"):
        return text.dropped("add.embedding", x)


def head_parameters(model: Model) -> Iterator[Parameter]:
    """The output's table; none of its own where it is tied to the embedding's."""
    if not model.tie_embeddings:
        yield Parameter("O", ("h", "v"), "head", ("head",))


def head(text: Text, x: Array) -> Array:
    """Output projection of the normed stream: logits over a vocabulary that may be split."""
    with text.inside("head", "vocab"):
        x = text.trace.pin(x, "vocab", "the output layer reads the normed stream", name="head.in")
        dims = (*(dim for dim in x.dims if dim != "h"), "v")
        return text.linear("logits", dims, x, "E" if text.model.tie_embeddings else "O")


def loss(text: Text, logits: Array, kernel: str = "loss", wanted: str = "labels") -> Array:
    """Mean cross entropy of the microbatch's tokens, over all tokens of the step."""
    trace, dtype = text.trace, text.dtypes.loss
    with text.inside("loss", "vocab", kernel):
        if text.practice.cross_entropy == "gathered":
            whole = trace.layout.type_in(logits.dims, "vocab").with_axes("v", ())
            logits = trace.reshard(logits, whole, "cross entropy is computed on gathered logits (practice)")
        logits = trace.lin("logits.cast", logits, dtype=dtype)
        if text.model.logit_softcap:
            logits = text.capped("logits", logits, text.model.logit_softcap)
        labels = trace.leaf(wanted, ("b", "s"), "vocab", "int32", "index")
        hot = trace.index("one_hot", ("b", "s", "v"), dtype, labels, born=logits.type)
        top = trace.settled(trace.max("logits.max", logits, "v"), "exp needs the whole row's maximum")
        weight = trace.map("loss.exp", "exp", trace.lin("loss.shifted", logits, top, scales=(ONE, MINUS)))
        total = trace.settled(trace.einsum("loss.sum_exp", ("b", "s"), weight), "log needs the whole row's sum")
        target = trace.einsum("logits.target", ("b", "s"), hot, logits)
        log = trace.map("loss.log", "log", total)
        tokens = trace.lin("loss.tokens", log, top, target, scales=(ONE, ONE, MINUS))
        mean = Scale(1.0, (("b", -1.0), ("s", -1.0), ("m", -1.0)))
        return trace.lin("loss.mean", trace.einsum("loss.part", (), tokens), scales=(mean,))


def further_parameters(model: Model) -> Iterator[Parameter]:
    """Of a module that predicts one token further: a product of both sides, as one of each; norms of them and of all.

    Source: DeepSeek-V3 2024, 2.2.
    """
    for name in JOINED:
        yield Parameter(f"W_mtp_{name}", ("h", "hh"), "mlp", ("head",), first=("h",))
    for name in (*JOINED, "final"):
        yield from norm_parameters(model, f"mtp_{name}", "head")


def further(text: Text, *sides: Array) -> Array:
    """The stream behind the layers and the next token's embedding, normed, each times its half of a product."""
    normed = [norm(text, side, f"mtp_{name}") for name, side in zip(JOINED, sides, strict=True)]
    with text.inside("mlp", "residual"):
        halves = [
            text.linear(f"mtp.{name}", ("b", "s", "hh"), side, f"W_mtp_{name}")
            for name, side in zip(JOINED, normed, strict=True)
        ]
        return text.trace.rename("mtp.in", text.trace.lin("mtp.joined", *halves), "hh", "h")
