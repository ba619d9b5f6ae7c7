"""The chapters on rooflines, sharded arrays and transformers: who answers what."""

from __future__ import annotations

import sympy

from tests.worked.answer import ADDITIVE, COUNT, LINKS, Answer
from tests.worked.readings import (
    CUBE,
    ONE_LINK,
    B,
    D,
    F,
    K,
    Layer,
    M,
    V,
    X,
    Y,
    Z,
    equal,
    held,
    intensity,
    loaded,
    moved,
    ring,
    seconds,
    shard,
    symbol,
)
from tpsim.machine import forms
from tpsim.machine.profile import load
from tpsim.machine.timing import time
from tpsim.quantity.size import over

SPLIT = ("tpu-v5e", "X=2", "A[B,D_X] . W[D_X,F] -> Z[B,F]")
SMALL = "B=1024,D=4096"
SQUARE = "I=4096,J=4096,K=4096"
FFN = "B=128,D=8192,F=32768"
IN, OUT = "In[B,D_XY] . Win[D,F_XY] -> H[B,F_XY]", "H[B,F_XY] . Wout[F_XY,D] -> Out[B,D_XY]"


def done(expr, mesh=CUBE, **options):
    """What a plan does, in order."""
    return [step["op"] for step in shard(expr, mesh, **options).steps]


def gathered_on_v5e(field, hw="tpu-v5e"):
    return shard("A[E_Y,F] -> A[E,F]", "X=8,Y=4", hw=hw, dims="E=2048,F=8192").steps[0][field]


def weights_against_outputs(strategy):
    exprs = {"gather": "A[B,D] . W[D_X,F] -> Z[B,F]", "reduce": "A[B,D_X] . W[D_X,F] -> Z[B,F]"}
    return Layer("tpu-v5p", CUBE, exprs[strategy])


def replicated_product():
    """Seconds of each way to a replicated product over 64 chips."""
    ways = {
        "I": "A[I_XYZ,J] . B[J,K] -> C[I,K]",
        "K": "A[I,J] . B[J,K_XYZ] -> C[I,K]",
        "J": "A[I,J_XYZ] . B[J_XYZ,K] -> C[I,K]",
        "none": "A[I,J] . B[J,K] -> C[I,K]",
    }
    return {way: shard(expr, hw="tpu-v4", dims=SQUARE).total_time_s for way, expr in ways.items()}


def four_cases(expr):
    """The case, what is inserted, and the result's type."""
    result = shard(expr, "X=4,Y=2")
    return result.cases, [f"{s['op']} {''.join(s['axes'])}".strip() for s in result.steps], result.steps[-1]["output"]


def exchange_against_gather(n):
    return forms.ring_all_to_all(V, n).link_total / forms.ring_gather(V, n).link_total


def exchanges():
    """Seconds of an all-to-all for even n, for odd n, and for even n with the antipodal chunk one way."""
    whole = sympy.Symbol("k", integer=True, positive=True)
    ways = ((2 * whole, "shortest"), (2 * whole + 1, "shortest"), (2 * whole, "shortest-unsplit"))
    machine = load("tpu-v5e")
    return [time(machine, ring(n), "all_to_all", V, launch=0, algorithm=way).bandwidth_s for n, way in ways]


def exchange_formulas():
    whole = sympy.Symbol("k", integer=True, positive=True)
    n, W = 2 * whole, 90e9
    return [V / (4 * W), V * ((n + 1) ** 2 - 1) / (4 * (n + 1) ** 2 * W), V * (sympy.Rational(1, 4) + 1 / (2 * n)) / W]


def latency_bound_buffer():
    """A buffer whose hop takes as long as its bytes; an array of two buffers on two chips."""
    hop = time(load("tpu-v5e"), ONE_LINK, "permute", 2 * symbol("buffer"), cost_model="book")
    return equal(hop.latency_s, hop.bandwidth_s, "buffer")


def waste():
    result = shard("A[B_X,D_Y] . W[D_Y,F]", "X=4,Y=8,Z=4", dims="B=32,D=32,F=32")
    return over(result.way.flops_per_device * result.mesh.devices, 2 * 32**3)


def quiz_array():
    return shard("A[I_XY,J]", "X=2,Y=8,Z=2", dims="I=128,J=2048", dtype="int8").arrays[0]


def fastest(ways):
    return {way for way, taken in ways.items() if taken <= min(ways.values())}


def gather_against_scatter():
    """Bytes that a gather of A injects over those that a reduce-scatter of the result does."""
    ways = (shard(expr, "X=4") for expr in ("A[N,M_X] . B[M,K] -> C[N,K]", "A[N,M_X] . B[M_X,K] -> C[N,K_X]"))
    gather, scatter = (way.way.rows[0].call.wire_bytes(way.pricing.sizes.symbols) for way in ways)
    return gather / scatter


