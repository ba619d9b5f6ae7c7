"""Pipeline schedules as data: per rank an order of forward, backward and weight-gradient passes; one registry of them.

p ranks, v chunks of layers per rank, m microbatches. Chunk k lies on rank k mod p. A new schedule is a function from
(p, v, m) to orders; whatever else is told of it (bubble, messages, what is in flight) is read off the orders.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, repeat
from math import inf
from operator import itemgetter
from typing import Literal, NamedTuple

from tpsim.quantity.errors import InputError
from tpsim.quantity.size import total

Act = Literal["F", "B", "W"]


class Pass(NamedTuple):
    """One microbatch through one chunk: forward, backward to the stream's cotangent, or to gradients of parameters."""

    act: Act
    chunk: int
    microbatch: int

    def __str__(self) -> str:
        """As messages name it: ``F of chunk 2, microbatch 5``."""
        return f"{self.act} of chunk {self.chunk}, microbatch {self.microbatch}"


STEP: Mapping[Act, int] = {"F": 1, "B": -1, "W": 0}
"""How far the chunk lies that a pass hands its result to; nothing leaves W."""

SENDING: tuple[Act, Act] = ("F", "B")
"""The acts whose results other chunks want."""

Blocking = bool | Literal["steady"]
"""Whether messages hold their ranks up: always, never, or but in steady state: in warm-up and flush alone."""

Action = tuple[Pass, ...]
"""Passes that a rank runs as one: what they send leaves when all have ended. (B, W) is the whole backward."""

Order = tuple[Action, ...]
"""What one rank runs, one action after the other."""


def acts_of(action: Iterable[Pass]) -> str:
    """What an action does: F, B, W, BW, or several microbatches' together."""
    return "".join(part.act for part in action)


def turns_of(action: Action) -> Iterator[tuple[int, int, str]]:
    """Chunk, microbatch and acts of each microbatch that goes through a chunk within an action."""
    for (chunk, microbatch), parts in groupby(action, key=itemgetter(1, 2)):
        yield chunk, microbatch, acts_of(parts)


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
    blocking  whether those who run it let sends hold their ranks up
    early     whether they begin to gather weights before a rank's first message has come
    """

    name: str
    chunks: int
    microbatches: int
    orders: tuple[Order, ...]
    blocking: Blocking = False
    early: bool = False

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of its actions, in the order in which they are met."""
        last, of = self.microbatches - 1, list[list[int]]()
        numbers: dict[Hashable, int] = {}
        examples: list[Action] = []
        for order in self.orders:
            of.append([])
            for action in order:
                (act, chunk, j), (other, to, k) = action[0], action[-1]
                # The ends tell what has one pass or two, as nearly all have.
                key: Hashable = (act, chunk, other, to, len(action))
                if not 0 < j == k < last or action[1:-1]:
                    key = tuple([(act, chunk, j == 0, j == last) for act, chunk, j in action])
                if key not in numbers:
                    numbers[key] = len(examples)
                    examples.append(action)
                of[-1].append(numbers[key])
        return Kinds(examples, of)

    @cached_property
    def is_forward(self) -> bool:
        """True if no pass goes back: the next token is what the last rank gives, and all wait for it."""
        return all(part.act == "F" for action in self.kinds.examples for part in action)

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


def gpipe(p: int, _v: int, m: int) -> Iterator[Order]:
    """All forwards, then all backwards. Source: Huang et al. 2018, arXiv 1811.06965."""
    for i in range(p):
        yield (*_alone("F", repeat(i), range(m)), *_backwards(repeat(i), range(m)))


def one_forward_one_backward(p: int, _v: int, m: int) -> Iterator[Order]:
    """One forward, one backward in turn behind p - i - 1 forwards. Source: Narayanan et al. 2021, arXiv 2104.04473."""
    for i in range(p):
        yield _in_turn(_alone("F", repeat(i), range(m)), _backwards(repeat(i), range(m)), p - i - 1)


def interleaved(p: int, v: int, m: int) -> Iterator[Order]:
    """The same with v chunks per rank, p microbatches of one chunk at a time; p divides m.

    Warm-up 2(p - i - 1) + (v - 1)p forwards. Source: Narayanan et al. 2021, section 2.2; Megatron-LM's schedules.
    """
    in_groups(p, m)
    chunks = [chunk for _ in range(0, m, p) for chunk in range(v) for _ in range(p)]
    microbatches = [start + j for start in range(0, m, p) for _ in range(v) for j in range(p)]
    for i in range(p):
        forwards = _alone("F", [chunk * p + i for chunk in chunks], microbatches)
        backwards = _backwards([(v - 1 - chunk) * p + i for chunk in chunks], microbatches)
        yield _in_turn(forwards, backwards, 2 * (p - i - 1) + (v - 1) * p)


def in_groups(p: int, m: int) -> None:
    """Refuse microbatches that are not taken in whole groups of as many as there are stages."""
    if m % p:
        raise InputError.one(
            "microbatches-not-divisible",
            f"{m} microbatches are not divisible by {p} stages: this schedule takes as many at a time",
            remedy=f"write a multiple of {p}",
        )


def zero_bubble_h1(p: int, _v: int, m: int) -> Iterator[Order]:
    """Backward split in two; as many microbatches in flight as by 1F1B. Source: Qi et al. 2024, arXiv 2401.10241.

    Of those whose B is done, what W reads is kept: with cotangents that sequence parallelism has gathered, that may be
    more than forward kept.
    """
    for i in range(p):
        yield _split(i, m, warm=p - i, late=i)


