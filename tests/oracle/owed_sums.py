"""Thirty sums owed over two axes: how XLA settles them, against the book's plan and the cheapest."""

from __future__ import annotations

from tests.oracle.differences import Difference


def over(axes: str, *wanted: str) -> tuple[str, ...]:
    """The products whose sum is owed over these axes and wanted so."""
    return tuple(f"A[I, J_{axes}] . B[J_{axes}, K] -> C[{c}]" for c in wanted)


SPLIT = ("I_X, K_Y", "I_Y, K_X")

BOOK = (
    Difference(
        "XLA slices an operand over the axis that idles; the book multiplies it whole and slices the result",
        "same",
        "less",
        (*over("X", "I_Y, K", "I, K_Y", *SPLIT), *over("Y", "I_X, K", "I, K_X", *SPLIT)),
    ),
    Difference(
        "XLA sums the whole array, then slices over the axis that idles; the book slices first",
        "more",
        "same",
        (*over("X", "I_YX, K"), *over("Y", "I_XY, K", "I, K_XY")),
    ),
    Difference(
        "XLA halves the product over half of the idle axis, all-reduces what it should scatter, and permutes",
        "more",
        "less",
        over("Y", "I_Y, K", "I, K_Y"),
    ),
)

CHEAPEST = (
    Difference(
        "an operand sliced over the idle axis makes the sum smaller: ours scatters that, then gathers or exchanges",
        "more",
        "more",
        (
            *over("X", "I, K", "I_X, K", "I, K_X", "I_XY, K", "I, K_XY"),
            *over("Y", "I_Y, K", "I, K_Y", "I_YX, K"),
        ),
    ),
    Difference(
        "as before, and the sum comes out as wanted: XLA sums the whole array, then slices",
        "more",
        "more",
        (*over("X", "I_YX, K"), *over("Y", "I_XY, K", "I, K_XY")),
    ),
    Difference(
        "as before; scatter and gather move what XLA's all-reduce moves, of a quarter of the work",
        "same",
        "more",
        over("Y", "I, K"),
    ),
)
