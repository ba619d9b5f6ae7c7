"""Typed ops: every function here applies one rule of the algebra to its operands and emits one op.

Forward, backward and update are written with the same functions, so they obey the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tpsim.algebra import legality, reshard
from tpsim.algebra.moves import Move, as_streamed
from tpsim.algebra.sharding import FlatDim, Owed, Sharding, ShardingError, flat_dim, joined, unpacked
from tpsim.program.dims import ROWS
from tpsim.program.layout import TOKENS_READ
from tpsim.program.op import (
    Array,
    Bcast,
    Einsum,
    Home,
    Index,
    Join,
    Leaf,
    Lin,
    Map,
    Max,
    Op,
    Rename,
    Reshard,
    Role,
    Scale,
    Where,
)

if TYPE_CHECKING:
    from tpsim.program.layout import Layout

T = TypeVar("T")

ONE = Scale()
PAIR = 2
"""The devices of a message: who sends and who receives."""

Path = Callable[["Array", Sharding, Sequence[str]], tuple[Move, ...]]
"""Chooses the moves that bring an array to a type on a mesh with these axes."""


def book_path(x: Array, to: Sharding, order: Sequence[str]) -> tuple[Move, ...]:
    """The book's greedy path, which depends on the types alone."""
    return reshard.book_path(x.type, to, order)


