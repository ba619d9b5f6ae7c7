"""Time as max and plus: when every action of a pipeline begins and ends, and what its ranks wait for.

An action starts when the one before it has ended and its message has arrived. Blocking sends are exchanges: what a rank
sends and receives between two actions is one exchange; a message flies once both its ranks are in theirs, and an
exchange lasts until its last message has arrived. Sends that do not block leave when their action ends.
Every order is run whole: nothing is extended from a shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tpsim.program.schedules import Action, Order, Pass, PipelineSchedule

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
    """A schedule as it ran: per rank the start and end of every action in seconds, and the gaps around them."""

    schedule: PipelineSchedule
    starts: Sequence[Sequence[Any]]
    ends: Sequence[Sequence[Any]]
    gaps: Sequence[Sequence[Gap]]

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
    """One run: where every rank stands, what it waits for, and which messages have set off."""

    schedule: PipelineSchedule
    seconds: Callable[[Action], Any]
    sends: Callable[[Pass], Any]
    blocking: bool
    starts: list[list[Any]] = field(init=False)
    ends: list[list[Any]] = field(init=False)
    gaps: list[list[Gap]] = field(init=False)
    waits: dict[int, Sequence[Pass]] = field(default_factory=dict)
    came: dict[Pass, list[int]] = field(default_factory=dict)
    messages: dict[Pass, Message] = field(default_factory=dict)
    free: dict[tuple[int, int, str], Message] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)

    def ran(self) -> Ran:
        """All of it."""
        ranks = range(self.schedule.ranks)
        self.starts, self.ends, self.gaps = [[] for _ in ranks], [[] for _ in ranks], [[] for _ in ranks]
        for rank in ranks:
            self._open(rank)
        while self.ready:
            self._go_on(self.ready.pop())
        if self.waits:
            raise self._deadlock()
        return Ran(self.schedule, self.starts, self.ends, self.gaps)

    def _open(self, rank: int) -> None:
        """A gap begins: the rank gives what its last action made, and waits for what the next one wants."""
        order, place, schedule = self.schedule.orders[rank], len(self.ends[rank]), self.schedule
        given = [part for part in order[place - 1] if schedule.receiver(part) is not None] if place else []
        asked = [of for part in order[place] if (of := schedule.wanted(part))] if place < len(order) else []
        self.waits[rank] = [*given, *asked] if self.blocking else asked
        concerned = {rank}
        for of in (*given, *asked) if self.blocking else given:
            self.came.setdefault(of, []).append(rank)
            if len(self.came[of]) == (PAIR if self.blocking else 1):
                concerned |= self._set_off(of)
        for one in concerned & self.waits.keys():
            if all(of in self.messages for of in self.waits[one]) and one not in self.ready:
                self.ready.append(one)

    def _set_off(self, of: Pass) -> set[int]:
        """The message flies, behind others of its channel: both its ranks."""
        sender, receiver = self.schedule.rank(of.chunk), self.schedule.rank(self.schedule.receiver(of) or 0)
        late = max(self.came.pop(of), key=self._opened)
        start, before = self._opened(late), self.free.get((sender, receiver, of.act))
        cause: Place | Message | None = (late, len(self.ends[late]) - 1) if self.ends[late] else None
        if before is not None and before.end > start:
            start, cause = before.end, before
        self.messages[of] = self.free[sender, receiver, of.act] = Message(of, start, start + self.sends(of), cause)
        return {sender, receiver}

    def _opened(self, rank: int) -> Any:
        """When the gap began in which the rank is."""
        return self.ends[rank][-1] if self.ends[rank] else 0

    def _go_on(self, rank: int) -> None:
        """A gap ends: the next action runs, and the gap behind it begins."""
        opened, place, order = self._opened(rank), len(self.ends[rank]), self.schedule.orders[rank]
        last = max((self.messages[of] for of in self.waits.pop(rank)), key=lambda one: one.end, default=None)
        late = last if last is not None and last.end > opened else None
        off = max(opened, late.start) if late else opened
        self.gaps[rank].append(Gap(late, late.end - off, off - opened) if late else Gap())
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


PAIR, SHOWN = 2, 4


def _named(order: Order, place: int) -> str:
    return str(order[place][0]) if place < len(order) else "its end"
