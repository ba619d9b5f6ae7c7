"""Where experts lie in the layouts of a search, held against plans that are asked for one by one."""

from __future__ import annotations

from itertools import product

import pytest

import tpsim
from tpsim.answers.search import search
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import divisors

CHIPS = 16
HELD = {"zero": 1, "sequence_parallel": True}
ASKED = {
    "tpsim": "scenario/1",
    "model": {"extends": "mixtral-8x22b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]},
    "hardware": "dgx-h100",
    "chips": CHIPS,
    "mesh": {"data": CHIPS},
    "practice": "megatron",
    "workload": {"global_batch": 256, "seq": 4096, "microbatches": 16, "dtype": "bf16", "grad_dtype": "f32"},
}


def plans():
    """Of every layout without stages that is legal and fits its step, and what experts lie over."""
    for tp in divisors(CHIPS):
        dp = CHIPS // tp
        for ep, over in product(divisors(dp), [False, True] if tp > 1 else [False]):
            part = ["expert"] if ep > 1 else []
            mesh = {"data": dp // ep, **dict.fromkeys(part, ep), "tensor": tp}
            lies = {"ep": [*part, *(["tensor"] if over else [])]}
            layout = {**HELD, "dp": ["data", *part], "tp": "tensor", **lies}
            try:
                plan = tpsim.plan({**ASKED, "mesh": mesh, "layout": layout})
            except InputError:
                continue
            if plan.memory.room_bytes >= 0:
                yield float(plan.step.time_s), ("dp and tp" if part else "tp") if over else None


def test_experts_are_looked_at_on_dp_on_tp_and_on_both_which_is_faster_than_to_split_each_over_tp():
    """What Megatron-Core calls folding: NVIDIA's own mappings of Mixtral, Qwen3 and DeepSeek-V3 lie so."""
    held = {"pp": 1, "cp": 1, "zero": 1, "sp": True, "recompute": "none"}
    found = search(ASKED, chips=CHIPS, top=1000, overrides=["placement={}"], **held)
    steps = sorted(plans(), key=lambda plan: plan[0])
    assert len(steps) > 10
    assert [row.step_s for row in found.rows] == pytest.approx([step for step, _ in steps], rel=1e-9)
    assert {over for _, over in steps} == {None, "tp", "dp and tp"} == {row.ep_over for row in found.rows}
    assert next(row.ep_over for row in found.rows if row.tp == 2) == "dp and tp"


def test_copies_of_tokens_go_over_parts_of_an_axis_where_some_meshes_copy_kv_heads():
    """Rows sent to each rank once, 4 kv heads on tp 4 and 8: a search ended in a KeyError of an axis that is parted."""
    model = {"extends": "qwen3-235b-a22b", "layers": [{"repeat": 4, "of": ["attention", "experts"]}]}
    work = {"global_batch": 32, "seq": 4096, "microbatches": 4, "grad_dtype": "f32"}
    asked = {"tpsim": "scenario/1", "model": model, "hardware": "dgx-h100", "workload": work}
    asked |= {"practice": {"base": "xla", "rows": {"dispatch": "rank"}}, "chips": CHIPS, "recompute": "none"}
    found = search(asked, pp=1, cp=1, zero=1, sp=True, vary=["tp=4,8", "ep=8,16"], top=100)
    assert {row.tp for row in found.rows} == {4, 8}
    for row in found.rows:
        assert row.at_least_s <= row.step_s
        assert row.planned.candidate.peak_bytes == pytest.approx(row.peak_bytes, rel=1e-9)
