"""Ranks that take turns through their orders of actions, message by message.

An action starts when the one before it has ended and its message has arrived. Blocking sends are exchanges: what a rank
sends and receives between two actions is one exchange; a message flies once both its ranks are in theirs, and an
exchange lasts until its last message has arrived. Sends that do not block leave when their action ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpsim.cost.ran import Channel, Message, Ran, channel_of
from tpsim.program.schedules import made
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpsim.program.schedules import Action, Blocking, Pass, PipelineSchedule


@dataclass(slots=True)
class ChannelState:
    """A channel in a pass over the orders.

    ahead   messages that its sender has come to give, less those that its receiver has come to take
    latest  the last that has set off; of them `coming` have not been taken

    Where messages hold ranks up but in steady state, in order:

    caught  whether each is taken where its rank is held up
    there   when ranks have come to take such ones, and which
    given   those that have not set off
    """

    channel: Channel
    ahead: int = 0
    latest: Message | None = None
    coming: deque[Message] = field(default_factory=deque)
    caught: deque[bool] = field(default_factory=deque)
    there: deque[tuple[Any, int]] = field(default_factory=deque)
    given: deque[Given] = field(default_factory=deque)


Given = tuple[Any, int, Any, bool]
"""A message that has not set off: from when on it could, and its rank; its seconds on the way, if its rank waits."""


Gap = list[tuple[ChannelState, Any, int, int]]
"""What a rank exchanges between two actions: channels, seconds on the way, 1 if it gives or -1, the other ranks."""


class RanksInTurn:
    """The ranks in turn: one whose messages have all set off ends its gap, runs its next action, and opens a gap again.

    gives    what actions of each kind give, and nothing for the one that is before the first and behind the last
    takes    likewise
    opened   when the gap began in which each rank is, and the number of the action that is behind it in `places`
    missing  messages that it waits for there and that have not set off
    holds    of each of its gaps, whether it is held up there by what it gives
    due      by kind when actions end at the earliest, whenever they begin
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
        self.schedule, self.blocking, self.seconds, self.sends = schedule, blocking, seconds, sends
        self.due = dict(due)
        self.ways = dict[Channel, ChannelState]()
        kinds: list[Action] = [*schedule.kinds.examples, ()]
        self.gives = [[pair for part in kind for pair in self._meant(part)] for kind in kinds]
        self.takes = [[pair for part in kind for pair in self._meant(schedule.wanted(part))] for kind in kinds]
        self.kinds = [[*kinds, len(seconds)] for kinds in schedule.kinds.of]
        self.holds = [[bool(blocking) for _ in kinds] for kinds in self.kinds]
        self.opened: list[Any] = [*begun] or [0 for _ in self.kinds]
        self.places, self.missing = ([0 for _ in self.kinds] for _ in range(2))
        self.ready: list[int] = []
        self.messages: list[Message] = []

    def _meant(self, part: Pass | None) -> list[tuple[ChannelState, Any]]:
        """The message that a pass makes, if it makes one: its channel, and the seconds on its way."""
        channel = channel_of(self.schedule, part)
        return [(self.ways.setdefault(channel, ChannelState(channel)), self.sends(part))] if part and channel else []

    def ran(self) -> Ran:
        """All of it. Raises InputError where no rank can go on."""
        open_, gives, takes = self.opener(), self.gives, self.takes
        opened, ranks, holds, places, seconds = self.opened, self.kinds, self.holds, self.places, self.seconds
        due = self.due
        starts, ends, lates = ([list[Any]() for _ in ranks] for _ in range(3))
        for rank in range(len(ranks)):
            open_(rank, 0)
        while self.ready:
            rank = self.ready.pop()
            kinds, place, start, late = ranks[rank], places[rank], opened[rank], None
            for way, _ in gives[kinds[place - 1]] if holds[rank][place] else ():
                if way.latest[2] > start:  # type: ignore[index]  # it has set off
                    late, start = way.latest, way.latest[2]  # type: ignore[index]
            for way, _ in takes[kinds[place]]:
                message = way.coming.popleft()
                if message[2] > start:
                    late, start = message, message[2]
            lates[rank].append(late)
            if place + 1 < len(kinds):
                starts[rank].append(start)
                end = start + seconds[kinds[place]]
                if kinds[place] in due:
                    end = max(end, due[kinds[place]])
                opened[rank] = end
                ends[rank].append(end)
                open_(rank, place + 1)
        if stuck := [rank for rank, missing in enumerate(self.missing) if missing]:
            raise self._deadlock(stuck)
        return Ran(self.schedule, starts, ends, lates, self.messages)

    def opener(self) -> Callable[[int, int], None]:
        """What opens a gap of a rank."""
        return self._meeting() if self.blocking else self._leave

    def _leave(self, rank: int, place: int) -> None:
        """A gap opens: what the last action made leaves, and what the next one wants is waited for."""
        kinds, missing = self.kinds[rank], 0
        self.places[rank] = place
        for way, _ in self.takes[kinds[place]]:
            way.ahead -= 1
            missing += way.ahead < 0
        self.missing[rank] = missing
        if not missing:
            self.ready.append(rank)
        for way, flight in self.gives[kinds[place - 1]]:
            way.ahead += 1
            self.set_off(way, flight, self.opened[rank], rank)
            if way.ahead <= 0:
                self.released(way.channel[2])

    def _meeting(self) -> Callable[[int, int], None]:
        """Opens an exchange: each message leaves as soon as both its ranks have come for it."""
        ranks, opened, places, missing, ready = self.kinds, self.opened, self.places, self.missing, self.ready
        gaps, set_off, released = dict[tuple[int, int], Gap](), self.set_off, self.released

        def meet(rank: int, place: int) -> None:
            kinds, here, lacks = ranks[rank], opened[rank], 0
            places[rank] = place
            pair = kinds[place - 1], kinds[place]
            if (gap := gaps.get(pair)) is None:
                gaps[pair] = gap = self._gap(*pair)
            for way, flight, sign, other in gap:
                ahead = way.ahead = way.ahead + sign
                if ahead * sign > 0:  # the other rank has not come
                    lacks += 1
                    continue
                late = other if opened[other] > here else rank
                set_off(way, flight, opened[late], late)
                released(other)
            missing[rank] = lacks
            if not lacks:
                ready.append(rank)

        return meet

    def _gap(self, before: int, after: int) -> Gap:
        """What a rank exchanges between two actions of these kinds."""
        gives = [(way, flight, 1, way.channel.receiver) for way, flight in self.gives[before]]
        return [*gives, *((way, flight, -1, way.channel.sender) for way, flight in self.takes[after])]

    def set_off(self, way: ChannelState, flight: Any, start: Any, rank: int) -> None:
        """A message flies, behind others of its channel, when the later of its ranks is there."""
        latest = way.latest
        cause: int | Message = rank
        if latest is not None and latest[2] > start:
            start, cause = latest[2], latest
        way.latest = message = made(Message, (way.channel, start, start + flight, cause))
        way.coming.append(message)
        self.messages.append(message)

    def released(self, rank: int) -> None:
        """A rank waits for one message less."""
        self.missing[rank] -= 1
        if not self.missing[rank]:
            self.ready.append(rank)

    def _deadlock(self, stuck: list[int]) -> InputError:
        """What every rank that is left would run next, in vain."""
        waits = [f"rank {rank} waits for {self._first(rank)}" for rank in stuck[:SHOWN]]
        message = f"schedule {self.schedule.name} deadlocks: {'; '.join(waits)}"
        remedy = "let messages fly beside compute, practice.overlap.stages: beside, or take another schedule"
        return InputError.one("deadlock", message, remedy=remedy)

    def _first(self, rank: int) -> str:
        """The first message that a rank lacks, and what it would run then."""
        schedule, order, place = self.schedule, self.schedule.orders[rank], self.places[rank]
        wanted = order[place] if place < len(order) else ()
        actions = order[max(0, place - 2) : place][::-1] if self.blocking else ()  # two where they are given together
        meant: list[tuple[Pass | None, int]] = [(part, 1) for action in actions for part in action]
        meant += [(schedule.wanted(part), -1) for action in order[place : place + 2] for part in action]
        lacking = next(part for part, sign in meant for way, _ in self._meant(part) if self.lacks(way, sign))
        return f"the message of {lacking} before {wanted[0] if wanted else 'its end'}"

    def lacks(self, way: ChannelState, sign: int) -> bool:
        """True if a rank in a gap waits for a message that it gives (1) or takes (-1)."""
        return way.ahead * sign > 0


SHOWN = 4
