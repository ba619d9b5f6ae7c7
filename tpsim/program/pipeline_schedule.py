"""A pipeline's schedule as a value: the orders of its ranks, and what they must hold to be run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import TYPE_CHECKING, Literal, NamedTuple

from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping


class Pass(NamedTuple):
    """One microbatch through one chunk: forward, backward to the stream's cotangent, or to gradients of parameters."""

    act: Literal["F", "B", "W"]
    chunk: int
    microbatch: int

    def __str__(self) -> str:
        """As messages name it: ``F of chunk 2, microbatch 5``."""
        return f"{self.act} of chunk {self.chunk}, microbatch {self.microbatch}"


STEP: Mapping[str, int] = {"F": 1, "B": -1, "W": 0}
"""How far the chunk lies that a pass hands its result to; nothing leaves W."""


Action = tuple[Pass, ...]
"""Passes that a rank runs as one: what they send leaves when all have ended. (B, W) is the whole backward."""


Order = tuple[Action, ...]
"""What one rank runs, one action after the other."""


class Kinds(NamedTuple):
    """Actions that are alike but for their microbatches, of which only the first and the last are told apart.

    examples  an action of each kind
    of        per rank the kind of each of its actions, by number
    """

    examples: list[Action]
    of: list[list[int]]


@dataclass(frozen=True)
class PipelineSchedule:
    """The orders of all ranks.

    chunks    of layers on each rank; chunk k of all lies on rank k mod the number of ranks
    blocking  True if those who run it let sends hold their ranks up
    """

    name: str
    chunks: int
    microbatches: int
    orders: tuple[Order, ...]
    blocking: bool = False

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of its actions, in the order in which they are met."""
        last, of = self.microbatches - 1, list[list[int]]()
        numbers: dict[Hashable, int] = {}
        examples: list[Action] = []
        for order in self.orders:
            of.append([])
            for action in order:
                key = tuple([(act, chunk, j == 0, j == last) for act, chunk, j in action])
                if key not in numbers:
                    numbers[key] = len(examples)
                    examples.append(action)
                of[-1].append(numbers[key])
        return Kinds(examples, of)

    @property
    def ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.orders)

    def rank(self, chunk: int) -> int:
        """Where a chunk lies."""
        return chunk % self.ranks

    def receiver(self, part: Pass) -> int | None:
        """The chunk that the message of `part` goes to; None if it sends none."""
        act, chunk, _ = part
        return self._other(chunk, chunk + STEP[act])

    def wanted(self, part: Pass) -> Pass | None:
        """The pass whose message `part` waits for; None if it takes nothing from another chunk."""
        act, chunk, j = part
        before = self._other(chunk, chunk - STEP[act])
        return None if before is None else Pass(act, before, j)

    def _other(self, chunk: int, to: int) -> int | None:
        """The chunk `to` if there is one and it lies on another rank."""
        ranks = len(self.orders)
        return to if 0 <= to < ranks * self.chunks and to % ranks != chunk % ranks else None


made = tuple.__new__
"""A named tuple of its values: in less than half the time that its own constructor takes, which orders need often."""


def checked(schedule: PipelineSchedule) -> PipelineSchedule:
    """The schedule, if it can be run: refused with the first action that cannot.

    Every pass once, on its rank; B behind F and W behind B; W of a chunk in order of microbatches, for their sum is a
    chain; messages of a channel leave in the order in which they are wanted, or two-sided sends would deadlock.
    """
    for rank, order in enumerate(schedule.orders):
        done: set[Pass] = set()
        chunks, each = range(rank, schedule.ranks * schedule.chunks, schedule.ranks), range(schedule.microbatches)
        for at, action in enumerate(order):
            for part in action:
                here = part[1] in chunks and part[2] in each
                if not here or part in done or not done.issuperset(_before(part, schedule)):
                    wrong = _wrong(schedule, rank, part, done)
                    raise _refused(schedule, f"{part}, action {at} of rank {rank}, {wrong}")
                done.add(part)
        if len(done) < len(STEP) * len(chunks) * schedule.microbatches:
            missing = next(part for part in _due(schedule, rank) if part not in done)
            raise _refused(schedule, f"{missing} is missing on rank {rank}")
    _messages_in_order(schedule)
    return schedule


def _before(part: Pass, schedule: PipelineSchedule) -> tuple[tuple[str, int, int], ...]:
    """The passes that its rank must have done before it can run `part`."""
    act, chunk, j = part
    if len(schedule.orders) == 1 and act != "W" and 0 <= chunk - STEP[act] < schedule.chunks:
        return ((act, chunk - STEP[act], j), *((("F", chunk, j),) if act == "B" else ()))
    if act == "F":
        return ()
    if act == "B":
        return (("F", chunk, j),)
    return (("B", chunk, j), ("W", chunk, j - 1)) if j else (("B", chunk, j),)


def _wrong(schedule: PipelineSchedule, rank: int, part: Pass, done: set[Pass]) -> str:
    """Why a rank that has `done` these passes cannot run `part` now."""
    _, chunk, j = part
    if not (0 <= chunk < schedule.ranks * schedule.chunks and 0 <= j < schedule.microbatches):
        return "is none of this pipeline's"
    if chunk % schedule.ranks != rank:
        return f"belongs to rank {chunk % schedule.ranks}"
    if part in done:
        return "comes twice"
    late = next(due for due in _before(part, schedule) if due not in done)
    return f"comes before {Pass._make(late)}"


def _due(schedule: PipelineSchedule, rank: int) -> Iterator[Pass]:
    for chunk in range(rank, schedule.ranks * schedule.chunks, schedule.ranks):
        for j in range(schedule.microbatches):
            yield from (Pass(act, chunk, j) for act in ("F", "B", "W"))


def _messages_in_order(schedule: PipelineSchedule) -> None:
    """Refuse a channel (sender, receiver, F or B) whose messages leave in another order than they are wanted."""
    ranks, m = schedule.ranks, schedule.microbatches
    inside = range(ranks * schedule.chunks * m)
    passes: list[dict[str, list[int]]] = [{act: [] for act in STEP} for _ in schedule.orders]
    for mine, order in zip(passes, schedule.orders, strict=True):
        for act, chunk, j in chain.from_iterable(order):
            mine[act].append(chunk * m + j)
    for rank, way in product(range(ranks), "FB") if ranks > 1 else ():
        step, other = STEP[way] * m, (rank + STEP[way]) % ranks
        leaving = [pass_ for pass_ in passes[rank][way] if pass_ + step in inside]
        wanted = [pass_ - step for pass_ in passes[other][way] if pass_ - step in inside]
        if leaving != wanted:
            pair = next(pair for pair in zip(leaving, wanted, strict=True) if pair[0] != pair[1])
            yours, due = (made(Pass, (way, *divmod(message, m))) for message in pair)
            text = f"rank {other} wants the message of {due} where rank {rank} sends that of {yours}"
            raise _refused(schedule, text)


def _refused(schedule: PipelineSchedule, text: str) -> InputError:
    return InputError.one("illegal-schedule", f"schedule {schedule.name} cannot be run: {text}")
