"""The notation: what is read, how it is printed again, and the exact text of every refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tests.algebra.simulated import types
from tests.arrays import parse_array
from tpsim.algebra.notation import Conversion, NotationError, Product, Single, parse_expression
from tpsim.algebra.sharding import Sharding

MESH = ("X", "Y")


def refusal(text, mesh_axes=None):
    with pytest.raises(NotationError) as error:
        parse_expression(text, mesh_axes)
    return str(error.value)


@given(type_=types())
def test_what_is_printed_is_read_back_the_same(type_):
    assert parse_array(f"A{type_}").type == type_
    assert parse_array(f"A{type_}", ("X", "Y", "Z")).type == type_


@given(type_=types(axes=("dp", "tp", "tp_rep")))
def test_long_axis_names_are_printed_in_braces_and_read_back(type_):
    assert parse_array(f"A{type_}", ("dp", "tp", "tp_rep")).type == type_


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("A[I_X, J_Y]", (("X",), ("Y",))),
        ("A[ I_XY ,J ]", (("X", "Y"), ())),
        ("A[I_{X,Y},J]", (("X", "Y"), ())),
        ("A[I_{dp,tp}]", (("dp", "tp"),)),
        ("A[I_{ dp , tp }]", (("dp", "tp"),)),
        ("A[I_X1Y2]", (("X1", "Y2"),)),
        ("A[]", ()),
    ],
)
def test_without_a_mesh_each_letter_is_an_axis_and_braces_hold_long_names(text, on):
    assert parse_array(text).type.on == on


@pytest.mark.parametrize(
    ("text", "mesh", "axes"),
    [
        ("A[I_data]", ("data", "tensor"), ("data",)),
        ("A[I_datatensor]", ("data", "tensor"), ("data", "tensor")),
        ("A[I_XY]", ("X", "Y"), ("X", "Y")),
        ("A[I_XY]", ("X", "Y", "XY"), ("XY",)),
        ("A[I_tensor_kv]", ("tensor_kv", "tensor_rep"), ("tensor_kv",)),
        ("A[I_x]", ("X", "Y"), ("X",)),
        ("A[I_xy]", ("X", "Y"), ("X", "Y")),
        ("A[I_x]", ("X", "x"), ("x",)),
        ("A[I_{Data}]", ("data",), ("data",)),
        ("A[I_{XY}]", ("X", "Y"), ("X", "Y")),
        ("A[I_{xy}]", ("X", "Y"), ("X", "Y")),
        ("A[I_{XY,Z}]", ("X", "Y", "Z"), ("X", "Y", "Z")),
        ("A[I_{XY}]", ("X", "Y", "XY"), ("XY",)),
    ],
)
def test_a_known_mesh_cuts_the_subscript_into_its_axes(text, mesh, axes):
    assert parse_array(text, mesh).type.on == (axes,)


def test_a_dim_may_bear_the_name_of_the_array_or_of_an_axis():
    array = parse_array("X[X_X, D_Y]", MESH)
    assert (array.name, array.type.dims, array.type.on) == ("X", ("X", "D"), (("X",), ("Y",)))


def test_owed_sums_and_maxima_are_read_from_the_braces():
    assert parse_array("C[I, K]{U_XY}").type.owes == {("X", "sum"), ("Y", "sum")}
    assert parse_array("C[I]{M_XY}").type.owes == {("X", "max"), ("Y", "max")}
    assert parse_array("C[I]{U_{XY}}", MESH).type.owes == {("X", "sum"), ("Y", "sum")}


@pytest.mark.parametrize("sign", [".", "@", "*", "·", " . ", " @ "])
def test_every_sign_of_a_product_is_read(sign):
    read = parse_expression(f"A[I_X, J]{sign}B[J, K] -> C[I_X, K]")
    assert isinstance(read, Product)
    assert (str(read.left), str(read.right), str(read.out)) == ("A[I_X, J]", "B[J, K]", "C[I_X, K]")


@pytest.mark.parametrize("sign", ["*_J", "._J", "*_{J}"])
def test_a_products_sign_may_name_what_it_sums_over_as_the_book_does(sign):
    assert parse_expression(f"A[I, J] {sign} B[J, K]") == replace(
        parse_expression("A[I, J] . B[J, K]"), text=f"A[I, J] {sign} B[J, K]"
    )


@pytest.mark.parametrize(
    ("text", "message", "marked", "remedy"),
    [
        ("A[I,J]*_I B[J]", "the sum is over J, not over I", "_I", "drop the subscript, or rename the dims"),
        ("A[I]*_I B[I]->C[I]", "no dim is summed over, not over I", "_I", "drop the subscript, or rename the dims"),
        (
            "AllGather_X([I_X])",
            "AllGather_X(...) is no array",
            "AllGather_X",
            "collectives are derived: write what becomes what, A[I_X, J] -> A[I, J]",
        ),
    ],
)
def test_what_the_book_writes_and_tpsim_does_not_is_refused(text, message, marked, remedy):
    carets = " " * text.index(marked) + "^" * len(marked)
    assert refusal(text) == f"{message}\n  {text}\n  {carets}\n{remedy}"


def test_a_product_may_leave_its_result_open():
    read = parse_expression("A[I, J_X] . B[J_X, K]")
    assert isinstance(read, Product)
    assert read.out is None


def test_a_reshard_and_a_single_array_are_told_apart():
    assert isinstance(parse_expression("A[I_X, J] -> A[I, J_X]"), Conversion)
    assert isinstance(parse_expression("A[I_X, J]"), Single)


def test_an_array_knows_where_its_parts_stand():
    spans = parse_array("A[I_X, J_Y]").spans
    assert spans["array", "A"] == (0, 1)
    assert spans["dim", "J"] == (7, 8)
    assert spans["axis", "Y"] == (9, 10)


def test_an_array_compares_by_name_and_type():
    assert parse_array("A[I_X]") == parse_array("A[ I_X ]")
    assert parse_array("A[I_X]").type == Sharding(("I",), (("X",),))


def test_an_axis_used_twice_is_shown_with_a_caret():
    with pytest.raises(NotationError) as error:
        parse_array("A[I_X, J_X]")
    assert str(error.value) == (
        "mesh axis X is used twice in A\n"
        "  A[I_X, J_X]\n"
        "           ^\n"
        "an axis may shard one dimension or carry one sum; drop one X"
    )


def test_an_axis_that_shards_and_is_owed_is_used_twice_as_well():
    assert refusal("A[I] . B[I_X, K]{U_X}") == (
        "mesh axis X is used twice in B\n"
        "  A[I] . B[I_X, K]{U_X}\n"
        "                     ^\n"
        "an axis may shard one dimension or carry one sum; drop one X"
    )


def test_an_axis_that_the_mesh_lacks_is_shown_with_those_it_has():
    assert refusal("A[I_X, J_Q]", MESH) == (
        "Q is not an axis of the mesh\n  A[I_X, J_Q]\n           ^\nthe mesh has the axes X, Y"
    )


def test_a_mistyped_axis_is_suggested():
    assert refusal("A[I_tensr]", ("data", "tensor")) == (
        "tensr is not an axis of the mesh\n"
        "  A[I_tensr]\n"
        "      ^^^^^\n"
        'did you mean "tensor"? the mesh has the axes data, tensor'
    )


def test_a_dim_of_the_result_must_come_from_an_operand():
    assert refusal("A[I,J] . B[J,K] -> C[I,L]") == (
        "dim L of C is in neither A nor B\n"
        "  A[I,J] . B[J,K] -> C[I,L]\n"
        "                         ^\n"
        "the result can have I, J, K"
    )


def test_a_reshard_keeps_the_dims():
    assert refusal("A[I_X, J] -> A[I]") == (
        "A[I, J] cannot become A[I]\n"
        "  A[I_X, J] -> A[I]\n"
        "               ^\n"
        "a reshard keeps the dims and their order: write A[I, J] with the axes wanted"
    )


@pytest.mark.parametrize(
    ("text", "message", "caret", "remedy"),
    [
        ("", "an array's name is missing", 0, "an array is written A[I_X, J]"),
        ("[I]", "an array's name is missing", 0, "an array is written A[I_X, J]"),
        ("A", "A has no dims", 1, "an array is written A[I_X, J]"),
        ("A[I_X, J", "a comma or ] is missing in A", 8, "write [I_X, J]"),
        (
            "A[I,,J]",
            "a dim of A is missing",
            4,
            "dims are names with a comma between, [I_X, J]; their sizes go beside, I=1024,J=4096",
        ),
        ("A[I_, J]", "the axes are missing after _", 4, "write I_X, or I without the _"),
        ("A[I, I]", "dim I occurs twice in A", 5, "give the two dims names of their own"),
        ("A[I]{V_X}", "V is not something to owe", 5, "write {U_X} for a sum owed over X, {M_X} for a max"),
        (
            "A[I]{U_X,M_Y}",
            "A owes a sum and a max",
            9,
            "they do not commute, so the array would depend on which is paid first; settle one before",
        ),
        ("A[I]{U}", "U is not something to owe", 5, "write {U_X} for a sum owed over X, {M_X} for a max"),
        ("A[I]{U_X", "a comma or } is missing in A", 8, "write {U_X}"),
        ("A[I].B[I].C[I]", "a product has two operands", 10, "write it as two products, one after the other"),
        ("A[I].B[I]->C[]{M_X}", "a product never owes a max", 11, "drop the M: a product owes sums only"),
        ("A[I_9]", "9 is not a row of axes", 4, "an axis begins with a letter; write I_XY or I_{dp,tp}"),
        (
            "A[I]]",
            "an expression ends here, but the text goes on",
            4,
            "a product is A[I, J] . B[J, K] -> C[I, K], a reshard A[I_X, J] -> A[I, J_X]",
        ),
    ],
)
def test_a_mistake_is_answered_with_place_and_remedy(text, message, caret, remedy):
    assert refusal(text) == f"{message}\n  {text}\n  {' ' * caret}^\n{remedy}"


def test_a_mistake_is_the_users_and_not_a_bug():
    assert NotationError.exit_code == 2
