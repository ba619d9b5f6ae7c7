"""Readings of tpsim's answers: which call is made and which field is taken. Nothing is computed here by hand."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import sympy

import tpsim
from tests.arrays import parse_array
from tpsim.algebra.mesh import Mesh
from tpsim.cost.memory import local_bytes
from tpsim.cost.sizes import Sizes
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Segment
from tpsim.machine import chip_seconds, timing
from tpsim.machine.profile import load
from tpsim.program.op import Array
from tpsim.quantity.size import over

B, D, F, I, K, M, N, X, Y, Z, V = sympy.symbols("B D F I K M N X Y Z V", positive=True)  # noqa: E741 - the book's I
PER_CHIP = sympy.Symbol("per_chip", positive=True)
C_V5P, W_V5P, ALPHA_V5P = 459e12, 180e9, 2550
"""What the book calls C, W and alpha for tpu-v5p, for its formulas."""
CUBE = "X=4,Y=4,Z=4"
"""The smallest slice of tpu-v4 and tpu-v5p whose axes all close."""


def symbol(name):
    return sympy.Symbol(name, positive=True)


def shard(expr, mesh=CUBE, **options):
    """A sharded product, reshard or array, as the book plans and prices it."""
    return tpsim.shard(expr, mesh=mesh, **{"planner": "book", "cost_model": "book"} | options)


def held(array, mesh, dims, dtype="bf16"):
    """Bytes of one array on one device."""
    return shard(array, mesh, dims=dims, dtype=dtype).arrays[0]["local_bytes"]


def local(array, dim, size, **axes):
    """Elements of a dim that one device holds; a fraction if they do not split evenly."""
    return parse_array(array).type.local(dim, {dim: size}, axes)


def held_in_symbols(array, dims, dtype="bf16", **axes):
    """Bytes of one array on one device, sizes in symbols."""
    type_ = parse_array(array).type
    return local_bytes(Array("array", type_, "*", dtype), Sizes(dims, axes, {}))


class Step(NamedTuple):
    """A product or a move of a way with its seconds in symbols: the machine's own arithmetic takes these too."""

    op: str
    axes: tuple[str, ...]
    time_s: Any
    bandwidth_s: Any = 0


def in_symbols(result):
    """The steps of a way on more than one device, priced with symbols for the sizes of dims and axes."""
    sizes, clock = result.pricing.sizes.symbols, result.clock
    for step in result.steps:
        if step.row is None:
            work = sympy.sympify(step.formulas.flops_per_device, locals={one.name: one for one in sizes_of(sizes)})
            yield Step(step.op, (), clock.product(work))
            continue
        one, route = step.row.call, in_length(clock.placement, step.axes, sizes.axes)
        found = timing.time(clock.machine, route, one.kind, one.logical_bytes(sizes), cost_model="book")
        seconds = (_of_several(cost) for cost in (found.time_s, found.bandwidth_s))
        yield Step(step.op, step.axes, *seconds)


def sizes_of(sizes):
    """The symbols of dims and axes."""
    return (*sizes.dims.values(), *sizes.axes.values())


def _of_several(cost):
    """A cost among more than one device: what is paid only then is paid."""
    cost = sympy.sympify(cost)
    return cost.subs(dict.fromkeys(cost.atoms(sympy.StrictGreaterThan), sympy.true))


def in_length(placement, axes, sizes):
    """The route of mesh axes with symbols for their sizes; one on several physical axes keeps the inner numbers."""
    pieces = {}
    for axis in axes:
        *inner, last = placement.pieces[axis]
        for piece in inner:
            pieces.setdefault(piece.carrier, []).append(piece.n)
        pieces.setdefault(last.carrier, []).append(sizes[axis] / prod(piece.n for piece in inner))
    return tuple(replace(segment, n=prod(pieces[segment.axis])) for segment in placement.route(axes))


