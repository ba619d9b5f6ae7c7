"""Every closed form of `machine` against the same algorithm's messages, counted link by link."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod

import pytest

from tpsim.fabric.wires import Segment
from tpsim.machine import forms as closed
from tpsim.machine import timing, torus_forms
from tpsim.machine.algorithms import EVERY, FORMS, STREAMED, TORUS_FORMS
from tpsim.machine.forms import strided
from tpsim.machine.groups import groups
from tpsim.machine.profile import load as machine
from tpsim.machine.torus_forms import TorusAxis
from tpsim.quantity.errors import InputError
from tpsim.reference import rings
from tpsim.reference.collectives import Stretch, schedule
from tpsim.reference.linkload import load, read

FIELDS = ("steps", "wire", "carried", "link_total", "link_serial")
SIZES = [*range(1, 18), 32, 33, 64]
SOME = [*range(1, 14), 16, 17, 32]
"""For moves whose messages are those of the gather, run backwards or twice, and for one that sends chunk by chunk."""


@pytest.fixture(autouse=True)
def _forgotten():
    """Schedules of large groups are large."""
    yield
    schedule.cache_clear()


def segment(topology, n, stride=1, axis=0):
    return Segment("wires", f"wires.{axis}", topology, n, stride)


def differences(claimed, counted, fields=FIELDS):
    """What a form claims and messages do not show: field -> (claimed, counted)."""
    pairs = {field: (Fraction(getattr(claimed, field)), Fraction(getattr(counted, field))) for field in fields}
    return {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}


# One axis --------------------------------------------------------------------------------------------------------

ONE_AXIS = [
    (topology, kind, name)
    for topology, moves in FORMS.items()
    for kind in moves
    for name in moves[kind]
    if kind != "permute"
]

NOT_AS_INJECTED = {one.name for one in EVERY if one.copies}
"""They inject other bytes than the move must: copies of everything, or what the switch sums."""

CABLES = range(1, 20)
"""Devices with a cable between each two: no machine has more."""


@pytest.mark.parametrize(("topology", "kind", "name"), ONE_AXIS)
def test_every_form_of_one_axis_is_what_its_messages_load_links_with(topology, kind, name):
    fields = [
        field
        for field in FIELDS
        if not (field == "wire" and name in NOT_AS_INJECTED) and not (field == "link_serial" and name in STREAMED)
    ]
    many = SOME if kind in {"reduce_scatter", "all_reduce"} or name == "farthest-first" else SIZES
    for n in CABLES if topology == "mesh" else many:
        counted = load(kind, [Stretch((segment(topology, n),), name)])
        assert differences(FORMS[topology][kind][name](Fraction(1), n), counted, fields) == {}, n


@pytest.mark.parametrize("topology", FORMS)
def test_a_permute_to_the_device_beside_crosses_one_link_once(topology):
    for n in range(2, 33, 2) if topology == "line" else SIZES:
        counted = load("permute", [Stretch((segment(topology, n),), "permute")])
        assert differences(FORMS[topology]["permute"]["permute"](Fraction(1), n), counted) == {}, n


def test_on_a_line_of_an_odd_number_one_device_has_nobody_to_swap_with():
    for n in range(3, 32, 2):
        counted = load("permute", [Stretch((segment("line", n),), "permute")])
        claimed = closed.permute(Fraction(1), n)
        assert differences(claimed, counted, ("steps", "link_total", "link_serial")) == {}
        assert counted.wire == claimed.wire * Fraction(n - 1, n)


def test_in_two_whole_steps_every_port_of_a_summing_switch_waits_for_the_other_direction():
    for n in SIZES[1:]:
        counted = load("all_reduce", [Stretch((segment("switch", n),), "in-switch")])
        assert (counted.link_serial, counted.link_total) == (2, Fraction(n + 1, n))


def test_a_tree_of_one_piece_waits_at_every_inner_device():
    serials = [load("all_reduce", [Stretch((segment("switch", n),), "tree")]).link_serial for n in (2, 3, 4, 5, 64)]
    assert serials == [1, 2, 3, 4, 11]
    assert [closed.switch_tree(1, n).link_serial for n in (4, 64)] == [2, 2]


def test_one_shot_injects_a_copy_for_everyone():
    for n in SIZES:
        assert load("all_reduce", [Stretch((segment("switch", n),), "one-shot")]).wire == n - 1


@pytest.mark.parametrize("pieces", [1, 2, 5, 8])
def test_an_all_reduce_to_the_centre_streams_in_twice_half_the_line_and_a_step_per_further_piece(pieces):
    for n in range(2, 33):
        counted = read(rings.centre_and_back(n, pieces), "all_reduce", [segment("line", n)])
        claimed = closed.line_all_reduce(Fraction(1), n)
        assert counted.steps == 2 * (n // 2) + pieces - 1
        assert differences(claimed, counted, ("wire", "carried", "link_total")) == {}, n


def test_a_schedule_with_one_send_more_is_noticed():
    ring = rings.two_way_gather(6)
    first = ring.steps[0]
    more = replace(ring, steps=((*first, first[0]), *ring.steps[1:]))
    claimed = FORMS["ring"]["all_gather"]["ring"](Fraction(1), 6)
    assert set(differences(claimed, read(more, "all_gather", [segment("ring", 6)]))) >= {"carried", "link_total"}


# Groups that share links -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups_at_once", [2, 3, 4])
@pytest.mark.parametrize(("topology", "kind", "name"), [one for one in ONE_AXIS if one[0] in {"ring", "line"}])
def test_interleaved_groups_load_every_link_as_often_as_there_are_groups(topology, kind, name, groups_at_once):
    for n in range(1, 9):
        counted = load(kind, [Stretch((segment(topology, n, groups_at_once),), name)])
        claimed = strided(FORMS[topology][kind][name](Fraction(1), n), groups_at_once)
        assert differences(claimed, counted) == {}, n


# Tori ------------------------------------------------------------------------------------------------------------

SHAPES = [(2, 2), (2, 3), (3, 3), (4, 4), (4, 8), (8, 4), (3, 5), (5, 4), (2, 16), (8, 8)]
SOLIDS = [(2, 2, 2), (2, 3, 4), (3, 3, 3), (4, 2, 3), (2, 4, 4), (4, 4, 4)]


def tori(shapes):
    """Every shape with every choice of closed axes; two devices are never joined twice."""
    return [
        (shape, joined)
        for shape in shapes
        for joined in product((True, False), repeat=len(shape))
        if not any(ring and n < 3 for ring, n in zip(joined, shape, strict=True))
    ]


def segments(shape, joined):
    return tuple(
        segment("ring" if ring else "line", n, axis=at) for at, (n, ring) in enumerate(zip(shape, joined, strict=True))
    )


def axes(shape, joined):
    """As `machine` sorts them: axes with open ends first."""
    return sorted((TorusAxis(n, ring) for n, ring in zip(shape, joined, strict=True)), key=lambda axis: axis.closed)


IN_ALL = ("steps", "wire", "carried", "link_total")


def wrong_on_torus(kind, name, shape, joined, fields):
    counted = load(kind, [Stretch(segments(shape, joined), name)])
    return differences(TORUS_FORMS[kind][name](Fraction(1), axes(shape, joined)), counted, fields)


@pytest.mark.parametrize(("shape", "joined"), tori([*SHAPES, *SOLIDS]))
def test_every_torus_is_loaded_as_its_forms_say(shape, joined):
    for kind in ("all_gather", "all_to_all"):
        assert wrong_on_torus(kind, "in-turn", shape, joined, FIELDS) == {}
        assert wrong_on_torus(kind, "rotated", shape, joined, IN_ALL) == {}


@pytest.mark.parametrize(("shape", "joined"), tori([(2, 3), (4, 4), (3, 5), (2, 3, 4)]))
def test_scatters_and_all_reduces_load_a_torus_as_their_forms_say(shape, joined):
    assert wrong_on_torus("all_reduce", "in-turn", shape, joined, FIELDS) == {}
    assert wrong_on_torus("all_reduce", "rotated", shape, joined, IN_ALL) == {}
    assert wrong_on_torus("reduce_scatter", "in-turn", shape, joined, FIELDS) == {}
    assert wrong_on_torus("reduce_scatter", "rotated", shape, joined, IN_ALL) == {}


@pytest.mark.parametrize(
    ("shape", "joined"), [((8, 16), (False, True)), ((8, 16), (True, True)), ((16, 16), (True, True))]
)
def test_the_slices_of_real_machines_gather_as_their_forms_say(shape, joined):
    assert wrong_on_torus("all_gather", "in-turn", shape, joined, FIELDS) == {}
    assert wrong_on_torus("all_gather", "rotated", shape, joined, IN_ALL) == {}


def test_a_slice_of_8x16_exchanges_as_its_form_says():
    assert wrong_on_torus("all_to_all", "in-turn", (8, 16), (False, True), FIELDS) == {}


@pytest.mark.parametrize(("shape", "joined"), tori([(3, 3), (4, 4), (8, 8), (3, 3, 3), (4, 4, 4), (4, 8), (3, 4)]))
def test_rotated_parts_keep_every_link_busy_in_every_step_only_if_all_axes_are_alike(shape, joined):
    """Elsewhere a run whose steps wait for each other takes longer than its busiest link."""
    alike = len(set(joined)) == len(set(shape)) == 1
    counted = load("all_gather", [Stretch(segments(shape, joined), "rotated")])
    assert (counted.link_serial == counted.link_total) == alike
    if alike:
        assert wrong_on_torus("all_gather", "rotated", shape, joined, FIELDS) == {}
        assert (wrong_on_torus("all_to_all", "rotated", shape, joined, FIELDS) == {}) == all(joined)


def test_rotated_parts_of_unequal_axes_wait_for_each_other():
    counted = load("all_gather", [Stretch(segments((4, 8), (True, True)), "rotated")])
    assert (counted.link_serial, counted.link_total) == (Fraction(349, 896), Fraction(31, 128))


@pytest.mark.parametrize(("shape", "joined"), tori([(2, 2), (4, 4), (4, 8), (2, 4, 4)]))
def test_a_permute_along_one_axis_of_a_torus_crosses_one_link_once(shape, joined):
    assert wrong_on_torus("permute", "permute", shape, joined, FIELDS) == {}


# Levels ----------------------------------------------------------------------------------------------------------

MOVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
H100, SUPERPOD, V5P = "dgx-h100", "superpod-h100", "tpu-v5p"
loaded = cache(machine)


def nodes(*sizes):
    return tuple(Segment(name, name, "switch", n) for name, n in zip(("nvlink", "network"), sizes, strict=True))


def slices(count, *axes_of_slice):
    """Tori of (topology, devices, stride) joined by a switch."""
    inner = tuple(
        Segment("ici", f"ici.{at}", topology, n, *stride) for at, (topology, n, *stride) in enumerate(axes_of_slice)
    )
    return (*inner, Segment("dcn", "dcn", "switch", count)) if count > 1 else inner


def as_priced(name, route, kind, algorithm, fields=FIELDS):
    """What `machine` prices on a route and its messages do not show."""
    V = 240 * prod(one.n for one in route) ** 3
    priced = timing.time(loaded(name), route, kind, V, algorithm=algorithm)
    return differences(priced, load(kind, run_parts(loaded(name), route, priced), V), fields)


def run_parts(of, route, priced):
    """The algorithm of every level; a call without stages runs over both levels at once."""
    found = groups(of, route)
    if not priced.stages:
        return [Stretch(tuple(one for group in found for one in group.segments), priced.algorithm)]
    return [Stretch(group.segments, stage.algorithm) for group, stage in zip(found, priced.stages, strict=True)]


PAIRS = [(2, 2), (2, 3), (8, 2), (4, 3), (3, 5), (5, 2)]


@pytest.mark.parametrize("kind", [*MOVES, "permute"])
@pytest.mark.parametrize("sizes", PAIRS)
def test_two_levels_of_switches_in_turn_are_loaded_as_priced(kind, sizes):
    assert as_priced(H100, nodes(*sizes), kind, "hierarchical") == {}


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("sizes", PAIRS)
def test_a_flat_ring_loads_ports_and_cards_as_priced(kind, sizes):
    assert as_priced(H100, nodes(*sizes), kind, "flat-ring") == {}


@pytest.mark.parametrize("sizes", PAIRS)
def test_an_exchange_straight_to_everyone_loads_ports_and_cards_as_priced(sizes):
    inner, outer = sizes
    counted = load("all_to_all", [Stretch(nodes(*sizes), "pairwise")])
    assert as_priced(H100, nodes(*sizes), "all_to_all", "pairwise") == {}
    assert counted.levels["nvlink"].total == closed.direct_all_to_all_port(Fraction(1), inner, outer)
    assert counted.levels["network"].total == closed.direct_all_to_all_nic(Fraction(1), inner, outer)
    assert counted.levels["network"].steps == inner * (outer - 1)


@pytest.mark.parametrize("sizes", [(1, 1), *PAIRS, (8, 1), (1, 4)])
def test_a_flat_ring_splits_its_steps_and_bytes_over_both_kinds_of_links(sizes):
    counted, form = (
        load("all_gather", [Stretch(nodes(*sizes), "flat-ring")]),
        closed.flat_ring_gather(Fraction(1), *sizes),
    )
    assert (counted.levels["nvlink"].total, counted.levels["network"].total) == (form.port, form.nic)
    assert (counted.levels["nvlink"].serial, counted.levels["network"].serial) == (form.port, form.nic)
    assert counted.steps == form.inner_steps + form.outer_steps


@pytest.mark.parametrize("sizes", [(2, 2), (3, 4), (4, 3), (1, 4)])
def test_a_chunk_round_a_flat_ring_waits_for_cards_as_its_form_says_or_once_less_if_it_starts_where_a_node_does(sizes):
    plan, form = schedule("all_gather", (Stretch(nodes(*sizes), "flat-ring"),)), closed.flat_ring_gather(1, *sizes)
    crossed = Counter()
    for send in (send for step in plan.steps for send in step):
        crossed[send.pieces] += send.along
    assert max(crossed.values()) == form.outer_steps == sizes[1] - (sizes[0] == 1)
    assert min(crossed.values()) == sizes[1] - 1
    assert len(plan.steps) == form.inner_steps + form.outer_steps


def test_some_chunk_crosses_a_card_in_every_step_of_a_flat_ring():
    assert load("all_gather", [Stretch(nodes(4, 3), "flat-ring")]).levels["network"].steps == 11


@pytest.mark.parametrize("name", ["in-switch-tree", "in-switch-network"])
@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (8, 2), (4, 4), (3, 5)])
def test_sums_in_switches_under_trees_or_networks_load_ports_and_cards_as_priced(sizes, name):
    held = ("steps", "carried", "link_total")
    assert as_priced(SUPERPOD, nodes(*sizes), "all_reduce", name, held) == {}
    priced = timing.time(loaded(SUPERPOD), nodes(*sizes), "all_reduce", 2**20, algorithm=name)
    assert priced.link_serial == priced.link_total


@pytest.mark.parametrize("sizes", [(1, 4), (2, 2), (8, 2), (4, 5), (3, 16)])
def test_a_network_that_sums_takes_the_array_once_from_each_node_however_many_there_are(sizes):
    """NVIDIA, SHARP: a node sends its data into the network once, and gets the result once; rings and trees twice."""
    inner, _ = sizes
    if inner > 1:
        counted = load("all_reduce", [Stretch(nodes(*sizes), "in-switch-network")])
        assert counted.levels["nvlink"].total == Fraction(inner + 1, inner)
    else:
        counted = load("all_reduce", [Stretch(nodes(*sizes)[1:], "in-network")])
    assert counted.levels["network"].total == Fraction(1, inner)
    assert counted.levels["network"].steps == 1


@pytest.mark.parametrize("sizes", [(2, 2), (8, 2), (4, 5), (3, 4)])
def test_rings_inside_nodes_under_a_network_that_sums_load_links_as_priced(sizes):
    held = ("steps", "carried", "link_total", "link_serial")
    assert as_priced(SUPERPOD, nodes(*sizes), "all_reduce", "in-network", held) == {}
    counted = load("all_reduce", [Stretch(nodes(*sizes)[:1], "ring"), Stretch(nodes(*sizes)[1:], "in-network")])
    assert counted.levels["nvlink"].total == 2 * Fraction(sizes[0] - 1, sizes[0])
    assert counted.levels["network"].total == Fraction(1, sizes[0])


def joined_by_network(name, topology, inner, outer, groups=1):
    """Nodes of cables or hosts, joined by a network."""
    inside = Segment(name, name, topology, inner, groups)
    return (inside, Segment("network", "network", "switch", outer)) if outer > 1 else (inside,)


WAYS = (
    [(kind, "flat-ring") for kind in MOVES[:3]] + [("all_to_all", "pairwise")] + [(kind, "ring") for kind in MOVES[:3]]
)


@pytest.mark.parametrize(("kind", "name"), WAYS)
@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (4, 3), (5, 2)])
def test_nodes_of_cables_and_hosts_joined_by_a_network_are_loaded_as_priced(sizes, kind, name):
    cables, hosts = joined_by_network("xgmi", "mesh", *sizes), joined_by_network("pcie", "host", *sizes)
    assert as_priced("mi300x", cables, kind, name) == {}
    assert as_priced("l40s-pcie", hosts, kind, name) == {}


@pytest.mark.parametrize("kind", [*MOVES, "permute"])
@pytest.mark.parametrize(("n", "groups"), [(2, 2), (2, 4), (4, 2), (3, 2)])
def test_groups_on_one_host_share_its_path(kind, n, groups):
    assert as_priced("l40s-pcie", joined_by_network("pcie", "host", n, 1, groups), kind, None) == {}
    alone, together = (
        timing.time(loaded("l40s-pcie"), joined_by_network("pcie", "host", n, 1, one), kind, 2**20, launch=0)
        for one in (1, groups)
    )
    assert (together.steps, together.link_total) == (alone.steps, groups * alone.link_total)


@pytest.mark.parametrize("kind", [*MOVES, "permute"])
@pytest.mark.parametrize("route", [slices(3, ("ring", 4), ("ring", 4)), slices(2, ("ring", 5)), slices(3, ("line", 2))])
def test_slices_joined_by_a_switch_are_loaded_as_priced(kind, route):
    assert as_priced(V5P, route, kind, None) == {}


@pytest.mark.parametrize("kind", MOVES)
@pytest.mark.parametrize(("topology", "n"), [("ring", 3), ("line", 3)])
def test_an_axis_whose_links_others_share_comes_after_the_others_of_its_level(topology, n, kind):
    assert as_priced(V5P, slices(1, ("ring", 4), (topology, n, 2)), kind, None) == {}
    assert as_priced(V5P, slices(2, ("ring", 4), (topology, n, 2)), kind, None) == {}


def test_two_groups_on_one_level_wait_for_both():
    """A ring of 4, and a line of 3 whose links two groups share: a gather waits 3/8 and 1/3."""
    route = slices(1, ("ring", 4), ("line", 3, 2))
    assert timing.time(loaded(V5P), route, "all_gather", 24).link_serial == 17
    assert timing.time(loaded(V5P), route, "all_gather", 24, cost_model="book").link_serial == 17


def test_scatter_and_gather_on_a_line_have_their_busiest_links_at_different_places():
    """Twice the gather's busiest link is more than any link carries."""
    lines_of_4 = (TorusAxis(4, closed=False), TorusAxis(4, closed=False))
    assert torus_forms.torus_all_reduce(Fraction(1), lines_of_4).link_total == Fraction(5, 8)
    assert torus_forms.torus_all_reduce_in_turn(Fraction(1), lines_of_4).link_total == 1
    over_switch = slices(3, ("line", 4))
    priced = timing.time(loaded(V5P), over_switch, "all_reduce", Fraction(1))
    assert (priced.stages[0].traffic.link_total, priced.stages[0].traffic.link_serial) == (1, Fraction(3, 2))
    assert as_priced(V5P, over_switch, "all_reduce", None) == {}


def test_an_axis_of_two_is_no_closed_ring_of_a_torus():
    assert (TorusAxis(2, closed=False).n, TorusAxis(3, closed=True).n) == (2, 3)
    with pytest.raises(InputError, match="an axis of 2 is no closed ring"):
        TorusAxis(2, closed=True)
