"""The step of a pipeline: per rank its work, its rows and its waiting, from one pass over the orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tpsim.cost.compute import Compute, compute, kernel_s
from tpsim.cost.timeline import Message, Ran, run
from tpsim.program.stages import Stages
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.cost.kernels import Kernel
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.profile import Machine
    from tpsim.program.schedules import Order, Pass, PipelineSchedule
    from tpsim.program.stages import Chunk

Hop = Callable[[int, int], Any]
"""Seconds on the way of what a cut sends from one rank to another."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One rank of the pipeline in a step.

    rows       the collectives that it takes part in, its own calls counted; what it waits for a message that is on its
               way is exposed, sent or received
    compute    its products
    bubble_s   seconds in which it waits for other ranks, from the step's start to its end
    in_flight  microbatches of all its chunks between forward and backward, at most
    """

    rank: int
    layers: int
    rows: tuple[Row, ...]
    compute: Compute
    bubble_s: Any
    in_flight: float

    @property
    def exposed_s(self) -> Any:
        """Seconds of its communication that no compute hides."""
        return total(row.exposed_s for row in self.rows)


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A step in stages.

    time_s   from the step's start until the last rank has ended
    counts   what that hangs on: how often each pass and send stands on the path that is critical
    seconds  of one of each
    """

    ran: Ran
    stages: tuple[Stage, ...]
    time_s: Any
    counts: Mapping[str, int]
    seconds: Mapping[str, Any]

    @property
    def pacing(self) -> Stage:
        """The rank that waits least: it sets the pace."""
        return min(self.stages, key=lambda stage: stage.bubble_s)

    @property
    def formula(self) -> str:
        """The critical path in symbols, as ``7*(F + B + W) + 24*(F_last + B_last + W_last) + 14*send``."""
        alike: dict[int, list[str]] = {}
        for name, count in self.counts.items():
            alike.setdefault(count, []).append(name)
        return " + ".join(map(_term, alike.keys(), alike.values()))


def _term(count: int, names: list[str]) -> str:
    joined = names[0] if len(names) == 1 else f"({' + '.join(names)})"
    return f"{count}*{joined}" if count > 1 else " + ".join(names)


