"""A change of axes: what `machine` claims of the links against blocks that really travel, and against small pieces."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import prod

import pytest

from tests.reference.stream import makespan
from tests.reference.wires import CHUNK, level, placed, start
from tpsim.algebra.moves import Move
from tpsim.algebra.sharding import Sharding
from tpsim.fabric.wires import Segment
from tpsim.machine import profile, timing
from tpsim.machine.algorithms import STREAMED
from tpsim.machine.permutes import changing
from tpsim.quantity.errors import InputError
from tpsim.reference import permutes
from tpsim.reference.collectives import Stretch
from tpsim.reference.linkload import read


def changed(have, want):
    """A permute of rows."""
    before, after = (Sharding(("I", "J"), (tuple(axes), ())) for axes in (have, want))
    moved = [at for at, (old, new) in enumerate(zip(have, want, strict=True)) if old != new]
    return Move("permute", tuple(have[moved[0] : moved[-1] + 1]), before, after)


def on_devices(devices, placement, change):
    """The blocks after a change, what they must be, and what was counted on the way."""
    rows = CHUNK * placement.mesh.devices
    before, wanted = start(devices, change, rows, 1)
    after, sent = devices.play(change, before, [Stretch(placement.route(change.axes), "permute")], "A")
    return (
        [after[at].tolist() for at in devices.grid.devices],
        [wanted[at].tolist() for at in devices.grid.devices],
        sent.in_bytes("f32"),
    )


def claimed(placement, change, V):
    """What `machine` claims: of all wires, of each level the busiest link, and of the busiest uplink of a node."""
    parts = _groups(placement.route(change.axes))
    found = changing(parts, V, placement.change(change))
    levels = [part[0].level for part in parts]
    totals = {
        name: max(one.link_total for one, at in zip(found.parts, levels, strict=True) if at == name) for name in levels
    }
    return found.whole, totals, max(found.uplinks)


def _groups(route):
    """Each segment a part of its own, inner ones first."""
    return [(segment,) for segment in route]


NODES = (level("switch", 4, name="in"), level("switch", name="out"))
TREE = (level("switch", 2, name="in"), level("switch", 2, name="mid"), level("switch", name="out"))
SHARED = (level("switch", 4, name="in"), level("switch", name="out", shared=True))
LEAVES = (
    level("switch", 2, name="in"),
    level("switch", 2, name="mid", shared=True),
    level("switch", name="out", shared=True),
)
SITES = {
    "line": ({"X": 2, "Y": 4}, [level("line", 8)], None),
    "odd line": ({"X": 3, "Y": 5}, [level("line", 15)], None),
    "part of a line": ({"W": 2, "X": 3, "Y": 2}, [level("line", 12)], None),
    "ring": ({"X": 2, "Y": 4}, [level("ring", 8)], None),
    "odd ring": ({"X": 3, "Y": 5}, [level("ring", 15)], None),
    "part of a ring": ({"W": 2, "X": 2, "Y": 4}, [level("ring", 16)], None),
    "one-way ring": ({"X": 2, "Y": 3}, [level("one_way_ring", 6)], None),
    "two lines": ({"X": 2, "Y": 2}, [level("torus", 2, 2)], {"X": ["wires.0"], "Y": ["wires.1"]}),
    "line and ring": ({"X": 2, "Y": 4}, [level("torus", 4, 2)], {"X": ["wires.1"], "Y": ["wires.0"]}),
    "two rings": ({"X": 4, "Y": 4}, [level("torus", 4, 4)], {"X": ["wires.0"], "Y": ["wires.1"]}),
    "unlike rings": ({"X": 3, "Y": 5}, [level("torus", 3, 5)], {"X": ["wires.0"], "Y": ["wires.1"]}),
    "an axis over two rings": ({"X": 8, "Y": 2}, [level("torus", 4, 4)], None),
    "three rings": (
        {"X": 3, "Y": 4, "Z": 3},
        [level("torus", 4, 3, 3)],
        {"X": ["wires.2"], "Y": ["wires.0"], "Z": ["wires.1"]},
    ),
    "shared links": (
        {"X": 3, "W": 2, "Y": 4},
        [level("torus", 6, 4)],
        {"X": ["wires.0"], "W": ["wires.0"], "Y": ["wires.1"]},
    ),
    "groups between": ({"X": 2, "Y": 3, "W": 2}, [level("ring", 12)], None),
    "switch": ({"X": 2, "Y": 4}, [level("switch", 8)], None),
    "mesh": ({"X": 2, "Y": 3}, [level("mesh", 6)], None),
    "host": ({"X": 2, "Y": 4}, [level("host", 8)], None),
    "groups of a host": ({"W": 2, "X": 2, "Y": 2}, [level("host", 8)], None),
    "two nodes": ({"X": 2, "Y": 4}, list(NODES), None),
    "nodes by both axes": ({"X": 4, "Y": 6}, list(NODES), None),
    "a tree of three levels": ({"X": 2, "Y": 2, "Z": 3}, list(TREE), None),
    "nodes that share uplinks": ({"X": 2, "Y": 4}, list(SHARED), None),
    "nodes by both axes that share uplinks": ({"X": 4, "Y": 6}, list(SHARED), None),
    "groups that share uplinks": ({"X": 2, "Y": 4, "W": 2}, list(SHARED), None),
    "groups beside nodes that share uplinks": ({"W": 2, "X": 2, "Y": 4}, list(SHARED), None),
    "leaves that share uplinks, and nodes": ({"X": 2, "Y": 2, "Z": 3}, list(LEAVES), None),
    "cables in nodes": ({"X": 2, "Y": 4}, [level("mesh", 4, name="in"), level("switch", name="out")], None),
    "hosts in nodes": ({"X": 3, "Y": 4}, [level("host", 4, name="in"), level("switch", name="out")], None),
    "slices": ({"X": 3, "Y": 4}, [level("torus", 4, name="in"), level("switch", name="out")], None),
    "rings of rings": ({"X": 4, "Y": 4}, [level("torus", 4, name="in"), level("ring", 4, name="out")], None),
    "nodes on a ring": ({"X": 4, "Y": 2}, [level("switch", 2, name="in"), level("ring", 4, name="out")], None),
}


@pytest.mark.parametrize(("mesh", "levels", "binding"), SITES.values(), ids=SITES)
def test_every_change_of_axes_loads_the_links_of_real_devices_as_claimed(mesh, levels, binding):
    every_change_is_as_claimed(mesh, levels, binding)


def every_change_is_as_claimed(mesh, levels, binding):
    """Whatever the order that all axes but W come in."""
    devices, placement = placed(mesh, *levels, binding=binding)
    axes = [axis for axis in mesh if axis != "W"]
    for want in permutations(axes):
        if list(want) != axes:
            change = changed(axes, want)
            after, wanted, call = on_devices(devices, placement, change)
            assert after == wanted
            V = 4 * CHUNK * placement.mesh.devices * placement.mesh.size(*change.axes) // placement.mesh.size(*axes)
            whole, totals, uplink = claimed(placement, change, V)
            assert call.uplink == uplink, want
            assert {name: call.levels[name].total for name in totals} == totals, want
            assert Fraction(sum(map(int, call.sent)), len(call.sent)) == whole.carried, want
            if all(segment.stride == 1 or segment.topology == "host" for segment in placement.route(change.axes)):
                assert call.steps == whole.steps, want


def test_on_a_ring_of_eight_each_link_of_the_busiest_carries_two_blocks():
    """Counted by hand: forward 1 to 4, 3 to 5 and 5 to 6, back 2 to 1, 4 to 2 and 6 to 3."""
    _, placement = placed({"X": 2, "Y": 4}, level("ring", 8))
    change = changed(["X", "Y"], ["Y", "X"])
    assert placement.change(change).targets() == [0, 4, 1, 5, 2, 6, 3, 7]
    whole, *_ = claimed(placement, change, 8)
    assert (whole.steps, whole.link_total, whole.carried) == (3, 2, Fraction(3 + 1 + 2 + 2 + 1 + 3, 8))


def test_half_of_a_block_goes_each_way_round_where_both_are_as_long():
    """Round a ring of 4 only 1 and 2 change places where two axes do; 0 and 2 would meet their like on either way."""
    _, placement = placed({"X": 2, "Y": 2}, level("ring", 4))
    whole, *_ = claimed(placement, changed(["X", "Y"], ["Y", "X"]), 4)
    assert (whole.steps, whole.link_total) == (1, 1)
    plan = permutes.routed([Segment("wires", "wires", "ring", 4)], [2, 1, 0, 3])
    assert sorted((send.source, send.way, send.size) for send in plan.steps[0]) == [
        (0, -1, 1),
        (0, 1, 1),
        (2, -1, 1),
        (2, 1, 1),
    ]


def transposed(rows, columns):
    """Where the blocks of rows go when the columns come first."""
    return [block % columns * rows + block // columns for block in range(rows * columns)]


STREAMS = [
    ((("line", 8),), 2),
    ((("line", 8),), 4),
    ((("line", 16),), 4),
    ((("ring", 8),), 2),
    ((("ring", 12),), 3),
    ((("ring", 16),), 4),
    ((("line", 4), ("line", 4)), 4),
    ((("ring", 4), ("ring", 8)), 4),
    ((("line", 2), ("ring", 8)), 2),
    ((("ring", 3), ("ring", 4), ("ring", 5)), 3),
    ((("line", 2), ("line", 3), ("ring", 4)), 6),
    ((("ring", 4), ("switch", 3)), 4),
]


@pytest.mark.parametrize(("axes", "rows"), STREAMS)
def test_a_change_of_axes_in_ever_more_pieces_tends_to_its_busiest_link(axes, rows):
    assert "permute" in STREAMED
    wires = tuple(Segment("wires", f"wires.{at}", topology, n) for at, (topology, n) in enumerate(axes))
    plan = permutes.routed(wires, transposed(rows, prod(n for _, n in axes) // rows))
    counted = read(plan, "permute", wires)
    for pieces in (1, 4, 16):
        longer = makespan(plan, wires, pieces) / counted.link_total - 1
        assert 0 <= longer <= Fraction(counted.steps, pieces)


def test_in_whole_blocks_whose_steps_all_wait_for_a_change_of_axes_takes_longer():
    counted = read(
        permutes.routed([Segment("wires", "wires", "line", 8)], transposed(2, 4)),
        "permute",
        [Segment("wires", "wires", "line", 8)],
    )
    assert (counted.link_total, counted.link_serial) == (Fraction(2, 8), Fraction(3, 8))


# Seconds ---------------------------------------------------------------------------------------------------------


def seconds(name, mesh, have, want, V, **options):
    from tpsim.algebra.mesh import Mesh
    from tpsim.fabric.placement import place

    machine = profile.load(name)
    placement, change = place(machine.levels, Mesh(mesh)), changed(have, want)
    return timing.time(machine, placement.route(change.axes), "permute", V, change=placement.change(change), **options)


def test_seconds_are_hops_and_the_busiest_link_of_the_slowest_level():
    slices = seconds("tpu-v4", {"X": 2, "Y": 4}, "XY", "YX", 8 * 2**24)
    v4 = profile.load("tpu-v4")
    assert slices.bandwidth_s == pytest.approx(slices.link_total / v4.levels[0].link.bandwidth.value)
    nodes = seconds("dgx-h100", {"X": 4, "Y": 8}, "XY", "YX", 32 * 2**24)
    network = profile.load("dgx-h100").level("network")
    assert (nodes.steps, nodes.link_total) == (1, 2**24), "straight through the switch that joins both"
    assert nodes.bandwidth_s >= 2**24 / network.link.bandwidth.value


def test_the_book_takes_the_longest_way_or_the_busiest_link():
    few, many = (seconds("tpu-v5e", {"X": 2, "Y": 4}, "XY", "YX", V, cost_model="book") for V in (8, 8 * 2**24))
    assert few.time_s == few.latency_s == few.steps * 1e-6
    assert many.time_s == many.bandwidth_s == 2 * 2**24 / 45e9


def test_where_sizes_are_symbols_or_arrays_a_change_of_axes_is_refused_but_on_one_switch():
    import sympy

    n = sympy.Symbol("n", positive=True)
    machine, (_, placement) = profile.load("tpu-v5e"), placed({"X": 2, "Y": 4}, level("ring", 8, name="ici"))
    change = placement.change(changed("XY", "YX"))
    with pytest.raises(InputError) as error:
        timing.time(machine, (Segment("ici", "ici", "ring", n),), "permute", 8, change=change)
    assert str(error.value) == (
        "error[no-closed-form]: a change of axes on ici n (ring) has no closed form in the numbers of devices\n"
        "  = give numbers: its blocks are summed one by one"
    )
    on_switch = timing.time(
        profile.load("book-h100"), (Segment("nvlink", "nvlink", "switch", n),), "permute", 8 * n, change=change
    )
    assert on_switch.link_total.subs(n, 8) == 8
