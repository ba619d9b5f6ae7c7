"""The chapters on training: who answers what."""

from __future__ import annotations

import math
from functools import cache

import sympy

import tpsim
from tests.worked.answer import BOOK_MANY, COUNT, Answer
from tests.worked.readings import (
    ALPHA_V5P,
    C_V5P,
    CUBE,
    PER_CHIP,
    W_V5P,
    B,
    D,
    F,
    Layer,
    N,
    X,
    Y,
    Z,
    equal,
    equal_as_a_formula,
    given,
    held,
    intensity,
    local,
    many,
    moved,
    ring,
    symbol,
    tensor_limit,
    tensor_parallel,
)
from tpsim.answers.plan_step import TrainingRun
from tpsim.machine import chip_seconds
from tpsim.machine.profile import load
from tpsim.question.question import Workload


def data_parallel(axes="X", hw="tpu-v5p", mesh=CUBE, placement=None):
    """Backward of one matrix with tokens split over `axes`: its gradient is summed, its input's is not."""
    return Layer(
        hw,
        mesh,
        f"In[B_{axes},D] . dOut[B_{axes},F] -> dW[D,F]",
        f"dOut[B_{axes},F] . W[D,F] -> dIn[B_{axes},D]",
        placement=placement,
    )


def block_backward():
    """Backward of both matrices of an MLP."""
    exprs = (
        "In[B_X,D] . dH[B_X,F] -> dWin[D,F]",
        "dH[B_X,F] . Win[D,F] -> dIn[B_X,D]",
        "H[B_X,F] . dOut[B_X,D] -> dWout[F,D]",
        "dOut[B_X,D] . Wout[F,D] -> dH[B_X,F]",
    )
    return Layer("tpu-v5p", CUBE, *exprs)


def three_axes():
    """Data parallelism on all three axes of a slice, as one mesh axis."""
    return data_parallel(mesh="X=64", placement="X=ici.0+ici.1+ici.2")


def mixed():
    """FSDP over two axes and tensor parallelism over one."""
    exprs = ("In[B_X,D_Y] . Win[D_X,F_Y] -> H[B_X,F_Y]", "H[B_X,F_Y] . Wout[F_Y,D_X] -> Out[B_X,D_Y]")
    return Layer("tpu-v5p", "X=16,Y=4", *exprs, placement="X=ici.0+ici.1,Y=ici.2")


def best_fsdp(**sizes):
    """The FSDP degree at which both kinds of moves take equally long on N chips."""
    layer, rest = mixed(), {"Y": N / X}
    found = equal_as_a_formula(layer.moves(over="X", **rest), layer.moves(over="Y", **rest), "X")
    return given(found, **sizes)


