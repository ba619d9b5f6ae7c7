"""Memory over time: what the microbatches of a rank hold beside states, folded over the order of its actions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, islice
from math import lcm
from operator import add
from typing import TYPE_CHECKING, Any

from tpsim.cost.memory import held_bytes, moved_bytes
from tpsim.program.op import Array
from tpsim.program.schedules import PipelineSchedule, turns_of
from tpsim.program.turnover import Purpose, Turnover
from tpsim.quantity.size import largest, over, total

if TYPE_CHECKING:
    from tpsim.cost.sizes import Sizes
    from tpsim.program.keeps import BufferSize, Extra
    from tpsim.program.kinds import Layers
    from tpsim.program.lifetimes import Lifetimes
    from tpsim.program.stages import Chunk

Held = Counter[Purpose]
"""Bytes of each part."""


@dataclass(frozen=True, eq=False)
class Course:
    """What an action does to memory.

    top     bytes of all parts where they are most together, beside what stood before
    left    of all parts that it adds
    runs    what it changes
    at      where they are most: behind so many of these, in the next one so often done, and so far into it
    summed  what changes come to, part by part: worked out when it is asked for
    """

    top: Any
    left: Any
    runs: Runs
    at: tuple[int, int, int]
    summed: Callable[[Runs], Held]

    @cached_property
    def most(self) -> Held:
        """Bytes of each part where they are most together."""
        place, before, within = self.at
        run = self.runs[place][0]
        return self.summed([*self.runs[:place], (run, before), (run[:within], 1)])

    @cached_property
    def net(self) -> Held:
        """Of each part what is more, or less, when it ends."""
        return self.summed(self.runs)


@dataclass(frozen=True)
class Peak:
    """Where a rank holds most, beside states.

    total   bytes there
    passed  courses of actions that have ended by then
    kinds   of its actions, in order
    does    what each kind does to memory, one behind the other
    """

    total: Any
    passed: int
    kinds: Sequence[int]
    does: Mapping[int, Sequence[Course]] = field(compare=False)

    @property
    def action(self) -> int:
        """Its place in the order of the rank."""
        return next(islice((place for place, _ in self._run), self.passed, None))

    @cached_property
    def parts(self) -> Held:
        """Bytes of each part."""
        run = [course for _, course in self._run]
        before: Held = Held()
        for course, times in Counter(run[: self.passed]).items():
            before = _plus(before, course.net, times)
        return _plus(before, run[self.passed].most, 1)

    @property
    def course(self) -> list[tuple[int, Any, Any]]:
        """Of every action its place, the bytes at its highest point, and those when it ends: worked out when asked."""
        run = [*self._run]
        levels = accumulate((course.left for _, course in run), initial=0)
        return [(place, now + course.top, now + course.left) for now, (place, course) in zip(levels, run, strict=False)]

    @property
    def _run(self) -> Iterator[tuple[int, Course]]:
        return ((place, course) for place, kind in enumerate(self.kinds) for course in self.does[kind])

    @property
    def kept(self) -> Any:
        """Bytes that later actions read."""
        return self.parts["kept"]


def peak(courses: Courses, schedule: PipelineSchedule, rank: int, chunks: Sequence[Chunk]) -> Peak:
    """The order of a rank folded: what every action leaves behind stands beside the next.

    chunks  of the whole stack, by number
    """
    kinds, examples = schedule.kinds.of[rank], schedule.kinds.examples
    known = {
        # Passes of one microbatch in one chunk keep nothing for each other.
        kind: [courses.of(chunks[chunk], acts) for chunk, _, acts in turns_of(examples[kind])]
        for kind in {*kinds}
    }
    unlike = {id(course): course for courses_ in known.values() for course in courses_}
    left, top, unit = _in_units([(course.left, course.top) for course in unlike.values()])
    numbers = {key: number for number, key in enumerate(unlike)}
    run = [numbers[id(course)] for kind in kinds for course in known[kind]]
    levels = accumulate(map(left.__getitem__, run), initial=0)
    tops = list(map(add, levels, map(top.__getitem__, run)))
    highest = max(tops)
    return Peak(over(highest, unit), tops.index(highest), kinds, known)


def _in_units(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any], int]:
    """Exact numbers as multiples of a unit, and how many units make one: sums of shares would be reduced every time."""
    exact = all(isinstance(each, int | Fraction) for pair in pairs for each in pair)
    unit = lcm(*(each.denominator for pair in pairs for each in pair)) if exact else 1
    left, top = ([int(each * unit) for each in some] if exact else [*some] for some in zip(*pairs, strict=True))
    return left, top, unit


@dataclass(frozen=True, eq=False)
class Temporary:
    """What stands beside arrays for a while; size: its bytes."""

    size: Any


Changes = Sequence[tuple[Array | Temporary, int]]
"""One after the other what grows or shrinks memory: 1 where it comes, -1 where it goes."""

Runs = Sequence[tuple[Changes, int]]
"""Changes in order, each with how often they repeat."""


@dataclass(frozen=True)
class Courses:
    """What every kind of action does to memory.

    turnover  what they make and free, in a program with one traced layer and cut
    buffers   as `tpsim.cost.memory.held_in` has them
    """

    turnover: Turnover
    sizes: Sizes
    keeps: Sequence[Extra] = ()
    buffers: Mapping[BufferSize, Any] = field(default_factory=dict)
    _known: dict[tuple[Layers, bool, bool, str], Course] = field(default_factory=dict)
    _each: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def lifetimes(self) -> Lifetimes:
        """The arrays of its microbatches."""
        return self.turnover.lifetimes

    def of(self, chunk: Chunk, acts: str) -> Course:
        """One microbatch through a chunk in acts that run as one: F, B, W or BW."""
        key = chunk.stack, chunk.first, chunk.last, acts
        if key not in self._known:
            self._known[key] = self._course(self.changes(chunk, acts), acts)
        return self._known[key]

    def _course(self, runs: Runs, acts: str) -> Course:
        """The highest point of a row of changes: of those that repeat alike, it is in the first run or in the last."""
        unlike = {id(run): run for run, _ in runs}  # of layers that take turns each kind stands there many times
        levels = {name: [*accumulate(sign * self.bytes_of(what) for what, sign in run)] for name, run in unlike.items()}
        level, top, at = 0, 0, (0, 0, 0)
        for place, (run, times) in enumerate(runs):
            if (steps := levels[id(run)]) and times:
                highest_step, net = max(steps), steps[-1]
                for before in (0, times - 1):
                    if (here := level + net * before + highest_step) > top:
                        top, at = here, (place, before, steps.index(highest_step) + 1)
                level += net * times
        return Course(top, level, runs, at, partial(self._summed, acts))

    def _summed(self, acts: str, runs: Runs) -> Held:
        held: defaultdict[Purpose, Any] = defaultdict(int)
        for run, times in runs:
            for what, sign in run:
                part: Purpose = "buckets" if isinstance(what, Temporary) else self.turnover.purpose(what, acts)
                held[part] += sign * self.bytes_of(what) * times
        return Held(held)

    def changes(self, chunk: Chunk, acts: str) -> list[tuple[Changes, int]]:
        """What grows and shrinks, in order, and how often that repeats: as `Turnover.runs`, with buffers."""
        runs: list[tuple[Changes, int]] = [*self.turnover.runs(chunk, acts)]
        whole, within = self._buffered(chunk, acts)
        if within:  # while layers run
            runs[2], runs[-2] = ([*within, *runs[2][0]], 1), ([*_undone(within), *runs[-2][0]], 1)
        if whole:
            runs[0], runs[-1] = ([*whole, *runs[0][0]], 1), ([*runs[-1][0], *_undone(whole)], 1)
        return runs

    def _buffered(self, chunk: Chunk, acts: str) -> tuple[Changes, Changes]:
        """The buffers of a whole action, and those that are there while its layers run: as large as the largest."""
        size: BufferSize = "gathered" if acts == "F" else "reduced"
        sizes = [size for of, size in self.buffers.items() if of == "bucket" and acts != "F"]
        kinds = [kind for kind, times in chunk.stack if times and size in self.buffers]
        sums = [self._moved(kind, acts) for kind in kinds]
        within = [self.buffers[size] * largest(*sums)] if kinds else []
        return [(Temporary(size), 1) for size in sizes], [(Temporary(size), 1) for size in within]

    def _moved(self, kind: str, acts: str) -> Any:
        """Bytes that a layer of a kind gathers, or scatters."""
        if (kind, acts) not in self._each:
            layer = self.turnover.layer(kind, acts)
            self._each[kind, acts] = total(moved_bytes(op, self.sizes) for run in layer for op in run)
        return self._each[kind, acts]

    def bytes_of(self, what: Array | Temporary) -> Any:
        """Bytes on one device; none of gradients of layers where these lie in a buffer."""
        if isinstance(what, Temporary):
            return what.size
        if what not in self._each:
            self._each[what] = self._bytes(what)
        return self._each[what]

    def _bytes(self, array: Array) -> Any:
        lies = array.role == "gradient" and "reduced" in self.buffers
        if lies and self.lifetimes.makers[array].where.layer is not None:
            return 0
        return held_bytes(array, self.sizes, self.keeps, self.lifetimes)


class Activations(Courses):
    """The same of arrays of tokens alone, which are there at every ZeRO stage: weights and their gradients are not."""

    def _bytes(self, array: Array) -> Any:
        return super()._bytes(array) if "b" in array.dims or array.filled else 0


def highest(courses: Courses, chunk: Chunk, acts: str) -> Any:
    """The bytes at the highest point of an action, numbers or arrays; of one alone `Course` knows the parts."""
    level, top = 0, 0
    for run, times in courses.changes(chunk, acts):
        changes = [sign * courses.bytes_of(what) for what, sign in run]
        net = total(changes)
        for before in sorted({0, times - 1} if times else ()):
            top = largest(top, *accumulate(changes, initial=level + net * before))
        level = level + net * times
    return top


def _undone(changes: Changes) -> Changes:
    return [(what, -sign) for what, sign in changes]


def _plus(standing: Held, net: Mapping[Purpose, Any], times: int) -> Held:
    return Held({part: standing[part] + times * net.get(part, 0) for part in (*standing, *net)})
