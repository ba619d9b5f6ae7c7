"""Memory over time: what the microbatches of a rank hold beside states, folded over the order of its actions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, compress, groupby, islice, zip_longest
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any, Literal

from tpsim.cost.kept import held_bytes
from tpsim.cost.memory import moved_bytes
from tpsim.program.lifetimes import Lifetimes, is_gather, lifetimes
from tpsim.program.op import Array, Op, Reshard
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.size import largest, total

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from tpsim.cost.sizes import Sizes
    from tpsim.program.keeps import BufferSize, Extra
    from tpsim.program.kinds import Layers
    from tpsim.program.op import Program
    from tpsim.program.schedules import Action, PipelineSchedule

Part = Literal["kept", "weights", "logits", "received", "gradients", "buckets", "activations"]
"""What bytes beside states are of: arrays that a later action reads; else gathered weights, arrays over the vocabulary,
what another stage sent, gradients on their way to where they are added up, buffers that these or weights lie in, all
other arrays of an action."""

Held = Counter[Part]
"""Bytes of each part."""

Changes = Sequence[tuple[Part, Any]]
"""What grows and shrinks, one after the other: its part, and by how much."""

Ops = tuple[Op, ...]


@dataclass(frozen=True, eq=False)
class Course:
    """What an action does to memory.

    most  bytes of each part where they are most together, beside what stood before
    net   what is more, or less, when it ends
    """

    most: Held
    net: Held

    @cached_property
    def top(self) -> Any:
        """Bytes of all parts where they are most."""
        return total(self.most.values())

    @cached_property
    def left(self) -> Any:
        """Bytes of all parts that it adds."""
        return total(self.net.values())


@dataclass(frozen=True, slots=True)
class Peak:
    """Where a rank holds most, beside states.

    action  its place in the order of the rank
    parts   bytes of each part there
    kinds   of its actions, in order
    does    what each kind does to memory, one behind the other
    """

    action: int
    parts: Held
    kinds: Sequence[int]
    does: Mapping[int, Sequence[Course]] = field(compare=False)

    @property
    def course(self) -> list[tuple[int, Any, Any]]:
        """Of every action its place, the bytes at its highest point, and those when it ends: worked out when asked."""
        run = [(place, course) for place, kind in enumerate(self.kinds) for course in self.does[kind]]
        levels = accumulate((course.left for _, course in run), initial=0)
        return [(place, now + course.top, now + course.left) for now, (place, course) in zip(levels, run, strict=False)]

    @property
    def total(self) -> Any:
        """Bytes of all parts."""
        return total(self.parts.values())

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
        kind: [courses.of(chunks[chunk], acts) for chunk, acts in _taken_together(examples[kind])] for kind in {*kinds}
    }
    places = (place for place, kind in enumerate(kinds) for _ in known[kind])
    run = [course for kind in kinds for course in known[kind]]
    levels = list(accumulate(map(attrgetter("left"), run), initial=0))
    tops = list(map(add, levels, map(attrgetter("top"), run)))
    passed = tops.index(max(tops))
    before: Held = Held()
    for course, times in Counter(run[:passed]).items():
        before = _plus(before, course.net, times)
    return Peak(next(islice(places, passed, None)), _plus(before, run[passed].most, 1), kinds, known)


def _taken_together(action: Action) -> Iterator[tuple[int, str]]:
    """The acts that one microbatch goes through in one chunk within an action: for each other they keep nothing."""
    for (chunk, _), parts in groupby(action, key=lambda part: (part.chunk, part.microbatch)):
        yield chunk, "".join(part.act for part in parts)


@dataclass(frozen=True)
class Courses:
    """What every kind of action does to memory, from a program with one traced layer and cut.

    buffers  as `tpsim.cost.memory.held_in` has them
    """

    program: Program
    sizes: Sizes
    keeps: Sequence[Extra] = ()
    buffers: Mapping[BufferSize, Any] = field(default_factory=dict)
    _known: dict[tuple[Layers, bool, bool, str], Course] = field(default_factory=dict)
    _found: dict[Hashable, Any] = field(default_factory=dict)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """The arrays of its microbatches."""
        return lifetimes(self.program)

    def of(self, chunk: Chunk, acts: str) -> Course:
        """One microbatch through a chunk in acts that run as one: F, B, W or BW."""
        key = chunk.stack, chunk.first, chunk.last, acts
        if key not in self._known:
            self._known[key] = _course(self.changes(chunk, acts))
        return self._known[key]

    @cached_property
    def _has_backward(self) -> bool:
        """False for a step of inference."""
        return any(op.where.act != "F" for op in self.lifetimes.turns)

    @cached_property
    def _turns(self) -> dict[str, list[Op]]:
        """The ops of each part of the stack in turn: of layers by their kind, of the ends of the stack, of cuts."""
        sorts: dict[str, list[Op]] = defaultdict(list)
        for op in sorted(self.lifetimes.turns, key=self.lifetimes.turns.__getitem__):
            layer = op.where.index("layers") is not None
            sorts[op.where.kind if layer else "cut" if op.where.place == "cut" else "ends"].append(op)
        return sorts

    def changes(self, chunk: Chunk, acts: str) -> Iterator[tuple[Changes, int]]:
        """What grows and shrinks, in order, and how often that repeats: what is received, ends, layers, what is sent.

        A layer reads what the one before it hands on, and that is as large as what it is handed itself: so its own
        changes, repeated, are those of all layers.
        """
        layers = [(self._layer(kind, acts), times) for kind, times in chunk.stack if times]
        layers = layers if acts == "F" else layers[::-1]
        before, after = self._around(chunk.first, chunk.last, tuple([kind for kind, _ in chunk.stack]), acts)
        got, sent = self._messages(chunk, acts)
        parts = ((before, 1), *_in_turn(layers, self.program.ahead), (after, 1))
        runs = [(self._once(("all", ops, acts), partial(self._all, self._changes, ops, acts)), n) for ops, n in parts]
        came = self._once(("got", got, acts), partial(self._all, self._came, got, acts))
        gone = self._once(("sent", sent, acts), partial(self._all, self._freed, sent, acts))
        whole, within = self._buffered(chunk, acts)
        if within:  # while layers run
            runs[1], runs[-1] = ([*within, *runs[1][0]], runs[1][1]), ([*_undone(within), *runs[-1][0]], runs[-1][1])
        yield [*whole, *came] if whole else came, 1
        yield from runs
        yield [*gone, *_undone(whole)] if whole else gone, 1

    def _buffered(self, chunk: Chunk, acts: str) -> tuple[list[tuple[Part, Any]], list[tuple[Part, Any]]]:
        """The buffers of a whole action, and those that are there while its layers run: as large as the largest."""
        size: BufferSize = "gathered" if acts == "F" else "reduced"
        sizes = [size for of, size in self.buffers.items() if of == "bucket" and acts != "F"]
        kinds = [kind for kind, times in chunk.stack if times and size in self.buffers]
        sums = [total(moved_bytes(op, self.sizes) for run in self._layer(kind, acts) for op in run) for kind in kinds]
        within = [self.buffers[size] * largest(*sums)] if kinds else []
        return [("buckets", size) for size in sizes], [("buckets", size) for size in within]

    def _all(self, changes_of: Callable[[Op, str], Iterable[tuple[Part, Any]]], ops: Ops, acts: str) -> Changes:
        """What some ops change, one after the other."""
        return [change for op in ops for change in changes_of(op, acts)]

    def _once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        if key not in self._found:
            self._found[key] = compute()
        return self._found[key]

    def _around(self, first: bool, last: bool, kinds: tuple[str, ...], acts: str) -> tuple[Ops, Ops]:
        """The ops of the ends that a chunk has: those before its layers, and those behind them."""

        def split() -> tuple[Ops, Ops]:
            chunk = Chunk(0, (), first, last)
            alone = Stages(1, (chunk,))
            here = [op for op in self._turns["ends"] if op.where.act in acts and alone.times(op.where, chunk)]
            turns = [self.lifetimes.turns[op] for kind in kinds for run in self._layer(kind, acts) for op in run]
            begin = min(turns, default=(len(self.program.ops),))
            ahead = [_is_ahead(op, traced=self.lifetimes.turns[op] < begin) for op in here]
            return tuple(compress(here, ahead)), tuple(op for op, flag in zip(here, ahead, strict=True) if not flag)

        return self._once(("around", first, last, kinds, acts), split)  # type: ignore[no-any-return]  # put there

    def _layer(self, kind: str, acts: str) -> tuple[Ops, Ops]:
        """The gathers of a layer, and its other ops, in turn."""

        def split() -> tuple[Ops, Ops]:
            ops = [op for op in self._turns[kind] if op.where.act in acts]
            gathers = [is_gather(op) for op in ops]
            return tuple(compress(ops, gathers)), tuple(op for op, flag in zip(ops, gathers, strict=True) if not flag)

        return self._once(("layer", kind, acts), split)  # type: ignore[no-any-return]  # put there

    def _messages(self, chunk: Chunk, acts: str) -> tuple[Ops, Ops]:
        """The cuts over which a chunk receives, and over which it sends."""
        cuts = [op for op in self._turns["cut"] if op.where.act in acts]
        forward, backward = ([op for op in cuts if (op.where.act == "F") == ahead] for ahead in (True, False))
        got = ([] if chunk.first else forward) + ([] if chunk.last else backward)
        return (*got,), (*([] if chunk.last else forward), *([] if chunk.first else backward))

    def _changes(self, op: Op, acts: str) -> Changes:
        """What an op adds and frees, in whatever chunk it runs."""
        return self._once((op, acts), lambda: [*self._changed(op, acts)])  # type: ignore[no-any-return]  # put there

    def _came(self, op: Op, acts: str) -> Iterator[tuple[Part, Any]]:
        """What a message brings."""
        yield self._part(op.output, acts), self._bytes(op.output)

    def _changed(self, op: Op, acts: str) -> Iterator[tuple[Part, Any]]:
        if op.output in self.lifetimes.makers:
            yield self._part(op.output, acts), self._bytes(op.output)
        yield from self._freed(op, acts)
        if op.output in self.lifetimes.makers and not self.lifetimes.readers[op.output]:
            yield self._part(op.output, acts), -self._bytes(op.output)

    def _freed(self, op: Op, acts: str) -> Iterator[tuple[Part, Any]]:
        """What `op` reads as the last one."""
        for home in self.lifetimes.read_by(op):
            if self._last(home, acts) is op:
                yield self._part(home, acts), -self._bytes(home)

    def _last(self, array: Array, acts: str) -> Op:
        """The reader that comes last: where acts do not run as one, each is behind all of the one before."""
        turn = {"F": 0, "B": 1, "W": 1 if {"B", "W"} <= set(acts) else 2}
        return max(self.lifetimes.readers[array], key=lambda op: (turn[op.where.act], self.lifetimes.turns[op]))

    def _bytes(self, array: Array) -> Any:
        """None of gradients of layers where these lie in a buffer."""
        if (
            array.role == "gradient"
            and "reduced" in self.buffers
            and self.lifetimes.makers[array].where.index("layers") is not None
        ):
            return 0
        return self._once(array, lambda: held_bytes(array, self.sizes, self.keeps, self.lifetimes))

    def _part(self, array: Array, acts: str) -> Part:
        maker, readers = self.lifetimes.makers[array], self.lifetimes.readers[array]
        if array.role == "param":
            return "weights"
        if array.role == "gradient":
            return "gradients"
        if self.lifetimes.handed_on(array):
            return "kept" if maker.where.act == "F" and self._has_backward else "activations"
        if any(op.where.act != maker.where.act and {op.where.act, maker.where.act} != set(acts) for op in readers):
            return "kept"
        if isinstance(maker, Reshard) and maker.where.place == "cut":
            return "received"
        return "logits" if {"b", "v"} <= set(array.dims) else "activations"


def _in_turn(layers: Sequence[tuple[tuple[Ops, Ops], int]], ahead: int) -> Iterator[tuple[Ops, int]]:
    """The ops of layers, and how often they follow themselves: each gathers for the layer so many behind it, too."""
    row = [at for at, (_, times) in enumerate(layers) for _ in range(times)]
    gathers, own = ([kind[sort] for kind, _ in layers] for sort in (0, 1))
    yield tuple(op for at in row[:ahead] for op in gathers[at]), 1
    for (at, behind), alike in groupby(zip_longest(row, row[ahead:])):
        yield (*(gathers[behind] if behind is not None else ()), *own[at]), len(list(alike))


def _undone(changes: Sequence[tuple[Part, Any]]) -> list[tuple[Part, Any]]:
    return [(part, -change) for part, change in changes]


def _is_ahead(op: Op, traced: bool) -> bool:
    """True for what stands before the layers of its chunk: as traced, but for the sides of a cut, which is one."""
    where = op.where
    return (where.act == "F") == (where.chunks[0] > 0) if where.place == "side" else traced


def _course(changes: Iterable[tuple[Sequence[tuple[Part, Any]], int]]) -> Course:
    """The highest point of a row of changes: of those that repeat alike, it is in the first run or in the last."""
    standing, most, top = Held(), Held(), 0
    for run, times in changes:
        start, net = Held(standing), _sum(run)
        for before in sorted({0, times - 1} if times else ()):
            standing = _plus(start, net, before)
            for part, change in run:
                standing[part] += change
                if (here := total(standing.values())) > top:
                    top, most = here, Held(standing)
        standing = _plus(start, net, times)
    return Course(most, standing)


def highest(changes: Iterable[tuple[Sequence[tuple[Part, Any]], int]]) -> Any:
    """The bytes at the highest point of a row of changes, numbers or arrays; of one alone `_course` knows the parts."""
    level, top = 0, 0
    for run, times in changes:
        net = total(change for _, change in run)
        for before in sorted({0, times - 1} if times else ()):
            steps = accumulate((change for _, change in run), initial=level + net * before)
            top = largest(top, *steps)
        level = level + net * times
    return top


def _sum(run: Iterable[tuple[Part, Any]]) -> Mapping[Part, Any]:
    net = Held()
    for part, change in run:
        net[part] += change
    return net


def _plus(standing: Held, net: Mapping[Part, Any], times: int) -> Held:
    return Held({part: standing[part] + times * net.get(part, 0) for part in (*standing, *net)})
