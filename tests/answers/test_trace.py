"""Traces of plans: what the format requires, and that their seconds, messages and bytes are the plan's."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest

from tpsim.answers.course import MOST_EVENTS
from tpsim.answers.plan import plan
from tpsim.program.schedules import SCHEDULES
from tpsim.report.formats import json_text

GPT3 = "gpt3-175b-a100-tp8"
STAGES = {"pp": 4, "chips": 256, "microbatches": 8, "batch": 64}
PIPELINES = [
    pytest.param({**STAGES, "schedule": name, **({"chunks": 2} if maker.several else {})}, id=name)
    for name, maker in SCHEDULES.items()
]
WAYS = [pytest.param({}, id="one rank"), *PIPELINES]

REQUIRED = {
    "X": {"name", "ph", "ts", "dur", "pid", "tid"},
    "M": {"name", "ph", "pid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "s": {"name", "cat", "ph", "ts", "pid", "tid", "id"},
    "f": {"name", "cat", "ph", "ts", "pid", "tid", "id", "bp"},
}
"""What an event of each phase must say. Source: Google, Trace Event Format: complete, metadata, counter, flow."""


@cache
def traced(**flags):
    result = plan(GPT3, **flags)
    return result, json.loads(json_text(result.to_trace()))


ONE_KERNEL = 3e-6
"""Seconds of the kernel that adds up the loss once per step: it is in a rank's compute, and no action runs it."""


def of(document, phase, **where):
    return [
        one
        for one in document["traceEvents"]
        if one["ph"] == phase and all(one[key] == is_ for key, is_ in where.items())
    ]


@pytest.mark.parametrize("way", WAYS)
def test_every_event_says_what_the_format_requires_of_it(way):
    _, document = traced(**way)
    assert list(document) == ["traceEvents", "displayTimeUnit", "otherData"]
    for one in document["traceEvents"]:
        assert one.keys() >= REQUIRED[one["ph"]]
        assert isinstance(one["pid"], int)
        assert all(isinstance(one[key], int | float) and one[key] >= 0 for key in ("ts", "dur") if key in one)
        assert all(isinstance(value, int) for value in one.get("args", {}).values()) or one["ph"] != "C"
    assert {one["bp"] for one in of(document, "f")} <= {"e"}


@pytest.mark.parametrize("way", WAYS)
def test_durations_are_compute_and_exposed_calls_and_gaps_are_what_a_rank_waits(way):
    result, document = traced(**way)
    stages = result.pipeline.step.told.stages if result.pipeline else [None]
    for rank, stage in enumerate(stages):
        lasting = sorted((one["ts"], one["ts"] + one["dur"]) for one in of(document, "X", pid=rank, tid=0))
        gaps = [start - end for (_, end), (start, _) in pairwise([(0, 0), *lasting, (result.step.time_s * 1e6,) * 2])]
        assert (
            min(gaps[0] + gaps[-1], *gaps[1:-1]) > -1e-3
        )  # who updates longer ends its step later, and begins it later
        busy, idle = (sum(end - start for start, end in lasting) / 1e6, sum(gaps) / 1e6)
        assert busy + idle == pytest.approx(result.step.time_s)
        rows = stage.rows if stage else result.rows
        sent = sum(row.exposed_s for row in rows if row.call.where.place == "cut" and row.collective == "send")
        compute, exposed, bubble = (
            (stage.compute.time_s, stage.exposed_s, stage.bubble_s)
            if stage
            else (result.step.compute_s, result.step.exposed_s, 0)
        )
        assert busy == pytest.approx(compute + exposed - sent, abs=ONE_KERNEL)
        assert idle == pytest.approx(bubble + sent, abs=ONE_KERNEL)


