"""Laws of schedules, read without values: nobody sends what it has not, and everybody ends with what is due."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpsim.fabric.wires import Segment
from tpsim.quantity.errors import InputError
from tpsim.reference import levels, permutes
from tpsim.reference.collectives import FAMILIES, Stretch, algorithms, schedule
from tpsim.reference.levels import Axis
from tpsim.reference.linkload import load
from tpsim.reference.schedule import joined


def segment(topology, n, axis=0):
    return Segment("wires", f"wires.{axis}", topology, n)


def torus(*axes):
    return tuple(segment(topology, n, axis) for axis, (topology, n) in enumerate(axes))


GATHERS = [(topology, name) for topology, kinds in FAMILIES.items() for name in kinds["all_gather"]]
EXCHANGES = [(topology, name) for topology, kinds in FAMILIES.items() for name in kinds["all_to_all"]]
SEVERAL = {
    "torus, rotated": [Stretch(torus(("ring", 3), ("line", 4)), "rotated")],
    "torus, in turn": [Stretch(torus(("line", 2), ("ring", 4), ("ring", 3)), "in-turn")],
    "flat ring": [Stretch(torus(("switch", 3), ("switch", 2)), "flat-ring")],
    "levels": [Stretch(torus(("ring", 3)), "two-rings"), Stretch((segment("switch", 4, 1),), "doubling")],
}


def units(pieces):
    return {unit for start, stop in pieces for unit in range(start, stop)}


def own(plan, rank):
    """A device's own blocks."""
    each = plan.blocks * plan.units // plan.n
    return set(range(rank * each, (rank + 1) * each))


def delivered(plan, held):
    """What everybody has after all steps; fails if somebody sends what it has not, or gets what it has."""
    for step in plan.steps:
        got = [(send, units(send.pieces)) for send in step]
        for send, piece in got:
            assert piece <= held[send.source], "sent before it came"
        for send, piece in got:
            assert not piece & held[send.target], "sent twice"
            held[send.target] |= piece
    return held


def exchanged(plan):
    """The same for chunks that leave the sender."""
    held = [own(plan, rank) for rank in range(plan.n)]
    for step in plan.steps:
        got = [(send, units(send.pieces)) for send in step]
        for send, piece in got:
            assert piece <= held[send.source], "sent before it came"
            held[send.source] -= piece
        for send, piece in got:
            held[send.target] |= piece
    return held


def gathers(parts):
    plan = schedule("all_gather", tuple(parts))
    everything = set(range(plan.blocks * plan.units))
    assert delivered(plan, [own(plan, rank) for rank in range(plan.n)]) == [everything] * plan.n


def exchanges(parts):
    plan = schedule("all_to_all", tuple(parts))
    due = [units([_chunk(plan, source, rank) for source in range(plan.n)]) for rank in range(plan.n)]
    assert exchanged(plan) == due


def _chunk(plan, source, target):
    start = (source * plan.n + target) * plan.units
    return start, start + plan.units


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize(("topology", "name"), GATHERS)
def test_a_gather_sends_every_chunk_once_to_everyone(topology, name, n):
    gathers([Stretch((segment(topology, n),), name)])


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize(("topology", "name"), EXCHANGES)
def test_an_exchange_hands_every_chunk_on_until_it_is_there(topology, name, n):
    exchanges([Stretch((segment(topology, n),), name)])


@pytest.mark.parametrize("parts", SEVERAL.values(), ids=SEVERAL)
def test_a_gather_over_several_axes_sends_every_chunk_once_to_everyone(parts):
    gathers(parts)


@pytest.mark.parametrize("name", ["rotated", "in-turn"])
@pytest.mark.parametrize("axes", [(("ring", 3), ("line", 4)), (("line", 2), ("ring", 3), ("line", 2))])
def test_an_exchange_over_several_axes_hands_every_chunk_on_until_it_is_there(axes, name):
    exchanges([Stretch(torus(*axes), name)])
    exchanges([Stretch((one,), algorithms("all_to_all", [one])[0]) for one in torus(*axes)])


