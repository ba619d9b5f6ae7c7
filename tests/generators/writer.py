"""Writes one random forward pass, op by op, through the typed functions of a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.generators.shardings import reshards, shardings
from tpsim.algebra.sharding import Sharding
from tpsim.program.layout import Layout
from tpsim.program.op import Array, Scale, Where
from tpsim.program.trace import ONE, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.program.trace import Path

DIMS = ("i", "j", "k")
TWINS = {"i": "p", "j": "q", "k": "r"}
"""A dim and the name that it may be given instead: both have the same size."""
OTHER_NAMES = TWINS | {twin: dim for dim, twin in TWINS.items()}
RANK = 3
"""Dims of the largest array, so that every run is small."""
REGIONS = ("residual", "block", "heads", "vocab")
MINUS = Scale(-1.0)
WHERE = Where("F", "mlp")
BECAUSE = "the chain wants it so"
UNARY, BINARY = ("gelu",), ("mul", "swiglu", "geglu")
"""Smooth functions, by their names in `reference.functions`."""


@dataclass(slots=True)
class Writer:
    """A forward pass being written: what is drawn from, the trace, and the arrays that nothing has used up yet."""

    draw: st.DrawFn
    mesh: Mesh
    trace: Trace
    held: list[Array] = field(default_factory=list)
    leaves: list[Array] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @classmethod
    def begin(cls, draw: st.DrawFn, mesh: Mesh, path: Path) -> Writer:
        """A pass that holds one parameter; `path` chooses the moves of every reshard."""
        writer = cls(draw, mesh, Trace(Layout(table={}), mesh.order, WHERE, path=path))
        x = writer.leaf(writer.dims(2), "param")
        writer.held.append(writer.to(x, writer.any_type(x.dims)))
        return writer

    def step(self) -> None:
        """One op, or a few that belong together, in any region, on an array that stays in use or not."""
        with self.trace.at(WHERE, self.draw(st.sampled_from(REGIONS))):
            x = self.draw(st.sampled_from(self.held))
            if self.draw(st.booleans()):
                self.held.remove(x)
            self.held.append(self.draw(st.sampled_from(STEPS))(self, x))

    def loss(self) -> Array:
        """The sum of the squares of everything held."""
        parts = [self.trace.map(self.name("square"), "square", self.complete(x)) for x in self.held]
        sums = [self.trace.einsum(self.name("part"), (), part) for part in parts]
        return self.trace.lin("loss", *sums)

    # --- what the steps are made of ---

    def name(self, word: str) -> str:
        """A name that nothing else has."""
        return f"{word}{next(self.numbers)}"

    def dims(self, most: int, among: Sequence[str] = DIMS) -> tuple[str, ...]:
        """One dim or more, in any order; none where there is none to choose."""
        count = self.draw(st.integers(1, min(most, len(among)))) if among else 0
        return tuple(self.draw(st.permutations(among))[:count])

    def any_type(self, dims: Sequence[str], *, axes: Sequence[str] | None = None) -> Sharding:
        """Any complete type; over these axes only, if some are named."""
        if axes is not None and not axes:
            return Sharding(tuple(dims), ((),) * len(dims))
        return self.draw(shardings(self.mesh, dims, owes=(), axes=axes or ()))

    def leaf(self, dims: tuple[str, ...], role: str) -> Array:
        """A parameter or data, stored in any way."""
        name, type_ = self.name("W" if role == "param" else "data"), self.any_type(dims)
        self.trace.layout = Layout(table={name: dict(zip(dims, type_.on, strict=True))})
        made = self.trace.leaf(name, dims, name, "f32", "param" if role == "param" else "activation")
        self.leaves.append(made)
        return made

    def operand(self, among: Sequence[str]) -> Array:
        """A leaf, new or used before, or an array that is held, over some of these dims; a leaf is brought in first."""
        known = [x for x in (*self.leaves, *self.held) if set(x.dims) <= set(among)]
        found: Array | None = self.draw(st.sampled_from([None, *known]))
        return found or self.leaf(self.dims(2, among), self.draw(st.sampled_from(["param", "data"])))

    def to(self, x: Array, type_: Sharding) -> Array:
        """`x` in this type; a parameter always comes through a reshard, where its gradients are collected."""
        if x.type == type_ and x.role != "param":
            return x
        return self.trace.reshard(x, type_, BECAUSE)

    def complete(self, x: Array) -> Array:
        """`x` with nothing owed: settled where it lies, or brought to any type."""
        if self.draw(st.booleans()):
            return self.to(x, self.any_type(x.dims))
        return self.to(x, x.type.owing(()))

    def meeting(self, *xs: Array, owing: int = 0) -> list[Array]:
        """The operands in types that split every dim alike; the first `owing` of them may go on owing.

        Either the first stays as it lies and the others follow, or all are brought to any types that meet.
        """
        first, dims = xs[0], tuple(dict.fromkeys(dim for x in xs for dim in x.dims))
        stays = self.draw(st.booleans()) and (owing > 0 or first.type.complete)
        if stays:
            free = [axis for axis in self.mesh.order if axis not in (*first.type.sharded_axes, *first.type.owed_axes)]
            rest = self.any_type([dim for dim in dims if dim not in first.dims], axes=free)
            split = Sharding(first.dims + rest.dims, first.type.on + rest.on)
        else:
            split = self.any_type(dims)
        owed = [one for one in sorted(first.type.owes) if one[0] not in split.sharded_axes]
        kept = {one for one in owed if stays or self.draw(st.booleans())}
        types = [Sharding(x.dims, tuple(split.axes(dim) for dim in x.dims)) for x in xs]
        owes = [kept & x.type.owes if place < owing else () for place, x in enumerate(xs)]
        return [self.to(x, type_.owing(owed)) for x, type_, owed in zip(xs, types, owes, strict=True)]


# --- the steps: from one held array to a new one ---


def product(writer: Writer, x: Array) -> Array:
    """A product with a leaf or another array, summed over some dims that both have, scaled to keep its size."""
    w = writer.operand(DIMS + tuple(TWINS.values()))
    x, w = writer.meeting(x, w, owing=1)
    shared = [dim for dim in x.dims if dim in w.dims]
    every = tuple(dict.fromkeys((*x.dims, *w.dims)))
    fewest = max(len(every) - RANK, 0)
    count = writer.draw(st.integers(fewest, max(len(shared), fewest)))
    gone = writer.draw(st.permutations(shared or every))[:count]
    left = [dim for dim in every if dim not in gone]
    out = tuple(writer.draw(st.permutations(left))) if left else ()
    made = writer.trace.einsum(writer.name("product"), out[:RANK], x, w)
    return writer.trace.lin(writer.name("scaled"), made, scales=(_root(dim for dim in every if dim not in made.dims),))


def _root(dims: Iterator[str]) -> Scale:
    """One over the root of the number of terms that were added."""
    return Scale(1.0, tuple((dim, -0.5) for dim in dims))


def pointwise(writer: Writer, x: Array) -> Array:
    """A smooth function of one array, or of two where one may be repeated along dims that it lacks."""
    fn = writer.draw(st.sampled_from(UNARY + BINARY))
    if fn in UNARY:
        return writer.trace.map(writer.name(fn), fn, writer.complete(x))
    return writer.trace.map(writer.name(fn), fn, *writer.meeting(x, writer.operand(x.dims)))


def added(writer: Writer, x: Array) -> Array:
    """A weighted sum with a leaf or another array, which may owe differently or lack dims."""
    y = writer.operand(x.dims)
    scales = (Scale(0.5), ONE)
    return writer.trace.lin(writer.name("sum"), *writer.meeting(x, y, owing=2), scales=scales)


def summed(writer: Writer, x: Array) -> Array:
    """The sum over one dim."""
    if not x.dims:
        return repeated(writer, x)
    dim = writer.draw(st.sampled_from(x.dims))
    out = tuple(other for other in x.dims if other != dim)
    made = writer.trace.einsum(writer.name("total"), out, x)
    return writer.trace.lin(writer.name("scaled"), made, scales=(_root(iter((dim,))),))


def repeated(writer: Writer, x: Array) -> Array:
    """The array along one more dim; what it owes it keeps owing."""
    new = [dim for dim in OTHER_NAMES if dim not in x.dims]
    if len(x.dims) >= RANK:
        return summed(writer, x)
    free = [axis for axis in writer.mesh.order if axis not in (*x.type.sharded_axes, *x.type.owed_axes)]
    more = writer.any_type((writer.draw(st.sampled_from(new)),), axes=free)
    return writer.trace.bcast(writer.name("repeated"), x, Sharding(x.dims + more.dims, x.type.on + more.on))


def renamed(writer: Writer, x: Array) -> Array:
    """One dim under its other name."""
    choices = [dim for dim in x.dims if OTHER_NAMES[dim] not in x.dims]
    if not choices:
        return resharded(writer, x)
    old = writer.draw(st.sampled_from(choices))
    return writer.trace.rename(writer.name("renamed"), x, old, OTHER_NAMES[old])


def resharded(writer: Writer, x: Array) -> Array:
    """The array in any type that moves can bring it to, owing some of what it owes."""
    _, to = writer.draw(reshards(writer.mesh, x.dims, owes=()))
    kept = [owed for owed in sorted(x.type.owes) if owed[0] not in to.sharded_axes and writer.draw(st.booleans())]
    return writer.trace.reshard(x, to.owing(kept), BECAUSE)


def softmax(writer: Writer, x: Array) -> Array:
    """Softmax over one dim, or the logarithm of its denominator: a max is owed, then a sum, and both are settled."""
    if not x.dims:
        return repeated(writer, x)
    trace, dim = writer.trace, writer.draw(st.sampled_from(x.dims))
    x = writer.complete(x)
    top = trace.settled(trace.max(writer.name("max"), x, dim), BECAUSE)
    weight = trace.map(writer.name("exp"), "exp", trace.lin(writer.name("shifted"), x, top, scales=(ONE, MINUS)))
    total = trace.einsum(writer.name("total"), top.dims, weight)
    total = trace.settled(total, BECAUSE)
    if writer.draw(st.booleans()):
        return trace.map(writer.name("softmax"), "div", weight, total)
    return trace.lin(writer.name("logsumexp"), trace.map(writer.name("log"), "log", total), top)


def normed(writer: Writer, x: Array) -> Array:
    """The array over the root of its mean square along one dim."""
    if not x.dims:
        return pointwise(writer, x)
    trace, dim = writer.trace, writer.draw(st.sampled_from(x.dims))
    x = writer.complete(x)
    kept = tuple(other for other in x.dims if other != dim)
    squares = trace.einsum(writer.name("squares"), kept, trace.map(writer.name("square"), "square", x))
    mean = trace.lin(writer.name("mean"), squares, scales=(Scale(1.0, ((dim, -1.0),)),))
    return trace.map(writer.name("unit"), "unit", x, trace.settled(mean, BECAUSE))


def picked(writer: Writer, x: Array) -> Array:
    """A product with a one-hot matrix of global indices, born in whatever sharding the array has."""
    choices = [dim for dim in x.dims if OTHER_NAMES[dim] not in x.dims]
    if not choices:
        return summed(writer, x)
    old = writer.draw(st.sampled_from(choices))
    new, place = OTHER_NAMES[old], x.dims.index(old)
    free = [axis for axis in writer.mesh.order if axis not in (*x.type.sharded_axes, *x.type.owed_axes)]
    more = writer.any_type((new,), axes=free)
    hot = writer.trace.index(
        "position_one_hot", (old, new), x.dtype, born=Sharding((old, new), (x.type.axes(old), *more.on))
    )
    return writer.trace.einsum(writer.name("picked"), (*x.dims[:place], new, *x.dims[place + 1 :]), x, hot)


STEPS: tuple[Callable[[Writer, Array], Array], ...] = (
    resharded,
    product,
    pointwise,
    added,
    summed,
    repeated,
    renamed,
    softmax,
    normed,
    picked,
)
