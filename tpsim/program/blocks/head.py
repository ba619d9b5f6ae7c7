"""From the normed stream to logits and their loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.op import Scale
from tpsim.program.text import MINUS, Parameter
from tpsim.program.trace import ONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model
    from tpsim.program.op import Array
    from tpsim.program.text import Text


def parameters(model: Model) -> Iterator[Parameter]:
    """The output's table; none of its own where it is tied to the embedding's."""
    if not model.tie_embeddings:
        yield Parameter("O", ("h", "v"), "head", ("head",))


def head(text: Text, x: Array) -> Array:
    """Output projection of the normed stream: logits over a vocabulary that may be split."""
    with text.inside("head", "vocab"):
        x = text.trace.pin(x, "vocab", "the output layer reads the normed stream", name="head.in")
        dims = (*(dim for dim in x.dims if dim != "h"), "v")
        return text.linear("logits", dims, x, "E" if text.model.tie_embeddings else "O")


def loss(text: Text, logits: Array) -> Array:
    """Mean cross entropy of the microbatch's tokens, over all tokens of the step."""
    trace, dtype = text.trace, text.dtypes.loss
    with text.inside("loss", "vocab", "loss"):
        if text.practice.cross_entropy == "gathered":
            whole = trace.layout.type_in(logits.dims, "vocab").with_axes("v", ())
            logits = trace.reshard(logits, whole, "cross entropy is computed on gathered logits (practice)")
        logits = trace.lin("logits.cast", logits, dtype=dtype)
        if text.model.logit_softcap:
            logits = text.capped("logits", logits, text.model.logit_softcap)
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
