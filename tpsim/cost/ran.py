"""A pass over orders of actions as it ran: starts, ends, messages, what each rank waited for, what its end hangs on."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.program.schedules import Act, Action, Pass, PipelineSchedule, acts_of
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpsim.cost.rank_work import Lead, Tail
    from tpsim.cost.rollup import Row
    from tpsim.cost.timed import Timed
    from tpsim.program.stages import Chunk


Place = tuple[int, int]
"""A rank, and the number of an action in its order."""


class Channel(NamedTuple):
    """The messages of one act from one rank to another: they leave, arrive and are wanted one after the other."""

    act: Act
    sender: int
    receiver: int


@dataclass(slots=True, eq=False)
class Way:
    """The messages of a channel in a pass over orders, by number.

    gives   when the sender comes to give it
    takes   when the receiver comes to take it
    seconds  on the way
    free    the first that sets off whether its receiver has come or not, and the first after it that does not
    starts  when it sets off: not before the one before it has arrived
    ends    when it arrives
    """

    channel: Channel
    gives: list[Any] = field(default_factory=list)
    takes: list[Any] = field(default_factory=list)
    seconds: list[Any] = field(default_factory=list)
    free: tuple[int, int] = (0, 0)
    starts: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)

    def arrival(self, number: int) -> Any:
        """When a message arrives; None if it cannot set off yet: it, or one before it, lacks who must have come."""
        ends = self.ends
        while (count := len(ends)) <= number:
            if count >= len(self.gives):
                return None
            start, (since, until) = self.gives[count], self.free
            if not since <= count < until:
                if count >= len(self.takes):
                    return None
                came = self.takes[count]
                if came > start:  # noqa: PLR1730 - max would take a tenth of the whole pass
                    start = came
            if count and ends[-1] > start:
                start = ends[-1]
            self.starts.append(start)
            ends.append(start + self.seconds[count])
        return ends[number]


class Message(NamedTuple):
    """What one pass sends to the chunk behind or before it."""

    way: Way
    number: int

    @property
    def start(self) -> Any:
        """When it sets off."""
        return self.way.starts[self.number]

    @property
    def end(self) -> Any:
        """When it arrives."""
        return self.way.ends[self.number]

    @property
    def cause(self) -> int | Message:
        """What sets it off: the rank that comes last for it, of two at once its receiver, or the message before it."""
        (way, number), start = self, self.start
        since, until = way.free
        if not since <= number < until and way.takes[number] == start:
            return way.channel.receiver
        if way.gives[number] == start:
            return way.channel.sender
        return Message(way, number - 1)


class Waits(NamedTuple):
    """How long a rank waits for messages: those that it takes or, if sends block, gives.

    wait_s    seconds in which it waits for another rank, before a message sets off
    flight_s  by act, seconds in which it waits while a message is on its way
    """

    wait_s: Any
    flight_s: Mapping[Act, Any]


@dataclass(frozen=True, slots=True)
class Ran:
    """A schedule as it ran: per rank start and end of every action in seconds, and all messages.

    late  per rank the way and the number of the message that ends the gap before each action, and behind the last one
    """

    schedule: PipelineSchedule
    starts: Sequence[Sequence[Any]]
    ends: Sequence[Sequence[Any]]
    late: Sequence[Sequence[tuple[Way, int] | None]]
    ways: Mapping[Channel, Way]

    def done(self, rank: int) -> Any:
        """When a rank has ended its last action and sent what it made there."""
        late = self.late[rank][-1]
        return self.ends[rank][-1] if late is None else Message(*late).end

    @property
    def end(self) -> Any:
        """When the last rank has ended."""
        return max(map(self.done, range(self.schedule.ranks)))

    def waits(self, rank: int, opened: Any = 0) -> Waits:
        """How long a rank waits before its actions, and behind its last one.

        opened  when the gap before its first action began
        """
        waits, flights = [], defaultdict[Act, list[Any]](list)
        for late, before in zip(self.late[rank], [opened, *self.ends[rank]], strict=True):
            if late is not None:
                message = Message(*late)
                away = message.start
                if away > before:
                    waits.append(away - before)
                else:
                    away = before
                flights[message.way.channel.act].append(message.end - away)
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
        late = self.late[rank][place]
        return Message(*late) if late else (rank, place - 1) if place else None

    @property
    def sent(self) -> Iterator[tuple[Pass, Message]]:
        """Every pass that makes a message, rank by rank, and what it sends."""
        before: Counter[Channel] = Counter()
        for part in (part for order in self.schedule.orders for action in order for part in action):
            if (channel := channel_of(self.schedule, part)) is not None:
                yield part, Message(self.ways[channel], before[channel])
                before[channel] += 1


def channel_of(schedule: PipelineSchedule, part: Pass | None) -> Channel | None:
    """Where the message goes that a pass makes, if it makes one."""
    if part is None or part.act == "W" or (to := schedule.receiver(part)) is None:
        return None
    return Channel(part.act, schedule.rank(part.chunk), schedule.rank(to))


@dataclass(frozen=True, slots=True)
class Path:
    """From the first action of one rank to the end of another.

    chunks  of the stack
    kinds   what an action of each kind of the schedule takes, and `timed` what any does
    hop     seconds of a message between two ranks
    due     when those kinds of actions have ended that hang on weights, which are gathered from the start of the step
    around  what stands on it where it is no path of this pass, but from one turn of a microbatch to its next
    """

    ran: Ran
    first: int
    last: int
    chunks: Sequence[Chunk]
    kinds: Sequence[Timed]
    timed: Callable[[Action], Timed]
    hop: Callable[[int, int], Any]
    due: Mapping[int, Any]
    around: Mapping[int | Channel, int] | None = None

    def counts(self) -> tuple[dict[str, int], dict[str, Any]]:
        """How often each pass and each send stands on it, and the seconds of each."""
        counts: Counter[str] = Counter()
        seconds: dict[str, Any] = {}
        tally = self.around or self._found(self.ran.critical(self.last))
        apart = len({self.hop(*item[1:]) for item in tally if isinstance(item, tuple)}) > 1
        for item, count in tally.items():
            if isinstance(item, tuple):
                _, source, target = item
                name, s = f"send_{source}_{target}" if apart else "send", self.hop(source, target)
            else:
                name, s = self._named(item)
            counts[name] += count
            seconds[name] = s
        order = sorted(counts, key=lambda name: (name.startswith("send"), name.partition("_")[2], "FBW".find(name[0])))
        return {name: counts[name] for name in order if counts[name]}, seconds

    @property
    def origin(self) -> int:
        """The rank whose beginning it hangs on."""
        at: Place | Message | int = self.last
        for at in self.ran.critical(self.last):
            if self._sort(at) in self.due:
                break
        while isinstance(at, Message):
            at = at.cause
        return at if isinstance(at, int) else at[0]

    def pulls(self, once: Iterable[Row], tail: Tail, sends: Mapping[Any, int], lead: Lead | None) -> Counter[int]:
        """How often each call stands on it, those once per step and in the tail of the last rank, too.

        once   calls that are once per step
        sends  the call that sends, by its act
        lead   what the first rank waits for before its first action: an action ends with it, however it began
        """
        pulls: Counter[int] = Counter({id(row.call): row.count for row in once})
        late = tail.path if tail.late_s else ()
        for _, timed in late[1:]:
            pulls.update(timed.busy.calls)
        for _, timed in late[:1]:
            pulls.update(timed.tail.calls)
        found = Counter(self.around or self._found(self.ran.critical(self.last, late[0][0] if late else None)))
        if lead:
            pulls.update(lead.calls)
            place = self.first, lead.place
            found.subtract(self._found([place, *self.ran.critical(*place)]))
        for item, count in found.items():
            if isinstance(item, tuple):
                pulls[sends[item[0]]] += count
            else:
                pulls.update(self.kinds[item].through.times(count).calls)
        return pulls

    def _found(self, path: Iterable[Place | Message]) -> dict[int | Channel, int]:
        """How often each kind of action stands on a path, and the messages of each channel.

        Less those before the first rank's first action: they lead to its start as well as to the end.
        """
        tally = Counter(self._until_due(path))
        tally.subtract(self._until_due(self.ran.critical(self.first, 0)))
        return {item: count for item, count in tally.items() if count}

    def _until_due(self, path: Iterable[Place | Message]) -> Iterator[int | Channel]:
        """What stands on a path; before an action that hangs on its weights there are only these."""
        for sort in map(self._sort, path):
            yield sort
            if sort in self.due:
                return

    def _sort(self, task: Place | Message) -> int | Channel:
        """The channel of a message, the kind of an action."""
        return task.way.channel if isinstance(task, Message) else self.ran.schedule.kinds.of[task[0]][task[1]]

    def _named(self, kind: int) -> tuple[str, Any]:
        """An action by its acts and its chunk's place in the stack."""
        action, timed = self.ran.schedule.kinds.examples[kind], self.kinds[kind]
        acts, j = acts_of(action), action[-1].microbatch
        where = self._place(action[0].chunk)
        if kind in self.due:
            return f"weights_and_{acts}{where}", self.due[kind]
        plain = self.timed(tuple(part._replace(microbatch=-1) for part in action))
        odd = "" if timed.through.seconds == plain.through.seconds else f"_of_{j}"
        return f"{acts}{where}{odd}", timed.through.seconds

    def _place(self, at: int) -> str:
        """Where a chunk stands; of those between the ends, if they are unlike, its layers, or else its number."""
        chunk, between = self.chunks[at], self.chunks[1:-1]
        if chunk.first != chunk.last:
            return "_first" if chunk.first else "_last"
        stacks = [other.stack for other in between]
        if len({other.layers for other in between}) < len({*stacks}):  # as many layers, of other kinds
            return f"_chunk_{stacks.index(chunk.stack) + 1}"
        return f"_{chunk.layers}" if len({*stacks}) > 1 else ""


