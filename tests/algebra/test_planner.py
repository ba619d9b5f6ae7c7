"""Plans for products: the book's rules, the other ways, and laws that every plan keeps."""

from __future__ import annotations

from fractions import Fraction
from itertools import product as every

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.algebra.simulated import run_plan, types
from tests.algebra.test_contract import asked
from tpsim.algebra.contract import Contraction, flops
from tpsim.algebra.moves import wire
from tpsim.algebra.notation import parse_expression
from tpsim.algebra.planner import SHOWN, Prices, book, product_ways, reshard_ways
from tpsim.algebra.sharding import ShardingError

SIZES = {"X": 2, "Y": 3}
ORDER = tuple(SIZES)
SMALL_LEFT = {"I": 12, "J": 24, "K": 1200, "B": 12}


def prices(dims=SMALL_LEFT, sizes=SIZES, per_flop=0):
    return Prices(
        lambda move: wire(move.kind, move.logical_elements(dims, sizes), move.ranks(sizes)),
        lambda work: work * per_flop,
        lambda ask: flops(ask, dims, sizes),
    )


def spoken(plan):
    return [
        f"{step.op} {''.join(step.move.axes) if step.move else '->'} {step.output[0]}{step.output[1]}"
        for step in plan.steps
    ]


def by_book(text, dims=SMALL_LEFT):
    return spoken(book(asked(text), ORDER, prices(dims)))


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("A[I_X,J] . B[J,K_Y] -> C[I_X,K_Y]", ["matmul -> C[I_X, K_Y]"]),
        ("A[I,J_X] . B[J,K] -> C[I,K]", ["all_gather X A[I, J]", "matmul -> C[I, K]"]),
        (
            "A[I,J_X] . B[J_Y,K] -> C[I,K]",
            ["all_gather X A[I, J]", "all_gather Y B[J, K]", "matmul -> C[I, K]"],
        ),
        ("A[I,J_XY] . B[J_X,K]", ["all_gather Y A[I, J_X]", "matmul -> C[I, K]{U_X}"]),
        ("A[I,J_X] . B[J_X,K]", ["matmul -> C[I, K]{U_X}"]),
        ("A[I,J_X] . B[J_X,K] -> C[I,K]", ["matmul -> C[I, K]{U_X}", "all_reduce X C[I, K]"]),
        ("A[I,J_X] . B[J_X,K] -> C[I,K_X]", ["matmul -> C[I, K]{U_X}", "reduce_scatter X C[I, K_X]"]),
        ("A[I_X,J] . B[J,K_X] -> C[I_X,K]", ["all_gather X B[J, K]", "matmul -> C[I_X, K]"]),
        ("A[I_X,J] . B[J,K_X] -> C[I,K_X]", ["all_gather X A[I, J]", "matmul -> C[I, K_X]"]),
        ("A[I_X,J] . B[J,K_X]", ["all_gather X A[I, J]", "matmul -> C[I, K_X]"]),
        (
            "A[I_X,J] . B[J,K_X] -> C[I,K]",
            ["all_gather X A[I, J]", "matmul -> C[I, K_X]", "all_gather X C[I, K]"],
        ),
        (
            "A[I_X,J_Y] . B[J_Y,K_X] -> C[I_X,K]",
            ["all_gather X B[J_Y, K]", "matmul -> C[I_X, K]{U_Y}", "all_reduce Y C[I_X, K]"],
        ),
        ("A[B_X,I,J] . D[B,J,K] -> C[B_X,I,K]", ["slice X D[B_X, J, K]", "matmul -> C[B_X, I, K]"]),
        (
            "A[B_X,I,J] . D[B_Y,J,K] -> C[B_Y,I,K]",
            ["all_gather X A[B, I, J]", "slice Y A[B_Y, I, J]", "matmul -> C[B_Y, I, K]"],
        ),
    ],
)
def test_the_books_plan(text, steps):
    assert by_book(text) == steps


