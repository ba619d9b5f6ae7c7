"""A judge of schedules that knows no cost model: processes, events and a heap of what happens next, nothing else.

Two things run on it: tasks on lanes, and the ranks of a pipeline with a process for every channel between two of them.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Task = tuple[Sequence[str], Sequence[str], float, Sequence[int]]
    """Lanes that must be free when it starts, lanes that it occupies, seconds, tasks that must have ended before."""

    Pass = tuple[str, int, int]
    """F, B or W; chunk of all; microbatch."""

    Process = Iterator["Event | float"]
    """What waits for an event, or sleeps some seconds, at each of its yields."""


class Event:
    """What happens once: `at` some second. Whoever waits goes on then."""

    def __init__(self):
        self.at: float | None = None
        self.waiting: list[Process] = []


class World:
    """The clock, and the processes that wait for it."""

    def __init__(self):
        self.now = 0.0
        self.heap: list[tuple[float, int, Process]] = []
        self.turn = count()

    def wake(self, process: Process, seconds: float = 0.0) -> None:
        heappush(self.heap, (self.now + seconds, next(self.turn), process))

    def happen(self, event: Event) -> None:
        event.at = self.now
        for process in event.waiting:
            self.wake(process)

    def resume(self, process: Process) -> None:
        for wish in process:
            if not isinstance(wish, Event):
                return self.wake(process, wish)
            if wish.at is None:
                return wish.waiting.append(process)
        return None

    def run(self) -> None:
        while self.heap:
            self.now, _, process = heappop(self.heap)
            self.resume(process)


def ended(events: Mapping[object, Event]) -> list[float]:
    """When each of these happened; refused where one never did."""
    if stuck := [name for name, event in events.items() if event.at is None]:
        raise RuntimeError(f"deadlock: {stuck[0]} and {len(stuck) - 1} more never happened")
    return [event.at for event in events.values() if event.at is not None]


def simulate(tasks: Sequence[Task], shares: Mapping[tuple[int, str], float] | None = None) -> list[tuple[float, float]]:
    """Start and end of every task, issued in this order.

    A task starts when all tasks before it have let go of the lanes that it waits for. It lets go of its own at its end,
    or after shares[task, lane] seconds.
    """
    world, shares = World(), shares or {}
    starts, ends = {i: Event() for i in range(len(tasks))}, {i: Event() for i in range(len(tasks))}
    clear: dict[str, Event] = {}  # every holder of the lane that has been issued up to here has let go

    def run(i: int, before: Sequence[Event], seconds: float) -> Process:
        yield from before
        world.happen(starts[i])
        yield seconds
        world.happen(ends[i])

    def hold(start: Event, seconds: float, former: Sequence[Event], now_clear: Event) -> Process:
        yield start
        yield seconds
        yield from former
        world.happen(now_clear)

    for i, (waits, holds, seconds, after) in enumerate(tasks):
        before = [clear[lane] for lane in waits if lane in clear] + [ends[j] for j in after]
        world.wake(run(i, before, seconds))
        for lane in holds:
            former, clear[lane] = [clear[lane]] if lane in clear else [], Event()
            world.wake(hold(starts[i], shares.get((i, lane), seconds), former, clear[lane]))
    world.run()
    return list(zip(ended(starts), ended(ends), strict=True))


def needed(one: Pass, last: int) -> Pass | None:
    """The pass whose result this one takes, where `last` is the last chunk."""
    act, chunk, j = one
    if act == "F":
        return ("F", chunk - 1, j) if chunk else None
    if act == "B" and chunk < last:
        return ("B", chunk + 1, j)
    return ("F" if act == "B" else "B", chunk, j)


class Ranks:
    """What `pipeline` runs: a process for each rank, and one for each channel between two of them."""

    def __init__(self, orders, seconds, flights, *, blocking):
        self.world, self.orders, self.seconds, self.flights, self.blocking = World(), orders, seconds, flights, blocking
        self.passes = [(rank, one) for rank, order in enumerate(orders) for action in order for one in action]
        self.last = max(chunk for _, (_, chunk, _) in self.passes)
        taken = [(rank, made) for rank, one in self.passes if (made := needed(one, self.last))]
        self.receiver = {made: rank for rank, made in taken if made[1] % len(orders) != rank}
        self.ends = {(rank, i): Event() for rank, order in enumerate(orders) for i in range(len(order))}
        self.done, self.sent, self.wanted, self.arrived = (defaultdict(Event) for _ in range(4))
        self.asked: set[Pass] = set()
        for rank, order in enumerate(orders):
            for i, action in enumerate(order):
                self.asked |= set(self.far(rank, action)) if self.stands(rank, i) else set()

    def far(self, rank: int, action: Sequence[Pass]) -> list[Pass]:
        """What an action takes from other ranks."""
        takes = [made for one in action if (made := needed(one, self.last)) and made not in action]
        return [made for made in takes if made[1] % len(self.orders) != rank]

    def stands(self, rank: int, i: int) -> bool:
        """True if a rank is held up before its i-th action: of orders that block at their ends alone, there."""
        order = self.orders[rank]
        if self.blocking != "steady" or not i:
            return bool(self.blocking)
        former = order[:i]
        opening = {act for action in order[: i + 1] for act, _, _ in action} == {"F"}
        closing = not any(act == "F" for action in order[i - 2 :] for act, _, _ in action) and i > 1
        return (opening and bool(former) and i < len(order)) or closing

    def seconds_of_pairs(self, rank: int) -> set[int]:
        """Actions right before which nothing is sent or taken, where orders of several chunks block."""
        forward = [all(act == "F" for act, _, _ in action) for action in self.orders[rank]]
        warm = forward.index(False)
        if self.blocking is not True or self.last < len(self.orders) or not any(forward[warm:]):
            return set()
        return {i for i in range(1, len(forward)) if forward[i - 1] and not forward[i]}

    def exchange(self, outbox: Sequence[Pass], inbox: Sequence[Pass], held: bool) -> Process:
        """Hand over what is to be sent, ask for what is to come, and wait."""
        for one in outbox:
            self.world.happen(self.sent[one])
        for one in inbox:
            self.world.happen(self.wanted[one])
        yield from [self.arrived[one] for one in (*inbox, *(outbox if held else ()))]

    def rank(self, rank: int) -> Process:
        outbox: list[Pass] = []
        order, second = self.orders[rank], self.seconds_of_pairs(rank)
        for i, action in enumerate(order):
            takes = [made for one in action if (made := needed(one, self.last)) and made not in action]
            if i not in second:
                both = [*action, *(order[i + 1] if i + 1 in second else ())]
                yield from self.exchange(outbox, self.far(rank, both), self.stands(rank, i))
                outbox = []
            yield from [self.done[made] for made in takes if made[1] % len(self.orders) == rank]
            yield sum(self.seconds[chunk, act] for act, chunk, _ in action)
            self.world.happen(self.ends[rank, i])
            for one in action:
                self.world.happen(self.done[one])
            outbox += [one for one in action if one in self.receiver]
        yield from self.exchange(outbox, (), self.stands(rank, len(self.orders[rank])))

    def channel(self, messages: Sequence[Pass]) -> Process:
        """One message at a time: the next sets off when the former has arrived."""
        for one in messages:
            yield from (self.sent[one], self.wanted[one]) if one in self.asked else (self.sent[one],)
            yield self.flights[one[1], one[0]]
            self.world.happen(self.arrived[one])

    def run(self) -> list[list[float]]:
        channels = defaultdict(list)
        for rank, one in self.passes:
            if one in self.receiver:
                channels[rank, self.receiver[one], one[0]].append(one)
        for process in (*map(self.rank, range(len(self.orders))), *map(self.channel, channels.values())):
            self.world.wake(process)
        self.world.run()
        flat = iter(ended(self.ends))
        return [[next(flat) for _ in order] for order in self.orders]


def pipeline(
    orders: Sequence[Sequence[Sequence[Pass]]],
    seconds: Mapping[tuple[int, str], float],
    flights: Mapping[tuple[int, str], float],
    *,
    blocking: bool | str = False,
) -> list[list[float]]:
    """When every action of every rank ends; chunk k lies on rank k mod their number.

    seconds   of a pass, by (chunk, act)
    flights   of the message that a pass leaves behind, by (chunk, act); one message at a time from rank to rank and act
    blocking  what a rank sends and receives between two actions holds it up from its entry until the last has arrived,
              and a message flies when sender and receiver have entered; of several chunks not between a forward and the
              backward behind it, unless all forwards come first; "steady": but for those in whose way a rank is
              neither among the forwards that its order begins with nor among what comes behind its last forward
    """
    return Ranks(orders, seconds, flights, blocking=blocking).run()
