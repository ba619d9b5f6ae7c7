"""Meshes, and sizes of dims that split evenly over them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tpsim.algebra.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@st.composite
def meshes(draw: st.DrawFn, *, axes: Sequence[str] = ("X", "Y", "Z"), longest: int = 4, devices: int = 16) -> Mesh:
    """A mesh of the first one or more of `axes`, each of 1 to `longest` devices, at most `devices` in all.

    >>> from hypothesis import find
    >>> find(meshes(), lambda mesh: mesh.devices == 12 and len(mesh.order) == 3).devices
    12
    """
    sizes: dict[str, int] = {}
    for axis in axes[: draw(st.integers(1, len(axes)))]:
        room = min(longest, devices // prod(sizes.values()))
        sizes[axis] = draw(st.sampled_from([*range(2, room + 1), 1]))  # the simplest axis has two devices, not one
    return Mesh(sizes)


@st.composite
def extents(draw: st.DrawFn, mesh: Mesh, dims: Sequence[str], *, most: int = 2) -> Mapping[str, int]:
    """Elements of each dim: 1 to `most` per device, so that any dim splits evenly over all axes together.

    >>> from hypothesis import find
    >>> find(extents(Mesh({"X": 2, "Y": 3}), ("I", "J")), lambda sizes: sizes["J"] > 6)
    {'I': 6, 'J': 12}
    """
    return {dim: mesh.devices * draw(st.integers(1, most)) for dim in dims}