def test_in_case_four_without_a_wish_the_cheaper_operand_is_gathered():
    large_left = {"I": 1200, "J": 24, "K": 12}
    assert by_book("A[I_X,J] . B[J,K_X]", large_left)[0] == "all_gather X B[J, K]"


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("A[I,J]{U_X} . B[J,K_X]", ["all_reduce X A[I, J]", "matmul -> C[I, K_X]"]),
        ("A[I,J_X] . B[J,K]{U_X}", ["all_gather X A[I, J]", "all_reduce X B[J, K]", "matmul -> C[I, K]"]),
        ("A[I,J]{U_X} . B[J,K]{U_X}", ["all_reduce X A[I, J]", "matmul -> C[I, K]{U_X}"]),
        ("A[I,J]{M_XY} . B[J,K_X]", ["all_reduce XY A[I, J]", "matmul -> C[I, K_X]"]),
        ("A[B,J]{U_X} . D[B_X,J] -> C[B_X]", ["reduce_scatter X A[B_X, J]", "matmul -> C[B_X]"]),
    ],
)
def test_the_book_settles_first_what_the_law_of_owed_sums_forbids(text, steps):
    assert by_book(text) == steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("A[I,J] . B[J_X,K] -> C[I,K]{U_X}", ["slice X A[I, J_X]", "matmul -> C[I, K]{U_X}"]),
        ("A[I,J_YX] . B[J_Y,K] -> C[I,K]{U_XY}", ["slice X B[J_YX, K]", "matmul -> C[I, K]{U_XY}"]),
        ("A[I,J]{U_X} . B[J_X,K] -> C[I,K]{U_X}", ["reduce_scatter X A[I, J_X]", "matmul -> C[I, K]{U_X}"]),
    ],
)
def test_the_book_slices_the_whole_operand_where_the_result_is_wanted_owing(text, steps):
    assert by_book(text) == steps


def test_a_sum_that_no_case_leaves_owed_is_refused_by_the_book_and_planned_by_slices():
    ask = asked("A[I,J] . B[J,K] -> C[I,K]{U_X}")
    with pytest.raises(ShardingError) as error:
        book(ask, ORDER, prices())
    found = product_ways(ask, ORDER, prices())
    assert str(found.refused) == str(error.value)
    assert str(error.value) == "[I, K] cannot become [I, K]{U_X}: no move makes an array owe over X"
    assert spoken(found.plans[0]) == ["slice X A[I, J_X]", "slice X B[J_X, K]", "matmul -> C[I, K]{U_X}"]


def test_a_sum_that_no_way_leaves_owed_is_refused():
    with pytest.raises(ShardingError, match="no move makes an array owe over X"):
        product_ways(asked("A[I] . B[K] -> C[I,K]{U_X}"), ORDER, prices())


def over_one_axis():
    """The 64 products of matrices over one axis: operands and result each split on one of two dims, whole, or owing."""
    forms = ("{0}_X,{1}]", "{0},{1}_X]", "{0},{1}]", "{0},{1}]{{U_X}}")
    arrays = (["A[" + form.format(*"IJ"), "B[" + form.format(*"JK"), "C[" + form.format(*"IK")] for form in forms)
    return [f"{a} . {b} -> {c}" for a, b, c in every(*zip(*arrays, strict=True))]


@pytest.mark.parametrize("text", over_one_axis())
def test_every_product_over_one_axis_is_planned_and_gives_its_result(text):
    ask = asked(text)
    for plan in product_ways(ask, ORDER, prices(EVEN)).plans:
        assert plan.steps[-1].output[1] == ask.wanted
        assert run_plan(plan, ask, SIZES), spoken(plan)


def ways(text, **more):
    return [spoken(plan) for plan in product_ways(asked(text), ORDER, prices(**more)).plans]


def test_case_two_offers_to_slice_the_other_operand_and_owe():
    assert ["slice X B[J_X, K]", "matmul -> C[I, K]{U_X}", "all_reduce X C[I, K]"] in ways(
        "A[I,J_X] . B[J,K] -> C[I,K]"
    )


def test_case_two_offers_an_all_to_all_of_the_operand():
    assert ["all_to_all X A[I_X, J]", "matmul -> C[I_X, K]"] in ways("A[I,J_X] . B[J,K] -> C[I_X,K]")


