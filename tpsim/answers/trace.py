"""A plan as a trace that chrome://tracing and Perfetto open: ranks are processes, their lanes threads.

The format is Chrome's Trace Event Format, its JSON object form: X is an event with a duration, M names a process or a
thread, s and f are the ends of a flow, C is a counter. Times are microseconds from the step's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.answers import course
from tpsim.answers.course import step_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.memory import ChipMemory
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.pipeline import Pipelined
    from tpsim.cost.ran import Message
    from tpsim.program.schedules import Pass

MOST_EVENTS = 20_000
"""Events beyond which only the first and the last microbatches are written: viewers become slow."""

COMPUTE, SENDS = 0, {"F": 1, "B": 2}
"""The threads of a rank: what it runs, and what it sends forward and backward, which may be on its way at once."""

LANES = {COMPUTE: "compute", 1: "messages forward", 2: "messages backward"}

Event = dict[str, Any]


def trace(plan: PlanResult) -> dict[str, Any]:
    """The whole document; of a step with too many events the first and the last microbatches, which it says."""
    step = step_of(plan)
    microbatches, window = step.ran.schedule.microbatches, 2 * step.ran.schedule.ranks
    events, shown = list(_events(step, plan, microbatches)), f"all {microbatches} microbatches"
    while len(events) > MOST_EVENTS and window:
        events = list(_events(step, plan, window))
        shown = f"the first and the last {window} of {microbatches} microbatches: at most {MOST_EVENTS:,} events"
        window //= 2
    about = {"tpsim": plan.tpsim, "scenario": plan.question.name, "step_s": float(step.time_s), "shown": shown}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _events(step: Pipelined, plan: PlanResult, window: int) -> Iterator[Event]:
    """Those of microbatches that are among the first `window` or the last."""
    last = step.ran.schedule.microbatches - window
    for stage, chip in zip(step.told.stages, plan.each, strict=True):
        yield from _names(stage.rank, several=bool(plan.pipeline))
        yield from _actions(step, stage.rank, window, last)
        for name, start, end, *_ in course.updates(step, stage):
            yield _lasting(name, stage.rank, COMPUTE, start, end)
        yield from _memory(step, stage.rank, chip, window, last)
    messages = zip(step.ran.passes, step.ran.messages, strict=True)
    sent = [(of, message) for of, message in messages if _is_shown(of.microbatch, window, last)]
    takers = _takers(step)
    for number, (of, message) in enumerate(sent):
        yield from _message(of, message, number, *takers[of])


def _is_shown(microbatch: int, window: int, last: int) -> bool:
    return microbatch < window or microbatch >= last


def _names(rank: int, *, several: bool) -> Iterator[Event]:
    yield _named("process_name", rank, COMPUTE, name=f"stage {rank}" if several else "chip")
    yield _named("process_sort_index", rank, COMPUTE, sort_index=rank)
    for lane, name in LANES.items() if several else ((COMPUTE, LANES[COMPUTE]),):
        yield _named("thread_name", rank, lane, name=name)


def _named(event: str, rank: int, lane: int, **args: Any) -> Event:
    return {"name": event, "ph": "M", "ts": 0, "pid": rank, "tid": lane, "args": args}


def _lasting(name: str, rank: int, lane: int, start: Any, end: Any, **args: Any) -> Event:
    """An event from `start` to `end`, in seconds."""
    ts, seconds = float(start) * MICRO, float(end - start)
    whole = {**args, "seconds": seconds}
    return {"name": name, "ph": "X", "ts": ts, "dur": seconds * MICRO, "pid": rank, "tid": lane, "args": whole}


MICRO = 1_000_000
"""Microseconds, in which a trace counts, of a second."""


def _actions(step: Pipelined, rank: int, window: int, last: int) -> Iterator[Event]:
    """What a rank runs, each with its chunk and microbatch: ``F 3``, ``BW 3``."""
    for name, start, end, action, _ in course.actions(step, rank):
        if action and _is_shown(action[0].microbatch, window, last):
            args = {"chunk": action[0].chunk, "microbatch": action[0].microbatch}
            yield _lasting(name, rank, COMPUTE, start, end, **args)


def _memory(step: Pipelined, rank: int, chip: ChipMemory, window: int, last: int) -> Iterator[Event]:
    for at, size, action in course.memory(step, rank, chip):
        if action is None or _is_shown(action[0].microbatch, window, last):
            args = {"bytes": int(size)}
            yield {"name": "memory", "ph": "C", "ts": float(at) * MICRO, "pid": rank, "tid": COMPUTE, "args": args}


def _takers(step: Pipelined) -> dict[Any, tuple[int, Any]]:
    """The rank that waits for the message of each pass, and when the action that reads it starts."""
    schedule = step.ran.schedule
    return {
        schedule.wanted(part): (rank, start)
        for rank, order in enumerate(schedule.orders)
        for action, start in zip(order, step.ran.starts[rank], strict=True)
        for part in action
    }


def _message(of: Pass, message: Message, number: int, receiver: int, start: Any) -> Iterator[Event]:
    """A message of a pass on its sender's lane, and the flow from there to the action that reads it when it starts."""
    sender = message.channel.sender
    args = {"chunk": of.chunk, "microbatch": of.microbatch, "to": receiver}
    yield _lasting(f"send {of.act} {of.microbatch}", sender, SENDS[of.act], message.start, message.end, **args)
    flow = {"name": "message", "cat": "message", "id": number}
    yield {**flow, "ph": "s", "ts": float(message.start) * MICRO, "pid": sender, "tid": SENDS[of.act]}
    yield {**flow, "ph": "f", "bp": "e", "ts": float(start) * MICRO, "pid": receiver, "tid": COMPUTE}
