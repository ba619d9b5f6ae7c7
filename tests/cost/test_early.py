"""New weights that ranks gather whenever their first message comes, where each begins a step when it has ended one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpsim.answers.plan import plan
from tpsim.program.schedules import SCHEDULES
from tpsim.program.stages import Stages

UNEVEN = {1: [2, 3, 6, 5], 2: [1, 3, 1, 2, 3, 1, 3, 2]}


def asked(schedule, bandwidth, *, model="llama-3-8b", even=True, clip="none", weights="beside", ahead=None):
    """Four stages whose new weights go over a network."""
    chunks = 2 if SCHEDULES[schedule].several else 1
    return plan(
        {
            "tpsim": "scenario/1",
            "model": {**({"extends": model} if isinstance(model, str) else model), "layers": 16},
            "hardware": {
                "extends": "dgx-h100",
                "levels": {"network": {"link": {"bandwidth": {"value": bandwidth, "kind": "guess"}}}},
            },
            "mesh": {"pipe": 4, "data": 8},
            "placement": {"pipe": "nvlink", "data": "network"},
            "layout": {"pp": "pipe", "dp": "data", "zero": 1},
            "pipeline": {"schedule": schedule, "chunks": chunks, "layers": "even" if even else UNEVEN[chunks]},
            "practice": {
                "base": "ideal",
                "clip": clip,
                "overlap": {"gradients": "none", "weights": weights},
                "ahead": ahead,
            },
            "workload": {"seq": 512, "global_batch": 64, "microbatches": 8},
        }
    )


def in_a_row(work, steps):
    """When so many steps begin on the first rank: each rank begins one as soon as it has ended the one before.

    It updates, and then gathers, when it has what it sums with others.
    """
    ranks = range(work.stages.ranks)
    begun, firsts = [0.0 for _ in ranks], []
    for _ in range(steps):
        firsts.append(begun[0])
        free = once(work, begun, begun)
        early, late = zip(*(halves(work, rank) for rank in ranks), strict=True)
        alone = [free[rank] + early[rank] for rank in ranks]
        meeting = [rank for rank in ranks if work.own[rank].shared_s]
        begun = [max(alone[other] for other in (meeting if rank in meeting else [rank])) for rank in ranks]
        begun = [at + work.own[rank].shared_s + late[rank] for rank, at in enumerate(begun)]
    return firsts


def once(work, begun, gathers):
    """When each rank has ended its order."""
    schedule, free, made = work.schedule, [*begun], {}
    left = [list(zip(*both, strict=True)) for both in zip(schedule.orders, schedule.kinds.of, strict=True)]
    while any(left):
        for rank, actions in enumerate(left):
            while actions:
                action, kind = actions[0]
                wanted = [one for part in action if part.act != "W" and (one := schedule.wanted(part))]
                if not all(one in made for one in wanted):
                    break
                comes = [made[one] + work.hop(schedule.rank(one.chunk), rank) for one in wanted]
                end = (
                    max(free[rank], *comes) + work.plain[kind].through.seconds
                    if comes
                    else (free[rank] + work.plain[kind].through.seconds)
                )
                due = gathers[rank] + work.gathered[kind].due if kind in work.gathered else end
                free[rank] = max(end, due)
                made |= dict.fromkeys(action, free[rank])
                del actions[0]
    return free


def with_a_norm(work, steps):
    """When the norm of so many steps is known: what sets off updates, and new weights, on every rank.

    By name: squares come before it and gradients are reduced, what else is once per step follows it.
    """
    ranks, norms = range(work.stages.ranks), []
    begun = [0.0 for _ in ranks]
    for _ in range(steps):
        free = once(work, begun, begun)
        ends = []
        for rank in ranks:
            early, _ = halves(work, rank)
            tied = sum(row.busy_s for row in work.own[rank].shared if row.call.block != "clip")
            ends.append(free[rank] + early + tied)
        norm_s = {row.busy_s for own in work.own for row in own.shared if row.call.block == "clip"}
        norms.append(max(ends) + max(norm_s))
        begun = [norms[-1] + halves(work, rank)[1] for rank in ranks]
    return norms


def halves(work, rank):
    """Seconds that a rank works, and sends alone, once per step: before the norm, and behind it."""
    chunks = Stages(1, tuple(replace(chunk, rank=0) for chunk in work.stages.of(rank)))
    sizes = work.clock.sizes.of_stage(chunks.loops(0))
    kernels = [one for one in work.clock.kernels if one.where.microbatch is None and chunks.runs(one.where, 0)]
    seconds = [0.0, 0.0]
    for kernel in kernels:
        updates = any(op.output.name.startswith("new.") for op in kernel.ops)
        seconds[updates] += work.clock.compute([kernel], sizes).time_s
    rows = [row for row in work.own[rank].rows if not row.call.per_microbatch and not row.call.shared]
    for row in rows:
        if not work.actions.beside_once(row.call):
            seconds[row.call.op == "state"] += row.busy_s
    return seconds


@pytest.mark.parametrize("weights", ["none", "beside"])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt3-175b", {"extends": "llama-3-8b", "vocab": 1024000}])
@pytest.mark.parametrize("bandwidth", ["1 GB/s", "100 GB/s"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_rank_updates_before_the_norm_is_known(schedule, bandwidth, model, even, weights):
    """Neither does a rank with much to update, whose gradients are there first; it begins its next step later, though.

    PyTorch's clip_grad_norm_, Megatron-LM's MixedPrecisionOptimizer.step: the norm, then the step, then new weights.
    """
    model = model if isinstance(model, str) else {**model, "params": None}
    step = asked(schedule, bandwidth, model=model, even=even, clip="norm", weights=weights).pipeline.step
    norms = with_a_norm(step.work, 12)
    assert (norms[-1] - norms[-7]) / 6 == pytest.approx(step.time_s, rel=1e-9)
    for stage in step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(step.time_s, rel=1e-11)
        assert stage.bubble_s >= -1e-12 * step.time_s
    assert eval(step.told.formula, dict(step.told.seconds)) == pytest.approx(step.time_s, rel=1e-12)  # noqa: S307


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt3-175b"])
@pytest.mark.parametrize("bandwidth", ["1 GB/s", "10 GB/s", "100 GB/s"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_steps_in_a_row_are_as_long_as_one_is_told(schedule, bandwidth, model, even):
    """Never longer; and no shorter where layers are split evenly."""
    step = asked(schedule, bandwidth, model=model, even=even).pipeline.step
    firsts = in_a_row(step.work, 24)
    later = (firsts[-1] - firsts[-13]) / 12
    assert later <= step.time_s * (1 + 1e-9)
    assert later == pytest.approx(step.time_s, rel=1e-9 if even else 0.02)


@pytest.mark.parametrize("clip", ["none", "deferred"])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("bandwidth", ["1 GB/s", "10 GB/s", "100 GB/s"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_weights_gathered_beside_compute_make_no_step_longer(schedule, bandwidth, even, clip):
    """What the rank that paces waits for them is told: of every rank all parts are the step, and so is the formula."""
    step, without = (
        asked(schedule, bandwidth, even=even, clip=clip, weights=how).pipeline.step for how in ("beside", "none")
    )
    assert step.time_s <= without.time_s * (1 + 1e-12)
    for stage in step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(step.time_s, rel=1e-11)
        assert stage.bubble_s >= -1e-12 * step.time_s
        assert all(row.exposed_s <= row.busy_s * (1 + 1e-9) for row in stage.rows if row.collective == "all_gather")
    assert eval(step.told.formula, dict(step.told.seconds)) == pytest.approx(step.time_s, rel=1e-12)  # noqa: S307
    waited = sum(row.exposed_s for row in step.pacing.rows if row.collective == "all_gather")
    assert ("weights" in step.told.counts) == (waited > 0)
    assert waited == pytest.approx(step.told.seconds.get("weights", 0), rel=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_since_when_weights_are_gathered_can_be_stated_and_else_is_as_the_schedule_is_run(schedule):
    """The hooks of Megatron-LM and PyTorch gather with the first forward where a rank has one chunk."""

    def step(since):
        return asked(schedule, "10 GB/s", ahead={"since": since}).step.time_s

    assert step("step") < step("message")
    assert step("auto") == step("step" if SCHEDULES[schedule].early else "message")


@pytest.mark.parametrize("stages", [1, 2])
def test_no_step_is_shorter_than_what_goes_over_the_cards_of_nodes_takes(stages):
    """By hand: of an array over 16 GPUs of two nodes each card sends 15/16 of its eighth, in and out of a node.

    Gathers of weights and scatters of gradients are in lanes of their own, and go over the same cards.
    """
    question = {
        "tpsim": "scenario/1",
        "model": {"extends": "llama-3-8b", "layers": 8},
        "hardware": "dgx-h100",
        "mesh": {"pipe": stages, "data": 16},
        "layout": {"pp": "pipe", "dp": "data", "zero": 3},
        "practice": {"base": "fsdp2", "staged": "each"},
        "workload": {"seq": 512, "global_batch": 128, "microbatches": 8},
    }
    result = plan({**question, **({"pipeline": {"schedule": "1f1b"}} if stages > 1 else {})})
    link = result.question.machine.level("network").link
    rows = [stage.rows for stage in result.pipeline.step.told.stages] if stages > 1 else [result.rows]
    for each in rows:
        moved = [row for row in each if row.timing.algorithm == "flat-ring"]
        assert {row.collective for row in moved} == {"all_gather", "reduce_scatter"}
        sent = sum(row.count * row.logical_bytes * 15 / 16 / 8 for row in moved)
        assert result.step.time_s >= sent / (link.bandwidth.value * link.efficiency.value)
    assert result.step.time_s > result.step.compute_s


@pytest.mark.parametrize(("hardware", "ring"), [("dgx-h100", False), ("tpu-v5e", True)])
def test_no_step_by_the_book_is_shorter_than_all_calls_over_its_links_take(hardware, ring):
    """One level: every call is over the same links; on a ring of 16, V/W as the book has it, W both directions."""
    devices = 16 if ring else 8
    result = plan(
        {
            "tpsim": "scenario/1",
            "cost_model": "book",
            "model": {"extends": "llama-3-8b", "layers": 8},
            "hardware": hardware,
            "mesh": {"data": devices},
            "placement": {"data": "ici.0"} if ring else {},
            "layout": {"dp": "data", "zero": 3},
            "practice": "fsdp2",
            "workload": {"seq": 512, "global_batch": 8 * devices, "microbatches": 8},
        }
    )
    link = result.question.machine.levels[0].link.bandwidth.value
    share = 1 / (2 * link) if ring else (devices - 1) / devices / link
    halves = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
    sent_s = sum(row.count * row.logical_bytes * halves[row.collective] * share for row in result.rows)
    assert result.step.time_s >= sent_s * (1 - 1e-9) > result.step.compute_s


def test_no_step_is_shorter_than_its_links_are_busy_wherever_a_rank_begins():
    """The second stage gathers weights of most layers for every microbatch, and begins behind the first."""
    step = plan(
        {
            "tpsim": "scenario/1",
            "model": {"extends": "llama-3-8b", "layers": 8},
            "hardware": {
                "extends": "dgx-h100",
                "levels": {"network": {"link": {"bandwidth": {"value": "10 GB/s", "kind": "guess"}}}},
            },
            "mesh": {"pipe": 2, "data": 8},
            "placement": {"pipe": "nvlink", "data": "network"},
            "layout": {"pp": "pipe", "dp": "data", "zero": 3},
            "pipeline": {"schedule": "1f1b", "layers": [2, 6]},
            "practice": "ideal",
            "workload": {"seq": 512, "global_batch": 64, "microbatches": 8},
        }
    ).pipeline.step
    busy = [max(own.wires_s.values()) for own in step.work.own]
    assert step.pacing.rank == 1
    assert step.time_s == pytest.approx(max(busy), rel=1e-9)
    for stage in step.told.stages:
        parts = stage.compute.time_s + stage.exposed_s + stage.bubble_s + stage.host_s + stage.stragglers_s
        assert parts == pytest.approx(step.time_s, rel=1e-11)
