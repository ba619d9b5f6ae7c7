"""Pictures show what the answers say: their seconds, bytes and points are those of the plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tpsim.answers import course
from tpsim.answers.collective import collective
from tpsim.answers.pictures import LATER, MOST_CURVES, MOST_LANES
from tpsim.answers.plan import plan
from tpsim.answers.search import search
from tpsim.guard.diff import diff

CURVES = Path(__file__).parents[1] / "data" / "with_curves.yaml"


@cache
def planned(name, **flags):
    return plan(name, **flags)


WHOLE = ["llama3-70b-h100", "megatron-22b-a100", "gpt2-xl-a100-dp"]


@pytest.mark.parametrize("name", WHOLE)
def test_a_layer_is_what_one_more_layer_takes(name):
    asked = planned(name)
    layer, work = asked.pictures[0], course.work(asked)
    ends = [at for name, at in layer.marks if not name.endswith(LATER)]
    ends.append(max(span.end for lane in layer.lanes.values() for span in lane))
    (chunk,) = work.stages.chunks
    (kind, count), *_ = chunk.stack
    for acts, (start, end) in zip(("F", "BW"), pairwise(ends), strict=True):
        few, more = (
            work.clock.timed(work.actions.action(replace(chunk, stack=((kind, n),)), acts)) for n in (count, count + 1)
        )
        assert end - start == pytest.approx(more.through.seconds - few.through.seconds, rel=1e-9)


def test_no_two_things_of_a_lane_run_at_once():
    for name in (*WHOLE, "llama3-8b-v5e", "llama3-70b-h100-zb-h1", "mixtral-8x7b-h100"):
        for picture in planned(name).pictures[:2]:
            for lane in picture.lanes.values():
                ordered = sorted(lane)
                assert all(one.end <= other.start + 1e-9 for one, other in pairwise(ordered))


def test_collectives_that_nothing_hides_stand_where_compute_has_gaps():
    layer = planned("llama3-70b-h100").pictures[0]
    exposed = sum(
        call.end - call.start
        for call in layer.lanes["activations"]
        if not any(call.start < one.end - 1e-9 and one.start < call.end - 1e-9 for one in layer.lanes["compute"])
    )
    assert exposed == pytest.approx(planned("llama3-70b-h100").per_layer["total"].exposed_s, rel=0.2)


def test_the_pipeline_is_that_of_the_trace():
    asked = planned("llama3-70b-h100-zb-h1")
    traced = [one for one in asked.to_trace()["traceEvents"] if one["ph"] == "X" and one["tid"] == 0]
    drawn = [
        (name, span.name, pytest.approx(1e6 * span.start), pytest.approx(1e6 * (span.end - span.start)))
        for name, lane in asked.pictures[1].lanes.items()
        for span in lane
    ]
    assert [(f"stage {one['pid']}", one["name"], one["ts"], one["dur"]) for one in traced] == drawn


def test_memory_rises_to_each_ranks_peak():
    asked = planned("llama3-70b-h100-zb-h1")
    tops = [max(size for _, size in curve.points) for curve in asked.pictures[2].curves]
    assert tops == [held.peak_bytes for held in asked.each]
    assert asked.pictures[2].limits == [("capacity", 80e9)]


def test_what_a_stack_holds_all_the_time_is_part_of_memory_over_time():
    asked = planned("llama3-70b-h100")
    held = replace(asked.memory, spare_bytes=5)
    assert max(one.size for one in course.memory(course.step_of(asked), 0, held)) == held.peak_bytes


def test_of_many_ranks_the_fullest_is_drawn_among_some():
    asked = planned("gpt3-175b-a100-tp8", pp=48, chips=768, microbatches=8, batch=16)
    _, pipeline, memory = asked.pictures
    curves = {curve.name: curve for curve in memory.curves}
    for drawn, most in ((pipeline.lanes, MOST_LANES), (curves, MOST_CURVES)):
        assert most - 1 <= len(drawn) <= most
        assert {"stage 0", "stage 47", f"stage {asked.memory.peak_rank}"} <= drawn.keys()
    assert f"{len(curves)} of 48 stages are drawn, the fullest among them" in memory.about
    assert f"{len(pipeline.lanes)} of 48 stages are drawn" in pipeline.about


def test_a_collective_is_drawn_by_its_rows():
    found = collective("all-reduce", hw="dgx-h100", ranks=8, sizes="1MB,64MB")
    bandwidth, time = found.pictures
    assert [curve.name for curve in bandwidth.curves] == ["predicted"]
    assert bandwidth.curves[0].points == [
        (row.logical_bytes, pytest.approx(row.busbw_bytes_per_s)) for row in found.rows
    ]
    assert time.curves[0].points == [(row.logical_bytes, row.time_s) for row in found.rows]
    assert collective("all-reduce", hw="dgx-h100", ranks=1, sizes="1MB").pictures == ()


def test_what_a_profile_measured_stands_beside_what_its_constants_say():
    found = collective("all-gather", hw=str(CURVES), ranks=8, sizes="4KiB,1MiB,256MiB", launch="threads")
    drawn = {curve.name: curve for curve in found.pictures[1].curves}
    assert list(drawn) == ["predicted", "by the constants alone", "measured, in the profile"]
    assert [V for V, _ in drawn["measured, in the profile"].points] == [2**12, 2**20, 2**28]
    for (_, measured), (_, predicted) in zip(
        drawn["measured, in the profile"].points, drawn["predicted"].points, strict=True
    ):
        assert predicted == pytest.approx(measured)
    assert drawn["by the constants alone"].points[-1][1] > drawn["predicted"].points[-1][1]


def test_a_search_is_drawn_with_its_best_its_front_and_what_fits():
    asked = {"model": "gpt-tiny", "hw": "dgx-h100", "chips": 4, "batch": 8, "seq": 16, "recompute": "none"}
    found = search(**asked, vary=["pp=1", "zero=0,1"], top=3, pareto="step,memory")
    (picture,) = found.pictures
    cloud, best, front = (curve.points for curve in picture.curves)
    assert best == [(row["step_s"], row["peak_bytes"]) for row in found.rows]
    assert front == [(row["step_s"], row["peak_bytes"]) for row in found.pareto]
    assert {*cloud} <= {(one.step_s, one.peak_bytes) for one in found.evaluation.candidates if one.room_bytes >= 0}
    assert "--pareto" not in picture.about


def test_a_search_of_unlike_work_is_drawn_by_the_seconds_of_a_token_and_every_machine_has_its_capacity():
    asked = {"model": "gpt-tiny", "chips": 4, "seq": 16, "recompute": "none"}
    vary = ["hw=dgx-h100,dgx-h200", "batch=8,16", "pp=1", "zero=1"]
    found = search(**asked, vary=vary, top=20, by="tokens_per_s")
    (picture,) = found.pictures
    cloud, best = (curve.points for curve in picture.curves)
    assert best == [(pytest.approx(1 / row["tokens_per_s"]), row["peak_bytes"]) for row in found.rows]
    assert [s for s, _ in best] == sorted(s for s, _ in best), "to the left it is faster"
    assert max(s for s, _ in cloud) < 1e-4
    assert picture.x.name == "step, per token"
    assert picture.limits == [("capacity of dgx-h100", 80e9), ("capacity of dgx-h200", 141e9)]
    assert "with --pareto tokens_per_s,memory." in picture.about


def test_a_difference_is_drawn_side_by_side_with_its_sums():
    found = diff("llama3-70b-h100", zero=3)
    step, memory = found.pictures
    old, new = (lock.scenarios["llama3-70b-h100"] for lock in (found.drift.old, found.drift.new))
    for picture, key in ((step, "step_s"), (memory, "peak_bytes")):
        ends = [lane[-1].end for lane in picture.lanes.values()]
        assert ends == [pytest.approx(fact.result(key)) for fact in (old, new)]
    assert [span.name for span in step.lanes["new"]] == ["7.608 s", "4.518 s", "1.548 s"]
    assert diff("llama3-70b-h100", "llama3-70b-h100").pictures == ()
