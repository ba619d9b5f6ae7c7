"""The verb `shard`: keys that scripts rely on, figures of the book, and the text of every refusal."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tpsim.algebra import meetings
from tpsim.algebra.notation import NotationError
from tpsim.answers import shard as module
from tpsim.answers.shard import shard
from tpsim.pages.shard import page
from tpsim.quantity.errors import InputError

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
did you mean "bf16"? there are: f64, f32, bf16, f16, fp8, int8, int32, int4, fp8_128, fp8_128x128, mxfp4"""
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


def test_the_verdict_has_the_seconds_of_all_steps():
    result = shard("A[I_X, J] -> A[I, J]", "X=4,Y=4,Z=4", dims="I=1024,J=4096", hw="tpu-v4", cost_model="book")
    assert result.verdict == "all_gather(X) gives A[I, J] in 93.21 us"


def test_a_dtype_for_a_name_is_refused_where_the_array_has_another():
    with pytest.raises(NotationError) as error:
        shard("f32[I_X, J]")
    assert str(error.value) == (
        "f32 is a dtype, but stands here as the name of an array of bf16\n"
        "  f32[I_X, J]\n"
        "  ^^^\n"
        "name the array, and state its dtype beside: --dtype f32"
    )
    assert shard("f32[I_X, J]", dtype="f32").dtype == "f32"


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


@pytest.mark.parametrize(
    ("text", "first", "because"),
    [
        ("A[I,J]{U_Y} . B[J,K_Y]", "all_reduce", "the sum that A owes over Y is settled before the product"),
        ("A[I,J]{M_X} . B[J,K]", "all_reduce", "the max that A owes over X is settled before the product"),
        (
            "A[I,J]{U_X} . B[J_X,K] -> C[I,K]{U_X}",
            "reduce_scatter",
            "the sum that A owes over X is settled before the product",
        ),
    ],
)
@pytest.mark.parametrize("planner", ["cheapest", "book"])
def test_an_operand_that_must_be_settled_before_the_product_is_settled_first(planner, text, first, because):
    move, product = shard(text, dims=DIMS, planner=planner).steps
    assert (move["op"], move["because"], product["op"]) == (first, because, "matmul")


