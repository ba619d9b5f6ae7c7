"""Fits of a few positive parameters: what the data tell moves, what they do not stays."""

from __future__ import annotations

import numpy as np
import pytest

from tpsim.calibrate.determine import FitParameter, _Problem, fit

SIZES = np.array([2.0**k for k in range(10, 31)])
START = {"launch": 10e-6, "bandwidth": 100e9}
TRUE = {"launch": 17e-6, "bandwidth": 83e9}
PARAMETERS = [FitParameter("launch", 10e-6, 1.0), FitParameter("bandwidth", 100e9, 0.25)]


def line(sizes):
    """A launch and a bandwidth; whatever else is asked for has no part in it."""
    return lambda values: values["launch"] + sizes / values["bandwidth"]


def test_what_made_the_times_is_found_again():
    found = fit(line(SIZES), PARAMETERS, line(SIZES)(TRUE))
    assert found.values == pytest.approx(TRUE, rel=2e-3)
    assert set(found.moved) == set(TRUE)
    assert np.abs(np.log(line(SIZES)(TRUE) / line(SIZES)(found.values))).max() < 2e-3


def test_noise_leaves_the_values_within_their_errors():
    noise = np.exp(0.03 * np.random.default_rng(7).normal(size=SIZES.size))
    found = fit(line(SIZES), PARAMETERS, line(SIZES)(TRUE) * noise)
    off = {name: abs(np.log(found.values[name] / TRUE[name])) for name in TRUE}
    assert all(off[name] < 3 * found.moved[name] for name in TRUE)
    assert max(found.moved.values()) < 0.03


def test_one_time_that_is_far_off_hardly_matters():
    seconds = line(SIZES)(TRUE)
    seconds[4] *= 5
    assert fit(line(SIZES), PARAMETERS, seconds).values == pytest.approx(TRUE, rel=0.02)


def test_two_points_determine_two_parameters():
    ends = SIZES[[0, -1]]
    found = fit(line(ends), PARAMETERS, line(ends)(TRUE))
    assert found.values == pytest.approx(TRUE, rel=5e-3)


@pytest.mark.parametrize(("size", "moves", "stays"), [(1024, "launch", "bandwidth"), (2**33, "bandwidth", "launch")])
def test_a_parameter_that_no_point_depends_on_stays(size, moves, stays):
    point = np.array([float(size)])
    found = fit(line(point), PARAMETERS, line(point)(TRUE))
    assert tuple(found.moved) == (moves,)
    assert found.values[stays] == START[stays]
    assert found.values[moves] == pytest.approx(TRUE[moves], rel=0.01)


def test_of_parameters_that_cannot_be_told_apart_one_moves_and_the_other_is_named():
    def two_launches(values):
        return values["launch"] + values["latency"] + SIZES / values["bandwidth"]

    found = fit(two_launches, [*PARAMETERS, FitParameter("latency", 2e-6, 0.5)], line(SIZES)(TRUE))
    assert "latency" not in found.moved
    assert found.values["latency"] == 2e-6
    assert found.merged == ("latency",)
    assert found.values["launch"] == pytest.approx(15e-6, rel=0.01)


def test_the_datasheet_is_left_alone_by_times_that_it_predicts():
    found = fit(line(SIZES), PARAMETERS, line(SIZES)(START))
    assert found.values == pytest.approx(START, rel=1e-6)


def test_no_parameter_passes_its_bound():
    bounded = [PARAMETERS[0], FitParameter("bandwidth", 100e9, 0.25, largest=110e9)]
    found = fit(line(SIZES), bounded, line(SIZES)({"launch": 10e-6, "bandwidth": 150e9}))
    assert found.values["bandwidth"] == pytest.approx(110e9)
    assert found.bounded == ("bandwidth",)


def test_a_fit_across_two_regimes_finds_both():
    def least_of_two(values):
        small = values["low"] + SIZES / values["slow"]
        large = values["high"] + SIZES / values["fast"]
        return np.minimum(small, large)

    true = {"low": 6e-6, "slow": 30e9, "high": 40e-6, "fast": 300e9}
    starts = [FitParameter("low", 9e-6, 0.7), FitParameter("slow", 40e9, 0.25), FitParameter("high", 20e-6, 0.7)]
    found = fit(least_of_two, [*starts, FitParameter("fast", 360e9, 0.25)], least_of_two(true))
    assert np.abs(least_of_two(true) / least_of_two(found.values) - 1).max() < 0.03
    assert found.values == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize("seconds", [[], [1e-6, 0.0], [1e-6, -1.0], [1e-6, float("nan")]])
def test_a_fit_needs_positive_times(seconds):
    with pytest.raises(ValueError, match="positive times"):
        fit(line(SIZES[: len(seconds)]), PARAMETERS, seconds)


def problem(predict, parameters, truth):
    return _Problem(predict, tuple(parameters), np.log(predict(truth)))


def test_of_two_parameters_with_one_effect_only_one_is_told():
    def both(values):
        return values["launch"] + values["again"] + SIZES / values["bandwidth"]

    parameters = [*PARAMETERS, FitParameter("again", 10e-6, 0.9)]
    told = problem(both, parameters, {**TRUE, "again": 10e-6}).told(np.zeros(3))
    assert sorted(told) == [0, 1]


def test_what_the_fit_is_as_good_without_goes_back_to_its_start():
    def idle(values):
        return line(SIZES)(values) + 0 * values["idle"]

    parameters = [*PARAMETERS, FitParameter("idle", 1e-6, 0.5)]
    found = problem(idle, parameters, {**TRUE, "idle": 1e-6})
    at = np.log([TRUE["launch"] / START["launch"], TRUE["bandwidth"] / START["bandwidth"], 1.3])
    x, chosen = found.pruned(at, [0, 1, 2])
    assert chosen == [0, 1]
    assert x[2] == 0


def test_a_fit_may_end_with_nothing_moved():
    def idle(values):
        return line(SIZES)(START) + 0 * values["idle"]

    found = problem(idle, [FitParameter("idle", 1e-6, 0.5)], {"idle": 1e-6})
    x, chosen = found.pruned(np.array([0.4]), [0])
    assert (x[0], chosen) == (0, [])
    assert found.answer(x, chosen).moved == {}
