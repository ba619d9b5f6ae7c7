"""The best of a search is the best of all layouts that a plan takes: they are written down here without a search."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from tpsim.answers.plan import priced
from tpsim.answers.search import search
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors
from tpsim.question.memo import Memo
from tpsim.question.scenario import resolve

EXPERTS = {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}
SPACES = {
    "experts that leave nodes to data shards": (EXPERTS, 32, 32, 4, {"tp": [2], "pp": [2], "cp": [1]}),
    "ends that make chunks alike": (EXPERTS, 16, 48, 2, {"tp": [1, 4], "pp": [2], "cp": [1]}),
    "stages that layers do not divide over": (
        {"extends": "llama-3-8b", "layers": 5},
        16,
        16,
        4,
        {"tp": [2, 4], "pp": [2, 4], "cp": [1]},
    ),
}


def meshes(experts: bool, chips: int, sizes: dict[str, list[int]]):
    """Every mesh in every order of its axes inside stages and outside tp, and the layout over it."""
    for tp, pp, cp in product(*sizes.values()):
        dp = chips // (tp * pp * cp)
        for ep, over in product(divisors(dp) if experts else [1], [[], ["tensor"]] if experts and tp > 1 else [[]]):
            mesh = {"pipe": pp, "data": dp // ep, "expert": ep, "context": cp, "tensor": tp}
            mesh = {axis: n for axis, n in mesh.items() if n > 1 or axis in ("data", "expert", "tensor")}
            roles = {"dp": ["data", "expert"], "tp": "tensor", "sequence_parallel": tp > 1, "zero": 1}
            roles |= {"pp": "pipe"} if pp > 1 else {}
            roles |= {"cp": "context"} if cp > 1 else {}
            roles |= {"ep": [*(["expert"] if ep > 1 else []), *over]} if experts else {}
            for order in permutations([axis for axis in mesh if axis not in ("pipe", "tensor")]):
                yield {axis: mesh[axis] for axis in ("pipe", *order, "tensor") if axis in mesh}, roles


def steps(asked, layers: int, laid):
    """Seconds of every layout that is legal and fits."""
    memo = Memo()
    several = [("interleaved", v) for v in range(2, layers + 3)]
    for mesh, roles in laid:
        turns = [*((name, 1) for name in ("gpipe", "1f1b", "zb-h1", "zb-h2")), *several] if "pp" in roles else [None]
        for turn in turns:
            stages = turn and {"schedule": turn[0], "chunks": turn[1], "layers": "nearly-even"}
            try:
                plan = priced(resolve({**asked, "mesh": mesh, "layout": roles, "pipeline": stages}, memo=memo), memo)
            except InputError:
                continue
            if plan.memory.room_bytes >= 0:
                yield float(plan.step.time_s)


@pytest.mark.parametrize(("model", "chips", "batch", "microbatches", "sizes"), SPACES.values(), ids=SPACES.keys())
def test_no_layout_that_a_plan_takes_is_faster_than_the_best(model, chips, batch, microbatches, sizes):
    work = {"global_batch": batch, "seq": 4096, "microbatches": microbatches, "grad_dtype": "f32"}
    asked = {"tpsim": "scenario/1", "model": model, "hardware": "dgx-h100", "workload": work, "recompute": "none"}
    vary = [f"{role}={','.join(map(str, some))}" for role, some in sizes.items()]
    found = search({**asked, "chips": chips}, vary=[*vary, "zero=1", "sp=true"], top=1)
    experts = model is EXPERTS
    all_ = sorted(steps(asked, 4 if experts else 5, meshes(experts, chips, sizes)))
    assert len(all_) > 20
    assert found.best.step_s == pytest.approx(all_[0], rel=1e-9)


def test_split_sequences_are_looked_at_beside_more_data_shards_where_scores_are_products_of_their_own():
    """They were counted as covered: what sums over queries then has more tiles, which fill the units better."""
    work = {"global_batch": 32, "seq": 4096, "microbatches": 8}
    model = {"extends": "llama-3-8b", "layers": 4}
    asked = {"tpsim": "scenario/1", "model": model, "hardware": "a3mega-h100", "workload": work}
    asked |= {"practice": {"base": "deepspeed", "attention": "plain"}, "recompute": "selective"}
    found = search({**asked, "chips": 32}, vary=["tp=4", "pp=2", "schedule=1f1b", "zero=3", "sp=false"], top=1)
    took = {}
    for cp in (1, 2, 4):
        mesh = {"pipe": 2, "data": 4 // cp, "context": cp, "tensor": 4}
        roles = {"pp": "pipe", "dp": "data", "cp": "context", "tp": "tensor", "zero": 3}
        plan = priced(resolve({**asked, "mesh": mesh, "layout": roles, "pipeline": {"layers": "nearly-even"}}))
        took[cp] = float(plan.step.time_s)
    assert (found.covered, found.considered) == (0, 3)
    assert took[2] < took[1] * 0.999
    assert found.best.step_s == pytest.approx(min(took.values()), rel=1e-9)