def book_exchange_against_gather():
    return moved("tpu-v5e", ring(16), "all_to_all", V) / moved("tpu-v5e", ring(16), "all_gather", V)


def owed_then_settled():
    (case,) = shard("A[I,J_X] . B[J_X,K]", "X=4").cases
    left = shard("A[I,J_X] . B[J_X,K]", "X=4").steps[-1]["output"]
    return case, left, *(done(f"A[I,J_X] . B[J_X,K] -> C[I,K{end}]", "X=4")[-1] for end in ("", "_X"))


def either_operand():
    """What is gathered, as the wanted result has it."""
    ways = [shard(f"A[I_X,J] . B[J,K_X] -> C[{out}]", "X=4") for out in ("I,K_X", "I_X,K")]
    return ways[0].cases, [way.steps[0]["output"] for way in ways]


def one_operand_is_enough():
    """The case, the steps that gather both operands, and whether a way is offered that gathers only one."""
    result = shard("A[I,J_X] . B[J_Y,K] -> C[I,K]", "X=4,Y=2")
    ways = [[step["op"] for step in way["steps"]] for way in result.alternatives]
    return result.cases, [step["op"] for step in result.steps], any(way.count("all_gather") == 1 for way in ways)


def half_sharded():
    """FLOPs of one device."""
    (product,) = shard("A[B_X,D_Y] . W[D_Y,F]", "X=4,Y=8,Z=4").formulas
    return sympy.sympify(product.flops_per_device, locals={one.name: one for one in (B, D, F, X, Y)})


