"""Hybrid sharding: ZeRO over some of the axes of dp and cp, replicated over the others, with stages and experts too."""

from __future__ import annotations

import pytest

from tpsim.answers.plan import plan
from tpsim.answers.search import search
from tpsim.claims.verify import verify
from tpsim.pages.plan_facts import plan_facts
from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve

BASE = {
    "tpsim": "scenario/1",
    "name": "hybrid",
    "model": {"extends": "llama-3-8b", "layers": 8},
    "hardware": "dgx-h100",
    "mesh": {"pipe": 2, "replica": 2, "shard": 4, "tensor": 2},
    "layout": {"pp": "pipe", "dp": ["replica", "shard"], "tp": "tensor", "zero": 3, "zero_over": "shard"},
    "practice": "fsdp2",
    "workload": {"seq": 4096, "global_batch": 32, "microbatches": 4},
}


def asked(*overrides):
    return resolve(BASE, overrides=overrides)


def refused(*overrides):
    with pytest.raises(InputError) as error:
        asked(*overrides)
    return str(error.value)


def test_what_a_table_says_of_hybrid_sharding_roles_say_too():
    by_table = plan("llama2-13b-hsdp-h100")
    roles = {"dp": ["replica", "shard"], "zero": 3, "zero_over": "shard"}
    overrides = ["shardings=null", "layout={dp: [replica, shard], zero: 3, zero_over: shard}"]
    by_roles = plan("llama2-13b-hsdp-h100", overrides=overrides)
    assert by_roles.resolved["layout"]["zero_over"] == [roles["zero_over"]]
    assert by_roles.step.time_s == by_table.step.time_s
    assert by_roles.memory.peak_bytes == by_table.memory.peak_bytes
    assert [row.formula for row in by_roles.rows] == [row.formula for row in by_table.rows]


def test_the_page_says_over_which_axes_zero_shards():
    told = [dict(plan_facts(plan(BASE, overrides=overrides), verbose=False))["layout"] for overrides in ((), WHOLE)]
    assert [text.partition("ZeRO ")[2] for text in told] == ["1 over shard", "1"]


WHOLE = ("layout.zero_over=null",)


def sent(*overrides):
    rows = plan(BASE, overrides=["practice.staged=each", *overrides]).rows
    return {(row.collective, row.axis) for row in rows if row.axis in ("replica", "shard", "replica,shard")}


def test_shards_are_gathered_over_their_axes_and_summed_over_replicas_in_stages_too():
    assert sent() >= {("all_gather", "shard"), ("reduce_scatter", "shard"), ("all_reduce", "replica")}
    assert ("all_gather", "replica,shard") in sent("layout.zero_over=[replica, shard]")
    assert sent("layout.zero_over=null") == sent("layout.zero_over=[shard, replica]")


@pytest.mark.parametrize("practice", ["megatron", "fsdp2", "deepspeed"])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_hybrid_sharding_of_stages_runs_as_it_is_planned(zero, practice):
    overrides = [f"layout.zero={zero}", f"practice={{base: {practice}, staged: each}}"]
    result = verify(BASE, overrides=overrides)
    assert result.ok, result.verdict


def test_hidden_is_divided_by_the_shards_alone():
    wide = ["mesh={replica: 3, shard: 4}", "layout.pp=[]", "layout.tp=[]", "workload.global_batch=12"]
    wide += ["workload.microbatches=1", "practice.padding=none"]
    assert asked(*wide).layout.table["stored"]["h"] == ("shard",)
    assert "hidden 4096 is not divisible by dp 12" in refused(*wide, "layout.zero_over=null")
    uneven = [*wide, "mesh={replica: 4, shard: 3}"]
    message = "hidden 4096 is not divisible by the 3 shards of zero_over"
    assert message in refused(*uneven)
    filled = plan(BASE, overrides=[*uneven, "practice.padding=flat"]).question.assumptions
    assert any(message in one.text for one in filled)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("tensor", "layout.zero_over names tensor, which is no axis of dp or cp"),
        ("shrad", '"shrad" is not a mesh axis'),
        ("[]", "layout.zero_over names no axis"),
        ("[shard, shard]", "layout.zero_over names shard twice"),
    ],
)
def test_what_zero_cannot_shard_over_is_refused(over, message):
    assert message in refused(f"layout.zero_over={over}")


def test_a_search_of_all_meshes_shards_over_all_data_shards():
    found = search(BASE, chips=8, zero=3, top=1, overrides=["workload.global_batch=8"])
    assert "zero_over" not in found.resolved["layout"]


def test_an_axis_that_bears_the_letter_of_a_role_has_a_symbol_of_its_own():
    """Axes d and h beside the role d of both, and hidden: a gather over one of them was printed as over all."""
    mesh = {"d": 2, "h": 3}
    layout = {"dp": ["d", "h"], "zero": 3, "zero_over": "d"}
    result = verify({**BASE, "mesh": mesh, "layout": layout, "workload": {"seq": 4096, "global_batch": 6}})
    assert result.ok, result.verdict
    rows = plan({**BASE, "mesh": mesh, "layout": layout, "workload": {"seq": 4096, "global_batch": 6}}).rows
    assert {str(row.formula).count("n_d - 1") for row in rows if row.axis == "d"} == {1}
