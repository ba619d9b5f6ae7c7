"""Machines fitted to run of measured collectives: figures by path, several collectives and rank counts at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.machines import ISLAND
from tpsim.algebra.mesh import Mesh
from tpsim.calibrate.calibrate import adjustable, adjusted, calibrate, with_harness
from tpsim.calibrate.run import MeasuredRun
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Segment
from tpsim.machine.profile import load
from tpsim.quantity.errors import InputError

SIZES = tuple(4**k for k in range(5, 16))

H100 = load("dgx-h100")
NODE = (Segment("nvlink", "nvlink", "switch", 8),)
OTHER = {
    "levels.nvlink.launch.threads": 6e-6,
    "levels.nvlink.protocols.simple.chunk_latency": 4e-6,
    "levels.nvlink.link.efficiency": 0.7,
}
"""A machine that differs from the profile of the library."""


@pytest.fixture
def machine(tmp_path):
    path = tmp_path / "island.yaml"
    path.write_text(ISLAND, encoding="utf-8")
    return load(path)


def measured(machine, truth, kind, ranks, launch="threads"):
    """A run as the machine with the figures of `truth` would take it."""
    route = place(machine.levels, Mesh({"ranks": ranks})).route(["ranks"])
    blank = MeasuredRun(kind, ranks, SIZES, launch=launch, route=route)
    truly = blank.predicted(adjusted(with_harness(machine, launch), truth))
    return replace(blank, seconds=tuple(map(float, truly)))


TRUTH = {
    "levels.port.link.efficiency": 0.72,
    "levels.port.protocols.ll.hop_latency": 0.9e-6,
    "levels.port.protocols.ll.efficiency": 0.36,
}


NEAR = {
    "levels.port.link.efficiency": 0.76,
    "levels.port.protocols.ll.hop_latency": 0.66e-6,
    "levels.port.protocols.ll.efficiency": 0.316,
}
"""As far off the profile as a fit readily moves its figures."""


def test_figures_that_made_the_times_are_found_from_several_collectives_and_rank_counts(machine):
    runs = [measured(machine, TRUTH, kind, ranks) for kind in ("all_reduce", "all_gather") for ranks in (2, 4, 8)]
    found = calibrate(machine, runs)
    assert {path: found.fit.values[path] for path in TRUTH if path in found.fit.moved} == pytest.approx(TRUTH, rel=0.05)
    assert max(np.abs(run.off(found.machine)).max() for run in found.runs) < 0.02
    assert max(np.abs(run.off(found.base)).max() for run in found.runs) > 0.1


def test_a_fit_at_two_and_four_ranks_predicts_eight(machine):
    runs = [measured(machine, NEAR, "all_gather", ranks) for ranks in (2, 4)]
    found = calibrate(machine, runs)
    eight = measured(machine, NEAR, "all_gather", 8)
    assert eight.predicted(found.machine) == pytest.approx(eight.seconds, rel=0.035)
    assert off(eight, machine).max() > 0.045


def test_a_machine_far_from_its_profile_is_approached_with_care_and_the_rest_is_left_to_curves(machine):
    runs = [measured(machine, TRUTH, "all_gather", ranks) for ranks in (2, 4)]
    found = calibrate(machine, runs)
    eight = measured(machine, TRUTH, "all_gather", 8)
    assert off(eight, found.machine).max() < off(eight, machine).max()
    assert [max(off(one, found.machine)) < 0.02 for one in runs] == [True, True]
    assert [one.route for one in found.machine.measured] == [one.route for one in runs]


def test_figures_that_moved_nothing_stay_as_they_are(machine):
    found = calibrate(machine, [measured(machine, TRUTH, "all_gather", 8)])
    was = {one.path: one.value for one in machine.constants()}
    now = {one.path: one.value for one in found.machine.constants()}
    assert {path for path in was if was[path] != now[path]} == set(found.fit.moved)
    assert not any(path.startswith("levels.card") for path in found.fit.moved)


def test_every_harness_has_a_launch_of_its_own(machine):
    graph, threads = "levels.port.launch.graph", "levels.port.launch.threads"
    truth = {graph: 2e-6, threads: 9e-6}
    runs = [
        measured(machine, truth, "all_reduce", ranks, launch) for launch in ("graph", "threads") for ranks in (2, 8)
    ]
    found = calibrate(machine, runs)
    assert max(np.abs(run.off(found.machine)).max() for run in found.runs) < 0.02
    launches = found.machine.level("port").launch
    assert launches["threads"].value - launches["graph"].value == pytest.approx(7e-6, rel=0.1)


def test_a_harness_that_the_profile_lacks_starts_as_the_default_one(machine):
    extra = with_harness(machine, "framework").level("port").launch["framework"]
    assert (extra.value, extra.kind, extra.path) == (3e-6, "guess", "levels.port.launch.framework")
    run = measured(machine, {"levels.port.launch.framework": 25e-6}, "all_reduce", 8, "framework")
    found = calibrate(machine, [run])
    assert found.fit.values["levels.port.launch.framework"] == pytest.approx(25e-6, rel=0.1)


def test_a_bandwidth_moves_only_where_all_of_it_is_reached_and_else_the_share_of_it_that_is(machine):
    def paths(machine):
        return {one.name for one in adjustable(machine, {"port", "card"}) if ".link." in one.name}

    share, whole = "levels.card.link.efficiency", "levels.card.link.bandwidth"
    hops = {"levels.card.link.hop_latency"}
    assert paths(machine) == {"levels.port.link.efficiency", "levels.port.link.hop_latency", share, *hops}
    assert paths(adjusted(machine, {share: 1.0})) == {
        "levels.port.link.efficiency",
        "levels.port.link.hop_latency",
        whole,
        *hops,
    }


def test_only_levels_that_were_measured_are_fitted(machine):
    assert all(one.name.startswith("levels.card.") for one in adjustable(machine, {"card"}))


def test_a_share_cannot_pass_all_of_it(machine):
    (share,) = [one for one in adjustable(machine, {"port"}) if one.name == "levels.port.link.efficiency"]
    assert share.largest == 1.0
    assert calibrate(machine, [measured(machine, {}, "all_gather", 8)]).machine.level("port").link.efficiency.value <= 1


def test_a_machine_adjusted_by_nothing_is_the_same(machine):
    assert adjusted(machine, {}) == machine


def test_a_collective_that_the_machine_cannot_run_so_is_refused(machine):
    run = measured(machine, {}, "all_gather", 8)
    with pytest.raises(InputError):
        calibrate(machine, [replace(run, algorithm="no-such")])


# A profile of the library, with its algorithms and protocols ---------------------------------------------------------


def node(sizes=tuple(2**k for k in range(9, 31)), truth=OTHER):
    """An all-gather over a node as the H100 with the figures of `truth` would take it."""
    blank = MeasuredRun("all_gather", 8, sizes, launch="threads", route=NODE)
    return replace(blank, seconds=tuple(map(float, blank.predicted(adjusted(H100, truth)))))


def off(run, machine):
    """How far off a machine's predictions of a run are, relative to the times of the run."""
    return np.abs(run.predicted(machine) / run.seconds - 1)


