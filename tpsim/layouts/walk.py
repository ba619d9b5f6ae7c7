"""Where a rank holds most, for any bytes: what is alive at each action of its order, and of these the most."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tpsim.program.schedules import DEFAULT, SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpsim.program.schedules import Order

Now = tuple[int, str]
"""What a rank runs: the sort of its chunk, and the acts."""

Ranked = tuple[int, ...]
"""The sorts of the chunks of a rank."""


class Alive(NamedTuple):
    """What stands beside an action: microbatches between F and B, and between B and W, of each sort of chunk.

    more  of the same, what each microbatch beyond the first adds, where an order holds the more the more there are
    """

    now: Now
    beside: tuple[tuple[int, int, int], ...]
    more: tuple[tuple[int, int], ...] = ()


def settled(schedule: str, p: int, v: int, m: int) -> int:
    """Microbatches from which on a rank of this schedule holds no more, or for each one the same more."""
    if not schedule or SCHEDULES[schedule].grows:
        return 1
    return min(m, (2 if v == 1 else 3) * p)


def alive(schedule: str, p: int, m: int, of: tuple[int, ...]) -> dict[Ranked, list[Alive]]:
    """Per sort of rank what its orders hold at most, in microbatches; nothing that is not listed is more.

    of  the sort of each chunk, in order of execution

    Bytes are not negative: an action beside which no less of everything is alive holds the most.
    """
    few = _alive(schedule, p, settled(schedule, p, len(of) // p, m), of)
    if not schedule or not SCHEDULES[schedule].grows:
        return few
    more = _alive(schedule, p, 2, of)
    return {ranked: [_growing(*both) for both in zip(few[ranked], more[ranked], strict=True)] for ranked in few}


def _growing(one: Alive, two: Alive) -> Alive:
    """What is alive with one microbatch, and what the second adds."""
    had = {sort: (f, w) for sort, f, w in one.beside}
    beside = [(sort, *had.get(sort, (0, 0))) for sort, _, _ in two.beside]
    added = [(f - f1, w - w1) for (_, f1, w1), (_, f, w) in zip(beside, two.beside, strict=True)]
    return Alive(one.now, tuple(beside), tuple(added))


@cache
def _alive(schedule: str, p: int, m: int, of: tuple[int, ...]) -> dict[Ranked, list[Alive]]:
    found: dict[Ranked, set[Alive]] = {}
    for rank, order in enumerate(SCHEDULES[schedule or DEFAULT].orders(p, len(of) // p, m)):
        found.setdefault(of[rank::p], set()).update(_walked(order, of))
    return {ranked: sorted(_most(each)) for ranked, each in found.items()}


def _walked(order: Order, of: tuple[int, ...]) -> Iterator[Alive]:
    held: dict[int, list[int]] = {}
    for action in order:
        acts = "".join(part.act for part in action)
        sort = of[action[0].chunk]
        yield Alive((sort, acts), tuple((one, f, w) for one, (f, w) in sorted(held.items())))
        mine = held.setdefault(sort, [0, 0])
        mine[0] += ("F" in acts) - ("B" in acts)
        mine[1] += ("B" in acts) - ("W" in acts)


def _most(found: Iterable[Alive]) -> Iterator[Alive]:
    """Those that no other one surpasses."""
    by_now: dict[Now, list[Alive]] = {}
    for one in found:
        by_now.setdefault(one.now, []).append(one)
    for same in by_now.values():
        tops: list[dict[int, tuple[int, int]]] = []
        kept: list[Alive] = []
        for one in sorted(same, key=lambda one: -sum(f + w for _, f, w in one.beside)):
            mine = {sort: (f, w) for sort, f, w in one.beside}
            if not any(_covers(other, mine) for other in tops):
                tops.append(mine)
                kept.append(one)
        yield from kept


def _covers(other: dict[int, tuple[int, int]], mine: dict[int, tuple[int, int]]) -> bool:
    none = (0, 0)
    return all(other.get(sort, none)[0] >= f and other.get(sort, none)[1] >= w for sort, (f, w) in mine.items())
