"""Of many equal layers a few are issued: that gives the tasks of all of them, whatever runs beside compute."""

from __future__ import annotations

from itertools import product

import pytest

from tests.plans import planned
from tpsim.answers.plan import plan
from tpsim.cost import actions as issuing
from tpsim.cost.actions import Actions
from tpsim.cost.collectives import singles
from tpsim.program.op import Reshard, is_cast

OVERLAPS = (
    "{tensor: none, gradients: none, weights: none}",
    "{tensor: beside, gradients: beside, weights: beside}",
    "{tensor: split, gradients: beside, weights: forward}",
)
AHEAD = ("{layers: 1}", "{layers: 3}", "{elements: 500000000}")
BUCKETS = ("{of: layer}", "{of: step}", "{elements: 700000000}")
POLICIES = [
    *product(OVERLAPS[1:2], AHEAD, BUCKETS),
    (OVERLAPS[0], AHEAD[0], BUCKETS[0]),
    (OVERLAPS[2], AHEAD[1], BUCKETS[2]),
]
"""With all beside compute each, and some that wait."""
SHIPPED = (
    *("llama3-70b-h100-zb-h1", "llama3-70b-v5p-slices", "mixtral-8x7b-h100", "gemma-7b-v5e", "llama3-70b-h100"),
    *("gpt-oss-120b-h100-decode", "deepseek-v3-h100"),
)


def runs_of(asked):
    """What the chunks of a plan do, in any of its microbatches."""
    question, calls = asked.question, singles(row.call for row in asked.rows)
    ops, shards = asked.lowered.program.ops, question.mesh.size(*question.layout.data)
    actions = Actions(ops, question.stages, calls, question.practice, shards, lambda call: call.elements(asked.sizes))
    return [
        told(actions.action(chunk, acts, first=first, last=last))
        for chunk in dict.fromkeys(question.stages.chunks)
        for acts, first, last in product(("F", "BW", "B", "W"), (False, True), (False, True))
    ]


def told(action):
    """The segments of an action by what tells their pieces apart."""
    return [
        (
            many,
            [
                (step.after, [(p.act, p.ops, id(p.call), p.blocks, p.share, p.cut) for p in step.pieces])
                for step in segment
            ],
        )
        for segment, many in action.runs
    ]


def issued(asked, monkeypatch, few):
    """The same with so many equal layers issued for all, and the most nodes that an action had."""
    most = [0]

    class Counted(issuing.Issue):
        def order(self):
            most.append(len(self.nodes))
            return super().order()

    with monkeypatch.context() as patch:
        patch.setattr(issuing, "FEW", few)
        patch.setattr(issuing, "Issue", Counted)
        return runs_of(asked), max(most)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_few_layers_are_issued_as_all_are_in_shipped_scenarios(name, monkeypatch):
    asked = planned(name)
    assert issued(asked, monkeypatch, issuing.FEW)[0] == issued(asked, monkeypatch, 10**9)[0]


@pytest.mark.parametrize("coalesce", ["true", "false"])
def test_casts_of_weights_stand_right_before_the_gather_that_reads_them(coalesce, monkeypatch):
    switches = ["workload.param_dtype=f32", f"practice.coalesce={coalesce}"]
    asked = plan("llama3-8b-b200-fsdp", overrides=switches)
    few, _ = issued(asked, monkeypatch, issuing.FEW)
    assert few == issued(asked, monkeypatch, 10**9)[0]
    reads, seen = {op.output: op.inputs for op in asked.lowered.program.ops}, set()
    calls = {id(row.call): row.call for row in asked.rows}
    for action in few:
        pieces = [(act, ops, calls.get(of)) for _, steps in action for _, ps in steps for act, ops, of, *_ in ps]
        for at, (act, _, call) in enumerate(pieces):
            if call and call.op == "param" and call.per_layer:
                cast = [x for part in call.parts for x in reads[part.output]]
                before = pieces[at - len(cast) : at]
                assert {x.output for _, ops, _ in before for x in ops} == {*cast}
                assert all(is_cast(x) for _, ops, _ in before for x in ops)
                seen.add(act)
    assert seen == {"F", "B"}


@pytest.mark.parametrize("overrides", [["layout.zero=1"], ["layout.zero=0", "workload.microbatches=2"]], ids=str)
def test_casts_of_whole_weights_stand_before_what_reads_them(overrides, monkeypatch):
    asked = plan("llama3-8b-b200-fsdp", overrides=["workload.param_dtype=f32", *overrides])
    few, _ = issued(asked, monkeypatch, issuing.FEW)
    assert few == issued(asked, monkeypatch, 10**9)[0]
    cast = {op.output for op in asked.lowered.program.ops if is_cast(op)}
    shown = {op.output: op.inputs[0] for op in asked.lowered.program.ops if isinstance(op, Reshard) and not op.moves}
    reading = set()
    for action in few:
        there = set()
        for op in (op for _, steps in action for _, ps in steps for _, ops, *_ in ps for op in ops):
            there.add(op.output)
            if op.where.act == "F" and op.where.microbatch == 0:
                wanted = {shown.get(x, x) for x in op.inputs} & cast
                assert wanted <= there
                reading |= wanted
    assert reading == cast


@pytest.mark.parametrize(("overlap", "ahead", "bucket"), POLICIES)
def test_a_few_layers_are_issued_as_all_are_with_every_policy(overlap, ahead, bucket, monkeypatch):
    policies = [f"practice.overlap={overlap}", f"practice.ahead={ahead}", f"practice.bucket={bucket}"]
    asked = plan("llama3-8b-b200-fsdp", overrides=[*policies, "recompute={layers: 9}"])
    assert issued(asked, monkeypatch, issuing.FEW)[0] == issued(asked, monkeypatch, 10**9)[0]


@pytest.mark.parametrize(("practice", "fewer"), [("fsdp2", 3), ("megatron", 3), ("xla", 1), ("deepspeed", 1)])
def test_of_layers_that_take_turns_a_few_are_issued_as_all_are(practice, fewer, monkeypatch):
    asked = plan(model="gpt-oss-120b", hw="dgx-h100", dp=64, zero=3, seq=4096, batch=256, practice=practice)
    few, nodes = issued(asked, monkeypatch, issuing.FEW)
    whole, many = issued(asked, monkeypatch, 10**9)
    assert few == whole
    assert many >= fewer * nodes


def test_what_is_issued_does_not_grow_with_the_layers(monkeypatch):
    few, nodes = issued(planned("gpt3-175b-a100-tp8"), monkeypatch, issuing.FEW)
    whole, many = issued(planned("gpt3-175b-a100-tp8"), monkeypatch, 10**9)
    assert few == whole
    assert many > 15 * nodes
