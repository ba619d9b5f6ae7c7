"""Fitting a profile to measured times: what is measured is met, and what is not is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from tpsim.fabric.wires import Segment
from tpsim.machine import timing
from tpsim.machine.fit import Knob, Series, fit, knobs, predict, replaced, times_of
from tpsim.machine.profile import load

H100 = load("dgx-h100")
NODE = (Segment("nvlink", "nvlink", "switch", 8),)
SIZES = 2.0 ** np.arange(9, 31)

OTHER = {
    "levels.nvlink.launch.threads": 6e-6,
    "levels.nvlink.protocols.simple.chunk_latency": 4e-6,
    "levels.nvlink.link.efficiency": 0.7,
}
"""A machine that differs from the profile."""


def measured(kind="all_gather", sizes=SIZES, route=NODE):
    return Series(route, kind, sizes, predict(H100, route, kind, sizes, OTHER))


def test_a_prediction_takes_the_parameters_in_place_of_the_constants_of_those_paths():
    changed = predict(H100, NODE, "all_gather", 2**10, {"levels.nvlink.launch.threads": 13e-6})
    assert changed == pytest.approx(timing.time(H100, NODE, "all_gather", 2**10).time_s + 10e-6)
    assert predict(H100, NODE, "all_gather", 2**10, {}) == timing.time(H100, NODE, "all_gather", 2**10).time_s


def test_every_constant_of_a_level_can_be_replaced_by_its_path():
    for constant in (one for level in H100.levels for one in level.constants()):
        changed = replaced(H100, {constant.path: 2 * constant.value})
        assert {one.path: one.value for one in changed.constants()} == {
            one.path: one.value * (2 if one.path == constant.path else 1) for one in H100.constants()
        }


def test_a_curve_of_another_machine_is_met_within_the_scatter_of_measurements():
    series = measured()
    found = fit(H100, [series])
    assert np.max(np.abs(times_of(found.machine, [series]) / series.seconds - 1)) < 0.04
    before = np.max(np.abs(times_of(H100, [series]) / series.seconds - 1))
    assert before > 0.15


def test_two_points_say_how_the_rest_of_the_curve_lies():
    whole, few = measured(), measured(sizes=np.array([2.0**14, 2.0**25]))
    errors = [
        np.median(np.abs(times_of(found, [whole]) / whole.seconds - 1)) for found in (H100, fit(H100, [few]).machine)
    ]
    assert errors[1] < errors[0] / 2


def test_what_the_data_say_nothing_about_stays_as_it_is():
    found = fit(H100, [measured(sizes=SIZES[SIZES >= 2**26])])
    assert found.certainty["bandwidth of ll"] == 0
    assert found.factors["bandwidth of ll"] == pytest.approx(1)
    assert found.certainty["bandwidth"] > 0.9
    assert not any(path.startswith("levels.network") for path in found.parameters)


def test_one_wild_point_does_not_turn_the_knobs():
    series = measured()
    wild = series.seconds.copy()
    wild[5] *= 3
    calm, shaken = (
        fit(H100, [Series(NODE, "all_gather", SIZES, seconds)]).machine for seconds in (series.seconds, wild)
    )
    assert times_of(shaken, [series]) == pytest.approx(times_of(calm, [series]), rel=0.03)


def test_a_share_never_exceeds_the_whole():
    fast = Series(NODE, "all_gather", SIZES, timing.time(H100, NODE, "all_gather", SIZES).time_s / 2)
    found = fit(H100, [fast], [Knob("bandwidth", ("levels.nvlink.link.efficiency",), 10.0)])
    assert found.parameters["levels.nvlink.link.efficiency"] == 1


def test_sums_in_switches_have_knobs_of_their_own():
    named = {knob.name: knob.paths for knob in knobs(H100)}
    assert named["bandwidth in switches"] == ("levels.nvlink.algorithms.in-switch.efficiency",)
    assert not any("in-switch." in path for path in named["chunk"])
