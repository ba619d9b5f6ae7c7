"""The chapter on GPUs: who answers what."""

from __future__ import annotations

import tpsim
from tests.worked.answer import BOOK_MANY, COUNT, Answer
from tests.worked.readings import (
    PER_CHIP,
    B,
    D,
    I,
    Layer,
    M,
    N,
    V,
    equal,
    given,
    held,
    held_in_symbols,
    intensity,
    local,
    many,
    moved,
    nodes,
    per_second,
    ring,
    seconds,
    tensor_parallel,
)
from tpsim.algebra.mesh import Mesh
from tpsim.cost.turns import run
from tpsim.fabric.placement import place
from tpsim.machine.profile import load
from tpsim.program.schedules import pipeline_schedule


def on_a_node(dims, hw="book-h100"):
    return seconds("A[I_X,J] -> A[I,J]", "X=8", hw, dims)


def on_a_large_switch(**sizes):
    """The same without the factor (n-1)/n."""
    return many(Layer("book-h100", "X=8", "A[I_X,J] -> A[I,J]").moves(**sizes), "X")


def per_byte(kind, ranks):
    return moved("book-h100", nodes(ranks), kind, 1)


def pod_rate():
    """What all 1024 GPUs of a SuperPod gather per second."""
    return tpsim.collective("all-gather", hw="book-h100", ranks=1024, sizes=2**30, cost_model="book").rows[0][
        "algbw_bytes_per_s"
    ]


def between_nodes(hw="book-h100", inside=8):
    """The gather of a whole array between nodes, each GPU of a node with its part."""
    return Layer(hw, f"M=4,N={inside}", "A[I_NM] -> A[I_N]", dtype="int8")


def exchange_on_ring_against_switch():
    """An all-to-all as a share of a gather, on a closed ring over on a switch of 8."""
    ringed = moved("tpu-v5e", ring(16), "all_to_all", V) / moved("tpu-v5e", ring(16), "all_gather", V)
    everything = many(Layer("book-h100", "X=8", "A[I_X] -> A[I]", dtype="int8").moves(I=V), "X")
    return ringed / (moved("book-h100", nodes(8), "permute", V) / everything)


def two_nodes():
    """Data parallelism over two nodes, the gradient scattered inside each."""
    exprs = ("In[B_MN,D] . dOut[B_MN,F] -> dW[D_N,F]", "dOut[B_MN,F] . W[D,F] -> dIn[B_MN,D]")
    return Layer("book-h100", "M=2,N=8", *exprs)


def two_nodes_tokens():
    layer, ranks = two_nodes(), {"M": 2, "N": 8}
    tokens = M * N * PER_CHIP
    return equal(given(layer.math(B=tokens), **ranks), layer.moves("all_reduce", **ranks), "per_chip")


def node_limit():
    layer = tensor_parallel("book-h100", "Y=8")
    return equal(layer.math(F=28_672), many(layer.moves(F=28_672), "Y"), "Y")


def egress(hw, inside):
    """Bytes per second that leave a node, in a gather over many nodes."""
    return equal(many(between_nodes(hw, inside).moves(N=inside), "M"), 1, "I")


def outside(hw, inside):
    """FLOPs of a chip while its node sends one byte."""
    return intensity(hw, many(between_nodes(hw, inside).moves(N=inside, I=1), "M"))


def trained_bytes():
    """Weights in bf16 and two moments in f32 of 70e9 parameters over 8 GPUs."""
    return sum(held("W[P_Y]", "Y=8", "P=70000000000", dtype) for dtype in ("bf16", "f32", "f32"))


STAGED = ((6, 8), (2, 3), (8, 64))
"""Stages and microbatches; the first are the book's example."""


def on_the_way(stages, parts):
    """Messages one after the other until the last microbatch has gone through: half of what goes there and back."""
    return run(pipeline_schedule("gpipe", stages, 1, parts), lambda _: 0, lambda _: 1).end / 2


def between_stages():
    """Seconds of sends of one pass through stages that lie on nodes of their own, nothing else counted."""
    hop = place(load("book-h100").levels, Mesh({"stages": 2, "inside": 8})).hop(["stages"], 0, 1)
    sizes = [held_in_symbols("A[B,D]", {"B": B / m, "D": D}) for _, m in STAGED]
    message = [moved("book-h100", hop, "permute", 2 * size) for size in sizes]  # V is what both have
    return [on_the_way(*one) * seconds for one, seconds in zip(STAGED, message, strict=True)]


