"""Published throughputs of DeepSeek-V3 in service, which two halves of a batch reach that hide each other's exchanges.

No plan hides an exchange of inference, so what was measured must be above its rate. It is below the rate of the longer
of compute and exchanges, which is all that hiding can bring.
LMSYS, Deploying DeepSeek with PD Disaggregation and Large-Scale Expert Parallelism on 96 H100 GPUs, 2025-05-05: 32
experts of 288 are copies; prompts by DeepEP's normal kernels (a copy per node, then per rank), decoding by a row each.
"""

from __future__ import annotations

import pytest

import tpsim

BLOCKS = {
    "latent": {"attention": "mla", "heads": 128, "query_rank": 1536, "kv_rank": 512}
    | {"nope": 128, "rope": 64, "value": 128},
    "dense": {"ffn": "mlp", "kind": "swiglu", "hidden": 18_432},
    "sparse": {"ffn": "moe", "experts": 288, "top": 8, "hidden": 2048, "shared": 2048, "score": "sigmoid"}
    | {"choice_bias": True, "groups": 8, "top_groups": 4},
}
MODEL = {"extends": "deepseek-v3", "blocks": BLOCKS, "params": None, "active": None}
NODES_OF_8 = {"dp": ["node", "gpu"], "ep": ["node", "gpu"]}
IN_FP8 = {"dtype": "fp8_128", "param_dtype": "fp8_128", "vocab_dtype": "bf16"}

PUBLISHED = {
    "prompts of 1,024": (4, "node_rank", {"kind": "prefill", "batch": 512, "prompt": 1024}, 57_674),
    "prompts of 2,048": (4, "node_rank", {"kind": "prefill", "batch": 256, "prompt": 2048}, 54_543),
    "prompts of 4,096": (4, "node_rank", {"kind": "prefill", "batch": 128, "prompt": 4096}, 50_302),
    "replies": (9, "flat", {"kind": "decode", "batch": 72 * 256, "context": 2000}, 22_282),
}
"""Nodes, how rows go, what is asked: 16,384 tokens a GPU, or 256 sequences; tokens per second of a node."""


@pytest.mark.parametrize(("nodes", "dispatch", "work", "measured"), PUBLISHED.values(), ids=PUBLISHED)
def test_rates_in_service_lie_between_exchanges_that_nothing_hides_and_all_that_hiding_can_bring(
    nodes, dispatch, work, measured
):
    scenario = {
        "tpsim": "scenario/1",
        "model": MODEL,
        "hardware": "dgx-h100",
        "mesh": {"node": nodes, "gpu": 8},
        "layout": NODES_OF_8,
        "practice": {"base": "megatron", "rows": {"dispatch": dispatch, "dtype": "fp8_128"}},
        "workload": {**work, **IN_FP8},
    }
    plan = tpsim.plan(scenario)
    least, most = (plan.tokens / s / nodes for s in (plan.step.time_s, max(plan.step.compute_s, plan.step.exposed_s)))
    assert least < measured < most
