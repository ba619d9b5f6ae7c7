"""The array type: local shapes, printing, and what it refuses."""

from __future__ import annotations

import pytest

from tpsim.algebra.sharding import Sharding, ShardingError, subscript


def test_a_type_prints_itself_in_one_line():
    type_ = Sharding(("I", "J"), (("X", "Y"), ()), frozenset({("Z", "sum")}))
    assert (str(type_), str(type_.owing({("Z", "max")}))) == ("[I_XY, J]{U_Z}", "[I_XY, J]{M_Z}")


def test_a_sum_and_a_max_cannot_be_owed_together():
    with pytest.raises(ShardingError) as error:
        Sharding(("I",), ((),), frozenset({("Z", "sum"), ("W", "max")}))
    assert "owes a sum and a max, which do not commute" in str(error.value)


def test_long_axis_names_are_set_in_braces():
    assert (subscript("I", ("dp", "tp")), subscript("I", ("X", "Y")), subscript("I", ())) == ("I_{dp,tp}", "I_XY", "I")


def test_an_axis_may_be_used_once_only():
    with pytest.raises(ShardingError) as error:
        Sharding(("I", "J"), (("X",), ("X",)))
    assert str(error.value) == ("mesh axis X is used twice in [I_X, J_X]; an axis may shard one dim or carry one sum")


def test_dims_and_axes_must_fit_together():
    with pytest.raises(ShardingError) as error:
        Sharding(("I", "J"), (("X",),))
    assert str(error.value) == "dims ('I', 'J') and their axes (('X',),) do not fit together"


def test_an_owed_array_is_held_whole_by_each_device_that_owes():
    type_ = Sharding(("I", "J"), (("X",), ()), frozenset({("Y", "sum")}))
    assert type_.local_elements({"I": 8, "J": 6}, {"X": 4, "Y": 2}) == 12
    assert type_.local("I", {"I": 8, "J": 6}, {"X": 4, "Y": 2}) == 2


def test_dims_can_be_renamed_and_axes_changed():
    type_ = Sharding(("s", "h"), (("X",), ()))
    assert str(type_.renamed({"s": "t"})) == "[t_X, h]"
    assert str(type_.with_axes("h", ("Y",))) == "[s_X, h_Y]"
