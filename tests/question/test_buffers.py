"""Buffers of buckets in memory: by framework, at the actions where they are, and refused where they hold nothing."""

from __future__ import annotations

import pytest

import memory
from tpsim.answers.plan import plan
from tpsim.claims.verify import verify
from tpsim.program.frameworks import PRACTICES
from tpsim.program.keeps import BUFFERS, BUFFERS_SOURCES
from tpsim.quantity.errors import InputError
from tpsim.question.scenario import resolve

FSDP = "llama3-8b-b200-fsdp"
LAYER = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336 + 2 * 4096
PARAMETERS = 32 * LAYER + 2 * 4096 * 128256 + 4096


def held(*overrides, scenario=FSDP):
    return plan(scenario, overrides=overrides).memory


def more(*overrides, without=()):
    """Bytes of every action, at its highest point, beside those of no buffers."""
    with_them, plain = held(*overrides), held(*overrides, "practice.bucket={buffers: none}", *without)
    pairs = zip(with_them.peak.course, plain.peak.course, strict=True)
    return [float(ours - theirs) for (_, ours, _), (_, theirs, _) in pairs], float(with_them.bucket_bytes)


def deepspeed(zero, *overrides):
    return more(f"layout.zero={zero}", "practice.base=deepspeed", *overrides)


def test_deepspeed_has_a_bucket_of_half_a_billion_numbers_in_backward_and_a_second_one_with_overlap():
    """setup_buckets of stage_1_and_2.py; the forward has none."""
    assert deepspeed(2) == ([0, 1e9], 0)
    assert deepspeed(2, "practice.overlap={gradients: beside}") == ([0, 2e9], 0)
    assert deepspeed(2, "practice.overlap={gradients: beside}", "practice.bucket.elements=1000000")[0] == [0, 4e6]


def test_deepspeed_has_its_bucket_all_the_time_where_parameters_are_sharded_and_none_where_nothing_is():
    assert deepspeed(3) == ([0, 0], 1e9)
    assert deepspeed(0) == ([0, 0], 0)


def test_layers_of_fsdp2_go_forward_beside_a_gather_and_backward_beside_what_is_scattered():
    """The peak of each action is at the loss, where no layer runs: full recompute of few tokens makes layers matter."""
    chip = held("recompute.base=full", "workload.seq=128", "model.vocab=64")
    assert chip.working["buckets"] == 4 * LAYER
    assert chip.peak_action.startswith("backward")
    assert more("recompute.base=full", "workload.seq=128", "model.vocab=64")[0][0] == 2 * LAYER


def test_gradients_of_a_layer_lie_in_the_buffer_and_are_not_counted_beside_it():
    asked = ("recompute.base=full", "workload.seq=128", "model.vocab=64")
    assert "gradients" not in held(*asked).working
    assert held(*asked, "practice.bucket={buffers: none}").working["gradients"] == 4 * 4096 * 14336


def test_ddp_has_a_copy_of_all_gradients_where_several_devices_reduce_them_whole():
    assert held("layout.zero=0").bucket_bytes == held("layout.zero=0").working["buckets"] == 2 * PARAMETERS
    assert held("layout.zero=0", "mesh={data: 1}", "chips=1").bucket_bytes == 0


def test_two_runs_of_litgpt_that_differ_in_devices_alone_differ_by_a_copy_of_all_gradients():
    """tests/data/measured_memory.json: litgpt-003 on eight devices, litgpt-006 on one; within a hundredth."""
    eight, one = (next(run for run in memory.runs() if run.row["id"] == f"litgpt-{name}") for name in ("003", "006"))
    copied = eight.plan.memory.bucket_bytes
    assert one.plan.memory.bucket_bytes == 0
    assert copied == pytest.approx(eight.measured - one.measured, rel=0.01)


def test_buckets_of_megatron_are_views_and_take_nothing():
    assert PRACTICES["megatron"].buffers == BUFFERS["none"] == ()
    assert "buckets" not in held("practice.base=megatron", "layout.zero=1").working
    assert set(BUFFERS) == set(BUFFERS_SOURCES)


def test_a_plan_says_which_buffers_it_counts_and_by_whose_code():
    said = [one.text for one in resolve(FSDP).assumptions if one.text.startswith("buffers")]
    assert said == [f"buffers of buckets: 1 reduced, 1 gathered, the list fsdp2 ({BUFFERS_SOURCES['fsdp2']})"]
    own = resolve(FSDP, overrides=["practice.bucket={buffers: {reduced: 2}}"])
    assert ("buffers of buckets: 2 reduced", "stated") in [(one.text, one.kind) for one in own.assumptions]
    assert own.resolved["practice"]["bucket"]["buffers"] == {"reduced": 2}


@pytest.mark.parametrize(
    ("value", "message", "remedy"),
    [
        ("fsdp", '"fsdp" is not a list of buffers', 'did you mean "fsdp2"?'),
        ("{reduced: -1}", "buffers.reduced is -1", "it must be more than 0"),
        ("{parameters: 1}", "a buffer of what is parameters holds nothing at ZeRO-3", "leave it out, or write zero: 0"),
        ("{bucket: 1}", "a buffer of a bucket has no size", "write practice.bucket.elements"),
    ],
)
def test_buffers_that_hold_nothing_are_refused_where_they_are_written(value, message, remedy):
    with pytest.raises(InputError) as error:
        resolve(FSDP, overrides=[f"practice.bucket.buffers={value}"])
    assert message in str(error.value)
    assert remedy in str(error.value)
    assert f"--set practice.bucket.buffers={value}" in str(error.value)


@pytest.mark.parametrize("base", ["fsdp2", "deepspeed"])
def test_devices_hold_what_is_claimed_but_for_buffers_which_do_not_run(base):
    found = verify("llama3-8b-v5e", overrides=[f"practice.base={base}"])
    assert [check.check for check in found.checks if not check.ok] == []


def test_a_buffer_that_is_never_let_go_is_seen(monkeypatch):
    whole = held("recompute.base=full").peak.course[-1][2]
    assert whole == 0
    monkeypatch.setattr("tpsim.cost.peak._undone", lambda _: [])
    assert held("recompute.base=full").peak.course[-1][2] > 0
