"""The chapters on inference and profiling: who answers what."""

from __future__ import annotations

import math

import sympy

import tpsim
from tests.worked.answer import COUNT, Answer
from tests.worked.readings import (
    W_V5P,
    B,
    D,
    F,
    Layer,
    N,
    X,
    Y,
    equal,
    equal_as_a_formula,
    given,
    held,
    held_in_symbols,
    intensity,
    loaded,
    moved,
    ring,
    seconds,
    shard,
    tensor_limit,
    tensor_parallel,
)
from tpsim.machine.profile import load


def activations_on_v5e():
    """The activations' gather over a closed axis, tokens B."""
    return Layer("book-tpu-v5e-ring", "Y=16", "In[B,D_Y] -> In[B,D]", placement="Y=ici.0")


def sent_by_attention(kind):
    """Axes and dims of the calls of attention in a step of decoding: heads over Y, the cache's batch over Z."""
    split = {"g": "heads", "r": "copies", "f": ["heads", "copies"], "v": ["heads", "copies"]}
    scenario = {
        "tpsim": "scenario/1",
        "model": "llama-3-8b",
        "hardware": "book-tpu-v5e-ring",
        "mesh": {"heads": 4, "copies": 2},
        "shardings": {"*": split, "cache": {"b": "copies", "r": []}},
        "practice": "xla",
        "workload": {"kind": "decode", "batch": 8, "context": 64},
    }
    calls = [row.call for row in tpsim.plan(scenario).rows if row.block == "attention" and row.collective == kind]
    return [(call.axis, ",".join(call.parts[0].output.dims)) for call in calls]


def served_limit():
    """The tensor-parallel limit on two closed axes of v5e."""
    return tensor_limit(tensor_parallel("book-tpu-v5e-ring", "Y=256", placement="Y=ici.0+ici.1"), F=28_672)


def weights_against_activations():
    """Where reading a matrix's shard takes as long as gathering the activations."""
    shard_bytes = held_in_symbols("W[D,F_Y]", {"D": D, "F": 16_384}, Y=Y)
    return equal(loaded("tpu-v5e", shard_bytes), activations_on_v5e().moves(B=32), "Y")


TWO_D = ("In[B,D_XY] . Win[D_X,F_Y] -> T[B,F_Y]", "T[B,F_Y] . Wout[F_Y,D_X] -> Out[B,D_XY]")
ONE_D = ("In[B,D_X] . Win[D,F_X] -> T[B,F_X]", "T[B,F_X] . Wout[F_X,D] -> Out[B,D_X]")


def two_dimensional():
    """Weights that stay, split over X by one dim and over Y (two axes) by the other."""
    return Layer("tpu-v5p", "X=4,Y=16", *TWO_D, placement="X=ici.0,Y=ici.1+ici.2")


def best_x():
    layer, sizes = two_dimensional(), {"Y": N / X, "F": 4 * D}
    return equal_as_a_formula(layer.moves(over="Y", **sizes), layer.moves("all_reduce", **sizes), "X")


def best_two_dimensional():
    return two_dimensional().moves(X=best_x(), Y=N / best_x(), F=4 * D)


def one_dimensional():
    return Layer("tpu-v5p", "X=64", *ONE_D, placement="X=ici.0+ici.1+ici.2").moves(F=4 * D)


def in_gathers_of_one_byte():
    """The best 2D time at N = 1, in gathers of B*D bytes."""
    return given(best_two_dimensional(), N=1) / moved("tpu-v5p", ring(4), "all_gather", B * D)


EXPERTS = 211_658_735_616


def memory_bytes():
    """The book counts with all memory of a chip, of which a compiler leaves less, in larger units."""
    return load("book-tpu-v5e-ring").chip.memory.capacity.value


def smallest_slice():
    """Chips of the smallest slice that is sold whose memory holds the parameters."""
    sold = sorted(math.prod(shape) for shape in load("tpu-v5e").levels[0].slices.shapes)
    return next(n for n in sold if held("W[P_Y]", f"Y={n}", f"P={EXPERTS}", "int8") <= memory_bytes())


def traced_scatter():
    sizes = "b=32,s=1024,h=8192"
    return shard("G[b_X,s,h]{U_Y} -> G[b_X,s,h_Y]", "X=4,Y=2", hw="book-tpu-v2", dims=sizes).steps[0]


ANSWERS = {
    "IN-07": {"Y_true_beta_v5e": Answer(weights_against_activations)},
    "IN-08": {
        "alpha": Answer(lambda: intensity("tpu-v5e", moved("tpu-v5e", ring(16), "all_gather", 1))),
    },
    "IN-13": {
        "t_load": Answer(lambda: loaded("tpu-v5e", held("W[P_ZY]", "Z=16,Y=8", f"P={EXPERTS}", "int8"))),
        "min_chips_exact": Answer(
            lambda: equal(held_in_symbols("W[P_Y]", {"P": EXPERTS}, "int8", Y=Y), memory_bytes(), "Y"),
            COUNT,
        ),
        "min_slice_chips": Answer(smallest_slice, COUNT),
        "free_hbm": Answer(
            lambda: memory_bytes() - held("W[P_ZY]", "Z=16,Y=8", f"P={EXPERTS}", "int8"),
            COUNT,
        ),
    },
    "IN-14": {
        "T_2D": Answer(lambda: two_dimensional().moves(), formula=2 * B * D / (X * W_V5P) + 4 * B * F / (Y * W_V5P)),
        "X_opt": Answer(best_x, formula=sympy.sqrt(N / 8)),
        "const": Answer(in_gathers_of_one_byte),
        "N_crit": Answer(lambda: equal(best_two_dimensional(), one_dimensional(), "N")),
    },
    "IN-17": {
        "alltoalls": Answer(lambda: len(sent_by_attention("all_to_all")), COUNT),
        "final": Answer(lambda: sent_by_attention("all_reduce"), COUNT, says=[("heads,copies", "b,s,h")]),
    },
    "AI-03": {
        "t_4x2": Answer(lambda: loaded("tpu-v5e", held("W[P_XY]", "X=4,Y=2", "P=112000000000", "int8"))),
        "t_4x4": Answer(lambda: loaded("tpu-v5e", held("W[P_XY]", "X=4,Y=4", "P=112000000000", "int8"))),
        "Y_ici": Answer(served_limit),
    },
    "AI-08": {
        # bytes alone, as in the book: 16 hops of 1 us would take longer
        "t_ici": Answer(lambda: activations_on_v5e().moves(B=64, D=8192)),
        "t_hbm": Answer(lambda: loaded("tpu-v5e", held("W[D,F_Y]", "Y=32", "D=8192,F=28672"))),
        "t_math": Answer(
            lambda: seconds("In[B,D] . W[D,F_Y] -> H[B,F_Y]", "Y=32", "tpu-v5e", "B=64,D=8192,F=28672", "matmul")
        ),
        "Y_flops_2axes": Answer(served_limit),
    },
    "PR-01": {
        "shard_bytes": Answer(lambda: traced_scatter()["logical_bytes"], COUNT),
        "t": Answer(lambda: traced_scatter()["time_s"]),
    },
}
