"""Where a rank holds most, for any bytes: what is alive at each action of its order, and of these the most."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.program.kinds import ALIKE
from tpsim.program.schedules import DEFAULT, SCHEDULES
from tpsim.program.stages import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpsim.program.pipeline_schedule import Order

Now = tuple[str, str]
"""What a rank runs: the sort of its chunk, and the acts."""


class Alive(NamedTuple):
    """What stands beside an action: microbatches between F and B, and between B and W, of each sort of chunk.

    more  of the same, what each microbatch beyond the first adds, where an order holds the more the more there are
    """

    now: Now
    beside: tuple[tuple[str, int, int], ...]
    more: tuple[tuple[int, int], ...] = ()


ENDS: dict[str, tuple[bool, bool]] = {
    "first": (True, False),
    "middle": (False, False),
    "last": (False, True),
    "only": (True, True),
}
"""The sorts of chunks, and of ranks: whether they have the embedding, and the head."""


def chunk_of(sort: str, layers: Any) -> Chunk:
    """A chunk of that sort."""
    return Chunk(0, ((ALIKE, layers),), *ENDS[sort])


def settled(schedule: str, p: int, v: int, m: int) -> int:
    """Microbatches from which on a rank of this schedule holds no more, or for each one the same more."""
    if not schedule or SCHEDULES[schedule].grows:
        return 1
    return min(m, (2 if v == 1 else 3) * p)


def alive(schedule: str, p: int, v: int, m: int) -> dict[str, list[Alive]]:
    """Per sort of rank what its orders hold at most, in microbatches; nothing that is not listed is more.

    Bytes are not negative: an action beside which no less of everything is alive holds the most.
    """
    few = _alive(schedule, p, v, settled(schedule, p, v, m))
    if not schedule or not SCHEDULES[schedule].grows:
        return few
    more = _alive(schedule, p, v, 2)
    return {sort: [_growing(*both) for both in zip(few[sort], more[sort], strict=True)] for sort in few}


def _growing(one: Alive, two: Alive) -> Alive:
    """What is alive with one microbatch, and what the second adds."""
    had = {sort: (f, w) for sort, f, w in one.beside}
    beside = [(sort, *had.get(sort, (0, 0))) for sort, _, _ in two.beside]
    added = [(f - f1, w - w1) for (_, f1, w1), (_, f, w) in zip(beside, two.beside, strict=True)]
    return Alive(one.now, tuple(beside), tuple(added))


@cache
def _alive(schedule: str, p: int, v: int, m: int) -> dict[str, list[Alive]]:
    found: dict[str, set[Alive]] = {}
    for rank, order in enumerate(SCHEDULES[schedule or DEFAULT].orders(p, v, m)):
        sort = sort_of(rank, p)
        found.setdefault(sort, set()).update(_walked(order, p * v))
    return {sort: sorted(_most(each)) for sort, each in found.items()}


def sort_of(at: int, count: int) -> str:
    """Of a chunk of so many, or of a rank."""
    if count == 1:
        return "only"
    return "first" if at == 0 else "last" if at == count - 1 else "middle"


def _walked(order: Order, chunks: int) -> Iterator[Alive]:
    held: dict[str, list[int]] = {}
    for action in order:
        acts = "".join(part.act for part in action)
        sort = sort_of(action[0].chunk, chunks)
        yield Alive((sort, acts), tuple((name, f, w) for name, (f, w) in sorted(held.items())))
        mine = held.setdefault(sort, [0, 0])
        mine[0] += ("F" in acts) - ("B" in acts)
        mine[1] += ("B" in acts) - ("W" in acts)


def _most(found: Iterable[Alive]) -> Iterator[Alive]:
    """Those that no other one surpasses."""
    by_now: dict[Now, list[Alive]] = {}
    for one in found:
        by_now.setdefault(one.now, []).append(one)
    for same in by_now.values():
        tops: list[dict[str, tuple[int, int]]] = []
        kept: list[Alive] = []
        for one in sorted(same, key=lambda one: -sum(f + w for _, f, w in one.beside)):
            mine = {name: (f, w) for name, f, w in one.beside}
            if not any(_covers(other, mine) for other in tops):
                tops.append(mine)
                kept.append(one)
        yield from kept


def _covers(other: dict[str, tuple[int, int]], mine: dict[str, tuple[int, int]]) -> bool:
    none = (0, 0)
    return all(other.get(name, none)[0] >= f and other.get(name, none)[1] >= w for name, (f, w) in mine.items())