ANSWERS = {
    "RL-05": {
        "D_crit": Answer(lambda: equal(Layer(*SPLIT).math(X=2), Layer(*SPLIT).moves(X=2), "D")),
        "C_over_W": Answer(lambda: intensity("tpu-v5e", moved("tpu-v5e", ONE_LINK, "permute", 2))),
    },
    "SH-01": {
        "per_device": Answer(lambda: quiz_array()["local_bytes"], COUNT),
        "total": Answer(lambda: quiz_array()["total_bytes"], COUNT),
    },
    "SH-02": {
        "t_if_ring": Answer(lambda: gathered_on_v5e("time_s", "book-tpu-v5e-ring")),
        "t_no_wrap": Answer(lambda: gathered_on_v5e("time_s")),
        "latency_floor": Answer(lambda: gathered_on_v5e("latency_s")),
    },
    "SH-04": {"bytes": Answer(latency_bound_buffer)},
    "SH-05": {"per_device_at_plateau": Answer(lambda: held("A[I_X]", "X=16", "I=10000000", "int8"), COUNT)},
    "SH-07": {"ratio": Answer(lambda: shard("A[I_X,J,K]", "X=4,Y=8,Z=2").arrays[0]["replication"], COUNT)},
    "SH-08": {"t": Answer(lambda: seconds("A[B_X,D_Y] -> A[B,D_Y]", CUBE, "tpu-v4", SMALL))},
    "SH-10": {"t": Answer(lambda: seconds("A[B_X,D_Y]{U_Z} -> A[B_X,D_Y]", CUBE, "tpu-v4", SMALL))},
    "SH-11": {
        "t1": Answer(
            lambda: (
                seconds("A[B_X,D_Y] -> A[B_XZ,D_Y]", CUBE, "tpu-v4", SMALL)
                + seconds("A[B_XZ,D_Y] -> A[B,D_Y]", CUBE, "tpu-v4", SMALL)
            )
        ),
        "t2": Answer(lambda: seconds("A[B_XYZ,D] -> A[B,D]", CUBE, "tpu-v4", SMALL)),
    },
    "SH-13": {
        "alpha": Answer(lambda: intensity("tpu-v5p", moved("tpu-v5p", ring(4), "all_gather", 1))),
        "B_threshold_s1": Answer(
            lambda: equal(weights_against_outputs("gather").math(), weights_against_outputs("gather").moves(), "B")
        ),
        "D_threshold_large_B": Answer(
            lambda: equal(weights_against_outputs("gather").math(), weights_against_outputs("reduce").moves(), "D")
        ),
    },
    "SH-14": {
        "best": Answer(lambda: fastest(replicated_product()), says={"I", "K"}),
        "ag_comm": Answer(lambda: seconds("A[I_XYZ,J] . B[J,K] -> C[I,K]", CUBE, "tpu-v4", SQUARE)),
        "ar_comm": Answer(lambda: seconds("A[I,J_XYZ] . B[J_XYZ,K] -> C[I,K]", CUBE, "tpu-v4", SQUARE)),
        "math_sharded": Answer(lambda: seconds("A[I_XYZ,J] . B[J,K] -> C[I,K]", CUBE, "tpu-v4", SQUARE, "matmul")),
        "math_replicated": Answer(lambda: seconds("A[I,J] . B[J,K] -> C[I,K]", CUBE, "tpu-v4", SQUARE, "matmul")),
    },
    "SH-16": {
        "matrix_bytes": Answer(lambda: held("Win[D,F]", "X=2,Y=2", "D=8192,F=32768"), COUNT),
        "act_bytes": Answer(lambda: held("In[B,D]", "X=2,Y=2", "B=128,D=8192"), COUNT),
        "choice": Answer(
            lambda: [*done(IN, "X=2,Y=2"), *done(OUT, "X=2,Y=2")],
            says=["all_gather", "matmul", "matmul", "reduce_scatter"],
        ),
        "weights_per_chip": Answer(
            lambda: (
                held("Win[D,F_XY]", "X=2,Y=2", "D=8192,F=32768") + held("Wout[F_XY,D]", "X=2,Y=2", "D=8192,F=32768")
            ),
            COUNT,
        ),
        "math": Answer(
            lambda: seconds(IN, "X=2,Y=2", "tpu-v5e", FFN, "matmul") + seconds(OUT, "X=2,Y=2", "tpu-v5e", FFN, "matmul")
        ),
        "hbm_weight_load": Answer(
            lambda: (
                loaded("tpu-v5e", held("Win[D,F_XY]", "X=2,Y=2", "D=8192,F=32768"))
                + loaded("tpu-v5e", held("Wout[F_XY,D]", "X=2,Y=2", "D=8192,F=32768"))
            )
        ),
        # V/2W on two closed axes of any size: a ring of 2 would need two cables, so 4 stand for it
        "comm_total_ring_formula": Answer(
            lambda: seconds(IN, "X=4,Y=4", "book-tpu-v5e-ring", FFN) + seconds(OUT, "X=4,Y=4", "book-tpu-v5e-ring", FFN)
        ),
    },
    "SH-17": {"ratio": Answer(gather_against_scatter, COUNT, formula=M / K)},
    "SH-19": {
        "scalars": Answer(lambda: forms.one_way_all_to_all(1024 * 1024, 8).link_total, LINKS),
        "ratio": Answer(
            lambda: forms.one_way_all_to_all(V, 8).link_total / forms.one_way_gather(V, 8).link_total, LINKS
        ),
    },
    "SH-20": {
        "ratio_limit": Answer(book_exchange_against_gather),
        "ratio_N4": Answer(lambda: exchange_against_gather(4), LINKS),
        "ratio_N16": Answer(lambda: exchange_against_gather(16), LINKS),
        "a2a_time": Answer(exchanges, ADDITIVE, formula=exchange_formulas()),
    },
    "SH-22": {
        "A_local": Answer(lambda: shard("A[I_X,J_Y]", "X=2,Y=2", dims="I=8,J=2048").arrays[0]["local_shape"], COUNT),
        "B_local": Answer(lambda: shard("B[J,K_Y]", "X=2,Y=2", dims="J=2048,K=8192").arrays[0]["local_shape"], COUNT),
    },
    "SH-23": {
        "a": Answer(lambda: four_cases("A[I_X,J] . B[J,K_Y]"), COUNT, says=((1,), ["matmul"], "C[I_X, K_Y]")),
        "b": Answer(lambda: four_cases("A[I,J_X] . B[J,K]"), COUNT, says=((2,), ["all_gather X", "matmul"], "C[I, K]")),
        "c": Answer(owed_then_settled, COUNT, says=(3, "C[I, K]{U_X}", "all_reduce", "reduce_scatter")),
        "d": Answer(either_operand, COUNT, says=((4,), ["A[I, J]", "B[J, K]"])),
        "e": Answer(one_operand_is_enough, COUNT, says=((2,), ["all_gather", "all_gather", "matmul"], True)),
    },
    "SH-24": {
        "AG_Y_gives_I_X": Answer(lambda: done("A[I_XY] -> A[I_X]", "X=2,Y=2") == ["all_gather"], COUNT),
        "AG_X_gives_I_Y": Answer(lambda: done("A[I_XY] -> A[I_Y]", "X=2,Y=2") == ["all_gather"], COUNT),
    },
    "TF-02": {
        "total": Answer(lambda: half_sharded() * X * Y * Z, COUNT, formula=2 * B * D * F * Z),
        "per_device": Answer(half_sharded, COUNT, formula=2 * B * D * F / (X * Y)),
        "waste_factor": Answer(waste, COUNT),
    },
    "TF-12": {"relative_to_allgather": Answer(book_exchange_against_gather)},
}
