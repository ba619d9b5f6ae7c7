"""An axis of one device splits nothing: with it, and with ZeRO over it, a plan is the one without."""

from __future__ import annotations

from typing import Any

import pytest

from tpsim.answers.plan import PlanResult, plan

DENSE: dict[str, Any] = {
    "tpsim": "scenario/1",
    "model": "llama-3-8b",
    "hardware": "dgx-h100",
    "mesh": {"data": 8},
    "layout": {"dp": "data"},
    "practice": "xla",
    "workload": {"seq": 4096, "microbatches": 2},
}
EXPERTS = DENSE | {"model": "mixtral-8x7b", "layout": {"dp": "data", "ep": "data", "zero": 3}}
TIED = DENSE | {"model": "gemma-7b", "mesh": {"pipe": 2, "data": 4}, "layout": {"dp": "data", "pp": "pipe", "zero": 2}}
RING = DENSE | {"recompute": "selective", "practice": "ideal", "layout": {"dp": "data", "zero": 1}}
WITHOUT_DATA = DENSE | {"mesh": {"tensor": 8}, "layout": {"tp": "tensor"}, "practice": "fsdp2"}


def beside(scenario: dict[str, Any], axis: str, **roles: Any) -> dict[str, Any]:
    """The scenario with one more mesh axis, of one device."""
    return scenario | {"mesh": {**scenario["mesh"], axis: 1}, "layout": {**scenario["layout"], **roles}}


def figures(answer: PlanResult) -> list[Any]:
    """Seconds, bytes, and every call between several devices but for the names of the axes that it crosses."""
    step, memory = answer.step, answer.memory
    calls = [
        (row.phase, row.array, row.collective, row.ranks, row.count, row.wire_bytes_per_device)
        for row in answer.every_row
    ]
    return [
        *(float(one) for one in (step.time_s, step.compute_s, step.exposed_s, step.bubble_s)),
        *(float(one) for one in (memory.static_bytes, memory.kept_bytes, memory.working_bytes, memory.peak_bytes)),
        sorted(call for call in calls if call[3] > 1),
    ]


@pytest.mark.parametrize(
    ("scenario", "axis", "roles"),
    [
        (EXPERTS, "tensor", {"tp": "tensor"}),
        (EXPERTS, "tensor", {"tp": "tensor", "sequence_parallel": True}),
        (EXPERTS, "context", {"cp": "context"}),
        (EXPERTS, "rest", {"dp": ["rest", "data"]}),
        (RING, "context", {"cp": "context", "context": "ring"}),
        (TIED, "tensor", {"tp": "tensor"}),
        (TIED, "context", {"cp": "context"}),
        *((WITHOUT_DATA, "data", {"dp": "data", "zero": stage}) for stage in range(4)),
    ],
)
def test_an_axis_of_one_device_changes_nothing(scenario, axis, roles):
    assert figures(plan(beside(scenario, axis, **roles))) == figures(plan(scenario))


def test_a_stage_of_zero_that_has_nothing_to_split_is_told():
    told = [one.text for one in plan(beside(WITHOUT_DATA, "data", dp="data", zero=3)).assumptions]
    assert "ZeRO 3 has one data shard to split over: nothing is sharded" in told
