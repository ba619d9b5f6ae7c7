"""Token ids to the residual stream; the table is shared with the head where it is tied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.op import Scale
from tpsim.program.text import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model
    from tpsim.program.op import Array
    from tpsim.program.text import Text


def parameters(model: Model) -> Iterator[Parameter]:
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
        found = trace.einsum(name, ("b", "s", "h"), hot, text.use("E"), dtype=dtype)
    with text.inside("embedding", "residual"):
        return trace.pin(found, "residual", "")


def write(text: Text) -> Array:
    """Embeddings of the tokens, plus positions."""
    trace, dtype, x = text.trace, text.dtypes.activations, looked_up(text, "tokens", "embedding.out")
    with text.inside("embedding", "residual"):
        if text.model.positions == "learned":
            where = trace.index("position_one_hot", ("s", "p"), dtype)
            found = trace.einsum("positions", ("s", "h"), where, text.use("P"), dtype=dtype)
            x = trace.lin("embedding.sum", x, found)
        if text.model.embedding_scale:
            x = trace.lin("embedding.scaled", x, scales=(Scale(1.0, (("h", 0.5),)),))
    with text.inside("embedding", "residual", "add.embedding"):
        return text.dropped("add.embedding", x)