def zero_bubble_h2(p: int, _v: int, m: int) -> Iterator[Order]:
    """Backward split in two; forwards enough to fill the warm-up, too. Source: Qi et al. 2024, arXiv 2401.10241."""
    for i in range(p):
        yield _split(i, m, warm=2 * (p - i) - 1, late=2 * i)


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for what is left over meanwhile: orders are many tuples, which hold no circle and all stay."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


made = tuple.__new__
"""A named tuple of its values: in less than half the time that its own constructor takes, which orders need often."""


def _passes(act: Act, chunks: Iterable[int], microbatches: Iterable[int]) -> Iterator[Pass]:
    return map(made, repeat(Pass), zip(repeat(act), chunks, microbatches, strict=False))


def _alone(act: Act, chunks: Iterable[int], microbatches: Iterable[int]) -> list[Action]:
    """Actions of one pass each."""
    return [*zip(_passes(act, chunks, microbatches), strict=True)]


def _backwards(chunks: Iterable[int], microbatches: Iterable[int]) -> list[Action]:
    """Actions of the whole backward."""
    return [*zip(_passes("B", chunks, microbatches), _passes("W", chunks, microbatches), strict=True)]


def _in_turn(forwards: list[Action], backwards: list[Action], warm: int) -> Order:
    """`warm` forwards, then one forward and one backward in turn, then the backwards that are left."""
    warm = min(warm, len(forwards))
    turns = [action for pair in zip(forwards[warm:], backwards, strict=False) for action in pair]
    return (*forwards[:warm], *turns, *backwards[len(forwards) - warm :])


def _split(chunk: int, m: int, *, warm: int, late: int) -> Order:
    """`warm` forwards, then a B, a W that is `late` microbatches behind it, and a forward in turn."""
    warm = min(warm, m)
    forwards, backwards, gradients = (_alone(act, repeat(chunk), range(m)) for act in STEP)
    order = forwards[:warm]
    for j in range(m):
        order.append(backwards[j])
        order += gradients[j - late : j - late + 1] if j >= late else []
        order += forwards[warm + j : warm + j + 1]
    return (*order, *gradients[max(0, m - late) :])


@dataclass(frozen=True, slots=True)
class Maker:
    """A schedule by name.

    orders    makes the order of each rank from p, v, m; chunks are counted in the whole stack
    several   True if ranks have several chunks
    blocking  True if a rank sends and receives between two actions and does nothing else meanwhile, as Megatron-LM does
              where it does not interleave; where it does, in warm-up and flush alone; the others would deadlock
    early     True if weights are gathered before a rank's first message has come: Megatron-LM does so where it
              interleaves (schedules.py, param_sync_func; arguments.py takes align_param_gather back elsewhere), and
              PyTorch's runtime of several chunks, or of a backward in two parts (schedules.py, UNSHARD)
    grows     True if every further microbatch is held beside the others
    suits     refuses stages and microbatches that it cannot run
    meets     the most microbatches that so many ranks run without a deadlock if every message holds both ranks up
    """

    orders: Callable[[int, int, int], Iterator[Order]]
    several: bool = False
    blocking: Blocking = False
    early: bool = False
    grows: bool = False
    suits: Callable[[int, int], None] = lambda _p, _m: None
    meets: Callable[[int], float] = lambda _p: inf


SCHEDULES: Mapping[str, Maker] = {
    "gpipe": Maker(gpipe, blocking=True, grows=True),
    "1f1b": Maker(one_forward_one_backward, blocking=True),
    "interleaved": Maker(interleaved, several=True, blocking="steady", early=True, suits=in_groups),
    "zb-h1": Maker(zero_bubble_h1, early=True),
    "zb-h2": Maker(zero_bubble_h2, early=True, meets=lambda p: 2 * p - 1),
}
"""Every schedule that tpsim knows."""

DEFAULT = "1f1b"
"""What a pipeline runs that states no schedule."""

LATER = ("zb-v", "dualpipe", "dualpipe-v")
"""Schedules that place chunks otherwise, or run both ways: refused by name."""


MOST_ACTIONS = 300_000
"""Actions of all ranks beyond which a schedule is refused: they take half a second and more."""


def pipeline_schedule(name: str, p: int, v: int, m: int) -> PipelineSchedule:
    """The schedule of that name for p ranks of v chunks each, and m microbatches.

    Raises InputError where the numbers do not suit it, and where they are too many before the first order is made.
    """
    maker = SCHEDULES[name]
    if p * v * m > MOST_ACTIONS:
        message = (
            f"{p * v * m:,} passes forward alone are more than the {MOST_ACTIONS:,} actions that are run one by one"
        )
        raise InputError.one("too-many-actions", message, remedy="take fewer microbatches or stages")
    with uncollected():
        return PipelineSchedule(name, v, m, tuple(maker.orders(p, v, m)), maker.blocking, maker.early)


def forward_only(p: int = 1, m: int = 1) -> PipelineSchedule:
    """Ranks that run microbatches forward, as inference does with m batches on their way through p stages."""
    orders = tuple((*_alone("F", repeat(rank), range(m)),) for rank in range(p))
    return PipelineSchedule("forward", 1, m, orders, blocking=True)


def in_flight(schedule: PipelineSchedule, rank: int, *, until_b: float = 1, until_w: float = 0) -> float:
    """What a rank keeps at most, in microbatches of all its chunks.

    until_b, until_w  what a microbatch keeps from its forward to its B, and from there to its W
    """
    step, kinds = {"F": until_b, "B": until_w - until_b, "W": -until_w}, schedule.kinds
    changes = {
        kind: total(step[part.act] for part in kinds.examples[kind]) / schedule.chunks for kind in {*kinds.of[rank]}
    }
    return float(max(accumulate((changes[kind] for kind in kinds.of[rank]), initial=0)))
