"""The claims of the sharding chapter's paraphrase (seed 000) that concern the algebra, one test each, ids in the names.

Claims that are right are reproduced; simplified ones are stated exactly; where the text is wrong the true form is held.
"""

from __future__ import annotations

import pytest

from tests.algebra.simulated import run_moves
from tests.algebra.test_contract import asked
from tests.algebra.test_planner import ORDER, by_book, prices, spoken, ways
from tests.arrays import every_move, parse_array
from tpsim.algebra.contract import cases, local_product
from tpsim.algebra.legality import OwedError, owed_after
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import wire
from tpsim.algebra.notation import NotationError
from tpsim.algebra.planner import book, product_ways
from tpsim.algebra.reshard import Routes, book_path
from tpsim.algebra.sharding import ShardingError


def held(text, dims, axes):
    type_ = parse_array(text).type
    return tuple(type_.local(dim, dims, axes) for dim in type_.dims)


def test_claim_000_1_four_by_128_on_two_by_two_leaves_two_by_64_on_each_device():
    assert held("A[I_X, J_Y]", {"I": 4, "J": 128}, {"X": 2, "Y": 2}) == (2, 64)


def test_claim_000_2_two_sharded_dims_leave_one_part_in_x_times_y():
    type_ = parse_array("A[I_X, J_Y]").type
    assert type_.local_elements({"I": 64, "J": 64}, {"X": 4, "Y": 8}) * 32 == 64 * 64


def test_claim_000_3_one_dim_over_two_axes_and_their_order_is_part_of_the_type():
    assert held("A[I_XY, J]", {"I": 32, "J": 5}, {"X": 4, "Y": 2}) == (4, 5)
    assert parse_array("A[I_XY, J]") != parse_array("A[I_YX, J]")


def test_claim_000_4_what_is_not_sharded_over_an_axis_is_replicated_there():
    dims, axes = {"I": 8, "J": 8}, {"X": 4, "Y": 2}
    stored = [parse_array(text).type.local_elements(dims, axes) * 8 for text in ("A[I, J]", "A[I_X, J]", "A[I_X, J_Y]")]
    assert stored == [8 * 64, 2 * 64, 64]


def test_claim_000_5_an_axis_on_two_dims_is_illegal_and_named():
    with pytest.raises(NotationError) as error:
        parse_array("A[I_X, J_X]")
    assert str(error.value).startswith("mesh axis X is used twice in A\n")


def test_claim_000_6_two_dims_over_one_axis_would_know_only_diagonal_blocks():
    with pytest.raises(ShardingError) as error:
        local_product(asked("A[I_X,J] . B[J,K_X]"))
    assert str(error.value).endswith("would split two dims over X: only diagonal blocks are known")


def test_claim_000_7_elementwise_needs_nothing_only_if_nothing_is_owed():
    assert owed_after("nonlinear", [("A", parse_array("A[I_X]").type)]) == frozenset()
    with pytest.raises(OwedError):
        owed_after("nonlinear", [("A", parse_array("A[I]{U_X}").type)])


def test_claim_000_8_a_product_with_free_dims_sharded_needs_nothing():
    assert by_book("A[I_X,J] . B[J,K_Y] -> C[I_X,K_Y]") == ["matmul -> C[I_X, K_Y]"]


def test_claim_000_9_a_whole_result_can_be_gathered_at_either_end_on_each_axis():
    found = ways("A[I_X,J] . B[J,K_Y] -> C[I,K]", dims={"I": 24, "J": 24, "K": 24})
    gathered = {frozenset(step.partition("[")[0] for step in plan if step.startswith("all_gather")) for plan in found}
    wanted = [("XY C",), ("X A", "Y C"), ("X A", "Y B"), ("Y B", "X C")]
    assert {frozenset(f"all_gather {each}" for each in ways_) for ways_ in wanted} <= gathered