def staged():
    """Products of eight stages on a node each, and the gradients between copies of them."""
    exprs = ("In[L_P,B_M,D] . dOut[L_P,B_M,F_N] -> dW[L_P,D,F_N]", "dOut[L_P,B_M,F_N] . W[L_P,D,F_N] -> dIn[L_P,B_M,D]")
    return Layer("book-h100", "M=4,P=8,N=8", *exprs)


def staged_tokens():
    layer, ranks = staged(), {"P": 8, "N": 8}
    sums = many(layer.moves("all_reduce", over="M", **ranks), "M")
    return equal(layer.math(B=M * 64 * PER_CHIP, **ranks), sums, "per_chip")


def staged_egress():
    """Bytes per second that leave the eight nodes of a copy."""
    gather = Layer("book-h100", "M=4,P=8,N=8", "A[I_NPM] -> A[I_NP]", dtype="int8").moves(P=8, N=8)
    return equal(many(gather, "M"), 1, "I")


RATES = {
    "node": lambda: per_second("book-h100", "N=8", "A[I_N] -> A[I]"),
    "leaf": lambda: per_second("book-h100", "L=32,N=8", "A[I_NL] -> A[I_N]"),
    "spine": lambda: per_second("book-h100", "S=4,L=32,N=8", "A[I_NLS] -> A[I_NL]"),
    "two nodes": lambda: per_second("book-h100", "L=2,N=8", "A[I_NL] -> A[I_N]"),
}


def slower_level():
    rates = {level: RATES[level]() for level in ("node", "two nodes")}
    return min(rates, key=lambda level: rates[level])


ANSWERS = {
    "GP-06": {
        "t_exact": Answer(lambda: on_a_node("I=4096,J=65536")),
        "t_approx": Answer(lambda: on_a_large_switch(I=4096, J=65_536), BOOK_MANY),
    },
    "GP-08": {
        "approx": Answer(lambda: on_a_large_switch(I=1024, J=16_384), BOOK_MANY),
        "exact": Answer(lambda: on_a_node("I=1024,J=16384")),
    },
    "GP-09": {
        "dense": Answer(lambda: moved("book-h100", nodes(8), "all_to_all", 2**27)),
        # the approximation lets each GPU send its own part away too: that is a permute
        "dense_approx": Answer(lambda: moved("book-h100", nodes(8), "permute", 2**27)),
        "vs_torus": Answer(exchange_on_ring_against_switch, BOOK_MANY),
    },
    "GP-11": {
        "node": Answer(RATES["node"]),
        "leaf": Answer(RATES["leaf"]),
        "spine": Answer(RATES["spine"]),
        "overall": Answer(pod_rate),
    },
    "GP-12": {
        "t2_over_V": Answer(lambda: per_byte("all_to_all", 16)),
        "t1_over_V": Answer(lambda: per_byte("all_to_all", 8)),
        "degradation_approx": Answer(lambda: per_byte("permute", 16) / per_byte("permute", 8)),
        "degradation_exact": Answer(lambda: per_byte("all_to_all", 16) / per_byte("all_to_all", 8)),
    },
    "GP-14": {"t_top": Answer(lambda: between_nodes().moves(N=8), formula=I * (M - 1) / (M * 400e9))},
    "GP-18": {
        "node_bw": Answer(RATES["node"]),
        "leaf_bw": Answer(RATES["two nodes"]),
        "bottleneck": Answer(slower_level, says="node"),
    },
    "GP-21": {"B": Answer(two_nodes_tokens)},
    "GP-24": {
        "T_total": Answer(between_stages, formula=[2 * B * D / (50e9 * m) * (m + p - 2) for p, m in STAGED]),
        "factor_example": Answer(lambda: on_the_way(*STAGED[0]) / STAGED[0][1], COUNT),
    },
    "GP-27": {
        "bw_pp8": Answer(staged_egress, BOOK_MANY),
        "roofline_pp8": Answer(staged_tokens, BOOK_MANY),
        "Y_limit": Answer(node_limit, BOOK_MANY),
        "mem_tp8": Answer(trained_bytes, COUNT),
        "per_gpu": Answer(lambda: local("x[B_X]", "B", 4_000_000, X=4096), COUNT),
    },
    "GP-29": {
        "egress": Answer(lambda: egress("book-gb200-nvl72", 72), BOOK_MANY),
        "alpha_out": Answer(lambda: outside("book-gb200-nvl72", 72), BOOK_MANY),
        "gain": Answer(lambda: outside("book-h100", 8) / outside("book-gb200-nvl72", 72), BOOK_MANY),
    },
}
