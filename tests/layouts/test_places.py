"""Where the mesh of a layout lies: of the ways that are looked at the best is no slower than any order of its axes."""

from __future__ import annotations

from itertools import combinations, permutations, product

import pytest

from tpsim.answers.plan import priced
from tpsim.answers.search import search
from tpsim.fabric.placement import place
from tpsim.quantity.errors import InputError
from tpsim.question.memo import Memo
from tpsim.question.scenario import resolve

EXPERTS = {"extends": "mixtral-8x7b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}
ASKED = {
    "tpsim": "scenario/1",
    "model": EXPERTS,
    "hardware": "dgx-h100",
    "chips": 32,
    "workload": {"global_batch": 32, "seq": 4096, "microbatches": 4, "grad_dtype": "f32"},
}
VARY = ["zero=1", "recompute=none", "pp=1", "cp=2", "ep=4", "sp=true", "tp=2"]


@pytest.fixture(scope="module")
def found():
    return search(ASKED, vary=VARY, top=100)


def test_axes_lie_outside_nodes_so_that_others_lie_inside(found):
    """Gradients of experts over data shards and sequences inside nodes, and rows between them."""
    assert found.best.placement == {"expert": ("network",)}
    placed = {tuple(row.placement): row.step_s for row in found.rows if not row.ep_over}
    assert placed.keys() == {(), ("expert",), ("context",), ("data", "context")}
    assert placed["expert",] < 0.9 * placed[()]
    assert "placement" in found.searched
    assert "expert on network" in found.verdict


def test_no_order_of_the_axes_is_faster_than_the_best(found):
    memo = Memo()
    mesh = found.best.mesh
    asked = {
        name: value
        for name, value in found.best.planned.candidate.space.asked(found.best.planned.candidate.layout).data.items()
        if name != "placement"
    }
    steps = []
    for order in permutations([axis for axis in mesh if axis != "tensor"]):
        placed = {axis: mesh[axis] for axis in (*order, "tensor")}
        steps.append(float(priced(resolve({**asked, "mesh": placed}, memo=memo), memo).step.time_s))
    assert found.best.step_s == pytest.approx(min(steps), rel=1e-9)
    assert max(steps) > 1.01 * min(steps)


@pytest.mark.parametrize(("hardware", "cp"), [("tpu-v6e", 1), ("tpu-v5e", 2)])
def test_on_a_torus_axes_lie_along_others_of_it(hardware, cp):
    """An axis that takes a whole one goes round a ring; experts lie over the tensor axis, too, where that is better."""
    work = {"global_batch": 64, "seq": 1024, "microbatches": 2, "grad_dtype": "f32"}
    asked = {**ASKED, "hardware": hardware, "practice": "xla", "workload": work}
    vary = ["zero=1", "recompute=full", "pp=1", f"cp={cp}", "ep=4,8", "sp=true", "tp=2"]
    best = search(asked, vary=vary).best
    assert best.placement["expert"] in {("ici.0",), ("ici.1",)}
    one = best.planned.candidate
    laid = {name: value for name, value in one.space.asked(one.layout).data.items() if name != "placement"}
    memo, steps = Memo(), []
    for order in permutations([axis for axis in best.mesh if axis != "tensor"]):
        mesh = {axis: best.mesh[axis] for axis in (*order, "tensor")}
        steps.append(float(priced(resolve({**laid, "mesh": mesh}, memo=memo), memo).step.time_s))
    assert best.step_s == pytest.approx(min(steps), rel=1e-9)
    assert max(steps) > 1.01 * min(steps)


@pytest.mark.parametrize(("hardware", "chips", "ep"), [("tpu-v5e", 16, 8), ("tpu-v5p", 128, 2)])
def test_on_a_torus_no_binding_of_axes_to_physical_ones_is_faster_than_the_best(hardware, chips, ep):
    """Where what splits layers makes room for them, too: it may lie on a square instead of a line."""
    work = {"global_batch": 64, "seq": 2048, "microbatches": 1, "grad_dtype": "f32"}
    asked = {**ASKED, "hardware": hardware, "chips": chips, "workload": work}
    best = search(asked, vary=["zero=1", "recompute=full", "pp=1", "cp=1", f"ep={ep}", "sp=true", "tp=4"]).best
    one = best.planned.candidate
    laid = {name: value for name, value in one.space.asked(one.layout).data.items() if name != "placement"}
    carriers = [f"ici.{at}" for at in range(3 if hardware == "tpu-v5p" else 2)]
    some = [[], *(list(axes) for many in range(1, 4) for axes in combinations(carriers, many))]
    memo, steps = Memo(), []
    for lie in product(some, repeat=2):
        bound = {axis: names for axis, names in zip(("data", "expert"), lie, strict=True) if names}
        if all(best.mesh.get(axis, 1) > 1 for axis in bound):
            try:
                question = resolve({**laid, "placement": bound}, memo=memo)
            except InputError:
                continue  # it has no such slice
            if not question.placement.idle:
                steps.append(float(priced(question, memo).step.time_s))
    assert best.step_s == pytest.approx(min(steps), rel=1e-9)
    assert len(best.placement) > 1
    assert len(steps) > 4


def test_mirror_images_of_a_mesh_on_a_torus_are_looked_at_once():
    """Experts along one side of a square, what is left of the shards along the other: whichever is called the first."""
    work = {"global_batch": 64, "seq": 2048, "microbatches": 1, "grad_dtype": "f32"}
    asked = {**ASKED, "hardware": "tpu-v5e", "chips": 16, "workload": work}
    held = ["zero=1", "recompute=full", "pp=1", "cp=1", "tp=1"]
    assert search(asked, vary=[*held, "ep=4"]).considered == 1


def test_stages_do_not_come_into_nodes_when_experts_leave_them():
    vary = ["zero=1", "recompute=none", "schedule=1f1b", "pp=8", "cp=1", "ep=8", "tp=1"]
    model = {**EXPERTS, "layers": [{"repeat": 8, "of": ["attention", "experts"]}]}
    work = {**ASKED["workload"], "global_batch": 64}
    found = search({**ASKED, "chips": 64, "model": model, "workload": work}, vary=vary)
    assert {one.layout.placement for one in found.evaluation.candidates} == {()}


def test_the_saved_best_is_planned_to_the_same_step(found, tmp_path):
    path = tmp_path / "best.yaml"
    path.write_text(found.best.scenario(tmp_path))
    assert "placement: {expert: [network]}" in path.read_text()
    memo = Memo()
    assert priced(resolve(path, memo=memo), memo).step.time_s == found.best.step_s


def test_a_stated_placement_is_held_and_without_experts_there_is_one(found):
    held = search(ASKED, vary=VARY, placement=["expert=network"], top=100)
    assert (held.held["placement"], "placement" in held.searched) == ({"expert": ["network"]}, False)
    assert not any(row.placement for row in held.rows)
    assert held.best.step_s == found.best.step_s
    assert all(row.plan.question.placement.binding.get("expert") in (None, ("network",)) for row in held.rows)
    with pytest.raises(InputError, match="expret"):
        search(ASKED, vary=VARY, placement=["expret=network"])
    dense = search(
        {**ASKED, "model": {"extends": "llama-3-8b", "layers": 4}}, vary=["zero=1", "recompute=none", "pp=1", "tp=2"]
    )
    assert "placement" not in dense.searched
    assert not any(one.layout.placement for one in dense.evaluation.candidates)
    assert dense.legal


def test_an_order_that_lies_nowhere_takes_nothing_from_the_others(found, monkeypatch):
    """On tori some shapes are no slices that are sold: the mesh was refused as a whole then."""

    def few(levels, mesh, *asked, **flags):
        if asked or next(axis for axis in mesh.axes if axis in ("data", "expert", "context")) != "expert":
            return place(levels, mesh, *asked, **flags)
        raise InputError.one("no-slice", "as if it had none")

    monkeypatch.setattr("tpsim.layouts.places.place", few)
    again = search(ASKED, vary=VARY, top=100)
    assert {tuple(row.placement) for row in again.rows} < {tuple(row.placement) for row in found.rows}
    assert again.legal > 0
    assert not again.refused
