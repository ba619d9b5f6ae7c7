"""A hand-made program of a few ops and a stub pricer: the cost floor without the floors beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.models import GPT, loops
from tpsim.algebra.moves import Move, wire
from tpsim.algebra.sharding import Sharding
from tpsim.cost.kernels import kernels
from tpsim.cost.sizes import Sizes
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Array, Einsum, Leaf, Program, Reshard, Where
from tpsim.quantity.size import over, where_many

SIZES = Sizes(
    dims={"b": 16, "s": 4096, "t": 4096, "h": 8192, "f": 28672, "v": 128256},
    axes={"data": 4, "tensor": 8},
    loops=loops(80, 2),
)


def typed(dims: str, *, owes: str = "", **on: str) -> Sharding:
    """The type with one-letter `dims`, each sharded by the axis named after it."""
    shards = tuple((on[dim],) if dim in on else () for dim in dims)
    return Sharding(tuple(dims), shards, frozenset({(owes, "sum")} if owes else ()))


def array(name: str, type_: Sharding, role: Any = "activation", dtype: str = "bf16") -> Array:
    """An array of the block's region."""
    return Array(name, type_, "block", dtype, role)


def settled(before: Array, after: Sharding, axis: str, kind: Any, where: Where) -> Reshard:
    """The op that brings `before` to `after` by one move."""
    out = Array(before.name, after, before.region, before.dtype, before.role)
    return Reshard((before,), out, where, f"{before.name} owes {axis}", (Move(kind, (axis,), before.type, after),))


FORWARD = Where("F", "mlp", loops=(("layers", 0), ("microbatches", 0)))
BACKWARD = Where("B", "mlp", loops=(("layers", 0), ("microbatches", 0)))
ONCE = Where("B", "mlp", loops=(("layers", 0),))


@pytest.fixture
def program() -> Program:
    """One MLP y = x W1 W2 split by columns, then rows, over `tensor`, with data parallel gradients over `data`."""
    x = array("x", typed("bsh", b="data"))
    w1, w2 = array("w1", typed("hf", f="tensor"), "param"), array("w2", typed("fh", f="tensor"), "param")
    z = array("z", typed("bsf", b="data", f="tensor"))
    y = array("y", typed("bsh", b="data", owes="tensor"))
    dx = array("dx", typed("bsh", b="data", owes="tensor"))
    grads = [array(f"d{w.name}", w.type.owing({("data", "sum")}), "gradient", "f32") for w in (w1, w2)]
    settles = [settled(g, g.type.owing(()), "data", "all_reduce", ONCE) for g in grads]
    ops = (
        Leaf((), w1, Where("F", "mlp", loops=(("layers", 0),))),
        Leaf((), w2, Where("F", "mlp", loops=(("layers", 0),))),
        Einsum((x, w1), z, FORWARD),
        Einsum((z, w2), y, FORWARD),
        settled(y, typed("bsh", b="data"), "tensor", "all_reduce", FORWARD),
        Einsum((z, w1), dx, BACKWARD),
        settled(dx, typed("bsh", b="data"), "tensor", "all_reduce", BACKWARD),
        *(Einsum((x, z), g, BACKWARD) for g in grads),
        *settles,
    )
    results = {f"grad.{op.output.name[1:]}": op.output for op in settles}
    return Program(ops, ("data", "tensor"), loops(1), {}, results)


@dataclass(frozen=True)
class StubTiming:
    """What `machine.timing` returns, for a network of 100 GB/s and 1 us."""

    launch_s: Any
    latency_s: Any
    bandwidth_s: Any
    time_s: Any
    wire: Any
    carried: Any
    link_total: Any
    link_serial: Any
    steps: Any
    algorithm: str = "stub"
    protocol: str = "simple"
    asked: Any = None


@pytest.fixture
def sizes() -> Sizes:
    """A 70B-like model on 4 x 8 devices."""
    return SIZES


@pytest.fixture(scope="session")
def whole_step() -> Any:
    """The kernels of a small GPT's step over 2 x 2 devices, and its sizes."""
    where = layout(tp=("T",), dp=("D",), sequence_parallel=True)
    program = lower(GPT, where, PRACTICES["megatron"], Dtypes(), ("D", "T"))
    sizes = Sizes(GPT.dims(sequences=4, seq=8), {"D": 2, "T": 2}, loops(GPT.layers))
    return kernels(program, PRACTICES["megatron"]), sizes


@pytest.fixture
def pricer() -> Any:
    """What prices a collective at `SIZES`."""
    return stub(SIZES)


@pytest.fixture
def pricer_for() -> Any:
    """What prices a collective at any sizes."""
    return stub


def stub(sizes: Sizes) -> Any:
    """A pricer for a network that every device reaches at 100 GB/s."""

    def seconds(move: Any, volume: Any) -> Any:
        ranks = move.ranks(sizes.axes)
        sent = wire(move.kind, volume, ranks)
        bandwidth, latency = over(sent, 100_000_000_000), where_many(ranks, over(1, 1_000_000))
        return StubTiming(0, latency, bandwidth, latency + bandwidth, sent, sent, sent, sent, 1)

    return seconds