def test_seconds_of_repeated_work_can_outweigh_bytes():
    text = "A[I,J_X] . B[J,K] -> C[I,K]"
    by_bytes = product_ways(asked(text), ORDER, prices()).plans[0]
    by_work = product_ways(asked(text), ORDER, prices(per_flop=Fraction(1, 10))).plans[0]
    assert spoken(by_bytes)[0] == "all_gather X A[I, J]"
    assert by_work.flops < by_bytes.flops


def test_plans_stand_in_order_of_price_with_the_book_among_them():
    found = product_ways(asked("A[I_X,J] . B[J,K_Y] -> C[I,K]"), ORDER, prices()).plans
    assert [plan.rank for plan in found] == sorted(plan.rank for plan in found)
    assert [plan.planner for plan in found].count("book") == 1
    assert len(found) <= SHOWN


def test_a_product_that_needs_nothing_has_one_plan():
    assert len(product_ways(asked("A[I_X,J] . B[J,K_Y] -> C[I_X,K_Y]"), ORDER, prices()).plans) == 1


def test_every_step_says_why():
    found = product_ways(asked("A[I_X,J] . B[J,K_X] -> C[I,K_X]"), ORDER, prices()).plans
    assert all(step.because for plan in found for step in plan.steps)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (
            "A[I,J_X] . B[J_X,K] -> C[I,K]",
            [
                "case 3: both operands are split on J over X, so C owes a sum over X",
                "the sum that C owes over X is wanted whole on every device",
            ],
        ),
        (
            "A[I,J_X] . B[J,K] -> C[I,K]",
            [
                "case 2: A is split on J over X and B not at all, so A is gathered over X",
                "case 1: neither A nor B is split on J, so each device multiplies what it holds",
            ],
        ),
        (
            "A[I_X,J] . B[J,K_X] -> C[I_X,K]",
            [
                "case 4: X splits K of B and I of A, and no result carries both, so B gives way and is gathered",
                "case 1: neither A nor B is split on J, so each device multiplies what it holds",
            ],
        ),
        (
            "A[I,J]{U_X} . B[J,K] -> C[I_X,K]",
            [
                "A owes a sum over X and a product is linear in A, so C owes it too",
                "C is wanted split on I over X, so each device takes the sum of its own part only",
            ],
        ),
        (
            "A[I_X,J] . B[J,K] -> C[K]{U_X}",
            ["I of A is summed away and split over X, so C owes a sum over X"],
        ),
    ],
)
def test_the_book_says_why_in_the_notation(text, reasons):
    assert [step.because for step in book(asked(text), ORDER, prices()).steps] == reasons


def test_a_reshard_has_the_books_plan_and_the_cheapest():
    read = parse_expression("A[I_XY] -> A[I_Y]")
    found = reshard_ways("A", read.before.type, read.after.type, ORDER, prices()).plans
    assert [[step.op for step in plan.steps] for plan in found] == [["permute", "all_gather"], ["all_gather", "slice"]]
    assert [plan.planner for plan in found] == ["any", "book"]


@st.composite
def products(draw):
    """A product with a batch dim, operands of any types, and any result, sums owed included."""
    left, right = (draw(types(dims=tuple(dims), axes=ORDER)) for dims in ("BIJ", "BJK"))
    wanted = draw(types(dims=("B", "I", "K"), axes=ORDER))
    return Contraction(("A", left), ("D", right), "C", ("B", "I", "K"), wanted)


EVEN = dict.fromkeys("BIJK", 12)


@settings(max_examples=25)
@given(ask=products())
def test_every_plan_gives_the_product_on_simulated_devices(ask):
    for plan in product_ways(ask, ORDER, prices(EVEN)).plans:
        assert run_plan(plan, ask, SIZES), spoken(plan)


@given(ask=products())
def test_the_cheapest_plan_is_never_dearer_than_the_book(ask):
    found = product_ways(ask, ORDER, prices(EVEN))
    by_price = found.plans
    assert found.refused or by_price[0].price <= book(ask, ORDER, prices(EVEN)).price
    assert all(plan.steps[-1].output[1] == ask.wanted for plan in by_price)
