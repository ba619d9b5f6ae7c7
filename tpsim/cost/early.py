"""New weights that ranks begin to gather with the step, whenever their first message comes.

The gathers of a rank follow one another on their lane, those of its first chunk first. A chunk's first forward ends
when its layers have run behind its last message, or behind their weights, whatever is later. Megatron-LM asks for those
of a third chunk and of later ones with the chunk before.

Where all ranks wait for a norm, each begins the next step when it has updated. Else each begins it when it has ended
its own: gathers fill the time in which it waits for its first message. The rank whose step is longest does not wait for
one: its next step is later by what weights need before its first action, for none of its chunks to be held up.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.rank_work import Lead
from tpsim.cost.timed import Length, Timed, added
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.cost.actions import Actions
    from tpsim.cost.clock import Clock
    from tpsim.cost.ran import Ran
    from tpsim.program.schedules import PipelineSchedule
    from tpsim.program.stages import Chunk


class Gathered(NamedTuple):
    """A chunk's first forward as its weights alone let it run.

    due    when it ends at the earliest, from the start of the step
    calls  how often each call stands on the way there
    spent  seconds of its own gathers, by call: it waits for these, as those of chunks before it are done when it begins
    """

    due: Any
    calls: Mapping[int, int]
    spent: Mapping[int, Any]

    def held(self, plain: Timed, seconds: Any) -> Timed:
        """The forward that takes so long since it waits for its weights; plain: that waits for none."""
        waits, whole = seconds - plain.through.seconds, total(self.spent.values())
        exposed = {call: waits * s / whole for call, s in self.spent.items()}
        return plain._replace(through=Length(seconds, self.calls), exposed=added(plain.exposed, exposed))


def gathered(
    schedule: PipelineSchedule, chunks: Sequence[Chunk], actions: Actions, clock: Clock
) -> dict[int, Gathered]:
    """By the kind of their action the first forwards of all chunks; none where they wait for their message first."""
    first: dict[int, Gathered] = {}
    for kinds in schedule.kinds.of if gathers_early(schedule, actions) else ():
        begun: Counter[int] = Counter()
        before: Any = 0
        for kind in dict.fromkeys(kinds):
            (act, chunk, j), *others = schedule.kinds.examples[kind]
            if act == "F" and j == 0 and not others:
                tasks = actions.action(chunks[chunk], act, first=True, early=True)
                alone, spent = clock.timed(tasks), Counter[int]()
                due, calls = before + alone.through.seconds - alone.stragglers_s, added(begun, alone.through.calls)
                for call, times, s in clock.gathers(tasks):
                    begun[call] += times
                    spent[call] += s
                first[kind] = Gathered(due, calls, spent)
                before += total(spent.values())
    return first


def led(ran: Ran, rank: int, weights: Mapping[int, Gathered]) -> Lead:
    """What a rank that begins its step alone gathers before its first action."""
    most, schedule = Lead(), ran.schedule
    spent: Mapping[int, Any] = {}
    for kind, one in weights.items():
        if schedule.rank(schedule.kinds.examples[kind][0].chunk) == rank:
            place, spent = schedule.kinds.of[rank].index(kind), added(spent, one.spent)
            lead_s = one.due - (ran.ends[rank][place] - ran.starts[rank][0])
            most = Lead(lead_s, place, one.calls, spent) if lead_s > most.seconds else most
    return most


def gathers_early(schedule: PipelineSchedule, actions: Actions) -> bool:
    """True where ranks do not wait for a message before they gather new weights."""
    stages = schedule.ranks > 1 and not schedule.is_forward
    return stages and actions.practice.ahead.is_early(usual=schedule.early) and actions.gathers_once


def begin_together(actions: Actions) -> bool:
    """True where no rank begins a step before all have ended the one before."""
    return actions.practice.clip == "norm"
