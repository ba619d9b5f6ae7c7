"""A level's latencies are first fitted together: two points of one collective carry over to others and other ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tpsim.calibrate.calibrate import adjustable, adjusted, calibrate, latencies
from tpsim.calibrate.run import MeasuredRun
from tpsim.fabric.wires import Segment
from tpsim.machine.profile import load

H100 = load("dgx-h100")
FAR = 1.75
"""By what the latencies of a machine on another generation of chips may be longer."""


def node(ranks):
    return (Segment("nvlink", "nvlink", "switch", ranks),)


@pytest.fixture(scope="module")
def slow():
    (paths,) = latencies(list(adjustable(H100, {"nvlink"}))).values()
    known = {one.path: one.value for one in H100.constants()}
    return adjusted(H100, {path: FAR * known[path] for path in paths})


def measured(machine, kind, ranks, sizes):
    blank = MeasuredRun(kind, ranks, sizes, launch="threads", route=node(ranks))
    return replace(blank, seconds=tuple(map(float, blank.predicted(machine))))


OTHERS = [("all_gather", 8), ("all_gather", 2), ("reduce_scatter", 4), ("all_to_all", 8), ("all_reduce", 2)]
SMALL = tuple(4**k for k in range(5, 11))


@pytest.mark.parametrize(("kind", "ranks"), OTHERS)
def test_two_points_of_one_collective_on_a_far_base_carry_over_to_others(slow, kind, ranks):
    found = calibrate(H100, [measured(slow, "all_reduce", 8, (2**14, 2**20))]).machine
    other = measured(slow, kind, ranks, SMALL)
    before, after = (float(np.median(np.abs(other.off(machine)))) for machine in (H100, found))
    assert after < before / 3


def test_a_machine_as_its_profile_says_keeps_its_latencies():
    found = calibrate(H100, [measured(H100, "all_reduce", 8, (2**14, 2**20))])
    assert found.fit.moved == {}


def test_latencies_of_a_level_that_was_not_measured_stay():
    found = calibrate(H100, [measured(H100, "all_reduce", 8, (2**14, 2**20))])
    assert list(latencies(list(adjustable(H100, {"nvlink", "network"})))) == [
        "levels.nvlink.latencies",
        "levels.network.latencies",
    ]
    assert not [path for path in found.fit.moved if path.startswith("levels.network")]
