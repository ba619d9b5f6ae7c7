"""Time as max and plus: when every action of a pipeline begins and ends. Every order is run whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpsim.cost.turns import RanksInTurn
from tpsim.program.schedules import MOST_ACTIONS, Action, Blocking, Pass, PipelineSchedule, uncollected
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.cost.ran import Ran


def run(
    schedule: PipelineSchedule,
    seconds: Callable[[Action], Any],
    sends: Callable[[Pass], Any],
    *,
    blocking: Blocking | None = None,
    due: Mapping[int, Any] = {},
    begun: Sequence[Any] = (),
) -> Ran:
    """Every action of every rank.

    schedule  legal, see `checked`: what a channel brings is wanted in the order in which it leaves
    seconds   of an action; those of one kind take as long
    sends     seconds on the way of the message that a pass makes; those of one act and chunk take as long
    blocking  True: sends and receives are exchanges that hold their rank up; steady: but in steady state; None: as
              those do who run the schedule
    due       by kind of actions when these end at the earliest, whenever they begin
    begun     by rank when it begins; none: all at once

    Raises InputError where no rank can go on, naming what each would run next, and for more actions than 300,000.
    """
    count = sum(map(len, schedule.orders))
    if count > MOST_ACTIONS:
        message = f"{count:,} actions are more than the {MOST_ACTIONS:,} that are run one by one"
        raise InputError.one("too-many-actions", message, remedy="take fewer microbatches or stages")
    blocking = schedule.blocking if blocking is None else blocking
    with uncollected():
        lasts = [seconds(action) for action in schedule.kinds.examples]
        if blocking == "steady":
            from tpsim.cost.interleaved import Steady

            return Steady(schedule, blocking, lasts, sends, due, begun=begun).ran()
        if blocking and schedule.chunks > 1:
            from tpsim.cost.interleaved import Paired

            return Paired(schedule, blocking, lasts, sends, due, begun=begun).ran()
        return RanksInTurn(schedule, blocking, lasts, sends, due, begun=begun).ran()