@dataclass(frozen=True, slots=True)
class Work:
    """What the ranks of a pipeline have to do.

    rows      every collective once, priced
    kernels   every kernel
    hop       seconds of a message between two ranks
    """

    schedule: PipelineSchedule
    stages: Stages
    sizes: Sizes
    rows: Sequence[Row]
    kernels: Sequence[Kernel]
    machine: Machine
    dtype: str
    efficiency: float | None
    hop: Hop

    def step(self) -> Pipelined:
        """One step; all ranks end it together."""
        alike = cache(self._seconds)
        passes = {
            (k, act): alike(replace(chunk, rank=0), act) for k, chunk in enumerate(self.stages.chunks) for act in "FBW"
        }
        ran = run(
            self.schedule,
            lambda action: total(passes[part.chunk, part.act] for part in action),
            lambda of: self.hop(*self._ends_of(of)),
        )
        ends, last = self._ends(ran)
        counts, seconds = self._critical(ran, passes, last)
        once = ends[last] - ran.done(last)
        if once:
            counts, seconds = {**counts, "once": 1}, {**seconds, "once": once}
        time_s = max(ends)
        stages = tuple(self._stage(ran, rank, time_s) for rank in range(self.stages.ranks))
        return Pipelined(ran, stages, time_s, counts, seconds)

    def _seconds(self, chunk: Chunk, act: str) -> Any:
        """One microbatch through a chunk in one act: its kernels and the collectives between them, which block."""
        kernels = ((one.where, self._kernel_s(one)) for one in self.kernels)
        calls = ((row.call.where, row.timing.time_s) for row in self.rows)
        return total(
            seconds * self.stages.times(where, chunk)
            for where, seconds in (*kernels, *calls)
            if where.act == act and where.place != "cut" and where.index("microbatches") is not None
        )

    def _kernel_s(self, one: Kernel) -> Any:
        return kernel_s(one, self.sizes, self.machine, self.dtype, self.efficiency)

    def _rows(self, rank: int) -> Iterator[Row]:
        """The collectives of a rank with its calls."""
        for row in self.rows:
            if often := self.stages.count(row.call.where, rank):
                count, sizes = often * row.call.repeats(self.sizes), self.sizes.of_stage(self.stages.layers(rank))
                yield replace(row, count=count, sizes=sizes, exposed_s=row.timing.time_s * count)

    def _once_s(self, rank: int) -> Any:
        """Seconds of what a rank computes once per step: its update."""
        once = [one for one in self.kernels if one.where.index("microbatches") is None]
        return self._worked(once, self.stages.of(rank)).time_s

    def _ends(self, ran: Ran) -> tuple[list[Any], int]:
        """When every rank has done what follows its order once per step, and the rank that all of it hangs on.

        What several stages have together begins when the last of them comes.
        """
        own, shared = [], []
        for rank in range(self.stages.ranks):
            once = [row for row in self._rows(rank) if not row.call.per_microbatch]
            together = total(row.busy_s for row in once if row.call.shared)
            own.append(ran.done(rank) + self._once_s(rank) + total(row.busy_s for row in once if not row.call.shared))
            shared.append(together)
        met = max((end for end, together in zip(own, shared, strict=True) if together), default=0)
        ends = [met + together if together else end for end, together in zip(own, shared, strict=True)]
        last = max(range(len(ends)), key=lambda rank: (ends[rank], own[rank]))
        return ends, last

    def _worked(self, kernels: Sequence[Kernel], chunks: Sequence[Chunk]) -> Compute:
        """Those kernels that a rank with these chunks runs."""
        alone = Stages(1, tuple(replace(chunk, rank=0) for chunk in chunks))
        mine = [one for one in kernels if alone.runs(one.where, 0)]
        return compute(mine, self.sizes.of_stage(alone.layers(0)), self.machine, self.dtype, self.efficiency)

    def _stage(self, ran: Ran, rank: int, time_s: Any) -> Stage:
        gaps = ran.gaps[rank]
        flights: Counter[str] = Counter()
        rows = list(self._rows(rank))
        sent = [row.call.where.act for row in rows if row.call.where.place == "cut"]
        for gap in gaps:
            if gap.message:  # a rank at an end of the stack sends one way only, and receives the other way
                flights[gap.message.of.act if gap.message.of.act in sent else sent[0]] += gap.flight_s
        rows = [
            replace(row, exposed_s=flights[row.call.where.act]) if row.call.where.place == "cut" else row
            for row in rows
        ]
        layers = self.stages.layers(rank)
        work = self._worked(self.kernels, self.stages.of(rank))
        once = total(row.exposed_s for row in rows if not row.call.per_microbatch)
        waits = total(gap.wait_s for gap in gaps) + (time_s - ran.done(rank) - self._once_s(rank) - once)
        return Stage(
            rank, layers, tuple(rows), work, waits, in_flight(self.schedule.orders[rank], self.schedule.chunks)
        )

    def _critical(
        self, ran: Ran, passes: Mapping[tuple[int, str], Any], last: int
    ) -> tuple[dict[str, int], dict[str, Any]]:
        """How often each pass and each send stands on the path to the end of rank `last`, and the seconds of each."""
        counts: Counter[str] = Counter()
        seconds: dict[str, Any] = {}
        path = list(ran.critical(last))
        apart = len({self.hop(*self._ends_of(one.of)) for one in path if isinstance(one, Message)}) > 1
        for one in path:
            if isinstance(one, Message):
                source, target = self._ends_of(one.of)
                named = [(f"send_{source}_{target}" if apart else "send", self.hop(source, target))]
            else:
                rank, place = one
                parts = self.schedule.orders[rank][place]
                named = [(self._name(part.act, part.chunk), passes[part.chunk, part.act]) for part in parts]
            for name, s in named:
                counts[name] += 1
                seconds[name] = s
        order = sorted(counts, key=lambda name: (name.startswith("send"), name.partition("_")[2], "FBW".find(name[0])))
        return {name: counts[name] for name in order}, seconds

    def _ends_of(self, of: Pass) -> tuple[int, int]:
        """The rank that sends a message, and the one that it is for."""
        return self.schedule.rank(of.chunk), self.schedule.rank(self.schedule.receiver(of) or 0)

    def _name(self, act: str, chunk: int) -> str:
        one, inside = self.stages.chunks[chunk], self.stages.chunks[1:-1]
        apart = len({other.layers for other in inside}) > 1
        return act + ("_first" if one.first else "_last" if one.last else f"_{one.layers}" if apart else "")


def in_flight(order: Order, chunks: int, *, until_b: float = 1, until_w: float = 0) -> float:
    """What a rank keeps at most, in microbatches of all its chunks.

    until_b, until_w  what a microbatch keeps from its forward to its B, and from there to its W
    """
    step = {"F": until_b, "B": until_w - until_b, "W": -until_w}
    held = most = 0.0
    for action in order:
        held += total(step[part.act] for part in action) / chunks
        most = max(most, held)
    return most
