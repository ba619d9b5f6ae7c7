"""RMSNorm or LayerNorm of the residual stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpsim.program.kernels import STATISTIC
from tpsim.program.op import Scale
from tpsim.program.text import MINUS, Parameter
from tpsim.program.trace import ONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model
    from tpsim.program.op import Array, Place
    from tpsim.program.text import Text


def parameters(model: Model, name: str, place: Place) -> Iterator[Parameter]:
    """The gain of a norm; LayerNorm has a shift beside it."""
    for kind in ("gain", "shift") if model.norm == "layernorm" else ("gain",):
        yield Parameter(f"{kind}_{name}", ("h",), "norm", (place,))


def norm(text: Text, x: Array, name: str) -> Array:
    """The stream with every token brought to unit variance, LayerNorm to mean zero before it."""
    trace, mean, rest = text.trace, Scale(1.0, (("h", -1.0),)), tuple(dim for dim in x.dims if dim != "h")
    with text.inside("norm", "residual", f"norm.{name}"):
        if text.model.norm == "layernorm":
            total = trace.einsum(f"{name}.sum", rest, x)
            centre = trace.lin(f"{name}.mean", total, scales=(mean,), dtype=STATISTIC)
            x = trace.lin(f"{name}.centred", x, centre, scales=(ONE, MINUS))
        squares = trace.einsum(f"{name}.squares", rest, trace.map(f"{name}.square", "square", x))
        variance = trace.lin(f"{name}.variance", squares, scales=(mean,), dtype=STATISTIC)
        unit = trace.map(f"{name}.unit", "unit", x, variance)
        scaled = trace.map(f"{name}.normed", "mul", unit, text.use(f"gain_{name}"))
        if text.model.norm == "layernorm":
            return trace.lin(f"{name}.shifted", scaled, text.use(f"shift_{name}"))
        return scaled
