"""Mixtures of experts in several chapters: who answers what."""

from __future__ import annotations

from functools import cache

from tests.models import mixture
from tests.worked.answer import BOOK_MANY, COUNT, Answer
from tests.worked.gpus import outside
from tests.worked.readings import B, D, F, Z, equal_as_a_formula, in_length, moved, nodes, symbol
from tpsim.algebra.mesh import Mesh
from tpsim.cost.collectives import collectives
from tpsim.cost.kernels import kernels
from tpsim.cost.sizes import Sizes
from tpsim.fabric.placement import place
from tpsim.machine import chip_seconds, timing
from tpsim.machine.profile import load
from tpsim.program.copies import Level, Router, most_reached, reached
from tpsim.program.dims import completed
from tpsim.program.dtypes import Dtypes
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.practice import Practice


@cache
def layer(levels=(), kind="swiglu", **roles):
    """A layer with experts, gradients as wide as what it computes with."""
    practice, dtypes = Practice(levels=levels), Dtypes(gradients="bf16")
    return lower(mixture(kind=kind), layout(**roles), practice, dtypes, tuple(roles["dp"]), layers=1)


def sizes(experts, top, ranks):
    """Of as many sequences as there are ranks."""
    dims = {**mixture().dims(sequences=ranks, seq=8), "n": experts, "i": experts, "k": top}
    loops = {"layers": 1, "microbatches": 1, "chunks": 1}
    return Sizes(completed(dims), {"E": ranks}, loops)


def rows_sent():
    """The calls that bring rows to experts and back in forward."""
    every = collectives(layer(dp=("E",), ep=("E",)), coalesce=False)
    return [one for one in every if one.where.act == "F" and {"n", "c", "h"} <= {*one.parts[0].output.dims}]


def share_of_all(top, experts):
    """Bytes of an exchange where a token goes to `top` of the experts, over those where it goes to all of them."""
    (there, _) = rows_sent()
    return there.logical_bytes(sizes(experts, top, experts)) / there.logical_bytes(sizes(experts, experts, experts))


def tokens_that_hide_gradients(experts, top):
    """Of one GPU: its backward products of experts take as long as gathering and scattering the gradients of all."""
    program, at = layer(dp=("E",)), sizes(experts, top, 8)
    summed = [
        one for one in collectives(program, coalesce=False) if one.array.startswith("grad.") and one.block == "experts"
    ]
    products = [one for one in kernels(program) if one.where.phase == "backward" and one.where.block == "experts"]
    flops = sum(one.flops(at) for one in products) / at.dims["s"]
    return 2 * sum(one.logical_bytes(at) for one in summed) * outside("book-h100", 8) / flops


def between_nodes_s(copies):
    """Of rows that go to experts over Z GPUs and back, a copy for each node: seconds of what leaves the nodes."""
    program = layer(levels=(Level("node", ("N",)),), dp=("N", "E"), ep=("N", "E"))
    inside, at = place(load("book-h100").levels, Mesh({"N": 2, "E": 8})), in_nodes(copies)
    route = in_length(inside, ("N",), at.axes)
    calls = [one for one in collectives(program, coalesce=False) if one.where.act == "F" and one.axes == ("N",)]
    wide = [one for one in calls if "h" in one.parts[0].output.dims]
    return sum(
        timing.time(load("book-h100"), route, one.kind, one.logical_bytes(at), cost_model="book").bandwidth_s
        for one in wide
    )


def in_nodes(copies):
    """Sizes of the book's letters, Z GPUs in nodes of eight."""
    dims = {**mixture().dims(sequences=1, seq=1), "b": B, "h": D, "n": Z, "i": Z, "k": TOP, "y": F}
    loops = {"layers": 1, "microbatches": 1, "chunks": 1}
    return Sizes(completed({**dims, "nn": Z / 8, "kn": copies}), {"N": Z / 8, "E": 8}, loops)


def products_s(copies):
    """Seconds of the products of experts in forward, of two matrices each."""
    program = layer(levels=(Level("node", ("N",)),), kind="gelu", dp=("N", "E"), ep=("N", "E"))
    own = [one for one in kernels(program) if one.where.act == "F" and one.where.block == "experts"]
    work = sum(one.flops(in_nodes(copies)) for one in own)
    return chip_seconds.compute_s(load("book-h100"), work, "bf16", 1.0)


def hidden_that_hides(copies):
    """Hidden size of an expert whose products take as long as its rows travel between nodes."""
    return equal_as_a_formula(products_s(copies), between_nodes_s(copies), "F")


TOP = symbol("k")
FEW, MANY = TOP, Z / 8
"""Nodes that a token goes to: of more nodes than experts one for each of these, of fewer nodes all."""


def most_of_many():
    """Of so many nodes that nearly all a token goes to are others; a token never goes to more than it has experts."""
    nodes_, top = 10**12, 8
    assert most_reached(nodes_, Router(8 * nodes_, top)) == top
    return hidden_that_hides(FEW).subs(Z, 8 * nodes_)


def leaving(ranks, copies):
    """Share of an array that leaves a rank, of those that each rank sends to as many others as its tokens go to."""
    return copies / ranks * (ranks - 1) / ranks


def as_stated(ranks):
    """With replacement: of so many experts that none is chosen twice."""
    return leaving(ranks, float(reached(ranks, Router(ranks * 10**12, 8))))


def at_most(ranks):
    return leaving(ranks, most_reached(ranks, Router(ranks * 8, 8)))


W_NODE, ALPHA = 400e9, 2475
"""What a node of the book's sends in a second, and FLOPs of a chip meanwhile."""

ANSWERS = {
    "GP-23": {
        "F_threshold": Answer(most_of_many, BOOK_MANY),
        "small_Z": Answer(lambda: hidden_that_hides(MANY), formula=ALPHA * (Z - 8) / TOP),
        "T_comms": Answer(
            lambda: [between_nodes_s(FEW), between_nodes_s(MANY)],
            formula=[4 * B * D * (Z - 8) / (W_NODE * Z) * share for share in (8 * TOP / Z, 1)],
        ),
    },
    "GP-30": {
        "approx_64": Answer(lambda: at_most(64), COUNT),
        "true_64": Answer(lambda: as_stated(64), COUNT),
        "approx_8": Answer(lambda: at_most(8), COUNT),
        "true_8": Answer(lambda: as_stated(8), COUNT),
    },
    "TF-12": {"ops": Answer(lambda: len(rows_sent()), COUNT)},
    # the approximation lets each GPU send its own part away too: that is a permute
    "GP-09": {"ragged_k4": Answer(lambda: moved("book-h100", nodes(8), "permute", 2**27 * share_of_all(4, 8)))},
    "GP-20": {"B": Answer(lambda: tokens_that_hide_gradients(128, 4), BOOK_MANY)},
}