def test_an_exchange_over_two_levels_hands_every_chunk_on_until_it_is_there():
    exchanges([Stretch(torus(("switch", 3), ("switch", 4)), "pairwise")])
    exchanges([Stretch((segment("switch", 3),), "direct"), Stretch((segment("switch", 4, 1),), "pairwise")])


@pytest.mark.parametrize("n", range(2, 12))
def test_the_farthest_chunks_go_first_one_per_link_and_slot(n):
    plan = schedule("all_to_all", (Stretch((segment("line", n),), "farthest-first"),))
    for step in plan.steps:
        assert max(Counter((send.source, send.way) for send in step).values()) == 1
    assert {send.size for step in plan.steps for send in step} == {1}


def test_a_gather_run_backwards_twice_is_itself_but_that_it_adds():
    plan = schedule("all_gather", (Stretch(torus(("ring", 4), ("line", 3)), "rotated"),))
    again = plan.backwards().backwards()
    assert [[send._replace(add=False) for send in step] for step in again.steps] == [[*step] for step in plan.steps]
    assert all(send.add for step in again.steps for send in step)


def idle(kind):
    """What an axis runs of which only the size counts."""
    raise AssertionError(kind)


@pytest.mark.parametrize("shape", [(4, 8), (3, 5), (16, 3), (2, 3, 4), (3, 4, 5), (4, 4, 4), (2, 2, 16), (2, 3, 2, 3)])
def test_rotated_parts_have_shares_that_make_up_the_array(shape):
    for closed in product((True, False), repeat=len(shape)):
        joined_ends = [ring and n > 2 for ring, n in zip(closed, shape, strict=True)]
        axes = [Axis(n, (at,), idle) for at, n in enumerate(shape)]
        shares = dict(levels.weighted(axes, joined_ends))
        assert sum(shares.values()) == 1
        assert all(share > 0 and sorted(order) == [*range(len(shape))] for order, share in shares.items())


def test_two_devices_joined_twice_cannot_keep_up_with_a_line():
    with pytest.raises(InputError, match=r"no shares keep all links of 2 \(ring\) x 8 \(line\) equally busy"):
        load("all_gather", [Stretch(torus(("ring", 2), ("line", 8)), "rotated")])


@given(st.permutations(range(12)), st.sampled_from(["ring", "one_way_ring", "line", "switch"]))
def test_any_permute_arrives(targets, topology):
    plan = permutes.routed(torus((topology, 3), ("line", 2), ("ring", 2)), targets)
    held = exchanged(plan)
    halves = [units([(block * plan.units, (block + 1) * plan.units)]) for block in range(12)]
    assert [held[target] for target in targets] == halves


def test_pieces_that_touch_are_one():
    assert joined([(4, 6), (0, 2), (2, 4), (8, 9), (9, 9)]) == ((0, 6), (8, 9))


def test_a_piece_weighs_its_share_of_the_array():
    plan = schedule("all_gather", (Stretch((segment("ring", 4),), "ring"),))
    sent = [stop - start for send in plan.steps[0] + plan.steps[1] for start, stop in (send.pieces[0],)]
    assert [Fraction(one, plan.blocks * plan.units) for one in sent] == [Fraction(1, 4)] * 8 + [Fraction(1, 8)] * 8


def test_an_unknown_algorithm_is_refused_with_those_that_are_known():
    with pytest.raises(InputError, match="known: ring, two-rings"):
        load("all_gather", [Stretch((segment("ring", 4),), "tree")])


def test_a_torus_of_switches_and_rings_has_no_schedule():
    with pytest.raises(InputError, match="no schedule of all_gather is known"):
        load("all_gather", [Stretch(torus(("ring", 4), ("switch", 2)), "rotated")])
