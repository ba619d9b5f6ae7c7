"""Products of two sharded arrays, with the type that is wanted of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st

from tests.generators.shardings import OWED, shardings
from tpsim.algebra.contract import Contraction
from tpsim.algebra.sharding import Sharding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.algebra.mesh import Mesh

Role = Literal["contracted", "left", "right", "batch", "left summed", "right summed"]
ROLES: Mapping[Role, str] = {
    "contracted": "AB",
    "left": "AC",
    "right": "BC",
    "batch": "ABC",
    "left summed": "A",
    "right summed": "B",
}
"""Where a dim of a product A . B -> C stands."""
DIMS = ("I", "J", "K", "L")


@st.composite
def _dims(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """The dims of A, B and C, each in an order of its own: up to four, each in any role."""
    roles = {dim: ROLES[draw(st.sampled_from(tuple(ROLES)))] for dim in DIMS[: draw(st.integers(2, len(DIMS)))]}
    return {name: tuple(draw(st.permutations([dim for dim in roles if name in roles[dim]]))) for name in "ABC"}


@st.composite
def products(draw: st.DrawFn, mesh: Mesh) -> Contraction:
    """A product that the algebra allows, with or without a type wanted of the result, which may go on owing.

    An operand owes over an axis only where the other one neither owes nor is split; then nothing has to be refused.

    >>> from hypothesis import given, settings
    >>> from tpsim.algebra.legality import owed_after
    >>> from tpsim.algebra.mesh import Mesh
    >>> @settings(max_examples=5)
    ... @given(products(Mesh({"X": 2, "Y": 3})))
    ... def law(ask):
    ...     assert owed_after("multiply", ask.operands) == ask.left[1].owes | ask.right[1].owes
    >>> law()
    """
    dims = draw(_dims())
    owing: dict[str, list[str]] = {"A": [], "B": [], "": []}
    for axis in mesh.order:
        owing[draw(st.sampled_from(["", "", "A", "B"]))].append(axis)
    left, right = (
        _split(draw, mesh, dims[name], owing[""]).owing((axis, "sum") for axis in owing[name]) for name in "AB"
    )
    wanted = None
    if draw(st.booleans()):
        kept = [axis for axis in (*owing["A"], *owing["B"]) if draw(st.booleans())]
        others = [axis for axis in mesh.order if axis not in kept]
        wanted = _split(draw, mesh, dims["C"], others).owing((axis, "sum") for axis in kept)
    return Contraction(("A", left), ("B", right), "C", dims["C"], wanted)


@st.composite
def operands(draw: st.DrawFn, mesh: Mesh) -> Contraction:
    """A product of operands of any two types, whatever they owe, with or without a type wanted, which may owe any sums.

    Some operands must be settled first, and some results cannot be had.

    >>> from hypothesis import given, settings
    >>> from tpsim.algebra.mesh import Mesh
    >>> @settings(max_examples=5)
    ... @given(operands(Mesh({"X": 2, "Y": 3})))
    ... def law(ask):
    ...     assert ask.wanted is None or ("X", "max") not in ask.wanted.owes
    >>> law()
    """
    dims = draw(_dims())
    left, right = (draw(shardings(mesh, dims[name], owes=OWED)) for name in "AB")
    wanted = draw(st.one_of(st.none(), shardings(mesh, dims["C"], owes=("sum",))))
    return Contraction(("A", left), ("B", right), "C", dims["C"], wanted)


def _split(draw: st.DrawFn, mesh: Mesh, dims: tuple[str, ...], axes: list[str]) -> Sharding:
    """A complete type over these axes only."""
    if not axes:
        return Sharding(dims, ((),) * len(dims))
    return draw(shardings(mesh, dims, owes=(), axes=axes))
