"""What a library takes: what it counts least for, which is not always what takes least; and never less for more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machines import machine, node, refusal
from tpsim.calibrate.calibrate import adjusted
from tpsim.machine import timing
from tpsim.machine.profile import load

KIB, MIB = 2**10, 2**20


def taken(name, n, kind, V, **choice):
    """Algorithm and protocol."""
    timed = timing.time(machine(name), node(n, name), kind, V, **choice)
    return timed.algorithm, timed.protocol


class Counts(NamedTuple):
    """What NCCL counts with: base latency, latency of a step (us), bus bandwidth (GB/s)."""

    latency: float
    hop: float
    bandwidth: float

    def seconds(self, kind, n, V):
        """What it counts: src/graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime."""
        halves = {"all_gather": 1, "all_reduce": 2}[kind]
        start = self.latency + halves * (n - 1) * self.hop
        return start * 1e-6 + V * halves * (n - 1) / n / (self.bandwidth * 1e9)


NCCL = {
    "dgx-a100": {"ll": Counts(6.6, 0.6, 87.7), "ll128": Counts(14, 1.9, 0.92 * 240), "simple": Counts(8.4, 3.4, 240)},
    "dgx-h100": {"ll": Counts(6.6, 0.6, 141), "ll128": Counts(14, 1.9, 0.92 * 360), "simple": Counts(8.4, 3.4, 360)},
}
"""Of rings on one node."""

IN_SWITCH = Counts(25, 0, 360)


@pytest.mark.parametrize("V", [2**k for k in range(10, 31)])
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("name", NCCL)
def test_a_ring_takes_the_protocol_that_nccl_counts_least_for(name, n, V):
    counts = {protocol: count.seconds("all_gather", n, V) for protocol, count in NCCL[name].items()}
    assert taken(name, n, "all_gather", V) == ("ring", min(counts, key=counts.__getitem__))


def test_what_nccl_counts_is_not_what_takes_least():
    """On two A100 an all-reduce of 1 MiB took 41 us, one of 512 KiB 19 us: the protocol changed."""
    V = 1.2 * MIB
    route = node(2, "dgx-a100")
    assert taken("dgx-a100", 2, "all_reduce", V) == ("ring", "simple")
    kept, changed = (
        timing.time(machine("dgx-a100"), route, "all_reduce", V, protocol=name).time_s for name in ("ll", "simple")
    )
    assert changed > 1.3 * kept


@pytest.mark.parametrize("n", [4, 8])
def test_sums_in_the_switch_start_where_nccl_counts_less_for_them(n):
    ll = NCCL["dgx-h100"]["ll"]
    late = IN_SWITCH.seconds("all_reduce", n, 0) - ll.seconds("all_reduce", n, 0)
    gain = [count.seconds("all_reduce", n, 1) - count.seconds("all_reduce", n, 0) for count in (ll, IN_SWITCH)]
    change = late / (gain[0] - gain[1])
    before, after = (taken("dgx-h100", n, "all_reduce", V) for V in (0.99 * change, 1.01 * change))
    assert (before, after) == (("ring", "ll"), ("in-switch", "simple"))


def test_what_is_forced_is_chosen_among_what_is_left():
    assert taken("dgx-h100", 8, "all_reduce", 64 * MIB, protocol="ll") == ("ring", "ll")
    assert taken("dgx-h100", 8, "all_reduce", 64 * MIB, algorithm="ring") == ("ring", "simple")


@pytest.mark.parametrize("n", [2, 4, 8])
def test_messages_of_more_than_16_kib_to_a_peer_are_not_sent_by_ll(n):
    at, above = (taken("dgx-h100", n, "all_to_all", n * n * each) for each in (16 * KIB, 16 * KIB + 1))
    assert (at, above) == (("pairwise", "ll"), ("pairwise", "simple"))
    assert taken("dgx-h100", n, "all_to_all", n * n * MIB, protocol="ll") == ("pairwise", "ll")


def test_a_message_opens_one_channel_after_the_other():
    """Up to 4 KiB a step, one of 24 carries all; then as long as it takes until all of them are open."""
    figures = machine("dgx-h100").level("nvlink").protocols["ll"]
    rate = figures.efficiency.value * 450e9
    sizes = [8 * each for each in (KIB, 4 * KIB, 24 * KIB, 96 * KIB, 192 * KIB)]
    found = [timing.time(machine("dgx-h100"), node(8), "all_gather", V, protocol="ll").bandwidth_s for V in sizes]
    step = [24 * KIB, 24 * 4 * KIB, 24 * 4 * KIB, 24 * 4 * KIB, 192 * KIB]
    assert found == pytest.approx([7 * each / rate for each in step])


# It never takes less for more -------------------------------------------------------------------------------------

SLOW_LL = adjusted(
    machine("dgx-h100"),
    {
        "levels.nvlink.protocols.ll.efficiency": 0.02,
        "levels.nvlink.protocols.ll128.latency": 1e-6,
        "levels.nvlink.protocols.simple.latency": 1e-6,
    },
)
"""A machine whose LL is so slow that NCCL leaves it much too late."""

SIZES = 2.0 ** np.arange(8, 34, 0.125)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_way_that_is_left_too_late_is_not_followed_by_less_time(n, kind):
    times = timing.time(SLOW_LL, node(n), kind, SIZES).time_s
    assert np.all(np.diff(times) >= -1e-12 * times[:-1])
    alone = timing.time(SLOW_LL, node(n), kind, SIZES, protocol="simple").time_s
    assert np.any(times > 1.2 * alone)


def test_a_way_that_is_never_counted_least_lifts_nothing():
    """LL128 of LL's bandwidth and a later start: the library takes LL, then simple, however slow LL128 is."""
    ring = "levels.nvlink.algorithms.ring.protocols.ll128.counted.bandwidth"
    tied = adjusted(machine("dgx-h100"), {ring: 141e9, "levels.nvlink.protocols.ll128.efficiency": 1e-4})
    last = timing.time(tied, node(8), "all_gather", 64 * MIB)
    assert (last.protocol, last.time_s) == (
        "simple",
        timing.time(tied, node(8), "all_gather", 64 * MIB, protocol="simple").time_s,
    )


