"""Seconds of collectives: worked figures of the book, one definition for all sizes, and laws."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from tests.levels import hierarchy_route
from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Segment
from tpsim.machine import chip_seconds, timing
from tpsim.machine.cost import tuned
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from tpsim.machine.parts import Machine

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")
MODELS = ("additive", "book")

machine = cache(load)


def ring(n, topology="ring", stride=1):
    return (Segment("ici", "ici.0", topology, n, stride),)


def nodes(inner, outer):
    return Segment("nvlink", "nvlink", "switch", inner), Segment("network", "network", "switch", outer)


def lockstep(of: Machine) -> Machine:
    return replace(of, levels=tuple(level.but(steps="lockstep") for level in of.levels))


# Worked figures --------------------------------------------------------------------------------------------------


def test_the_book_gathers_34_megabytes_over_4_chips_of_v5e_in_559_us_for_want_of_wraparound():
    placement = place(machine("tpu-v5e").levels, Mesh({"X": 8, "Y": 4}))
    timed = timing.time(machine("tpu-v5e"), placement.route(["Y"]), "all_gather", 2 * 2048 * 8192, cost_model="book")
    assert timed.time_s == pytest.approx(559.2405e-6, rel=1e-6)
    assert timed.latency_s == pytest.approx(3e-6)


def test_a_closed_ring_would_take_373_us():
    timed = timing.time(machine("tpu-v5e"), ring(4), "all_gather", 2 * 2048 * 8192, cost_model="book")
    assert timed.time_s == pytest.approx(372.827e-6, rel=1e-6)


def test_a_hop_of_v5e_is_bound_by_latency_below_45_kilobytes():
    chunk = 45_000
    timed = timing.time(machine("tpu-v5e"), ring(2, "line"), "all_gather", 2 * chunk, cost_model="book")
    assert timed.bandwidth_s == pytest.approx(timed.latency_s)


def test_the_book_gathers_over_one_axis_of_a_v4_cube_in_23_us():
    placement = place(machine("tpu-v4").levels, Mesh({"X": 4, "Y": 4, "Z": 4}))
    V = 2 * 1024 * 4096 // 4
    gather = timing.time(machine("tpu-v4"), placement.route(["X"]), "all_gather", V, cost_model="book")
    assert gather.time_s == pytest.approx(23.30169e-6, rel=1e-6)
    reduce = timing.time(machine("tpu-v4"), placement.route(["Z"]), "all_reduce", V // 4, cost_model="book")
    assert reduce.time_s == pytest.approx(11.650844e-6, rel=1e-6)


def test_the_book_gathers_over_three_axes_of_a_v4_cube_three_times_as_fast():
    placement = place(machine("tpu-v4").levels, Mesh({"X": 4, "Y": 4, "Z": 4}))
    V = 2 * 1024 * 4096
    timed = timing.time(machine("tpu-v4"), placement.route(["X", "Y", "Z"]), "all_gather", V, cost_model="book")
    assert timed.time_s == pytest.approx(31.06892e-6, rel=1e-6)


@pytest.mark.parametrize("name", ["book-h100", "dgx-h100"])
def test_the_book_gathers_537_megabytes_on_a_node_of_h100_in_1_04_ms(name):
    route = place(machine(name).levels, Mesh({"X": 8})).route(["X"])
    timed = timing.time(machine(name), route, "all_gather", 2 * 4096 * 65536, cost_model="book")
    assert timed.time_s == pytest.approx(1.0439157e-3, rel=1e-7)


def test_the_book_exchanges_on_a_node_by_the_square_of_its_size():
    V = 2**27
    timed = timing.time(machine("book-h100"), nodes(8, 1)[:1], "all_to_all", V, cost_model="book")
    assert timed.time_s == pytest.approx(V * 7 / 64 / 450e9)


def test_the_book_exchanges_on_a_closed_ring_in_a_quarter_of_its_gather_and_on_a_line_in_half():
    V, W = 2**27, 2 * 45e9
    closed, line = (
        timing.time(machine("tpu-v5e"), ring(16, shape), "all_to_all", V, cost_model="book").bandwidth_s
        for shape in ("ring", "line")
    )
    assert (closed, line) == (pytest.approx(V / (4 * W)), pytest.approx(V / (2 * W)))


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
@pytest.mark.parametrize("shape", ["ring", "line"])
def test_groups_that_share_links_are_slower_by_their_number_in_the_book_too(kind, shape):
    alone, shared = (
        timing.time(machine("tpu-v5e"), ring(16, shape, stride), kind, 2**30, cost_model="book").bandwidth_s
        for stride in (1, 4)
    )
    assert shared == pytest.approx(4 * alone)


def test_the_book_pays_the_hops_of_an_all_reduce_twice():
    gather, reduce = (
        timing.time(machine("tpu-v5e"), ring(16), kind, 2**10, cost_model="book").latency_s
        for kind in ("all_gather", "all_reduce")
    )
    assert (gather, reduce) == (pytest.approx(8e-6), pytest.approx(16e-6))


def port_and_nic(name, algorithm="flat-ring"):
    """Both levels' links: seconds per step, bytes per second of the link, and bytes per second reached."""
    links = [tuned(level, algorithm, "simple") for level in machine(name).levels]
    return [(link.hop_s, link.level.link.bandwidth.value, link.bandwidth) for link in links]


