"""The claims of five study notes on sharding and tensor parallelism, held against tpsim, one test each by its number.

tests/data/seed_claims.json lists every claim with its verdict: right, simplified or wrong. A right one is reproduced; a
simplified one is reproduced where it holds, beside its exact value; a wrong one of substance must NOT hold. A test
belongs to the claims whose numbers stand in its name: ``test_claim_001_2_...``. Claims 000-1 to 000-13, 000-26, 000-29,
000-30, 000-33 and 000-34 are tested in tests/algebra/test_seed_000.py.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sympy

import tpsim
from tests.algebra.simulated import Devices
from tests.arrays import parse_array
from tests.linear import DIMS, b, h, injected, linear, moves, n, payload, s, values
from tests.models import GPT, LLAMA, loops
from tests.program.test_collectives import collectives
from tests.reference.judge import difference, run, unsharded
from tests.reference.wires import on_rings
from tests.worked import gpus
from tpsim.algebra.legality import OwedError, owed_after
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import Move, wire
from tpsim.algebra.notation import NotationError
from tpsim.cost.memory import memory
from tpsim.cost.sizes import Sizes
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Segment
from tpsim.machine import forms, profile, timing, torus_forms
from tpsim.program.dtypes import DTYPE_BYTES, Dtypes
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.op import Einsum, Map
from tpsim.program.practice import Practice
from tpsim.quantity.errors import InputError
from tpsim.reference.blocks import Grid

DATA = Path(__file__).parent / "data"
TESTED_ELSEWHERE = (Path(__file__).parent / "algebra" / "test_seed_000.py",)
CLAIMS = {"000": 35, "001": 21, "002": 21, "003": 14, "004": 32}
"""Claims per note."""
NOTE = re.compile(r"(\d{3})((?:_\d{1,2}(?!\d))+)")
"""A note's number and the numbers of its claims, in a test's name."""
V = sympy.Symbol("V", positive=True)
TP = layout(tp=("X",))
SP = layout(tp=("X",), sequence_parallel=True)
LAYER = {"layer": 0, "names": ("attention", "mlp", "d.")}
"""The activations of one layer."""


# --- every claim once -------------------------------------------------------------------------------------------------


def claims():
    return json.loads((DATA / "seed_claims.json").read_text())["claims"]


def test_every_claim_is_tested_or_says_why_not():
    text = "".join(path.read_text() for path in (Path(__file__), *TESTED_ELSEWHERE))
    named = re.findall(r"^def test_claims?_((?:\d+_)+)", text, re.MULTILINE)
    tested = {
        f"{note}-{number}"
        for name in named
        for note, numbers in NOTE.findall(name)
        for number in numbers.split("_")[1:]
    }
    listed = [claim["id"] for claim in claims()]
    assert len(listed) == len(set(listed)) == sum(CLAIMS.values())
    assert Counter(claim[:3] for claim in listed) == CLAIMS
    assert tested == {claim["id"] for claim in claims() if "not_testable" not in claim}
    assert all(len(claim["not_testable"]) > 20 for claim in claims() if "not_testable" in claim)


def test_wrong_claims_of_substance_have_negative_tests():
    wrong = {claim["id"] for claim in claims() if claim["verdict"] == "W"}
    slips = {"003-6", "003-11", "003-12", "003-14"}
    assert {claim["id"] for claim in claims() if claim["verdict"] == "W" and "not_testable" in claim} == slips
    assert len(wrong) == 18


# --- small readings ---------------------------------------------------------------------------------------------------


def derive(model=GPT, where=TP, practice=None, **more):
    return lower(model, where, practice or Practice(), Dtypes(), ("D", "X", "Y"), **more)


def layer_moves(where=TP, practice=None, model=GPT):
    program = derive(model, where, practice)
    return [
        [move for move in moves(program, phase, **LAYER) if "slice" not in move] for phase in ("forward", "backward")
    ]


def layer_injected(where=TP, practice=None, model=GPT):
    program = derive(model, where, practice)
    return sympy.simplify(sum(injected(program, phase, **LAYER) for phase in ("forward", "backward")))


def steps(expr, mesh="X=4", **options):
    return tpsim.shard(expr, mesh=mesh, **options).steps


def ops(expr, mesh="X=4", **options):
    return [step["op"] for step in steps(expr, mesh, planner="book", **options)]


def sent(expr, mesh="X=4", **options):
    return sum(step["wire_bytes_per_device"] for step in steps(expr, mesh, planner="book", **options))


def ring(n, level="ici", topology="ring"):
    return (Segment(level, f"{level}.0", topology, n),)


def seconds(kind, size, ranks, hw="tpu-v5e", topology="ring", **options):
    return timing.time(profile.load(hw), ring(ranks, topology=topology), kind, size, **options)


# --- note 000: arrays, collectives, rings ----------------------------------------------------------------------------


def test_claim_000_14_a_one_way_ring_gathers_in_n_minus_1_rounds_of_one_shard():
    traffic = forms.one_way_gather(1600, 16)
    assert (traffic.steps, traffic.link_total) == (15, 15 * 100)


def test_claim_000_15_a_two_way_ring_takes_the_whole_part_of_half_of_n_rounds():
    assert [forms.ring_gather(V, ranks).steps for ranks in (4, 5, 8, 9)] == [2, 2, 4, 4]
    assert forms.ring_gather(V, 9).steps != 5  # rounded up, as the note has it
    assert forms.ring_gather(1600, 16).wire == 1500


def test_claim_000_16_a_gather_takes_array_over_both_directions_and_twice_that_without_wraparound():
    size = 360_000_000
    book = seconds("all_gather", size, 16, cost_model="book")
    assert book.bandwidth_s == pytest.approx(size / 90e9)
    assert seconds("all_gather", size, 16).bandwidth_s == pytest.approx(size * 15 / 16 / 90e9)
    line = seconds("all_gather", size, 8, topology="line", cost_model="book")
    assert line.bandwidth_s == pytest.approx(size * 7 / 8 / 45e9)


def test_claim_000_17_time_is_alike_for_4_8_and_32_devices_only_in_the_limit():
    size = 90_000_000_000
    assert [seconds("all_gather", size, ranks, cost_model="book").bandwidth_s for ranks in (4, 8, 32)] == [1, 1, 1]
    exact = [seconds("all_gather", size, ranks).bandwidth_s for ranks in (4, 8, 32)]
    assert exact == pytest.approx([0.75, 0.875, 0.96875])


def test_claim_000_18_bandwidth_bound_collectives_depend_on_bytes_and_an_all_reduce_takes_two_gathers():
    size = 90_000_000_000
    times = {
        kind: seconds(kind, size, 8, cost_model="book").time_s
        for kind in ("all_gather", "reduce_scatter", "all_reduce")
    }
    assert times == {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
    small = seconds("all_gather", 8, 8, cost_model="book")
    assert small.time_s == small.latency_s > small.bandwidth_s


def test_claim_000_19_a_hop_of_1_us_is_worth_45_kb():
    hop = seconds("permute", V, 2, topology="line", cost_model="book")
    array = gpus.equal(hop.latency_s, hop.bandwidth_s, "V")
    assert float(forms.permute(array, 2).link_total) == pytest.approx(45_000)


def test_claim_000_20_only_the_axis_of_16_of_an_8_by_16_slice_is_a_ring():
    placed = place(profile.load("tpu-v5e").levels, Mesh({"X": 8, "Y": 16}))
    assert [placed.route([axis])[0].topology for axis in "XY"] == ["line", "ring"]


def test_claim_000_23_ten_megabytes_over_16_are_not_500_kilobytes():
    (array,) = tpsim.shard("A[I_X]", mesh="X=16", dims="I=10000000", dtype="int8").arrays
    assert array["local_bytes"] == 625_000


def test_claim_000_24_a_gather_over_16_is_latency_bound_below_768_kb_not_below_500_kb_per_device():
    gather = seconds("all_gather", V, 16, launch=0)
    crossover = gpus.equal(gather.latency_s, gather.bandwidth_s, "V")
    assert float(crossover) == pytest.approx(768_000)
    at_ten = seconds("all_gather", 10_000_000, 16)
    assert at_ten.bandwidth_s / at_ten.time_s == pytest.approx(0.952, abs=1e-3)


def test_claim_000_25_an_all_reduce_moves_two_gathers_not_n_minus_1_whole_arrays():
    assert wire("all_reduce", V, 8) == 2 * wire("all_gather", V, 8) == V * Fraction(14, 8)
    assert forms.switch_one_shot(V, 8).carried == 7 * V


def test_claim_000_27_a_reduce_scatter_leaves_each_device_its_columns_of_the_sum():
    owed, split = parse_array("C[I, K]{U_X}").type, parse_array("C[I, K_X]").type
    whole = np.arange(48).reshape(4, 12)
    devices = Devices(whole, owed, {"X": 4})
    devices.run(Move("reduce_scatter", ("X",), owed, split))
    assert [block.tolist() for block in devices.blocks] == [whole[:, at : at + 3].tolist() for at in (0, 3, 6, 9)]


def test_claim_000_28_a_reduce_scatter_takes_as_long_as_an_all_gather():
    assert seconds("reduce_scatter", 10**8, 16).time_s == seconds("all_gather", 10**8, 16).time_s


@pytest.mark.parametrize("ranks", range(2, 65))
def test_claim_000_31_an_all_to_all_is_a_quarter_of_a_gather_only_where_the_table_says_so(ranks):
    even = ranks % 2 == 0
    gather, ideal = forms.ring_gather(V, ranks).link_total, V / 2
    exchange = forms.ring_all_to_all(V, ranks).link_total
    odd_share = Fraction(ranks**2 - 1, 4 * ranks**2)
    assert exchange / ideal == (Fraction(1, 4) if even else odd_share)
    assert exchange / gather == (Fraction(ranks, 4 * (ranks - 1)) if even else Fraction(ranks + 1, 4 * ranks))
    if even:
        unsplit = forms.ring_all_to_all_unsplit(V, ranks).link_total
        assert unsplit / ideal == Fraction(1, 4) + Fraction(1, 2 * ranks)
    one_way = forms.one_way_all_to_all(V, ranks).link_total
    assert one_way / forms.one_way_gather(V, ranks).link_total == Fraction(1, 2)
    line, line_gather = forms.line_all_to_all(V, ranks).link_total, forms.line_gather(V, ranks).link_total
    assert (line, line_gather) == (2 * exchange, 2 * gather)
    switch = forms.switch_direct_all_to_all(V, ranks).link_total
    assert switch / forms.switch_direct_gather(V, ranks).link_total == Fraction(1, ranks)


@pytest.mark.parametrize("sides", [(4, 4), (4, 8), (2, 8, 4), (16, 16)])
def test_claim_000_31_on_a_torus_the_longest_axis_counts(sides):
    axes = [torus_forms.TorusAxis(side, closed=side > 2) for side in sides]
    chips = sympy.prod(sides)
    assert torus_forms.torus_all_to_all(V, axes).link_total / (V / 2) == sympy.Rational(max(sides), 4 * chips)


def test_claim_000_31_the_quarter_reads_as_n_quarters_when_the_buffer_of_one_rank_is_quoted():
    rows = {
        kind: tpsim.collective(kind, hw="tpu-v5e", ranks=16, level="ici.0", sizes="16MB", cost_model="book").rows[0]
        for kind in ("all_to_all", "all_gather")
    }
    exchange, gather = rows["all_to_all"], rows["all_gather"]
    assert exchange["bandwidth_s"] / gather["bandwidth_s"] == pytest.approx(1 / 4)
    assert (exchange["buffer_bytes"] * 16, gather["buffer_bytes"]) == (
        exchange["logical_bytes"],
        gather["logical_bytes"],
    )


def test_claim_000_32_a_reduce_scatter_is_the_transpose_of_a_gather_and_undoes_it_n_times_over():
    split, whole, owed = (parse_array(text).type for text in ("A[I_X]", "A[I]", "A[I]{U_X}"))
    grid, array = Grid(Mesh({"X": 4})), np.arange(8.0)
    gathered = on_rings({"X": 4}, Move("all_gather", ("X",), split, whole), grid.placed(array, split, {"I": 8}))
    scattered = on_rings({"X": 4}, Move("reduce_scatter", ("X",), owed, split), gathered)
    assert np.array_equal(grid.assemble(scattered, split, {"I": 8})[0], 4 * array)
    forward, backward = layer_moves(SP)
    assert sum("all_gather" in move for move in forward) == sum("reduce_scatter" in move for move in backward) == 2


# --- note 001: tensor parallelism -------------------------------------------------------------------------------------


def test_claim_001_1_a_linear_layer_takes_b_s_h_and_h_f_to_b_s_f():
    result = tpsim.shard("X[b,s,h] . W[h,f] -> Y[b,s,f]", mesh="X=1", dims="b=2,s=4,h=8,f=16")
    assert [array["local_shape"] for array in result.arrays] == [[2, 4, 8], [8, 16], [2, 4, 16]]


@pytest.mark.parametrize("split", ["columns", "rows"])
def test_claims_001_2_5_002_9_10_a_weight_gradient_is_computed_alone_and_right(split):
    program, whole = linear(split), values(linear("none"))
    assert not [move for move in moves(program, "backward") if "W" in move]
    assert program.results["d.W"].type.sharded_axes == ("X",)
    assert np.allclose(values(program)["d.W"], whole["d.W"])
    assert not np.allclose(4 * values(program)["d.W"], whole["d.W"])  # summing it over the tensor group corrupts it


def test_claims_001_3_4_003_10_004_3_4_a_row_split_slices_then_reduces_and_gathers_backward():
    program = linear("rows")
    assert moves(program, "forward") == ["slice x", "all_reduce y"]
    assert moves(program, "backward") == ["all_gather d.x"]
    assert injected(program, "backward") == b * s * h * (n - 1) / n
    assert np.allclose(values(program)["d.x"], values(linear("none"))["d.x"])


def test_claims_001_6_003_7_8_9_004_1_a_column_split_gathers_then_slices_and_reduces_backward():
    program = linear("columns")
    assert moves(program, "forward") == ["all_gather y"]  # f forward moves nothing: x is there already
    assert moves(program, "backward") == ["slice d.y", "all_reduce d.x"]
    assert sympy.simplify(injected(program, "backward") - 2 * b * s * h * (n - 1) / n) == 0
    assert np.allclose(values(program)["d.x"], values(linear("none"))["d.x"])


def test_claims_001_7_10_004_6_an_mlp_by_columns_then_rows_has_one_all_reduce_each_way_and_is_right():
    program = derive()
    assert moves(program, "forward", layer=0, names=("mlp",)) == ["all_reduce mlp.out"]
    assert moves(program, "backward", layer=0, names=("d.mlp",)) == ["all_reduce d.mlp.in"]
    mesh = Mesh({"X": 4})
    assert difference(run(GPT, TP, Practice(), mesh), unsharded(GPT, Practice())) < 1e-10


def test_claim_001_8_nothing_is_copied_to_the_devices_inside_a_tensor_parallel_region():
    assert ops("X[b,s,h] . W[h,f_X] -> Z[b,s,f_X]") == ["matmul"]


def test_claim_001_9_a_row_split_first_matrix_would_need_an_all_reduce_before_gelu():
    owed = steps("X[b,s,h_X] . W[h_X,f]", planner="book")[-1]["output"]
    with pytest.raises(OwedError, match="a nonlinear function of a sum is not the sum of the functions"):
        owed_after("nonlinear", [("Z", parse_array(owed).type)])


def test_claims_001_11_004_7_29_an_mlp_costs_four_times_bsh_elements_as_n_grows():
    program = derive()
    both = sum(injected(program, phase, layer=0, names=("mlp", "d.mlp")) for phase in ("forward", "backward"))
    assert sympy.limit(both, n, sympy.oo) == 4 * b * s * h
    assert [sympy.simplify(both.subs(n, ranks) / (b * s * h)) for ranks in (2, 4, 8)] == [2, 3, Fraction(7, 2)]


def test_claims_001_12_13_002_14_attention_splits_queries_keys_and_values_by_heads_and_its_output_by_rows():
    program = derive(LLAMA)
    types = {op.output.name: str(op.output.type) for op in program.ops}
    assert (types["Wq"], types["Wk"], types["Wo"]) == ("[h, g_X, r, d]", "[h, g_X, d]", "[h, g_X, r, d]")
    (array,) = tpsim.shard("Q[s,b,g_X,d]", mesh="X=4", dims="s=1024,b=4,g=32,d=128").arrays
    assert array["local_shape"] == [1024, 4, 8, 128]
    assert array["local_bytes"] == 1024 * 4 * 1024 * 2


def test_claim_001_14_scores_are_scaled_by_the_square_root_of_the_head_dim():
    scores = next(op for op in derive().ops if op.output.name == "attention.masked")
    assert [scale.powers for scale in scores.scales] == [(("d", -0.5),), ()]


def test_claims_001_15_16_004_11_12_attention_sends_one_all_reduce_after_its_output_product_and_none_inside():
    program = derive()
    assert moves(program, "forward", layer=0, names=("attention",)) == ["all_reduce attention.out"]
    assert moves(program, "backward", layer=0, names=("d.attention",)) == ["all_reduce d.attention.in"]
    reduce = steps("O[b,s,g_X,d] . W[g_X,d,h] -> Y[b,s,h]", dims="b=4,s=1024,g=32,d=128,h=4096", planner="book")[-1]
    assert (reduce["op"], reduce["logical_bytes"], reduce["wire_bytes_per_device"]) == (
        "all_reduce",
        33_554_432,
        50_331_648,
    )
    assert reduce["output"] == "Y[b, s, h]"


def test_claims_001_17_19_004_16_a_vocabulary_split_embedding_sums_its_misses_forward_and_nothing_backward():
    program = derive()
    types = {op.output.name: str(op.output.type) for op in program.ops}
    assert (types["E"], types["P"]) == ("[h, v_X]", "[h, p]")
    assert moves(program, "forward", names=("embedding",)) == ["all_reduce embedding.out"]
    assert injected(program, "forward", names=("embedding",)) == 2 * b * s * h * (n - 1) / n
    assert moves(program, "backward", names=("d.embedding", "grad.E")) == []
    ids, grid = np.array([0, 212, 7, 9]), Grid(Mesh({"X": 2}))
    table, split = np.arange(1.0, 301.0)[:, None], parse_array("E[v_X, h]").type
    windows = [grid.window(device, split, {"v": 300, "h": 1})[0] for device in grid.devices]
    found = [np.where((ids >= w.start) & (ids < w.stop), table[ids, 0], 0) for w in windows]
    assert [(part != 0).tolist() for part in found] == [[True, False, True, True], [False, True, False, False]]
    assert np.array_equal(sum(found), table[ids, 0])


def test_claims_001_18_004_15_vocabulary_ranges_partition_the_ids_and_299_of_300_are_refused():
    grid, split = Grid(Mesh({"X": 2})), parse_array("E[v_X, h]").type
    windows = [grid.window(device, split, {"v": 300, "h": 1})[0] for device in grid.devices]
    assert [(w.start, w.stop) for w in windows] == [(0, 150), (150, 300)]
    with pytest.raises(NotationError, match="v = 299 of E does not split evenly over X = 2 devices"):
        tpsim.shard("E[v_X,h]", mesh="X=2", dims="v=299,h=4")


def test_claims_001_20_004_31_tensor_axes_go_inside_the_node_and_their_limit_does_not_depend_on_the_batch():
    placed = place(profile.load("dgx-h100").levels, Mesh({"data": 32, "tensor": 8}))
    assert [[segment.level for segment in placed.route([axis])] for axis in ("tensor", "data")] == [
        ["nvlink"],
        ["network"],
    ]
    layer = gpus.tensor_parallel("book-h100", "Y=8")
    assert {symbol.name for symbol in layer.math().free_symbols} == {"B", "D", "F", "Y"}
    assert gpus.equal(layer.math(Y=8), layer.moves(Y=8), "F") == pytest.approx(7 * 2200)
    inside = gpus.many(gpus.Layer("book-h100", "X=8", "A[I_X] -> A[I]", dtype="int8").moves(I=1), "X")
    assert float(gpus.intensity("book-h100", inside)) == pytest.approx(2200)
    assert float(gpus.outside("book-h100", 8)) == pytest.approx(2475)


def test_claim_001_21_tensor_parallel_volume_grows_with_tokens_and_data_parallel_volume_with_weights():
    assert sympy.limit(layer_injected(), n, sympy.oo) == 8 * b * s * h
    program = derive(where=layout(tp=("X",), dp=("D",)))
    weights = ("grad.Wq", "grad.Wk", "grad.Wv", "grad.Wo", "grad.W1", "grad.W2")
    found = sum(
        wire(move.kind, move.logical_elements({**DIMS, "g": h / 64, "r": 1, "d": 64}, {"D": n, "X": 8, "Y": 1}), n)
        for op in program.ops
        if op.output.name in weights and op.where.phase == "backward"
        for move in getattr(op, "moves", ())
    )
    assert sympy.simplify(found - 2 * (n - 1) / n * 12 * h**2 / 8) == 0


# --- note 002: column and row splits ----------------------------------------------------------------------------------


def test_claims_002_1_2_seventy_billion_half_precision_weights_are_140_gb_and_do_not_fit_80():
    (array,) = tpsim.shard("W[P]", mesh="X=1", dims="P=70000000000", dtype="f16").arrays
    assert array["local_bytes"] == 140_000_000_000 > profile.load("dgx-h100").chip.memory.capacity.value == 80e9


def test_claim_002_3_data_parallelism_keeps_a_whole_copy_unless_zero_shards_it():
    sizes = Sizes({**LLAMA.dims(sequences=8, seq=8)}, {"D": 4, "X": 1, "Y": 1}, loops(2))
    held = [memory(derive(LLAMA, layout(dp=("D",), zero=zero)), sizes) for zero in (0, 1, 2, 3)]
    whole = held[0]
    assert [part.optimizer_bytes * 4 == whole.optimizer_bytes for part in held] == [False, True, True, True]
    assert [part.gradients_bytes * 4 == whole.gradients_bytes for part in held] == [False, False, True, True]
    assert [part.parameters_bytes * 4 == whole.parameters_bytes for part in held] == [False, False, False, True]


def test_claims_002_4_5_003_2_a_column_split_alone_leaves_columns_and_gathers_them_if_all_are_wanted():
    size = {"dims": "b=8,m=16,n=32"}
    assert ops("X[b,m] . W[m,n_X] -> Y[b,n_X]", **size) == ["matmul"]
    assert ops("X[b,m] . W[m,n_X] -> Y[b,n]", **size) == ["matmul", "all_gather"]
    assert sent("X[b,m] . W[m,n_X] -> Y[b,n]", **size) == 8 * 32 * 2 * 3 // 4
    assert ops("X[b,m] . W[m_X,n] -> Y[b,n]") == ["all_gather", "matmul"]
    found = tpsim.shard("X[b,m] . W[m_X,n] -> Y[b,n]", dims="b=8,m=4096,n=32", mesh="X=4")
    assert [step["op"] for step in found.steps] == ["slice", "matmul", "all_reduce"]


def test_claim_002_6_row_split_and_all_reduce_is_dearer_than_column_split_and_gather():
    size = {"dims": "b=8,m=16,n=32"}
    by_rows, by_columns = sent("X[b,m_X] . W[m_X,n] -> Y[b,n]", **size), sent("X[b,m] . W[m,n_X] -> Y[b,n]", **size)
    assert by_rows == 2 * by_columns > by_columns


def test_claims_002_7_8_parts_of_a_row_split_multiply_parts_of_x_and_their_sum_is_not_x_times_the_sum():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 8)), rng.normal(size=(8, 5))
    parts = np.split(w, 2)
    with pytest.raises(ValueError, match="matmul"):
        x @ parts[0]
    square = rng.normal(size=(3, 4))
    assert not np.allclose(square @ (parts[0] + parts[1]), x @ w)
    assert np.allclose(sum(a @ c for a, c in zip(np.split(x, 2, axis=1), parts, strict=True)), x @ w)
    (_, reduce) = steps("X[b,m_X] . W[m_X,n] -> Y[b,n]", planner="book")
    assert reduce["op"] == "all_reduce"


def test_claims_002_11_12_13_a_column_layer_needs_all_of_x_and_owes_its_gradient_and_a_row_layer_the_reverse():
    columns, rows = linear("columns"), linear("rows")
    for program, type_ in ((columns, "[b, s, h]"), (rows, "[b, s, h_X]")):
        product = next(op for op in program.ops if isinstance(op, Einsum) and op.output.name == "y")
        assert str(product.inputs[0].type) == type_
    assert "all_reduce d.x" in moves(columns, "backward")
    assert "all_reduce d.x" not in moves(rows, "backward")
    assert (moves(columns, "forward")[-1], moves(rows, "forward")[-1]) == ("all_gather y", "all_reduce y")
    assert moves(derive(), "forward", layer=0, names=("mlp.up", "mlp.act")) == []


def test_claims_002_15_003_4_004_8_gathering_before_gelu_costs_three_times_the_pair():
    size = {"dims": "b=8,h=16,f=64"}
    gathered = sent("X[b,h] . A[h,f_X] -> Z[b,f]", **size) + sent("Z[b,f_X] . B[f_X,h] -> Y[b,h]", **size)
    pair = sent("X[b,h] . A[h,f_X] -> Z[b,f_X]", **size) + sent("Z[b,f_X] . B[f_X,h] -> Y[b,h]", **size)
    assert gathered == 3 * pair
    assert gathered - pair == 8 * 64 * 2 * 3 // 4
    assert ops("Z[b,f] -> Z[b,f_X]") == ["slice"]


def test_claim_002_16_both_shards_of_a_4096_by_16384_mlp_on_4_cards_are_square():
    shapes = [
        tpsim.shard(text, mesh="X=4", dims="h=4096,f=16384").arrays[0]["local_shape"]
        for text in ("A[h,f_X]", "B[f_X,h]")
    ]
    assert shapes == [[4096, 4096], [4096, 4096]]


def test_claim_002_17_activation_after_a_gather_is_repeated_on_every_device():
    whole, split = (tpsim.shard(text, mesh="X=4", dims="b=2,f=16384").arrays[0] for text in ("H[b,f]", "H[b,f_X]"))
    assert (whole["replication"], whole["local_bytes"]) == (4, 4 * split["local_bytes"])


def test_claims_002_18_004_30_sequence_parallelism_splits_norms_at_equal_volume():
    norms = {
        where.sequence_parallel: {
            str(op.output.type)
            for op in derive(where=where).ops
            if isinstance(op, Map) and op.output.name == "mlp.normed"
        }
        for where in (TP, SP)
    }
    assert norms == {False: {"[b, s, h]"}, True: {"[b, s_X, h]"}}
    assert sympy.simplify(layer_injected(SP) - layer_injected(TP)) == 0
    again = Practice(regather=True)
    assert sympy.simplify(layer_injected(SP, again) / layer_injected(TP)) == Fraction(5, 4)


# --- note 003: f and g ------------------------------------------------------------------------------------------------


def test_claim_003_1_blocks_multiply_as_the_two_splits_say():
    whole = values(linear("none"))["y"]
    assert np.allclose(values(linear("columns"))["y"], whole)
    assert np.allclose(values(linear("rows"))["y"], whole)


def test_claims_003_3_each_split_alone_communicates_once_forward_and_once_backward():
    for split in ("columns", "rows"):
        paid = [
            [move for move in moves(linear(split), phase) if "slice" not in move] for phase in ("forward", "backward")
        ]
        assert [len(found) for found in paid] == [1, 1]


def test_claims_003_5_004_10_the_fused_pair_copies_in_and_reduces_out_and_the_reverse_backward():
    forward, backward = layer_moves()
    assert forward == ["all_reduce attention.out", "all_reduce mlp.out"]
    assert backward == ["all_reduce d.mlp.in", "all_reduce d.attention.in"]


# --- note 004: volumes ------------------------------------------------------------------------------------------------


def test_claim_004_2_columns_are_gathered_only_if_a_later_op_wants_all():
    assert moves(derive(), "forward", layer=0, names=("mlp.up", "mlp.act")) == []
    assert moves(linear("columns"), "forward") == ["all_gather y"]


def test_claim_004_5_the_transpose_of_a_gather_is_a_reduce_scatter_of_an_owed_cotangent_and_a_slice_of_a_complete_one():
    assert moves(derive(where=SP), "backward", layer=0, names=("d.mlp.in",)) == ["reduce_scatter d.mlp.in"]
    program = linear("columns")
    assert moves(program, "backward")[0] == "slice d.y"
    split, owed = parse_array("y[k_X]").type, parse_array("y[k]{U_X}").type
    grid, complete = Grid(Mesh({"X": 2})), np.arange(4.0)
    everywhere = dict.fromkeys(grid.devices, complete)
    wrong = on_rings({"X": 2}, Move("reduce_scatter", ("X",), owed, split), everywhere)
    assert np.array_equal(grid.assemble(wrong, split, {"k": 4})[0], 2 * complete)


def test_claim_004_9_a_head_has_one_column_per_h_over_heads_not_half_of_that():
    queries = next(op.output.type for op in derive().ops if op.output.name == "Wq")
    sizes, axes = GPT.dims(sequences=2, seq=8), {"D": 1, "X": 2, "Y": 1}
    held = {dim: queries.local(dim, sizes, axes) for dim in "hgd"}
    assert held == {"h": GPT.hidden, "g": GPT.heads / 2, "d": GPT.head_dim}


def test_claim_004_13_heads_must_divide_by_the_devices():
    with pytest.raises(InputError, match="heads"):
        tpsim.plan(model="gpt2-xl", hw="dgx-h100", tp=8, batch=8, seq=1024)


def test_claims_004_14_attention_costs_four_times_bsh_elements_as_n_grows():
    program = derive()
    both = sum(
        injected(program, phase, layer=0, names=("attention", "d.attention")) for phase in ("forward", "backward")
    )
    assert sympy.simplify(both - 4 * b * s * h * (n - 1) / n) == 0


def test_claim_004_17_a_tied_table_takes_the_sum_of_both_gradients():
    tied = derive()
    assert [name for name in tied.results if name.startswith("grad.") and name[5:] in {"E", "O"}] == ["grad.E"]
    mesh = Mesh({"X": 4})
    assert difference(run(GPT, TP, Practice(), mesh), unsharded(GPT, Practice())) < 1e-10


def test_claims_004_19_20_gathered_logits_are_2_gb_and_cost_their_whole_size():
    program = derive(LLAMA, practice=Practice(cross_entropy="gathered"))
    found = injected(program, "forward", names=("logits", "loss"))
    assert sympy.simplify(found - b * s * DIMS["v"] * (n - 1) / n) == 0
    (before, after) = tpsim.shard("L[b,s,v_X] -> L[b,s,v]", mesh="X=8", dims="b=4,s=2048,v=128000", dtype="f16").arrays
    assert (before["local_bytes"], after["local_bytes"]) == (262_144_000, 2_097_152_000)


def test_claims_004_21_22_23_25_parallel_cross_entropy_sends_three_times_b_s_not_b_s_plus_n():
    program = derive(LLAMA)
    found = {"names": ("logits", "loss")}
    sent_ops = moves(program, "forward", **found)
    assert [move.split()[0] for move in sent_ops] == ["all_reduce"] * 3
    exact = payload(program, "forward", **found)
    assert exact == 3 * b * s
    numbers = {b: 4, s: 2048, DIMS["v"]: 128_000}
    gathered = derive(LLAMA, practice=Practice(cross_entropy="gathered"))
    naive = payload(gathered, "forward", **found).subs(numbers)
    paper = (b * s + n).subs({**numbers, n: 8})
    assert (naive, exact.subs(numbers), paper) == (1_048_576_000, 24_576, 8_200)
    sizes = injected(program, "forward", **found).subs({**numbers, n: 8}) * DTYPE_BYTES["f32"]
    whole = injected(gathered, "forward", **found).subs({**numbers, n: 8}) * DTYPE_BYTES["f16"]
    assert (sizes, whole) == (172_032, 1_835_008_000)
    assert injected(program, "forward", **found) == 3 * 2 * b * s * (n - 1) / n


def test_claim_004_24_each_device_still_holds_its_part_of_the_logits():
    sizes = Sizes(DIMS | {"g": 1, "r": 1, "d": 1, "e": 1, "j": 3, "p": 1}, {"D": 1, "X": n, "Y": 1}, loops(1))
    held = memory(derive(LLAMA), sizes).logits_bytes
    assert sympy.simplify(held / (b * s * DIMS["v"] / n)) in (DTYPE_BYTES["f32"], DTYPE_BYTES["bf16"])


def test_claim_004_26_the_target_logit_is_on_one_device_only_and_so_is_summed():
    program = derive(LLAMA)
    assert "all_reduce logits.target" in moves(program, "forward", names=("logits",))
    target = next(op for op in program.ops if isinstance(op, Einsum) and op.output.name == "logits.target")
    assert str(target.output.type) == "[b, s]{U_X}"


def test_claims_004_27_28_a_layer_costs_8bsh_elements_in_four_all_reduces_as_n_grows():
    found = layer_injected()
    assert sympy.simplify(found - 8 * b * s * h * (n - 1) / n) == 0
    assert [found.subs(n, ranks) / (b * s * h) for ranks in (2, 4, 8, 16)] == [4, 6, 7, sympy.Rational(15, 2)]
    sizes = {b: 4, s: 1024, h: 4096}
    assert sympy.limit(found, n, sympy.oo).subs(sizes) == 134_217_728
    assert found.subs(sizes).subs(n, 4) * DTYPE_BYTES["bf16"] == 201_326_592
    assert [wire("all_reduce", b, ranks) / b for ranks in (2, 4, 8, 16)] == [
        1,
        Fraction(3, 2),
        Fraction(7, 4),
        Fraction(15, 8),
    ]


def test_claims_004_27_29_the_counts_are_two_in_attention_and_two_in_the_mlp():
    program = derive()
    total = collectives(program, "forward", layer=0) + collectives(program, "backward", layer=0)
    assert total == {"all_reduce_X [b, s, h]{U_X}": 4}