def quickest(chips, **sizes):
    """(X, Y), powers of two, as many chips as they make of these, at which the moves take least."""
    moves, whole = given(mixed().moves(), D=1, **sizes), 2 ** int(math.log2(chips))
    layouts = [(2**power, whole // 2**power) for power in range(int(math.log2(whole)) + 1)]
    return min(layouts, key=lambda one: given(moves, X=one[0], Y=one[1]))


def mixed_bound(unknown="B", **sizes):
    """Where compute takes as long as the moves of the best mix."""
    layer, chips = mixed(), {"X": best_fsdp(), "Y": N / best_fsdp()}
    return equal(given(layer.math(**chips), **sizes), given(layer.moves(over="X", **chips), **sizes), unknown)


def mixed_ratio():
    layer, chips = mixed(), {"X": best_fsdp(), "Y": N / best_fsdp()}
    return layer.math(**chips) / layer.moves(over="X", **chips)


def slices():
    """Data parallelism between slices over the data-centre network, FSDP within."""
    exprs = ("In[B_ZX,D] . dOut[B_ZX,F] -> dW[D_X,F]", "dOut[B_ZX,F] . W[D,F] -> dIn[B_ZX,D]")
    return Layer("tpu-v5p", "Z=4,X=64", *exprs, placement="Z=dcn,X=ici")


def slice_tokens():
    layer, per_slice = slices(), {"B": Z * symbol("tokens")}
    return equal(layer.math(**per_slice), many(layer.moves("all_reduce"), "Z"), "tokens")


def four_pods_compute_bound():
    """True if compute outlasts both the moves inside the pods and those between them."""
    tokens = 4_194_304
    inside, chips = mixed(), {"B": tokens, "F": 28_672, "X": best_fsdp(B=tokens, F=28_672, N=35_840), "D": 8192}
    chips["Y"] = given(N / X, N=35_840, X=chips["X"])
    between, sizes = slices(), {"B": tokens, "F": 28_672, "D": 8192, "X": 8960}
    inner = inside.math(**chips) >= inside.moves(over="X", **chips)
    outer = between.math(Z=4, **sizes) >= many(between.moves("all_reduce", **sizes), "Z")
    return bool(inner) and bool(outer)


def sequences(tokens, seq):
    """How many sequences a batch of tokens holds: at most so many ways to split it without splitting a sequence."""
    return equal(Workload(global_batch=symbol("batch"), seq=seq).tokens, tokens, "batch")


def days(flops, chips, share):
    """Of a run of so many FLOPs on v5p at a share of its peak: one step of all of them."""
    step_s = chip_seconds.compute_s(load("tpu-v5p"), flops / chips, "bf16", share)
    return TrainingRun(step_s, chips, 1, 1, None).days


def outputs_13b():
    """Bytes of what every matrix of an MLP makes of 3e6 tokens, of 40 layers."""
    return 40 * (2 * held("H[B,F]", "X=1", "B=3000000,F=13824") + held("Out[B,D]", "X=1", "B=3000000,D=5120"))


@cache
def data_parallel_13b():
    book = "hardware={extends: tpu-v5p, chip: {memory: {capacity: 96 GB}}}"
    return tpsim.plan(model="llama-2-13b", hw="tpu-v5p", dp=4096, batch=4096, seq=2048, overrides=[book])


def fsdp_compute_bound():
    layer, sizes = three_axes(), {"B": 3_000_000, "X": 4096, "D": 5120, "F": 13_824}
    return bool(layer.math(**sizes) >= layer.moves(**sizes))


ANSWERS = {
    "TR-02": {
        "alpha": Answer(lambda: equal(data_parallel().math(B=X * PER_CHIP), data_parallel().moves(), "per_chip")),
        "axes3": Answer(lambda: equal(three_axes().math(B=X * PER_CHIP), three_axes().moves(), "per_chip")),
        "pod_tokens": Answer(lambda: equal(three_axes().math(X=8960), three_axes().moves(), "B")),
    },
    "TR-03": {
        "T_math": Answer(lambda: block_backward().math(), formula=8 * B * D * F / (X * C_V5P)),
        "T_comms": Answer(lambda: block_backward().moves(), formula=8 * D * F / W_V5P),
    },
    "TR-05": {
        "chips": Answer(lambda: equal(three_axes().math(B=16e6), three_axes().moves(), "X")),
        "days": Answer(lambda: days(6.3e24, 16e6 / 850, 0.5), COUNT),
    },
    "TR-06": {
        "Y_llama": Answer(lambda: tensor_limit(tensor_parallel(), F=30_000)),
        "Y_gemma": Answer(lambda: tensor_limit(tensor_parallel(), F=50_000)),
        "F_for_8": Answer(lambda: tensor_limit(tensor_parallel(), "F", Y=8)),
    },
    "TR-08": {
        "alpha_int8": Answer(lambda: intensity("tpu-v5p", moved("tpu-v5p", ring(4), "all_gather", 1), "int8")),
        "limit_changes": Answer(
            lambda: tensor_limit(tensor_parallel(dtype="int8"), F=30_000) != tensor_limit(tensor_parallel(), F=30_000)
        ),
    },
    "TR-09": {
        "X_opt": Answer(lambda: best_fsdp(B=48_000, F=32_768, N=64)),
        "X_rounded": Answer(lambda: quickest(64, B=48_000, F=32_768)[0], COUNT),
        "Y_rounded": Answer(lambda: quickest(64, B=48_000, F=32_768)[1], COUNT),
    },
    "TR-11": {"B": Answer(lambda: mixed_bound(F=32_768, N=4096))},
    "TR-12": {
        "T_FSDP": Answer(lambda: mixed().moves(over="X"), formula=4 * D * F / (Y * W_V5P * 2)),
        "T_TP": Answer(lambda: mixed().moves(over="Y"), formula=4 * B * D / (X * W_V5P)),
        "ratio": Answer(mixed_ratio, formula=sympy.sqrt(B * F * 2 / N) / ALPHA_V5P),
    },
    "TR-14": {"B_slice": Answer(slice_tokens, BOOK_MANY)},
    "TR-15": {
        "chips_fsdp3": Answer(lambda: equal(three_axes().math(B=2e6), three_axes().moves(), "X")),
        "bound_mixed": Answer(lambda: mixed_bound("per_chip", B=N * PER_CHIP, F=30_000)),
        "chips_mixed": Answer(lambda: mixed_bound("N", B=2_000_000, F=30_000)),
        "per_chip_2pods": Answer(lambda: local("x[B_PX]", "B", 2_000_000, P=2, X=8960), COUNT),
    },
    "TR-18": {
        "sequences": Answer(lambda: sequences(3 * 2**20, 32_768), COUNT),
        "min_batch_fsdp": Answer(lambda: equal(three_axes().math(X=4096), three_axes().moves(), "B")),
        "dp_fits": Answer(lambda: data_parallel_13b().memory.states_fit, COUNT),
        "fsdp_compute_bound": Answer(fsdp_compute_bound),
        "hbm_total": Answer(lambda: data_parallel_13b().chips * data_parallel_13b().memory.capacity_bytes, COUNT),
        "acts": Answer(outputs_13b, COUNT),
    },
    "AT-05": {"max_dp": Answer(lambda: sequences(4_194_304, 4096), COUNT)},
    "AT-07": {
        "bound": Answer(lambda: mixed_bound("per_chip", B=N * PER_CHIP, F=28_672)),
        "X_opt": Answer(lambda: best_fsdp(B=4_190_000, F=28_672, N=8960)),
        "X_choice": Answer(lambda: quickest(8960, B=4_190_000, F=28_672)[0], COUNT),
        "Y_choice": Answer(lambda: quickest(8960, B=4_190_000, F=28_672)[1], COUNT),
    },
    "AT-08": {
        "per_chip": Answer(lambda: local("x[B_PX]", "B", 4_194_304, P=4, X=8960), COUNT),
        "ici_bound": Answer(lambda: mixed_bound("per_chip", B=N * PER_CHIP, F=28_672)),
        "per_pod": Answer(lambda: local("x[B_P]", "B", 4_194_304, P=4), COUNT),
        "dcn_bound": Answer(slice_tokens, BOOK_MANY),
        "compute_bound": Answer(four_pods_compute_bound, BOOK_MANY),
        "days": Answer(lambda: days(6.3e24, 35_840, 0.4), COUNT),
    },
}
