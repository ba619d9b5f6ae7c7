"""Seconds of actions: segments are run task by task, equal ones once, the paths through tasks, and a slow host."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.segments import Segment, apart
from tpsim.cost.timeline import COMPUTE, Task, Timeline, run
from tpsim.machine.chip_seconds import late_s
from tpsim.quantity.size import largest, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.cost.piece import Piece
    from tpsim.machine.parts import Machine


class Length(NamedTuple):
    """A path through tasks: its seconds, and how often each call stands on it, by the call's identity."""

    seconds: Any = 0
    calls: Mapping[int, int] = {}

    def __add__(self, other: Length) -> Length:  # type: ignore[override]  # lengths are put end to end, not joined
        return Length(self.seconds + other.seconds, added(self.calls, other.calls))

    def times(self, n: int) -> Length:
        """The same n times over."""
        return Length(self.seconds * n, {call: count * n for call, count in self.calls.items()})


NOTHING, NEVER = Length(), Length(-inf)


def longer(length: Length, other: Length) -> Length:
    """The longer of two paths; of arrays the seconds only."""
    seconds = largest(length.seconds, other.seconds)
    return length if seconds is length.seconds else other if seconds is other.seconds else Length(seconds)


def path(ran: Timeline, named: Sequence[int], at: int | None) -> Mapping[int, int]:
    """The calls that a task's end hangs on, each with how often, by the name of the task's call; 0 is none."""
    counts: Counter[int] = Counter()
    while at is not None:
        if named[at]:
            counts[named[at]] += 1
        at = ran.bound(at)
    return counts


class Timed(NamedTuple):
    """Tasks as one: from (compute, lane of gradients) free to free.

    through  from compute to compute, which waits for no gradient
    busy     from the lane of gradients to itself: all calls on it
    tail     from compute to the lane of gradients; -inf where nothing runs there
    exposed  seconds of compute's waiting, by call
    settled  seconds of the calls on the lane of gradients, the first first
    host_s   what compute takes longer since a host launches it
    stragglers_s  what it takes longer since gathers of weights wait for the last rank
    """

    through: Length = NOTHING
    busy: Length = NOTHING
    tail: Length = NEVER
    exposed: Mapping[int, Any] = {}
    settled: tuple[tuple[int, Any], ...] = ()
    host_s: Any = 0
    stragglers_s: Any = 0

    def then(self, other: Timed) -> Timed:
        """Both, one behind the other."""
        return Timed(
            self.through + other.through,
            self.busy + other.busy,
            longer(self.through + other.tail, self.tail + other.busy),
            added(self.exposed, other.exposed),
            self.settled + other.settled,
            self.host_s + other.host_s,
            self.stragglers_s + other.stragglers_s,
        )

    def launched(self, host: Launched) -> Timed:
        """The same where a host begins to launch it when its device is free."""
        through = longer(self.through, host.led)
        late = through.seconds - self.through.seconds
        return self._replace(through=through, tail=self.tail + Length(late), host_s=self.host_s + late)

    def waiting(self, late: Any) -> Timed:
        """The same where ranks that come late hold it up for so many seconds."""
        through, tail = self.through + Length(late), self.tail + Length(late)
        return self._replace(through=through, tail=tail, stragglers_s=self.stragglers_s + late)

    def times(self, n: int) -> Timed:
        """The same n times over: the lane of gradients is bound by its first call, or by its last."""
        if n == 1:
            return self
        behind = longer(self.through, self.busy).times(n - 1)
        exposed = {call: seconds * n for call, seconds in self.exposed.items()}
        own = self.host_s * n, self.stragglers_s * n
        return Timed(self.through.times(n), self.busy.times(n), self.tail + behind, exposed, self.settled * n, *own)


def added(amounts: Mapping[int, Any], other: Mapping[int, Any]) -> Mapping[int, Any]:
    """Sums by key."""
    if not (amounts and other):
        return amounts or other
    return {**amounts, **{key: amounts.get(key, 0) + more for key, more in other.items()}}


