"""Mixtures of experts in several chapters: who answers what."""

from __future__ import annotations

from functools import cache

from tests.models import mixture
from tests.worked.answer import BOOK_MANY, COUNT, Answer
from tests.worked.gpus import outside
from tests.worked.readings import moved, nodes
from tpsim.cost.kernels import kernels
from tpsim.cost.rollup import collectives
from tpsim.cost.sizes import Sizes
from tpsim.program.dims import completed
from tpsim.program.layout import Dtypes, Practice, layout
from tpsim.program.lower import lower


@cache
def layer(**roles):
    """A layer with experts, gradients as wide as what it computes with."""
    where = layout(**roles)
    return lower(mixture(), where, Practice(), Dtypes(gradients="bf16"), tuple(roles["dp"]), layers=1)


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


ANSWERS = {
    "TF-12": {"ops": Answer(lambda: len(rows_sent()), COUNT)},
    # the approximation lets each GPU send its own part away too: that is a permute
    "GP-09": {"ragged_k4": Answer(lambda: moved("book-h100", nodes(8), "permute", 2**27 * share_of_all(4, 8)))},
    "GP-20": {"B": Answer(lambda: tokens_that_hide_gradients(128, 4), BOOK_MANY)},
}