class Layer:
    """Several products and moves: their seconds in symbols, by what they are."""

    def __init__(self, hw, mesh, *exprs, placement=None, dtype="bf16"):
        ways = (shard(expr, mesh, hw=hw, placement=placement, dtype=dtype) for expr in exprs)
        self.steps = [step for way in ways for step in in_symbols(way)]

    def math(self, **sizes):
        """Seconds of the products."""
        return self._sum("time_s", lambda step: step.op == "matmul", sizes)

    def moves(self, *kinds, over=None, **sizes):
        """Seconds of the moves' bytes; of these kinds and over this axis only, if given."""
        return self._sum(
            "bandwidth_s",
            lambda step: step.op != "matmul" and (not kinds or step.op in kinds) and (not over or over in step.axes),
            sizes,
        )

    def _sum(self, field, wanted, sizes):
        return given(sum(getattr(step, field) for step in self.steps if wanted(step)), **sizes)


def given(cost, **sizes):
    """A cost in symbols at these sizes; a size may be a symbol or an expression itself."""
    found = sympy.sympify(cost)
    return found.subs([(one, sizes[one.name]) for one in found.free_symbols if one.name in sizes], simultaneous=True)


def many(cost, axis):
    """A cost as an axis grows without bound: where the book writes V/W for a switch."""
    return sympy.limit(cost, symbol(axis), sympy.oo)


def equal(left, right, unknown):
    """The value at which two costs are equal; what other symbols both have cancels."""
    ratio = sympy.cancel(sympy.sympify(left) / right)
    (free,) = ratio.free_symbols
    assert free.name == unknown
    (root,) = sympy.solve(ratio - 1, free)
    return float(root)


def equal_as_a_formula(left, right, unknown):
    """The same in the other symbols: sympy solves for it what tpsim has priced."""
    (found,) = sympy.solve(sympy.sympify(left) - right, symbol(unknown))
    return found


def ring(n, hw="tpu-v5e"):
    """A closed axis of n chips."""
    level = load(hw).levels[0].name
    return (Segment(level, f"{level}.0", "ring", n),)


ONE_LINK = (Segment("ici", "ici.0", "line", 2),)
"""Two chips of a TPU and the cable between them."""


def moved(hw, route, kind, V):
    """Seconds of the bytes of one move, as the book prices it."""
    return timing.time(load(hw), route, kind, V, cost_model="book").bandwidth_s


def nodes(ranks, hw="book-h100"):
    """The route of so many GPUs, nodes filled one after another."""
    return place(load(hw).levels, Mesh({"ranks": ranks})).route(["ranks"])


def intensity(hw, seconds_per_byte, dtype="bf16"):
    """FLOPs that a chip does while one byte travels."""
    return equal(chip_seconds.compute_s(load(hw), symbol("work"), dtype, 1.0), seconds_per_byte, "work")


def per_second(hw, mesh, expr):
    """Bytes that an all-gather makes whole in one second."""
    numbers = dict(pair.split("=") for pair in mesh.split(","))
    return equal(Layer(hw, mesh, expr, dtype="int8").moves(**{axis: int(n) for axis, n in numbers.items()}), 1, "I")


def loaded(hw, size):
    """Seconds to read so many bytes from one chip's memory at all of its bandwidth, as the book counts."""
    return over(size, load(hw).chip.memory.bandwidth.value)


def seconds(expr, mesh, hw, dims, *ops, **options):
    """Seconds of a plan's steps of these kinds; of all its moves if none is named."""
    steps = shard(expr, mesh, hw=hw, dims=dims, **options).steps
    return sum(step["time_s"] for step in steps if (step["op"] in ops if ops else step["op"] != "matmul"))


def tensor_parallel(hw="tpu-v5p", mesh=CUBE, dtype="bf16", placement=None):
    """Forward of an MLP on a stream whose hidden dim is split."""
    exprs = ("In[B,D_Y] . Win[D,F_Y] -> H[B,F_Y]", "H[B,F_Y] . Wout[F_Y,D] -> Out[B,D_Y]")
    return Layer(hw, mesh, *exprs, dtype=dtype, placement=placement)


def tensor_limit(layer, unknown="Y", **sizes):
    return equal(layer.math(**sizes), layer.moves(**sizes), unknown)
