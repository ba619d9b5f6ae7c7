"""ZeRO over a part of the data shards, copies on the others: layouts that are written down here without a search."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import tpsim
from tpsim.answers.search import search
from tpsim.guard.lock_of_plans import asked_facts
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors

CHIPS = 16

DENSE = {"extends": "llama-3-8b", "layers": 4}
EXPERTS = {"extends": "mixtral-8x7b", "layers": [{"repeat": 3, "of": ["attention", "experts"]}]}


def asked_of(model, dp: int):
    """A step of a sequence for each of so many data shards."""
    work = {"global_batch": dp, "seq": 4096, "microbatches": 1, "grad_dtype": "f32"}
    return {"tpsim": "scenario/1", "model": model, "hardware": "dgx-h100", "workload": work, "recompute": "none"}


def laid(model, tp: int, cp: int, zeros):
    """Every plan over so many chips: its ZeRO stage, the devices that it shards over if these are some, its seconds."""
    dp = CHIPS // (tp * cp)
    for ep, zero in product(divisors(dp) if model is EXPERTS else [1], zeros):
        for inner in divisors(dp) if zero else [dp]:
            some = inner * cp < dp * cp
            if inner % ep or inner * cp == 1:
                continue
            mesh = {"data": dp // inner, "shard": inner // ep, "expert": ep, "context": cp, "tensor": tp}
            mesh = {axis: n for axis, n in mesh.items() if n > 1 or axis in ("data", "tensor")}
            parts = [axis for axis in ("shard", "expert") if axis in mesh]
            roles = {"dp": ["data", *parts], "tp": "tensor", "sequence_parallel": tp > 1, "zero": zero}
            roles |= {"cp": "context"} if cp > 1 else {}
            roles |= {"ep": "expert"} if ep > 1 else {}
            roles |= {"zero_over": [axis for axis in (*parts, "context") if axis in mesh]} if some and zero else {}
            try:
                plan = tpsim.plan({**asked_of(model, dp), "mesh": mesh, "layout": roles})
            except InputError:
                continue
            yield zero, inner * cp if some and zero else None, float(plan.step.time_s)


@pytest.mark.parametrize(
    ("model", "tp", "cp", "zeros"),
    [(DENSE, 1, 2, (0, 1, 2, 3)), (DENSE, 4, 1, (3,)), (EXPERTS, 2, 1, (1, 2))],
    ids=["sequences are split", "tensors are split", "experts lie on shards"],
)
def test_every_part_of_the_data_shards_is_looked_at_where_it_is_asked_for(model, tp, cp, zeros):
    asked, experts = asked_of(model, CHIPS // (tp * cp)), model is EXPERTS
    vary = ["shards", f"zero={','.join(map(str, zeros))}", *(["ep=1,2,4,8"] if experts else [])]
    held = {"tp": tp, "cp": cp, "pp": 1, "sp": tp > 1, "overrides": ["placement={}"] if experts else []}
    found = search(asked, chips=CHIPS, vary=vary, top=1000, **held)
    told = sorted((row.step_s, row.zero, row.shards or 0) for row in found.rows if not row.ep_over)
    planned = sorted((step, stage, shards or 0) for stage, shards, step in laid(model, tp, cp, zeros))
    assert [one[1:] for one in told] == [one[1:] for one in planned]
    assert [one[0] for one in told] == pytest.approx([one[0] for one in planned], rel=1e-9)
    assert len({shards for *_, shards in told}) > 1
    assert found.refused == []


def test_copies_are_looked_at_only_where_that_is_asked_for_and_of_one_size_where_it_is_stated(tmp_path):
    held = {"tp": 1, "pp": 1, "cp": 1, "chips": CHIPS, "zero": 3, "top": 100}
    usual, some = (search(asked_of(DENSE, CHIPS), vary=vary, **held) for vary in ([], ["shards=8"]))
    assert ({row.shards for row in usual.rows}, {row.shards for row in some.rows}) == ({None}, {8})
    assert "shards" not in usual.searched
    assert some.held["shards"] == 8
    assert some.best.mesh == {"data": 2, "shard": 8, "tensor": 1}
    saved = tmp_path / "best.yaml"
    saved.write_text(some.best.scenario(tmp_path))
    assert float(tpsim.plan(saved).step.time_s) == some.best.step_s > usual.best.step_s


@pytest.mark.parametrize(
    ("vary", "held", "wrong", "could_be"),
    [
        ("shards=3", {}, 3, "2,4,8,16"),
        ("shards=8,32", {}, 32, "2,4,8,16"),
        ("shards=1", {}, 1, "2,4,8,16"),
        ("layout.zero_over=8", {"tp": 4}, 8, "2,4"),
        ("shards=8", {"tp": 16}, 8, ""),
    ],
)
def test_a_part_of_the_data_shards_that_no_mesh_has_is_refused(vary, held, wrong, could_be):
    """It was answered with layouts that shard nothing, and called held."""
    with pytest.raises(InputError) as error:
        search(asked_of(DENSE, CHIPS), chips=CHIPS, vary=[vary], **held)
    (problem,) = error.value.problems
    assert f"ZeRO over {wrong} " in problem.message
    assert problem.remedy == (f"search others: --vary shards={could_be}" if could_be else "leave it out")
    assert problem.place.text == f"--vary {vary}"


@pytest.mark.parametrize(("required", "holds"), [(8, True), (4, False)])
def test_the_part_of_the_data_shards_can_be_required_of_the_best_layout(required, holds):
    """Eight have links of their own here, two such nodes a slow network."""
    asked = asked_of(DENSE, CHIPS) | {"hardware": "p4d-a100", "require": {"best": {"shards": required}}}
    found = search(asked, chips=CHIPS, vary=["shards"], zero=3, top=1, tp=1, pp=1, cp=1)
    assert (found.best.shards, found.ok) == (8, holds)
    assert not search(asked, chips=CHIPS, zero=3, top=1, tp=1, pp=1, cp=1).ok


def test_check_looks_at_copies_where_a_part_of_the_data_shards_is_required(monkeypatch):
    """No scenario states what is varied."""
    varied = []

    def seen(*args, vary=(), **more):
        varied.append(list(vary))
        return search(*args, vary=vary, **more)

    monkeypatch.setattr("tpsim.answers.search.search", seen)
    asked = asked_of(DENSE, CHIPS) | {"mesh": {"data": CHIPS}, "layout": {"dp": "data"}}
    for best in ({"shards": 8}, {"tp": 1}):
        plan = tpsim.plan({**asked, "require": {"best": best}})
        fact = asked_facts({"asked": plan}, Path()).scenarios["asked"]
        due = search({**asked, "require": {"best": best}}, chips=CHIPS, vary=varied[-1], top=1).ok
        assert fact.result("require.best") is due
    assert varied == [["shards"], []]