def test_what_is_added_stands_with_the_bytes_cost():
    V = 8.0 * MIB
    timed = timing.time(SLOW_LL, node(8), "all_gather", V)
    plain = timing.time(SLOW_LL, node(8), "all_gather", V, protocol=timed.protocol)
    assert timed.ramp_s - plain.ramp_s == pytest.approx(timed.time_s - plain.time_s)
    assert timed.time_s == pytest.approx(timed.launch_s + timed.latency_s + timed.bandwidth_s + timed.ramp_s)


@given(st.integers(2, 72), st.floats(8, 34), st.floats(1e-3, 4), st.sampled_from(["all_gather", "all_reduce"]))
def test_time_never_falls_whatever_the_figures(n, exponent, factor, kind):
    other = adjusted(machine("dgx-h100"), {"levels.nvlink.protocols.ll.efficiency": min(1.0, 0.54 * factor)})
    times = timing.time(other, node(n), kind, 2**exponent * np.array([1.0, 1.01, 1.5, 4.0])).time_s
    assert np.all(np.diff(times) >= -1e-12 * times[:-1])


# The same lines for ints and arrays ----------------------------------------------------------------------


@pytest.mark.parametrize("chosen_by", [machine("dgx-h100"), SLOW_LL], ids=["as shipped", "with a slow LL"])
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all"])
def test_arrays_of_bytes_and_devices_take_what_numbers_take(kind, chosen_by):
    each = [(n, V) for n in (1, 2, 4, 8) for V in (KIB, 300 * KIB, 2 * MIB, 5 * MIB, 64 * MIB)]
    singly = [timing.time(chosen_by, node(n), kind, V).time_s for n, V in each]
    n, V = (np.array(column, dtype=np.float64) for column in zip(*each, strict=True))
    assert timing.time(chosen_by, node(n), kind, V).time_s == pytest.approx(singly, rel=1e-12)


# In a profile's file ----------------------------------------------------------------------------------------------


def changed_nvlink(tmp_path, lines):
    path = tmp_path / "mine.yaml"
    path.write_text(f"tpsim: hardware/1\nname: mine\nextends: dgx-a100\nlevels:\n  nvlink:\n{lines}")
    return path


def test_what_a_library_counts_can_be_stated_anew(tmp_path):
    lines = (
        "    algorithms:\n      ring:\n        protocols:\n"
        "          ll: {counted: {bandwidth: {value: 100 GB/s, kind: guess}}}\n"
    )
    counted = load(changed_nvlink(tmp_path, lines)).level("nvlink").algorithms["ring"].protocols["ll"].counted
    assert (counted.bandwidth.value, counted.latency.value) == (100e9, 6.6e-6)


def test_what_is_counted_belongs_to_an_algorithm(tmp_path):
    said = refusal(changed_nvlink(tmp_path, "    protocols: {ll: {counted: {latency: 1 us}}}\n"))
    assert said.startswith('error[unknown-field]: "counted" is not a field of a protocol\n')
    assert ":6:" in said


@pytest.mark.parametrize(("has", "lacks"), [("channels: 24", "channel_bytes"), ("channel_bytes: 4 KiB", "channels")])
def test_channels_and_what_fills_one_are_stated_together(tmp_path, has, lacks):
    said = refusal(changed_nvlink(tmp_path, f"    protocols: {{simple: {{{has}}}}}\n"))
    assert said.startswith(f'error[missing-field]: "{has.split(":")[0]}" says nothing without "{lacks}"\n')
    assert "write both, or neither" in said
