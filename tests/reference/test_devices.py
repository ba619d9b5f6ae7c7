"""Collectives played on simulated devices: what every device ends with, and what it sent for that."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from tests.reference.wires import level, move, parts, placed, start
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import Move, wire
from tpsim.algebra.sharding import Sharding
from tpsim.quantity.errors import InputError
from tpsim.reference.collectives import FAMILIES, Stretch, algorithms, schedule
from tpsim.reference.linkload import load
from tpsim.reference.network import Network

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
SIZES = (2, 3, 4, 5, 8)


def played(devices, placement, change, *names, rows=None, columns=None, dtype="f64", plan=None):
    """One move of a random array: blocks after it, those that types ask for, and the call."""
    n = devices.grid.mesh.size(*change.axes)
    before, wanted = start(devices, change, rows or 12 * n, columns or 2 * n)
    after, sent = devices.play(change, before, parts(placement, change.axes, *names), "A", plan=plan)
    return after, wanted, sent.in_bytes(dtype)


def equal(after, wanted):
    assert after.keys() == wanted.keys()
    for device, block in wanted.items():
        np.testing.assert_allclose(after[device], block, rtol=1e-12, atol=1e-12, err_msg=str(device))


# Values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("topology", list(FAMILIES))
def test_every_algorithm_of_one_axis_gives_what_types_ask_for(topology, n):
    devices, placement = placed({"X": n}, level(topology, n))
    for kind, owed in (*product(KINDS[1:3], ("sum", "max")), ("all_gather", "sum"), ("all_to_all", "sum")):
        for name in algorithms(kind, placement.route(["X"])):
            equal(*played(devices, placement, move(kind, ("X",), owed), name)[:2])


TORI = {
    "3x4": ({"X": 3, "Y": 4}, (3, 4)),
    "4x2": ({"X": 4, "Y": 2}, (4, 2)),
    "2x3x4": ({"X": 2, "Y": 3, "Z": 4}, (2, 3, 4)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["rotated", "in-turn"])
@pytest.mark.parametrize("torus", TORI)
def test_every_algorithm_of_a_torus_gives_what_types_ask_for(torus, name, kind):
    mesh, shape = TORI[torus]
    binding = {axis: [f"wires.{at}"] for at, axis in enumerate(mesh)}
    devices, placement = placed(mesh, level("torus", *shape), binding=binding)
    equal(*played(devices, placement, move(kind, tuple(mesh)), name)[:2])


NODES = (level("switch", 4, name="port"), level("switch", name="card"))
CABLED = (level("mesh", 4, name="cable"), level("switch", name="card"))
HOSTS = (level("host", 4, name="slot"), level("switch", name="card"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mesh", [{"X": 12}, {"X": 3, "Y": 8}])
@pytest.mark.parametrize("levels", [NODES, CABLED, HOSTS], ids=["ports", "cables", "hosts"])
def test_two_levels_give_what_types_ask_for_in_turn_and_at_once(levels, mesh, kind):
    devices, placement = placed(mesh, *levels)
    inner, outer = route = placement.route(tuple(mesh))
    half = "all_gather" if kind == "all_reduce" else kind
    inside, outside = algorithms(half, [inner]), algorithms(kind, [outer])
    for names in (*_each_once(inside, outside), *([name] for name in algorithms(kind, route))):
        equal(*played(devices, placement, move(kind, tuple(mesh)), *names)[:2])


def _each_once(inside, outside):
    """Pairs in which every algorithm of either level stands: what runs on one level knows nothing of the other."""
    most = max(len(inside), len(outside))
    return [(inside[at % len(inside)], outside[at % len(outside)]) for at in range(most)]


@pytest.mark.parametrize("kind", KINDS)
def test_three_levels_in_turn_give_what_types_ask_for_and_load_each_as_little_as_they_can(kind):
    """What reaches a level is cut by the devices inside it."""
    levels = [level("line", 2, name="pair"), level("switch", 3, name="node"), level("switch", name="out")]
    devices, placement = placed({"X": 12}, *levels)
    names = [algorithms(kind, [segment])[0] for segment in placement.route(["X"])]
    after, wanted, call = played(devices, placement, move(kind, ("X",)), *names)
    equal(after, wanted)
    V, halves = 8 * 144 * 24, 2 if kind == "all_reduce" else 1
    least = {"pair": V // 2, "node": V // 2 * 2 // 3, "out": V // 6 // 2}
    if kind != "all_to_all":
        assert {name: one.total for name, one in call.levels.items()} == {
            name: halves * one for name, one in least.items()
        }


@pytest.mark.parametrize("kind", KINDS)
def test_two_axes_on_one_ring_are_one_ring(kind):
    devices, placement = placed({"X": 2, "Y": 4}, level("ring", 8))
    name = algorithms(kind, placement.route(["X", "Y"]))[0]
    equal(*played(devices, placement, move(kind, ("X", "Y")), name)[:2])
    equal(*played(devices, placement, move(kind, ("Y", "X")), name)[:2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", ["X", "Y", "Z"])
def test_every_axis_of_a_slice_over_a_switch_gives_what_types_ask_for_in_all_its_groups(axis, kind):
    devices, placement = placed({"X": 3, "Y": 2, "Z": 4}, level("torus", 8, name="ici"), level("switch", name="dcn"))
    names = [algorithms(kind, [segment])[0] for segment in placement.route([axis])]
    equal(*played(devices, placement, move(kind, (axis,)), *names, rows=48, columns=24)[:2])


@pytest.mark.parametrize("elements", [1, 3, 7, 10])
@pytest.mark.parametrize("name", ["ring", "tree", "in-switch", "doubling"])
def test_an_array_that_does_not_divide_is_reduced_all_the_same(name, elements):
    devices, placement = placed({"X": 4}, level("switch", 4))
    after, wanted, call = played(devices, placement, move("all_reduce", ("X",)), name, rows=1, columns=elements)
    equal(after, wanted)
    assert int(call.injected.sum()) > 0


# Bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "each"), [("f64", 8), ("f32", 4), ("bf16", 2), ("fp8", 1)])
def test_values_are_float64_and_bytes_those_of_the_declared_dtype(dtype, each):
    devices, placement = placed({"X": 4}, level("ring", 4))
    after, _, call = played(devices, placement, move("all_gather", ("X",)), "ring", rows=16, columns=8, dtype=dtype)
    assert after[0,].dtype == np.float64
    assert list(call.injected) == [96 * each] * 4
    assert list(call.sent) == list(call.received) == [96 * each] * 4
    assert list(call.messages) == [4] * 4
    assert (call.steps, call.link_total, call.link_serial) == (2, 48 * each, 48 * each)


def test_an_unknown_dtype_is_refused():
    devices, placement = placed({"X": 2}, level("ring", 2))
    with pytest.raises(InputError, match="bf17"):
        played(devices, placement, move("all_gather", ("X",)), "ring", dtype="bf17")


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("topology", list(FAMILIES))
def test_devices_count_what_the_schedule_says_to_the_byte(topology, n):
    devices, placement = placed({"X": n}, level(topology, n))
    for kind in KINDS:
        for name in algorithms(kind, placement.route(["X"])):
            way = parts(placement, ("X",), name)
            rows, columns = 8 * n, 5 * n * schedule(kind, tuple(way)).units
            call = played(devices, placement, move(kind, ("X",)), name, rows=rows, columns=columns)[2]
            said = load(kind, way, 8 * rows * columns)
            found = (call.steps, call.link_total, call.link_serial, sum(call.injected), sum(call.sent))
            assert found == (said.steps, said.link_total, said.link_serial, n * said.wire, n * said.carried)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("mesh", "levels", "names"),
    [
        ({"X": 6}, [level("torus", 3, 2)], ["rotated"]),
        ({"X": 12}, [level("torus", 4, 3)], ["in-turn"]),
        ({"X": 6}, [level("switch", 6)], ["ring"]),
        ({"X": 12}, NODES, ["ring", "ring"]),
        ({"X": 3, "Y": 2}, [level("ring", 6)], ["ring"]),
        ({"X": 12}, CABLED, ["ring", "ring"]),
        ({"X": 3, "Y": 2}, [level("mesh", 6)], ["ring"]),
        ({"X": 3, "Y": 2}, [level("host", 6)], ["ring"]),
        ({"X": 2, "Y": 2}, [level("host", 4)], ["ring"]),
    ],
    ids=[
        *("torus, rotated", "torus, in turn", "one level", "two levels", "strided"),
        *("cables and cards", "cables", "three through a host", "pairs through a host"),
    ],
)
def test_devices_count_what_schedules_of_several_axes_say_to_the_byte(mesh, levels, names, kind):
    devices, placement = placed(mesh, *levels)
    route = placement.route(["X"])
    if names[0] == "ring" and kind == "all_to_all":
        names = [algorithms(kind, [segment])[0] for segment in route]
    way = parts(placement, ("X",), *names)
    n, units = devices.grid.mesh.size("X"), schedule(kind, tuple(way)).units
    rows, columns = n, n * units
    call = played(devices, placement, move(kind, ("X",)), *names, rows=rows, columns=columns)[2]
    said = load(kind, way, 8 * rows * columns)
    found = (call.steps, call.link_total, call.link_serial, sum(call.injected), sum(call.sent))
    everyone = devices.grid.mesh.devices
    assert found == (said.steps, said.link_total, said.link_serial, everyone * said.wire, everyone * said.carried)
    for name, one in call.levels.items():
        assert (one.total, one.serial) == (said.levels[name].total, said.levels[name].serial)


def test_messages_that_are_only_passed_on_are_sent_but_not_injected():
    devices, placement = placed({"X": 8}, level("ring", 8))
    call = played(devices, placement, move("all_to_all", ("X",)), "shortest", rows=64, columns=8)[2]
    V = 8 * 64 * 8
    assert list(call.injected) == [wire("all_to_all", V, 8)] * 8
    assert list(call.sent) == [V // 4] * 8


def test_a_slice_and_a_group_of_one_send_nothing():
    devices, placement = placed({"X": 4, "Y": 1}, level("ring", 4))
    whole, rows = Sharding(("I", "J"), ((), ())), Sharding(("I", "J"), (("X",), ()))
    before = {device: np.ones((8, 2)) for device in devices.grid.devices}
    blocks, call = devices.play(Move("slice", ("X",), whole, rows), before, [], "A")
    assert blocks[3, 0].shape == (2, 2)
    assert (call.steps, int(call.sent.sum()), call.link_total) == (0, 0, 0)
    _, alone = devices.play(move("all_reduce", ("Y",)), before, parts(placement, ("Y",), "ring"), "A")
    assert (alone.steps, int(alone.sent.sum())) == (0, 0)


# Wrong schedules -------------------------------------------------------------------------------------------------


def ring_of_four(kind):
    devices, placement = placed({"X": 4}, level("ring", 4))
    return devices, placement, schedule(kind, tuple(parts(placement, ("X",), "ring")))


def without(plan, step, send):
    """The schedule less one message."""
    steps = [list(sends) for sends in plan.steps]
    del steps[step][send]
    return replace(plan, steps=tuple(map(tuple, steps)))


@pytest.mark.parametrize("step", [0, 1])
def test_a_gather_that_drops_a_message_names_the_array_and_the_device(step):
    devices, placement, plan = ring_of_four("all_gather")
    with pytest.raises(ValueError, match=r"A: device \(1,\) was never sent a part of its block"):
        played(devices, placement, move("all_gather", ("X",)), "ring", plan=without(plan, step, 0))


def test_a_reduction_that_drops_a_message_gives_a_wrong_sum():
    devices, placement, plan = ring_of_four("reduce_scatter")
    for step, send in ((0, 0), (1, 3)):
        after, wanted, _ = played(
            devices, placement, move("reduce_scatter", ("X",)), "ring", plan=without(plan, step, send)
        )
        assert any(not np.allclose(after[device], wanted[device]) for device in wanted)


def test_a_reduction_that_adds_a_message_twice_gives_a_wrong_sum_and_a_right_maximum():
    devices, placement, plan = ring_of_four("reduce_scatter")
    twice = replace(plan, steps=(plan.steps[0] + plan.steps[0][:1], *plan.steps[1:]))
    after, wanted, _ = played(devices, placement, move("reduce_scatter", ("X",)), "ring", plan=twice)
    assert any(not np.allclose(after[device], wanted[device]) for device in wanted)
    equal(*played(devices, placement, move("reduce_scatter", ("X",), "max"), "ring", plan=twice)[:2])


def test_a_send_to_a_device_that_is_not_beside_is_no_hop():
    devices, placement, plan = ring_of_four("all_gather")
    astray = plan.steps[0][0]._replace(target=2)
    far = replace(plan, steps=((astray, *plan.steps[0][1:]), *plan.steps[1:]))
    with pytest.raises(ValueError, match="rank 2 is not beside rank 0"):
        played(devices, placement, move("all_reduce", ("X",)), "ring", plan=far)


def test_a_line_has_no_way_beyond_its_end():
    devices, placement = placed({"X": 3}, level("line", 3))
    ring = schedule("all_gather", (Stretch(placed({"X": 3}, level("ring", 3))[1].route(["X"]), "ring"),))
    with pytest.raises(ValueError, match="wires ends before rank 2"):
        played(devices, placement, move("all_gather", ("X",)), "line", plan=ring)


# The table: when is an all-to-all exactly a quarter of an all-gather? ---------------------------------------------


def busiest(topology, n, kind, name, elements=None):
    """Link bytes in lock-step, as a share of V: V/w is a time where w is one link in one direction."""
    devices, placement = placed({"X": n}, level(topology, n))
    rows, columns = 4 * n, elements or n
    call = played(devices, placement, move(kind, ("X",)), name, rows=rows, columns=columns)[2]
    return Fraction(call.link_serial, 8 * rows * columns)


@pytest.mark.parametrize("n", [4, 8, 16])
def test_on_a_two_way_ring_of_even_n_with_the_antipodal_chunk_split_it_is_a_quarter_of_the_ideal(n):
    exchange, gather = busiest("ring", n, "all_to_all", "shortest"), busiest("ring", n, "all_gather", "ring")
    assert exchange == Fraction(1, 4) / 2  # of V/W, where W is both directions
    assert exchange / gather == Fraction(n, 4 * (n - 1))


def test_at_4_8_and_16_the_true_ratios_are_a_third_two_sevenths_and_four_fifteenths():
    ratios = [
        busiest("ring", n, "all_to_all", "shortest") / busiest("ring", n, "all_gather", "ring") for n in (4, 8, 16)
    ]
    assert ratios == [Fraction(1, 3), Fraction(2, 7), Fraction(4, 15)]


@pytest.mark.parametrize("n", [3, 5, 7, 9])
def test_on_a_two_way_ring_of_odd_n_it_is_just_under_a_quarter(n):
    exchange, gather = busiest("ring", n, "all_to_all", "shortest"), busiest("ring", n, "all_gather", "ring")
    assert exchange == Fraction(n * n - 1, 4 * n * n) / 2
    assert exchange / gather == Fraction(n + 1, 4 * n)


@pytest.mark.parametrize("n", [4, 8, 16])
def test_with_the_antipodal_chunk_one_way_it_is_more_than_a_quarter(n):
    assert busiest("ring", n, "all_to_all", "shortest-unsplit") == (Fraction(1, 4) + Fraction(1, 2 * n)) / 2


def test_with_the_antipodal_chunk_one_way_the_true_ratio_is_a_half_at_4_and_three_tenths_at_16():
    whole = {n: busiest("ring", n, "all_to_all", "shortest-unsplit") for n in (4, 16)}
    ratios = [whole[n] / busiest("ring", n, "all_gather", "ring") for n in (4, 16)]
    assert ratios == [Fraction(1, 2), Fraction(3, 10)]


@pytest.mark.parametrize("n", [3, 4, 8])
def test_on_a_one_way_ring_it_is_exactly_a_half(n):
    exchange, gather = (
        busiest("one_way_ring", n, "all_to_all", "ring"),
        busiest("one_way_ring", n, "all_gather", "ring"),
    )
    assert exchange == Fraction(n - 1, 2 * n)
    assert exchange / gather == Fraction(1, 2)


@pytest.mark.parametrize("n", [4, 8])
def test_a_line_takes_exactly_twice_the_time_of_a_ring_for_both_so_the_ratio_stays(n):
    exchange, gather = busiest("line", n, "all_to_all", "farthest-first"), busiest("line", n, "all_gather", "line")
    assert exchange == Fraction(1, 4) == 2 * busiest("ring", n, "all_to_all", "shortest")
    assert gather == 2 * busiest("ring", n, "all_gather", "ring")


@pytest.mark.parametrize("shape", [(4, 4), (2, 4), (4, 8), (2, 3, 4)])
def test_on_a_torus_the_longest_axis_counts_and_it_is_a_quarter_for_one_axis_only(shape):
    names = "XYZ"[: len(shape)]
    binding = {axis: [f"wires.{at}"] for at, axis in enumerate(names)}
    devices, placement = placed(dict(zip(names, shape, strict=True)), level("torus", *shape), binding=binding)
    n = devices.grid.mesh.devices
    rows, columns = 4 * n, 3 * n  # so that every half and every third of a chunk is whole
    call = played(devices, placement, move("all_to_all", tuple(names)), "rotated", rows=rows, columns=columns)[2]
    assert Fraction(call.link_total, 8 * rows * columns) == Fraction(max(shape), 4 * n) / 2


@pytest.mark.parametrize("n", [2, 4, 8])
def test_through_a_crossbar_it_is_exactly_one_nth(n):
    exchange, gather = busiest("switch", n, "all_to_all", "pairwise"), busiest("switch", n, "all_gather", "ring")
    assert exchange == Fraction(n - 1, n * n)
    assert exchange / gather == Fraction(1, n)


# Several axes, and groups that share links -------------------------------------------------------------------------


def test_a_gather_over_two_axes_of_a_torus_uses_all_four_links_of_every_device():
    devices, placement = placed({"X": 4, "Y": 4}, level("torus", 4, 4), binding={"X": ["wires.0"], "Y": ["wires.1"]})
    one = played(devices, placement, move("all_gather", ("X",)), "ring", rows=64, columns=8)[2]
    both = played(devices, placement, move("all_gather", ("X", "Y")), "rotated", rows=64, columns=8)[2]
    V = 8 * 64 * 8
    assert one.link_serial == V * 3 // (2 * 4)
    assert both.link_serial == V * 15 // (4 * 16)
    assert set(both.levels["wires"].links.values()) == {both.link_total}
    assert len(both.levels["wires"].links) == 4 * 16


def test_gathering_the_minor_axis_leaves_standard_blocks_and_gathering_the_major_one_does_not():
    """``A[I_XY] -> A[I_Y]``: after a plain gather over X device y holds the strided blocks y, y+2, ..."""
    devices, placement = placed({"X": 2, "Y": 2}, level("torus", 2, 2), binding={"X": ["wires.0"], "Y": ["wires.1"]})
    both, minor, major = (Sharding(("I",), (axes,)) for axes in (("X", "Y"), ("Y",), ("X",)))
    before = devices.grid.placed(np.arange(8.0), both, {"I": 8})
    ring = parts(placement, ("X",), "line")
    strided, _ = devices.play(Move("all_gather", ("X",), both, minor), before, ring, "A")
    assert list(strided[0, 0]) == [0, 1, 4, 5]
    kept, _ = devices.play(Move("all_gather", ("Y",), both, major), before, parts(placement, ("Y",), "line"), "A")
    assert list(kept[0, 0]) == [0, 1, 2, 3]


def test_a_permute_first_makes_the_major_axis_the_minor_one():
    devices, placement = placed({"X": 2, "Y": 2}, level("torus", 2, 2), binding={"X": ["wires.0"], "Y": ["wires.1"]})
    swap = move("permute", ("X", "Y"))
    before, wanted = start(devices, swap, 8, 2)
    after, call = devices.play(swap, before, parts(placement, ("X", "Y"), "permute"), "A")
    equal(after, wanted)
    V = 8 * 2
    assert list(call.injected) == [0, V // 4, V // 4, 0], "devices on the diagonal keep theirs"
    assert (call.steps, call.link_total) == (2, V // 4)
    gather = Move("all_gather", ("X",), swap.after, Sharding(("I", "J"), (("Y",), ())))
    rows, _ = devices.play(gather, after, parts(placement, ("X",), "line"), "A")
    whole = np.concatenate([before[device] for device in devices.grid.devices])
    for device in devices.grid.devices:
        np.testing.assert_array_equal(rows[device], np.split(whole, 2)[device[1]])


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_interleaved_groups_of_one_ring_share_its_links(n, groups):
    """The minor axis lies on neighbours; the major one's groups reach over them."""
    devices, placement = placed({"X": n, "Y": groups}, level("ring", n * groups))
    rows, columns = 4 * n, 2
    call = played(devices, placement, move("all_gather", ("X",)), "ring", rows=rows, columns=columns)[2]
    V = 8 * rows * columns
    assert (call.link_total, call.link_serial) == (groups * V * (n - 1) // (2 * n),) * 2
    assert call.steps == groups * (n // 2)
    assert len(set(call.levels["wires"].links.values())) == 1
    assert list(call.injected) == [wire("all_gather", V, n)] * (n * groups)
    assert list(call.sent) == [groups * wire("all_gather", V, n)] * (n * groups)


def test_groups_of_a_line_on_part_of_a_ring_do_not_meet():
    devices, placement = placed({"X": 2, "Y": 4}, level("ring", 8))
    call = played(devices, placement, move("all_gather", ("Y",)), "line", rows=16, columns=2)[2]
    crossing = {("wires", "+", 3), ("wires", "+", 7), ("wires", "-", 0), ("wires", "-", 4)}
    assert crossing.isdisjoint(call.levels["wires"].links)
    assert call.link_total == 8 * 16 * 2 * 3 // 4


def test_segments_that_do_not_make_up_the_axes_are_refused():
    devices, placement = placed({"X": 2, "Y": 4}, level("ring", 8))
    with pytest.raises(ValueError, match="do not make up mesh axes"):
        devices.network.members(("X",), placement.route(["X", "Y"]))


def test_every_mesh_axis_is_a_ring_of_its_own_without_a_machine():
    network = Network.rings(Mesh({"X": 3, "Y": 1, "Z": 2}))
    assert set(network.lanes) == {"X", "Z"}
    for name, lane in network.lanes.items():
        there_and_back = lane.next[-1][lane.next[1]]
        assert list(there_and_back) == list(range(6)), name


def test_steps_follow_one_another_along_the_ring():
    """What a device passes on in a step is what it got in the one before."""
    plan = schedule("all_gather", tuple(parts(placed({"X": 5}, level("ring", 5))[1], ("X",), "two-rings")))
    for before, after in pairwise(plan.steps):
        got = {(send.target, send.pieces, send.way) for send in before}
        assert {(send.source, send.pieces, send.way) for send in after} == got
