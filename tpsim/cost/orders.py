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
    if blocking not in schedule.known:
        schedule.known[blocking] = _Turns(schedule, blocking).all()
    lasts = [seconds(action) for action in schedule.kinds.examples]
    flights = [None if way is None else sends(way.example) for way in _ways(schedule)]
    return _Pass(schedule, lasts, flights).ran(schedule.known[blocking])


class Turn(NamedTuple):
    """A rank goes on: a gap of it ends, and its next action runs, if one is left.

    waits  messages that it has waited for, by number
    off    those that set off when that action has ended, each with the other rank that the later of both is
           found among: the rank itself where it sends alone
    """

    rank: int
    waits: list[int]
    off: list[tuple[int, int]]


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
class _Turns:
    """The turns of all ranks, each behind those that it waits for: they hang on the orders alone, on no seconds.

    waits    what a rank in a gap waits for
    missing  how many of these have not set off
    came     the rank that was the first to come to an exchange
    """

    schedule: PipelineSchedule
    blocking: bool
    ways: list[Way | None] = field(init=False)
    given: list[list[tuple[int, int]]] = field(init=False)
    wanted: list[list[tuple[int, int]]] = field(init=False)
    places: list[int] = field(init=False)
    waits: dict[int, list[int]] = field(default_factory=dict)
    missing: dict[int, int] = field(default_factory=dict)
    came: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    ready: list[int] = field(default_factory=list)

    def all(self) -> list[Turn]:
        """All of them. Raises InputError where no rank can go on."""
        schedule, turns, ready = self.schedule, [], self.ready
        self.ways, self.places = _ways(schedule), [0] * schedule.ranks
        examples = schedule.kinds.examples
        self.given = [[(at, way) for at, one in enumerate(action) for way in self._given(one)] for action in examples]
        self.wanted = [[(at, way) for at, one in enumerate(action) for way in self._wanted(one)] for action in examples]
        for rank in range(schedule.ranks):
            self._open(rank)
        while ready:
            rank = ready.pop()
            waits = self.waits.pop(rank)
            left = self.places[rank] < len(schedule.orders[rank])
            self.places[rank] += left
            turns.append(Turn(rank, waits, self._open(rank) if left else []))
        if self.waits:
            raise self._deadlock()
        return turns

    def _given(self, part: Pass) -> list[int]:
        """The way of the message that a pass makes, if it makes one."""
        way = 2 * part.chunk + (part.act == "B")
        return [way] if part.act != "W" and self.ways[way] else []

    def _wanted(self, part: Pass) -> list[int]:
        source = self.schedule.wanted(part)
        return [] if source is None else self._given(source)

    def _open(self, rank: int) -> list[tuple[int, int]]:
        """A gap begins: the rank gives what its last action made, and waits for what the next one wants."""
        order, kinds, place, m = (
            self.schedule.orders[rank],
            self.schedule.kinds.of[rank],
            self.places[rank],
            self.schedule.microbatches,
        )
        given = [way * m + order[place - 1][at][2] for at, way in self.given[kinds[place - 1]]] if place else []
        last = place == len(order)
        waits = [] if last else [way * m + order[place][at][2] for at, way in self.wanted[kinds[place]]]
        if self.blocking:
            given = waits = [*given, *waits]
        self.waits[rank] = waits
        self.missing[rank] = missing = sum([of not in self.gone for of in waits])
        if not missing:
            self.ready.append(rank)
        off = [(of, rank) for of in given]
        if self.blocking:
            off = [(of, other) for of in given if (other := self.came.setdefault(of, rank)) != rank]
        for of, _ in off:
            self._set_off(of)
        return off

    def _set_off(self, of: int) -> None:
        self.gone.add(of)
        way = self.ways[of // self.schedule.microbatches]
        for rank in way[:2] if way else ():
            if of in self.waits.get(rank, ()):
                self.missing[rank] -= 1
                if not self.missing[rank]:
                    self.ready.append(rank)

    def _deadlock(self) -> InputError:
        """What every rank that is left would run next, in vain."""
        orders = self.schedule.orders
        stuck = [
            f"rank {rank} waits for {self._first(rank)} before {_named(orders[rank], self.places[rank])}"
            for rank in sorted(self.waits)
        ]
        message = f"schedule {self.schedule.name} deadlocks: {'; '.join(stuck[:SHOWN])}"
        return InputError.one("deadlock", message, remedy="take another schedule")

    def _first(self, rank: int) -> str:
        way, j = divmod(next(of for of in self.waits[rank] if of not in self.gone), self.schedule.microbatches)
        return f"the message of {Pass('FB'[way % 2], way // 2, j)}"  # type: ignore[arg-type]  # F or B


@dataclass(slots=True)
class _Pass:
    """One run of all turns.

    seconds   of each kind of action
    flights   of the messages of each way
    opened    when the gap began in which each rank is
    messages  that have set off, by number; the last of each channel of sender, receiver and act in `free`
    """

    schedule: PipelineSchedule
    seconds: list[Any]
    flights: list[Any]
    opened: list[Any] = field(init=False)
    starts: list[list[Any]] = field(init=False)
    messages: dict[int, Message] = field(default_factory=dict)
    free: dict[tuple[int, int, int], Message] = field(default_factory=dict)

    def ran(self, turns: Sequence[Turn]) -> Ran:
        """All of it."""
        ranks, kinds, messages = range(self.schedule.ranks), self.schedule.kinds.of, self.messages
        self.starts, self.opened = [[] for _ in ranks], [0 for _ in ranks]
        ends: list[list[Any]] = [[] for _ in ranks]
        gaps: list[list[Gap]] = [[] for _ in ranks]
        ways = _ways(self.schedule)
        for rank, waits, off in turns:
            opened = start = self.opened[rank]
            late: Message | None = None
            for of in waits:
                one = messages[of]
                if one[2] > start:
                    late, start = one, one[2]
            if late is None:
                gaps[rank].append(NO_GAP)
            else:
                away = max(opened, late[1])
                gaps[rank].append(Gap(late, start - away, away - opened))
            place = len(ends[rank])
            if place < len(kinds[rank]):
                self.starts[rank].append(start)
                end = self.opened[rank] = start + self.seconds[kinds[rank][place]]
                ends[rank].append(end)
                for of, other in off:
                    self._set_off(of, other if self.opened[other] > end else rank, ways)
        return Ran(self.schedule, self.starts, ends, gaps, list(self.messages.values()))

    def _set_off(self, of: int, late: int, ways: list[Way | None]) -> None:
        """The message flies, behind others of its channel, when the later of its ranks is there."""
        number, j = divmod(of, self.schedule.microbatches)
        sender, receiver, (act, chunk, _) = ways[number]  # type: ignore[misc]  # what sets off has a way
        start, channel, place = self.opened[late], (sender, receiver, number % 2), len(self.starts[late]) - 1
        before, cause = self.free.get(channel), (late, place) if place >= 0 else None  # type: Message | None, Any
        if before is not None and before[2] > start:
            start, cause = before[2], before
        message = Message(Pass(act, chunk, j), start, start + self.flights[number], cause)
        self.messages[of] = self.free[channel] = message


SHOWN, NO_GAP = 4, Gap()


def _named(order: Order, place: int) -> str:
    return str(order[place][0]) if place < len(order) else "its end"
