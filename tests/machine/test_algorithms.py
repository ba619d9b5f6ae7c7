"""Every closed form against messages counted step by step."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import stepwise
import sympy
from hypothesis import given
from hypothesis import strategies as st

from tpsim.algebra.moves import wire
from tpsim.machine import algorithms
from tpsim.machine.algorithms import FORMS, TORUS_FORMS, TorusAxis, Traffic

SIZES = range(1, 18)


def agrees(form, run, V, n, forwards=True):
    """The form says what was counted: steps, bytes on links, bytes sent."""
    traffic = form(V, n)
    assert (traffic.steps, traffic.link_total, traffic.link_serial) == (run.steps, run.total, run.serial)
    if forwards:
        assert traffic.carried == run.mean_sent(n)


GATHERS = {
    "two-way ring": (algorithms.ring_gather, stepwise.two_way_ring),
    "two opposite rings": (algorithms.two_rings_gather, stepwise.opposite_rings),
    "one-way ring": (algorithms.one_way_gather, stepwise.one_way_ring),
    "line": (algorithms.line_gather, stepwise.line),
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("fabric", GATHERS)
def test_an_all_gather_loads_links_as_its_form_says(fabric, n):
    form, play = GATHERS[fabric]
    agrees(form, play(n), n, n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("fabric", GATHERS)
def test_an_all_reduce_loads_links_as_its_form_says(fabric, n):
    _, play = GATHERS[fabric]
    scatter = stepwise.one_way_ring(n, way=-1) if fabric == "one-way ring" else play(n)
    run = stepwise.after(stepwise.backwards(scatter), play(n))
    name = {"two-way ring": "ring", "two opposite rings": "two-rings", "one-way ring": "ring", "line": "line"}[fabric]
    topology = {"one-way ring": "one_way_ring", "line": "line"}.get(fabric, "ring")
    agrees(FORMS[topology]["all_reduce"][name], run, n, n)


EXCHANGES = {
    "ring, split": (algorithms.ring_all_to_all, stepwise.shortest),
    "ring, not split": (algorithms.ring_all_to_all_unsplit, stepwise.shortest_unsplit),
    "one-way ring": (algorithms.one_way_all_to_all, stepwise.one_way_exchange),
    "line, lock-step": (algorithms.line_all_to_all_lockstep, stepwise.line_exchange),
    "line, farthest first": (algorithms.line_all_to_all, stepwise.farthest_first),
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("fabric", EXCHANGES)
def test_an_all_to_all_loads_links_as_its_form_says(fabric, n):
    form, play = EXCHANGES[fabric]
    agrees(form, play(n), n * n, n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("pieces", [1, 2, 5, 8])
def test_an_all_reduce_to_the_centre_streams_in_the_steps_of_its_form(pieces, n):
    run = stepwise.centre_and_back(n, pieces)
    traffic = algorithms.line_all_reduce_centre(1, n, pieces)
    assert (traffic.steps, traffic.link_total) == (run.steps, run.total)
    assert traffic.carried == run.mean_sent(n)


@pytest.mark.parametrize("n", SIZES)
def test_gathers_through_a_switch_load_ports_as_their_forms_say(n):
    agrees(algorithms.switch_ring_gather, stepwise.ports(stepwise.one_way_ring(n)), n, n)
    agrees(algorithms.switch_direct_gather, stepwise.direct_gather(n), n, n)
    agrees(algorithms.switch_doubling_gather, stepwise.bruck_gather(n), n, n)


@pytest.mark.parametrize("n", SIZES)
def test_exchanges_through_a_switch_load_ports_as_their_forms_say(n):
    direct = stepwise.direct_gather(n)  # the same messages, of chunks that differ
    agrees(algorithms.switch_direct_all_to_all, direct, n * n, n)
    assert algorithms.switch_pairwise_all_to_all(n * n, n).link_serial == direct.total
    assert algorithms.switch_pairwise_all_to_all(n * n, n).steps == n - 1


@pytest.mark.parametrize("n", SIZES)
def test_one_shot_sends_everything_to_everyone(n):
    agrees(algorithms.switch_one_shot, stepwise.one_shot(n), n, n)


@pytest.mark.parametrize("n", range(2, 18))
def test_the_switch_reads_every_copy_and_stores_every_sum(n):
    for run in stepwise.in_switch(n):
        agrees(algorithms.switch_in_switch, run, n, n)


@pytest.mark.parametrize("n", range(2, 40))
def test_a_double_tree_sends_what_its_edges_say(n):
    sent = stepwise.double_tree_sent(n)
    traffic = algorithms.switch_tree(2, n)
    assert traffic.link_total == max(sent.values())
    assert traffic.carried == Fraction(sum(sent.values()), n)
    assert traffic.steps == 2 * stepwise.depth(n)


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("joined", [True, False])
def test_interleaved_groups_share_every_link(n, groups, joined):
    run = stepwise.interleaved(n, groups, joined)
    form = algorithms.ring_gather if joined else algorithms.line_gather
    traffic = algorithms.strided(form(n, n), groups)
    assert (traffic.steps, traffic.link_total, traffic.link_serial) == (run.steps, run.total, run.serial)


def axis_load(n, closed, gathered, total):
    """Bytes on the busiest link of an axis while each device's part grows by the factor n."""
    run = stepwise.two_way_ring(n) if closed else stepwise.line(n)
    return run.total * Fraction(gathered, total)