@dataclass(slots=True)
class Trace:
    """The program being written: the ops so far, where the next one stands, and who produced each array.

    instead  array -> what backward reads in its place
    types    what is asked of operands' types -> the answer of the algebra, which knows no more of them
    """

    layout: Layout
    order: tuple[str, ...]
    where: Where
    region: str = "residual"
    path: Path = book_path
    ops: list[Op] = field(default_factory=list)
    producer: dict[Array, Op] = field(default_factory=dict)
    instead: dict[Array, Array] = field(default_factory=dict)
    types: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def copied(self, layout: Layout) -> Trace:
        """The same so far, to be gone on with by itself under a layout."""
        own = [*self.ops], {**self.producer}, {**self.instead}
        return Trace(layout, self.order, self.where, self.region, self.path, *own, self.types)

    def at(self, where: Where, region: str | None = None) -> Stay:
        """Emit what follows at `where` (and in `region`), then return to where we were."""
        return Stay(self, (where, region or self.region))

    def emit(self, op: Op) -> Array:
        """Append `op`; its output is the value.

        Raises ShardingError for one that reads what another chunk of the stack holds, and is not sent, or what lives
        elsewhere, and is neither loaded nor stored.
        """
        here, producer = op.where.chunks, self.producer
        for x in op.inputs:
            if x.home != op.output.home and not _brings(op):
                raise ShardingError(f"{op.output.name} is made on the {op.output.home} of {x.name} on the {x.home}")
            there = producer[x].where.chunks if x in producer else here
            if there != here and not {*here} <= {*there} and not _sends(op):
                named, holds = ",".join(map(str, here)), ",".join(map(str, there))
                raise ShardingError(f"{op.output.name} of chunk {named} reads {x.name}, which chunk {holds} holds")
        self.ops.append(op)
        producer[op.output] = op
        return op.output

    def _typed(self, asked: Hashable, xs: Sequence[Array], answer: Callable[[], T]) -> T:
        """What the algebra says of operands, asked once for all that have these types. Raises what it raises."""
        key = asked, *[x.type for x in xs]
        if key not in self.types:
            self.types[key] = answer()
        return self.types[key]  # type: ignore[no-any-return]  # put there above

    def leaf(
        self,
        name: str,
        dims: tuple[str, ...],
        region: str,
        dtype: str,
        role: Role,
        *,
        rows: tuple[str, ...] = (),
        home: Home = "device",
    ) -> Array:
        """An array from outside, laid out as `region` says. Parameters are what gradients are taken of."""
        type_ = self.layout.home(dims, region, rows)
        array = Array(name, type_, region, dtype, role, active=role == "param", home=home)
        return self.emit(Leaf((), array, self.where, rows=rows))

    def state(self, name: str, param: Array, dtype: str, home: Home) -> Array:
        """What an optimizer holds of a parameter, from outside."""
        return self.leaf(name, unpacked(param.type).dims, "state", dtype, "state", rows=self.rows(param), home=home)

    def home(self, param: Array, region: str) -> Sharding:
        """The type that what belongs to a parameter has in `region`."""
        return self.layout.home(unpacked(param.type).dims, region, self.rows(param))

    def rows(self, param: Array) -> tuple[str, ...]:
        """The dims of a parameter that frameworks have first; none of another array."""
        leaf = self.producer[param]
        return leaf.rows if isinstance(leaf, Leaf) else ()

    def index(self, fn: str, dims: tuple[str, ...], dtype: str, *inputs: Array, born: Sharding | None = None) -> Array:
        """An array of global indices, born in the region's sharding (or as `born` says): it is never resharded."""
        type_ = born or self.layout.type_in(dims, self.region)
        return self.emit(Index(inputs, Array(fn, type_, self.region, dtype, "index"), self.where, fn=fn))

    def dropped(self, name: str, x: Array, rate: float) -> Array:
        """`x` with a share of its elements dropped by a mask of a byte each, and the others scaled up to keep the mean.

        The mask is drawn from global indices, layer and microbatch: the same however the program is split.
        """
        born = x.type.owing(())
        drawn = self.emit(
            Index((), Array(f"{name}.draw", born, self.region, "int8", "index"), self.where, fn="dropout", rate=rate)
        )
        kept = (Scale(1 / (1 - rate)),)
        mask = self.lin(f"{name}.mask", drawn, scales=kept, role="activation")
        return self.einsum(f"{name}.dropped", x.dims, x, mask)

    def einsum(self, name: str, dims: tuple[str, ...], *xs: Array, dtype: str | None = None) -> Array:
        """The product of one or two arrays, summed over every dim that is not in `dims`.

        Raises ShardingError as `legality.product` does.
        """
        out, summed = self._typed(("einsum", dims), xs, lambda: legality.product(name, dims, _named(xs)))
        because = "; ".join([_owes_because(name, dim, axes, len(xs)) for dim, axes in summed])
        return self.emit(Einsum(xs, self._array(name, out, xs, dtype), self.where, because))

    def map(self, name: str, fn: str, *xs: Array, partial: int | None = None, dtype: str | None = None) -> Array:
        """A pointwise function; its operands must be complete, except the cotangent of a pullback, which may owe."""
        pulled = partial is not None
        asked = "pullback" if pulled else "map"
        type_ = self._typed(asked, xs, lambda: legality.pointwise(name, _named(xs), pulled=pulled))
        return self.emit(Map(xs, self._array(name, type_, xs, dtype), self.where, fn=fn, partial=partial))

    def lin(
        self,
        name: str,
        *xs: Array,
        scales: Sequence[Scale] | None = None,
        dtype: str | None = None,
        role: Role | None = None,
    ) -> Array:
        """A weighted sum. Operands that owe differently, or owe and are broadcast, are settled first.

        Raises OwedError if they all owe a max: it does not commute with a weight.
        """
        scales = tuple(scales or (ONE,) * len(xs))
        if not self._typed("alike", xs, lambda: legality.owe_alike([x.type for x in xs])):
            xs = tuple(self.settled(x, f"{x.name} is added to an array that does not owe alike") for x in xs)
        type_ = self._typed("lin", xs, lambda: legality.weighted_sum(name, _named(xs)))
        return self.emit(Lin(xs, self._array(name, type_, xs, dtype, role), self.where, scales=scales))

    def max(self, name: str, x: Array, dim: str, *, dtype: str | None = None) -> Array:
        """The maximum over `dim`; a sharded dim leaves a max owed. Gradients stop here."""
        legality.owed_after("nonlinear", _named([x]))
        axes = x.type.axes(dim)
        kept = tuple(other for other in x.dims if other != dim)
        type_ = Sharding(kept, tuple(x.type.axes(other) for other in kept), frozenset((axis, "max") for axis in axes))
        because = f"the maximum runs over {dim}, which is split over {joined(axes)}" if axes else ""
        array = Array(name, type_, self.region, dtype or x.dtype, x.role, home=x.home)
        return self.emit(Max((x,), array, self.where, because, dim=dim))

    def rename(self, name: str, x: Array, old: str, new: str) -> Array:
        """The same array with dim `old` called `new`."""
        type_ = x.type.renamed({old: new})
        return self.emit(Rename((x,), self._array(name, type_, (x,), None), self.where))

    def bcast(self, name: str, x: Array, pattern: Sharding) -> Array:
        """`x` repeated along the dims that it lacks, sharded as in `pattern`; what it owes it keeps owing."""
        type_ = Sharding(pattern.dims, pattern.on, x.type.owes)
        return self.emit(Bcast((x,), self._array(name, type_, (x,), None), self.where))

    def reshard(
        self,
        x: Array,
        to: Sharding,
        because: str,
        *,
        region: str | None = None,
        name: str | None = None,
        streamed: bool = False,
        circle: bool = False,
    ) -> Array:
        """`x` brought to type `to` by the book's path; an edge of a region even if nothing moves.

        streamed  what gathers its blocks last, or scatters them first, does so beside what reads or makes them
        circle    what is scattered so begins at its home, and takes a hop more to be there again
        """
        region, name = region or self.region, name or x.name
        if x.dims != to.dims and (line := flat_dim(to) or flat_dim(x.type)):
            return self._lined(x, to, line, because, region=region, name=name)
        moves = self.path(x, to, self.order)
        moves = as_streamed(moves, TOKENS_READ, circle=circle) if streamed else moves
        return self._moved(x, to, moves, because, region=region, name=name)

    def _lined(self, x: Array, to: Sharding, line: FlatDim, because: str, *, region: str, name: str) -> Array:
        """`x` laid out in a line and then split, or brought together and then as it was: each device by itself."""
        if line in to.dims:
            as_it_was = line.of.owing(x.type.owes)
            x = x if x.type == as_it_was else self.reshard(x, as_it_was, because, region=region, name=name)
            begun = replace(x, type=line.begun.owing(x.type.owes))
            return self._moved(x, to, self.path(begun, to, self.order), because, region=region, name=name)
        moves = self.path(x, line.begun.owing(to.owes), self.order)
        there = self._moved(x, line.of.owing(to.owes), moves, because, region=region, name=name)
        return there if there.type == to else self.reshard(there, to, because, region=region, name=name)

    def _moved(self, x: Array, to: Sharding, moves: tuple[Move, ...], because: str, *, region: str, name: str) -> Array:
        array = replace(x, name=name, type=to, region=region)
        where = self.where.but(kernel="") if self.where.kernel else self.where
        return self.emit(Reshard((x,), array, where, because, moves=moves))

    def pin(
        self, x: Array, region: str, because: str = "", *, name: str | None = None, streamed: bool = False
    ) -> Array:
        """`x` brought to what `region` declares for its dims: an edge between regions; streamed as for `reshard`."""
        to = self.layout.type_in(x.dims, region)
        reasons = [*self.owed_because(x), f"{x} enters region {region}, which declares {to}", because]
        return self.reshard(x, to, "; ".join(filter(None, reasons)), region=region, name=name, streamed=streamed)

    def send(self, x: Array, name: str, because: str) -> Array:
        """`x` on the devices of another stage: every device sends its block to its like there."""
        moves = (Move("send", self.layout.stages, x.type, x.type, members=PAIR),)
        return self.emit(Reshard((x,), replace(x, name=name), self.where, because, moves=moves))

    def brought(self, x: Array, home: Home, because: str) -> Array:
        """`x` where it is read: stored from the device to its host, loaded from there, or there already."""
        if x.home == home:
            return x
        moves = (Move("store" if home == "host" else "load", (), x.type, x.type),)
        where = self.where.but(kernel="") if self.where.kernel else self.where
        return self.emit(Reshard((x,), replace(x, home=home), where, because, moves=moves))

    def joined(self, parts: Sequence[Array], because: str) -> Array:
        """The sum of parts that several stages have, one each, on all of them: nobody else takes part."""
        first, axes, both = parts[0], self.layout.stages, self.owed_by(parts, because)
        moves = (Move("all_reduce", axes, both.type, first.type, members=len(parts)),)
        return self.emit(Reshard((both,), replace(first), self.where, because, moves=moves))

    def owed_by(self, parts: Sequence[Array], because: str = "each stage has a part of it") -> Array:
        """Parts that stages have as one array, which owes their sum."""
        first, axes = parts[0], self.layout.stages
        owing = first.type.owing({*first.type.owes, *((axis, "sum") for axis in axes)})
        return self.emit(Join(tuple(parts), replace(first, type=owing), self.where, because))

    def settled(self, x: Array, because: str) -> Array:
        """`x` with every owed sum or max paid, its sharding unchanged; `x` itself if it owes nothing."""
        if x.type.complete:
            return x
        reason = "; ".join([*self.owed_because(x), because])
        return self.reshard(x, x.type.owing(()), reason, region=x.region)

    def owed_because(self, x: Array) -> list[str]:
        """Why `x` owes what it owes: the reasons of the ops that made the debts, first debt first."""
        return list(dict.fromkeys(filter(None, (self._origin(x, owed) for owed in sorted(x.type.owes)))))

    def _origin(self, x: Array, owed: Owed) -> str:
        op = self.producer[x]
        earlier = [y for y in op.inputs if owed in y.type.owes]
        return self._origin(earlier[0], owed) if earlier else op.because

    def _array(
        self, name: str, type_: Sharding, xs: Sequence[Array], dtype: str | None, role: Role | None = None
    ) -> Array:
        numbers = [x for x in xs if x.role != "index"]
        summed = [x.role for x in numbers if x.role in SUMMED]
        made = role or (summed[0] if summed else "activation" if numbers else "index")
        active, filled = True in [x.active for x in xs], [x.filled for x in xs if x.filled]
        rows = filled[0] if filled and not ROWS.isdisjoint(type_.dims) else None
        dtype = dtype or (numbers or xs)[0].dtype
        return Array(name, type_, self.region, dtype, made, active=active, filled=rows, home=(numbers or xs)[0].home)


