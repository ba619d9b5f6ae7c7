"""Shape constants fitted to several machines at once: a factor for all, which a machine that was left out takes too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared import factors_of, fitted, scaled
from tpsim.calibrate.run import MeasuredRun
from tpsim.fabric.wires import Segment
from tpsim.machine.profile import load

A100, H100, L40S = (load(name) for name in ("dgx-a100", "dgx-h100", "l40s-pcie"))
SIZES = tuple(4**k for k in range(5, 16))
TRUTH = {"protocols.ll.latency": 0.5, "protocols.ll.hop_latency": 0.7, "protocols.simple.own_bandwidth": 0.6}


def measured(machine, kind, ranks, truth):
    """A run as the machine with its shape constants scaled would take it."""
    route = (Segment("nvlink", "nvlink", "switch", ranks),)
    blank = MeasuredRun(kind, ranks, SIZES, launch="threads", route=route)
    return replace(blank, seconds=tuple(map(float, blank.predicted(scaled(machine, truth)))))


def seen(*machines, truth):
    """Two collectives over three numbers of ranks on each of these machines."""
    kinds = ("all_gather", "all_to_all")
    return [(one, [measured(one, kind, ranks, truth) for kind in kinds for ranks in (2, 4, 8)]) for one in machines]


def test_factors_that_made_the_times_of_two_machines_are_found():
    both = seen(A100, H100, truth=TRUTH)
    found = fitted(both)
    assert {shape: found.values[shape] for shape in TRUTH} == pytest.approx(TRUTH, rel=0.05)
    assert max(np.abs(run.off(scaled(machine, found.values))).max() for machine, runs in both for run in runs) < 0.02


def test_a_machine_that_was_left_out_is_predicted_with_the_factors_of_another():
    factors = fitted(seen(A100, truth=TRUTH)).values
    run = measured(H100, "all_gather", 8, TRUTH)
    assert run.predicted(scaled(H100, factors)) == pytest.approx(run.seconds, rel=0.05)
    assert np.abs(np.log(run.predicted(H100) / run.seconds)).max() > 0.2


def test_what_is_stated_machine_by_machine_is_not_shared():
    names = {one.name for one in factors_of(seen(A100, H100, truth={}))}
    assert "protocols.ll.efficiency" in names
    assert not names & {"link.efficiency", "link.bandwidth", "algorithms.in-switch.efficiency"}


def test_a_factor_starts_at_the_shipped_figure():
    found = fitted(seen(A100, truth={})).values
    assert found == pytest.approx(dict.fromkeys(found, 1.0))
    assert found
    assert scaled(H100, {}) == H100


def test_a_scaled_share_stays_at_most_the_whole():
    shape = "protocols.ll.efficiency"
    level = scaled(L40S, {shape: 100.0}).levels[0]
    assert level.protocols["ll"].efficiency.value == 1


def test_what_one_machine_guesses_frees_a_factor_on_no_other():
    """MI300X's latencies are guesses, its levels named otherwise: factors are as free as A100 alone leaves them."""
    guessing = load("mi300x")
    route = (Segment(guessing.levels[0].name, guessing.levels[0].name, guessing.levels[0].topology, 8),)
    run = MeasuredRun("all_reduce", 8, SIZES, launch="threads", route=route)
    alone, free = factors_of(seen(A100, truth={})), factors_of([(guessing, [run])])
    spread = {one.name: one.spread for one in alone}
    assert any(one.spread > spread[one.name] for one in free if one.name in spread)
    both = {one.name: one.spread for one in factors_of([(guessing, [run]), *seen(A100, truth={})])}
    assert {name: both[name] for name in spread} == spread