def test_every_level_of_an_exchange_in_turn_carries_what_changes_place_on_it():
    V, g, nodes_ = 2**30, 8, 4
    sent = [V // (g * nodes_) * 7 // 8, V // (g * nodes_) * 3 // 4]
    timed = timing.time(machine("dgx-h100"), nodes(g, nodes_), "all_to_all", V, algorithm="hierarchical")
    assert [stage.traffic.link_total for stage in timed.stages] == sent
    by_the_book = timing.time(machine("dgx-h100"), nodes(g, nodes_), "all_to_all", V, cost_model="book")
    links = [bandwidth for _, bandwidth, _ in port_and_nic("dgx-h100")]
    assert by_the_book.bandwidth_s == pytest.approx(max(sent[0] / links[0], sent[1] / links[1]))


def test_an_all_reduce_in_turn_scatters_and_gathers_inside_and_reduces_outside():
    V, g, nodes_ = 2**30, 8, 4
    timed = timing.time(machine("dgx-h100"), nodes(g, nodes_), "all_reduce", V, algorithm="hierarchical")
    sent = [0, 0]
    for stage in timed.stages:
        sent[stage.level == "network"] += stage.traffic.link_serial
    assert sent == [2 * V * 7 // 8, 2 * V // g * 3 // 4]
    assert timed.carried == sum(sent)
    assert timed.link_total == sent[0]


def test_peers_in_turn_pay_each_its_hop_and_the_bytes_of_port_and_nic_add_up():
    V, g, nodes_ = 2**30, 8, 4
    timed = timing.time(machine("dgx-h100"), nodes(g, nodes_), "all_to_all", V, algorithm="pairwise", protocol="simple")
    (port_hop, _, port), (nic_hop, _, nic) = port_and_nic("dgx-h100", "pairwise")
    assert port_hop == 0
    chunk = V / (g * nodes_) ** 2
    assert timed.latency_s == pytest.approx(24 * nic_hop)
    assert timed.bandwidth_s == pytest.approx(7 * chunk / port + 24 * chunk / nic)
    assert timed.steps == 31


@pytest.mark.parametrize(("kind", "halves"), [("all_gather", 1), ("all_reduce", 2)])
def test_ports_and_nics_of_a_flat_ring_work_at_once(kind, halves):
    V, g, nodes_ = 2**30, 8, 4
    timed = timing.time(machine("dgx-h100"), nodes(g, nodes_), kind, V, algorithm="flat-ring")
    (port_hop, _, port), (nic_hop, _, nic) = port_and_nic("dgx-h100")
    through_nic = V * 31 / 32 / g
    assert timed.bandwidth_s == pytest.approx(halves * max(7 * through_nic / port, through_nic / nic))
    assert timed.latency_s == pytest.approx(halves * (27 * port_hop + 4 * nic_hop))
    assert timed.steps == halves * 31


@pytest.mark.parametrize(("kind", "name"), [("all_gather", "flat-ring"), ("all_to_all", "pairwise")])
def test_a_way_over_both_levels_launches_nothing_among_one_device(kind, name):
    assert timing.time(machine("dgx-h100"), nodes(1, 1), kind, 2**20, algorithm=name).time_s == 0


def test_an_axis_with_shared_links_comes_last_and_on_the_least():
    V, shared, own = 2**30, Segment("ici", "ici.0", "ring", 4, 4), Segment("ici", "ici.1", "ring", 16)
    timed = timing.time(machine("tpu-v5e"), (shared, own), "all_gather", V)
    assert [stage.traffic.link_serial for stage in timed.stages] == [V * 15 // 16 // 2, 4 * (V // 16) * 3 // 4 // 2]


@given(
    st.sampled_from(["all_gather", "reduce_scatter", "all_to_all"]),
    st.sampled_from(MODELS),
    st.lists(st.tuples(st.integers(3, 16), st.sampled_from(["ring", "line"])), min_size=2, max_size=3),
    st.integers(0, 30),
)
def test_axes_of_a_torus_together_take_no_longer_than_one_after_another(kind, model, sides, size):
    axes = [Segment("ici", f"ici.{at}", topology, n) for at, (n, topology) in enumerate(sides)]
    N, seconds, gathered = prod(axis.n for axis in axes), 0.0, 1
    V = 2**size * N * N
    for axis in sorted(axes, key=lambda axis: axis.topology == "ring"):  # open axes gather the smallest parts
        gathered *= axis.n
        here = V * axis.n // N if kind == "all_to_all" else V * gathered // N
        seconds += timing.time(machine("tpu-v5p"), (axis,), kind, here, cost_model=model).time_s
    together = timing.time(machine("tpu-v5p"), tuple(axes), kind, V, cost_model=model).time_s
    assert together <= seconds * (1 + 1e-9)


def test_a_small_exchange_takes_the_hops_of_both_axes_of_a_torus():
    axes = Segment("ici", "ici.0", "line", 8), Segment("ici", "ici.1", "line", 8)
    timed = timing.time(machine("tpu-v5e"), axes, "all_to_all", 64 * 64 * 2, cost_model="book")
    assert timed.time_s == pytest.approx(14e-6)


def test_an_open_axis_of_a_torus_gathers_the_smallest_parts():
    V, line, closed = 2**30, Segment("ici", "ici.1", "line", 8), Segment("ici", "ici.0", "ring", 16)
    for route in ((line, closed), (closed, line)):
        timed = timing.time(machine("tpu-v5e"), route, "all_gather", V, algorithm="in-turn")
        assert timed.link_serial == V // 16 * 7 // 8 + V * 15 // 16 // 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["ring", "line"])
def test_groups_that_share_links_take_their_turns(kind, shape):
    alone, shared = (timing.time(machine("tpu-v5e"), ring(16, shape, n), kind, 2**30) for n in (1, 4))
    assert (shared.steps, shared.link_serial) == (4 * alone.steps, 4 * alone.link_serial)
    assert shared.launch_s == alone.launch_s


def test_no_level_reduces_in_its_switch_unless_its_profile_says_so():
    with pytest.raises(InputError, match='"in-switch" is not an algorithm of all_reduce on network 8'):
        timing.time(machine("dgx-h100"), nodes(8, 8)[1:], "all_reduce", 2**20, algorithm="in-switch")


def test_a_lockstep_all_reduce_on_a_line_pays_every_step_s_busiest_link():
    V = 2**30
    timed = timing.time(lockstep(machine("tpu-v5e")), ring(8, "line"), "all_reduce", V)
    assert timed.bandwidth_s == pytest.approx(2 * V * 7 / 8 / 45e9)


def test_the_slowest_level_of_the_book_decides():
    two = place(machine("book-h100").levels, Mesh({"X": 16})).route(["X"])
    many = place(machine("book-h100").levels, Mesh({"X": 1024})).route(["X"])
    V = 2**30
    assert V / timing.time(machine("book-h100"), two, "all_gather", V, cost_model="book").time_s == pytest.approx(
        450e9 * 8 / 7
    )
    assert V / timing.time(machine("book-h100"), many, "all_gather", V, cost_model="book").time_s == pytest.approx(
        400e9 * 32 / 31
    )


def test_the_book_scatters_in_a_trace_of_v2_in_1_12_ms():
    timed = timing.time(machine("book-tpu-v2"), ring(4), "reduce_scatter", 134217728, cost_model="book")
    assert timed.time_s == pytest.approx(1.118481e-3, rel=1e-6)


def test_a_published_floor_of_8_us_is_met_by_launch_hops_and_chunks():
    # How to Scale Your Model, chapter on sharding: bf16[256,256] over 4 chips of v5e takes about 8 us.
    timed = timing.time(machine("tpu-v5e"), ring(4, "line"), "all_gather", 2 * 256 * 256)
    assert timed.time_s == pytest.approx(8e-6, rel=0.01)


def test_three_published_points_of_v5e_are_met_by_chunks_that_stream():
    # How to Scale Your Model, chapter on sharding: 8 us for 131 kB and 680 us for 34 MB on a line of 4, and 95 % of the
    # peak at about 10 MB over a ring of 16.
    small, large = (timing.time(machine("tpu-v5e"), ring(4, "line"), "all_gather", V).time_s for V in (2**17, 2**25))
    assert small == pytest.approx(8e-6, abs=1.5e-6)
    assert large == pytest.approx(680e-6, rel=0.2)
    around = timing.time(machine("tpu-v5e"), ring(16), "all_gather", 10_000_000)
    assert around.bandwidth_s / around.time_s == pytest.approx(0.95, abs=0.03)


def test_in_switch_reduction_pays_from_the_size_and_ranks_where_it_was_measured_to():
    # Bekman, Machine Learning Engineering, chapter on networks: gain over rings on H200 by ranks, at 8 GiB; in place,
    # where rings pass nothing on to themselves.
    for n, gain in ((4, 1.00), (5, 1.14), (6, 1.19), (7, 1.26), (8, 1.29)):
        forced = [
            timing.time(machine("dgx-h100"), nodes(n, 1)[:1], "all_reduce", 8 * 2**30, algorithm=name).time_s
            for name in ("ring", "in-switch")
        ]
        assert forced[0] / forced[1] == pytest.approx(gain, rel=0.06)


# One definition --------------------------------------------------------------------------------------------------

ROUTES = {
    "ring": lambda n: ("tpu-v5e", ring(n)),
    "line": lambda n: ("tpu-v5e", ring(n, "line")),
    "strided line": lambda n: ("tpu-v5e", ring(n, "line", 4)),
    "torus": lambda n: ("tpu-v5e", (*ring(4 * n), Segment("ici", "ici.1", "line", n))),
    "shared axis beside another": lambda n: ("tpu-v5e", (*ring(n, "ring", 4), Segment("ici", "ici.1", "ring", n))),
    "node": lambda n: ("dgx-h100", nodes(n, 1)[:1]),
    "two levels": lambda n: ("dgx-h100", nodes(8, n)),
    "two levels, few inside": lambda n: ("dgx-h100", nodes(n, 4)),
    "packed": lambda n: ("dgx-h100", hierarchy_route(load("dgx-h100").levels, 4, n)),
    "three levels": lambda n: ("book-h100", hierarchy_route(load("book-h100").levels, 1, 64 * n)),
    "torus and network": lambda n: ("tpu-v5p", (*ring(n), Segment("dcn", "dcn", "switch", 4))),
}
FIELDS = ("time_s", "launch_s", "latency_s", "bandwidth_s")
EXACT = ("steps", "wire", "carried", "link_total", "link_serial")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cost_model", MODELS)
@pytest.mark.parametrize("where", ROUTES)
def test_ints_and_arrays_are_timed_by_the_same_lines(where, cost_model, kind):
    sizes = np.array([1.0, 2.0, 8.0, 32.0])
    for V in (2**12, 2**22, 2**34):
        name, route = ROUTES[where](sizes)
        arrays = timing.time(machine(name), route, kind, float(V), cost_model=cost_model)
        for place_of, n in enumerate(sizes):
            one = timing.time(machine(name), ROUTES[where](int(n))[1], kind, V, cost_model=cost_model)
            for field in FIELDS:
                seconds = np.broadcast_to(getattr(arrays, field), sizes.shape)[place_of]
                assert seconds == pytest.approx(float(getattr(one, field)), rel=1e-12, abs=0)
            for field in EXACT:
                assert np.broadcast_to(getattr(arrays, field), sizes.shape)[place_of] == float(getattr(one, field))


SYMBOLIC = [(where, kind) for where in ("ring", "line", "torus", "two levels") for kind in KINDS]


@pytest.mark.parametrize(("where", "kind"), SYMBOLIC)
def test_symbols_are_timed_by_the_same_lines_of_the_book(where, kind):
    """The additive model chooses among ways, which symbols cannot."""
    V, n = sympy.symbols("V n", positive=True, integer=True)
    name, route = ROUTES[where](n)
    symbols = timing.time(machine(name), route, kind, V, cost_model="book")
    for ranks, size in ((1, 2**20), (8, 2**12), (16, 2**30)):
        one = timing.time(machine(name), ROUTES[where](ranks)[1], kind, size, cost_model="book")
        seconds = sympy.sympify(symbols.time_s).subs({V: size, n: ranks})
        assert float(seconds) == pytest.approx(float(one.time_s), rel=1e-12)


WITH_ONE_DEVICE = {
    "one node": ("dgx-h100", nodes(8, 1), nodes(8, 1)[:1]),
    "one device per node": ("dgx-h100", nodes(1, 8), nodes(1, 8)[1:]),
    "one axis of a torus": ("tpu-v5e", (*ring(8), Segment("ici", "ici.1", "ring", 1)), ring(8)),
    "one slice": ("tpu-v5e", (*ring(8, "line"), Segment("dcn", "dcn", "switch", 1)), ring(8, "line")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cost_model", MODELS)
@pytest.mark.parametrize("where", WITH_ONE_DEVICE)
def test_a_segment_of_one_device_changes_nothing(where, cost_model, kind):
    name, with_one, without = WITH_ONE_DEVICE[where]
    for V in (2**12, 2**20, 2**32):
        with_, without_ = (
            timing.time(machine(name), route, kind, V, cost_model=cost_model) for route in (with_one, without)
        )
        for field in (*FIELDS, *EXACT):
            assert getattr(with_, field) == getattr(without_, field)


# Laws ------------------------------------------------------------------------------------------------------------


@given(
    V=st.integers(0, 2**36),
    more=st.integers(0, 2**36),
    n=st.integers(1, 32),
    where=st.sampled_from(sorted(ROUTES)),
    kind=st.sampled_from(KINDS),
    cost_model=st.sampled_from(MODELS),
)
def test_more_bytes_never_take_less(*, V, more, n, where, kind, cost_model):
    name, route = ROUTES[where](n)
    less, all_of_it = (
        timing.time(machine(name), route, kind, size, cost_model=cost_model).time_s for size in (V, V + more)
    )
    assert less <= all_of_it * (1 + 1e-12)


@pytest.mark.parametrize("cost_model", MODELS)
@pytest.mark.parametrize("kind", [*KINDS, "slice"])
def test_nothing_is_paid_among_one_device(kind, cost_model):
    for route in ((), ring(1), nodes(1, 1)):
        name = "dgx-h100" if len(route) > 1 else "tpu-v5e"
        timed = timing.time(machine(name), route, kind, 2**20, cost_model=cost_model)
        assert (timed.time_s, timed.steps, timed.carried, timed.link_total) == (0, 0, 0, 0)


def test_a_slice_costs_nothing_anywhere():
    assert timing.time(machine("tpu-v5e"), ring(8), "slice", 2**20).time_s == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_of_the_algorithms_on_offer_is_taken(kind):
    for V in (2**10, 2**20, 2**30):
        chosen = timing.time(machine("dgx-h100"), nodes(8, 4), kind, V)
        for name in ("tree", "flat-ring", "in-switch-tree", "pairwise"):
            try:
                forced = timing.time(machine("dgx-h100"), nodes(8, 4), kind, V, algorithm=name)
            except InputError:
                continue
            assert chosen.time_s <= forced.time_s


def test_the_chosen_algorithm_is_named():
    times = [timing.time(machine("dgx-h100"), nodes(8, 1)[:1], "all_reduce", V) for V in (2**12, 2**30)]
    assert [timed.algorithm for timed in times] == ["ring", "in-switch"]


def test_levels_in_turn_show_what_each_of_them_carries():
    V, g, nodes_ = 2**30, 8, 4
    timed = timing.time(machine("dgx-h100"), nodes(g, nodes_), "all_gather", V, algorithm="hierarchical")
    port, nic = timed.stages
    assert (port.level, port.traffic.link_total) == ("nvlink", V * (g - 1) // g)
    assert (nic.level, nic.traffic.link_total) == ("network", V * (nodes_ - 1) // (g * nodes_))
    assert timed.steps == (nodes_ - 1) + (g - 1)
    assert timed.pipelined_s < timed.time_s


def test_a_launch_is_paid_once_and_can_be_given():
    timed = timing.time(machine("dgx-h100"), nodes(8, 4), "all_gather", 2**26, algorithm="hierarchical")
    assert timed.launch_s == max(launch_of("nvlink", timed.protocol), launch_of("network", timed.protocol))
    none = timing.time(machine("dgx-h100"), nodes(8, 4), "all_gather", 2**26, algorithm="hierarchical", launch=0.0)
    assert none.launch_s == pytest.approx(timed.launch_s - THREADS)
    later = timing.time(machine("dgx-h100"), nodes(8, 4), "all_gather", 2**26, algorithm="hierarchical", launch=1.0)
    assert later.time_s == pytest.approx(1 + timed.time_s - THREADS)


THREADS = 1.4e-6
"""What the default harness of dgx-h100 takes for a launch."""


def launch_of(level, protocol):
    return THREADS + machine("dgx-h100").level(level).protocols[protocol].latency.value


def test_streamed_chunks_overlap_latency_with_bytes():
    V, n = 2**26, 16
    in_turn = timing.time(lockstep(machine("tpu-v5e")), ring(n), "all_gather", V)
    stream = timing.time(machine("tpu-v5e"), ring(n), "all_gather", V)
    hops, chunk = n // 2, V * (n - 1) / (2 * n) / (n // 2) / 45e9
    assert stream.time_s == pytest.approx(4.27e-6 + hops * max(1e-6, chunk) + min(1e-6, chunk))
    assert stream.time_s < in_turn.time_s


def test_a_streamed_all_reduce_on_a_line_takes_only_its_busiest_link():
    timed = timing.time(machine("tpu-v5e"), ring(8, "line"), "all_reduce", 2**30)
    assert timed.bandwidth_s == pytest.approx(2**30 / 45e9)


def test_an_unknown_algorithm_is_answered_with_those_there_are():
    with pytest.raises(InputError) as error:
        timing.time(machine("tpu-v5e"), ring(4, "line"), "all_gather", 2**20, algorithm="rng")
    assert str(error.value) == (
        'error[unknown-algorithm]: "rng" is not an algorithm of all_gather on ici.0 4 (line)\n  = known: line'
    )


def test_unknown_cost_models_and_protocols_are_refused():
    with pytest.raises(InputError, match='"bok" is not a cost model'):
        timing.time(machine("tpu-v5e"), ring(4), "all_gather", 1, cost_model="bok")
    with pytest.raises(InputError, match='"ll" is not a protocol'):
        timing.time(machine("tpu-v5e"), ring(4), "all_gather", 1, protocol="ll")


def test_products_take_their_share_of_the_peak_and_arrays_the_memory():
    v5e = machine("tpu-v5e")
    assert chip_seconds.compute_s(v5e, 197e12, "bf16") == pytest.approx(1 / 0.821)
    assert chip_seconds.compute_s(v5e, 197e12, "bf16", 1.0) == pytest.approx(1)
    assert chip_seconds.compute_s(machine("book-h100"), 990e12, "bf16") == pytest.approx(1)
    assert chip_seconds.memory_s(v5e, 820e9) == pytest.approx(1 / 0.748)
    assert chip_seconds.memory_s(machine("book-tpu-v5e-ring"), 820e9) == pytest.approx(1)


def test_fused_attention_takes_its_own_share_and_one_that_is_stated_replaces_it():
    a100, bare = machine("dgx-a100"), machine("dgx2-v100")
    for backward in (False, True):
        assert chip_seconds.attention_s(a100, 312e12, "bf16", backward=backward) == pytest.approx(1 / 0.325)
        assert chip_seconds.attention_s(a100, 312e12, "bf16", backward=backward, efficiency=0.5) == pytest.approx(2)
        assert chip_seconds.attention_s(bare, 1e12, "f16", backward=backward) == chip_seconds.compute_s(
            bare, 1e12, "f16"
        )


def test_attention_over_cached_latents_has_a_share_of_its_own_where_one_is_stated():
    for name, forward, latents in (("dgx-h100", 0.16, 0.667), ("dgx-a100", 0.325, 0.325)):
        chip = machine(name)
        for over, share in ((False, forward), (True, latents)):
            seconds = chip_seconds.attention_s(chip, chip.peak("bf16").value, "bf16", backward=False, latents=over)
            assert seconds == pytest.approx(1 / share)
