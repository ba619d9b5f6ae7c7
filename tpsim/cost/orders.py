"""Time as max and plus: when every action of a pipeline begins and ends, and what its ranks wait for.

An action starts when the one before it has ended and its message has arrived. Blocking sends are exchanges: what a rank
sends and receives between two actions is one exchange; a message flies once both its ranks are in theirs, and an
exchange lasts until its last message has arrived. Sends that do not block leave when their action ends.
Every order is run whole: nothing is extended from a shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.program.pipeline_schedule import Pass, made
from tpsim.program.schedules import uncollected
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tpsim.program.pipeline_schedule import Action, Order, PipelineSchedule

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
class RanOrders:
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
) -> RanOrders:
    """Every action of every rank.

    seconds   of an action; those of one kind take as long
    sends     seconds on the way of the message that a pass makes; those of one act and chunk take as long
    blocking  True: sends and receives are exchanges that hold their rank up; None: as those do who run the schedule

    Raises InputError where no rank can go on, naming what each would run next, and for more actions than 300,000.
    """
    count = sum(map(len, schedule.orders))
    if count > MOST_ACTIONS:
        message = f"{count:,} actions are more than the {MOST_ACTIONS:,} that are run one by one"
        raise InputError.one("too-many-actions", message, remedy="take fewer microbatches or stages")
    blocking = schedule.blocking if blocking is None else blocking
    with uncollected():
        lasts = [seconds(action) for action in schedule.kinds.examples]
        ways = _ways(schedule)
        return _Pass(schedule, blocking, lasts, ways, [sends(way.example) if way else None for way in ways]).ran()


class Channel(NamedTuple):
    """What the messages of one act and chunk have in common: sender, receiver, and one pass that makes such."""

    sender: int
    receiver: int
    example: Pass


def _ways(schedule: PipelineSchedule) -> list[Channel | None]:
    """Of F and B of every chunk; None where nothing is sent. Message j of way k is number k*microbatches + j."""
    found: list[Channel | None] = []
    for chunk in range(schedule.ranks * schedule.chunks):
        for part in (Pass("F", chunk, 0), Pass("B", chunk, 0)):
            to = schedule.receiver(part)
            found.append(None if to is None else Channel(schedule.rank(chunk), schedule.rank(to), part))
    return found


@dataclass(slots=True)
class _Pass:
    """The ranks in turn: one whose messages have all set off ends its gap, runs its next action, and opens a gap again.

    seconds   of each kind of action
    flights   of the messages of each way
    given     per kind of action the place and the way of each message that it makes; wanted: that it takes
    opened    when the gap began in which each rank is
    waits     the messages that a rank in a gap waits for, by number; missing: how many of these have not set off
    came      the rank that was the first to come to an exchange
    messages  that have set off, by number; the last of each channel of sender, receiver and act in `free`
    """

    schedule: PipelineSchedule
    blocking: bool
    seconds: list[Any]
    ways: list[Channel | None]
    flights: list[Any]
    given: list[list[tuple[int, int]]] = field(init=False)
    wanted: list[list[tuple[int, int]]] = field(init=False)
    opened: list[Any] = field(init=False)
    starts: list[list[Any]] = field(init=False)
    waits: list[list[int]] = field(init=False)
    missing: list[int] = field(init=False)
    ready: list[int] = field(default_factory=list)
    came: dict[int, int] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    free: dict[tuple[int, int, str], Message] = field(default_factory=dict)

    def ran(self) -> RanOrders:
        """All of it. Raises InputError where no rank can go on."""
        ranks, kinds, messages, ready = range(self.schedule.ranks), self.schedule.kinds, self.messages, self.ready
        self.given, self.wanted = (
            [[(at, way) for at, one in enumerate(action) for way in ways(one)] for action in kinds.examples]
            for ways in (self._given, self._wanted)
        )
        self.opened, self.missing, self.waits = [0 for _ in ranks], [0 for _ in ranks], [[] for _ in ranks]
        ends: list[list[Any]] = [[] for _ in ranks]
        gaps: list[list[Gap]] = [[] for _ in ranks]
        self.starts = [[] for _ in ranks]
        for rank in ranks:
            self._open(rank, 0)
        while ready:
            rank = ready.pop()
            opened = start = self.opened[rank]
            late: Message | None = None
            for of in self.waits[rank]:
                one = messages[of]
                if one[2] > start:
                    late, start = one, one[2]
            if late is None:
                gaps[rank].append(NO_GAP)
            else:
                away = max(opened, late[1])
                gaps[rank].append(made(Gap, (late, start - away, away - opened)))
            place = len(ends[rank])
            if place < len(kinds.of[rank]):
                self.starts[rank].append(start)
                self.opened[rank] = end = start + self.seconds[kinds.of[rank][place]]
                ends[rank].append(end)
                self._open(rank, place + 1)
        if stuck := [rank for rank in ranks if self.missing[rank]]:
            raise self._deadlock(stuck)
        return RanOrders(self.schedule, self.starts, ends, gaps, list(messages.values()))

    def _given(self, part: Pass) -> list[int]:
        """The way of the message that a pass makes, if it makes one."""
        way = 2 * part.chunk + (part.act == "B")
        return [way] if part.act != "W" and self.ways[way] else []

    def _wanted(self, part: Pass) -> list[int]:
        source = self.schedule.wanted(part)
        return [] if source is None else self._given(source)

    def _open(self, rank: int, place: int) -> None:
        """A gap begins: the rank gives what its last action made, and waits for what the next one wants."""
        order, kinds, m = self.schedule.orders[rank], self.schedule.kinds.of[rank], self.schedule.microbatches
        given, waits, missing = [], [], 0
        if place:
            for at, way in self.given[kinds[place - 1]]:
                given.append(way * m + order[place - 1][at][2])
        if place < len(order):
            for at, way in self.wanted[kinds[place]]:
                waits.append(way * m + order[place][at][2])
        if self.blocking:
            given = waits = given + waits
        for of in waits:
            missing += of not in self.messages
        self.waits[rank], self.missing[rank] = waits, missing
        if not missing:
            self.ready.append(rank)
        for of in given:
            late = self.came.setdefault(of, rank) if self.blocking else rank
            if late != rank or not self.blocking:
                self._set_off(of, late if self.opened[late] > self.opened[rank] else rank)

    def _set_off(self, of: int, late: int) -> None:
        """The message flies, behind others of its channel, when the later of its ranks is there."""
        number, j = divmod(of, self.schedule.microbatches)
        way, start, place = self.ways[number], self.opened[late], len(self.starts[late]) - 1
        sender, receiver, (act, chunk, _) = way  # type: ignore[misc]  # what sets off has a way
        before = self.free.get(channel := (sender, receiver, act))
        cause: Place | Message | None = (late, place) if place >= 0 else None
        if before is not None and before[2] > start:
            start, cause = before[2], before
        of_pass = made(Pass, (act, chunk, j))
        message = made(Message, (of_pass, start, start + self.flights[number], cause))
        self.messages[of] = self.free[channel] = message
        for rank in (sender, receiver) if self.blocking else (receiver,):
            if of in self.waits[rank]:
                self.missing[rank] = left = self.missing[rank] - 1
                if not left:
                    self.ready.append(rank)

    def _deadlock(self, stuck: list[int]) -> InputError:
        """What every rank that is left would run next, in vain."""
        orders = self.schedule.orders
        told = [
            f"rank {rank} waits for {self._first(rank)} before {_named(orders[rank], len(self.starts[rank]))}"
            for rank in stuck[:SHOWN]
        ]
        message = f"schedule {self.schedule.name} deadlocks: {'; '.join(told)}"
        remedy = "let messages fly beside compute, practice.overlap.stages: beside, or take another schedule"
        return InputError.one("deadlock", message, remedy=remedy)

    def _first(self, rank: int) -> str:
        way, j = divmod(next(of for of in self.waits[rank] if of not in self.messages), self.schedule.microbatches)
        return f"the message of {Pass('FB'[way % 2], way // 2, j)}"  # type: ignore[arg-type]  # F or B


SHOWN, NO_GAP = 4, Gap()


def _named(order: Order, place: int) -> str:
    return str(order[place][0]) if place < len(order) else "its end"
