"""The norm of all gradients: the sums that it takes over the devices are derived, run, and waited for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.models import GPT
from tpsim.answers.plan import plan
from tpsim.claims.verify import verify
from tpsim.cost.collectives import collectives
from tpsim.program.dtypes import Dtypes
from tpsim.program.frameworks import PRACTICES
from tpsim.program.layout import layout
from tpsim.program.lower import lower

CLIPPED, FREE = "practice.clip=norm", "practice.clip=none"
STAGES = {"pp": 4, "chips": 256, "microbatches": 8, "batch": 64}


def sums(split=1, clip="norm", **laid):
    """The collectives of the norm: over which axes, in order."""
    practice = replace(PRACTICES["megatron"], clip=clip)
    program = lower(GPT, layout(**laid), practice, Dtypes(), ("P", "D", "T"), layers=split)
    found = [one for one in collectives(program, coalesce=True) if one.block == "clip"]
    assert all((one.kind, one.where.act, one.per_layer) == ("all_reduce", "U", False) for one in found)
    return [set(one.axes) for one in found]


def test_squares_are_summed_over_what_shards_the_gradients_and_over_the_stages():
    assert sums() == []
    assert sums(dp=("D",)) == []  # every data rank has all of it
    assert sums(tp=("T",), dp=("D",)) == [{"T"}]
    assert sums(tp=("T",), dp=("D",), zero=1) == [{"D", "T"}, {"D"}]
    assert sums((1, 0), tp=("T",), dp=("D",), pp=("P",)) == [{"T"}, {"P"}]
    assert sums(clip="none", tp=("T",), dp=("D",), zero=1) == []


def counted(answer):
    """The collectives that a run was held to."""
    (found,) = (one.detail for one in answer.checks if one.check == "collectives")
    return int(re.search(r"of (\d+) planned collectives", found)[1])


@pytest.mark.parametrize(("zero", "more"), [(0, 1), (1, 2)])
def test_the_update_with_clipped_gradients_is_that_of_one_device(zero, more):
    setting = f"layout.zero={zero}"
    clipped = verify("qwen2-7b-h100", overrides=(setting, CLIPPED))
    assert clipped.ok
    assert counted(clipped) == len(plan("qwen2-7b-h100", overrides=(setting, FREE)).rows) + more


@pytest.mark.parametrize("way", [{"schedule": "zb-h1"}, {"schedule": "interleaved", "chunks": 2}])
def test_a_tied_embedding_is_counted_once_in_the_norm_and_all_stages_wait_for_it(way):
    """Its gradient stands on the first and the last stage: the update of both is that of one device."""
    assert verify("gpt3-175b-a100-tp8", overrides=(CLIPPED,), **STAGES, **way).ok
    answer = plan("gpt3-175b-a100-tp8", overrides=(CLIPPED,), **STAGES, **way)
    (norm,) = (row for row in answer.rows if row.block == "clip" and row.axis == "pipe")
    assert (norm.ranks, norm.count, norm.stage, norm.call.shared) == (4, 1, None, True)
    for stage in answer.pipeline.step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(answer.step.time_s, rel=1e-12)
    assert not any("norm of all gradients" in one for one in answer.not_modelled)
    without = plan("gpt3-175b-a100-tp8", overrides=(FREE,), **STAGES, **way)
    assert any("norm of all gradients" in one for one in without.not_modelled)
    assert answer.step.compute_s > without.step.compute_s  # it reads all gradients


@pytest.mark.parametrize(
    ("practice", "clip"), [("megatron", "norm"), ("fsdp2", "norm"), ("deepspeed", "norm"), ("xla", "none")]
)
def test_frameworks_clip_unless_they_are_told_not_to(practice, clip):
    assert PRACTICES[practice].clip == clip


UNTIED = "model={extends: gpt3-175b, tie_embeddings: false}"


def test_a_norm_that_comes_behind_the_update_lets_every_stage_begin_its_next_step_alone():
    """Qi et al. 2024, section 4: ZB-H2's step is the parallelogram, and the same numbers come out."""
    way = {"schedule": "zb-h2", **STAGES}
    whole, apart, free = (
        plan("gpt3-175b-a100-tp8", overrides=(UNTIED, f"practice.clip={clip}"), **way)
        for clip in ("norm", "deferred", "none")
    )
    assert apart.step.time_s < 0.98 * whole.step.time_s
    assert apart.pipeline.step.time_s < apart.pipeline.step.ended_s < whole.step.time_s
    (sum_over_stages,) = (row for row in apart.rows if row.block == "clip" and row.axis == "pipe")
    assert (sum_over_stages.exposed_s, sum_over_stages.busy_s > 0) == (0, True)
    for result in (apart, free):
        for stage in result.pipeline.step.told.stages:
            parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
            assert parts == pytest.approx(result.step.time_s, rel=1e-12)
            assert stage.bubble_s >= 0
    assert any("takes back" in one for one in apart.not_modelled)
    assert any("which takes longest: each begins the next step" in one["text"] for one in apart.assumptions)
    assert verify("gpt3-175b-a100-tp8", overrides=("practice.clip=deferred",), **way).ok


def test_a_shared_embedding_makes_the_first_and_the_last_stage_wait_for_each_other_all_the_same():
    way = {"schedule": "zb-h2", **STAGES}
    whole, apart = (
        plan("gpt3-175b-a100-tp8", overrides=(f"practice.clip={clip}",), **way) for clip in ("norm", "deferred")
    )
    (waited,) = (row.busy_s for row in whole.rows if row.block == "clip" and row.axis == "pipe")
    assert apart.step.time_s == pytest.approx(whole.step.time_s - waited, rel=1e-12)


def test_cheaper_paths_leave_what_stages_owe_together_as_it_is():
    assert plan("gpt3-175b-a100-tp8", overrides=(CLIPPED,), **STAGES).to_json()["result"]["step"]["time_s"] > 0
