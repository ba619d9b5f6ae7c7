"""Where mesh axes come to lie, by rule and by binding."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

from tests.levels import WireLevel, hierarchy_route
from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import INNERMOST, RULE, SOLD, place
from tpsim.fabric.wires import Segment, Slices, Wrap, ranks, ranks_text
from tpsim.quantity.errors import InputError

NODES = (WireLevel("nvlink", "switch", (8,)), WireLevel("network", "switch"))
V5E = (WireLevel("ici", "torus", (16, 16), Wrap(axis=16)), WireLevel("dcn", "switch"))
V5P = (WireLevel("ici", "torus", (16, 20, 28), Wrap(cube=(4, 4, 4))), WireLevel("dcn", "switch"))
PODS = Slices(shapes=((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)))
SOLD_V5E = (WireLevel("ici", "torus", (16, 16), Wrap(axis=16), PODS), WireLevel("dcn", "switch"))
CUBES = Slices(shapes=((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4)), multiple=4)
SOLD_V5P = (WireLevel("ici", "torus", (16, 20, 28), Wrap(cube=(4, 4, 4)), CUBES), WireLevel("dcn", "switch"))


def lines(levels, mesh, binding=None):
    return place(levels, Mesh(mesh), binding).describe()


def alone(levels, mesh, binding=None):
    return place(levels, Mesh(mesh), binding, alone=True)


def test_an_axis_larger_than_the_node_is_split_over_levels():
    assert lines(NODES, {"tensor": 16}) == ["tensor 16 = nvlink 8 x network 2"]


def test_the_minor_axis_lies_innermost_and_the_next_one_takes_what_is_left():
    assert lines(NODES, {"data": 64, "tensor": 4}) == ["data   64 = nvlink 2 x network 32", "tensor 4 = nvlink 4"]


def test_an_axis_of_one_lies_nowhere():
    placement = place(NODES, Mesh({"data": 1, "tensor": 8}))
    assert placement.route(["data"]) == ()
    assert placement.describe() == ["tensor 8 = nvlink 8"]


def test_a_binding_overrides_the_rule_and_no_rule_is_claimed():
    placement = place(NODES, Mesh({"data": 4, "tensor": 8}), {"data": ["network"], "tensor": ["nvlink"]})
    assert placement.describe() == ["data   4 = network 4", "tensor 8 = nvlink 8"]
    assert placement.rule == ""
    assert placement.binding == {"data": ("network",), "tensor": ("nvlink",)}
    assert place(NODES, Mesh({"data": 4})).rule == INNERMOST


def test_the_rule_says_nothing_of_a_torus_where_there_is_none():
    rules = [place(levels, Mesh({"tensor": 8})).rule for levels in (NODES, V5E)]
    assert rules == [INNERMOST, RULE]
    assert "torus" not in INNERMOST


def test_an_axis_that_divides_no_node_leaves_chips_idle():
    assert lines(NODES, {"data": 4, "tensor": 3}) == ["data   4 = nvlink 2 x network 2", "tensor 3 = nvlink 3"]


def test_an_axis_of_v5e_closes_only_at_sixteen():
    assert lines(V5E, {"X": 8, "Y": 4}) == [
        "X 8 = ici.1 8 (line)",
        "Y 4 = ici.0 4 (line)",
        "ici slice 4x8, no closed axis (closes only on an axis of 16)",
    ]
    assert lines(V5E, {"X": 8, "Y": 16})[1:] == [
        "Y 16 = ici.0 16 (ring)",
        "ici slice 16x8, closed: ici.0 (closes only on an axis of 16)",
    ]


def test_axes_of_v5p_close_only_on_whole_cubes():
    assert [one.topology for one in place(V5P, Mesh({"X": 4, "Y": 4, "Z": 4})).route(["X", "Y", "Z"])] == ["ring"] * 3
    assert [one.topology for one in place(V5P, Mesh({"X": 4, "Y": 4, "Z": 2})).route(["X", "Y", "Z"])] == ["line"] * 3


def test_an_axis_takes_several_physical_axes_where_that_closes_rings():
    assert lines(V5P, {"data": 16, "tensor": 4}) == [
        "data   16 = ici.1 4 (ring) x ici.2 4 (ring)",
        "tensor 4 = ici.0 4 (ring)",
        "ici slice 4x4x4, closed: ici.0, ici.1, ici.2 (closes on slices of whole 4x4x4 cubes)",
    ]


def test_an_axis_too_long_for_one_physical_axis_takes_two():
    assert lines(V5E, {"data": 256})[0] == "data 256 = ici.0 16 (ring) x ici.1 16 (ring)"


def test_an_axis_too_large_for_the_slice_goes_on_over_the_next_level():
    assert lines(V5E, {"data": 1024})[0] == "data 1024 = ici.0 16 (ring) x ici.1 16 (ring) x dcn 4"
    # 8192 chips would fit by number, but no 16x20x28 has 8192 in powers of two.
    assert lines(V5P, {"data": 8192})[0].endswith("x dcn 2")


def test_part_of_a_physical_axis_is_a_line_and_a_strided_one_shares_its_links():
    assert lines(V5E, {"data": 64, "tensor": 4}) == [
        "data   64 = ici.0 4 (ring, 4 groups share its links) x ici.1 16 (ring)",
        "tensor 4 = ici.0 4 (line)",
        "ici slice 16x16, closed: ici.0, ici.1 (closes only on an axis of 16)",
    ]


def test_neighbouring_axes_on_one_physical_axis_are_one_stretch_together():
    placement = place(V5E, Mesh({"data": 4, "kv": 2, "rep": 2}))
    assert placement.route(["kv", "rep"]) == (Segment("ici", "ici.0", "line", 4),)
    assert placement.route(["kv"]) == (Segment("ici", "ici.0", "line", 2, 2),)


def test_axes_that_lie_apart_on_one_physical_axis_are_refused():
    placement = place(V5E, Mesh({"a": 2, "b": 2, "c": 2}), {axis: ["ici.0"] for axis in "abc"})
    with pytest.raises(InputError) as error:
        placement.route(["a", "c"])
    assert str(error.value) == (
        "error[no-closed-form]: the mesh axes lie apart on ici.0: no closed form is known for such groups\n"
        "  = bind them to neighbouring places, or to axes of their own"
    )


def test_a_bound_axis_splits_over_its_physical_axes_so_that_rings_close():
    binding = {"X": ["ici.0", "ici.1"], "Y": ["ici.2"]}
    assert lines(V5P, {"X": 16, "Y": 4}, binding)[0] == "X 16 = ici.0 4 (ring) x ici.1 4 (ring)"


def test_a_ring_can_be_read_as_a_line():
    placement = place(V5E, Mesh({"X": 16}), {"X": ["ici.0:line"]})
    assert placement.route(["X"]) == (Segment("ici", "ici.0", "line", 16),)


def test_wraparound_that_the_machine_has_not_is_refused():
    with pytest.raises(InputError) as error:
        place(V5E, Mesh({"X": 4}), {"X": ["ici.0:ring"]})
    assert str(error.value) == (
        "error[no-wraparound]: ici.0:ring: the ends of this axis are not joined in a slice of 4x1\n"
        "  = leave :ring out, or fill an axis that closes\n"
        "  = ici: closes only on an axis of 16"
    )
    place(V5E, Mesh({"X": 16}), {"X": ["ici.0:ring"]})


def test_two_chips_are_a_line_even_where_every_axis_closes():
    always = (WireLevel("ici", "torus", (8, 8), Wrap(always=True)),)
    assert place(always, Mesh({"X": 2})).route(["X"])[0].topology == "line"
    assert place(always, Mesh({"X": 3})).route(["X"])[0].topology == "ring"


def test_a_ring_level_closes_only_when_it_is_full():
    ring = (WireLevel("loop", "ring", (8,)), WireLevel("network", "switch"))
    assert lines(ring, {"X": 8}) == ["X 8 = loop 8 (ring)"]
    assert lines(ring, {"X": 4}) == ["X 4 = loop 4 (line)"]


@pytest.mark.parametrize(
    ("mesh", "binding"),
    [({"X": 2, "Y": 4}, {}), ({"Y": 4}, {}), ({"Y": 4}, {"Y": ["loop:line"]}), ({"Y": 8}, {"Y": ["loop:line"]})],
)
def test_part_of_a_one_way_ring_is_refused(mesh, binding):
    with pytest.raises(InputError, match=r"part of the one-way ring loop is no ring, and no line either"):
        place((WireLevel("loop", "one_way_ring", (8,)),), Mesh(mesh), binding).route(["Y"])


@pytest.mark.parametrize(
    ("mesh", "binding", "message"),
    [
        ({"X": 4}, {"X": ["nvlnk"]}, '"nvlnk" is not a level of the machine\n  = did you mean "nvlink"?'),
        ({"X": 4}, {"Y": ["nvlink"]}, '"Y" is not a mesh axis'),
        (
            {"X": 4},
            {"X": ["nvlink:0"]},
            '"0" is not a shape of an axis\n  = or say how many devices lie there: nvlink:4',
        ),
        ({"X": 4}, {"X": ["nvlink:rong"]}, '"rong" is not a shape of an axis\n  = did you mean "ring"?'),
        (
            {"X": 16},
            {"X": ["nvlink"]},
            "mesh axis X of 16 does not fit on nvlink 8\n  = bind it to nvlink+network, or make it smaller",
        ),
        ({"X": 16}, {"X": ["nvlink", "network:1"]}, "does not fit on nvlink 8 x network 1\n  = make it smaller"),
    ],
)
def test_a_wrong_binding_is_answered_with_the_names_there_are(mesh, binding, message):
    with pytest.raises(InputError) as error:
        place(NODES, Mesh(mesh), binding)
    assert message in str(error.value)


def test_what_is_not_bound_lies_on_what_is_left_of_a_torus_on_whose_axes_others_are_bound():
    """Not on the network between slices, while half of a slice is idle."""
    stages = alone(
        SOLD_V5E, {"pipe": 2, "data": 8, "context": 2}, {"data": ["ici.0:4", "ici.1:2"], "context": ["ici.0"]}
    )
    assert stages.describe()[0] == "pipe    2 = ici.1 2 (line, 2 groups share its links)"
    assert stages.idle == ()
    inner = alone(SOLD_V5E, {"data": 4, "tensor": 4}, {"data": ["ici.0:2", "ici.1:2"]})
    assert {piece.carrier for piece in inner.pieces["tensor"]} <= {"ici.0", "ici.1"}
    assert inner.idle == ()
    line = lines(V5E, {"data": 16, "tensor": 16}, {"data": ["ici.0:4", "ici.1:4"]})
    assert not any("dcn" in text for text in line)


def test_a_mesh_that_forms_no_slice_is_refused():
    with pytest.raises(InputError, match=r"X 17 cannot be laid on ici of 16x16 evenly"):
        place(V5E[:1], Mesh({"X": 17}))


@pytest.mark.parametrize("tensor", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("data", [1, 2, 8, 64])
def test_levels_fill_by_arithmetic_as_they_do_by_rule(tensor, data):
    placement = place(NODES, Mesh({"data": data, "tensor": tensor}))
    for axis, inner, n in (("tensor", 1, tensor), ("data", tensor, data)):
        by_arithmetic = hierarchy_route(NODES, inner, n)
        assert tuple(one for one in by_arithmetic if one.n > 1) == placement.route([axis])


def test_levels_fill_by_arithmetic_for_arrays_and_symbols():
    tensor = np.array([1.0, 4.0, 8.0, 16.0])
    route = hierarchy_route(NODES, tensor, 64 / tensor)
    assert [list(segment.n) for segment in route] == [[8, 2, 1, 1], [8, 8, 8, 4]]
    t, d = sympy.symbols("t d", positive=True, integer=True)
    symbols = hierarchy_route(NODES, t, d)
    assert [one.n.subs({t: 4, d: 16}) for one in symbols] == [2, 8]
    assert ranks(symbols).subs({t: 16, d: 4}) == 4


def test_an_axis_rule_closes_that_length_only_neither_shorter_nor_longer():
    rule = Wrap(axis=16)
    assert [extent for extent in (3, 8, 15, 16, 17, 32) if rule.closes(extent, (extent,))] == [16]


@pytest.mark.parametrize(
    ("chips", "slice_shape"),
    [(4, "2x2"), (8, "4x2"), (16, "4x4"), (32, "8x4"), (64, "8x8"), (128, "16x8"), (256, "16x16")],
)
def test_a_mesh_of_its_own_gets_a_slice_that_is_sold(chips, slice_shape):
    placement = alone(SOLD_V5E, {"data": chips})
    assert placement.remarks[0].startswith(f"ici slice {slice_shape}, ")
    assert placement.idle == ()


def test_an_axis_that_is_looked_at_by_itself_may_lie_in_any_larger_slice():
    assert lines(SOLD_V5E, {"X": 8})[0] == "X 8 = ici.0 8 (line)"
    assert place(SOLD_V5E, Mesh({"X": 8})).rule == RULE
    assert alone(SOLD_V5E, {"X": 8}).describe()[0] == "X 8 = ici.0 4 (line) x ici.1 2 (line)"
    assert alone(SOLD_V5E, {"X": 8}).rule == SOLD
    assert alone(NODES, {"X": 8}).rule == INNERMOST


def test_a_ring_that_no_slice_of_so_many_chips_has_is_not_taken_for_granted():
    assert lines(SOLD_V5E, {"data": 16, "tensor": 4})[0] == "data   16 = ici.1 16 (ring)"
    assert alone(SOLD_V5E, {"data": 16, "tensor": 4}).describe()[-1] == (
        "ici slice 8x8, no closed axis (closes only on an axis of 16)"
    )


def test_chips_that_no_slice_comes_to_leave_some_of_the_smallest_one_idle():
    placement = alone(SOLD_V5E, {"data": 24})
    assert placement.describe() == [
        "data 24 = ici.0 6 (line) x ici.1 4 (line)",
        "ici slice 8x4, no closed axis (closes only on an axis of 16)",
    ]
    assert placement.idle == ("8 of the 32 chips of ici slice 8x4 idle: none is sold as 6x4",)


def test_a_binding_that_no_slice_has_is_kept_and_what_it_leaves_idle_is_said():
    placement = alone(SOLD_V5E, {"data": 16}, {"data": ["ici.0"]})
    assert placement.describe()[0] == "data 16 = ici.0 16 (ring)"
    assert placement.idle == ("112 of the 128 chips of ici slice 16x8 idle: none is sold as 16x1",)


def test_below_a_cube_no_axis_closes_unless_a_ring_is_asked_for():
    assert alone(SOLD_V5P, {"tensor": 4}).remarks[0].startswith("ici slice 2x2x1, no closed axis")
    asked = alone(SOLD_V5P, {"tensor": 4}, {"tensor": ["ici.0:ring"]})
    assert asked.route(["tensor"]) == (Segment("ici", "ici.0", "ring", 4),)
    assert asked.idle == ("60 of the 64 chips of ici slice 4x4x4 idle: none is sold as 4x1x1",)


def test_part_of_an_axis_of_the_slice_is_no_ring_even_where_the_whole_of_it_is_one():
    assert alone(SOLD_V5P, {"data": 6, "tensor": 4, "z": 4}).route(["data"])[0].topology == "line"
    assert alone(SOLD_V5P, {"data": 8, "tensor": 4, "z": 4}).route(["data"])[0].topology == "ring"


def test_more_chips_than_the_largest_slice_go_on_over_several_slices():
    assert alone(SOLD_V5E, {"data": 512}).describe()[0] == "data 512 = ici.0 16 (ring) x ici.1 16 (ring) x dcn 2"


def test_an_axis_too_large_for_its_level_is_told_which_level_it_may_take_too():
    with pytest.raises(InputError) as error:
        place(NODES, Mesh({"data": 4, "tensor": 16}), {"data": "network", "tensor": "nvlink"})
    assert error.value.problems[0].remedy == "bind it to nvlink+network, or make it smaller"


def test_a_mesh_that_no_slice_holds_is_refused_with_those_there_are():
    small = (WireLevel("ici", "torus", (16, 16), Wrap(), Slices(shapes=((2, 2), (4, 4)))),)
    with pytest.raises(InputError) as error:
        alone(small, {"X": 64})
    assert str(error.value) == (
        "error[does-not-fit]: X 64 cannot be laid on ici of 16x16 evenly\n"
        "  = bind the axes to physical axes, or change a size\n"
        "  = slices that are sold: 2x2, 4x4"
    )


def test_slices_are_held_in_any_order_of_their_axes_and_of_whole_multiples_the_least():
    assert list(PODS.around((5, 2), (16, 16))) == [(8, 4), (8, 8), (8, 16), (16, 8), (16, 16)]
    assert list(CUBES.around((2, 1, 3), (16, 20, 28))) == [(2, 2, 4), (2, 4, 4), (4, 2, 4), (4, 4, 4)]
    assert list(CUBES.around((5, 1, 1), (4, 20, 28))) == []
    assert list(Slices().around((5, 3), (16, 16))) == [(5, 3)]


@pytest.mark.parametrize(
    ("mesh", "carriers", "route"),
    [
        ({"X": 16}, ["nvlink:4", "network"], "nvlink 4 x network 4"),
        ({"X": 16}, ["nvlink:1", "network"], "network 16"),
        ({"X": 4}, ["nvlink:4", "network"], "nvlink 4"),
    ],
)
def test_as_many_devices_lie_on_a_level_as_the_user_says(mesh, carriers, route):
    assert ranks_text(place(NODES, Mesh(mesh), {"X": carriers}).route(["X"])) == route


def test_as_many_devices_lie_along_an_axis_as_the_user_says():
    route = place(V5E, Mesh({"X": 16}), {"X": ["ici.0:2", "ici.1:8"]}).route(["X"])
    assert ranks_text(route) == "ici.0 2 (line) x ici.1 8 (line)"


@pytest.mark.parametrize("carriers", [["nvlink:3", "network"], ["nvlink:16", "network"]])
def test_a_number_that_does_not_divide_or_has_no_room_is_refused(carriers):
    with pytest.raises(
        InputError, match=r"mesh axis X of 16, \d+ of them on nvlink, does not fit on nvlink 8"
    ) as error:
        place(NODES, Mesh({"X": 16}), {"X": carriers})
    assert error.value.problems[0].remedy == "lay a number there that divides it, and for which there is room"


@pytest.mark.parametrize(("levels", "n", "there"), [(V5P, 20, "ici.1"), (V5E, 32, "ici.0,ici.1")])
def test_who_named_a_physical_axis_that_is_too_short_is_told_to_name_another(levels, n, there):
    """And not to name one: that is what was done."""
    with pytest.raises(InputError) as error:
        place(levels, Mesh({"X": n}), {"X": ["ici.0"]})
    (problem,) = error.value.problems
    assert problem.remedy == "name another physical axis of it, or one more, or change a size"
    assert place(levels, Mesh({"X": n}), {"X": there.split(",")}).route(["X"])


def test_a_message_goes_round_a_one_way_ring_and_not_back():
    loop = (WireLevel("loop", "one_way_ring", (8,)),)
    stages = place(loop, Mesh({"pipe": 8}))
    assert stages.hop(["pipe"], 2, 3) == stages.hop(["pipe"], 7, 0) == (Segment("loop", "loop", "line", 2),)
    parts = place(loop, Mesh({"pipe": 4}))
    for placement, source, target in ((stages, 3, 2), (stages, 0, 7), (parts, 3, 0)):
        with pytest.raises(InputError, match=f"places {source} and {target} of .* are no neighbours on loop in that"):
            placement.hop(["pipe"], source, target)


@pytest.mark.parametrize("carriers", [["nvlink", "nvlink"], "nvlink:4,nvlink:2", "network,nvlink,nvlink:ring"])
def test_a_carrier_that_is_named_twice_is_refused(carriers):
    """It is a slip for another one: nvlink:4,nvlink:2 had put all eight on nvlink."""
    with pytest.raises(InputError) as error:
        place(NODES, Mesh({"X": 8}), {"X": carriers})
    (problem,) = error.value.problems
    assert (problem.message, problem.remedy) == ("X is laid on nvlink twice", "name each once: nvlink, network")


PARTED = [
    (NODES, (8, 2), ["nvlink:4", "network"]),
    (NODES, (8, 2), ["network:4", "nvlink:4"]),
    (NODES, (8, 2), ["nvlink:1", "network"]),
    (NODES, (8, 2), ["nvlink", "network:2"]),
    (NODES, (4, 3), ["nvlink:6", "network:2"]),
    (NODES, (4, 3), ["nvlink:4", "network:3"]),
    (NODES, (2, 4), ["nvlink", "network"]),
    (V5E, (8, 2), ["ici.0:4", "ici.1:4"]),
    (V5E, (8, 2), ["ici.0:16"]),
    (V5E, (8, 2), ["ici.0:ring"]),
    (V5E, (8, 2), ["ici.0:line"]),
    (V5P, (8, 2), ["ici.0:4", "ici.1:4"]),
]


@pytest.mark.parametrize(("levels", "sizes", "carriers"), PARTED)
def test_parts_of_an_axis_lie_together_as_the_whole_is_bound(levels, sizes, carriers):
    kv, rep = sizes
    whole = place(levels, Mesh({"T": kv * rep}), {"T": carriers}).route(["T"])
    parents = {"kv": "T", "rep": "T"}
    parted = place(levels, Mesh({"kv": kv, "rep": rep}), {"T": carriers}, parents=parents)
    assert parted.route(["kv", "rep"]) == whole


def test_the_minor_part_of_an_axis_lies_innermost():
    bound = {"T": ["network:4", "nvlink:4"]}
    parted = place(NODES, Mesh({"kv": 8, "rep": 2}), bound, parents={"kv": "T", "rep": "T"})
    routes = [ranks_text(parted.route([axis])) for axis in ("kv", "rep")]
    assert routes == ["nvlink 2 x network 4", "nvlink 2"]


@pytest.mark.parametrize("carriers", [["nvlink:3", "network"], ["nvlink:4", "network:8"], ["nvlink:8"]])
def test_numbers_that_do_not_come_to_the_whole_are_refused_of_parts_too(carriers):
    parents = {"kv": "T", "rep": "T"}
    with pytest.raises(InputError, match="does not fit on nvlink"):
        place(NODES, Mesh({"kv": 8, "rep": 2}), {"T": carriers}, parents=parents)


def test_axes_that_are_not_parts_of_one_are_no_ring_together():
    with pytest.raises(InputError, match="no-wraparound"):
        place(V5E, Mesh({"kv": 8, "rep": 2}), {"kv": ["ici.0:ring"], "rep": ["ici.0:ring"]})
