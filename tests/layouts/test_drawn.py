"""Layouts drawn from what searches of shipped scenarios look at: each holds what its plan does, and none is faster."""

from __future__ import annotations

import numpy as np
import pytest

from tpsim.answers.plan import priced
from tpsim.answers.ranking import Ranking, weigh
from tpsim.layouts.candidates import evaluate
from tpsim.layouts.space import spaces
from tpsim.question.memo import Memo

DRAWN = 8


@pytest.mark.parametrize(
    ("scenario", "chips", "vary", "overrides"),
    [
        ("llama3-8b-v5e", 16, ["microbatches", "zero=1,3", "recompute=none,full"], []),
        ("mistral-7b-v6e", 16, ["microbatches", "zero=0,3", "recompute=none,full"], []),
        ("mixtral-8x7b-h100", 64, ["microbatches=4,8", "zero=1,2", "recompute=full", "pp=1,2", "sp=false"], []),
        ("llama3-8b-b200-fsdp", 16, ["microbatches", "zero=0,1,3", "pp=1,2"], ["workload.param_dtype=f32"]),
    ],
)
def test_drawn_layouts_hold_what_their_plans_do_and_none_is_faster_than_the_best(scenario, chips, vary, overrides):
    memo = Memo()
    several = spaces(scenario, flags={"chips": chips}, overrides=["require={}", *overrides], vary=vary, memo=memo)
    evaluation = evaluate(several, memo, weigh)
    best = [float(one.plan.step.time_s) for one in Ranking(evaluation, memo, 500).best("step", 10).best]
    fitting = [one for one in evaluation.candidates if one.room_bytes >= 0]
    listed = set()
    for at in np.random.default_rng(14).choice(len(fitting), DRAWN, replace=False):
        one = fitting[at]
        plan = priced(one.space.question(one.layout, memo), memo)
        step = float(plan.step.time_s)
        assert one.peak_bytes == pytest.approx(float(plan.memory.peak_bytes), rel=1e-9), one.layout
        assert one.step_s <= step * (1 + 1e-9), one.layout
        listed |= {step} if step < best[-1] * (1 - 1e-9) else set()
    assert all(any(step == pytest.approx(one, rel=1e-9) for one in best) for step in listed)
