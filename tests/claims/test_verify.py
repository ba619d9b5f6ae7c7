"""The verb `verify`: shipped scenarios are green, and every kind of wrong claim turns a check red and is named."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import tpsim
from tpsim.algebra import moves
from tpsim.answers import plan as plan_module
from tpsim.answers.schema import schema
from tpsim.claims import trial as trial_module
from tpsim.claims.shrink import DEVICES
from tpsim.claims.verify import verify
from tpsim.cost.memory import Standing
from tpsim.cost.rollup import Row, Total
from tpsim.machine import algorithms, timing
from tpsim.program import lifetimes as lifetimes_module
from tpsim.program import turnover as turnover_module
from tpsim.program.op import Reshard
from tpsim.program.transpose import Backward
from tpsim.program.turnover import Turnover
from tpsim.question import memo as memo_module
from tpsim.reference.devices import Devices
from tpsim.reference.functions import POINTWISE, Function


@pytest.fixture
def monkeypatch(monkeypatch, anew):  # noqa: ARG001  # it patches Memo
    """Whoever breaks something has programs made anew."""
    return monkeypatch


verify_module = sys.modules["tpsim.claims.verify"]

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
CHECKS = ["values", "gradients", "update", "blocks", "finite_differences", "collectives", "links", "formulas", "memory"]
DECODED = ["values", "blocks", "collectives", "links", "formulas", "memory", "cache"]
"""Of a step of inference, which has no backward."""

SMALL = "gpt3-175b-a100-tp8"
"""A scenario that runs in a fraction of a second: tensor parallelism of four, 13 calls."""


verified = cache(verify)
"""A scenario as it is, run once."""


def failing(*scenarios, **options):
    """The checks that fail, with what they say."""
    return {check.check: check.detail for run in verify(*scenarios, **options).runs for check in run.failed}


READ = [name for name in DECODED if name != "cache"]
"""The checks of servers that read prompts alone."""

FEWER = {"deepseek-v3-h100": 16, "qwen3-235b-h100": 16}
"""Of these 64 devices take as long as all others together, and every axis of 16 still has several."""


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_verifies(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpsim.claims.shrink.DEVICES", FEWER.get(name, DEVICES))
        result = verified(name)
    run, *prompts = result.runs
    assert [[check.check for check in one.checks] for one in prompts] == [READ] * name.endswith("-disaggregated")
    decodes = name.endswith(("-decode", "-disaggregated"))
    assert [check.check for check in run.checks] == (DECODED if decodes else CHECKS)
    assert result.ok, result.verdict
    assert run.difference < 1e-10
    assert run.arrays > (100 if decodes else 400)
    assert run.collectives > (5 if decodes else 10)


def test_some_shipped_scenarios_run_on_64_devices():
    assert verified("llama3-70b-v5p").runs[0].devices == 64


@pytest.mark.parametrize(
    "overrides",
    [
        ("planner=cheapest",),
        ("cost_model=book", "practice.cross_entropy=gathered"),
        ("practice=ideal", "workload.grad_dtype=bf16"),
        ("practice.cotangents=per_use", "layout.zero=2"),
        ("practice.gradients=per_microbatch", "layout.zero=3"),
        ("practice.gradients=per_step", "layout.sequence_parallel=false"),
        ("practice.zero1=all_reduce", "layout.sequence_parallel=false"),
        ("mesh.tensor=16",),
    ],
    ids=", ".join,
)
def test_a_scenario_with_other_choices_verifies_too(overrides):
    scenario = "llama3-70b-kv-replication" if "mesh.tensor=16" in overrides else "llama3-70b-h100"
    result = verify(scenario, overrides=overrides)
    assert result.ok, result.verdict


def test_a_stream_sent_in_pieces_over_an_axis_that_is_split_for_kv_heads_verifies():
    sends = {"pp": 2, "chips": 512, "microbatches": 2}
    result = verify("llama3-70b-kv-replication", overrides=["layout.cut={h: tensor}"], **sends)
    assert result.ok, result.verdict


# Every wrong claim is seen --------------------------------------------------------------------------------------------


def test_a_ring_verifies_whose_layers_run_again_as_far_as_backward_needs_them():
    """Keys and values go round a second time in backward; tensor, context and stages, two each."""
    result = verify(
        {
            "tpsim": "scenario/1",
            "model": {"extends": "llama-3-8b", "layers": 4},
            "hardware": "dgx-h100",
            "mesh": {"pipe": 2, "context": 2, "tensor": 2},
            "layout": {"pp": "pipe", "cp": "context", "tp": "tensor", "sequence_parallel": True},
            "pipeline": {"schedule": "zb-h1"},
            "recompute": {"base": "full", "replay": "needed"},
            "practice": {"base": "megatron", "home": "circle"},
            "workload": {"seq": 4096, "global_batch": 4, "microbatches": 4},
        }
    )
    assert [check.check for check in result.checks if not check.ok] == []
    assert result.runs[0].mesh == {"pipe": 2, "context": 2, "tensor": 2}


def test_a_wrong_factor_in_the_bytes_of_a_move_is_seen(monkeypatch):
    monkeypatch.setitem(moves.WIRE, "all_reduce", lambda V, n: moves.over(V * (n - 1), n))
    found = failing(SMALL)
    assert set(found) == {"collectives", "formulas"}
    assert (
        "all_reduce over tensor of attention.out (forward, attention): wire planned 24 B, counted 48 B"
        in (found["collectives"])
    )
    assert "all_reduce over tensor of attention.out" in found["formulas"]


def test_a_collective_that_the_program_leaves_out_is_seen_by_array_and_device(monkeypatch):
    monkeypatch.setattr(trial_module, "program_of", left_out("mlp.out"))
    found = failing(SMALL)
    assert {"values", "gradients", "update", "blocks", "collectives"} <= set(found)
    assert "0.mlp.out.0[b_{data}, s, h] on device (data 0, tensor " in found["values"]
    assert "does not hold its block of 0.mlp.out.0[b_{data}, s, h]" in found["blocks"]
    assert "all_reduce over tensor of mlp.out (forward, mlp): planned 2 times, ran 0 times" in found["collectives"]


def left_out(name):
    """`program_of`, but nothing moves where an array of that name changes its type."""
    lower = trial_module.program_of

    def without(*args, **options):
        program = lower(*args, **options)
        for op in program.ops:
            if isinstance(op, Reshard) and op.output.name == name:
                object.__setattr__(op, "moves", ())
        return program

    return without


def test_a_collective_that_the_plan_leaves_out_is_seen(monkeypatch):
    every = memo_module.collectives
    monkeypatch.setattr(memo_module, "collectives", lambda *args, **options: every(*args, **options)[1:])
    found = failing(SMALL)
    assert set(found) == {"collectives"}
    assert found["collectives"].endswith("planned 0 times, ran 1 times")


def test_a_collective_that_is_planned_twice_is_seen(monkeypatch):
    every = memo_module.collectives

    def twice(*args, **options):
        first, *rest = every(*args, **options)
        return (first, first, *rest)

    monkeypatch.setattr(memo_module, "collectives", twice)
    assert "planned 2 times, ran 1 times" in failing(SMALL)["collectives"]


def test_a_cotangent_with_a_wrong_scale_is_seen_by_finite_differences_alone(monkeypatch):
    scaled = Backward._scaled
    monkeypatch.setattr(Backward, "_scaled", lambda self, dy, scale, x: scaled(self, dy, replace(scale, value=2.0), x))
    found = failing(SMALL)
    assert set(found) == {"finite_differences"}
    assert "the gradient of E differs from the loss's slope by" in found["finite_differences"]


def test_a_wrong_derivative_is_seen_for_the_parameters_before_it(monkeypatch):
    gelu = POINTWISE["gelu"]
    monkeypatch.setitem(POINTWISE, "gelu", Function(gelu.value, (lambda x: 1.01 * gelu.partials[0](x),)))
    found = failing(SMALL, overrides=["practice=ideal"])
    assert set(found) == {"finite_differences"}
    assert "W2" not in found["finite_differences"].partition("and")[0].replace("gain", "")


def test_a_device_that_holds_another_ones_block_is_named(monkeypatch):
    play = Devices.play

    def swapped(self, move, *rest, array, **named):
        moved, call = play(self, move, *rest, array=array, **named)
        first, *_, last = moved
        if move.kind == "reduce_scatter" and array.startswith("mlp.out"):
            moved |= {first: moved[last], last: moved[first]}
        return moved, call

    monkeypatch.setattr(Devices, "play", swapped)
    found = failing("gpt3-175b-a100-tp8-sp")
    assert "does not hold its block of 0.mlp.out.0[b_{data}, s_{tensor}, h]" in found["blocks"]
    assert "device (data 0, tensor 0)" in found["blocks"] or "device (data 0, tensor 3)" in found["blocks"]
    assert "collectives" not in found


def test_a_device_that_is_never_sent_its_part_ends_the_run_with_a_mismatch(monkeypatch):
    monkeypatch.setattr(Devices, "_step", lambda *_: [])
    (run,) = verify("gpt3-175b-a100-tp8-sp").runs
    assert [(check.check, check.ok) for check in run.checks] == [("values", False)]
    assert "was never sent a part of its block" in run.checks[0].detail


def test_wrong_link_bytes_of_an_algorithm_are_seen(monkeypatch):
    ring = algorithms.FORMS["switch"]["all_reduce"]["ring"]
    busier = {**algorithms.FORMS["switch"]["all_reduce"], "ring": lambda V, n: ring(V, n)._replace(link_serial=V)}
    monkeypatch.setitem(algorithms.FORMS["switch"], "all_reduce", busier)
    found = failing(SMALL)
    assert set(found) == {"links"}
    assert "all_reduce over tensor of embedding.out (forward, embedding), ring: " in found["links"]
    assert "link serial on nvlink claimed 32, counted 48" in found["links"]


def test_a_link_that_carries_an_element_more_on_the_devices_than_the_schedule_says_is_seen(monkeypatch):
    play = Devices.play

    def busier(self, *rest, **named):
        moved, call = play(self, *rest, **named)
        levels = {name: replace(level, total=level.total + 1) for name, level in call.levels.items()}
        return moved, replace(call, levels=levels)

    monkeypatch.setattr(Devices, "play", busier)
    found = failing(SMALL)
    assert set(found) == {"links"}
    assert "devices' link total on nvlink claimed 48, counted 50" in found["links"]


def test_a_formula_that_is_printed_wrong_is_seen(monkeypatch):
    formula = Row.formula
    monkeypatch.setattr(Row, "formula", property(lambda row: formula.fget(row).replace("(t - 1)", "(t + 1)")))
    found = failing(SMALL)
    assert set(found) == {"formulas"}
    assert "(t + 1)/t is 80, counted 48" in found["formulas"]


def test_a_formula_of_a_layer_that_is_printed_wrong_is_seen_in_every_layer(monkeypatch):
    formula = Total.formula
    monkeypatch.setattr(Total, "formula", property(lambda layer: "2*" + formula.fget(layer)))
    found = failing(SMALL)
    assert set(found) == {"formulas"}
    assert found["formulas"].startswith("layer 0, microbatch 0, forward: 2*8*b*h*s*(t - 1)/t is 192, counted 96")
    assert found["formulas"].endswith("and 3 more")


# What is answered -----------------------------------------------------------------------------------------------------


def test_several_scenarios_are_one_answer_with_a_line_each():
    told = []
    result = tpsim.verify(SMALL, "gpt3-175b-a100-tp8-sp", progress=lambda *what: told.append(what))
    assert told == [(0, 2, SMALL), (1, 2, "gpt3-175b-a100-tp8-sp")]
    assert result.verdict == (
        "2 scenarios: all 18 checks hold; 1,179 arrays as on one device with differences below 1e-12, "
        "58 collective calls as claimed"
    )
    assert [(row["name"], row["check"]) for row in result.records()][:10] == [
        *((SMALL, check) for check in CHECKS),
        ("gpt3-175b-a100-tp8-sp", "values"),
    ]


def test_a_document_says_what_was_run_and_keeps_to_its_schema():
    document = json.loads(json.dumps(verify(SMALL).to_json()))
    assert list(Draft202012Validator(schema("verify").to_json()).iter_errors(document)) == []
    assert [set(check) for check in document["result"]["checks"]] == [{"name", "check", "ok", "detail"}] * len(CHECKS)
    (run,) = document["result"]["runs"]
    assert run["mesh"] == {"data": 1, "tensor": 4}
    assert run["full_size"] == "data 1 x tensor 8, 96 layers, 1 microbatch"
    assert (run["devices"], run["layers"], run["microbatches"], run["collectives"]) == (4, 2, 1, 14)
    assert run["dims"]["h"] == 4
    assert 0 < run["largest_relative_difference"] < 1e-10


def test_a_run_goes_by_the_algorithms_of_the_full_size():
    names = ("llama3-70b-h100", "llama3-8b-v5e", "llama3-8b-b200-fsdp")
    assert [verified(name).notes for name in names] == [[], [], []]


def test_a_run_says_where_it_does_not_go_by_the_algorithms_of_the_full_size(monkeypatch):
    """Level after level is a choice of its own on every level, which is not forced."""

    def by_rings(question, memo):
        full = plan_module.priced(question, memo)
        return replace(full, pacing=replace(full.pacing, rows=tuple(_by_rings(question, row) for row in full.rows)))

    monkeypatch.setattr(verify_module, "priced", by_rings)
    (note,) = verify("llama3-8b-b200-fsdp").notes
    assert note == "llama3-8b-b200-fsdp: 2 of 7 collectives run another algorithm than at full size (ring)"


def _by_rings(question, row):
    """A row whose levels run in turn, by a ring on every one."""
    if row.timing.algorithm != "hierarchical":
        return row
    one, route = row.call, question.placement.route(row.call.axes)
    return replace(row, timing=timing.time(question.machine, route, one.kind, row.logical_bytes, algorithm="ring"))


def test_two_calls_of_one_move_run_by_an_algorithm_each():
    """Gradients of biases are few bytes, sums of activations many: the one goes by a ring, the other by the switch."""
    result = verify("megatron-22b-a100", overrides=["hardware=dgx-h100"])
    assert "(in-switch, ring)" in next(check.detail for check in result.runs[0].checks if check.check == "links")
    assert result.ok, result.verdict


@pytest.mark.parametrize("algorithm", ["in-switch-tree", "in-switch-network", "in-network"])
def test_sums_in_switches_of_nodes_and_of_the_network_are_run_as_they_are_priced(algorithm):
    """What such an all-reduce injects is not the least that `wire` says: what it carries is held instead."""
    asked = ["hardware=superpod-h100", "mesh.tensor=16", f"collectives.algorithm={algorithm}"]
    result = verify("gpt3-175b-a100-tp8", overrides=asked)
    assert algorithm in next(check.detail for check in result.runs[0].checks if check.check == "links")
    assert result.ok, result.verdict


@pytest.mark.parametrize(
    ("machine", "mesh"),
    [
        ("mi300x", []),
        ("mi300x", ["mesh.data=2", "mesh.tensor=4"]),
        ("l40s-pcie", []),
        ("l40s-pcie", ["mesh.data=2"]),
        ("book-gb200-nvl72", ["mesh.data=2"]),
        ("alps-gh200", ["mesh.data=2", "mesh.tensor=4"]),
    ],
)
def test_a_scenario_verifies_on_every_kind_of_machine(machine, mesh):
    result = verify("megatron-22b-a100", overrides=[f"hardware={machine}", *mesh])
    assert result.ok, result.verdict


# Memory -------------------------------------------------------------------------------------------------------------


def test_what_is_kept_until_b_where_it_must_be_until_w_is_seen(monkeypatch):
    """On one rank; of several `tests/reference/test_live.py` sees it."""
    last = Turnover._last

    def too_soon(self, array, acts):
        early = [op for op in self.lifetimes.readers[array] if op.where.act != "W"]
        return early[-1] if early else last(self, array, acts)

    monkeypatch.setattr(Turnover, "_last", too_soon)
    found = failing(SMALL)
    assert set(found) == {"memory"}
    assert re.match(
        r"action \d+ of rank 0 held [\d,]+ bytes at most and [\d,]+ at its end, claimed were ", found["memory"]
    )


def test_a_view_that_is_counted_as_an_array_is_seen(monkeypatch):
    """By the plan alone: the executor reads the program for itself."""
    counted = turnover_module.lifetimes

    def without_views(program):
        with monkeypatch.context() as broken:
            broken.setattr(lifetimes_module, "is_view", lambda _: False)
            return counted(program)

    monkeypatch.setattr(turnover_module, "lifetimes", without_views)
    assert set(failing(SMALL)) == {"memory"}


def test_states_that_are_claimed_too_small_are_seen(monkeypatch):
    held = Standing.memory
    monkeypatch.setattr(
        Standing, "memory", lambda *asked: replace(one := held(*asked), optimizer_bytes=one.optimizer_bytes - 1)
    )
    assert "bytes of role state, claimed were" in failing(SMALL)["memory"]


def test_axes_that_stream_and_one_that_others_share_are_waited_for_in_turn_on_the_wires_of_a_torus():
    """The norm's sum over three axes: two are gone through at once, then one whose links the stages share."""
    asked = {"model": "llama-3-8b", "hw": "tpu-v5p", "dp": 2, "tp": 2, "zero": 1, "seq": 4096, "batch": 8}
    shared = ("mesh.context=2", "layout.cp=context", "mesh.pipe=2", "layout.pp=pipe")
    answer = verify(None, overrides=shared, microbatches=4, practice="fsdp2", **asked)
    assert answer.ok, answer.verdict
    (links,) = (check for check in answer.runs[0].checks if check.check == "links")
    assert "rotated" in links.detail


