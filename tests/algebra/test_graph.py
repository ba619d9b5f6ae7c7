"""The graph of array types: moves out of a type and into it are the same moves."""

from __future__ import annotations

import pytest

from tests.algebra.exhaustive import one_move, types
from tests.arrays import every_move, parse_array
from tpsim.algebra.meetings import loosely
from tpsim.algebra.moves import Move, entering, leaving
from tpsim.algebra.sharding import Sharding

AXES = ("X", "Y", "Z")


@pytest.mark.parametrize("dims", ["I", "IJ"])
def test_every_pair_of_types_that_one_move_joins_is_found_and_no_other(dims):
    every = types(dims, AXES)
    for old in every:
        found = {(one.kind, frozenset(one.axes), one.after) for one in every_move(old, AXES)}
        known = {(new, one_move(old, new)) for new in every if one_move(old, new)}
        wanted = {(kind, frozenset(axes), new) for new, (kind, axes) in known}
        # Several slices are as free as one: the graph has those of one axis.
        assert found == {one for one in wanted if one[0] != "slice" or len(one[1]) == 1}


@pytest.mark.parametrize("loose", [False, True])
def test_the_moves_into_a_type_are_those_that_leave_others_for_it(loose):
    every = set(map(loosely, types("IJ", AXES)) if loose else types("IJ", AXES))
    out = {
        (old, kind, frozenset(axes) if kind != "permute" else None, Sharding(old.dims, on, owes))
        for old in every
        for kind, axes, on, owes in leaving(old, AXES, loose=loose)
    }
    into = {
        (Sharding(new.dims, on, owes), kind, frozenset(axes) if kind != "permute" else None, new)
        for new in every
        for kind, axes, on, owes in entering(new, AXES, loose=loose)
    }
    assert out == {one for one in into if all(kind == "sum" for _, kind in one[0].owes)}


def test_a_max_is_settled_whole_and_a_sum_in_parts_too():
    kinds = [{one.kind for one in every_move(parse_array(text).type, "X")} for text in ("A[I]{M_X}", "A[I]{U_X}")]
    assert kinds == [{"all_reduce"}, {"all_reduce", "reduce_scatter"}]


def test_a_move_says_what_it_gathers_and_scatters_dim_by_dim():
    before, after = (parse_array(text).type for text in ("A[I_XY, J_Z]", "A[I_X, J]"))
    gather, scatter = (
        Move(kind, ("Y", "Z"), *ends) for kind, ends in (("all_gather", (before, after)), ("slice", (after, before)))
    )
    assert (gather.gathered, gather.scattered) == ((("I", ("Y",)), ("J", ("Z",))), ())
    assert (scatter.gathered, scatter.scattered) == ((), (("I", ("Y",)), ("J", ("Z",))))
