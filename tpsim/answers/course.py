"""A step over time, in seconds from its start: what every rank runs, and what its chip holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.answers.stages import work_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.answers.memory import ChipMemory
    from tpsim.answers.plan import PlanResult
    from tpsim.cost.pipeline import Pipelined, Stage, Work
    from tpsim.program.schedules import Action


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


def acts(action: Action) -> str:
    """What an action does: F, B, W, BW, or several microbatches' together."""
    return "".join(part.act for part in action)


def actions(step: Pipelined, rank: int) -> Iterator[Lasting]:
    """What a rank runs, each with its microbatch: ``F 3``, ``BW 3``."""
    ran, kinds = step.ran, step.ran.schedule.kinds
    does = [acts(action) for action in kinds.examples]
    rows = zip(ran.schedule.orders[rank], kinds.of[rank], ran.starts[rank], ran.ends[rank], strict=True)
    for action, kind, start, end in rows:
        yield Lasting(f"{does[kind]} {action[0].microbatch}", start, end, action, does[kind])


def updates(step: Pipelined, stage: Stage) -> Iterator[Lasting]:
    """What a rank does once, behind its order: alone, then together with other ranks when the last of them has come."""
    done, shared = step.ran.done(stage.rank), _together(stage)
    if stage.own_s > done:
        yield Lasting("update", done, stage.own_s)
    if shared:
        met = max(rank_stage.own_s for rank_stage in step.told.stages if _together(rank_stage))
        yield Lasting("update together", met, met + shared)


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
