"""What a timing says of itself: the constants and the formulas that can move it, told by moving every one of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tpsim.fabric.change import Change
from tpsim.fabric.slices import AxisPiece
from tpsim.fabric.wires import Segment
from tpsim.guard.formulas import form_formulas, move_formulas, seconds_formulas
from tpsim.machine import algorithms, timing
from tpsim.machine.curve import Knot, MeasuredCurve
from tpsim.machine.parts import changed
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError

MACHINES = ("dgx-h100", "tpu-v5e", "l40s-pcie", "mi300x")
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")
VOLUMES = (2**16, 2**30)
FACTORS = (0.01, 3.0, 1000.0)

machine = cache(load)


def routes(name):
    """One level, and where the machine has several all of them together."""
    levels = machine(name).levels
    if levels[0].topology == "torus":
        axes = [Segment(levels[0].name, f"{levels[0].name}.{at}", shape, 4) for at, shape in ((0, "ring"), (1, "line"))]
        return [tuple(axes[:1]), tuple(axes), (axes[0], Segment(levels[1].name, levels[1].name, "switch", 2))]
    parts = [Segment(one.name, one.name, one.topology, n) for one, n in zip(levels, (4, 2), strict=False)]
    return [tuple(parts[:end]) for end in range(1, len(parts) + 1)]


@cache
def moved(name, paths, factor):
    """The machine with some constants a factor larger; one that is 0 gets something."""

    def larger(one):
        return one.but(value=(one.value or 1e-3) * factor) if one.path in paths else one

    return changed(machine(name), larger)


def asked(name):
    """Everything that is asked of a machine: route, move, cost model."""
    for route in routes(name):
        for kind in KINDS:
            yield from ((route, kind, model) for model in timing.COST_MODELS)


def seconds(of, route, kind, V, model, **forced):
    try:
        return timing.time(of, route, kind, V, cost_model=model, **forced).time_s
    except InputError:
        return None


@pytest.mark.parametrize("name", MACHINES)
def test_no_constant_moves_a_collective_that_does_not_name_it(name):
    of = machine(name)
    every = [one.path for one in of.constants()]
    for route, kind, model in asked(name):
        for V in VOLUMES:
            try:
                timed = timing.time(of, route, kind, V, cost_model=model)
            except InputError:
                continue
            others = [path for path in every if path not in timed.constants]
            assert others
            again = seconds(moved(name, frozenset(others), 3.0), route, kind, V, model)
            assert again == timed.time_s, (others, route, kind, V, model)


@pytest.mark.parametrize("name", MACHINES)
def test_every_constant_that_a_collective_names_can_move_it_or_a_way_that_it_is_compared_with(name):
    of = machine(name)
    for route, kind, model in asked(name):
        ways = [{}]
        if model == "additive":
            ways += [{"algorithm": one} for one in timing.algorithms(of, route, kind)]
            ways += [{"protocol": one} for level in of.levels for one in level.protocols]
        asks = [(V, way) for V in (2**power for power in range(30, 2, -3)) for way in ways]
        if seconds(of, route, kind, VOLUMES[-1], model) is None:
            continue
        for path in timing.time(of, route, kind, VOLUMES[-1], cost_model=model).constants:
            others = [moved(name, frozenset({path}), factor) for factor in FACTORS]
            assert any(
                seconds(other, route, kind, V, model, **way) != seconds(of, route, kind, V, model, **way)
                for V, way in asks
                for other in others
            ), (path, route, kind, model)


def test_a_curve_that_holds_is_named_beside_the_constants():
    of, route = machine("dgx-h100"), (Segment("nvlink", "nvlink", "switch", 4),)
    curve = MeasuredCurve("all_gather", route, None, "", (Knot(1e3, 1e-5, 2e-5), Knot(1e6, 2e-5, 3e-5)))
    measured = replace(of, measured=(curve,))
    path = "levels.nvlink.measured.all_gather over nvlink 4"
    assert timing.time(measured, route, "all_gather", 2**20).constants[-1] == path
    assert path not in timing.time(measured, route, "all_reduce", 2**20).constants


def test_a_collective_names_what_its_library_compares_it_with():
    route = routes("dgx-h100")[0]
    timed = timing.time(machine("dgx-h100"), route, "all_reduce", 2**30)
    assert timed.algorithm == "in-switch"
    assert "levels.nvlink.link.bandwidth" in timed.constants
    assert "levels.nvlink.algorithms.ring.protocols.ll.counted.hop_latency" in timed.constants
    assert {"form.switch.all_reduce.in-switch", "form.switch.all_reduce.ring"} < set(timed.formulas)


def test_a_forced_way_names_its_own_constants_alone():
    route = routes("dgx-h100")[0]
    timed = timing.time(machine("dgx-h100"), route, "all_reduce", 2**30, algorithm="ring", protocol="simple")
    assert not any("algorithms.tree" in path or "protocols.ll." in path for path in timed.constants)
    assert timed.formulas == ("wire.all_reduce", "form.switch.all_reduce.ring", "seconds.additive.dgx-h100.nvlink")


@pytest.mark.parametrize("name", MACHINES)
def test_the_formulas_that_a_collective_names_are_those_of_a_lock(name):
    of = machine(name)
    known = {f"wire.{formula}" for formula, _ in move_formulas()} | {
        f"form.{formula}" for formula, _ in form_formulas()
    }
    for model in timing.COST_MODELS:
        known |= {f"seconds.{model}.{of.name}.{level}" for level, _ in seconds_formulas(of, model)}
    for route, kind, model in asked(name):
        if seconds(of, route, kind, 2**20, model) is not None:
            found = timing.time(of, route, kind, 2**20, cost_model=model).formulas
            assert f"wire.{kind}" in found
            assert set(found) <= known


def doubled(form):
    """A closed form whose messages and steps are twice as many."""
    return lambda V, n: form(V, n).then(form(V, n))


@pytest.mark.parametrize("name", MACHINES)
def test_no_closed_form_moves_a_collective_that_does_not_name_it(name, monkeypatch):
    of = machine(name)
    plain = {
        (route, kind, model, V): timing.time(of, route, kind, V, cost_model=model)
        for route, kind, model in asked(name)
        for V in (2**10, 2**30)
        if seconds(of, route, kind, V, model) is not None
    }
    names = {key: set(timed.formulas) for key, timed in plain.items()}
    moves = 0
    for topology, kinds in algorithms.FORMS.items():
        for of_kind, forms in kinds.items():
            for form in forms:
                with monkeypatch.context() as patch:
                    patch.setitem(forms, form, doubled(forms[form]))
                    anew = replace(of)  # which has timed nothing yet
                    for key, timed in plain.items():
                        route, kind, model, V = key
                        if timing.time(anew, route, kind, V, cost_model=model).time_s != timed.time_s:
                            assert f"form.{topology}.{of_kind}.{form}" in names[key], (key, topology, of_kind, form)
                            moves += 1
    assert moves


def test_a_change_of_axes_names_the_wires_whose_blocks_are_summed():
    route = (Segment("ici", "ici.0", "ring", 8),)
    change = Change(((AxisPiece("ici.0", 2, 4),), (AxisPiece("ici.0", 4, 1),)), (1, 0))
    assert timing._counted(route, change) is change
    for model in timing.COST_MODELS:
        timed = timing.time(machine("tpu-v5e"), route, "permute", 2**20, change=change, cost_model=model)
        assert timed.formulas == ("wire.permute", "form.ring.permute.change", f"seconds.{model}.tpu-v5e.ici")
        assert "levels.ici.link.bandwidth" in timed.constants


def test_a_move_that_costs_nothing_names_nothing():
    timed = timing.time(machine("tpu-v5e"), routes("tpu-v5e")[0], "slice", 2**20)
    assert (timed.constants, timed.formulas) == ((), ())
