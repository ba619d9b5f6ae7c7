"""Parts of a batch that are on their way through stages at once: against a simulation, token by token."""

from __future__ import annotations

import pytest

import tpsim
from tpsim.answers.servers import Both
from tpsim.pages.search import page
from tpsim.quantity.errors import InputError

ROUNDS, AFTER = 12, 4


def served(model="llama-3-8b", *, pp, parts, tp=4, batch=48, prefill=None, **work):
    return tpsim.plan(
        {
            "tpsim": "scenario/1",
            "model": model,
            "hardware": "dgx-h100",
            "mesh": {"pipe": pp, "tensor": tp},
            "layout": {"pp": "pipe", "tp": "tensor"},
            "pipeline": {"layers": "nearly-even"},
            "workload": {"batch": batch, "microbatches": parts, **work},
            **({"prefill": prefill} if prefill else {}),
        }
    )


def simulated(stage_s, hop_s, parts, rounds):
    """When each turn of each part ends: a stage gives what it made and takes the next part at once, both waiting.

    The next turn of a part begins when its last one has ended behind all stages.
    """
    stages, turns = len(stage_s), rounds * parts
    ends = [[0.0] * turns for _ in range(stages)]
    for turn in range(turns):
        for stage in range(stages):
            start = ends[stage][turn - 1] if turn else 0.0
            if stage:
                start = max(start, ends[stage - 1][turn]) + hop_s[stage - 1]
            elif turn >= parts:
                start = max(start, ends[-1][turn - parts])
            if turn and stage < stages - 1:  # what it made before is taken once the stage behind is done with its own
                behind = ends[stage + 1][turn - 2] if turn > 1 else 0.0
                start = max(start, max(ends[stage][turn - 1], behind) + hop_s[stage])
            ends[stage][turn] = start + stage_s[stage]
    return ends


def pieces(plan):
    work, ran = plan.pipeline.step.work, plan.pipeline.step.ran
    stage_s = [float(work.kinds[kinds[0]].through.seconds) for kinds in work.schedule.kinds.of]
    hops = {way.channel.sender: float(way.seconds[0]) for way in ran.ways.values()}
    return stage_s, [hops[stage] for stage in range(len(hops))]


@pytest.mark.parametrize("pp", [2, 4, 8])  # the last two over several nodes: some messages take longer
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("work", [{"kind": "decode", "context": 2048}, {"kind": "prefill", "prompt": 512}])
def test_parts_take_their_turns_as_a_simulation_of_every_turn_has_it(pp, parts, work):
    plan = served(pp=pp, parts=parts, **work)
    stage_s, hop_s = pieces(plan)
    ends = simulated(stage_s, hop_s, parts, ROUNDS)
    turn_s = (ends[-1][-1] - ends[-1][-1 - AFTER * parts]) / AFTER
    assert float(plan.step.time_s) == pytest.approx(turn_s, rel=1e-12)
    assert float(plan.step.ended_s) == pytest.approx(ends[-1][parts - 1], rel=1e-12)
    for stage in plan.pipeline.step.told.stages:
        made_of = stage.compute.time_s + stage.exposed_s + stage.bubble_s
        assert float(made_of) == pytest.approx(turn_s, rel=1e-12)
        assert stage.bubble_s >= -1e-12 * turn_s
    told = plan.pipeline.step.told
    assert sum(count * float(told.seconds[name]) for name, count in told.counts.items()) == pytest.approx(turn_s)


