"""Time as max and plus: when every action of a pipeline begins and ends, and what its ranks wait for.

An action starts when the one before it has ended and its message has arrived. Blocking sends are exchanges: what a rank
sends and receives between two actions is one exchange; a message flies once both its ranks are in theirs, and an
exchange lasts until its last message has arrived. Sends that do not block leave when their action ends. Where sends
block in warm-up and flush alone, each end of a message does as it would alone: a rank in warm-up or flush is held up by
what it sends and takes, and a message to it flies once it is there; in steady state it only waits for what it reads
(Megatron-LM, schedules.py, forward_backward_pipelining_with_interleaving with overlap_p2p_comm).
Every order is run whole: nothing is extended from a shorter one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.program.schedules import Blocking, Pass, made, uncollected
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
    blocking: Blocking | None = None,
) -> Ran:
    """Every action of every rank.

    seconds   of an action; those of one kind take as long
    sends     seconds on the way of the message that a pass makes; those of one act and chunk take as long
    blocking  True: sends and receives are exchanges that hold their rank up; steady: but in steady state; None: as
              those do who run the schedule

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


class Way(NamedTuple):
    """What the messages of one act and chunk have in common: sender, receiver, and one pass that makes such."""

    sender: int
    receiver: int
    example: Pass


def _ways(schedule: PipelineSchedule) -> list[Way | None]:
    """Of F and B of every chunk; None where nothing is sent. Message j of way k is number k*microbatches + j."""
    found: list[Way | None] = []
    for chunk in range(schedule.ranks * schedule.chunks):
        for part in (Pass("F", chunk, 0), Pass("B", chunk, 0)):
            to = schedule.receiver(part)
            found.append(None if to is None else Way(schedule.rank(chunk), schedule.rank(to), part))
    return found


@dataclass(slots=True)
class _Pass:
    """The ranks in turn: one whose messages have all set off ends its gap, runs its next action, and opens a gap again.

    seconds   of each kind of action
    flights   of the messages of each way
    given     per kind of action the place and the way of each message that it makes; wanted: that it takes
    opened    when the gap began in which each rank is
    waits     the messages that a rank in a gap waits for, by number; missing: how many of these have not set off
    until     the gap of each rank up to which it is held up by what it sends and takes; since: and from which on
    caught    of messages that block in warm-up and flush alone, those that are taken there
    came      when, and in which gap, the later of those ranks came to an exchange that have come
    lines     of each channel the messages that are to set off, in order; able: those that wait for their turn alone
    messages  that have set off, by number; the last of each channel of sender, receiver and act in `free`
    """

    schedule: PipelineSchedule
    blocking: Blocking
    seconds: list[Any]
    ways: list[Way | None]
    flights: list[Any]
    given: list[list[tuple[int, int]]] = field(init=False)
    wanted: list[list[tuple[int, int]]] = field(init=False)
    opened: list[Any] = field(init=False)
    starts: list[list[Any]] = field(init=False)
    waits: list[list[int]] = field(init=False)
    missing: list[int] = field(init=False)
    ready: list[int] = field(default_factory=list)
    until: list[int] = field(init=False)
    since: list[int] = field(init=False)
    caught: set[int] = field(default_factory=set)
    came: dict[int, tuple[Any, Place]] = field(default_factory=dict)
    lines: defaultdict[tuple[int, int, str], deque[int]] = field(default_factory=lambda: defaultdict(deque))
    able: set[int] = field(default_factory=set)
    messages: dict[int, Message] = field(default_factory=dict)
    free: dict[tuple[int, int, str], Message] = field(default_factory=dict)

    def ran(self) -> Ran:
        """All of it. Raises InputError where no rank can go on."""
        ranks, kinds, messages, ready = range(self.schedule.ranks), self.schedule.kinds, self.messages, self.ready
        self.given, self.wanted = (
            [[(at, way) for at, one in enumerate(action) for way in ways(one)] for action in kinds.examples]
            for ways in (self._given, self._wanted)
        )
        self._hold()
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
        return Ran(self.schedule, self.starts, ends, gaps, list(messages.values()))

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
        meets = given
        if place <= self.until[rank] or place >= self.since[rank]:
            meets = waits = given + waits
        for of in waits:
            missing += of not in self.messages
        self.waits[rank], self.missing[rank] = waits, missing
        if not missing:
            self.ready.append(rank)
        here = self.opened[rank], (rank, place - 1)
        for of in meets:
            if not self.blocking:
                self._set_off(of, *here)
            else:
                self._meet(of, here, mine=of in given)

    def _meet(self, of: int, here: tuple[Any, Place], *, mine: bool) -> None:
        """A rank comes to an exchange: the message flies when both are there."""
        if self.blocking == "steady":
            self._in_turn(of, here, mine=mine)
        elif of not in self.came:
            self.came[of] = here
        else:
            self._set_off(of, *max(self.came[of], here, key=lambda one: one[0]))

    def _in_turn(self, of: int, here: tuple[Any, Place], *, mine: bool) -> None:
        """The same where messages may wait for nobody: they fly behind those of their channel that set off earlier."""
        sender, receiver, (act, *_) = self.ways[of // self.schedule.microbatches]  # type: ignore[misc]  # it has a way
        line = self.lines[sender, receiver, act]
        if mine:
            line.append(of)
        meets = [self.came[of]] if of in self.came else []
        self.came[of] = max((*meets, here), key=lambda one: one[0])
        if meets or (mine and of not in self.caught):
            self.able.add(of)
        while line and line[0] in self.able:
            first = line.popleft()
            self._set_off(first, *self.came[first])

    def _hold(self) -> None:
        """Which gaps hold their rank up: all, none, or those behind actions of warm-up and flush.

        Warm-up is what comes before the last of the forwards that an order begins with, and flush what comes behind
        the first of the backwards that it ends with.
        """
        orders = self.schedule.orders
        if self.blocking != "steady":
            self.until = [len(order) if self.blocking else -1 for order in orders]
            self.since = [len(order) + 1 for order in orders]
            return
        acts = [[{part[0] for part in action} for action in order] for order in orders]
        self.until = [next((at for at, each in enumerate(one) if each != {"F"}), len(one)) - 1 for one in acts]
        self.since = [max((at for at, each in enumerate(one) if "F" in each), default=-1) + 3 for one in acts]
        for order, kinds, low, high in zip(orders, self.schedule.kinds.of, self.until, self.since, strict=True):
            for place in (*range(min(low + 1, len(order))), *range(high, len(order))):
                for at, way in self.wanted[kinds[place]]:
                    self.caught.add(way * self.schedule.microbatches + order[place][at][2])

    def _set_off(self, of: int, start: Any, place: Place) -> None:
        """The message flies, behind others of its channel, when the later of its ranks is there."""
        number, j = divmod(of, self.schedule.microbatches)
        way = self.ways[number]
        sender, receiver, (act, chunk, _) = way  # type: ignore[misc]  # what sets off has a way
        before = self.free.get(channel := (sender, receiver, act))
        cause: Place | Message | None = place if place[1] >= 0 else None
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