SHAPES = [(2, 2), (4, 4), (4, 8), (8, 4), (3, 5), (16, 2), (2, 16), (16, 8)]
TORI = [
    (shape, closed)
    for shape in SHAPES
    for closed in product((True, False), repeat=2)
    # Two devices joined twice: no machine has that, and across it a line would be the bottleneck.
    if not any(ring and n < 3 for ring, n in zip(closed, shape, strict=True))
]


@pytest.mark.parametrize(("shape", "closed"), TORI)
def test_two_parts_weighted_by_the_shape_load_all_links_of_a_torus_alike(shape, closed):
    (m, n), total = shape, shape[0] * shape[1]
    one_first = axis_load(m, closed[0], 1, total), axis_load(n, closed[1], m, total)
    two_first = axis_load(m, closed[0], n, total), axis_load(n, closed[1], 1, total)
    # The share of the part that starts on the first axis, such that both axes are equally busy.
    slope = (one_first[0] - two_first[0]) - (one_first[1] - two_first[1])
    share = (two_first[1] - two_first[0]) / slope
    assert 0 <= share <= 1
    busy = share * one_first[0] + (1 - share) * two_first[0]
    axes = [TorusAxis(m, closed[0]), TorusAxis(n, closed[1])]
    assert algorithms.torus_gather(1, axes).link_total == busy
    in_turn = algorithms.torus_gather_in_turn(1, axes)
    assert (in_turn.link_serial, in_turn.link_total) == (sum(one_first), max(one_first))


