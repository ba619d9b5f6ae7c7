"""Products of sharded arrays: the four cases, and what each device can do alone."""

from __future__ import annotations

import pytest

from tpsim.algebra.contract import Contraction, cases, flops, free_dims, local_product
from tpsim.algebra.legality import OwedError
from tpsim.algebra.notation import parse_expression
from tpsim.algebra.sharding import ShardingError


def asked(text):
    read = parse_expression(text)
    left, right = (read.left.name, read.left.type), (read.right.name, read.right.type)
    if read.out is None:
        return Contraction(left, right, "C", free_dims(left[1].dims, right[1].dims))
    return Contraction(left, right, read.out.name, read.out.type.dims, read.out.type)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A[I_X,J] . B[J,K_Y]", (1,)),
        ("A[I,J] . B[J,K]", (1,)),
        ("A[I,J_X] . B[J,K]", (2,)),
        ("A[I,J] . B[J_X,K]", (2,)),
        ("A[I,J_X] . B[J_Y,K]", (2,)),
        ("A[I,J_XY] . B[J_X,K]", (2,)),
        ("A[I,J_X] . B[J_X,K]", (3,)),
        ("A[I_X,J] . B[J,K_X]", (4,)),
        ("A[I_X,J_Y] . B[J_Y,K_X]", (3, 4)),
        ("A[I,J_X] . B[J,K_X]", (2,)),
        ("A[B_X,I,J] . D[B_X,J,K] -> C[B_X,I,K]", (1,)),
        ("A[B_X,I,J] . D[B,J,K] -> C[B_X,I,K]", (2,)),
    ],
)
def test_the_case_of_a_product(text, expected):
    assert cases(asked(text)) == expected


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("A[I_X,J] . B[J,K_Y]", "[I_X, K_Y]"),
        ("A[I,J_X] . B[J_X,K]", "[I, K]{U_X}"),
        ("A[I_Z,J_XY] . B[J_XY,K]", "[I_Z, K]{U_XY}"),
        ("A[B_X,I,J] . D[B_X,J,K_Y] -> C[B,I,K]", "[B_X, I, K_Y]"),
        ("A[I,J]{U_X} . B[J,K_Y]", "[I, K_Y]{U_X}"),
        ("A[I,J]{U_X} . B[J,K]{U_Y}", "[I, K]{U_XY}"),
        ("A[I_X,J] . B[J,K] -> C[K]", "[K]{U_X}"),
        ("A[I_X] . B[K_Y] -> C[I,K]", "[I_X, K_Y]"),
    ],
)
def test_the_type_that_a_product_leaves(text, result):
    assert str(local_product(asked(text))) == result


def test_blocks_that_do_not_meet_are_refused():
    with pytest.raises(ShardingError) as error:
        local_product(asked("A[I,J_X] . B[J,K]"))
    assert str(error.value) == "A[I, J_X] and B[J, K] split J differently: their blocks do not meet"


def test_two_dims_over_one_axis_are_refused():
    with pytest.raises(ShardingError) as error:
        local_product(asked("A[I_X,J] . B[J,K_X]"))
    assert str(error.value) == "A[I_X, J] . B[J, K_X] would split two dims over X: only diagonal blocks are known"


@pytest.mark.parametrize("text", ["A[I,J]{U_X} . B[J,K_X]", "A[I,J]{U_X} . B[J,K]{U_X}", "A[I,J]{M_X} . B[J,K]"])
def test_an_operand_that_must_be_settled_first_is_refused(text):
    with pytest.raises(OwedError) as error:
        local_product(asked(text))
    assert (error.value.array, error.value.axis) == ("A", "X")


def test_flops_are_two_per_pair_and_replicas_repeat_them():
    dims, axes = {"I": 8, "J": 16, "K": 32}, {"X": 4, "Y": 2}
    assert flops(asked("A[I,J] . B[J,K]"), dims, axes) == 2 * 8 * 16 * 32
    assert flops(asked("A[I_X,J_Y] . B[J_Y,K]"), dims, axes) == 2 * 8 * 16 * 32 // 8


def test_a_product_that_sums_nothing_multiplies_once():
    assert flops(asked("A[I] . B[K]"), {"I": 8, "K": 4}, {}) == 32
