"""Of many equal layers a few are issued: that gives the tasks of all of them, whatever runs beside compute."""

from __future__ import annotations

from itertools import product

import pytest

from tests.plans import planned
from tpsim.answers.plan import plan
from tpsim.cost import actions as issuing
from tpsim.cost.actions import Actions
from tpsim.cost.collectives import singles

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
SHIPPED = ("llama3-70b-h100-zb-h1", "llama3-70b-v5p-slices", "mixtral-8x7b-h100", "gemma-7b-v5e", "llama3-70b-h100")


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


@pytest.mark.parametrize(("overlap", "ahead", "bucket"), POLICIES)
def test_a_few_layers_are_issued_as_all_are_with_every_policy(overlap, ahead, bucket, monkeypatch):
    policies = [f"practice.overlap={overlap}", f"practice.ahead={ahead}", f"practice.bucket={bucket}"]
    asked = plan("llama3-8b-b200-fsdp", overrides=[*policies, "recompute={layers: 9}"])
    assert issued(asked, monkeypatch, issuing.FEW)[0] == issued(asked, monkeypatch, 10**9)[0]


def test_what_is_issued_does_not_grow_with_the_layers(monkeypatch):
    few, nodes = issued(planned("gpt3-175b-a100-tp8"), monkeypatch, issuing.FEW)
    whole, many = issued(planned("gpt3-175b-a100-tp8"), monkeypatch, 10**9)
    assert few == whole
    assert many > 15 * nodes
