"""What `verify` and links cannot tell, because plan and run would be wrong alike: stated here from outside of both.

Each is a fact of the literature, a count of the devices' blocks, or the same answer got by another way.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations, product
from math import prod
from pathlib import Path

import numpy as np

import tpsim
from study import Study
from tests.arrays import every_move
from tests.machines import TORUS
from tests.models import GPT as GPT_SMALL
from tests.models import LLAMA as LLAMA_SMALL
from tests.reference.judge import difference
from tests.reference.site import machine
from tests.reference.test_permutes import SITES, every_change_is_as_claimed
from tests.reference.test_program_properties import alone, attempted, normal
from tests.reference.test_properties import cost, prices
from tests.reference.test_random_layouts import run
from tpsim.algebra.contract import Contraction, local_product
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.reshard import Routes, book_path
from tpsim.algebra.sharding import Sharding, ShardingError
from tpsim.answers.plan import priced
from tpsim.claims.shrink import shrink
from tpsim.claims.trial import trial
from tpsim.cost.kernels import kernels
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Segment
from tpsim.machine import permutes, profile, timing
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.layout import Layout
from tpsim.program.op import Einsum, Leaf
from tpsim.program.practice import Practice
from tpsim.question.scenario import resolve
from tpsim.reference.execute import execute

GPT, LLAMA = "gpt3-175b-a100-tp8", "llama3-70b-h100"

# Volumes that the literature states -------------------------------------------------------------------------------

LAYERS = {("false", "ideal"): 4, ("true", "ideal"): 4, ("true", "megatron"): 5}
"""All-reduces per layer and step (Shoeybi et al. 2019), gathers and scatters counted half; with sequence parallelism
as many, and two gathers more where inputs are not kept (Korthikanti et al. 2022)."""


def a_layer_sends_what_its_paper_says():
    for (split, practice), calls in LAYERS.items():
        overrides = [f"layout.sequence_parallel={split}", f"practice={practice}"]
        found = tpsim.plan(GPT, overrides=overrides).per_layer["total"].formula
        assert found == f"{4 * calls}*b*h*s*(t - 1)/t", (split, practice, found)


ZERO = {
    (0, "ideal"): {"all_reduce": 8},
    (1, "ideal"): {"reduce_scatter": 4, "all_gather": 2},
    (2, "ideal"): {"reduce_scatter": 8, "all_gather": 2},
    (3, "ideal"): {"reduce_scatter": 8, "all_gather": 4},
    (3, "fsdp2"): {"reduce_scatter": 8, "all_gather": 8},
}
"""Bytes per parameter and step of two microbatches, gradients of 4 bytes and weights of 2 (Rajbhandari et al. 2020): a
stage that shards gradients scatters them in each microbatch, one that shards weights gathers them in each, and again
for backward where they are dropped. Weights that are stored in 4 are gathered in 2 (PyTorch, MixedPrecisionPolicy)."""
STORED = {(3, "fsdp2"): ("bf16", "f32")}


def a_zero_stage_sends_what_its_paper_says():
    asked = [(of, stored, volume) for of, volume in ZERO.items() for stored in STORED.get(of, ("bf16",))]
    for (stage, practice), stored, volume in asked:
        switches = [f"layout.zero={stage}", f"practice.base={practice}", f"workload.param_dtype={stored}"]
        switches += ["practice.reshard_after_forward=true"] * (practice == "fsdp2")  # both ends, too, as in the paper
        plan = tpsim.plan("gpt2-xl-a100-dp", overrides=switches)
        (n,) = plan.question.mesh.axes.values()
        found = {kind: total.wire_bytes_per_device for kind, total in plan.totals["by_collective"].items()}
        for kind, per_parameter in volume.items():
            whole = per_parameter * parameters() * (n - 1) / n
            assert abs(found.get(kind, 0) - whole) < 0.01 * whole, (stage, practice, kind)


@cache
def parameters():
    """Elements of all parameters, two bytes each where nothing is sharded."""
    return tpsim.plan("gpt2-xl-a100-dp", overrides=["layout.zero=0"]).memory.parameters_bytes // 2


def an_activation_travels_alone():
    for row in tpsim.plan(LLAMA).rows:
        assert row.call.op != "activation" or len(row.call.parts) == 1, row.call.array


def a_dtype_has_the_bits_of_its_name():
    for name in ("f64", "f32", "bf16", "f16", "fp8", "int8", "int32"):
        assert 8 * DTYPE_BYTES[name] == int("".join(filter(str.isdigit, name))), name


# Ways that the book states -----------------------------------------------------------------------------------------

BOOK = {
    "A[I_X, J] . B[J, K_Y] -> C[I_X, K_Y]": [],
    "A[I, J_X] . B[J, K] -> C[I, K]": ["all_gather"],
    "A[I, J_X] . B[J_X, K] -> C[I, K]": ["all_reduce"],
    "A[I, J_X] . B[J_X, K] -> C[I, K_X]": ["reduce_scatter"],
    "A[I_X, J] . B[J, K_X] -> C[I_X, K]": ["all_gather"],
}
"""The four cases of chapter 3 of How to Scale Your Model, and what the book moves in each."""


def the_book_moves_what_its_chapter_says():
    for text, kinds in BOOK.items():
        plans = tpsim.shard(text, "X=4,Y=2").plans
        (way,) = (plan for plan in plans if plan.planner == "book")
        assert [move.kind for move in way.moves if move.kind != "slice"] == kinds, text


def a_sum_that_a_dim_takes_up_is_never_paid_in_full():
    for before, after in product(types(owed=("X",)), types()):
        if before.dims == after.dims and "X" in after.sharded_axes and before.owed_axes:
            assert not [move for move in book_path(before, after, ("X", "Y")) if move.kind == "all_reduce"], before


def types(owed=()):
    """Every type of a matrix on two axes; those that owe a sum over `owed` too."""
    places = [(*one,) for size in range(3) for one in permutations("XY", size)]
    found = []
    for on in product(places, repeat=2):
        if not set(on[0]) & set(on[1]):
            found.append(Sharding(("I", "J"), on))
            found += [found[-1].owing({(axis, "sum")}) for axis in owed if axis not in (*on[0], *on[1])]
    return found


def no_detour_is_cheaper_than_the_cheapest_way():
    mesh = Mesh({"X": 2, "Y": 3})
    for call in (0, 30):
        price = prices(mesh, {"I": 12, "J": 6}, call).move
        routes = Routes(mesh.order, price)
        for before, after in product(types(owed=("X",)), types()):
            least = cost(routes, before, after, price)
            for move in every_move(before, mesh.order):
                assert least <= price(move) + cost(routes, move.after, after, price), (before, after, move)


# Values ------------------------------------------------------------------------------------------------------------


def a_layout_without_a_name_equals_one_device():
    """A hidden dim that blocks split twice: what its products owe passes through functions on the way back.

    Heads that split queries alone: what keys and values owe meets queries that owe nothing where they are fused.
    """
    fused = Practice(qkv="fused")
    for model, table in ((GPT_SMALL, {"block": {"h": ("X", "Y")}}), (LLAMA_SMALL, {"heads": {"r": ("X",)}})):
        sharded = run(model, Layout(table={"*": {}} | table), fused, MESH, 1)
        assert difference(sharded, run(model, Layout(table={"*": {}}), fused, Mesh({}), 1)) < 1e-10


# Blocks that do not meet --------------------------------------------------------------------------------------------

MESH = Mesh({"X": 2, "Y": 2})
CROSSED = (Sharding(("i",), (("X", "Y"),)), Sharding(("i",), (("Y", "X"),)))


def operands_split_in_another_order_do_not_meet():
    found = attempted("function of two", MESH, CROSSED)
    if not isinstance(found, str):
        sizes = dict.fromkeys(["i", "x.parts", "y.parts"], 4)
        many, one = (execute(found, mesh, sizes, normal).value(found.results["z"]) for mesh in (MESH, alone(MESH)))
        assert np.allclose(many, one), "devices multiply blocks of different places"


def operands_split_over_different_axes_do_not_meet():
    left, right = Sharding(("I", "J"), ((), ("X",))), Sharding(("J", "K"), (("Y",), ()))
    try:
        type_ = local_product(Contraction(("A", left), ("B", right), "C", ("I", "K")))
    except ShardingError:
        return
    raise AssertionError(f"blocks of different places are multiplied to {type_}")


# What devices hold and multiply ---------------------------------------------------------------------------------------


@cache
def held(scenario):
    """The run of a scenario at the size of a test; what a chip holds there is not worked out but seen."""
    question = resolve(scenario)
    return trial(shrink(question), priced(question)).sharded


def replanned(scenario):
    """The plan of that run, priced anew."""
    return priced(shrink(resolve(scenario)))


def a_chip_multiplies_what_its_blocks_say():
    run, plan = held(LLAMA), replanned(LLAMA)
    assert plan.compute.flops == sum(multiplications(run, op) for op in run.program.ops if counts(op))


def counts(op):
    """A product of two real matrices, each with rows of its own."""
    if not isinstance(op, Einsum) or len(op.inputs) == 1 or any(array.role == "index" for array in op.inputs):
        return False
    left, right = (set(array.dims) for array in op.inputs)
    return bool(left - right and right - left and (left | right) - set(op.output.dims))


def multiplications(run, op):
    """Additions and multiplications of the first device in one product, from the shapes of its blocks."""
    sizes = {}
    for array in op.inputs:
        sizes |= dict(zip(array.dims, first(run, array).shape, strict=True))
    return 2 * prod(sizes.values())


def first(run, array):
    return next(iter(run.blocks[array].values()))


def a_chip_holds_what_its_blocks_say():
    run, plan = held(LLAMA), replanned(LLAMA)
    for role, claimed in (("param", plan.memory.parameters_bytes), ("state", plan.memory.optimizer_bytes)):
        leaves = [op.output for op in run.program.ops if isinstance(op, Leaf) and op.output.role == role]
        assert claimed == sum(first(run, leaf).size * DTYPE_BYTES[leaf.dtype] for leaf in leaves), role


def attention_keeps_its_scores_on_the_chip():
    """A kernel moves blocks that its device holds; attention queries, keys and values only (Dao et al. 2022)."""
    run, plan = held(LLAMA), replanned(LLAMA)
    for one in kernels(run.program):
        moved = (*one.reads, *one.writes)
        assert not [x for x in moved if {"s", "t"} <= set(x.dims)], one.ops[0].output
        counted = sum(first(run, x).size * DTYPE_BYTES[x.dtype] for x in moved)
        assert one.memory_bytes(plan.sizes) == counted, one.ops[0].output


# Seconds ----------------------------------------------------------------------------------------------------------


def one_device_pays_nothing():
    """Neither a launch nor a step, on any wires."""
    for name, level, axis, topology in (
        ("dgx-h100", "nvlink", "nvlink", "switch"),
        ("tpu-v5e", "ici", "ici.0", "ring"),
    ):
        for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"):
            alone_there = (Segment(level, axis, topology, 1),)
            assert timing.time(profile.load(name), alone_there, kind, 1024).time_s == 0, (name, kind)


def seconds_are_steps_by_hops_and_bytes_by_bandwidth():
    """A closed ring of four with links of 45 GB/s and hops of 1 us: two steps, three eighths of the array per link."""
    V, ring = 2**26, (Segment("ici", "ici.0", "ring", 4),)
    found = timing.time(machine(TORUS), ring, "all_gather", V)
    assert abs(found.latency_s - 2e-6) < 1e-12, found.latency_s
    assert abs(found.bandwidth_s - V * 3 / 8 / 45e9) < 1e-12, found.bandwidth_s


def a_change_of_axes_loads_real_links_as_claimed():
    """Blocks of arrays whose axes change places travel over two closed rings, a line, and nodes of a network."""
    for known in (permutes.crossed, permutes.leg):
        known.cache_clear()
    try:
        for name in ("two rings", "line", "nodes by both axes"):
            every_change_is_as_claimed(*SITES[name])
    finally:
        for known in (permutes.crossed, permutes.leg):
            known.cache_clear()


CURVES = Path(__file__).parents[1] / "data" / "with_curves.yaml"
"""An all-gather over 8 ranks of a node: 4 KiB, 1 MiB and 256 MiB, with what they took."""


def a_measured_curve_says_what_was_measured_and_nothing_else():
    """The ratios of the file at its knots, never less for more bytes between them; elsewhere what constants say."""
    known, plain = profile.load(CURVES), profile.load("dgx-h100")
    node, half = ((Segment("nvlink", "nvlink", "switch", n),) for n in (8, 4))

    def both(V, route=node, **forced):
        return [timing.time(one, route, "all_gather", V, **forced).time_s for one in (known, plain)]

    for V, ratio in ((2**12, 16.904 / 16.856), (2**20, 19.425 / 21.32), (2**28, 677.19 / 709.99)):
        now, was = both(V)
        assert abs(now / was - ratio) < 1e-9, f"knot {V}"
    for forced in ({"route": half}, {"algorithm": "ring"}, {"protocol": "simple"}, {"launch": "graph"}):
        now, was = both(2**20, **forced)
        assert now == was, f"elsewhere {forced}"
    times = [both(2 ** (half_octave / 2))[0] for half_octave in range(20, 64)]
    assert times == sorted(times), "more bytes take less"


WRAPS = {("tpu-v5e", 16): "ring", ("tpu-v5e", 8): "line", ("tpu-v4", 4): "ring", ("tpu-v4", 2): "line"}
"""A v5e closes only whole axes of 16; a v4 closes axes of whole cubes of 4 (Google Cloud TPU documentation)."""


def machines_close_what_their_makers_say():
    for (name, n), topology in WRAPS.items():
        sizes = {"X": n} if name == "tpu-v5e" else {"X": n, "Y": n, "Z": n}
        placement = place(
            profile.load(name).levels, Mesh(sizes), {axis: (f"ici.{at}",) for at, axis in enumerate(sizes)}
        )
        (segment,) = placement.route(["X"])
        assert segment.topology == topology, (name, n)


def what_is_made_last_waits_for_all_compute():
    """Backward ends with the gradient of the embedding: its sum runs beside nothing, whoever may run beside compute."""
    plan = tpsim.plan("gpt2-xl-a100-dp", overrides=["practice=ideal", "layout.zero=0"])
    (last,) = (row for row in plan.rows if row.array == "grad.E")
    assert abs(last.exposed_s - last.busy_s) < 1e-9 * last.busy_s, last.hidden_s


# A grid of layouts ------------------------------------------------------------------------------------------------


def a_grid_prices_a_layout_as_a_plan_does():
    for data, tensor, zero, split in ((32, 8, 1, True), (4, 4, 3, True), (1, 4, 0, False)):
        plan = tpsim.plan(
            {
                "tpsim": "scenario/1",
                "model": "llama-3-70b",
                "hardware": "dgx-h100",
                "mesh": {"data": data, "tensor": tensor},
                "layout": {"tp": ["tensor"], "dp": ["data"], "zero": zero, "sequence_parallel": split},
                "practice": "megatron",
                "workload": {"kind": "train", "global_batch": 256, "seq": 4096, "microbatches": 2, "dtype": "bf16"},
            }
        )
        asked = plan.question
        study = Study(
            model=asked.model,
            machine=asked.machine,
            practice=asked.practice,
            dtypes=asked.dtypes,
            seq=asked.workload.seq,
            microbatches=asked.workload.microbatches,
        )
        found = study.traced(zero=zero, sequence_parallel=split)
        grid = study.priced(found, tp=tensor, dp=data, batch=256)
        assert grid.static_bytes == plan.memory.static_bytes
        assert grid.wire_bytes == plan.totals["by_step"]["step"].wire_bytes_per_device
        for seconds in ("time_s", "compute_s", "communication_s", "exposed_s"):
            mine, yours = float(getattr(grid, seconds)), getattr(plan.step, seconds)
            assert abs(mine - yours) <= 1e-12 * yours, (seconds, data, tensor)


LAWS = [
    a_layer_sends_what_its_paper_says,
    a_zero_stage_sends_what_its_paper_says,
    an_activation_travels_alone,
    a_dtype_has_the_bits_of_its_name,
    the_book_moves_what_its_chapter_says,
    a_sum_that_a_dim_takes_up_is_never_paid_in_full,
    no_detour_is_cheaper_than_the_cheapest_way,
    operands_split_in_another_order_do_not_meet,
    operands_split_over_different_axes_do_not_meet,
    a_chip_multiplies_what_its_blocks_say,
    a_chip_holds_what_its_blocks_say,
    attention_keeps_its_scores_on_the_chip,
    one_device_pays_nothing,
    seconds_are_steps_by_hops_and_bytes_by_bandwidth,
    what_is_made_last_waits_for_all_compute,
    a_change_of_axes_loads_real_links_as_claimed,
    a_measured_curve_says_what_was_measured_and_nothing_else,
    a_layout_without_a_name_equals_one_device,
    machines_close_what_their_makers_say,
    a_grid_prices_a_layout_as_a_plan_does,
]
