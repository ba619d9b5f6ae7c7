"""Sixteen changes of type over two axes: XLA's collectives against the book's path and the cheapest."""

from __future__ import annotations

from tests.oracle.differences import Difference
from tests.oracle.questions import SWAP

BOOK = (
    Difference(
        "XLA permutes the shards first; the book never permutes, and gathers the axes that stand in the way",
        "less",
        "same",
        (
            "A[I_XY, J] -> A[I_Y, J]",
            "A[I_YX, J] -> A[I_X, J]",
            "A[I_XY, J] -> A[I_YX, J]",
            "A[I_XY, J] -> A[I_Y, J_X]",
            "A[I_X, J] -> A[I_Y, J]",
            "A[I_X, J] -> A[I_YX, J]",
            "A[I_X, J_Y] -> A[I_Y, J_X]",
        ),
    ),
    Difference(
        "XLA gathers the whole array, then slices; the book slices over the idle axis first and gathers half",
        "more",
        "same",
        ("A[I_X, J] -> A[I, J_Y]",),
    ),
    Difference(
        "XLA gathers one dim after the other, ours both in one call: the bytes are the same",
        "same",
        "same",
        ("A[I_X, J_Y] -> A[I, J]",),
    ),
)

CHEAPEST = (
    Difference(
        "one exchange over both axes and one back cost less than XLA's exchange over parts of them and permute",
        "more",
        "same",
        ("A[I_XY, J] -> A[I_Y, J_X]",),
    ),
    Difference(
        "a free slice over the idle axis halves the gather; XLA gathers the whole array, then slices",
        "more",
        "same",
        ("A[I_X, J] -> A[I, J_Y]",),
    ),
    Difference(
        "XLA permutes whole blocks and gathers over half of X, ours permutes half blocks and gathers over X",
        "same",
        "same",
        ("A[I_X, J] -> A[I_Y, J]",),
    ),
    Difference(
        "XLA gathers one dim after the other, ours both in one call: the bytes are the same",
        "same",
        "same",
        ("A[I_X, J_Y] -> A[I, J]",),
    ),
    Difference(
        "XLA permutes blocks between devices whatever dims they are split on; a permute of ours stays within one dim",
        "less",
        "same",
        (SWAP.expression,),
    ),
)
