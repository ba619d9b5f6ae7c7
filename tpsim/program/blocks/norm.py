"""RMSNorm or LayerNorm, of the residual stream or of heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tpsim.program.op import Array, Place, Scale
from tpsim.program.saved import STATISTIC
from tpsim.program.text import MINUS, Parameter, Text
from tpsim.program.trace import ONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model


def parameters(model: Model, name: str, place: Place) -> Iterator[Parameter]:
    """The gain of a norm; LayerNorm has a shift beside it."""
    for kind in ("gain", "shift") if model.norm == "layernorm" else ("gain",):
        yield Parameter(f"{kind}_{name}", ("h",), "norm", (place,))


def norm(
    text: Text,
    x: Array,
    name: str,
    *,
    dims: tuple[str, ...] = ("h",),
    region: str = "residual",
    kind: Literal["rmsnorm", "layernorm"] | None = None,
) -> Array:
    """The stream, or another array over `dims`, brought to unit variance, LayerNorm to mean zero before it."""
    trace, shifts = text.trace, (kind or text.model.norm) == "layernorm"
    mean, rest = Scale(1.0, tuple((dim, -1.0) for dim in dims)), tuple(dim for dim in x.dims if dim not in dims)
    with text.inside("norm", region, f"norm.{name}"):
        if shifts:
            total = trace.einsum(f"{name}.sum", rest, x)
            centre = trace.lin(f"{name}.mean", total, scales=(mean,), dtype=STATISTIC)
            x = trace.lin(f"{name}.centred", x, centre, scales=(ONE, MINUS))
        squares = trace.einsum(f"{name}.squares", rest, trace.map(f"{name}.square", "square", x))
        squares = trace.settled(squares, "a norm divides by the whole sum")
        variance = trace.lin(f"{name}.variance", squares, scales=(mean,), dtype=STATISTIC)
        unit = trace.map(f"{name}.unit", "unit", x, variance)
        scaled = trace.map(f"{name}.normed", "mul", unit, text.use(f"gain_{name}"))
        if shifts:
            return trace.lin(f"{name}.shifted", scaled, text.use(f"shift_{name}"))
        return scaled
