"""Servers that read prompts for others: what a scenario says of them, and what of it is refused, where it stands."""

from __future__ import annotations

import pytest

from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve

TEXT = """\
tpsim: scenario/1
model: llama-3-8b
hardware: dgx-h100
mesh: {data: 2, tensor: 4}
placement: {tensor: nvlink}
layout: {tp: tensor, dp: data, cache: batch}
workload: {kind: serve, batch: 8, prompt: 64, output: 8, cache_dtype: fp8}
require: {tpot: < 1 s}
collectives: {protocol: simple}
prefill:
  mesh: {tensor: 2}
  layout: {tp: tensor}
"""
READING = TEXT[TEXT.index("prefill") :]


def test_how_a_server_is_cut_is_its_own_and_all_else_is_the_scenarios(case):
    question = resolve(case())
    prompts = question.prompts
    assert (prompts.workload.kind, prompts.workload.global_batch, prompts.workload.seq) == ("prefill", 8, 64)
    assert (prompts.mesh.axes, prompts.dtypes.cache) == ({"tensor": 2}, "fp8")
    assert "cache" not in prompts.layout.table
    assert prompts.placement.rule  # that of `tensor` is of the other mesh
    assert prompts.limits == ()
    assert (prompts.force.protocol, prompts.force.launch, question.force.launch) == ("simple", None, "graph")
    assert prompts.machine is question.machine
    assert resolve(case("prefill:", "prefill:\n  batch: 3")).prompts.workload.global_batch == 3
    assert resolve(case(READING, "")).prompts is None
    none = "output: 8, speculation: {tokens: 0, acceptance: 0.5}"
    assert resolve(case("output: 8", none)).prompts.workload == prompts.workload


REFUSED = {
    "training": (
        ("{kind: serve, batch: 8, prompt: 64, output: 8, cache_dtype: fp8}", "{seq: 64}"),
        ("no-replies", 10, 1, "write workload: {kind: serve, prompt: .., output: ..}, or remove it"),
    ),
    "decoding alone": (
        ("{kind: serve, batch: 8, prompt: 64, output: 8, cache_dtype: fp8}", "{kind: decode, batch: 8, context: 64}"),
        ("no-replies", 10, 1, "write workload: {kind: serve, prompt: .., output: ..}, or remove it"),
    ),
    "a mesh that is not placed": (
        ("mesh: {tensor: 2}", "mesh: {tensor: 16}\n  placement: {tensor: nvlink}"),
        ("does-not-fit", 12, 14, "bind it to nvlink+network, or make it smaller"),
    ),
    "an axis of the other mesh": (
        ("layout: {tp: tensor}\n", "layout: {tp: tensor, dp: data}\n"),
        ("unknown-axis", 12, 28, ""),
    ),
    "a batch that does not divide": (
        ("mesh: {tensor: 2}\n  layout: {tp: tensor}", "mesh: {data: 3}\n  layout: {dp: data}"),
        ("batch-not-divisible", 7, 32, "write a multiple of 3"),
    ),
    "a batch of its own that does not": (
        ("mesh: {tensor: 2}\n  layout: {tp: tensor}", "mesh: {data: 3}\n  batch: 4\n  layout: {dp: data}"),
        ("batch-not-divisible", 12, 10, "write a multiple of 3"),
    ),
    "heads that do not": (
        ("mesh: {tensor: 2}\n", "mesh: {tensor: 3}\n"),
        ("heads-not-divisible", 11, 18, "legal tp: 1, 2, 4, 8, 16, 32"),
    ),
    "no mesh": (("  mesh: {tensor: 2}\n", ""), ("missing-field", 10, 1, "add mesh: {tensor: 8}")),
    "a slip": (("  layout:", "  layuot:"), ("unknown-field", 12, 3, 'did you mean "layout"?')),
    "training's own": (
        ("layout: {tp: tensor}\n", "layout: {tp: tensor, zero: 1}\n"),
        ("not-for-inference", 12, 24, ""),
    ),
    "a machine without a network": (
        ("  layout: {tp: tensor}\n", "  layout: {tp: tensor}\n  hardware: tpu-v2\n"),
        ("no-network", 10, 1, "name hardware with one, or let the same servers do both: remove prefill"),
    ),
    "an unknown machine": (
        ("  layout: {tp: tensor}\n", "  layout: {tp: tensor}\n  hardware: dgx-h10\n"),
        ("unknown-machine", 13, 13, ""),
    ),
    "replies of one token": (("output: 8", "output: 1"), ("nothing-to-decode", 7, 55, "")),
    "drafts": (
        ("output: 8", "output: 8, speculation: {tokens: 1, acceptance: 0.5}"),
        ("not-supported-yet", 7, 71, "leave one of both out"),
    ),
    "as many as fill memory": (("batch: 8", "batch: largest"), ("missing-batch", 10, 1, "add prefill.batch: 1")),
    "a table and a layout": (
        ("  layout: {tp: tensor}\n", '  layout: {tp: tensor}\n  shardings: {"*": {g: tensor}}\n'),
        ("layout-twice", 13, 14, "keep one of both"),
    ),
}


@pytest.mark.parametrize(("change", "due"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_shown_where_it_stands_with_a_remedy(case, change, due):
    with pytest.raises(InputError) as refused:
        resolve(case(*change))
    (problem, *_) = refused.value.problems
    slug, line, column, remedy = due
    assert (problem.slug, problem.place.line, problem.place.column) == (slug, line, column)
    assert remedy in problem.remedy


def test_a_switch_that_holds_both_servers_is_too_small_for_two():
    """A machine of one node: its level is what joins servers while it has room for both."""
    node = {"extends": "dgx-h100", "levels": [LEVEL]}
    scenario = {"tpsim": "scenario/1", "model": "llama-3-8b", "hardware": node, "mesh": {"tensor": 4}}
    scenario |= {"layout": {"tp": "tensor"}, "workload": {"kind": "serve", "prompt": 64, "output": 8}}
    assert resolve({**scenario, "prefill": {"mesh": {"tensor": 4}, "layout": {"tp": "tensor"}}}).prompts
    with pytest.raises(InputError, match="dgx-h100 has none: nvlink joins 8 chips"):
        resolve({**scenario, "prefill": {"mesh": {"tensor": 8}, "layout": {"tp": "tensor"}}})


LEVEL = {
    "name": "nvlink",
    "topology": "switch",
    "shape": [8],
    "link": {"bandwidth": "450 GB/s", "efficiency": 0.8, "hop_latency": "1 us"},
}
