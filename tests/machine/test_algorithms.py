"""Laws of every closed form; tests/reference/test_linkload.py shows that each is what messages put on links."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from tpsim.algebra.moves import wire
from tpsim.fabric.wires import Segment
from tpsim.machine.algorithms import ALGORITHMS, EVERY, FORMS, NCCL, TORUS_FORMS
from tpsim.machine.forms import Traffic
from tpsim.machine.torus_forms import TorusAxis
from tpsim.reference.collectives import algorithms

SIZES = range(1, 18)

ONE_AXIS = [(topology, kind, name) for topology, moves in FORMS.items() for kind in moves for name in moves[kind]]


@pytest.mark.parametrize(("topology", "kind", "name"), ONE_AXIS)
def test_every_form_vanishes_among_one_device(topology, kind, name):
    traffic = FORMS[topology][kind][name](1000, 1)
    assert traffic._replace(piece=None) == Traffic(0, 0, 0, 0, 0)


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
    axes = [TorusAxis(n, closed and n > 2) for n, closed in shape]
    for form in TORUS_FORMS[kind].values():
        assert form(V, axes).link_serial <= form(V + more, axes).link_serial


# The values ------------------------------------------------------------------------------------------------------


def run_by_devices(kind, *topologies):
    """The algorithms that the executor runs over these wires together."""
    segments = [Segment("wires", f"wires.{at}", topology, 4) for at, topology in enumerate(topologies)]
    return set(algorithms(kind, segments))


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_every_algorithm_has_its_messages_on_every_fabric_that_it_has_a_form_on(kind):
    for topology in FORMS:
        assert set(FORMS[topology][kind]) <= run_by_devices(kind, topology), topology
    assert set(TORUS_FORMS[kind]) == run_by_devices(kind, "ring", "ring")
    together = {one.name for one in EVERY if one.across and one.across.run and kind in one.across.moves}
    assert together == run_by_devices(kind, "switch", "switch")


def test_a_name_stands_for_one_algorithm_and_a_librarys_name_for_one_of_ours():
    assert len(ALGORITHMS) == len(EVERY)
    assert len(NCCL) == sum(len(one.nccl) for one in EVERY)
    assert all(one.forms or one.torus or one.across for one in EVERY)


def test_what_an_algorithm_refers_to_is_an_algorithm():
    referred = {word for one in EVERY if one.across for word in (*one.across.needs, *one.across.met_as)}
    referred |= {word for one in EVERY if one.across for word in (*(one.across.in_turn or ()), *one.across.made_of)}
    assert referred | {one.on_nodes for one in EVERY} <= {"", *ALGORITHMS}


def test_a_way_over_two_levels_runs_over_both_together_or_in_turn():
    for one in EVERY:
        if one.across is not None:
            assert (one.across.run is None) == (one.across.in_turn is not None), one.name