@pytest.mark.parametrize(
    ("text", "case", "steps"),
    [
        ("A[I_X,J] . B[J,K_Y]", 1, ["matmul -> C[I_X, K_Y]"]),
        ("A[I,J_X] . B[J,K]", 2, ["all_gather X A[I, J]", "matmul -> C[I, K]"]),
        ("A[I,J_X] . B[J_X,K]", 3, ["matmul -> C[I, K]{U_X}"]),
        ("A[I_X,J] . B[J,K_X]", 4, ["all_gather X A[I, J]", "matmul -> C[I, K_X]"]),
        ("A[I,J_X] . B[J_Y,K]", 2, ["all_gather X A[I, J]", "all_gather Y B[J, K]", "matmul -> C[I, K]"]),
    ],
)
def test_claim_000_10_the_four_cases_and_contracting_dims_on_different_axes_are_case_two(text, case, steps):
    assert cases(asked(text)) == (case,)
    assert by_book(text) == steps


def test_claim_000_11_case_two_gathers_then_multiplies_or_slices_and_reduces():
    found = ways("A[I,J_X] . B[J,K] -> C[I,K]")
    assert ["all_gather X A[I, J]", "matmul -> C[I, K]"] in found
    assert ["slice X B[J_X, K]", "matmul -> C[I, K]{U_X}", "all_reduce X C[I, K]"] in found


def test_claim_000_12_a_plain_gather_takes_the_minor_axis_only():
    source = parse_array("A[I_XY, J]").type
    assert {str(one.after) for one in every_move(source, ORDER) if one.kind == "all_gather"} == {"[I_X, J]", "[I, J]"}
    to_y = parse_array("A[I_Y, J]").type
    assert [move.kind for move in book_path(source, to_y, ORDER)] == ["all_gather", "slice"]
    cheap = Routes(ORDER, prices().move).path(source, to_y)
    assert [move.kind for move in cheap] == ["permute", "all_gather"]
    assert run_moves(cheap, source)


def test_claim_000_13_the_smaller_of_operand_and_result_is_gathered():
    text = "A[I_X,J] . B[J,K] -> C[I,K]"
    narrow, wide = {"I": 24, "J": 12, "K": 120}, {"I": 24, "J": 120, "K": 12}
    first = [spoken(product_ways(asked(text), ORDER, prices(dims)).plans[0])[0] for dims in (narrow, wide)]
    assert first == ["all_gather X A[I, J]", "matmul -> C[I_X, K]"]


def test_claim_000_26_an_all_reduce_is_a_reduce_scatter_then_an_all_gather():
    owed, split, whole = (parse_array(text).type for text in ("A[I]{U_X}", "A[I_X]", "A[I]"))
    one, two = book_path(owed, whole, ORDER), (*book_path(owed, split, ORDER), *book_path(split, whole, ORDER))
    assert [move.kind for move in one] == ["all_reduce"]
    assert [move.kind for move in two] == ["reduce_scatter", "all_gather"]
    assert run_moves(one, owed)
    assert run_moves(two, owed)
    assert sum(map(prices().move, one)) == sum(map(prices().move, two))


def test_claim_000_29_case_four_gathers_one_operand_and_the_wish_says_which():
    assert by_book("A[I_X,J] . B[J,K_X] -> C[I_X,K]")[0] == "all_gather X B[J, K]"
    assert by_book("A[I_X,J] . B[J,K_X] -> C[I,K_X]")[0] == "all_gather X A[I, J]"


def test_claim_000_30_an_all_to_all_moves_a_subscript_from_one_dim_to_another():
    source, target = parse_array("A[I_X, J]").type, parse_array("A[I, J_X]").type
    moves = book_path(source, target, ORDER)
    assert [move.kind for move in moves] == ["all_to_all"]
    assert run_moves(moves, source)


def test_claim_000_33_a_result_that_may_stay_split_costs_half_the_all_reduce():
    text = "A[I,J_X] . B[J_X,K] -> C[I,K{}]"
    scattered, reduced = (book(asked(text.format(end)), ORDER, prices()) for end in ("_X", ""))
    assert spoken(scattered) == ["matmul -> C[I, K]{U_X}", "reduce_scatter X C[I, K_X]"]
    assert scattered.price * 2 == reduced.price


def test_claim_000_34_a_mesh_of_four_by_eight_cuts_one_dim_into_32():
    mesh = Mesh({"X": 4, "Y": 8})
    assert mesh.size(*parse_array("A[I_XY, J]").type.axes("I")) == 32


def test_claim_000_34_and_the_wire_of_its_gather_has_the_finite_factor():
    assert wire("all_gather", 32 * 100, 32) == 31 * 100
