"""Protocols, harnesses, meshes and hosts: what a profile says of them is what is timed."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machines import machine, node, two_levels
from tpsim.algebra.moves import wire
from tpsim.answers.collective import collective
from tpsim.machine import timing
from tpsim.quantity import spec
from tpsim.quantity.errors import InputError

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")

# What each protocol says ------------------------------------------------------------------------------------------


def test_each_protocol_brings_its_latency_its_hops_its_bandwidth_and_what_the_own_share_takes():
    V, n = 2**20, 8
    timed = timing.time(machine("dgx-h100"), node(n), "all_gather", V, protocol="ll")
    figures = machine("dgx-h100").level("nvlink").protocols["ll"]
    assert timed.launch_s == pytest.approx(1.4e-6 + figures.latency.value)
    assert timed.latency_s == pytest.approx(7 * figures.hop_latency.value)
    assert timed.bandwidth_s == pytest.approx(V * 7 / 8 / (450e9 * figures.efficiency.value))
    assert timed.ramp_s == pytest.approx(V / 8 / figures.own_bandwidth.value)
    assert timed.time_s == pytest.approx(timed.launch_s + timed.latency_s + timed.bandwidth_s + timed.ramp_s)


def test_chunks_cost_twice_the_root_of_their_latency_and_the_bytes_time():
    V = 2**26
    timed = timing.time(machine("dgx-h100"), node(8), "all_gather", V, protocol="simple")
    figures = machine("dgx-h100").level("nvlink").protocols["simple"]
    own = V / 8 / figures.own_bandwidth.value
    assert timed.ramp_s == pytest.approx(own + 2 * sqrt(figures.chunk_latency.value * (timed.bandwidth_s + own)))


def test_small_messages_take_ll_middle_ones_ll128_and_large_ones_simple():
    chosen = [
        timing.time(machine("dgx-a100"), node(8, "dgx-a100"), "all_gather", V).protocol for V in (2**10, 2**22, 2**28)
    ]
    assert chosen == ["ll", "ll128", "simple"]


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_over_nodes_the_choice_is_the_least_over_the_protocols(kind):
    sizes, route = 2.0 ** np.arange(8, 34), two_levels(8, 4)
    chosen = timing.time(machine("dgx-h100"), route, kind, sizes).time_s
    names = ("ll", "ll128", "simple")
    forced = [timing.time(machine("dgx-h100"), route, kind, sizes, protocol=name).time_s for name in names]
    assert np.array_equal(chosen, np.min(forced, axis=0))


def test_a_harness_takes_the_place_of_the_default_launch():
    times = {
        name: timing.time(machine("dgx-h100"), node(8), "all_reduce", 2**10, launch=name).time_s
        for name in ("threads", "graph", "process", "framework")
    }
    assert times["threads"] - times["graph"] == pytest.approx(1.4e-6)
    assert times["process"] - times["graph"] == pytest.approx(22e-6)
    assert times["framework"] - times["graph"] == pytest.approx(22e-6)


def test_an_unknown_protocol_is_answered_with_those_there_are():
    with pytest.raises(InputError) as error:
        timing.time(machine("dgx-h100"), node(8), "all_gather", 2**20, protocol="ll12")
    assert str(error.value) == (
        'error[unknown-protocol]: "ll12" is not a protocol of nvlink 8\n'
        '  = did you mean "ll128"?\n'
        "  = known: ll, ll128, simple"
    )


def test_what_cannot_run_together_is_refused():
    with pytest.raises(InputError) as error:
        timing.time(machine("dgx-h100"), node(8), "all_reduce", 2**20, algorithm="in-switch", protocol="ll")
    assert str(error.value) == (
        "error[no-such-way]: in-switch does not run with the protocol ll\n  = force one of the two only"
    )


def test_what_does_not_run_over_so_many_levels_is_refused_as_that():
    with pytest.raises(InputError) as error:
        collective("all-to-all", hw="book-h100", ranks=512, algorithm="pairwise")
    assert str(error.value) == (
        "error[no-such-way]: pairwise does not run over nvlink 8 x leaf 32 x spine 2 together\n"
        "  = force another one, or none"
    )


# Where an algorithm serves ----------------------------------------------------------------------------------------


def test_a_ring_that_serves_alone_is_not_mixed_with_other_levels_unless_it_is_forced():
    V = 2**30
    free = timing.time(machine("dgx-h100"), two_levels(8, 4), "all_gather", V)
    forced = timing.time(machine("dgx-h100"), two_levels(8, 4), "all_gather", V, algorithm="ring")
    assert (free.algorithm, forced.algorithm) == ("flat-ring", "hierarchical")
    assert forced.time_s < free.time_s
    alone = timing.time(machine("dgx-h100"), two_levels(8, 4)[1:], "all_gather", V)
    assert alone.algorithm == "ring"


def test_sums_in_switches_under_trees_push_what_the_switch_and_the_tree_do():
    V, g, count = 2**30, 8, 2
    timed = timing.time(machine("dgx-h100"), two_levels(g, count), "all_reduce", V, algorithm="in-switch-tree")
    assert timed.carried == V * (g + 1) // g + V // g
    assert timed.link_total == V * (g + 1) // g
    assert timed.latency_s == pytest.approx(2 * 20.9e-6)
    assert timed.steps == 2 + 2
    inside, between = V * (g + 1) / g / (0.689 * 450e9), V / g / (0.915 * 50e9)
    assert timed.bandwidth_s == pytest.approx(max(inside, between))


def test_sums_in_the_network_take_each_node_s_bytes_once_whatever_their_number():
    V, g = 2**30, 8
    for count in (2, 4, 64):
        timed = timing.time(machine("superpod-h100"), two_levels(g, count), "all_reduce", V)
        assert timed.algorithm == "in-switch-network"
        assert timed.carried == V * (g + 1) // g + V // g
        assert timed.steps == 2 + 1
        assert timed.latency_s == pytest.approx(18e-6)
        inside, between = V * (g + 1) / g / (0.689 * 450e9), V / g / (0.8 * 50e9)
        assert timed.bandwidth_s == pytest.approx(max(inside, between))
    cards = timing.time(machine("superpod-h100"), two_levels(g, 4)[1:], "all_reduce", V, algorithm="in-network")
    assert (cards.steps, cards.carried, cards.latency_s) == (1, V, pytest.approx(31e-6))
    assert cards.bandwidth_s == pytest.approx(V / (0.8 * 50e9))


def test_a_network_sums_only_where_the_profile_says_so():
    for name in ("in-network", "in-switch-network"):
        with pytest.raises(InputError, match=f'"{name}" is not an algorithm of all_reduce'):
            timing.time(machine("dgx-h100"), two_levels(8, 4), "all_reduce", 2**20, algorithm=name)


def test_a_ring_over_nodes_that_are_meshes_spreads_over_their_cables():
    V, g, count = 2**30, 8, 2
    timed = timing.time(machine("mi300x"), two_levels(g, count, "mi300x"), "all_gather", V, algorithm="flat-ring")
    nic = V * 15 / 16 / g
    assert timed.bandwidth_s == pytest.approx(max(7 * nic / 7 / (0.75 * 64e9), nic / (0.8 * 50e9)))


def test_levels_that_stream_hide_the_shorter_one():
    V = 2**30
    timed = timing.time(machine("dgx-h100"), two_levels(8, 2), "all_reduce", V, algorithm="tree", protocol="simple")
    assert timed.ramp_s == pytest.approx(
        sum(stage.work_s - stage.latency_s - stage.bandwidth_s for stage in timed.stages)
    )
    longest = max(stage.work_s for stage in timed.stages)
    assert timed.launch_s + longest < timed.time_s
    assert timed.time_s < timed.launch_s + timed.latency_s + timed.bandwidth_s + timed.ramp_s


# Meshes and hosts ------------------------------------------------------------------------------------------------


def test_two_peers_of_a_mesh_have_one_cable_and_eight_have_seven():
    V = 2**32
    rates = [
        wire("all_reduce", V, n) / timing.time(machine("mi300x"), node(n, "mi300x"), "all_reduce", V).time_s
        for n in (2, 8)
    ]
    # Bekman, Machine Learning Engineering, chapter on networks: 47.7 and 312.9 GB/s of bus bandwidth at 4 GiB.
    assert rates == [pytest.approx(47.671e9, rel=0.05), pytest.approx(312.912e9, rel=0.05)]


# Laws -------------------------------------------------------------------------------------------------------------

JOINED = ("dgx-a100", "dgx-h100", "superpod-h100", "gb200-nvl72", "mi300x", "l40s-pcie", "alps-gh200")


SHARE = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "permute": 0}


def pushed(kind, V, n):
    """Bytes that one of n equal members must at least send to the others."""
    return V * (n - 1) / n**2 if kind == "all_to_all" else SHARE[kind] * V * (n - 1) / n


def cut(name, kind, V, g, count):
    """Seconds that any algorithm needs to get the bytes out of a node, or out of a device of a single one.

    A switch that sums needs every device's bytes once, a network that does those of every node.
    """
    inner, outer = machine(name).levels[:2]
    if count > 1:
        sums = kind == "all_reduce" and "in-network" in outer.algorithms
        return (V if sums else pushed(kind, V, count)) / (g * outer.link.bandwidth.value)
    links = {"mesh": max(g - 1, 1), "host": 1 / g}.get(inner.topology, 1)
    least = pushed(kind, V, g)
    sums = kind == "all_reduce" and "in-switch" in inner.algorithms
    return (min(least, V) if sums else least) / (links * inner.link.bandwidth.value)


@given(
    V=st.integers(0, 2**36),
    g=st.integers(1, 72),
    count=st.sampled_from([1, 2, 4, 16]),
    name=st.sampled_from(JOINED),
    kind=st.sampled_from(KINDS),
)
def test_nothing_is_faster_than_the_narrowest_cut(*, V, g, count, name, kind):
    g = min(g, machine(name).levels[0].shape[0])
    timed = timing.time(machine(name), two_levels(g, count, name), kind, V)
    assert timed.time_s >= cut(name, kind, V, g, count) * (1 - 1e-12)


@given(
    V=st.integers(0, 2**36),
    more=st.integers(0, 2**36),
    g=st.integers(1, 72),
    count=st.sampled_from([1, 2, 3, 16]),
    name=st.sampled_from(JOINED),
    kind=st.sampled_from(KINDS),
    protocol=st.sampled_from([None, "ll", "simple"]),
)
def test_more_bytes_never_take_less_with_any_protocol(*, V, more, g, count, name, kind, protocol):
    route = two_levels(min(g, machine(name).levels[0].shape[0]), count, name)
    less, all_of_it = (
        timing.time(machine(name), route, kind, size, protocol=protocol).time_s for size in (V, V + more)
    )
    assert less <= all_of_it * (1 + 1e-12)


def test_every_machine_of_the_library_times_every_collective_it_has_a_form_for():
    for name in spec.names("hardware"):
        level = machine(name).levels[0]
        if level.topology in {"switch", "mesh", "host"}:
            for kind in KINDS:
                assert timing.time(machine(name), node(level.shape[0], name), kind, 2**20).time_s > 0


def test_aggregated_trees_pay_for_every_device_and_serve_where_each_node_has_one():
    node, cards = two_levels(8, 16)
    network = machine("dgx-h100").levels[1]
    figures = network.algorithms["pat"]
    timed = timing.time(machine("dgx-h100"), (cards,), "all_gather", 1, algorithm="pat")
    floor = 1.4e-6 + figures.latency.value + 16 * figures.device_latency.value + 4 * figures.hop_latency.value
    assert timed.time_s == pytest.approx(floor, rel=1e-3)
    assert timing.time(machine("dgx-h100"), (cards,), "all_gather", 2**16).algorithm == "pat"
    both = timing.time(machine("dgx-h100"), (node, cards), "all_gather", 2**16)
    assert "pat" not in {both.algorithm, *(stage.algorithm for stage in both.stages)}


# Messages that wait for their receiver ---------------------------------------------------------------------------


def waiting(name, V, **how):
    """Seconds of an all-reduce over 8 nodes of 4."""
    return timing.time(machine(name), two_levels(4, 8, name), "all_reduce", V, **how).latency_s


def test_each_step_of_a_message_above_the_eager_limit_takes_longer():
    rendezvous = machine("alps-gh200").levels[1].protocols["ll"].rendezvous
    limit = int(rendezvous.above.value)
    eager, later = (waiting("alps-gh200", V, algorithm="tree", protocol="ll") for V in (limit, limit + 1))
    assert later - eager == pytest.approx(6 * rendezvous.latency.value)
    assert waiting("alps-gh200", 1, algorithm="tree", protocol="ll") == eager
    assert waiting("alps-gh200", 2**20, algorithm="tree", protocol="ll") == later


def test_a_ring_sends_a_part_of_the_array_in_each_step():
    rendezvous = machine("alps-gh200").levels[1].protocols["simple"].rendezvous
    limit = 32 * int(rendezvous.above.value)
    eager, later = (waiting("alps-gh200", V, algorithm="flat-ring", protocol="simple") for V in (limit, limit + 1))
    assert later - eager == pytest.approx(2 * 8 * rendezvous.latency.value)


def test_each_peer_of_an_all_to_all_gets_its_own_part():
    network = machine("alps-gh200").levels[1]
    rendezvous = network.protocols["simple"].rendezvous
    limit = 32**2 * int(rendezvous.above.value)
    route = two_levels(4, 8, "alps-gh200")
    eager, later = (
        timing.time(machine("alps-gh200"), route, "all_to_all", V, algorithm="pairwise", protocol="simple").latency_s
        for V in (limit, limit + 1)
    )
    assert later - eager == pytest.approx(4 * 7 * rendezvous.latency.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["ll", "simple"])
def test_what_waits_is_the_same_for_ints_and_arrays(kind, protocol):
    route = two_levels(4, 8, "alps-gh200")
    sizes = [1, 2048, 2049, 4097, 2**16, 2**17 + 1, 2**24]
    plain = [timing.time(machine("alps-gh200"), route, kind, size, protocol=protocol).time_s for size in sizes]
    array = timing.time(machine("alps-gh200"), route, kind, np.array(sizes, dtype=float), protocol=protocol).time_s
    assert np.allclose(array, plain, rtol=1e-12)
