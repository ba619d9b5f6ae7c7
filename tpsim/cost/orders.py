"""Time as max and plus: when every action of a pipeline begins and ends. Every order is run whole.

Ranks take turns through their orders of actions, message by message. An action starts when the one before it has ended
and its message has arrived. Between two actions is a gap. Messages that block hold a rank up in it: those that it gives
there set off once their receivers have come to take them, too, and the gap lasts until the last of what is given and
taken there has arrived. Sends that do not block leave when their action ends.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any

from tpsim.cost.ran import Channel, Ran, Way, channel_of
from tpsim.program.schedules import MOST_ACTIONS, acts_of, uncollected
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpsim.program.schedules import Action, Blocking, Pass, PipelineSchedule


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
        paired = blocking and schedule.chunks > 1
        ranks = Steady if blocking == "steady" else Paired if paired else RanksInTurn
        return ranks(schedule, blocking, lasts, sends, due, begun=begun).ran()


Exchanged = tuple[Way, list[Any], Any]
"""What a rank gives or takes: the way, the list of it where the rank is noted when it comes; of a gift its seconds."""

Doing = tuple[list[Exchanged], list[Exchanged], Any, Any]
"""What an action takes and what it gives, its seconds, and when it has ended at the earliest, whenever it begins."""

SHOWN = 4
"""Ranks of a deadlock that its message names."""


class RanksInTurn:
    """The ranks in turn: each goes on until it must wait for a message.

    does    what actions of each kind do; behind the last one a rank does nothing, which takes no time
    kinds   per rank the kinds of what it does, that one, too
    free    per rank the gaps in which messages do not hold it up, and those that it takes do not wait for it
    starts, ends, late  as `Ran` has them, of what has been run
    """

    def __init__(
        self,
        schedule: PipelineSchedule,
        blocking: Blocking,
        seconds: list[Any],
        sends: Callable[[Pass], Any],
        due: Mapping[int, Any],
        *,
        begun: Sequence[Any] = (),
    ) -> None:
        self.schedule, self.blocking = schedule, blocking
        self.begun: Sequence[Any] = begun or [0] * len(schedule.kinds.of)
        self.ways = dict[Channel, Way]()
        kinds: list[Action] = [*schedule.kinds.examples, ()]
        takes = [[(way, way.takes, 0) for _, way in self._sent(map(schedule.wanted, kind))] for kind in kinds]
        gives = [[(way, way.gives, sends(part)) for part, way in self._sent(kind)] for kind in kinds]
        dues = [due.get(kind, 0) for kind in range(len(kinds))]
        self.does: list[Doing] = [*zip(takes, gives, [*seconds, 0], dues, strict=True)]
        self.kinds = [[*kinds, len(seconds)] for kinds in schedule.kinds.of]
        self.free = [self.freely(rank) for rank in range(len(self.kinds))]
        for kinds_of, free in zip(self.kinds, self.free, strict=True):
            before = self._taken(kinds_of[: free.start])
            for way, count in self._taken(kinds_of[free.start : free.stop]).items():
                way.free = before[way], before[way] + count
        self.starts, self.ends, self.late = ([list[Any]() for _ in self.kinds] for _ in range(3))

    def _sent(self, parts: Iterable[Pass | None]) -> Iterator[tuple[Pass, Way]]:
        """Those passes that make a message, and its way."""
        for part in parts:
            if part and (channel := channel_of(self.schedule, part)):
                yield part, self.ways.setdefault(channel, Way(channel))

    def freely(self, rank: int) -> range:
        """The gaps in which a rank is free: all, or none."""
        return range(0 if self.blocking else len(self.kinds[rank]))

    def _taken(self, kinds: list[int]) -> Counter[Way]:
        """How many messages actions of these kinds take from each way."""
        taken: Counter[Way] = Counter()
        for kind, count in Counter(kinds).items():
            for way, *_ in self.does[kind][0]:
                taken[way] += count
        return taken

    def ran(self) -> Ran:
        """All of it. Raises InputError where no rank can go on."""
        waiting, before = {rank: self._turns(rank) for rank in range(len(self.kinds))}, -1
        while waiting and before < (now := sum(map(len, self.starts))):
            waiting, before = {rank: turns for rank, turns in waiting.items() if not next(turns, True)}, now
        if waiting:
            raise self._deadlock([*waiting])
        return Ran(self.schedule, self.starts, self.ends, self.late, self.ways)

    def _turns(self, rank: int) -> Iterator[None]:
        """A rank gap by gap, action by action; when it must wait for a message others have their turn."""
        starts, ends, lates, free = self.starts[rank], self.ends[rank], self.late[rank], self.free[rank]
        held = chain(repeat(True, free.start), repeat(False, len(free)), repeat(True))
        gives: list[Exchanged] = []
        opened = self.begun[rank]
        does = map(self.does.__getitem__, self.kinds[rank])
        for holds, (takes, makes, seconds, due) in zip(held, does, strict=False):
            for way, mine, flight in gives:
                mine.append(opened)
                way.seconds.append(flight)
            for _, mine, _ in takes:
                mine.append(opened)
            start, late = opened, None
            for way, mine, _ in gives + takes if holds else takes:
                number = len(mine) - 1
                while (arrives := way.arrival(number)) is None:
                    yield
                if arrives > start:
                    start, late = arrives, (way, number)
            lates.append(late)
            starts.append(start)
            opened = max(start + seconds, due) if due else start + seconds
            ends.append(opened)
            gives = makes
        del starts[-1], ends[-1]  # of nothing

    def _deadlock(self, stuck: list[int]) -> InputError:
        """What every rank that is left would run next, in vain."""
        waits = [f"rank {rank} waits for {self._first(rank)}" for rank in stuck[:SHOWN]]
        message = f"schedule {self.schedule.name} deadlocks: {'; '.join(waits)}"
        remedy = "let messages fly beside compute, practice.overlap.stages: beside, or take another schedule"
        return InputError.one("deadlock", message, remedy=remedy)

    def _first(self, rank: int) -> str:
        """The first message that a rank lacks, and what it would run then."""
        schedule, order, place = self.schedule, self.schedule.orders[rank], len(self.starts[rank])
        wanted = order[place] if place < len(order) else ()
        actions = order[max(0, place - 2) : place][::-1] if self.blocking else ()  # two where they are given together
        given = [(part, way, way.gives) for part, way in self._sent(chain.from_iterable(actions))]
        wants = map(schedule.wanted, chain.from_iterable(order[place : place + 2]))
        exchanged = [*given, *((part, way, way.takes) for part, way in self._sent(wants))]
        lacking = next(part for part, way, mine in exchanged if mine and way.arrival(len(mine) - 1) is None)
        return f"the message of {lacking} before {wanted[0] if wanted else 'its end'}"


class Steady(RanksInTurn):
    """The ranks in turn, held up in warm-up and flush alone: chunks that interleave, with messages beside compute.

    Each end of a message does as it would alone: a rank in warm-up or flush is held up by what it gives and takes, and
    what it takes there flies once it has come; in steady state it only waits for what it reads. A channel keeps its
    order.

    Source: Megatron-LM, schedules.py, forward_backward_pipelining_with_interleaving with overlap_p2p_comm.
    """

    def freely(self, rank: int) -> range:
        """The gaps of a rank in steady state.

        Warm-up is what comes before the last of the forwards that an order begins with, flush what comes behind the
        first of the backwards that it ends with.
        """
        of, examples = self.schedule.kinds.of[rank], self.schedule.kinds.examples
        until = next((at for at, kind in enumerate(of) if acts_of(examples[kind]).strip("F")), len(of))
        behind = next((at for at, kind in enumerate(reversed(of)) if "F" in acts_of(examples[kind])), len(of))
        return range(until, len(of) - behind + 2)


class Paired(RanksInTurn):
    """The ranks in turn, held up in pairs; those that warm up with all of their forwards have none.

    In steady state a rank runs a forward and a backward and then exchanges what both have made, and what the next two
    read: nothing is sent or received between the two. Elsewhere there is an exchange behind every action.

    Source: the same schedule without overlap_p2p_comm, which came in May 2023.
    """

    def __init__(self, *args: Any, **begun: Any) -> None:
        super().__init__(*args, **begun)
        known: dict[tuple[int, int], tuple[int, int]] = {}
        sends_on = [{part.act for part in example} == {"F"} for example in self.schedule.kinds.examples]
        for of, kinds in zip(self.schedule.kinds.of, self.kinds, strict=True):
            forward = [sends_on[kind] for kind in of]
            if forward.index(False) == sum(forward):
                continue
            for at, (first, second) in enumerate(pairwise(forward)):
                if first and not second:
                    pair = of[at], of[at + 1]
                    if pair not in known:
                        known[pair] = self._pair(*pair)
                    kinds[at], kinds[at + 1] = known[pair]

    def _pair(self, first: int, second: int) -> tuple[int, int]:
        """Two kinds of actions as they follow each other in a pair: what both take before it, what both give behind."""
        new = len(self.does)
        (takes, gives, s, due), (more_takes, more_gives, more_s, more_due) = self.does[first], self.does[second]
        self.does += [([*takes, *more_takes], [], s, due), ([], [*gives, *more_gives], more_s, more_due)]
        return new, new + 1
