"""The verb `shard`: keys that scripts rely on, figures of the book, and the text of every refusal."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tpsim.algebra.notation import NotationError
from tpsim.answers import shard as module
from tpsim.answers.shard import shard

STEP_KEYS = [
    "op",
    "axes",
    "input",
    "output",
    "logical_bytes",
    "wire_bytes_per_device",
    "flops_per_device",
    "latency_s",
    "bandwidth_s",
    "time_s",
    "because",
]
DTYPE_REFUSAL = """\
"bf61" is not a dtype
  bf61
  ^^^^
did you mean "bf16"? there are: f64, f32, bf16, f16, fp8, int8, int32"""
DIMS = "I=1024,J=4096,K=2048"


def refusal(*args, **options):
    with pytest.raises(NotationError) as error:
        shard(*args, **options)
    return str(error.value)


def test_a_document_has_the_keys_that_scripts_rely_on():
    document = shard("A[I,J_X] . B[J_X,K] -> C[I,K]", dims=DIMS).to_json()
    assert list(document) == ["schema", "tpsim", "inputs", "resolved", "result", "assumptions", "not_modelled"]
    assert document["schema"] == "tpsim.shard/1"
    result = document["result"]
    assert {"planner", "steps", "total_time_s", "wire_bytes_per_device", "alternatives"} <= set(result)
    assert [list(step) for step in result["steps"]] == [STEP_KEYS, STEP_KEYS]
    assert all(list(step) == STEP_KEYS for plan in result["alternatives"] for step in plan["steps"])
    assert "book" in [plan["planner"] for plan in result["alternatives"]]
    assert json.loads(json.dumps(document)) == document


def test_a_contracted_split_dim_costs_an_all_reduce_of_the_result():
    product, move = shard("A[I,J_X] . B[J_X,K] -> C[I,K]", dims=DIMS).steps
    assert (product["op"], product["input"], product["output"]) == ("matmul", "A[I, J_X] . B[J_X, K]", "C[I, K]{U_X}")
    assert product["flops_per_device"] == 2 * 1024 * 4096 * 2048 // 4
    assert product["because"] == "case 3: both operands are split on J over X, so C owes a sum over X"
    assert (move["op"], move["axes"], move["input"], move["output"]) == ("all_reduce", ["X"], "C[I, K]{U_X}", "C[I, K]")
    assert move["logical_bytes"] == 1024 * 2048 * 2
    assert move["wire_bytes_per_device"] == 2 * 1024 * 2048 * 2 * 3 // 4
    assert (move["latency_s"], move["bandwidth_s"], move["time_s"]) == (None, None, None)


def test_the_planner_asked_for_gives_the_steps():
    text = "A[I,J_X] . B[J,K] -> C[I,K]"
    by_planner = {planner: shard(text, dims=DIMS, planner=planner) for planner in ("book", "cheapest")}
    assert [step["op"] for step in by_planner["book"].steps] == ["all_gather", "matmul"]
    assert [step["op"] for step in by_planner["cheapest"].steps] == ["all_to_all", "matmul", "all_gather"]
    prices = [plan["wire_bytes_per_device"] for plan in by_planner["book"].alternatives]
    assert prices == sorted(prices)


def test_a_result_left_open_is_the_products_own_and_stays_owed():
    result = shard("A[I,J_X] . B[J_X,K]", dims=DIMS)
    assert result.steps[-1]["output"] == "C[I, K]{U_X}"
    assert result.verdict == "case 3: matmul gives C[I, K]{U_X}"
    texts = [one.text for one in result.assumptions]
    assert "no result type given: the product's own is taken, and what it owes stays owed" in texts


def test_without_dims_there_are_formulas_and_no_figures():
    result = shard("A[I_X,J] . B[J,K] -> C[I,K]").to_json()["result"]
    assert [step["wire_bytes_per_device"] for step in result["steps"]] == [None, None]
    assert result["formulas"] == [
        {"op": "matmul", "wire_bytes_per_device": "0", "flops_per_device": "2*I*J*K/X"},
        {"op": "all_gather", "wire_bytes_per_device": "2*I*K*(X - 1)/X", "flops_per_device": "0"},
    ]


def test_an_axis_that_bears_a_dims_name_has_a_symbol_of_its_own():
    result = shard("A[X_X, J] -> A[X, J]").to_json()["result"]
    assert result["formulas"][0]["wire_bytes_per_device"] == "2*J*X*(n_X - 1)/n_X"


def test_one_array_alone_shows_what_each_device_holds():
    row = shard("A[I_XY, J]", "X=2,Y=8,Z=2", dims="I=128,J=2048", dtype="int8").arrays[0]
    assert row["local_shape"] == [8, 2048]
    assert (row["local_bytes"], row["total_bytes"], row["shards"], row["replication"]) == (16384, 524288, 16, 2)


def test_an_array_without_dims_shows_a_formula():
    result = shard("A[I_X, J]")
    assert result.arrays[0]["local_formula"] == "I*J/X"
    assert result.verdict == "each device holds I*J/X elements of A[I_X, J]"


def test_the_mesh_and_dims_may_be_mappings():
    result = shard("A[I_x, J] -> A[I, J_x]", {"X": 4}, dims={"I": 64, "J": 64})
    assert result.verdict == "all_to_all(X) gives A[I, J_X]"
    assert result.steps[0]["wire_bytes_per_device"] == 64 * 64 * 2 * 3 // 16


def test_a_reshard_to_the_same_type_needs_nothing():
    assert shard("A[I_X] -> A[I_X]", dims="I=8").verdict == "the types are the same: nothing to do"


def test_records_are_one_row_per_step_of_every_alternative():
    result = shard("A[I_XY] -> A[I_Y]", dims="I=64")
    rows = result.records()
    assert [(row["planner"], row["op"], row["axes"]) for row in rows] == [
        ("cheapest", "permute", "X,Y"),
        ("cheapest", "all_gather", "X"),
        ("book", "all_gather", "X,Y"),
        ("book", "slice", "Y"),
    ]


def test_records_load_into_a_frame():
    pytest.importorskip("pandas")
    assert list(shard("A[I_X, J]", dims="I=8,J=2").to_frame()["local_shape"]) == ["2x2"]


def test_an_uneven_split_is_refused_with_the_next_multiple():
    assert refusal("A[I_XY, J]", dims="I=50257,J=8") == (
        "I = 50257 of A does not split evenly over XY = 8 devices\n"
        "  A[I_XY, J]\n"
        "    ^\n"
        "pad I to 50264, the next multiple of 8, or split another dim"
    )


def test_a_way_that_would_split_unevenly_is_not_offered():
    result = shard("A[I,J_X] . B[J,K] -> C[I,K]", dims="I=3,J=8,K=5")
    outputs = " ".join(step["output"] for plan in result.alternatives for step in plan["steps"])
    assert "I_X" not in outputs
    assert "K_X" not in outputs


def test_an_owed_operand_that_meets_a_sharded_one_is_refused():
    assert refusal("A[I,J]{U_Y} . B[J,K_Y]") == (
        "A[I, J]{U_Y} owes a sum over Y: each device would multiply its part of A by another block of B\n"
        "  A[I,J]{U_Y} . B[J,K_Y]\n"
        "           ^\n"
        "settle A over Y first"
    )


def test_an_owed_max_in_a_product_is_refused():
    assert refusal("A[I,J]{M_X} . B[J,K]") == (
        "A[I, J]{M_X} owes a max over X: a max must be known before it is multiplied\n"
        "  A[I,J]{M_X} . B[J,K]\n"
        "           ^\n"
        "settle A over X first"
    )


def test_a_result_that_would_owe_more_than_the_product_leaves_is_refused():
    assert refusal("A[I_X] -> A[I]{U_X}") == (
        "[I_X] cannot become [I]{U_X}: no move makes an array owe over X\n"
        "  A[I_X] -> A[I]{U_X}\n"
        "            ^\n"
        "ask for another type of A"
    )


def test_a_dim_without_a_size_is_named():
    assert refusal("A[I_X,J]", dims="I=8") == "dim J has no size\n  A[I_X,J]\n        ^\nadd J=... to the dims"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dims": "I=8,J=4,Q=3"}, '"Q" is not a dim of the expression\n  I=8,J=4,Q=3\n          ^\nthere are: I, J'),
        ({"dims": "I=8;J"}, "the dims cannot be read\n  I=8;J\n  ^^^^^\nwrite sizes as I=8192,J=4096"),
        ({"dims": "I=8,J=0"}, "the dims cannot be read\n  I=8,J=0\n      ^^^\nwrite sizes as I=8192,J=4096"),
        ({"mesh": "X=4,X=2"}, "X has two sizes\n  X=4,X=2\n      ^\ndrop one X"),
        ({"mesh": "X"}, "the mesh cannot be read\n  X\n  ^\nwrite sizes as X=4,Y=2"),
        (
            {"dtype": "bf61"},
            DTYPE_REFUSAL,
        ),
        ({"cost_model": "alpha"}, '"alpha" is not a cost model\n  alpha\n  ^^^^^\nthere are: additive, book'),
        (
            {"planner": "bok"},
            '"bok" is not a planner\n  bok\n  ^^^\ndid you mean "book"? there are: book, cheapest',
        ),
    ],
)
def test_an_option_that_cannot_be_read_is_shown_with_a_caret(options, text):
    assert refusal("A[I_X,J]", **options) == text


def fake_clock(*_):
    """A machine of 1 byte per second and 1000 FLOPs per second."""

    def timed(move, volume):
        spent = float(volume) * len(move.axes)
        return SimpleNamespace(launch_s=1.0, latency_s=2.0, bandwidth_s=spent, time_s=3.0 + spent)

    placed = SimpleNamespace(describe=lambda: ["X lies on ici.0"])
    machine = SimpleNamespace(path="any.yaml", sha256="0" * 64)
    return SimpleNamespace(move=timed, product=lambda work: work / 1000, placement=placed, machine=machine)


def test_with_a_machine_every_step_has_seconds_and_the_total_is_their_sum(monkeypatch):
    monkeypatch.setattr(module, "_clock", fake_clock)
    result = shard("A[I,J_X] . B[J_X,K] -> C[I,K]", dims="I=8,J=8,K=8", hw="any", planner="book")
    product, move = result.steps
    assert (product["time_s"], product["latency_s"]) == (2 * 8**3 / 4 / 1000, 0.0)
    assert (move["latency_s"], move["bandwidth_s"], move["time_s"]) == (3.0, 128.0, 131.0)
    assert result.total_time_s == product["time_s"] + move["time_s"]
    assert "X lies on ici.0" in [one.text for one in result.assumptions]
    assert result.to_json()["inputs"] == [{"path": "any.yaml", "sha256": "0" * 64}]


def test_the_books_gather_of_34_mb_on_an_axis_of_four_that_is_no_ring():
    result = shard(
        "A[E_Y,F] -> A[E,F]", "X=8,Y=4", dims="E=2048,F=8192", hw="tpu-v5e", planner="book", cost_model="book"
    )
    assert result.total_time_s == pytest.approx(2048 * 8192 * 2 * 3 / 4 / 45e9)
    assert result.to_json()["inputs"][0]["path"] == "hardware/tpu-v5e.yaml"


def test_on_a_real_machine_the_cheapest_way_does_not_repeat_work():
    text, dims = "A[I,J_X] . B[J,K] -> C[I,K]", "I=1024,J=4096,K=2048"
    result = shard(text, "X=4,Y=4", dims=dims, hw="tpu-v5e")
    assert [step["op"] for step in result.steps] == ["slice", "matmul", "all_reduce"]
    times = [plan["total_time_s"] for plan in result.alternatives]
    assert times == sorted(times)
    assert [plan["planner"] for plan in result.alternatives][-1] == "book"
    assert [step["time_s"] > 0 for step in result.steps] == [False, True, True]


def test_a_machine_without_dims_gives_no_seconds(monkeypatch):
    monkeypatch.setattr(module, "_clock", fake_clock)
    result = shard("A[I_X] -> A[I]", hw="any")
    assert result.total_time_s is None
    assert result.steps[0]["time_s"] is None


def test_the_cheapest_plan_in_seconds_counts_the_work_that_replicas_repeat(monkeypatch):
    text, dims = "A[I,J_X] . B[J,K] -> C[I,K]", "I=4,J=4,K=4096"
    by_bytes = shard(text, dims=dims)
    monkeypatch.setattr(module, "_clock", lambda *_: SimpleNamespace(**{**vars(fake_clock()), "product": float}))
    by_seconds = shard(text, dims=dims, hw="any")
    assert [step["op"] for step in by_bytes.steps] == ["all_gather", "matmul"]
    assert by_seconds.chosen.flops * 4 == by_bytes.chosen.flops


def test_axes_in_another_order_are_one_permute_on_open_axes_of_a_torus():
    result = shard("A[I_XY,J] -> A[I_YX,J]", "X=2,Y=4", dims="I=8192,J=8192", hw="tpu-v5e")
    assert [(step["op"], step["wire_bytes_per_device"]) for step in result.steps] == [("permute", 2**24)]
    link = 2 * 2**24  # two blocks cross the busiest cable, see tests/reference/test_permutes.py
    assert result.total_time_s == pytest.approx(4.27e-6 + link / 45e9 + 1e-6 / 3, rel=1e-3)
    assert result.total_time_s < 0.76e-3