@dataclass(slots=True)
class Stay:
    """The time in which a trace is somewhere else.

    other  where it will be, then where it was, with the region
    """

    trace: Trace
    other: tuple[Where, str]

    def __enter__(self) -> None:
        """Go there."""
        trace = self.trace
        (trace.where, trace.region), self.other = self.other, (trace.where, trace.region)

    def __exit__(self, *raised: object) -> None:
        """Come back."""
        self.__enter__()


SUMMED: frozenset[Role] = frozenset({"gradient", "state"})
"""What is made of these is of them."""


def _named(xs: Sequence[Array]) -> list[tuple[str, Sharding]]:
    return [(x.name, x.type) for x in xs]


def _sends(op: Op) -> bool:
    """True for what other chunks of the stack may read."""
    return isinstance(op, Join) or (isinstance(op, Reshard) and any(move.kind == "send" for move in op.moves))


def _brings(op: Op) -> bool:
    """True for what is made of what lives elsewhere."""
    return isinstance(op, Reshard) and any(move.travels for move in op.moves)


def _owes_because(name: str, dim: str, axes: tuple[str, ...], operands: int) -> str:
    over = joined(axes)
    if operands == 1:
        return f"the sum runs over {dim}, which is split over {over}, so {name} owes a sum over {over}"
    return f"case 3: both operands are split on {dim} over {over}, so {name} owes a sum over {over}"