class Around(NamedTuple):
    """From one turn of a microbatch that goes forward until it has the next.

    rank   whose sums they are
    on_it  how often each kind of action, and the messages of each channel, stand on the way
    """

    rank: int
    seconds: Any
    on_it: Counter[int | Channel]


def around(ran: Ran, kinds: Sequence[Timed]) -> Around:
    """What the next turn of a microbatch waits for: its own end, or the rank with most to do for all of them.

    Nothing else holds it up: no stage waits longer for the one behind than for the slowest of all.
    """
    through = Counter[int | Channel]([*(own[0] for own in ran.schedule.kinds.of), *ran.ways])
    every = [Around(ran.schedule.ranks - 1, ran.ends[-1][0], through)]
    for rank, own in enumerate(ran.schedule.kinds.of):
        worked_s, sent_s, channel = turn_of(ran, kinds, rank)
        messages = [channel] * len(own) if channel else []
        every.append(Around(rank, worked_s + sent_s, Counter[int | Channel]([*own, *messages])))
    return max(every, key=lambda turn: turn.seconds)


def turn_of(ran: Ran, kinds: Sequence[Timed], rank: int) -> tuple[Any, Any, Channel | None]:
    """What a rank works and what messages hold it up for one turn of every microbatch, and those that do so longest.

    It gives what it has made and takes the next at once.
    """
    own = ran.schedule.kinds.of[rank]
    worked_s = total(kinds[kind].through.seconds for kind in own)
    ways = [way for way in ran.ways.values() if rank in way.channel[1:]]
    slowest = max(ways, key=lambda way: way.seconds[0], default=None)
    return (worked_s, len(own) * slowest.seconds[0], slowest.channel) if slowest else (worked_s, 0, None)
