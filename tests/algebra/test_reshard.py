"""The ways between types: textbook paths, and laws that every path keeps."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given

from tests.algebra.simulated import DIM, SIZES, journeys, run_moves
from tests.arrays import every_move, parse_array
from tpsim.algebra.moves import wire
from tpsim.algebra.reshard import Routes, book_path
from tpsim.algebra.sharding import ShardingError

ORDER = tuple(SIZES)


def wire_elements(move):
    return wire(move.kind, move.logical_elements(dict.fromkeys(move.before.dims, DIM), SIZES), move.ranks(SIZES))


def path(text):
    before, after = (parse_array(side).type for side in text.split("->"))
    return [_spoken(move) for move in book_path(before, after, ORDER)]


def _spoken(move):
    dims = ("".join(dim for dim, _ in cut) for cut in (move.gathered, move.scattered))
    return " ".join(filter(None, (move.kind, "".join(move.axes), *dims)))


@pytest.mark.parametrize(
    ("journey", "expected"),
    [
        ("A[I_X, J] -> A[I_X, J]", []),
        ("A[I_X, J] -> A[I, J]", ["all_gather X I"]),
        ("A[I, J] -> A[I_X, J]", ["slice X I"]),
        ("A[I_X, J] -> A[I, J_X]", ["all_to_all X I J"]),
        ("A[I]{U_X} -> A[I]", ["all_reduce X"]),
        ("A[I]{U_X} -> A[I_X]", ["reduce_scatter X I"]),
        ("A[I]{M_X} -> A[I]", ["all_reduce X"]),
        ("A[I]{M_X} -> A[I_X]", ["all_reduce X", "slice X I"]),
        ("A[I]{U_XY} -> A[I]", ["all_reduce XY"]),
        ("A[I]{U_XY} -> A[I_YX]", ["reduce_scatter YX I"]),
        ("A[I]{U_XY} -> A[I_X]", ["reduce_scatter X I", "all_reduce Y"]),
        ("A[I]{U_XY} -> A[I]{U_Y}", ["all_reduce X"]),
        ("A[I_XY] -> A[I]", ["all_gather XY I"]),
        ("A[I] -> A[I_XY]", ["slice XY I"]),
        ("A[I_XYZ] -> A[I_X]", ["all_gather YZ I"]),
        ("A[I_XY, J] -> A[I, J_XY]", ["all_to_all XY I J"]),
        ("A[I_Y]{U_X} -> A[I_YX]", ["reduce_scatter X I"]),
        ("A[I_Y]{U_X} -> A[I_XY]", ["all_gather Y I", "reduce_scatter X I", "slice Y I"]),
        ("A[I_XY, J] -> A[I_Y, J_X]", ["all_gather Y I", "all_to_all X I J", "slice Y I"]),
        ("A[I_X, J_Y] -> A[I_Y, J_X]", ["all_gather X I", "all_to_all Y J I", "slice X J"]),
        ("A[I_X, J_Y] -> A[I, J]", ["all_gather XY IJ"]),
        ("A[J_Y, I_XZ] -> A[J, I_X]", ["all_gather YZ JI"]),
        ("A[I, J]{U_XY} -> A[I_X, J_Y]", ["reduce_scatter XY IJ"]),
        ("A[I, J] -> A[I_X, J_Y]", ["slice XY IJ"]),
        ("A[I, J_Z]{U_XY} -> A[I, J_ZY]{U_X}", ["reduce_scatter Y J"]),
    ],
)
def test_the_book_path_of_a_journey(journey, expected):
    assert path(journey) == expected


def test_a_type_that_owes_more_cannot_be_reached():
    with pytest.raises(ShardingError) as error:
        path("A[I_X] -> A[I]{U_X}")
    assert str(error.value) == "[I_X] cannot become [I]{U_X}: no move makes an array owe over X"


def test_a_type_with_other_dims_cannot_be_reached():
    with pytest.raises(ShardingError) as error:
        path("A[I] -> A[J]")
    assert str(error.value) == "[I] cannot become [J]: a move keeps the dims and their order"


@given(journey=journeys())
def test_the_book_path_ends_at_the_wanted_type_and_its_moves_join(journey):
    src, dst = journey
    moves = book_path(src, dst, ORDER)
    assert [src, *(move.after for move in moves)] == [*(move.before for move in moves), dst]


@given(journey=journeys())
def test_the_book_path_never_permutes_and_never_repeats_a_kind_in_a_row(journey):
    kinds = [move.kind for move in book_path(*journey, ORDER)]
    assert "permute" not in kinds
    assert all(a != b for a, b in pairwise(kinds) if a != "all_to_all")


@given(journey=journeys())
def test_the_book_path_carries_every_block_to_its_place(journey):
    assert run_moves(book_path(*journey, ORDER), journey[0])


@given(journey=journeys())
def test_the_cheapest_path_carries_every_block_to_its_place(journey):
    assert run_moves(Routes(ORDER, wire_elements).path(*journey), journey[0])


@given(journey=journeys())
def test_the_cheapest_path_is_never_dearer_than_the_book(journey):
    book, cheap = book_path(*journey, ORDER), Routes(ORDER, wire_elements).path(*journey)
    assert sum(map(wire_elements, cheap)) <= sum(map(wire_elements, book))


@given(journey=journeys())
def test_every_legal_move_does_what_its_types_say(journey):
    src, _ = journey
    for move in every_move(src, ORDER):
        assert run_moves([move], src), move


def test_a_permute_makes_the_gather_of_a_major_axis_cheap():
    before, after = parse_array("A[I_XY]").type, parse_array("A[I_Y]").type
    moves = Routes(ORDER[:2], wire_elements).path(before, after)
    assert [_spoken(move) for move in moves] == ["permute XY", "all_gather X I"]


def test_two_axes_change_places_in_one_permute():
    before, after = parse_array("A[I_XY]").type, parse_array("A[I_YX]").type
    assert [_spoken(move) for move in Routes(ORDER, wire_elements).path(before, after)] == ["permute XY"]


def test_an_idle_axis_is_used_only_when_it_may_take_part():
    before, after = parse_array("A[I]{U_Y}").type, parse_array("A[I]").type
    alone = Routes(("Y",), wire_elements).path(before, after)
    helped = Routes(("X", "Y"), wire_elements).path(before, after)
    assert [_spoken(move) for move in alone] == ["all_reduce Y"]
    assert helped[0].kind == "slice"
    assert sum(map(wire_elements, helped)) < sum(map(wire_elements, alone))


def test_a_move_of_infinite_price_is_never_made():
    before, after = parse_array("A[I_X, J]").type, parse_array("A[I, J_X]").type

    def price(move):
        return inf if move.kind == "all_to_all" else wire_elements(move)

    assert [_spoken(move) for move in Routes(ORDER, price).path(before, after)] == ["all_gather X I", "slice X J"]


def test_no_way_of_finite_price_is_refused():
    before, after = parse_array("A[I_X]").type, parse_array("A[I]").type
    with pytest.raises(ShardingError) as error:
        Routes(ORDER, lambda _: inf).path(before, after)
    assert str(error.value) == "[I_X] cannot become [I]: every way needs a split that does not come out even"
