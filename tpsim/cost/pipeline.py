"""The step: per rank its work, its rows and its waiting, from one pass over the orders of actions that were timed.

A plan without stages is a pipeline of one rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.cost.compute import Compute
from tpsim.cost.early import Gathered, begin_together, gathered, gathers_early, led
from tpsim.cost.meeting import Behind, behind
from tpsim.cost.orders import run
from tpsim.cost.ran import Path, Ran, Waits, around, turn_of
from tpsim.cost.rank_work import FullLinks, Lead, RankSpan, RankWork, Stage, Tail
from tpsim.cost.timed import Timed, added
from tpsim.program.lifetimes import in_microbatch
from tpsim.program.schedules import Action, Blocking, Pass, PipelineSchedule, in_flight, turns_of
from tpsim.program.stages import Stages
from tpsim.quantity.size import total

if TYPE_CHECKING:
    from tpsim.cost.actions import Actions
    from tpsim.cost.clock import Clock
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes

Hop = Callable[[int, int], Any]
"""Seconds on the way of what a cut sends from one rank to another."""

UNSENT = 0
"""In place of the call that sends, of a rank that sends none; no call has it as its id."""


class Told(NamedTuple):
    """What can be said of a step beside how long it is.

    stages   every rank in it
    counts   what its length hangs on: how often each pass and send stands on the path that is critical
    seconds  of one of each
    """

    stages: tuple[Stage, ...]
    counts: Mapping[str, int]
    seconds: Mapping[str, Any]

    @property
    def formula(self) -> str:
        """The critical path in symbols, as ``7*(F + B + W) + 24*(F_last + B_last + W_last) + 14*send``."""
        alike: dict[int, list[str]] = {}
        for name, count in self.counts.items():
            alike.setdefault(count, []).append(name)
        return " + ".join(map(_term, alike.keys(), alike.values()))


def _term(count: int, names: list[str]) -> str:
    joined = names[0] if len(names) == 1 else f"({' + '.join(names)})"
    return f"{count}*{joined}" if count != 1 else " + ".join(names)


@dataclass(frozen=True)
class Pipelined:
    """A step in stages.

    work     what its ranks had to do
    time_s   from the first action of the rank where that is longest until it has ended: so long after one step begins
             the next, which every rank starts on its own unless it waits for all others, as a norm makes it
    ended_s  from the first start of all until the last rank has ended
    pacing   the rank that time_s hangs on
    whole    what else there is to say; None: worked out when it is asked for
    """

    work: Work
    time_s: Any
    ended_s: Any
    pacing: Stage
    whole: Told | None = None

    @cached_property
    def ran(self) -> Ran:
        """When every action began and ended: so much that it is not kept, but run again for who looks at it."""
        return self.work.ran()

    @cached_property
    def told(self) -> Told:
        """Every rank, and what the length of the step hangs on."""
        return self.whole or self.work.step().told


@dataclass(frozen=True)
class Work:
    """What the ranks of a pipeline have to do.

    clock     every kernel and collective, and how long one takes; what is once per step a host launches together
    actions   the program's, as tasks
    hop       seconds of a message between two ranks
    blocking  whether messages hold their ranks up
    """

    schedule: PipelineSchedule
    stages: Stages
    clock: Clock
    actions: Actions
    hop: Hop
    blocking: Blocking = False

    def ran(self) -> Ran:
        """The pass over all orders."""
        return self._run(self.kinds)

    def _run(self, kinds: Sequence[Timed], due: Mapping[int, Any] = {}) -> Ran:
        """The same with what actions of each kind take, and when some have ended at the earliest."""
        taken = {
            example: kind.through.seconds for example, kind in zip(self.schedule.kinds.examples, kinds, strict=True)
        }
        begun, sent_s = self.begun, self._sent_s
        return run(self.schedule, taken.__getitem__, sent_s, blocking=self.blocking, due=due, begun=begun)

    def step(self, *, briefly: bool = False) -> Pipelined:
        """One step, as it takes its turn among steps that are alike; briefly: told of the rank that it hangs on."""
        ran = self.ran()
        full = [self._full(ran, rank) for rank in range(self.stages.ranks)]
        turn = around(ran, self.kinds) if self.in_turn else None
        spans = (
            [RankSpan(rank, 0, turn.seconds) for rank in range(self.stages.ranks)] if turn else self._spans(ran, full)
        )
        longest = max(spans, key=lambda span: span.seconds)
        spans = [span if span is longest else span._replace(lead_s=0) for span in spans]  # they wait for messages
        last = turn.rank if turn else max(self._meeting(longest.rank), key=lambda rank: self._met(full[rank]))
        due = {kind: self.gathered[kind].due for kind in self.waiting}
        path = Path(
            ran, longest.rank, last, self.stages.chunks, self.kinds, self.timed, self.hop, due, turn and turn.on_it
        )
        sends = {row.call.where.act: id(row.call) for row in self.clock.rows if row.call.where.place == "cut"}
        lead = full[longest.rank].lead if longest.lead_s else None
        begun = self.own[path.origin if any(self.begun) else longest.rank]
        pulls = path.pulls(
            [*self.own[last].single, *self.own[last].shared, *begun.behind], full[last].tail, sends, lead
        )
        if full[last].late_s:
            pulls = Counter({id(row.call): row.count for row in self.own[last].rows if full[last].wire in row.wires_s})
        asked = [spans[last]] if briefly else spans
        stages = {span.rank: self._stage(ran, full[span.rank], span, longest.seconds, pulls) for span in asked}
        whole = None
        if not briefly:
            counts, seconds = path.counts()
            once_s = 0 if turn else self._met(full[last]) + begun.behind_s - ran.done(last)
            for name, s in (("once", once_s), ("weights", longest.lead_s)):
                if s:
                    counts, seconds = {**counts, name: 1}, {**seconds, name: s}
            whole = Told((*stages.values(),), counts, seconds)
        ended_s = ran.end if turn else max(span.end for span in spans)
        return Pipelined(self, longest.seconds, ended_s, stages[last], whole)

    @cached_property
    def kinds(self) -> list[Timed]:
        """What an action of each kind takes, those that wait for their weights with that."""
        held = {kind: self.gathered[kind].held(self.plain[kind], s) for kind, s in self.waiting.items()}
        return [held.get(kind, plain) for kind, plain in enumerate(self.plain)]

    @cached_property
    def gathered(self) -> Mapping[int, Gathered]:
        """The kinds of actions that begin when their weights come, too, whenever a message does."""
        return gathered(self.schedule, self.stages.chunks, self.actions, self.clock)

    @cached_property
    def waiting(self) -> Mapping[int, Any]:
        """Of these kinds those that weights hold up, and what they take: one of a kind runs in a step."""
        if not self.gathered or not begin_together(self.actions):
            return {}
        ranks = {kind: self.schedule.rank(self.schedule.kinds.examples[kind][0].chunk) for kind in self.gathered}
        due = {kind: self.begun[ranks[kind]] + one.due for kind, one in self.gathered.items()}
        begun = chain.from_iterable(map(zip, self.schedule.kinds.of, self._run(self.plain, due).starts))
        return {
            kind: due[kind] - start
            for kind, start in begun
            if kind in due and start + self.plain[kind].through.seconds < due[kind]
        }

    @cached_property
    def plain(self) -> list[Timed]:
        """What an action of each kind takes by itself; those of chunks alike take as long."""
        chunks, last = [replace(chunk, rank=0) for chunk in self.stages.chunks], self.schedule.microbatches - 1
        examples = self.schedule.kinds.examples
        alike = [tuple([(act, chunks[at], j == 0, j == last) for act, at, j in action]) for action in examples]
        known = {key: self.timed(action) for key, action in dict(zip(alike, examples, strict=True)).items()}
        return [known[key] for key in alike]

    def timed(self, action: Action) -> Timed:
        """An action: passes of one chunk and microbatch are one list of tasks."""
        whole, last, early = Timed(), self.schedule.microbatches - 1, gathers_early(self.schedule, self.actions)
        for chunk, j, acts in turns_of(action):
            first = j == 0 and not early
            tasks = self.actions.action(self.stages.chunks[chunk], acts, first=first, last=j == last)
            whole = whole.then(self.clock.timed(tasks))
        return whole

    @cached_property
    def settling(self) -> frozenset[int]:
        """The kinds of actions behind which gradients are reduced."""
        return frozenset(kind for kind, timed in enumerate(self.kinds) if timed.settled)

    @cached_property
    def own(self) -> list[RankWork]:
        """What each rank does, wherever it stands in the order: ranks with chunks alike do alike."""
        alike = [tuple(replace(chunk, rank=0) for chunk in self.stages.of(rank)) for rank in range(self.stages.ranks)]
        known = {chunks: self._own(Stages(1, chunks)) for chunks in dict.fromkeys(alike)}
        return [known[chunks] for chunks in alike]

    @cached_property
    def begun(self) -> list[Any]:
        """When each rank begins a step: where all wait for a norm some have more to do behind it than others."""
        behind_s = [own.behind_s for own in self.own] if begin_together(self.actions) else [0] * self.stages.ranks
        return [s - min(behind_s) for s in behind_s]

    def _own(self, alone: Stages) -> RankWork:
        sizes = self.clock.sizes.of_stage(alone.loops(0))
        rows = tuple(self._rows(alone, sizes))
        every = [row for row in rows if not row.call.per_microbatch]
        late = behind(self.actions.ops, [row.call for row in every if row.call.shared], self.actions.beside_once)
        once = [row for row in every if not self.actions.beside_once(row.call)]
        own, shared = ([row for row in once if row.call.shared == is_shared] for is_shared in (False, True))
        single, after = ([row for row in own if late.call(row.call) == is_late] for is_late in (False, True))
        return RankWork(rows, *self._worked(alone, sizes, late), single, shared, after)

    def _rows(self, alone: Stages, sizes: Sizes) -> Iterator[Row]:
        for row in self.clock.rows:
            if often := self.actions.buckets.often(row.call, alone, 0):
                count = often * row.call.repeats(self.clock.sizes)
                yield replace(row, count=count, sizes=sizes, exposed_s=row.timing.time_s * count)

    def _worked(self, alone: Stages, sizes: Sizes, late: Behind) -> tuple[Compute, Any, Any]:
        """What a rank computes, and the seconds of it that are once per step, those that are late apart."""
        kernels = [kernel for kernel in self.clock.kernels if alone.runs(kernel.where, 0)]
        often, once = ([one for one in kernels if in_microbatch(one.where) == often] for often in (True, False))
        sorts = often, *([one for one in once if late.kernel(one) == is_late] for is_late in (False, True))
        parts = [self.clock.compute(sort, sizes) for sort in sorts]
        seconds = {phase: total(part.seconds[phase] for part in parts) for phase in parts[0].seconds}
        compute = Compute(seconds, [kernel for part in parts for kernel in part.kernels], sizes)
        return compute, parts[1].time_s, parts[2].time_s

    def _tail(self, ran: Ran, rank: int) -> Tail:
        """Gradients that are still being reduced when a rank has ended its order."""
        free: Any = 0
        path: list[tuple[int, Timed]] = []
        kinds = self.schedule.kinds.of[rank]
        for place, kind in enumerate(kinds if not self.settling.isdisjoint(kinds) else ()):
            if kind in self.settling:
                timed = self.kinds[kind]
                late, own = free + timed.busy.seconds, ran.starts[rank][place] + timed.tail.seconds
                path = path if late > own else []
                path.append((place, timed))
                free = max(late, own)
        return Tail(tuple(path), max(free - ran.done(rank), 0))

    def _full(self, ran: Ran, rank: int) -> FullLinks:
        """When a rank has done what it does alone: not before its links have sent all of it."""
        tail = self._tail(ran, rank)
        own = self.own[rank]
        once = total(row.busy_s for row in own.single) + own.once_s
        end = ran.done(rank) + tail.late_s + once
        lead = led(ran, rank, self.gathered) if self.gathered and not begin_together(self.actions) else Lead()
        wires, alone = own.wires_s, not (self.schedule.is_forward or own.shared_s)
        wire = max(wires, key=lambda name: wires[name], default="")
        span = end + own.behind_s - (ran.starts[rank][0] if alone else self.begun[rank]) + lead.seconds
        return FullLinks(rank, tail, wire, end, lead, max(wires.get(wire, 0) - span, 0))

    @property
    def in_turn(self) -> bool:
        """True where several microbatches are on their way forward: each takes its turn again once it has ended."""
        return self.schedule.is_forward and self.schedule.microbatches > 1

    def _meeting(self, rank: int) -> list[int]:
        """The ranks that a rank ends together with: all where the next step begins with what the last rank gives."""
        if self.schedule.is_forward:
            return [*range(len(self.own))]
        return [other for other, own in enumerate(self.own) if own.shared_s] if self.own[rank].shared_s else [rank]

    def _met(self, alone: FullLinks) -> Any:
        """When what a rank has together with others has ended, if it does not wait for them."""
        return alone.end + self.own[alone.rank].shared_s

    def _spans(self, ran: Ran, full: Sequence[FullLinks]) -> list[RankSpan]:
        """When every rank begins and has ended; full: what it does alone.

        What several stages have together begins when the last of them comes, what hangs on it when it has ended.
        """
        from_first, spans = self.schedule.is_forward, list[RankSpan]()
        for rank, (starts, own, alone) in enumerate(zip(ran.starts, self.own, full, strict=True)):
            end = max(self._met(full[other]) for other in self._meeting(rank)) + own.behind_s
            spans.append(RankSpan(rank, 0 if from_first else starts[0], end, alone.lead.seconds))
        return spans

    def _stage(self, ran: Ran, full: FullLinks, span: RankSpan, time_s: Any, pulls: Mapping[int, int]) -> Stage:
        """One rank in a step that takes so long: until its first action it waits from its end in the step before."""
        rank, idle, own = full.rank, time_s - span.seconds, self.own[full.rank]
        waits, met = ran.waits(rank, span.start - idle), span.end - own.behind_s - self._met(full)
        if self.in_turn:
            worked_s, sent_s, _ = turn_of(ran, self.kinds, rank)
            waits, met = Waits(time_s - worked_s - sent_s, {"F": sent_s}), 0
        walked = self._walked(waits, full, span.lead_s)
        rows = full.spread(
            [
                replace(row, exposed_s=self._exposed_s(row, walked[id(row.call)]), pulls=pulls.get(id(row.call), 0))
                for row in own.rows
            ]
        )
        first = 0 if ran.late[rank][0] else idle
        bubble_s = waits.wait_s + met + first + walked[UNSENT]
        in_order = 1.0 if self.schedule.is_forward else in_flight(self.schedule, rank)
        kinds = Counter(self.schedule.kinds.of[rank])
        host_s, late_s = (
            total(getattr(self.kinds[kind], part) * count for kind, count in kinds.items())
            for part in ("host_s", "stragglers_s")
        )
        layers = self.stages.layers(rank)
        alone_s = full.end, host_s, late_s, own.behind_s
        return Stage(rank, layers, tuple(rows), own.compute, bubble_s, in_order, *alone_s)

    def _walked(self, waits: Waits, full: FullLinks, lead_s: Any) -> Counter[int]:
        """Seconds that a rank waits for each collective beside compute, and for each message, by the call.

        For messages UNSENT where it sends none itself, as the last stage of inference does.
        """
        exposed: Counter[Any] = Counter(added(full.tail.exposed, full.lead.exposed(lead_s)))
        for kind, count in Counter(self.schedule.kinds.of[full.rank]).items():
            for call, seconds in self.kinds[kind].exposed.items():
                exposed[call] += seconds * count
        rows = self.own[full.rank].rows
        sent = {row.call.where.act: id(row.call) for row in rows if row.call.where.place == "cut"}
        # A rank at an end of the stack sends one way only, and receives the other way.
        calls: dict[str, int] = dict.fromkeys("FB", next(iter(sent.values()), UNSENT)) | sent
        for act, flight_s in waits.flight_s.items():
            exposed[calls[act]] += flight_s
        return exposed

    def _exposed_s(self, row: Row, walked: Any) -> Any:
        """Of what blocks all seconds; of what runs beside compute, and of messages, those walked back over."""
        return walked if row.call.where.place == "cut" or self.actions.hides(row.call) else row.busy_s

    def _sent_s(self, of: Pass) -> Any:
        """Seconds of a message from the rank that sends it to the one that it is for."""
        return self.hop(self.schedule.rank(of.chunk), self.schedule.rank(self.schedule.receiver(of) or 0))