def test_a_result_may_be_wanted_owing_where_the_book_has_no_way():
    text = "A[I,J] . B[J,K] -> C[I,K]{U_X}"
    result = shard(text)
    assert result.verdict == "case 1: slice(X) -> slice(X) -> matmul gives C[I, K]{U_X}"
    reason = "[I, K] cannot become [I, K]{U_X}: no move makes an array owe over X"
    assert [dict(one) for one in result.left_out] == [{"way": "the book's", "because": reason}]
    with pytest.raises(NotationError) as error:
        shard(text, planner="book").to_json()
    assert str(error.value) == (
        f"the book's way cannot be taken: {reason}\n"
        "  A[I,J] . B[J,K] -> C[I,K]{U_X}\n"
        "                     ^\n"
        "ask for the cheapest planner"
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
    machine = SimpleNamespace(path="any.yaml", sha256="0" * 64, below=())
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


@pytest.mark.parametrize("planner", ["cheapest", "book"])
def test_a_gather_of_two_dims_is_one_collective_over_the_axes_of_both(planner):
    options = {"dims": "B=1024,D=4096", "hw": "tpu-v4", "planner": planner, "cost_model": "book"}
    (step,) = shard("A[B_X,D_Y] -> A[B,D]", "X=4,Y=4,Z=4", **options).steps
    assert (step["op"], step["axes"], step["output"]) == ("all_gather", ["X", "Y"], "A[B, D]")
    assert step["wire_bytes_per_device"] == 2 * 1024 * 4096 * 15 // 16
    assert step["time_s"] == pytest.approx(2 * 1024 * 4096 / (2 * 90e9))
    assert step["because"] == "A is not wanted split on B over X and on D over Y, so it is gathered"


def test_axes_of_several_dims_are_gathered_one_after_the_other_where_that_is_cheaper(monkeypatch):
    monkeypatch.setattr(module, "_clock", fake_clock)
    result = shard("A[I_X,J_Y] -> A[I,J]", dims="I=64,J=64", hw="any")
    ways = {tuple(way["planners"]): [step["axes"] for step in way["steps"]] for way in result.alternatives}
    assert ways == {("cheapest",): [["Y"], ["X"]], ("book",): [["X", "Y"]]}


def test_the_book_gathers_one_dim_after_the_other_where_nothing_is_known_of_both_together():
    apart = dict.fromkeys("XYZ", "ici.0")
    result = shard(
        "A[I_X,J_Z] -> A[I,J]", "X=2,Y=2,Z=2", dims="I=64,J=64", hw="tpu-v5e", placement=apart, planner="book"
    )
    assert [step["axes"] for step in result.steps] == [["X"], ["Z"]]
    assert result.left_out[0]["way"] == "all_gather(X,Z)"
    assert result.left_out[0]["because"] == "the mesh axes lie apart on ici.0: no closed form is known for such groups"


def test_an_axis_may_stand_as_on_another_dim():
    result = shard("A[I,J_X] . B[J,K] -> C[I,K_YX]", "X=4,Y=4", dims="I=8192,J=4096,K=8192", hw="tpu-v5e")
    assert result.total_time_s < 607.4e-6


def test_what_is_left_out_is_named_with_the_reason(monkeypatch):
    def clock(*_):
        return SimpleNamespace(**{**vars(fake_clock()), "move": unknown_exchange})

    def unknown_exchange(move, volume):
        if move.kind == "all_to_all":
            raise InputError.one("no-closed-form", "no closed form of all_to_all is known here")
        return fake_clock().move(move, volume)

    monkeypatch.setattr(module, "_clock", clock)
    result = shard("A[I_X,J] -> A[I,J_X]", dims="I=8,J=8", hw="any")
    assert [step["op"] for step in result.steps] == ["all_gather", "slice"]
    assert result.to_json()["result"]["left_out"] == [
        {"way": "all_to_all(X)", "because": "no closed form of all_to_all is known here"},
        {"way": "the book's", "because": "no price is known of all_to_all over X"},
    ]
    with pytest.raises(NotationError, match="the book's way cannot be taken: no price is known of all_to_all over X"):
        shard("A[I_X,J] -> A[I,J_X]", dims="I=8,J=8", hw="any", planner="book").to_json()
    notes = page(result, verbose=False).notes
    assert "left out: all_to_all(X): no closed form of all_to_all is known here" in notes


def test_an_answer_says_from_which_price_on_ways_were_not_looked_for(monkeypatch):
    text, dims = "A[I_X,J_Y] . B[J,K] -> C[I,K]", "I=8,J=16,K=32"
    assert shard(text, dims=dims).left_out == []
    monkeypatch.setattr(meetings, "EFFORT", 0)
    (some,) = shard(text, dims=dims).left_out
    assert some["way"].startswith("ways of ")
    assert some["because"] == "there are too many to price them all; none is cheaper than the first way"
    monkeypatch.setattr(meetings, "MOST", 0)
    (all_,) = shard(text, dims=dims).left_out
    assert dict(all_) == {
        "way": "ways of 0 B and more",
        "because": "there are too many to price them all; one may be cheaper than the first way",
    }
    with pytest.raises(NotationError, match="2 mesh axes are too many to search for others"):
        shard("A[I,J_Y] . B[J,K] -> C[I,K]{U_X}", dims=dims)


def test_on_a_real_machine_the_cheapest_way_does_not_repeat_work():
    text, dims = "A[I,J_X] . B[J,K] -> C[I,K]", "I=2048,J=4096,K=4096"
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


def test_axes_of_one_device_are_left_out_and_said_to_be():
    answer = shard("A[I_X,J] . B[J,K_X] -> C[I,K]{U_X}", "X=1,Y=2")
    assert [str(array) for array in answer.expression.arrays] == ["A[I, J]", "B[J, K]", "C[I, K]"]
    assert answer.verdict == "case 1: matmul gives C[I, K]"
    assert "one device along X: nothing is split, or owed, over it" in [note.text for note in answer.assumptions]


def test_where_nothing_is_to_be_done_no_empty_table_of_steps_is_shown():
    assert [len(table.rows) for table in page(shard("A[I_X] -> A[I_X]"), verbose=True).tables] == [2]


def test_the_formula_of_a_permute_is_that_among_several_devices():
    (step,) = shard("A[I_XY,J] -> A[I_YX,J]", "X=3,Y=5").formulas
    assert step.wire_bytes_per_device == "2*I*J/(X*Y)"
