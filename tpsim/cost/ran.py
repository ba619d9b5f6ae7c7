"""A pass over orders of actions as it ran: starts, ends, messages, and what each rank waited for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.program.schedules import Act, Pass
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.program.schedules import PipelineSchedule

Place = tuple[int, int]
"""A rank, and the number of an action in its order."""


class Channel(NamedTuple):
    """The messages of one act from one rank to another: they leave, arrive and are wanted one after the other."""

    act: Act
    sender: int
    receiver: int


class Message(NamedTuple):
    """What one pass sends to the chunk behind or before it: when it sets off and arrives.

    cause  what sets it off: the rank whose action ends then, or the message before it
    """

    channel: Channel
    start: Any
    end: Any
    cause: int | Message


class Waits(NamedTuple):
    """How long a rank waits for messages: those that it takes or, if sends block, gives.

    wait_s    seconds in which it waits for another rank, before a message sets off
    flight_s  by act, seconds in which it waits while a message is on its way
    """

    wait_s: Any
    flight_s: Mapping[Act, Any]


@dataclass(frozen=True, slots=True)
class Ran:
    """A schedule as it ran: per rank start and end of every action in seconds, and all messages as they set off.

    late  per rank the message that ends the gap before each action, and behind the last one
    """

    schedule: PipelineSchedule
    starts: Sequence[Sequence[Any]]
    ends: Sequence[Sequence[Any]]
    late: Sequence[Sequence[Message | None]]
    messages: Sequence[Message]

    def done(self, rank: int) -> Any:
        """When a rank has ended its last action and sent what it made there."""
        late = self.late[rank][-1]
        return self.ends[rank][-1] if late is None else late.end

    @property
    def end(self) -> Any:
        """When the last rank has ended."""
        return max(map(self.done, range(self.schedule.ranks)))

    @property
    def span(self) -> Any:
        """From the first start to the last end of the rank where that is longest."""
        return max(ends[-1] - starts[0] for starts, ends in zip(self.starts, self.ends, strict=True))

    def waits(self, rank: int, opened: Any = 0) -> Waits:
        """How long a rank waits before its actions, and behind its last one.

        opened  when the gap before its first action began
        """
        waits, flights = [], defaultdict[Act, list[Any]](list)
        for late, before in zip(self.late[rank], [opened, *self.ends[rank]], strict=True):
            if late is not None:
                channel, away, end, _ = late
                if away > before:
                    waits.append(away - before)
                else:
                    away = before
                flights[channel[0]].append(end - away)
        return Waits(total(waits), {act: total(seconds) for act, seconds in flights.items()})

    def critical(self, rank: int, place: int | None = None) -> Iterator[Place | Message]:
        """The actions, and the messages between them, that the end of a rank hangs on, or an action; the last first."""
        at = self._before(rank, len(self.ends[rank]) if place is None else place)
        while at is not None:
            yield at
            at = self._sets_off(at) if isinstance(at, Message) else self._before(*at)

    def _sets_off(self, message: Message) -> Place | Message | None:
        """What a message sets off upon; nothing for one that sets off before its rank has run anything."""
        cause = message.cause
        if isinstance(cause, Message):
            return cause
        place = bisect_right(self.ends[cause], message.start) - 1
        return (cause, place) if place >= 0 else None

    def _before(self, rank: int, place: int) -> Place | Message | None:
        """What an action starts upon: a message, else the action before it."""
        return self.late[rank][place] or ((rank, place - 1) if place else None)

    @property
    def passes(self) -> Iterator[Pass]:
        """The pass that makes each message."""
        of = defaultdict[Channel, deque[Pass]](deque)
        for order in self.schedule.orders:
            for action in order:
                for part in action:
                    if (channel := channel_of(self.schedule, part)) is not None:
                        of[channel].append(part)
        return (of[message.channel].popleft() for message in self.messages)


def channel_of(schedule: PipelineSchedule, part: Pass | None) -> Channel | None:
    """Where the message goes that a pass makes, if it makes one."""
    if part is None or part.act == "W" or (to := schedule.receiver(part)) is None:
        return None
    return Channel(part.act, schedule.rank(part.chunk), schedule.rank(to))
