"""Measured curves: smooth through what was measured, never falling, and only for the route that was measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machines import ISLAND, TORUS
from tpsim.calibrate.calibrate import adjusted, calibrate
from tpsim.calibrate.run import MeasuredRun
from tpsim.fabric.wires import Segment
from tpsim.machine import timing
from tpsim.machine.curve import NOISE, REACH, Knot, MeasuredCurve, isotonic, smoothed
from tpsim.machine.curve_file import exact, fields_of
from tpsim.machine.profile import load
from tpsim.machine.timing import predicted_by_constants
from tpsim.quantity.errors import InputError

H100 = load("dgx-h100")
TPU = load("tpu-v5e")
KIB, MIB = 2**10, 2**20


def switch(n, level="nvlink"):
    return Segment(level, level, "switch", n)


NODE = (switch(8),)
KNOTS = (Knot(4 * KIB, 15e-6, 20e-6), Knot(MIB, 25e-6, 22e-6), Knot(64 * MIB, 200e-6, 260e-6))
ROUTES = (NODE, (switch(2),), (switch(8), switch(4, "network")))


def curve(route=NODE, kind="all_gather", launch=None, knots=KNOTS):
    return MeasuredCurve(kind, route, launch, "", knots)


def with_curve(machine, *curves):
    """The machine with these curves, each over what its constants predict."""
    return replace(
        machine,
        measured=tuple(one.scaled_to(lambda V, one=one: predicted_by_constants(machine, one, V)) for one in curves),
    )


def seconds(machine, V, route=NODE, kind="all_gather", **asked):
    return timing.time(machine, route, kind, V, **asked).time_s


# The smooth curve ------------------------------------------------------------------------------------------------

sizes = st.lists(st.integers(1, 2**34), min_size=2, max_size=12, unique=True).map(sorted)


@st.composite
def series(draw, sizes=sizes):
    """Sizes ascending, with times by the constants and by measurement that never fall."""
    volumes = draw(sizes)
    rises = st.lists(st.floats(0, 3), min_size=len(volumes), max_size=len(volumes))
    predicted, measured = (np.exp(np.cumsum(draw(rises))) * 1e-6 for _ in range(2))
    return volumes, predicted.tolist(), measured.tolist()


apart = st.lists(st.integers(8, 70), min_size=2, max_size=12, unique=True).map(sorted)
"""Half octaves: sizes that are nearly one measure the noise, which no system of equations takes away."""


@given(series(apart.map(lambda halves: [round(2 ** (half / 2)) for half in halves])))
def test_without_noise_the_curve_meets_every_point_that_was_measured(found):
    volumes, predicted, measured = found
    knots = smoothed(volumes, predicted, measured, noise=0)
    assert [knot.V for knot in knots] == volumes
    assert [knot.fitted for knot in knots] == pytest.approx(measured, rel=1e-6)
    made = curve(knots=knots)
    assert [made.seconds(knot.V, knot.predicted) for knot in knots] == pytest.approx(measured, rel=1e-6)


def test_a_point_among_others_is_met_nearly_and_scatter_is_halved():
    volumes = [2**k for k in range(10, 30)]
    base = [1e-5] * len(volumes)
    scattered = [1e-5 * exp(NOISE * (-1) ** k) for k in range(len(volumes))]
    left = [abs(knot.fitted / 1e-5 - 1) for knot in smoothed(volumes, base, scattered)]
    assert max(left) < NOISE / 2
    raised = smoothed(volumes, base, [1.2e-5] * len(volumes))
    assert [knot.fitted for knot in raised] == pytest.approx([1.2e-5] * len(volumes), rel=0.002)


def test_sizes_share_what_is_off_over_eight_octaves():
    off = [1.0, 2.0]  # what the farther of two sizes says of the nearer: exp(-distance/8) of its logarithm
    for octaves in (1, 8):
        covariance = 0.3**2 * np.exp(-np.array([[0, octaves], [octaves, 0]]) / 8)
        best = np.exp(covariance @ np.linalg.solve(covariance + NOISE**2 * np.eye(2), np.log(off)))
        knots = smoothed([KIB, KIB * 2**octaves], [1e-6, 1e-3], [1e-6, 2e-3])
        assert [knot.fitted / knot.predicted for knot in knots] == pytest.approx(best.tolist())


def test_several_measurements_of_one_size_count_as_their_mean():
    (first, second) = smoothed([KIB, MIB, KIB], [1e-5, 2e-5, 1e-5], [1e-5, 2e-5, 4e-5], noise=0)
    assert (first.V, second.V) == (KIB, MIB)
    assert first.fitted == pytest.approx(2e-5)


@given(st.lists(st.floats(-5, 5), max_size=12))
def test_pooled_values_never_fall_and_values_that_do_not_fall_stay(values):
    pooled = isotonic(values)
    assert all(a <= b for a, b in pairwise(pooled))
    assert isotonic(sorted(values)) == sorted(values)
    assert len(pooled) == len(values)


# Between the knots -----------------------------------------------------------------------------------------------


@given(series(), st.lists(st.floats(0.5, 2**35), min_size=2, max_size=20).map(sorted), st.floats(0.5, 2))
def test_more_bytes_never_take_less_over_any_constants_that_say_so(found, asked, power):
    volumes, predicted, measured = found
    made = curve(knots=smoothed(volumes, predicted, measured))

    def predict(V):
        return 1e-6 + 1e-10 * V**power

    scaled = made.scaled_to(predict)
    for one in (made.beside(predict), scaled):
        times = [one.seconds(V, predict(V)) for V in asked]
        assert all(b >= a * (1 - 1e-12) for a, b in pairwise(times))


@given(st.data())
def test_more_bytes_never_take_less_on_machines_with_any_curve(data):
    volumes, predicted, measured = data.draw(series())
    route = data.draw(st.sampled_from(ROUTES))
    kind = data.draw(st.sampled_from(["all_gather", "all_reduce", "all_to_all"]))
    factor = data.draw(st.floats(0.2, 5))
    machine = adjusted(H100, {"levels.nvlink.protocols.ll.latency": factor * 3e-6})
    machine = with_curve(machine, curve(route, kind, knots=smoothed(volumes, predicted, measured)))
    asked = sorted(data.draw(st.lists(st.integers(1, 2**35), min_size=2, max_size=8)) + volumes[:3])
    times = [seconds(machine, V, route, kind) for V in asked]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(times))


def test_beyond_the_knots_the_ratio_of_the_last_one_holds():
    made = curve(knots=(*KNOTS, Knot(128 * MIB, 220e-6, 265e-6)))
    assert made.seconds(2**33, 9e-3) == pytest.approx(9e-3 * 265 / 220)
    made = curve()
    assert made.seconds(KIB, 10e-6) == pytest.approx(10e-6 * 20 / 15)
    assert made.seconds(2**33, 9e-3) == pytest.approx(9e-3 * 260 / 200)


def test_away_from_what_was_measured_a_curve_comes_back_to_the_constants():
    def predict(V):
        return 1e-6 + V * 1e-9

    made = curve().scaled_to(predict)
    for knot, octaves in ((made.knots[0], -REACH), (made.knots[-1], REACH), (made.knots[-1], 2 * REACH)):
        V = knot.V * 2**octaves
        predicted = predict(V)
        left = np.log(made.seconds(V, predicted) / predicted) / np.log(knot.fitted / knot.predicted)
        assert left == pytest.approx(np.exp(-abs(octaves) / REACH))


def test_ends_never_take_less_for_more_bytes():
    def ends(least, took):
        knots = tuple(Knot(V, 10e-6, took) for V in (least, 2 * least))
        return [[knot.fitted for knot in one] for one in curve(knots=knots).beside(lambda _: 10e-6).ends]

    assert ends(MIB, 6e-6)[0] == [6e-6] * 3  # coming back would take more for fewer bytes
    assert ends(MIB, 15e-6)[1] == [15e-6] * 3  # and here less for more
    assert len(ends(16, 15e-6)[0]) == 1  # of less than a byte there is nothing to say


def test_between_knots_the_predicted_time_brings_its_rise_and_the_size_the_rest():
    low, middle, high = KNOTS
    slow = curve().seconds(64 * KIB, 20e-6)  # 10 % are measured where 67 % are predicted
    assert slow == pytest.approx(20e-6 * (20 / 15) ** (np.log(1.1) / np.log(25 / 15)))
    steep = curve().seconds(8 * MIB, 50e-6)  # 11.8 times are measured where 8 times are predicted: half way by octaves
    assert steep == pytest.approx(22e-6 * 2 * (260 / 22 / 8) ** 0.5)
    assert [curve().seconds(knot.V, knot.predicted) for knot in (low, middle, high)] == pytest.approx(
        [knot.fitted for knot in (low, middle, high)]
    )


def test_a_curve_carried_to_other_constants_keeps_its_ratios_or_its_seconds():
    scaled, beside = curve().scaled_to(lambda _: 30e-6), curve().beside(lambda _: 30e-6)
    assert [knot.fitted for knot in beside.knots] == [knot.fitted for knot in KNOTS]
    assert scaled.knots[2].fitted == pytest.approx(30e-6 * 1.3)
    assert all(a.fitted <= b.fitted for a, b in pairwise(scaled.knots))


@given(st.sampled_from(ROUTES), st.lists(st.integers(8, 2**32), min_size=1, max_size=5))
def test_numbers_and_arrays_of_bytes_give_one_time(route, asked):
    machine = with_curve(H100, curve(route))
    exactly = [seconds(machine, one, route) for one in asked]
    assert seconds(machine, np.array(asked, float), route) == pytest.approx(exactly, rel=1e-12)


# Where it holds --------------------------------------------------------------------------------------------------


def test_the_seconds_of_the_route_that_was_measured_are_the_curves():
    machine = with_curve(H100, curve())
    timed = timing.time(machine, NODE, "all_gather", MIB)
    plain = timing.time(H100, NODE, "all_gather", MIB)
    ((_, knot, _),) = (one.knots for one in machine.measured)
    assert timed.time_s == pytest.approx(knot.fitted, rel=1e-12)
    assert abs(knot.fitted / plain.time_s - 1) > 0.05
    assert timed.time_s == pytest.approx(plain.time_s + timed.curve_s)
    parts = timed.launch_s + timed.latency_s + timed.bandwidth_s + timed.ramp_s + timed.curve_s
    assert timed.time_s == pytest.approx(parts)
    assert timed.curves == machine.measured
    assert plain.curves == ()


@pytest.mark.parametrize(
    "asked",
    [
        {"route": (switch(4),)},
        {"route": (switch(8), switch(2, "network"))},
        {"route": (switch(8, "network"),)},
        {"route": ()},
        {"kind": "reduce_scatter"},
        {"launch": "graph"},
        {"launch": 2e-6},
        {"launch": 0},
        {"algorithm": "ring"},
        {"protocol": "simple"},
        {"cost_model": "book"},
    ],
)
def test_other_ranks_levels_harnesses_and_what_is_forced_are_predicted_by_the_constants(asked):
    machine = with_curve(H100, curve())
    assert seconds(machine, MIB, **asked) == seconds(H100, MIB, **asked)
    assert seconds(machine, MIB) != seconds(H100, MIB)


def test_what_the_constants_predict_knows_no_curves():
    machine = with_curve(H100, curve())
    assert predicted_by_constants(machine, curve(), MIB) == seconds(H100, MIB) != seconds(machine, MIB)


def test_a_level_of_one_device_is_no_level():
    machine = with_curve(H100, curve())
    assert seconds(machine, MIB, (switch(8), switch(1, "network"))) == pytest.approx(seconds(machine, MIB), rel=1e-12)


def test_the_default_harness_is_the_same_with_and_without_its_name():
    for named in (None, "threads"):
        machine = with_curve(H100, curve(launch=named))
        for asked in (None, "threads"):
            assert timing.time(machine, NODE, "all_gather", MIB, launch=asked).curves
    graph = with_curve(H100, curve(launch="graph"))
    assert timing.time(graph, NODE, "all_gather", MIB, launch="graph").curves
    assert not timing.time(graph, NODE, "all_gather", MIB).curves


def test_elements_of_arrays_of_ranks_have_the_curve_where_they_were_measured():
    machine = with_curve(H100, curve(), curve((switch(2),)))
    ranks, network = np.array([2.0, 4.0, 8.0, 8.0]), np.array([1.0, 1.0, 1.0, 2.0])
    found = seconds(machine, MIB, (switch(ranks), switch(network, "network")))
    one_by_one = [
        seconds(machine, MIB, (switch(a), switch(b, "network"))[: 1 if b == 1 else 2])
        for a, b in ((2, 1), (4, 1), (8, 1), (8, 2))
    ]
    assert found == pytest.approx(one_by_one, rel=1e-12)
    assert one_by_one[2] != seconds(H100, MIB)


def axis(name, n, topology="ring", stride=1):
    return Segment("ici", name, topology, n, stride)


def test_a_ring_is_no_line_no_other_axis_and_none_whose_links_others_share():
    machine = with_curve(TPU, curve((axis("ici.0", 16),)))
    assert timing.time(machine, (axis("ici.0", 16),), "all_gather", MIB).curves
    for other in (
        (axis("ici.0", 16, "line"),),
        (axis("ici.1", 16),),
        (axis("ici.0", 16, stride=2),),
        (axis("ici.0", 16), axis("ici.1", 16)),
    ):
        assert not timing.time(machine, other, "all_gather", MIB).curves


def test_two_parts_along_a_level_are_not_the_one_that_was_measured():
    machine = with_curve(H100, curve())
    assert not timing.time(machine, (switch(4), switch(2)), "all_gather", MIB).curves
    two = (switch(np.array([4.0, 8.0])), switch(np.array([2.0, 1.0])))
    found = timing.time(machine, two, "all_gather", MIB)
    assert (np.abs(found.curve_s) > 0).tolist() == [False, True]


# From a fit ------------------------------------------------------------------------------------------------------


def measured(kind="all_gather", route=NODE, launch="threads", **forced):
    volumes = tuple(4**k for k in range(5, 14))
    blank = MeasuredRun(kind, 8, volumes, launch=launch, route=route, **forced)
    wavy = [float(one) * (1 + 0.2 * (-1) ** (at // 3)) for at, one in enumerate(blank.predicted(H100))]
    return replace(blank, seconds=tuple(isotonic(wavy)))


def test_a_fit_lays_a_curve_over_each_collective_route_and_harness():
    runs = [measured(), measured(), measured("all_reduce"), measured(route=(switch(4),)), measured(launch="graph")]
    found = calibrate(H100, runs)
    assert [(one.kind, one.route[0].n, one.launch) for one in found.machine.measured] == [
        ("all_gather", 8, "threads"),
        ("all_reduce", 8, "threads"),
        ("all_gather", 4, "threads"),
        ("all_gather", 8, "graph"),
    ]
    assert max(np.abs(run.off(found.machine)).max() for run in found.runs) < 0.03
    assert max(np.abs(run.off(replace(found.machine, measured=()))).max() for run in found.runs) > 0.1
    for one in found.machine.measured:
        plain = replace(found.machine, measured=())
        assert [knot.predicted for knot in one.knots] == pytest.approx(
            [predicted_by_constants(plain, one, knot.V) for knot in one.knots], rel=1e-12
        )


def test_what_was_forced_and_a_single_size_make_no_curve():
    single = replace(measured("all_to_all"), V=(MIB, MIB), seconds=(30e-6, 31e-6))
    found = calibrate(H100, [measured(algorithm="ring"), measured("all_reduce", protocol="simple"), single])
    assert found.machine.measured == ()


def test_a_second_fit_keeps_the_curves_of_what_it_did_not_measure():
    first = calibrate(H100, [measured(), measured("all_reduce")]).machine
    slower = replace(measured(), seconds=tuple(1.3 * one for one in measured().seconds))
    second = calibrate(first, [slower]).machine
    assert [one.kind for one in second.measured] == ["all_gather", "all_reduce"]
    kept, was = second.measured[1], first.measured[1]
    assert [knot.fitted for knot in kept.knots] == [knot.fitted for knot in was.knots]
    assert seconds(second, MIB, kind="all_reduce") == pytest.approx(seconds(first, MIB, kind="all_reduce"))


# In a file -------------------------------------------------------------------------------------------------------

CURVE = """\
measured:
  - collective: all_gather
    route: [{level: port, ranks: 8}]
    launch: threads
    knots:
      - {size: 4 KiB, predicted: 10 us, fitted: 12 us}
      - {size: 1 MiB, predicted: 20 us, fitted: 21 us}
      - {size: 64 MiB, predicted: 200 us, fitted: 180 us}
