"""What streamed algorithms claim: cut in ever more pieces, a run takes as long as its busiest link has bytes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.reference.stream import makespan
from tpsim.fabric.wires import Segment
from tpsim.machine.algorithms import STREAMED
from tpsim.reference.collectives import Stretch, schedule
from tpsim.reference.linkload import load

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
TORI = [
    (("ring", 4), ("ring", 8)),
    (("ring", 4), ("line", 4)),
    (("line", 4), ("line", 4)),
    (("line", 2), ("ring", 8)),
    (("ring", 3), ("ring", 4), ("ring", 3)),
    (("line", 2), ("line", 3), ("ring", 4)),
]


def wires(axes):
    return tuple(Segment("wires", f"wires.{at}", topology, n) for at, (topology, n) in enumerate(axes))


def waits(kind, axes, name, pieces):
    """By how much a run in so many pieces is longer than its busiest link, and the steps of a run in one."""
    part = Stretch(wires(axes), name)
    counted, plan = load(kind, [part]), schedule(kind, (part,))
    return makespan(plan, part.segments, pieces) / counted.link_total - 1, counted.steps


def tends_to_its_busiest_link(kind, axes, name, most):
    """True if what is waited for is a step's worth of pieces at most, however many pieces there are."""
    found = {pieces: waits(kind, axes, name, pieces) for pieces in (1, 4, most)}
    return all(0 <= longer <= Fraction(steps, pieces) for pieces, (longer, steps) in found.items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", TORI)
def test_rotated_parts_of_any_torus_tend_to_its_busiest_link(axes, kind):
    assert "rotated" in STREAMED
    assert tends_to_its_busiest_link(kind, axes, "rotated", 4)


@pytest.mark.parametrize("n", range(2, 17))
def test_trees_tend_to_their_busiest_port(n):
    assert "tree" in STREAMED
    assert tends_to_its_busiest_link("all_reduce", [("switch", n)], "tree", 64)


@pytest.mark.parametrize("n", [2, 3, 4, 8, 16])
def test_sums_in_a_switch_tend_to_their_busiest_port(n):
    assert "in-switch" in STREAMED
    assert tends_to_its_busiest_link("all_reduce", [("switch", n)], "in-switch", 32)


@pytest.mark.parametrize("name", ["in-switch-tree", "in-switch-network"])
@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (4, 3), (2, 5), (4, 4)])
def test_sums_in_switches_under_trees_or_networks_tend_to_their_busiest_port(sizes, name):
    assert name in STREAMED
    assert tends_to_its_busiest_link("all_reduce", [("switch", n) for n in sizes], name, 32)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_an_all_reduce_on_a_line_tends_to_its_busiest_link_too_as_machines_have_it_that_stream(n):
    assert tends_to_its_busiest_link("all_reduce", [("line", n)], "line", 64)


@pytest.mark.parametrize(
    ("axes", "name"), [([("switch", 8)], "in-switch"), ([("switch", 8)], "tree"), (TORI[0], "rotated")]
)
def test_a_run_in_one_piece_is_longer(axes, name):
    assert waits("all_reduce", axes, name, 1)[0] > Fraction(1, 100)
