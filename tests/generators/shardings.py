"""Types of arrays, pairs of types with a way between them, and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from tpsim.algebra.sharding import OwedKind, Sharding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tpsim.algebra.mesh import Mesh

OWED: tuple[OwedKind, ...] = ("sum", "max")
UNUSED, OWING = object(), object()
"""Homes of an axis beside the dims: every device holds the same, or something is owed over it."""


@st.composite
def shardings(
    draw: st.DrawFn, mesh: Mesh, dims: Sequence[str], *, owes: Sequence[OwedKind] = OWED, axes: Sequence[str] = ()
) -> Sharding:
    """Any type of an array with `dims`: every axis on a dim, in any order there, unused, or owing.

    owes  what may be owed; one array owes only sums or only maxima
    axes  those that may be used; the whole mesh if none are named

    >>> from hypothesis import find
    >>> from tpsim.algebra.mesh import Mesh
    >>> mesh = Mesh({"X": 2, "Y": 2})
    >>> str(find(shardings(mesh, ("I",)), lambda type_: type_.on == (("Y", "X"),)))
    '[I_YX]'
    >>> str(find(shardings(mesh, ("I",)), lambda type_: ("Y", "max") in type_.owes))
    '[I]{M_Y}'
    """
    homes = (UNUSED, *dims, *([OWING] if owes else []))
    on: dict[Any, tuple[str, ...]] = dict.fromkeys(homes, ())
    for axis in draw(st.permutations(axes or mesh.order)):
        on[draw(st.sampled_from(homes))] += (axis,)
    kind = draw(st.sampled_from(owes)) if on.get(OWING) else "sum"
    owed = frozenset((axis, kind) for axis in on.get(OWING, ()))
    return Sharding(tuple(dims), tuple(on[dim] for dim in dims), owed)


@st.composite
def reshards(
    draw: st.DrawFn, mesh: Mesh, dims: Sequence[str], *, owes: Sequence[OwedKind] = OWED
) -> tuple[Sharding, Sharding]:
    """A type and one that moves can reach from it: it owes some of the same, or nothing.

    >>> from hypothesis import find
    >>> from tpsim.algebra.mesh import Mesh
    >>> ways = reshards(Mesh({"X": 2, "Y": 2}), ("I", "J"))
    >>> before, after = find(ways, lambda pair: pair[0].on == ((), ("X",)) and pair[1].on == (("X",), ()))
    >>> f"A{before} -> A{after}"
    'A[I, J_X] -> A[I_X, J]'
    """
    before = draw(shardings(mesh, dims, owes=owes))
    after = draw(shardings(mesh, dims, owes=()))
    kept = [owed for owed in sorted(before.owes) if owed[0] not in after.sharded_axes and draw(st.booleans())]
    return before, after.owing(kept)


@st.composite
def arrays(draw: st.DrawFn, shape: Sequence[int]) -> NDArray[np.float64]:
    """Values of an array: small whole numbers, so that sums of products are exact in whatever order they are taken.

    >>> from hypothesis import find
    >>> find(arrays((2, 3)), lambda array: array.any()).shape
    (2, 3)
    """
    seed = draw(st.integers(0, 2**16))
    return np.random.default_rng(seed).integers(-9, 10, tuple(shape)).astype(np.float64)
