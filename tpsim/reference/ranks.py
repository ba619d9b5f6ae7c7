"""The ranks of a pipeline: each runs its own order and holds its own stage; what it lacks comes by message alone.

Messages wait in mailboxes, one per sender, receiver and direction, first in first out. Where no rank can go on, the
pipeline is deadlocked, and every rank says what it waits for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpsim.program.lifetimes import Turn, in_microbatch
from tpsim.program.schedules import Action, Pass, PipelineSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tpsim.program.op import Op, Program
    from tpsim.reference.blocks import Blocks

Channel = tuple[int, int, str]
"""Sender, receiver, and the act that the message is of."""


@dataclass(slots=True)
class Ranks:
    """A program cut into stages, run rank by rank.

    turns  when each op of a microbatch has its turn, beside others of one rank
    do    runs one op on the devices that hold its chunk
    post  takes what a cut sends off its sender's devices
    take  puts it on the receiver's
    ended  is told of every action that a rank has run
    """

    program: Program
    schedule: PipelineSchedule
    turns: Mapping[Op, Turn]
    do: Callable[[Op], None]
    post: Callable[[Op], Blocks]
    take: Callable[[Op, Blocks], None]
    ended: Callable[[int], None]
    mail: dict[Channel, deque[tuple[Op, Blocks]]] = field(default_factory=lambda: defaultdict(deque))
    done: list[int] = field(default_factory=list)
    _work: dict[Pass, list[Op]] = field(default_factory=lambda: defaultdict(list))
    _cuts: dict[Pass, Op] = field(default_factory=dict)

    def run(self) -> None:
        """All of it: weights first, the orders of the ranks, then what follows once per step.

        Raises ValueError where no rank can go on, or a message comes before another that is wanted first.
        """
        inside = [at for at, op in enumerate(self.program.ops) if in_microbatch(op.where)] or [0]
        self._all(self.program.ops[: inside[0]])
        for op in self.turns:
            self._sort(op)
        self.done = [0] * self.schedule.ranks
        while sum(self._advanced(rank) for rank in range(self.schedule.ranks)):
            pass
        if stuck := [rank for rank in range(self.schedule.ranks) if self._next(rank)]:
            raise ValueError(f"deadlock: {'; '.join(map(self._waiting, stuck))}")
        self._all(self.program.ops[inside[-1] + 1 :])

    def _all(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self.do(op)

    def _sort(self, op: Op) -> None:
        """Whose work an op is; a cut is the message of the pass that makes what it sends."""
        where, (chunk,) = op.where, op.where.chunks
        part = Pass(where.act, chunk, where.microbatch or 0)  # type: ignore[arg-type]  # no update inside
        if where.place != "cut":
            self._work[part].append(op)
        elif (sender := self.schedule.wanted(part)) is not None:
            self._cuts[sender] = op

    def _next(self, rank: int) -> Action:
        order = self.schedule.orders[rank]
        return order[self.done[rank]] if self.done[rank] < len(order) else ()

    def _advanced(self, rank: int) -> bool:
        """True if the rank could run its next action."""
        action = self._next(rank)
        if not action or any(not self._arrived(rank, of) for of in self._wanted(action)):
            return False
        for of in self._wanted(action):
            self._receive(rank, of)
        self._all(sorted((op for part in action for op in self._work[part]), key=self.turns.__getitem__))
        for part in action:
            if part in self._cuts:
                channel = (rank, self.schedule.rank(self._cuts[part].where.chunks[0]), part.act)
                self.mail[channel].append((self._cuts[part], self.post(self._cuts[part])))
        self.done[rank] += 1
        self.ended(rank)
        return True

    def _wanted(self, action: Action) -> list[Pass]:
        return [of for part in action if (of := self.schedule.wanted(part))]

    def _arrived(self, rank: int, of: Pass) -> bool:
        return bool(self.mail[self.schedule.rank(of.chunk), rank, of.act])

    def _receive(self, rank: int, of: Pass) -> None:
        cut, blocks = self.mail[self.schedule.rank(of.chunk), rank, of.act].popleft()
        if cut is not self._cuts[of]:
            raise ValueError(f"rank {rank} wants {self._cuts[of].output} of {of}, another message comes first")
        self.take(cut, blocks)

    def _waiting(self, rank: int) -> str:
        action = self._next(rank)
        missing = next(of for of in self._wanted(action) if not self._arrived(rank, of))
        return f"rank {rank} waits for the message of {missing} before {action[0]}"