def test_tokens_that_are_decoded_and_split_over_tensor_choose_experts_evenly():
    """A device has one token of each of its sequences: these are no neighbours, and they chose alike."""
    asked = {"model": "mixtral-8x7b", "hw": "dgx-h100", "mesh": "data=2,tensor=4", "dp": "data", "tp": "tensor"}
    asked |= {"ep": "data", "sp": True, "overrides": ["workload={kind: decode, batch: 8, context: 64, tokens: 4}"]}
    found = verify(**asked)
    assert found.ok, found.verdict


@pytest.mark.parametrize("practice", ["megatron", "ideal"])
def test_the_rotated_part_of_a_head_is_whole_where_a_table_splits_heads_on_their_dim(practice):
    """No layout splits it: it was taken for split as the other part, and verify could not run it."""
    scenario = {"tpsim": "scenario/1", "model": "deepseek-v3", "hardware": "dgx-h100", "mesh": {"a": 2}}
    scenario |= {"shardings": {"*": {"d": "a"}}, "workload": {"seq": 4096, "global_batch": 2}}
    result = verify({**scenario, "practice": {"base": practice, "context": "gather"}})
    assert result.ok, result.verdict


@pytest.mark.parametrize("output", [2, 3, 4])
@pytest.mark.parametrize("drafts", ["null", "{tokens: 1, acceptance: 0.5, draft: none}"])
def test_replies_of_few_tokens_are_run_too(output, drafts):
    """Fewer tokens than a run has anyway are kept, and of a mean that is no whole number `verify` made a float."""
    work = [f"workload.{field}" for field in ("prompt=1", f"output={output}", f"speculation={drafts}")]
    result = verify("llama3-70b-h100-decode", overrides=work)
    assert result.ok, result.verdict
