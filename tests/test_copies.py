"""Copies of tokens of published models: how many there are, what they send between nodes, and what a plan says of them.

Sources: DeepSeek-V3 (2024), 2.1.2 and 3.2.2, and its config.json; DeepEP's README and tests/test_internode.py.
"""

from __future__ import annotations

import numpy as np
import pytest

import tpsim
from tests.models import mixture
from tests.reference.test_copies import BOTH, NODE, RANK, levelled
from tests.test_expert_volumes import call, sizes_of
from tpsim.program.copies import Router, most_reached, reached
from tpsim.program.dtypes import Dtypes
from tpsim.program.lower import lower
from tpsim.quantity.errors import InputError
from tpsim.reference.routing import own, parts_reached

V3, V3_LIMITED = Router(256, 8), Router(256, 8, groups=8, best=4)
FP8, BF16 = "fp8_128", "bf16"

BY_CHANCE = {
    (256, 8): {2: 1.9930, 4: 3.6142, 8: 5.2947, 16: 6.5233, 32: 7.2668, 64: 7.6758},
    (8, 2): {2: 1.5714, 4: 1.8571, 8: 2},
    (128, 8): {8: 5.3394},
    (128, 4): {8: 3.3425},
}
"""Experts and top -> nodes or ranks -> how many of them a token goes to: simulated over 20,000 tokens within 0.1 %."""


@pytest.mark.parametrize("chosen", BY_CHANCE)
def test_a_token_goes_to_as_many_nodes_as_chance_has_it(chosen):
    found = {parts: float(reached(parts, Router(*chosen))) for parts in BY_CHANCE[chosen]}
    assert found == pytest.approx(BY_CHANCE[chosen], abs=5e-5)


@pytest.mark.parametrize(
    ("model", "nodes", "told"),
    [("mixtral-8x7b", 2, "1.571"), ("mixtral-8x7b", 4, "1.857"), ("gpt-oss-120b", 8, "3.342")],
)
def test_a_plan_has_as_many(model, nodes, told):
    asked = {
        "tpsim": "scenario/1",
        "model": {"extends": model},
        "hardware": "dgx-h100",
        "mesh": {"node": nodes, "gpu": 2},
        "placement": {"node": "network", "gpu": "nvlink"},
        "layout": {"dp": ["node", "gpu"], "ep": ["node", "gpu"]},
        "practice": {"base": "megatron", "rows": {"dispatch": "node"}},
        "workload": {"seq": 256, "global_batch": 2 * nodes, "dtype": "bf16"},
    }
    (text,) = (one.text for one in tpsim.plan(asked).assumptions if one.text.startswith("a token goes"))
    assert text.startswith(f"a token goes to {told} of {nodes} nodes, as chance has it")


def test_copies_lie_between_one_and_what_there_are_of_experts_or_nodes():
    for router in (V3, V3_LIMITED, Router(64, 6, groups=8, best=3)):
        found = [reached(parts, router) for parts in (1, 2, 4, 8, 16, 32, 64)]
        most = [most_reached(parts, router) for parts in (1, 2, 4, 8, 16, 32, 64)]
        assert found == sorted(found)
        assert found[0] == most[0] == 1
        assert all(1 <= one <= top <= router.top for one, top in zip(found, most, strict=True))
        assert reached(router.experts, router) == router.top
    assert (most_reached(8, V3_LIMITED), most_reached(4, V3_LIMITED), most_reached(64, V3_LIMITED)) == (4, 4, 8)


def simulated(parts, *, bias, tokens=4000):
    """Nodes or ranks that DeepSeek's routers send tokens with uniform scores to: the executor's own choice."""
    scores = np.random.default_rng(0).random((1, tokens, 256))
    sizes = {"k": 8, "gr": 8, "gt": 4}
    chosen = own(sizes, 0, 0, 0, scores, np.zeros(256)) if bias else own(sizes, 0, 0, 0, scores)
    return {each: parts_reached(each, chosen).sum(axis=-1).mean() for each in parts}


def test_a_router_that_takes_the_best_groups_reaches_the_nodes_that_it_was_seen_to():
    """V3 takes groups by their best two, V2 by their best one; 8 nodes and 64 ranks at ep 64, 4 and 32 at ep 32."""
    published = {8: 3.954, 4: 3.12, 64: 7.494, 32: 6.861}
    assert simulated(published, bias=True) == pytest.approx(published, rel=0.005)
    exact = {parts: float(reached(parts, V3_LIMITED)) for parts in published}
    assert simulated(published, bias=False) == pytest.approx(exact, rel=0.005)
    assert exact == pytest.approx(published, rel=0.008)
    assert float(reached(8, V3)) == pytest.approx(5.29, abs=0.01)  # without the limit