def test_a_prediction_takes_the_figures_in_place_of_those_of_their_paths():
    assert np.subtract(node(truth={"levels.nvlink.launch.threads": 11.4e-6}).seconds, node(truth={}).seconds) == (
        pytest.approx(10e-6)
    )


def test_every_constant_of_a_level_can_be_replaced_by_its_path():
    for constant in (one for level in H100.levels for one in level.constants()):
        changed = adjusted(H100, {constant.path: 2 * constant.value})
        assert {one.path: one.value for one in changed.constants()} == {
            one.path: one.value * (2 if one.path == constant.path else 1) for one in H100.constants()
        }


def test_a_curve_of_another_machine_is_met_within_the_scatter_of_measurements():
    assert off(node(), calibrate(H100, [node()]).machine).max() < 0.08
    assert off(node(), H100).max() > 0.15


def test_two_points_say_how_the_rest_of_the_curve_lies():
    fitted = calibrate(H100, [node(sizes=(2**14, 2**25))]).machine
    assert np.median(off(node(), fitted)) < np.median(off(node(), H100)) / 2


def test_large_messages_say_nothing_about_the_protocol_of_small_ones():
    moved = calibrate(H100, [node(sizes=tuple(2**k for k in range(26, 31)))]).fit.moved
    assert "levels.nvlink.link.efficiency" in moved
    assert not any(".protocols.ll." in path or path.startswith("levels.network") for path in moved)


def test_one_wild_point_does_not_bend_the_curve():
    calm = node()
    wild = replace(calm, seconds=(*calm.seconds[:5], 3 * calm.seconds[5], *calm.seconds[6:]))
    fitted = [calibrate(H100, [run]).machine for run in (calm, wild)]
    figures = [replace(one, measured=()) for one in fitted]
    assert calm.predicted(figures[1]) == pytest.approx(calm.predicted(figures[0]), rel=0.03)
    bent = calm.predicted(fitted[1]) / calm.predicted(fitted[0]) - 1
    assert np.flatnonzero(np.abs(bent) > 0.03).tolist() in ([5], [4, 5], [5, 6])
    assert np.abs(bent).max() < 0.2
