"""The grid of layouts and the verb plan are one answer."""

from __future__ import annotations

import pytest

from study import Study
from tpsim.answers.plan import plan


@pytest.mark.parametrize(("data", "tensor"), [(2, 4), (32, 8), (64, 4), (16, 8)])
@pytest.mark.parametrize("zero", [1, 3])
def test_a_grid_prices_a_layout_as_plan_does_when_it_chooses_the_placement(data, tensor, zero):
    answer = plan(
        {
            "tpsim": "scenario/1",
            "model": "llama-3-70b",
            "hardware": "dgx-h100",
            "mesh": {"data": data, "tensor": tensor},
            "layout": {"tp": ["tensor"], "dp": ["data"], "zero": zero, "sequence_parallel": True},
            "practice": "megatron",
            "workload": {"kind": "train", "global_batch": 512, "seq": 4096, "microbatches": 2, "dtype": "bf16"},
        }
    )
    question = answer.question
    study = Study(
        model=question.model,
        machine=question.machine,
        practice=question.practice,
        dtypes=question.dtypes,
        seq=question.workload.seq,
        microbatches=question.workload.microbatches,
    )
    found = study.traced(zero=zero, sequence_parallel=True)
    priced = study.priced(found, tp=tensor, dp=data, batch=512)
    assert priced.static_bytes == answer.memory.static_bytes
    assert priced.wire_bytes == answer.totals["by_step"]["step"].wire_bytes_per_device
    assert float(priced.time_s) == pytest.approx(answer.step.time_s, rel=1e-12)