# Bytes -----------------------------------------------------------------------------------------------------------

SENT = {
    "3.954 copies": ((NODE, RANK), "dispatch.nodes", 3.954, FP8, 104_753_037),
    "at most four nodes": ((NODE, RANK), "dispatch.nodes", most_reached(8, V3_LIMITED), FP8, 105_971_712),
    "no limit": ((NODE, RANK), "dispatch.nodes", 5.2947, FP8, 140_272_106),
    "a row for each expert": ((), "dispatch.rows", 8, FP8, 238_436_352),
    "the way back": ((NODE, RANK), "combine.nodes", 3.954, BF16, 203_157_405),
}
"""DeepSeek-V3 at ep 64, 4096 tokens of each rank: bytes that one sends, in fp8 with a scale for each 128, or bf16.

Copies leave for the 7 of 8 other nodes, flat rows for the 63 of 64 other ranks.
"""


@pytest.mark.parametrize("name", SENT)
def test_what_a_rank_sends_is_what_deepseek_v3s_routing_comes_to(name):
    levels, array, copies, dtype, expected = SENT[name]
    program = lower(mixture(), BOTH, levelled(*levels), Dtypes(activations=dtype), ("R", "E"), layers=1)
    sizes = sizes_of(7168, 256, 8, 4096, R=8, E=8, copies={"node": copies, "rank": 7.494})
    assert float(call(program, array).wire_bytes(sizes)) == pytest.approx(expected, abs=1)


# A scenario ------------------------------------------------------------------------------------------------------

FLAT = ["practice.rows.dispatch=flat"]


def rows_of(found):
    """Seconds of a call forward, and its formula, by array."""
    each = [row for row in found.collectives if row.op == "rows" and row.phase == "forward"]
    return {row.array: (row.axis, row.time_s, row.formula) for row in each}


@pytest.fixture(scope="module")
def planned():
    return tpsim.plan("deepseek-v3-h100")


def test_deepseek_v3_goes_from_node_to_node_and_then_to_ranks(planned):
    rows = rows_of(planned)
    there, inside = rows["dispatch.nodes"], rows["dispatch.ranks"]
    assert (there[0], there[2]) == ("node", "33*b*h*nodes_per_token*s*(node - 1)/(32*d*node)")
    assert (inside[0], inside[2]) == ("gpu", "33*b*h*ranks_per_token*s*(d - node)/(32*d**2)")
    assert rows["combine.nodes"][2] == "2*b*h*nodes_per_token*s*(node - 1)/(d*node)"
    flat = tpsim.plan("deepseek-v3-h100", overrides=FLAT)
    assert rows_of(flat)["dispatch.rows"][1] > there[1] + inside[1]
    assert flat.step.time_s > planned.step.time_s
    assert flat.compute.useful_flops == planned.compute.useful_flops
    reason = next(row.because for row in planned.collectives if row.array == "dispatch.nodes")
    assert reason == "dispatch.nodes goes to the nodes that experts of its tokens lie on, told apart by node"


def test_a_plan_of_deepseek_v3_sends_what_its_routing_comes_to():
    found = tpsim.plan("deepseek-v3-h100", overrides=["assume.routing.copies={node: 3.954}"])
    sent = {row.array: row.wire_bytes_per_device for row in found.collectives if row.op == "rows"}
    assert float(sent["dispatch.nodes"]) == pytest.approx(104_753_037, abs=1)
    assert float(sent["combine.nodes"]) == pytest.approx(203_157_405, abs=1)


def said(*overrides):
    found = tpsim.plan("deepseek-v3-h100", overrides=overrides)
    return [one.text for one in found.assumptions if one.text.startswith("a token goes")]


