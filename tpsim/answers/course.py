"""A step over time, in seconds from its start: what every rank runs, what its chip holds, and both as a trace.

A trace is what chrome://tracing and Perfetto open: ranks are processes, their lanes threads. It is of Chrome's Trace
Event Format, its JSON object form: X is an event with a duration, M names a process or a thread, s and f are the ends
of a flow, C is a counter. Its times are microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.stages import work_of
from tpsim.program.schedules import Action, Pass, acts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.memory import ChipMemory
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.pipeline import Pipelined, Work
    from tpsim.cost.ran import Message
    from tpsim.cost.rank_work import Stage


class Lasting(NamedTuple):
    """Something that a rank runs, with its action and what that does; None and "" of what is once per step."""

    name: str
    start: Any
    end: Any
    action: Action | None = None
    acts: str = ""


class Holding(NamedTuple):
    """What a chip holds from a moment on, and the action that makes it so; None for the step's start."""

    at: Any
    size: Any
    action: Action | None = None


def work(plan: PlanResult) -> Work:
    """What the ranks of a plan have to do."""
    return work_of(plan.question, plan.lowered, plan.sizes, plan.every_row)


def step_of(plan: PlanResult) -> Pipelined:
    """The step of a plan; without stages it is a pipeline of one rank."""
    return plan.pipeline.step if plan.pipeline else work(plan).step()


def actions(step: Pipelined, rank: int) -> Iterator[Lasting]:
    """What a rank runs, each with its microbatch: ``F 3``, ``BW 3``."""
    ran, kinds = step.ran, step.ran.schedule.kinds
    does = [*map(acts_of, kinds.examples)]
    rows = zip(ran.schedule.orders[rank], kinds.of[rank], ran.starts[rank], ran.ends[rank], strict=True)
    for action, kind, start, end in rows:
        yield Lasting(f"{does[kind]} {action[0].microbatch}", start, end, action, does[kind])


def updates(step: Pipelined, stage: Stage) -> Iterator[Lasting]:
    """What a rank does once, behind its order: alone, together with others when the last of them has come, and then."""
    done, shared = step.ran.done(stage.rank), _together(stage)
    if stage.own_s > done:
        yield Lasting("gradients" if stage.behind_s else "update", done, stage.own_s)
    if shared:
        met = max(other.own_s + _together(other) for other in step.told.stages if _together(other))
        yield Lasting("update together", met - shared, met)
        if stage.behind_s:
            yield Lasting("update", met, met + stage.behind_s)


def _together(stage: Stage) -> Any:
    """Seconds of the calls of the step that several stages have together, and wait for."""
    return sum(row.exposed_s for row in stage.rows if row.call.shared)


def memory(step: Pipelined, rank: int, chip: ChipMemory) -> Iterator[Holding]:
    """The bytes of a chip: the most of an action from its start, what it leaves from its end."""
    ran, order = step.ran, step.ran.schedule.orders[rank]
    always = chip.static_bytes + chip.spare_bytes + chip.bucket_bytes
    yield Holding(0, always)
    for place, top, left in chip.peak.course:
        yield Holding(ran.starts[rank][place], always + top, order[place])
        yield Holding(ran.ends[rank][place], always + left, order[place])


# As a trace -----------------------------------------------------------------------------------------------------------

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
    every = range(step.ran.schedule.microbatches)
    told = {*every[:window], *every[-window:]}
    for stage, chip in zip(step.told.stages, plan.each_in_step, strict=True):
        yield from _names(stage.rank, several=bool(plan.pipeline))
        yield from _actions(step, stage.rank, told)
        for name, start, end, *_ in updates(step, stage):
            yield _lasting(name, stage.rank, COMPUTE, start, end)
        yield from _memory(step, stage.rank, chip, told)
    sent = [(of, message) for of, message in step.ran.sent if of.microbatch in told]
    takers = _takers(step)
    for number, (of, message) in enumerate(sent):
        yield from _message(of, message, number, *takers[of])


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


def _actions(step: Pipelined, rank: int, told: set[int]) -> Iterator[Event]:
    """What a rank runs, each with its chunk and microbatch: ``F 3``, ``BW 3``."""
    for name, start, end, action, _ in actions(step, rank):
        if action and action[0].microbatch in told:
            args = {"chunk": action[0].chunk, "microbatch": action[0].microbatch}
            yield _lasting(name, rank, COMPUTE, start, end, **args)


def _memory(step: Pipelined, rank: int, chip: ChipMemory, told: set[int]) -> Iterator[Event]:
    for at, size, action in memory(step, rank, chip):
        if action is None or action[0].microbatch in told:
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
    sender = message.way.channel.sender
    args = {"chunk": of.chunk, "microbatch": of.microbatch, "to": receiver}
    yield _lasting(f"send {of.act} {of.microbatch}", sender, SENDS[of.act], message.start, message.end, **args)
    flow = {"name": "message", "cat": "message", "id": number}
    yield {**flow, "ph": "s", "ts": float(message.start) * MICRO, "pid": sender, "tid": SENDS[of.act]}
    yield {**flow, "ph": "f", "bp": "e", "ts": float(start) * MICRO, "pid": receiver, "tid": COMPUTE}
