"""Sends between two devices, of which permutes and all-to-alls are made: NCCL limits the protocols that they take."""

from __future__ import annotations

import numpy as np
import pytest

from tests.machines import machine, node, two_levels
from tpsim import collective, explain, plan
from tpsim.machine import timing
from tpsim.machine.groups import LevelGroup, forms
from tpsim.machine.profile import load
from tpsim.pages.collective import page
from tpsim.quantity.spec import names

LIMITED = [name for name in names("hardware") if any("ll" in level.protocols for level in load(name).levels)]


@pytest.mark.parametrize("name", LIMITED)
def test_no_level_sends_a_message_of_any_size_by_another_protocol_than_simple(name):
    for level in load(name).levels:
        for kind in ("pairwise", "all-peers", "permute") if level.protocols else ():
            group = LevelGroup(level, ())
            links = {protocol: group.link(kind, protocol) for protocol in level.protocols}
            free = [protocol for protocol, link in links.items() if link and link.figures.largest_message is None]
            assert free == ["simple"], (level.name, kind)
            assert links.get("ll128") is None


SENT = 16 * 1024
"""Bytes of the largest message that NCCL sends by LL."""


@pytest.mark.parametrize("arrays", [False, True], ids=["numbers", "arrays"])
@pytest.mark.parametrize(
    ("kind", "route", "message"),
    [
        ("permute", node(8), 8),
        ("all_to_all", node(8), 64),
        ("permute", two_levels(1, 4)[1:], 4),
        ("all_to_all", two_levels(1, 4)[1:], 16),
        ("permute", two_levels(8, 4), 32),
    ],
)
def test_a_message_above_the_librarys_limit_is_sent_by_simple(kind, route, message, arrays):
    """`message`: the array's bytes over those of one message; LL takes less for all of these sizes, and more bytes."""

    def seconds(V, **forced):
        asked = np.array([float(V)]) if arrays else V
        return float(np.ravel(timing.time(machine("dgx-h100"), route, kind, asked, **forced).time_s)[0])

    at, above = SENT * message, (SENT + 64) * message
    for V in (at, above):
        assert seconds(V, protocol="ll") < seconds(V, protocol="simple")
    assert seconds(at) == seconds(at, protocol="ll")
    assert seconds(above) == seconds(above, protocol="simple")


@pytest.mark.parametrize("name", ["mi300x", "alps-gh200"])
def test_a_mesh_sends_to_all_peers_at_once_within_the_same_limits(name):
    n = machine(name).levels[0].shape[0]
    taken = [timing.time(machine(name), node(n, name), "all_to_all", size * n * n) for size in (SENT, 2 * SENT)]
    assert [(way.algorithm, way.protocol) for way in taken] == [("all-peers", "ll"), ("all-peers", "simple")]


def test_an_all_to_all_over_nodes_is_limited_by_its_messages_as_well():
    route, V = two_levels(8, 4), SENT * 32**2
    pairs = [
        timing.time(machine("dgx-h100"), route, "all_to_all", size, algorithm="pairwise") for size in (V, V + 2**20)
    ]
    assert [pair.protocol for pair in pairs] == ["ll", "simple"]


def test_two_devices_exchange_as_a_permute_of_two_does():
    """Both are a send and a receive: what differs is the own share, which an all-to-all passes on beside them."""
    for V in (2**10, 2**20, 2**28):
        both = timing.time(machine("dgx-h100"), node(2), "all_to_all", 2 * V)
        one = timing.time(machine("dgx-h100"), node(2), "permute", V)
        assert (both.protocol, both.launch_s, both.latency_s) == (one.protocol, one.launch_s, one.latency_s)
        assert both.wire == one.wire


def test_what_a_host_passes_on_for_all_is_not_one_message():
    """Eight L40S, whose host carries 64 messages in two passes: NCCL leaves LL when one of them is above 32 KiB."""
    (segment,) = node(8, "l40s-pcie")
    group = LevelGroup(machine("l40s-pcie").level("pcie"), (segment,))
    for kind, parts in (("all_to_all", 64), ("permute", 8)):
        (form,) = forms(group, kind).values()
        assert form(parts * 32768).message == 32768


def test_the_page_and_the_reasons_say_what_sends_are_limited_to():
    text = "a message from one device to another over network takes ll only up to 16.38 kB, never ll128"
    result = collective("all-to-all", hw="dgx-h100", ranks=4, level="network", sizes="1MiB")
    assert text in page(result, verbose=True).notes
    assert text not in page(result, verbose=False).notes
    assert not collective("all-gather", hw="dgx-h100", ranks=4, level="network", sizes="1MiB").sends
    said = [because for one in explain("send", **STAGED).derivations for because in one.because]
    assert text in said


STAGED = {"model": "gpt-tiny", "hw": "dgx-h100", "batch": 16, "seq": 16, "pp": 2, "dp": 8, "microbatches": 2}


@pytest.mark.parametrize("protocol", ["ll128", "simple"])
def test_a_protocol_that_is_forced_on_a_plan_does_not_reach_its_sends(protocol):
    taken = {row["collective"]: row["protocol"] for row in plan(**STAGED, protocol=protocol).collectives}
    assert (taken["all_reduce"], taken["send"]) == (protocol, "ll")


def test_a_protocol_of_a_collective_that_is_asked_for_alone_is_forced():
    (row,) = collective("permute", hw="dgx-h100", ranks=4, level="network", sizes="1MiB", protocol="ll").rows
    assert row.protocol == "ll"
