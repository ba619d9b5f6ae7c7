"""Time as max and plus: when every action of a pipeline begins and ends, and what its ranks wait for.

An action starts when the one before it has ended and its message has arrived. Blocking sends are exchanges: what a rank
sends and receives between two actions is one exchange; a message flies once both its ranks are in theirs, and an
exchange lasts until its last message has arrived. Sends that do not block leave when their action ends.
Every order is run whole: nothing is extended from a shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.program.schedules import Pass
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tpsim.program.schedules import Action, Order, PipelineSchedule

MOST_ACTIONS = 300_000
"""Actions of all ranks beyond which a schedule is refused: they take a second and more."""

Place = tuple[int, int]
"""A rank, and the number of an action in its order."""


class Message(NamedTuple):
    """What one pass sends to the chunk behind or before it: when it sets off and arrives, and what sets it off."""

    of: Pass
    start: Any
    end: Any
    cause: Place | Message | None


class Gap(NamedTuple):
    """What lies before an action of a rank, or behind its last one.

    message   the last to arrive of those that the rank takes or, if sends block, gives there; None if it waits for none
    flight_s  seconds in which the rank waits while that message is on its way
    wait_s    seconds in which it waits for another rank, before the message sets off
    """

    message: Message | None = None
    flight_s: Any = 0
    wait_s: Any = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """A schedule as it ran: per rank start and end of every action in seconds, gaps around them, and all messages."""

    schedule: PipelineSchedule
    starts: Sequence[Sequence[Any]]
    ends: Sequence[Sequence[Any]]
    gaps: Sequence[Sequence[Gap]]
    messages: Sequence[Message]

    def done(self, rank: int) -> Any:
        """When a rank has ended its last action and sent what it made there."""
        return self.ends[rank][-1] + self.gaps[rank][-1].flight_s + self.gaps[rank][-1].wait_s

    @property
    def end(self) -> Any:
        """When the last rank has ended."""
        return max(map(self.done, range(self.schedule.ranks)))

    @property
    def span(self) -> Any:
        """From the first start to the last end of the rank where that is longest."""
        return max(ends[-1] - starts[0] for starts, ends in zip(self.starts, self.ends, strict=True))

    def critical(self, rank: int, place: int | None = None) -> Iterator[Place | Message]:
        """The actions, and the messages between them, that the end of a rank hangs on, or an action; the last first."""
        at = self._before(rank, len(self.ends[rank]) if place is None else place)
        while at is not None:
            yield at
            at = at.cause if isinstance(at, Message) else self._before(*at)

    def _before(self, rank: int, place: int) -> Place | Message | None:
        """What an action starts upon: a message, else the action before it."""
        return self.gaps[rank][place].message or ((rank, place - 1) if place else None)


def run(
    schedule: PipelineSchedule,
    seconds: Callable[[Action], Any],
    sends: Callable[[Pass], Any],
    *,
    blocking: bool | None = None,
) -> Ran:
    """Every action of every rank.

    seconds   of an action
    sends     seconds on the way of the message that a pass makes
    blocking  True: sends and receives are exchanges that hold their rank up; None: as those do who run the schedule

    Raises InputError where no rank can go on, naming what each would run next, and for more actions than 300,000.
    """
    count = sum(map(len, schedule.orders))
    if count > MOST_ACTIONS:
        message = f"{count:,} actions are more than the {MOST_ACTIONS:,} that are run one by one"
        raise InputError.one("too-many-actions", message, remedy="take fewer microbatches or stages")
    return _Pass(schedule, seconds, sends, schedule.blocking if blocking is None else blocking).ran()


@dataclass(slots=True)
class _Pass:
    """One run: where every rank stands, what it waits for, and which messages have set off.

    given, wanted  by act and chunk: the rank that a pass sends to, and how far the chunk lies that it takes from
    missing        messages that a rank in a gap waits for and that have not set off
    """

    schedule: PipelineSchedule
    seconds: Callable[[Action], Any]
    sends: Callable[[Pass], Any]
    blocking: bool
    starts: list[list[Any]] = field(init=False)
    ends: list[list[Any]] = field(init=False)
    gaps: list[list[Gap]] = field(init=False)
    given: dict[tuple[str, int], int | None] = field(default_factory=dict)
    wanted: dict[tuple[str, int], int | None] = field(default_factory=dict)
    waits: dict[int, Sequence[Pass]] = field(default_factory=dict)
    missing: dict[int, int] = field(default_factory=dict)
    came: dict[Pass, int] = field(default_factory=dict)
    messages: dict[Pass, Message] = field(default_factory=dict)
    free: dict[tuple[int, int, str], Message] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)

    def ran(self) -> Ran:
        """All of it."""
        ranks, schedule = range(self.schedule.ranks), self.schedule
        for of in {part[:2]: part for order in schedule.orders for action in order for part in action}.values():
            to, source = schedule.receiver(of), schedule.wanted(of)
            self.given[of[:2]] = None if to is None else schedule.rank(to)
            self.wanted[of[:2]] = None if source is None else source.chunk
        self.starts, self.ends, self.gaps = [[] for _ in ranks], [[] for _ in ranks], [[] for _ in ranks]
        for rank in ranks:
            self._open(rank)
        while self.ready:
            self._go_on(self.ready.pop())
        if self.waits:
            raise self._deadlock()
        return Ran(schedule, self.starts, self.ends, self.gaps, list(self.messages.values()))

    def _open(self, rank: int) -> None:
        """A gap begins: the rank gives what its last action made, and waits for what the next one wants."""
        order, place = self.schedule.orders[rank], len(self.ends[rank])
        given = [part for part in order[place - 1] if self.given[part[:2]] is not None] if place else []
        waits = [
            Pass(part.act, source, part.microbatch)
            for part in (order[place] if place < len(order) else ())
            if (source := self.wanted[part[:2]]) is not None
        ]
        if self.blocking:
            given = waits = [*given, *waits]
        self.waits[rank] = waits
        self.missing[rank] = missing = sum([of not in self.messages for of in waits])
        if not missing:
            self.ready.append(rank)
        for of in given:
            other = self.came.setdefault(of, rank)
            if other != rank or not self.blocking:
                self._set_off(of, other if self._opened(other) > self._opened(rank) else rank)

    def _set_off(self, of: Pass, late: int) -> None:
        """The message flies, behind others of its channel, when the later of its ranks is there."""
        sender, receiver = self.schedule.rank(of.chunk), self.given[of[:2]]
        start, channel = self._opened(late), (sender, receiver or 0, of.act)
        before = self.free.get(channel)
        cause: Place | Message | None = (late, len(self.ends[late]) - 1) if self.ends[late] else None
        if before is not None and before.end > start:
            start, cause = before.end, before
        self.messages[of] = self.free[channel] = Message(of, start, start + self.sends(of), cause)
        for rank in (sender, receiver or 0):
            if of in self.waits.get(rank, ()):
                self.missing[rank] -= 1
                if not self.missing[rank]:
                    self.ready.append(rank)

    def _opened(self, rank: int) -> Any:
        """When the gap began in which the rank is."""
        return self.ends[rank][-1] if self.ends[rank] else 0

    def _go_on(self, rank: int) -> None:
        """A gap ends: the next action runs, and the gap behind it begins."""
        opened, place, order = self._opened(rank), len(self.ends[rank]), self.schedule.orders[rank]
        late: Message | None = None
        for of in self.waits.pop(rank):
            one = self.messages[of]
            if one.end > (late.end if late else opened):
                late = one
        off = max(opened, late.start) if late else opened
        self.gaps[rank].append(Gap(late, late.end - off, off - opened) if late else NO_GAP)
        if place < len(order):
            start = late.end if late else opened
            self.starts[rank].append(start)
            self.ends[rank].append(start + self.seconds(order[place]))
            self._open(rank)

    def _deadlock(self) -> InputError:
        """What every rank that is left would run next, in vain."""
        orders = self.schedule.orders
        stuck = [
            f"rank {rank} waits for {self._first(rank)} before {_named(orders[rank], len(self.ends[rank]))}"
            for rank in sorted(self.waits)
        ]
        message = f"schedule {self.schedule.name} deadlocks: {'; '.join(stuck[:SHOWN])}"
        return InputError.one("deadlock", message, remedy="take another schedule")

    def _first(self, rank: int) -> str:
        return f"the message of {next(of for of in self.waits[rank] if of not in self.messages)}"


SHOWN, NO_GAP = 4, Gap()


def _named(order: Order, place: int) -> str:
    return str(order[place][0]) if place < len(order) else "its end"
