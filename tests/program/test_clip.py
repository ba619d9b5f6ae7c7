"""The norm of all gradients: the sums that it takes over the devices are derived, run, and waited for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.models import GPT
from tpsim.answers.plan import plan
from tpsim.claims.verify import verify
from tpsim.cost.rollup import collectives
from tpsim.program.layout import PRACTICES, Dtypes, layout
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
    clipped, free = (verify("qwen2-7b-h100", overrides=(setting, *one)) for one in ((CLIPPED,), (FREE,)))
    assert clipped.ok
    assert counted(clipped) == counted(free) + more


@pytest.mark.parametrize("way", [{"schedule": "zb-h1"}, {"schedule": "interleaved", "chunks": 2}])
def test_a_tied_embedding_is_counted_once_in_the_norm_and_all_stages_wait_for_it(way):
    """Its gradient stands on the first and the last stage: the update of both is that of one device."""
    assert verify("gpt3-175b-a100-tp8", overrides=(CLIPPED,), **STAGES, **way).ok
    answer = plan("gpt3-175b-a100-tp8", overrides=(CLIPPED,), **STAGES, **way)
    (norm,) = (row for row in answer.rows if row.block == "clip" and row.axis == "pipe")
    assert (norm.ranks, norm.count, norm.stage, norm.call.shared) == (4, 1, None, True)
    for stage in answer.pipeline.step.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s
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
