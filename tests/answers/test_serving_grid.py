"""Decoding priced in arrays: every element is the plan of its batch and context."""

from __future__ import annotations

import numpy as np
import pytest

import tpsim
from tpsim.quantity.errors import InputError

SCENARIO = {
    "tpsim": "scenario/1",
    "name": "grid",
    "model": "llama-3-70b",
    "hardware": "dgx-h100",
    "mesh": {"tensor": 8},
    "layout": {"tp": "tensor"},
    "workload": {"kind": "decode", "batch": 8, "context": 8},
}


@pytest.mark.parametrize("by", ["heads", "batch", "sequence"])
@pytest.mark.parametrize(
    "more", [[], ["assume.matmul_efficiency=0.5"], ["cost_model=book"]], ids=["", "stated", "book"]
)
def test_every_element_is_the_plan_of_its_batch_and_context(by, more):
    overrides = [f"layout.cache={by}", *more]
    found = tpsim.grid(SCENARIO, batches=[8, 256], contexts=[64, 8192], overrides=overrides)
    assert found.step_s.shape == (2, 2)
    for at in [(0, 1), (1, 0)] if not more else [(1, 1)]:
        sizes = [f"workload.batch={found.batch[at]:.0f}", f"workload.context={found.context[at]:.0f}"]
        plan = tpsim.plan(SCENARIO, overrides=[*overrides, *sizes])
        assert found.step_s[at] == pytest.approx(plan.step.time_s, rel=1e-12)
        assert found.peak_bytes[at] == plan.memory.peak_bytes
        assert found.tokens_per_s_user[at] == pytest.approx(plan.serve.tokens_per_s_user)
        assert found.tokens_per_s_chip[at] == pytest.approx(plan.serve.tokens_per_s_chip)


@pytest.mark.parametrize("routing", ["load=balanced", "load=uniform", "drop=1.25"])
def test_layers_of_several_kinds_and_rows_of_experts_are_those_of_each_element(routing):
    """A model of windows, of experts that get as many rows as there are sequences, in two kinds of layers."""
    asked = {**SCENARIO, "model": "gpt-oss-120b", "layout": {"tp": "tensor", "ep": "tensor"}}
    found = tpsim.grid(asked, batches=[8, 256], contexts=[64, 4096], overrides=[f"assume.routing.{routing}"])
    assert found.step_s.dtype == found.peak_bytes.dtype == np.float64
    for at in [(0, 1), (1, 0)]:
        sizes = [f"workload.batch={found.batch[at]:.0f}", f"workload.context={found.context[at]:.0f}"]
        plan = tpsim.plan(asked, overrides=[*sizes, f"assume.routing.{routing}"])
        assert found.step_s[at] == pytest.approx(plan.step.time_s, rel=1e-12)
        assert found.peak_bytes[at] == pytest.approx(plan.memory.peak_bytes, rel=1e-12)


def test_more_sequences_never_take_less_and_room_ends_where_the_plan_says():
    most = tpsim.plan(SCENARIO, overrides=["workload.context=4096"]).serve.largest_batch
    found = tpsim.grid(SCENARIO, batches=np.arange(1, most + 2), contexts=4096)
    assert (np.diff(found.step_s, axis=0) >= 0).all()
    assert found.fits[:, 0].tolist() == [True] * most + [False]
    assert found.verdict.startswith(f"grid: {most + 1} steps of decoding, {most} of which fit; most per chip at batch ")
    assert found.rows[0] == {**found.rows[0], "batch": 1, "context": 4096, "fits": True}
    assert len(found.to_json()["result"]["rows"]) == most + 1


@pytest.mark.parametrize(
    ("model", "tokens", "overrides", "message"),
    [
        ("gpt3-175b", 4096, [], "4096 tokens are more than the 2048 positions that gpt3-175b has learned"),
        (
            "mistral-7b",
            8192,
            ["layout.cache=sequence", "workload.tokens=2"],
            "tokens of a window 4097 is no multiple of 8, into which the layout splits it",
        ),
    ],
)
def test_contexts_that_no_plan_has_are_refused(model, tokens, overrides, message):
    """Behind what a model has learned; of a window, whose cache splits otherwise than all tokens."""
    asked = {**SCENARIO, "model": model}
    assert tpsim.grid(asked, batches=8, contexts=2048, overrides=overrides).step_s.shape == (1, 1)
    with pytest.raises(InputError, match=r"sequence-too-long|not-divisible"):
        tpsim.plan(asked, overrides=[*overrides, f"workload.context={tokens}"])
    with pytest.raises(InputError, match=message):
        tpsim.grid(asked, batches=8, contexts=[2048, tokens], overrides=overrides)


@pytest.mark.parametrize(
    ("batches", "contexts", "overrides", "message"),
    [
        (12, 64, ["layout.cache=batch"], "batch 12 is no multiple of 8, into which the layout splits it"),
        (8, 60, ["layout.cache=sequence"], "context 60 is no multiple of 8, into which the layout splits it"),
        (0, 64, [], "batch 0 is no multiple of 1"),
        (8, 1, ["workload.tokens=2"], "a context of 1 tokens is less than the 2 that are new in a step"),
        (8, 64, ["assume.kernel_launch=5 us"], "a host that launches kernels one by one cannot be priced in arrays"),
        (
            8,
            64,
            ["workload={kind: prefill, prompt: 8}"],
            "a grid is of steps of decoding, and grid is a workload prefill",
        ),
    ],
)
def test_what_arrays_cannot_say_is_refused(batches, contexts, overrides, message):
    with pytest.raises(InputError) as error:
        tpsim.grid(SCENARIO, batches=batches, contexts=contexts, overrides=overrides)
    assert message in str(error.value)