def test_a_plan_says_how_many_copies_there_are_and_why(planned):
    chance = "as chance has it where 8 of 256 experts are chosen from the 4 of 8 groups with the best expert each"
    assert [one.text for one in planned.assumptions if one.text.startswith("a token goes")] == [
        f"a token goes to 3.983 of 8 nodes, {chance} (assume.routing.copies)",
        f"a token goes to 7.471 of 64 ranks, {chance} (assume.routing.copies)",
    ]
    assert said("assume.routing.copies=bound") == [
        "a token goes to 4 of 8 nodes, the most that its experts can lie on (assume.routing.copies)",
        "a token goes to 8 of 64 ranks, the most that its experts can lie on (assume.routing.copies)",
    ]
    assert said("assume.routing.copies={node: 3.954}")[0] == (
        "a token goes to 3.954 of 8 nodes, as stated (assume.routing.copies)"
    )
    assert said(*FLAT) == []
    assert any(one.startswith("copies of tokens that go on inside a node") for one in planned.not_modelled)


def test_counts_of_rows_go_ahead_of_them_level_by_level():
    """4 bytes per expert and rank, 256 and 64: V of a rank's share, over nodes and then inside them."""
    found = tpsim.plan("deepseek-v3-h100", overrides=["practice.rows.counts=exchange"])
    rows = [row for row in found.collectives if row.op == "rows" and row.phase == "forward" and "coun" in row.array]
    assert {(row.axis, row.dtype, row.logical_bytes) for row in rows} == {
        ("node", "int32", 4 * 256 * 64 // 8),
        ("gpu", "int32", 4 * 256 * 64 // 8),
    }
    first = [row.array for row in found.collectives].index
    assert first("dispatch.counts") < first("dispatch.nodes")
    with pytest.raises(InputError, match=r"experts have rows for a capacity .*, so nobody needs to be told how many"):
        tpsim.plan("deepseek-v3-h100", overrides=["practice.rows.counts=exchange", "assume.routing.drop=1.25"])


# Devices ---------------------------------------------------------------------------------------------------------

CUBE = {
    "tpsim": "scenario/1",
    "model": "mixtral-8x7b",
    "hardware": "dgx-h100",
    "mesh": {"node": 2, "gpu": 2, "tensor": 2},
    "placement": {"node": "network", "gpu": "nvlink", "tensor": "nvlink"},
    "layout": {"dp": ["node", "gpu"], "tp": "tensor", "sequence_parallel": True, "zero": 1},
    "workload": {"global_batch": 4, "seq": 4096, "microbatches": 1, "dtype": "bf16", "grad_dtype": "f32"},
}
"""Eight devices."""

FOLDED = ["node", "gpu", "tensor"]


def verified(dispatch, ep=FOLDED, counts="none", **fields):
    asked = {**CUBE, **fields, "practice": {"rows": {"dispatch": dispatch, "counts": counts}}}
    return tpsim.verify(asked | {"layout": {**CUBE["layout"], "ep": ep}}).runs[0]


LIMITED = {"ffn": "moe", "experts": 8, "top": 2, "hidden": 14336, "groups": 4, "top_groups": 2}
GROUPED = {
    "extends": "mixtral-8x7b",
    "blocks": {"attention": {"attention": "gqa", "heads": 32, "kv_heads": 8, "head_dim": 128}, "experts": LIMITED},
}


@pytest.mark.parametrize(
    ("dispatch", "fields"),
    [
        ("rank", {}),
        ("flat", {"assume": {"routing": {"drop": 1.25}}}),
        ("node_rank", {"assume": {"routing": {"drop": 1}}}),
        ("node", {"ep": ["node", "gpu"]}),
        ("node_rank", {"counts": "exchange"}),
        ("node_rank", {"model": GROUPED}),
    ],
    ids=["rank", "more rows than come", "as many", "node", "node_rank, counts ahead", "from two of four groups"],
)
def test_every_claim_of_copies_holds_on_eight_devices(dispatch, fields):
    run = verified(dispatch, **fields)
    assert [check.check for check in run.checks if not check.ok] == []
    assert run.difference < 1e-10
    assert run.devices == 8


def test_a_plan_with_other_copies_than_tokens_have_is_found(monkeypatch):
    """One node more for each token: bytes and formulas of the plan are those of no run."""
    from tpsim.claims import shrink
    from tpsim.question import routing

    copies = shrink.turned_copies
    monkeypatch.setattr(shrink, "turned_copies", lambda sizes, parts: copies(sizes, parts) + 1)
    monkeypatch.setattr(routing, "most_reached", lambda parts, _: parts + 1)  # else none but the two that there are
    wrong = {check.check: check.detail for check in verified("node", ep=["node", "gpu"]).failed}
    assert set(wrong) == {"collectives", "links", "formulas"}
    assert "all_to_all over node of dispatch.nodes (forward, experts): wire planned" in wrong["collectives"]