@pytest.mark.parametrize("way", PIPELINES)
def test_a_flow_leads_from_every_message_to_the_action_that_reads_it(way):
    result, document = traced(**way)
    messages = [one for one in of(document, "X") if one["tid"]]
    starts, ends = ({one["id"]: one for one in of(document, phase)} for phase in "sf")
    calls = [stage.rows for stage in result.pipeline.step.told.stages]
    sends = sum(row.count for rows in calls for row in rows if row.collective == "send")
    assert len(messages) == len(starts) == sends
    assert starts.keys() == ends.keys()
    for number, (message, start) in enumerate(zip(messages, starts.values(), strict=True)):
        end = ends[number]
        assert (start["ts"], start["pid"], start["tid"]) == (message["ts"], message["pid"], message["tid"])
        assert end["pid"] == message["args"]["to"] != message["pid"]
        assert end["ts"] >= message["ts"] + message["dur"] - 1e-3
        (reader,) = [one for one in of(document, "X", pid=end["pid"], tid=0) if one["ts"] == end["ts"]]
        assert reader["args"]["microbatch"] == message["args"]["microbatch"]
    for pid, tid in {(one["pid"], one["tid"]) for one in messages}:  # what overlaps on a thread is drawn wrongly
        lane = sorted((one["ts"], one["dur"]) for one in of(document, "X", pid=pid, tid=tid))
        assert all(start + dur <= later + 1e-3 for (start, dur), (later, _) in pairwise(lane))


@pytest.mark.parametrize("way", WAYS)
def test_memory_rises_to_the_peak_of_its_rank_and_falls_to_its_states(way):
    result, document = traced(**way)
    for rank, held in enumerate(result.each):
        course = [one["args"]["bytes"] for one in of(document, "C", pid=rank)]
        assert max(course) == held.peak_bytes
        assert course[0] == course[-1] == held.static_bytes + held.spare_bytes


def test_an_action_is_named_with_its_chunk_microbatch_and_seconds():
    result, document = traced(**STAGES)
    names = Counter(one["name"] for one in of(document, "X", pid=0, tid=0))
    once = {"gradients": 1, "update together": 1, "update": 1}
    assert names == {**{f"{act} {j}": 1 for act in ("F", "BW") for j in range(8)}, **once}
    (first,) = (one for one in of(document, "X", pid=1, tid=0) if one["name"] == "F 3")
    seconds = first["dur"] / 1e6
    assert first["args"] == {"chunk": 1, "microbatch": 3, "seconds": pytest.approx(seconds)}
    assert seconds == pytest.approx(result.pipeline.parts_s["F"])
    assert [one["args"]["name"] for one in of(document, "M", name="process_name")] == [f"stage {r}" for r in range(4)]


def test_one_rank_is_one_process_with_its_actions():
    _, document = traced()
    assert {one["pid"] for one in document["traceEvents"]} == {0}
    assert of(document, "s") == of(document, "f") == []
    assert {"F 0", "BW 0"} < {one["name"] for one in of(document, "X")}


def test_of_too_many_events_the_first_and_last_microbatches_are_written_and_that_is_said():
    document = plan("gpt3-175b-a100-interleaved").to_trace()
    assert 1000 < len(document["traceEvents"]) <= MOST_EVENTS
    assert document["otherData"]["shown"] == "the first and the last 16 of 192 microbatches: at most 20,000 events"
    seen = {one["args"]["microbatch"] for one in document["traceEvents"] if "microbatch" in one.get("args", {})}
    assert seen == {*range(16), *range(176, 192)}


def test_a_trace_of_many_ranks_has_no_more_events_either():
    document = plan("gpt3-175b-a100-interleaved", overrides=["pipeline.chunks=6"]).to_trace()
    assert len(document["traceEvents"]) <= MOST_EVENTS
    assert document["otherData"]["shown"].startswith("the first and the last 8 of 192 ")


def test_a_step_of_a_reply_holds_no_more_than_decoding_does():
    """The prompt's activations, 1.6 GB, were drawn in the step of decoding that the trace shows."""
    reply = plan("llama3-70b-h100-decode")
    decode = plan("llama3-70b-h100-decode", overrides=["workload={kind: decode, batch: 32, context: 1280}"])
    held = [event["args"]["bytes"] for event in reply.to_trace()["traceEvents"] if event["name"] == "memory"]
    assert max(held) == decode.memory.peak_bytes < reply.memory.peak_bytes
    (drawn,) = [picture for picture in reply.pictures if picture.title == "Memory over time"]
    assert max(size for curve in drawn.curves for _, size in curve.points) == decode.memory.peak_bytes