"""


def loaded(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def refusal(tmp_path, text):
    with pytest.raises(InputError) as error:
        loaded(tmp_path, text)
    return error.value


def port(n):
    return (Segment("port", "port", "switch", n),)


def test_a_file_says_ratios_that_hold_whatever_its_constants_predict(tmp_path):
    for text in (ISLAND, ISLAND.replace("400 GB/s", "200 GB/s").replace("4 us", "9 us")):
        machine = loaded(tmp_path, text + CURVE)
        plain = replace(machine, measured=())
        for V, ratio in ((4 * KIB, 1.2), (MIB, 1.05), (64 * MIB, 0.9)):
            now, was = seconds(machine, V, port(8)), seconds(plain, V, port(8))
            assert now == pytest.approx(ratio * was, rel=1e-12)


def test_a_profile_that_extends_one_with_curves_has_them_unless_it_says_otherwise(tmp_path):
    loaded(tmp_path, ISLAND + CURVE)
    over = tmp_path / "over.yaml"
    head = "tpsim: hardware/1\nextends: mine.yaml\nname: over\n"
    for text, curves in (
        (head, 1),
        (head + "levels: {port: {link: {efficiency: 0.7}}}\n", 1),
        (head + "measured: []\n", 0),
    ):
        over.write_text(text.replace("mine.yaml", str(tmp_path / "mine.yaml")), encoding="utf-8")
        machine = load(over)
        assert len(machine.measured) == curves
        assert (seconds(machine, MIB, port(8)) != seconds(replace(machine, measured=()), MIB, port(8))) == bool(curves)


@pytest.mark.parametrize(
    ("old", "new", "slug", "said"),
    [
        ("1 MiB", "2 KiB", "unsorted-sizes", "2 KiB"),
        ("1 MiB", "4 KiB", "unsorted-sizes", "4 KiB"),
        ("fitted: 21 us", "fitted: 11 us", "falling-times", "11 us"),
        ("fitted: 21 us", "fitted: -21 us", "bad-number", "-21 us"),
        ("fitted: 21 us", "fitted: 0 us", "bad-number", "0 us"),
        ("fitted: 21 us", "fitted: 21", "missing-unit", "21"),
        ("predicted: 20 us, fitted: 21 us", "fitted: 21 us", "missing-field", "{size"),
        ("level: port", "level: prot", "unknown-level", "prot"),
        ("ranks: 8}", "ranks: 16}", "too-many-ranks", "16"),
        ("ranks: 8}", "ranks: 8, topology: ring}", "bad-topology", "ring"),
        ("ranks: 8}", "ranks: 8, axis: port.0}", "unknown-axis", "port.0"),
        ("ranks: 8}", "ranks: 8, axis: ''}", "unknown-axis", "''"),
        ("ranks: 8}]", "ranks: 4}, {level: port, ranks: 2}]", "duplicate-axis", "{level: port, ranks: 2}"),
        ("launch: threads\n    knots", "launch: thread\n    knots", "unknown-launch", "collective"),
        ("launch: threads\n    knots", "source: log\n    knots", "unknown-source", "log"),
        ("all_gather", "all_gathr", "unknown-value", "all_gathr"),
        ("knots:", "knot:", "unknown-field", "knot"),
        ("measured:", CURVE.rstrip(), "duplicate-curve", "collective"),
    ],
)
def test_a_bad_curve_is_refused_at_its_place(tmp_path, old, new, slug, said):
    assert CURVE.count(old) == 1
    (problem, *_) = refusal(tmp_path, ISLAND + CURVE.replace(old, new)).problems
    place = problem.place
    line = place.text.splitlines()[-1]
    assert (problem.slug, line[place.column - 1 :][: len(said)]) == (slug, said)
    assert problem.remedy or problem.note


def test_an_axis_of_a_torus_says_whether_it_is_a_ring(tmp_path):
    text = (
        CURVE.replace("level: port", "level: ici, axis: ici.0")
        .replace("ranks: 8", "ranks: 4")
        .replace("    launch: threads\n", "")
    )
    assert refusal(tmp_path, TORUS + text).problems[0].slug == "bad-topology"
    machine = loaded(tmp_path, TORUS + text.replace("ranks: 4", "ranks: 4, topology: ring"))
    assert machine.measured[0].route == (axis("ici.0", 4),)


def test_a_curve_is_written_as_it_is_read(tmp_path):
    import json

    for route in (port(8), (*port(8), Segment("card", "card", "switch", 2))):
        fields = fields_of(curve(route, launch="graph"), loaded(tmp_path, ISLAND).levels)
        machine = loaded(tmp_path, ISLAND + "measured: " + json.dumps([fields]))
        (read,) = machine.measured
        assert (read.kind, read.route, read.launch) == ("all_gather", route, "graph")
        assert [knot.fitted / knot.predicted for knot in read.knots] == pytest.approx([20 / 15, 22 / 25, 1.3])


@given(st.integers(1, 2**50))
def test_sizes_are_written_to_the_byte(V):
    from tpsim.quantity.units import parse

    assert parse(exact(V), "bytes") == V


def test_times_that_fall_beyond_the_noise_are_those_of_the_larger_sizes():
    """What the smallest sizes took once, larger ones did without: 23 us before 14 us are no floor of 18 us."""
    predicted = [13.0] * 6
    took = [23.0, 22.0, 24.0, 14.1, 13.9, 14.0]
    knots = smoothed([2.0**k for k in range(6, 12)], predicted, took)
    assert [knot.fitted for knot in knots] == pytest.approx([14.0] * 6, rel=0.05)


def test_times_that_fall_within_the_noise_are_their_median():
    took = [10.2, 9.9, 10.1, 9.8]
    fitted = [knot.fitted for knot in smoothed([1.0, 2.0, 4.0, 8.0], [10.0] * 4, took)]
    assert fitted == pytest.approx([10.0] * 4, rel=0.01)