def test_parts_of_one_stage_are_one_after_the_other():
    one, three = (served(pp=1, parts=m, kind="decode", context=2048, batch=48 // 3 * m) for m in (1, 3))
    assert three.step.time_s == pytest.approx(3 * one.step.time_s)
    assert three.memory.cache_bytes == 3 * one.memory.cache_bytes
    assert three.memory.working_bytes == one.memory.working_bytes


def test_as_many_parts_as_stages_keep_all_stages_at_work_and_no_fewer_do():
    """Prompts long enough that two halves take as long as the whole: stages of a quarter each, and one at work."""
    alone, two, four, eight = (served(pp=4, parts=m, tp=1, kind="prefill", prompt=4096, batch=8) for m in (1, 2, 4, 8))
    assert alone.pipeline.bubble_share == pytest.approx(3 / 4, abs=0.03)
    assert two.pipeline.bubble_share == pytest.approx(1 / 2, abs=0.03)
    assert four.pipeline.bubble_share < 0.03 > eight.pipeline.bubble_share
    assert four.serve.tokens_per_s_chip == pytest.approx(4 * alone.serve.tokens_per_s_chip, rel=0.05)
    assert two.serve.ttft_s < alone.serve.ttft_s
    assert two.serve.ttft_s > two.step.time_s  # the last of them has gone through all stages behind the first


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_every_part_has_a_cache_and_works_with_its_own_sequences_alone(parts):
    whole, split = (served(pp=2, parts=m, kind="prefill", prompt=1024, batch=16) for m in (1, parts))
    assert split.memory.cache_bytes == whole.memory.cache_bytes == 2 * 16 * 1024 * 16 * 8 * 128 * 2 // 4
    assert split.memory.working_bytes == pytest.approx(whole.memory.working_bytes / parts, rel=0.05)
    rows = [(row.count / parts, row.payload_bytes) for row in split.pipeline.rows]
    assert rows == [(row.count, row.payload_bytes) for row in whole.pipeline.rows]
    assert split.serve.cache_bytes_per_token == whole.serve.cache_bytes_per_token == 2 * 32 * 8 * 128 * 2
    assert split.serve.copies == whole.serve.copies == 1


def test_the_largest_batch_is_a_multiple_of_its_parts():
    plan = served(pp=2, parts=3, kind="decode", context=4096)
    assert plan.serve.largest_batch % 3 == 0
    assert served(pp=2, parts=3, kind="decode", context=4096, batch="largest").memory.room_bytes >= 0
    over = served(pp=2, parts=3, kind="decode", context=4096, batch=plan.serve.largest_batch + 3)
    assert over.memory.room_bytes < 0


def test_a_plan_of_one_part_names_the_change_to_as_many_as_there_are_stages():
    change = served(pp=4, parts=1, tp=1, kind="prefill", prompt=4096, batch=8).change
    assert change.set == "workload.microbatches=4"
    assert change.relative == pytest.approx(-0.75, abs=0.03)
    assert served(pp=4, parts=4, tp=1, kind="prefill", prompt=4096, batch=8).change is None


@pytest.mark.parametrize("pp", [1, 2])
def test_steps_of_a_batch_in_parts_hold_on_simulated_devices(pp):
    assert tpsim.verify(
        model="llama-3-8b",
        hw="dgx-h100",
        tp=2,
        pp=pp,
        batch=8,
        seq=64,
        microbatches=2,
        overrides=["workload.kind=decode"],
    ).ok


def test_parts_are_refused_where_steps_are_arrays():
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "tp": 8, "batch": 8, "seq": 1024, "microbatches": 2}
    with pytest.raises(InputError, match="parts of a batch, cannot be priced in arrays"):
        tpsim.grid(**asked, overrides=["workload.kind=decode"], batches=[8, 16], contexts=[1024])


def test_a_stage_works_on_one_part_at_a_time_and_keeps_none():
    assert {each.in_flight for each in served(pp=4, parts=4, kind="decode", context=1024).pipeline.alike} == {1}


def test_drafts_beside_several_parts_are_refused():
    with pytest.raises(InputError, match="drafts beside several parts"):
        served(pp=2, parts=2, kind="decode", context=512, speculation={"tokens": 2, "acceptance": 0.8})


READING = {"mesh": {"pipe": 2, "tensor": 4}, "layout": {"pp": "pipe", "tp": "tensor"}, "batch": 8}


def test_servers_of_prompts_state_their_own_parts():
    """What is stated of servers that decode says nothing of those that read prompts, nor the other way round."""
    asked = {"kind": "serve", "prompt": 2048, "output": 64}
    plans = {m: served(pp=2, parts=2, **asked, prefill={**READING, "microbatches": m}) for m in (1, 2)}
    for m, plan in plans.items():
        assert (plan.question.workload.microbatches, plan.prefill.question.workload.microbatches) == (2, m)
    one, two = (plan.serve.servers for plan in plans.values())
    assert two.prompt_requests_per_s == pytest.approx(8 / float(plans[2].prefill.step.time_s))
    assert two.prompt_requests_per_s > 1.7 * one.prompt_requests_per_s
    assert one.transfer_bytes == two.transfer_bytes == 2 * 2048 * 32 * 8 * 128 * 2
    assert one.transfer_s == two.transfer_s
    assert one.decode_requests_per_s == two.decode_requests_per_s
    told = served(pp=2, parts=2, **asked, prefill={**READING, "batch": 1})
    assert told.prefill.question.workload.microbatches == 1
    whole = served(pp=2, parts=1, **asked, prefill={**READING, "batch": 1})
    assert told.serve.servers.transfer_s == whole.serve.servers.transfer_s
    taken = [Both(plan, plan.prefill).taken_bytes(1) for plan in (told, whole)]
    assert taken == [2 * 2048 * 16 * 2 * 128 * 2] * 2  # of half the layers, two of eight heads


def test_a_search_tells_layouts_apart_by_their_parts():
    asked = {"model": "llama-3-8b", "hw": "dgx-h100", "chips": 4, "tp": 1, "pp": 4, "batch": 8, "seq": 2048}
    found = tpsim.search(**asked, top=3, overrides=["workload.kind=prefill"])
    assert [row.microbatches for row in found.rows] == [4, 2, 1]
    assert ", pp 4, 4 microbatches" in found.verdict
    titles = [column.key for column in page(found, verbose=False).tables[0].columns]
    assert "microbatches" in titles
    held = tpsim.search(**asked, top=3, overrides=["workload.kind=prefill"], microbatches=1)
    assert [row.microbatches for row in held.rows] == [1]
    assert "microbatches" not in [column.key for column in page(held, verbose=False).tables[0].columns]
