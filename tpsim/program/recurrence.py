"""The recurrence of linear attention: a state that tokens change one after another, and what they read of it.

With S the state of a head, g a token's decay in logarithms, k its key, v its value, q its query::

    S = exp(g) * S,  u = strength * v,  S = S + k u,  out = q S

By the delta rule what its key finds in the state is taken from a value: u = strength * (v - k S). It is one op, as its
kernel runs in chunks of tokens that no array of a program has; `reference.recurrence` takes one token after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tpsim.algebra import legality
from tpsim.algebra.sharding import Owed, Sharding, ShardingError, joined, split
from tpsim.program.dims import CHUNKED
from tpsim.program.op import Array, Op
from tpsim.program.saved import STATISTIC
from tpsim.quantity.size import over, product, smallest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tpsim.program.trace import Trace
    from tpsim.quantity.size import Size

HEADS = ("lg", "lr")
READ = ("b", "s", *HEADS, "lo")
STATE = ("b", *HEADS, "ld", "lo")
SQUARE = (*READ[:-1], CHUNKED)
"""The dims of what tokens read of a state, of the state, and of what tokens of a chunk are to each other."""

KEYED = (*READ[:-1], "ld")
STATES = ("b", "ln", *HEADS, "ld", "lo")
PRODUCTS = ("b", "s", "lg", CHUNKED)
"""Those of what a head has by key dim, of the states before chunks, and of products of queries and keys in a chunk."""

Makes = Literal["read", "state", "inverse", "products"]
"""What tokens read; the state behind the last one; of a chunk, for every token a row, what its changes are solved by,
and products of its queries and keys."""

DIMS_OF: Mapping[Makes, tuple[str, ...]] = {"read": READ, "state": STATE, "inverse": SQUARE, "products": SQUARE}

WHOLE = ("s", "ld")
"""The dims that no device may have a part of: a state is changed by one token after another, and read by key dims."""


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence(Op):
    """What every token reads of the state, of its query, key, value, logarithm of decay and strength.

    Queries and keys are ``[b, s, lg, ld]``, values and what is made ``[b, s, lg, lr, lo]``, decays and strengths
    ``[b, s, lg, lr]``; decays by key dim have ``ld``, too. Last may stand the state before the first token.

    delta    True for the delta rule
    makes    what is made, all of it by the same kernel
    beside   of that what it keeps for backward
    stepped  True if the kernel takes few tokens one after another, as of decoding, and no chunks
    partial  i for the pullback to input i: the first input is then the cotangent
    shares   inputs that cotangents are made of: backward costs twice as much as forward, told evenly
    passes   what each further kernel of it moves, beside what the first one reads and writes
    inside   what its kernels hand each other, of which each is there once
    """

    in_chunks: ClassVar[bool] = True
    delta: bool = True
    makes: Makes = "read"
    beside: tuple[Array, ...] = ()
    stepped: bool = False
    partial: int | None = None
    shares: int = 1
    _inside: tuple[Array, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """What is there while it runs: one object for each, however often it is asked for."""
        handed = (_handed_by_delta if self.delta else _handed_by_decay)(self)
        object.__setattr__(self, "_inside", tuple(handed) if self.makes == "read" and not self.stepped else ())

    @property
    def inside(self) -> Sequence[Array]:
        """What its kernels hand each other."""
        return self._inside

    def flops(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """FLOPs of one device, one run: per head, with T tokens in chunks of C, ``6Td^2 + 3TCd + TC^2``.

        Without the delta rule these are ``4Td^2 + TCd``, and TCd for all heads of a key head together, on each device
        that has any of them. A step of fewer tokens than a chunk has is one chunk.

        Source: Kimi Linear (2025), equation 13, where keys and values both have d numbers; of what is squared within a
        chunk it counts the causal half. The other by the products of Dao and Gu (2024), section 6, counted so.
        """
        if self.makes != "read":
            return 0
        keys, values, many = dims["ld"], dims["lo"], dims["lr"]
        chunk = smallest(dims[CHUNKED], dims["s"])
        shards, tokens = {axis for x in self.inputs for axis in x.type.sharded_axes}, (dims["b"], dims["s"], dims["lg"])
        if self.delta:
            by_head = 6 * keys * values + chunk * (2 * keys + values + chunk)
            here = split(product((many * by_head, *tokens)), shards, axes)
        else:
            keyed = {axis for x in self.inputs for axis in x.type.sharded_axes if "lr" not in x.dims}
            here = split(product((many * values * (4 * keys + chunk), *tokens)), shards, axes)
            here = here + split(product((chunk * keys, *tokens)), keyed, axes)
        return here if self.partial is None else over(2 * here, self.shares)

    @property
    def read_back(self) -> Sequence[Array]:
        """All that it reads, and what its kernel keeps."""
        return (*self.inputs, *self.beside)

    def pulled(self, trace: Trace, name: str, place: int, dy: Array, read: Sequence[Array]) -> Array:
        """The cotangent of input `place`, which owes a sum over what splits dims that it lacks."""
        dy, x = trace.settled(dy, "a recurrence is pulled back from its last token on"), self.inputs[place]
        shards = _alike(name, [dy, *read])
        lacks = (axis for dim, axes in shards.items() if dim not in x.dims for axis in axes)
        owes: frozenset[Owed] = frozenset((axis, "sum") for axis in lacks)
        made = Array(name, Sharding(x.dims, x.type.on, owes), trace.region, x.dtype, active=True)
        shares = len([one for one in self.inputs if one.active])
        back = replace(self, inputs=(dy, *read), output=made, where=trace.where, partial=place, shares=shares)
        return trace.emit(back)


def recurrence(
    trace: Trace,
    name: str,
    *operands: Array,
    delta: bool,
    makes: Makes = "read",
    beside: Sequence[Array] = (),
    stepped: bool = False,
    dtype: str | None = None,
) -> Array:
    """What tokens read of the state, or what else is made; operands and flags as `Recurrence` has them.

    Raises ShardingError for tokens or key dims that are split, and for operands that are split otherwise than others.
    """
    shards, dims = _alike(name, operands), DIMS_OF[makes]
    type_ = Sharding(dims, tuple(shards.get(dim, ()) for dim in dims))
    made = Array(name, type_, trace.region, dtype or operands[2].dtype, active=any(x.active for x in operands))
    op = Recurrence(operands, made, trace.where, delta=delta, makes=makes, beside=tuple(beside), stepped=stepped)
    return trace.emit(op)


def _alike(name: str, operands: Sequence[Array]) -> dict[str, tuple[str, ...]]:
    """The axes of every dim of some operands, none of which may owe anything. Raises ShardingError."""
    named = [(x.name, x.type) for x in operands]
    for one in named:
        legality.owed_after("nonlinear", [one])
    shards = legality.split_alike(name, named)
    for dim in WHOLE:
        if axes := shards.get(dim):
            why = f"tokens change a state one after another, by whole keys; {dim} is split over {joined(axes)}"
            raise ShardingError(f"{name}: {why}")
    return shards


def passed_on(ops: Iterable[Op]) -> Iterator[tuple[Array, ...]]:
    """What each further kernel of a recurrence in chunks moves, beside what the first one reads and writes."""
    run = [op for op in ops if isinstance(op, Recurrence) and not op.stepped]
    for op in sorted(run, key=lambda op: op.makes != "read")[:1]:
        yield from (_passed_by_delta if op.delta else _passed_by_decay)(op)


def _passed_by_delta(op: Recurrence) -> Iterator[tuple[Array, ...]]:
    """Of the delta rule.

    Forward makes what the state is changed by (w of keys, u of values) with the inverse that both take, then the state
    before each chunk, then what is read of these; backward makes the first two again, then one after another cotangents
    of what is written, of states, of keys and queries, and of what w and u are made from. Decays by key dim are made,
    and read, by kernels of their own.

    Source: flash-linear-attention at bc3b101, ops/gated_delta_rule/chunk.py: chunk_gated_delta_rule_fwd and _bwd, and
    ops/kda/chunk_fwd.py.
    """
    (q, k, v), like = _rows(op)
    w, states, inverse = like(*KEYED), like(*STATES), like(*SQUARE)
    decays = [x for x in op.inputs if x.dims == KEYED]
    if op.partial is None:
        yield (w, v, *(() if op.beside else (inverse,)), k, w, v)
        yield (states, v, k, v, states)
        yield from [(g, g, g, g) for g in decays]
        return
    yield (k, v, w, v)
    yield (k, w, v, states, v)
    yield (q, k, v, v)
    yield (q, k, w, v, v, states, v)
    yield (v, w, states, v, v, states, w)
    yield (k, v, w, v, inverse, k)
    yield from [(g, g, g, g, g, g) for g in decays]


def _passed_by_decay(op: Recurrence) -> Iterator[tuple[Array, ...]]:
    """Without the delta rule.

    Forward makes what each chunk adds to the state, in full precision, then the state before each, then products of
    queries and keys within chunks, then what is read of these; backward makes the first three again, then cotangents of
    states by chunk and in turn, of values, keys, queries, of these products, and of decays.

    Source: state-spaces/mamba at e9594ce, ops/triton/ssd_combined.py: _mamba_chunk_scan_combined_fwd and _bwd.
    """
    (q, k, v), like = _rows(op)
    states = like(*STATES)
    wide, squares = replace(states, dtype=STATISTIC), replace(like(*PRODUCTS), dtype=STATISTIC)
    yield (k, v, wide)
    yield (wide, states)
    yield (q, k, squares, *((squares, states) if op.partial is None else ()))
    if op.partial is not None:
        yield (q, v, states)
        yield (states, states, states, states)
        yield (k, v, squares, v, states)
        yield (v, states)
        yield (v, states)
        yield (v, v, squares)
        yield (q, squares, k)
        yield (k, squares, q)
        yield (v, v, squares)


def _handed_by_delta(op: Recurrence) -> Iterator[Array]:
    """What is there at once of the delta rule's kernels.

    Forward: w, u, what is written, states, and decays by key dim; backward cotangents of the last four, and of w, too.
    """
    (_, _, v), like = _rows(op)
    again = 1 if op.partial is None else 2
    for dims, many in ((KEYED, again), (v.dims, again + 1), (STATES, again)):
        yield from (like(*dims) for _ in range(many))
    by_key = any(x.dims == KEYED for x in op.inputs[3:])
    yield from (replace(like(*KEYED), dtype=STATISTIC) for _ in range(again if by_key else 0))


def _handed_by_decay(op: Recurrence) -> Iterator[Array]:
    """Without it: states as chunks make them and as they come in turn, and products within chunks; backward, too."""
    _, like = _rows(op)
    again = 1 if op.partial is None else 2
    yield replace(like(*STATES), dtype=STATISTIC)
    yield from (like(*STATES) for _ in range(2 * again - 1))
    yield from (replace(like(*PRODUCTS), dtype=STATISTIC) for _ in range(again))


def _rows(op: Recurrence) -> tuple[Sequence[Array], Callable[..., Array]]:
    """Queries, keys and values, and what makes an array with other dims, split as values are."""
    operands = op.inputs if op.partial is None else op.inputs[1:]
    v = operands[2]
    on = {**dict(zip(v.dims, v.type.on, strict=True)), "ld": (), "ln": (), CHUNKED: ()}
    return operands[:3], lambda *dims: replace(v, type=Sharding(dims, tuple(on[dim] for dim in dims)))
