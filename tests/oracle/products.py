"""Every product over one axis: the collectives of XLA's partitioner against the book's plan and the cheapest."""

from __future__ import annotations

from tests.oracle.differences import Difference

BOOK = (
    Difference(
        "XLA slices an operand that every device holds whole; the book multiplies it whole and slices the result",
        "same",
        "less",
        (
            "A[I, J] . B[J, K] -> C[I_X, K]",
            "A[I, J] . B[J, K] -> C[I, K_X]",
            "A[I, J] . B[J_X, K] -> C[I_X, K]",
            "A[I, J_X] . B[J, K] -> C[I, K_X]",
        ),
    ),
    Difference(
        "XLA slices A for free and pays for the sum; the book gathers B and every device repeats the product",
        "more",
        "less",
        ("A[I, J] . B[J_X, K] -> C[I, K]",),
    ),
    Difference(
        "XLA exchanges the operand's split for the one that the result is wanted in; the book gathers it, then slices",
        "less",
        "less",
        ("A[I, J] . B[J_X, K] -> C[I, K_X]", "A[I, J_X] . B[J, K] -> C[I_X, K]"),
    ),
    Difference(
        "XLA lets A give way and exchanges B; the book gathers B, then exchanges the result, which is larger than B/X",
        "less",
        "same",
        ("A[I_X, J] . B[J_X, K] -> C[I, K_X]",),
    ),
    Difference(
        "XLA gathers an operand so that the product comes out as wanted; the book exchanges the split of the result",
        "more",
        "same",
        (
            "A[I, J] . B[J, K_X] -> C[I_X, K]",
            "A[I_X, J] . B[J, K] -> C[I, K_X]",
            "A[I, J_X] . B[J, K_X] -> C[I_X, K]",
        ),
    ),
)

CHEAPEST = (
    Difference(
        "an exchange of B's split and a gather of the result cost less than XLA's all-reduce",
        "more",
        "same",
        ("A[I, J] . B[J_X, K] -> C[I, K]",),
    ),
    Difference(
        "an exchange of the operand's split and one of the result's cost less than XLA's gather of the operand",
        "more",
        "same",
        ("A[I, J] . B[J_X, K] -> C[I_X, K]", "A[I, J_X] . B[J, K] -> C[I, K_X]"),
    ),
    Difference(
        "an exchange of the result's split costs less than XLA's gather of an operand",
        "more",
        "same",
        ("A[I, J] . B[J, K_X] -> C[I_X, K]", "A[I_X, J] . B[J, K] -> C[I, K_X]"),
    ),
    Difference(
        "a gather of A and an exchange of the result cost less than XLA's gather of B and exchange of A",
        "more",
        "same",
        ("A[I, J_X] . B[J, K_X] -> C[I_X, K]",),
    ),
)
