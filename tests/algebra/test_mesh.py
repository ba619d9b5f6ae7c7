"""The mesh: sizes, order, and axes split into factors."""

from __future__ import annotations

import pytest

from tpsim.algebra.mesh import Mesh


def test_a_mesh_counts_its_devices():
    mesh = Mesh({"X": 4, "Y": 2})
    assert (mesh.devices, mesh.size("Y"), mesh.size(), mesh.order) == (8, 2, 1, ("X", "Y"))


def test_an_axis_splits_into_factors_at_its_place():
    assert dict(Mesh({"D": 4, "T": 16, "P": 2}).split("T", {"kv": 8, "rep": 2}).axes) == {
        "D": 4,
        "kv": 8,
        "rep": 2,
        "P": 2,
    }


def test_factors_that_do_not_multiply_to_the_axis_are_refused():
    with pytest.raises(ValueError, match="does not multiply to axis T of 16") as error:
        Mesh({"T": 16}).split("T", {"kv": 8, "rep": 4})
    assert str(error.value) == "{'kv': 8, 'rep': 4} does not multiply to axis T of 16"
