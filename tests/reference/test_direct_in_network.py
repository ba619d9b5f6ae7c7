"""Scatters and gathers straight from each to each in a node, and sums in the network between: NCCL's CollNetDirect."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

import pytest

from tpsim.fabric.wires import Segment
from tpsim.machine import timing
from tpsim.machine.profile import load as machine
from tpsim.machine.tunings import Tuning
from tpsim.quantity.errors import InputError
from tpsim.reference.collectives import Stretch
from tpsim.reference.linkload import load

NAME = "direct-in-network"
FIELDS = ("steps", "carried", "link_total", "link_serial")
SIZES = [(2, 2), (8, 2), (4, 5), (3, 4), (8, 8)]


def nodes(inner, outer):
    return (Segment("nvlink", "nvlink", "switch", inner), Segment("network", "network", "switch", outer))


@pytest.mark.parametrize("sizes", SIZES)
def test_every_link_is_loaded_as_priced(sizes):
    route, V = nodes(*sizes), 240 * prod(sizes) ** 3
    priced = timing.time(machine("superpod-h100"), route, "all_reduce", V, algorithm=NAME)
    assert (priced.algorithm, [stage.algorithm for stage in priced.stages]) == (NAME, ["direct", "in-network"])
    counted = load("all_reduce", [Stretch((route[0],), "direct"), Stretch((route[1],), "in-network")], V)
    assert [Fraction(getattr(priced, field)) for field in FIELDS] == [getattr(counted, field) for field in FIELDS]


@pytest.mark.parametrize("sizes", SIZES)
def test_a_node_is_crossed_in_one_step_each_way_and_the_network_in_one(sizes):
    """NCCL, src/device/all_reduce.h, CollNetDirect: scatter to the node's other devices, sum in the network, gather."""
    inner, _ = sizes
    priced = timing.time(machine("superpod-h100"), nodes(*sizes), "all_reduce", 2**20, algorithm=NAME)
    assert priced.steps == 3
    assert priced.stages[0].traffic.link_total == Fraction(2 * 2**20 * (inner - 1), inner)
    assert priced.stages[1].traffic.link_total == Fraction(2**20, inner)


def test_it_is_taken_only_where_it_is_forced_or_a_profile_offers_it():
    of, route = machine("superpod-h100"), nodes(8, 4)
    assert NAME in timing.algorithms(of, route, "all_reduce")
    assert NAME not in timing.algorithms(of, route, "all_gather")
    free = timing.time(of, route, "all_reduce", 2**26)
    assert NAME not in free.algorithm
    inner, outer = of.levels
    offers = outer.but(algorithms={"in-network": outer.algorithms["in-network"], NAME: Tuning()})
    offering = timing.time(replace(of, levels=(inner, offers)), route, "all_reduce", 2**26)
    assert offering.algorithm == NAME
    forced = timing.time(of, route, "all_reduce", 2**26, algorithm=NAME)
    assert offering.time_s == forced.time_s > free.time_s


def test_a_network_whose_switches_do_not_sum_has_it_not():
    with pytest.raises(InputError, match='"direct-in-network" is not an algorithm of all_reduce'):
        timing.time(machine("dgx-h100"), nodes(8, 4), "all_reduce", 2**20, algorithm=NAME)
