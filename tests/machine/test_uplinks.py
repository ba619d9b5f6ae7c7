"""Uplinks that the devices of a node share: what they cost, who is told of it, and what devices count of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from study import packed_routes
from tests.reference.site import machine
from tpsim.algebra.mesh import Mesh
from tpsim.answers.explain import explain
from tpsim.answers.hw import hw_validate
from tpsim.claims.verify import verify
from tpsim.fabric.placement import place
from tpsim.guard.formulas import seconds_formulas
from tpsim.machine import timing
from tpsim.machine.cost import TunedLink
from tpsim.machine.profile import load

MOVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")
BASE = "tpsim: hardware/1\nname: four-cards\nextends: dgx-h100\nlevels:\n"
SHARED = BASE + "  nvlink: {shape: [4]}\n  network: {link: {bandwidth: 80 Gbit/s, uplink: 160 Gbit/s}}\n"
"""Two cards for four devices."""

ALONE = {n: BASE + f"  nvlink: {{shape: [4]}}\n  network: {{link: {{bandwidth: {160 // n} Gbit/s}}}}\n" for n in (2, 4)}
"""A card each, of as much as so many devices have of the shared one."""


def timed(text, mesh, axes, kind, V, **options):
    found = machine(text)
    route = place(found.levels, Mesh(mesh)).route(axes)
    return timing.time(found, route, kind, V, **options)


@given(
    kind=st.sampled_from(MOVES),
    V=st.integers(1, 2**32),
    sizes=st.sampled_from([(2, 4), (4, 2), (8, 1), (1, 4), (2, 1), (2, 2)]),
    axes=st.sampled_from([["X"], ["Y"], ["X", "Y"]]),
    cost_model=st.sampled_from(timing.COST_MODELS),
)
def test_every_collective_takes_what_its_part_of_the_uplink_takes_or_its_link(kind, V, sizes, axes, cost_model):
    mesh = dict(zip("XY", sizes, strict=True))
    inside = min(4, sizes[0] * sizes[1]) if sizes[1] < 4 else 4
    shared, alone = (
        timed(text, mesh, axes, kind, V, cost_model=cost_model) for text in (SHARED, ALONE[max(2, inside)])
    )
    assert shared.time_s == alone.time_s


def test_a_node_that_fills_its_cards_gives_each_device_what_the_profile_gave_it_before():
    full, alone = ({"X": 2, "Y": n} for n in (8, 1))
    for name, each in (("p4d-a100", "50 Gbit/s"), ("a3high-h100", "100 Gbit/s")):
        before = f"tpsim: hardware/1\nname: before\nextends: {name}\nlevels: {{network: {{link: "
        before += f"{{uplink: null, bandwidth: {each}}}}}}}\n"
        own = f"tpsim: hardware/1\nname: own\nextends: {name}\n"
        place_one = [place(machine(own).levels, Mesh(alone), {"X": ["network"]}).route(["X"])]
        for kind in MOVES:
            assert (
                timed(own, full, ["X", "Y"], kind, 2**26).time_s == timed(before, full, ["X", "Y"], kind, 2**26).time_s
            )
            one, two = (timing.time(machine(text), place_one[0], kind, 2**30).bandwidth_s for text in (own, before))
            assert one == pytest.approx(two / 2)


def test_a_message_between_stages_shares_the_uplink_with_its_own_stage_alone():
    found = machine(SHARED)
    placement = place(found.levels, Mesh({"pipe": 4, "tensor": 2}))
    inside, across = placement.hop(["pipe"], 0, 1), placement.hop(["pipe"], 1, 2)
    assert [one.level for one in (*inside, *across)] == ["nvlink", "network"]
    assert (inside[0].sharing, across[0].sharing) == (None, 2)
    assert placement.route(["pipe"])[-1].sharing == 4


def test_a_grid_of_layouts_shares_uplinks_as_placements_do():
    found = machine(SHARED)
    tensor = np.array([1.0, 2.0, 4.0, 8.0])
    routes = packed_routes(found, {"data": 16 / tensor, "tensor": tensor}, ("tensor", "data"))
    for at, t in enumerate(map(int, tensor)):
        placement = place(found.levels, Mesh({"data": 16 // t, "tensor": t}))
        for axis in ("data", "tensor"):
            own = {one.level: one.sharing for one in placement.route([axis])}
            priced = {one.level: one.sharing for one in routes[axis] if np.broadcast_to(one.n, 4)[at] > 1}
            assert {
                level: None if many is None else np.broadcast_to(many, 4)[at] for level, many in priced.items()
            } == own


def test_a_curve_is_measured_with_all_that_take_part_on_the_uplink():
    curve = "measured:\n- {collective: all_gather, route: [{level: nvlink, ranks: 4}, {level: network, ranks: 2}],"
    curve += " knots: [{size: 1 kB, predicted: 1 ms, fitted: 2 ms}, {size: 9 kB, predicted: 1 ms, fitted: 2 ms}]}\n"
    found = machine(SHARED + curve)
    assert found.measured[0].route == place(found.levels, Mesh({"X": 8})).route(["X"])
    assert timing.time(found, found.measured[0].route, "all_gather", 5000).curves
    beside = place(found.levels, Mesh({"X": 2, "Y": 4})).route(["X"])
    assert not timing.time(found, beside, "all_gather", 5000).curves


@pytest.mark.parametrize(
    ("level", "link", "message"),
    [
        ("nvlink", "{uplink: 4 TB/s}", "level nvlink joins no nodes whose devices could share an uplink"),
        (
            "network",
            "{uplink: 9 GB/s}",
            "a node's uplink into network carries less than the link of one of its devices",
        ),
    ],
)
def test_an_uplink_without_nodes_or_less_than_one_link_is_refused(tmp_path, level, link, message):
    path = tmp_path / "wrong.yaml"
    path.write_text(f"{BASE}  {level}: {{link: {link}}}\n", encoding="utf-8")
    (problem,) = hw_validate(path).problems
    assert (problem.slug, problem.message, problem.place.line) == ("bad-uplink", message, 5)


def test_what_explains_seconds_says_whether_the_uplink_or_the_link_binds(tmp_path):
    path = tmp_path / "four-cards.yaml"
    path.write_text(SHARED, encoding="utf-8")
    asked = {"model": "gpt-tiny", "hw": str(path), "batch": 8, "seq": 16}
    said = [text for one in explain("all_reduce", tp=4, dp=2, **asked).derivations for text in one.because]
    assert "4 of a node share its uplink into network: 5 GB/s for each, which binds: a link alone has 10 GB/s" in said
    said = [text for one in explain("all_gather", hw=str(path), ranks=8).derivations for text in one.because]
    assert "4 of a node share its uplink into network: 5 GB/s for each, which binds: a link alone has 10 GB/s" in said
    assert "(4 of a node share its uplink)" in str(place(load(path).levels, Mesh({"X": 8})).route(["X"])[-1])


STAGED = {"model": "gpt-tiny", "batch": 8, "seq": 16, "pp": 2, "dp": 2, "tp": 2, "microbatches": 2}


@pytest.mark.usefixtures("anew")
def test_a_wrong_claim_on_uplinks_is_seen_of_collectives_and_of_messages(tmp_path, monkeypatch):
    path = tmp_path / "four-cards.yaml"
    path.write_text(SHARED, encoding="utf-8")
    (right,) = verify(hw=str(path), **STAGED).runs
    assert right.ok
    assert "held by the uplinks of nodes" in next(one.detail for one in right.checks if one.check == "links")
    monkeypatch.setattr(TunedLink, "uplink", lambda self, total: 0 if self.sharing is None else total)
    (wrong,) = verify(hw=str(path), **STAGED).runs
    (links,) = wrong.failed
    assert links.check == "links"
    assert "send over pipe" in links.detail
    (flat,) = verify(hw=str(path), **{**STAGED, "pp": 1, "dp": 4}).runs
    (links,) = flat.failed
    assert "all_reduce over data" in links.detail
    assert "uplink of a node claimed" in links.detail


def test_a_lock_says_which_limit_a_levels_seconds_have():
    shared = "launch + steps*latency + bytes/min(bandwidth, uplink/devices of a node), the least on offer"
    found = {level: formula.text() for level, formula in seconds_formulas(load("p4d-a100"), "additive")}
    assert found == {"nvlink": "launch + steps*latency + bytes/bandwidth, the least on offer", "network": shared}
    profiles = (SHARED, SHARED.replace("uplink: 160 Gbit/s", "uplink: null"))
    shared, alone = (dict(seconds_formulas(machine(text), "additive"))["network"].samples() for text in profiles)
    assert shared != alone


def test_a_machine_without_uplinks_has_none_in_its_segments():
    assert {one.sharing for one in place(load("dgx-h100").levels, Mesh({"X": 32})).route(["X"])} == {None}
