"""What blocks are written with: parameters as they are declared and used, places, the stream that blocks join."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tpsim.algebra.sharding import Sharding, unpacked
from tpsim.program.op import Array, Place, Scale
from tpsim.program.trace import ONE, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from tpsim.program.dtypes import Dtypes
    from tpsim.program.model import Model
    from tpsim.program.practice import Practice

MINUS = Scale(-1.0)

READ = frozenset({"h", "u", "x", "lu"})
"""Dims that weights read, where they have them first: the stream's, and those of latents and ranks."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter array: its dims, the block that uses it, and in which parts of the stack that stands.

    trained  False for one that no gradient changes
    first    dims that frameworks have first, those of what it makes; unless stated all but the stream that it reads
    """

    name: str
    dims: tuple[str, ...]
    block: str
    places: tuple[Place, ...] = ("layer",)
    trained: bool = True
    first: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The dims that frameworks have first: a row of a weight makes one number."""
        return self.first or (self.dims[1:] if self.dims[0] in READ else ()) or self.dims


@dataclass(slots=True)
class Text:
    """The forward pass of `model` as it is written into `trace`.

    weights  name, and layer if it is of one -> the parameter
    used     parameters as they have been brought to where they are used
    others   what a block says that it is -> what writes it here instead, as of inference
    """

    trace: Trace
    model: Model
    practice: Practice
    dtypes: Dtypes
    weights: Mapping[tuple[str, int | None], Array]
    used: dict[tuple[Array, Sharding, int | None, tuple[int, ...]], Array] = field(default_factory=dict)
    others: Mapping[str, Callable[[Any, Any, Array], Array]] = field(default_factory=dict)

    def inside(self, block: str, region: str, kernel: str = "") -> AbstractContextManager[None]:
        """What follows is for `block`, in `region`, and part of `kernel` if that is named."""
        return self.trace.at(self.trace.where.but(block=block, kernel=kernel), region)

    def has(self, name: str) -> bool:
        """True if there is such a parameter here."""
        return (name, self.trace.where.layer) in self.weights

    def use(self, name: str) -> Array:
        """A parameter as the current region wants it; stored shards are gathered here, once per microbatch."""
        trace = self.trace
        weight = self.weights.get((name, trace.where.layer)) or self.weights[name, None]
        wanted = trace.layout.type_in(unpacked(weight.type).dims, trace.region)
        use = weight, wanted, trace.where.microbatch, trace.where.chunks
        if use not in self.used:
            cast = self._cast(weight)
            first = "" if cast is weight else f" in {weight.dtype}, cast to {cast.dtype} there"
            because = f"{weight.name} is stored as {weight.type}{first} and used as {wanted}"
            self.used[use] = trace.reshard(cast, wanted, because)
        return self.used[use]

    def _cast(self, weight: Array) -> Array:
        """A weight in the format of activations, where it lies, if the practice casts there what is stored wider."""
        if self.practice.cast == "products" or not self.dtypes.narrows(weight.dtype):
            return weight
        with self.trace.at(self.trace.where.but(kernel=""), "stored"):
            return self.trace.lin(weight.name, weight, dtype=self.dtypes.activations, role="param")

    def linear(self, name: str, dims: tuple[str, ...], x: Array, weight: str, bias: str = "") -> Array:
        """`x` times a weight, plus a bias if there is one; of rows that came in fewer bits as activations are."""
        dtype = self.dtypes.activations if x.filled and self.practice.rows.dtype else None
        product = self.trace.einsum(name, dims, x, self.use(weight), dtype=dtype)
        return self.trace.lin(name, product, self.use(bias)) if self.has(bias) else product

    def capped(self, name: str, x: Array, cap: float, scale: Scale = ONE) -> Array:
        """`x` times a scale, kept within a cap: cap * tanh(x * scale / cap)."""
        over = self.trace.lin(f"{name}.over_cap", x, scales=(replace(scale, value=scale.value / cap),))
        return self.trace.lin(f"{name}.capped", self.trace.map(f"{name}.tanh", "tanh", over), scales=(Scale(cap),))

    def dropped(self, name: str, x: Array) -> Array:
        """What the model's dropout leaves of `x`."""
        return self.trace.dropped(name, x, self.model.dropout) if self.model.dropout else x

    def added(self, x: Array, y: Array, block: str, *biases: str) -> Array:
        """The residual add: what a block owes is settled here, because the stream is declared complete."""
        with self.inside(block, "residual", f"add.{block}"):
            y = self.trace.pin(y, "residual", "")
            added = [self.use(bias) for bias in biases if self.has(bias)]
            if self.model.dropout and added:
                y, added = self.trace.lin(f"add.{block}.biased", y, *added), []
            return self.trace.lin("residual", x, self.dropped(f"add.{block}", y), *added)

    def entered(self, x: Array, name: str, because: str) -> Array:
        """The stream as a block reads it; `x` itself where another block has read it before."""
        return x if x.region == "block" else self.trace.pin(x, "block", because, name=name)

    def edge(self, x: Array, name: str) -> Array:
        """The stream where a part of the stack begins: a pin that moves nothing, so that backward adds up before it."""
        with self.inside("residual", "residual"):
            return self.trace.pin(x, "residual", "", name=name)