@pytest.mark.parametrize("side", [2, 3, 4])
def test_three_equal_parts_load_all_links_of_a_cube_alike(side):
    loads = [axis_load(side, closed=True, gathered=side**place, total=side**3) for place in range(3)]
    axes = [TorusAxis(side, closed=True)] * 3
    assert algorithms.torus_gather(1, axes).link_total == sum(loads) / 3
    assert algorithms.torus_gather(1, axes).steps == 3 * (side // 2)


@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (4, 6), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("ring", [True, False])
def test_an_all_to_all_axis_by_axis_loads_a_torus_as_its_form_says(shape, ring):
    closed = [ring] * (len(shape) - 1) + [not ring]
    axes = [TorusAxis(n, joined) for n, joined in zip(shape, closed, strict=True)]
    total = int(np.prod(shape))
    loads = stepwise.torus_exchange(shape, closed)
    at_once = algorithms.torus_all_to_all(total * total, axes)
    assert (at_once.link_total, at_once.link_serial) == (max(loads), max(loads))
    assert algorithms.torus_all_to_all_in_turn(total * total, axes).link_serial == sum(loads)


@pytest.mark.parametrize(("g", "nodes"), [(1, 1), (2, 2), (8, 2), (4, 3), (8, 1), (1, 4), (3, 5)])
def test_a_flat_ring_over_all_rails_loads_ports_and_nics_as_its_form_says(g, nodes):
    port, nic = stepwise.flat_ring(g, nodes)
    ring = algorithms.flat_ring_gather(g * nodes * g, g, nodes)
    assert (ring.port, ring.nic) == (port, nic)
    assert ring.inner_steps + ring.outer_steps == g * nodes - 1


@pytest.mark.parametrize(("g", "nodes"), [(1, 1), (2, 2), (8, 2), (4, 3), (8, 1), (1, 4), (3, 5)])
def test_an_exchange_straight_to_everyone_sends_a_chunk_per_peer_inside_and_outside_the_node(g, nodes):
    chunks = (g * nodes) ** 2
    nodes_of_peers = [peer // g for peer in range(1, g * nodes)]  # device 0 is on node 0
    assert algorithms.direct_all_to_all_port(chunks, g, nodes) == nodes_of_peers.count(0)
    assert algorithms.direct_all_to_all_nic(chunks, g, nodes) == len(nodes_of_peers) - nodes_of_peers.count(0)


@pytest.mark.parametrize("n", range(2, 9))
def test_a_permuted_shard_crosses_one_link_once(n):
    assert algorithms.permute(n, n) == Traffic(1, 1, 1, 1, 1)


ONE_AXIS = [(topology, kind, name) for topology, moves in FORMS.items() for kind in moves for name in moves[kind]]


@pytest.mark.parametrize(("topology", "kind", "name"), ONE_AXIS)
def test_every_form_vanishes_among_one_device(topology, kind, name):
    traffic = FORMS[topology][kind][name](1000, 1)
    assert traffic == Traffic(0, 0, 0, 0, 0)


@pytest.mark.parametrize(("topology", "kind", "name"), ONE_AXIS)
def test_every_form_injects_what_the_move_must(topology, kind, name):
    for n in SIZES:
        assert FORMS[topology][kind][name](10**6, n).wire == wire(kind, 10**6, n)


@pytest.mark.parametrize(("topology", "kind", "name"), ONE_AXIS)
def test_ints_arrays_and_symbols_go_through_the_same_lines(topology, kind, name):
    form = FORMS[topology][kind][name]
    V, n = sympy.symbols("V n", positive=True, integer=True)
    symbolic = form(V, n)
    ranks = np.arange(1, 33, dtype=np.float64)
    arrays = form(2.0**20, ranks)
    for field in ("steps", "wire", "carried", "link_total", "link_serial"):
        exact = [getattr(form(2**20, int(rank)), field) for rank in ranks]
        assert np.array_equal(np.broadcast_to(getattr(arrays, field), 32), [float(value) for value in exact])
        for rank in (1, 2, 5, 8, 31):
            value = sympy.sympify(getattr(symbolic, field)).subs({V: 2**20, n: rank})
            assert Fraction(int(value.p), int(value.q)) == exact[rank - 1]


@given(
    V=st.integers(1, 2**40),
    more=st.integers(0, 2**40),
    shape=st.lists(st.tuples(st.integers(1, 16), st.booleans()), min_size=1, max_size=3),
    kind=st.sampled_from(sorted(TORUS_FORMS)),
)
def test_more_bytes_never_load_a_torus_less(V, more, shape, kind):
    axes = [TorusAxis(*axis) for axis in shape]
    for form in TORUS_FORMS[kind].values():
        assert form(V, axes).link_serial <= form(V + more, axes).link_serial