@dataclass(frozen=True)
class Action:
    """The tasks of an action, cut where all that was issued has been waited for: equal segments are run once.

    runs  segments in order, each with how often it follows itself
    """

    runs: tuple[tuple[Segment, int], ...]

    @cached_property
    def meetings(self) -> Any:
        """How often ranks meet in it over weights, to gather them, and over gradients: once for all of a layer."""
        often: Counter[Piece] = Counter()
        for piece, count in self._pieces():
            if piece.fetches or piece.settles:
                often[piece] += count
        return total(piece.share * count for piece, count in often.items())

    def late_s(self, seconds: Callable[[Piece], Any], machine: Machine, tied: Any) -> Any:
        """Seconds in which it waits, between its kernels, for the last of so many ranks."""
        meetings = self.meetings
        if not meetings:
            return 0
        worked = total(seconds(piece) * count for piece, count in self._pieces() if not piece.call)
        return late_s(machine, worked, meetings, tied)

    def _pieces(self) -> Iterator[tuple[Piece, int]]:
        return ((piece, count) for segment, count in self.runs for step in segment for piece in step.pieces)

    def timed(
        self,
        seconds: Callable[[Piece], Any],
        launches: Callable[[Piece], Any] | None = None,
        *,
        attributed: bool = True,
        known: dict[Segment, Timed] | None = None,
    ) -> Timed:
        """Its seconds.

        launches    seconds in which the host launches a piece; None: in none
        attributed  False where only sums are wanted, as of arrays
        known       segments of other actions that take their seconds from the same pieces
        """
        bare = self._timed(seconds, {} if known is None else known, attributed=attributed)
        return bare.launched(self._launched(seconds, launches)) if launches else bare

    def _launched(self, seconds: Callable[[Piece], Any], launches: Callable[[Piece], Any]) -> Launched:
        known: dict[Segment, Launched] = {}
        whole = Launched()
        for segment, count in self.runs:
            if segment not in known:
                single = apart(segment)
                issued = [launches(step.pieces[0]) for step in single]
                known[segment] = launched([step.task(seconds) for step in single], issued, _named(single))
            whole = whole.then(known[segment].times(count))
        return whole

    def _timed(self, seconds: Callable[[Piece], Any], known: dict[Segment, Timed], *, attributed: bool) -> Timed:
        whole = Timed()
        for segment, count in self.runs:
            if segment not in known:
                known[segment] = _timed(segment, seconds, attributed=attributed)
            whole = whole.then(known[segment].times(count))
        return whole


def _timed(segment: Segment, seconds: Callable[[Piece], Any], *, attributed: bool) -> Timed:
    """One segment, run when all lanes are free."""
    tasks = [step.task(seconds) for step in segment]
    ran = run(tasks)
    settling = [place for place, step in enumerate(segment) if step.pieces[0].beside and step.pieces[0].settles]
    last = max((place for place, task in enumerate(tasks) if COMPUTE in task.holds), default=None)
    worked = 0 if last is None else ran.ends[last]
    busy, tail = total(tasks[place].seconds for place in settling), ran.ends[settling[-1]] if settling else -inf
    if not attributed:
        return Timed(Length(worked), Length(busy), Length(tail))
    named = _named(segment)
    return Timed(
        Length(worked, path(ran, named, last)),
        Length(busy, Counter(named[place] for place in settling)),
        Length(tail, path(ran, named, settling[-1])) if settling else NEVER,
        _exposed(ran, tasks, named),
        tuple((named[place], tasks[place].seconds) for place in settling),
    )


def _named(segment: Segment) -> list[int]:
    """The call of each task, by its identity; 0 for none."""
    return [id(step.pieces[0].call) if step.pieces[0].call else 0 for step in segment]


def _exposed(ran: Timeline, tasks: Sequence[Task], named: Sequence[int]) -> dict[int, Any]:
    """Seconds in which nothing computes, each the call's that was waited for: walked back from the end of each gap."""
    exposed: defaultdict[int, Any] = defaultdict(int)
    before: Any = 0
    for place, task in enumerate(tasks):
        if COMPUTE not in task.holds:
            continue
        if named[place]:
            exposed[named[place]] += task.seconds
        end, at = ran.starts[place], ran.bound(place)
        while end > before and at is not None:
            start = max(ran.starts[at], before)
            exposed[named[at]] += end - start
            end, at = start, ran.bound(at)
        before = ran.ends[place]
    return dict(exposed)


HOST = "host"
"""The lane that launches: a task waits until it has been launched, and the host goes on to the next."""


class Launched(NamedTuple):
    """Tasks as one, from (host, compute) free to free.

    issue    from the host to itself: all launches
    led      from the host to compute; -inf where nothing is launched
    through  from compute to compute, which waits for no launch
    """

    issue: Length = NOTHING
    led: Length = NEVER
    through: Length = NOTHING

    def then(self, other: Launched) -> Launched:
        """Both, one behind the other."""
        led = longer(self.led + other.through, self.issue + other.led)
        return Launched(self.issue + other.issue, led, self.through + other.through)

    def times(self, n: int) -> Launched:
        """The same n times over: the host leads by its first launches, or until its last."""
        led = self.led + longer(self.through, self.issue).times(n - 1)
        return Launched(self.issue.times(n), led, self.through.times(n))


def launched(tasks: Sequence[Task], issued: Sequence[Any], named: Sequence[int]) -> Launched:
    """Tasks in the order of issue.

    issued  seconds in which the host launches each
    named   its call, by identity; 0 for none
    """
    last = max((place for place, task in enumerate(tasks) if COMPUTE in task.holds), default=None)
    if last is None:
        return Launched(Length(total(issued)))
    alone = run(tasks)
    both: list[Task] = []
    for task, s in zip(tasks, issued, strict=True):
        after = tuple(2 * index + 1 for index in task.after)
        both += [Task((HOST,), (HOST,), s), task._replace(after=(len(both), *after))]
    late = max(alone.ends)  # a host that begins when all could have ended: it alone is waited for
    ran = run(both, {HOST: late})
    end = 2 * last + 1
    calls = [name for call in named for name in (0, call)]
    through = Length(alone.ends[last], path(alone, named, last))
    return Launched(Length(total(issued)), Length(ran.ends[end] - late, path(ran, calls, end)), through)
