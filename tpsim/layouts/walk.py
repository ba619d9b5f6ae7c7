"""Where a rank holds most, for any bytes: what is alive at each action of its order, and of these the most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tpsim.program.schedules import DEFAULT, SCHEDULES, uncollected


class Begins(NamedTuple):
    """With its first action backward; with the first, and the last, that is the last of its chunk.

    acts  [begin, acts, sort] how many are done before the first of these, and how many are not done before the others;
          in a row behind those of all acts, first microbatches forward
    last  [begin, sort] how many chunks have their last action there or later
    """

    acts: Any
    last: Any


def begun(acts: Any, sorts: Any, microbatches: Any, shape: tuple[int, int]) -> Begins:
    """Of one rank, whose actions are given in order, by what they do, the sort of their chunk, and their microbatch.

    shape  how many acts there are, and sorts
    """
    every, many = shape

    def counted(some: slice) -> Any:
        fresh = np.where((acts[some] == 0) & (microbatches[some] == 0), every, -1)
        both = np.concatenate([acts[some], fresh]) * many + np.tile(sorts[some], 2)
        return np.bincount(both[both >= 0], minlength=(every + 1) * many).reshape(every + 1, many)

    first = int(np.flatnonzero(acts > 0)[0])
    lasts = np.flatnonzero((acts == every - 1) & (microbatches == microbatches.max()))
    places = [int(lasts[at]) for at in (0, -1)]
    left = [np.bincount(sorts[lasts[lasts >= place]], minlength=many) for place in (0, *places)]
    return Begins(np.stack([counted(slice(first)), *(counted(slice(at, None)) for at in places)]), np.stack(left))


Now = tuple[int, str]
"""What a rank runs: the sort of its chunk, and the acts."""

Ranked = tuple[int, ...]
"""The sorts of the chunks of a rank."""


@dataclass(frozen=True)
class Alive:
    """What stands beside an action, in microbatches, wherever that is the most.

    now     the action
    counts  a row for each place: of every sort of chunk those between F and B, then of every sort those between B and W
    more    of the same, what each microbatch beyond the first adds, where an order holds the more the more there are
    """

    now: Now
    counts: Any
    more: Any = None


def settled(schedule: str, p: int, v: int, m: int) -> int:
    """Microbatches from which on a rank of this schedule holds no more, or for each one the same more."""
    if not schedule or SCHEDULES[schedule].grows:
        return 1
    return min(m, (2 if v == 1 else 3) * p)


def alive(schedule: str, p: int, m: int, of: tuple[int, ...]) -> dict[Ranked, list[Alive]]:
    """Per sort of rank what its orders hold at most, by action; nothing that is not listed is more.

    of  the sort of each chunk, in order of execution

    Bytes are not negative: an action beside which no less of everything is alive holds the most.
    """
    few = _walked(schedule, p, settled(schedule, p, len(of) // p, m), of)[0]
    if not schedule or not SCHEDULES[schedule].grows:
        return few
    more = _walked(schedule, p, 2, of)[0]
    both = {ranked: zip(states, more[ranked], strict=True) for ranked, states in few.items()}
    return {at: [Alive(few.now, few.counts, two.counts - few.counts) for few, two in both[at]] for at in both}


class Places(NamedTuple):
    """What stands beside actions, in each of several orders that differ in their microbatches: a row for each place.

    ranks   the sorts of the chunks of ranks; nows: their actions; at: (the rank, the action) of every row, by number
    counts  [row, order, sort] as in `Alive`; where an order has fewer places, nothing stands at the others
    more    likewise; None where no order holds the more the more microbatches there are
    never   [row, order]: infinite where it has no such action, else 0
    """

    ranks: tuple[Ranked, ...]
    nows: tuple[Now, ...]
    at: Any
    counts: Any
    more: Any
    never: Any


def begins(
    schedule: str, p: int, microbatches: Any, of: tuple[int, ...], ranks: tuple[int, ...]
) -> tuple[Begins, Any, Any]:
    """Where ranks begin what they do last with so many microbatches each: [begin, rank, .., order].

    Then how many actions more the first of these has done before it with every microbatch beyond those of the order,
    and the order of each. What is left behind the others is the same once an order has settled.
    """
    orders, at = ordered(schedule, p, len(of) // p, microbatches)
    return *_begins(schedule, p, orders, of, ranks), at


@cache
def _begins(
    schedule: str, p: int, orders: tuple[int, ...], of: tuple[int, ...], ranks: tuple[int, ...]
) -> tuple[Begins, Any]:
    def stacked(many: Sequence[int]) -> Begins:
        begins = [[_walked(schedule, p, m, of)[1][of[rank::p]] for m in many] for rank in ranks]
        acts, last = (np.array([[begin[at] for begin in rank] for rank in begins], dtype=float) for at in (0, 1))
        return Begins(acts.transpose(2, 0, 3, 4, 1), last.transpose(2, 0, 3, 1))

    base, grows = stacked(orders), bool(schedule) and SCHEDULES[schedule].grows
    return base, stacked([m + 1 for m in orders]).acts[0] - base.acts[0] if grows else np.zeros(base.acts[0].shape)


def ordered(schedule: str, p: int, v: int, microbatches: Any) -> tuple[tuple[int, ...], Any]:
    """Numbers of microbatches whose orders tell those of all that are asked for, and which one tells each."""
    return _ordered(schedule, p, v, tuple(microbatches.astype(int).tolist()))


@cache
def _ordered(schedule: str, p: int, v: int, many: tuple[int, ...]) -> tuple[tuple[int, ...], Any]:
    orders, of = np.unique(np.minimum(many, settled(schedule, p, v, max(many))), return_inverse=True)
    return tuple(orders.tolist()), of


@cache
def together(schedule: str, p: int, microbatches: tuple[int, ...], of: tuple[int, ...]) -> Places:
    """What is alive in orders of so many microbatches each."""
    by_state: defaultdict[tuple[Ranked, Now], dict[int, Alive]] = defaultdict(dict)
    for order, m in enumerate(microbatches):
        for ranked, places in alive(schedule, p, m, of).items():
            for place in places:
                by_state[ranked, place.now][order] = place
    ranks = tuple(dict.fromkeys(ranked for ranked, _ in by_state))
    nows = tuple(dict.fromkeys(now for _, now in by_state))
    rows = [_rows(orders, len(microbatches)) for orders in by_state.values()]
    states = [(ranks.index(ranked), nows.index(now)) for ranked, now in by_state]
    counts, more, never = (np.concatenate(part) for part in zip(*rows, strict=True))
    at = np.repeat(states, [len(part) for part, *_ in rows], axis=0)
    return Places(ranks, nows, at.T, counts, more if more.any() else None, never)


def _rows(orders: Mapping[int, Alive], many: int) -> tuple[Any, Any, Any]:
    """The places of an action."""
    first = next(iter(orders.values()))
    shape = max(len(place.counts) for place in orders.values()), many, first.counts.shape[1]
    counts, more, never = np.zeros(shape), np.zeros(shape), np.full(shape[:2], np.inf)
    for order, place in orders.items():
        counts[: len(place.counts), order] = place.counts
        more[: len(place.counts), order] = 0 if place.more is None else place.more
        never[:, order] = 0
    return counts, more, never


@cache
def _walked(
    schedule: str, p: int, m: int, of: tuple[int, ...]
) -> tuple[dict[Ranked, list[Alive]], dict[Ranked, Begins]]:
    """What is alive, and where a rank begins what it does last, per sort of rank; of those alike the last rank's."""
    with uncollected():
        orders = [*SCHEDULES[schedule or DEFAULT].orders(p, len(of) // p, m)]
        actions = [*chain.from_iterable(orders)]
        names = ["".join([part[0] for part in action]) for action in actions]
    acts = list(dict.fromkeys(names))
    codes = np.array([[("F" in act) - ("B" in act), ("B" in act) - ("W" in act)] for act in acts])
    code = np.array([acts.index(name) for name in names])
    sort, every = np.array([of[action[0][1]] for action in actions]), np.arange(len(actions))
    by_sort = np.zeros((len(actions), 2, max(of) + 1), dtype=np.int64)
    by_sort[every, :, sort] = codes[code]
    changes = by_sort.reshape(len(actions), -1)
    before = np.cumsum(changes, axis=0) - changes  # a rank ends with nothing, as it began: so does the next one
    keys = list(dict.fromkeys(of[rank::p] for rank in range(p)))
    ranked = np.repeat([keys.index(of[rank::p]) for rank in range(p)], [len(order) for order in orders])
    rows = _unique(np.column_stack([ranked, sort, code, before]))
    starts = np.flatnonzero(np.r_[True, (rows[1:, :3] != rows[:-1, :3]).any(axis=1)])
    by_rank: dict[Ranked, list[Alive]] = {key: [] for key in keys}
    for same in np.split(rows, starts[1:]):
        key, now, name = same[0, :3]
        by_rank[keys[key]].append(Alive((int(now), acts[name]), _most(same[:, 3:])))
    microbatches, kinds = np.array([action[0][2] for action in actions]), (FUSED, SPLIT)["B" in acts]
    kind = np.array([kinds.index(name) for name in acts])[code]
    ends = np.cumsum([len(order) for order in orders]).tolist()
    slices = {of[rank::p]: slice(end - len(orders[rank]), end) for rank, end in enumerate(ends)}
    shape = len(kinds), max(of) + 1
    return by_rank, {key: begun(kind[at], sort[at], microbatches[at], shape) for key, at in slices.items()}


def _unique(rows: Any) -> Any:
    """The rows that differ, in order: told apart by one number each, where there is one that holds so many."""
    radices = [int(most) + 1 for most in rows.max(axis=0)]
    if prod(radices) >= np.iinfo(np.int64).max:
        return np.unique(rows, axis=0)
    places = np.cumprod([1, *radices[:0:-1]])[::-1]
    return rows[np.unique(rows @ places, return_index=True)[1]]


def _most(rows: Any) -> Any:
    """Those that no other one surpasses; no two are the same."""
    varying = rows[:, (rows != rows[0]).any(axis=0)]
    if varying.shape[1] > PAIR:
        surpassed = (varying[:, None] <= varying[None]).all(axis=2).sum(axis=1) > 1
        return rows[~surpassed].astype(float)
    first, second = (varying[:, at] if at < varying.shape[1] else np.zeros(len(varying)) for at in range(PAIR))
    order = np.lexsort((-second, -first))
    least = np.maximum.accumulate(np.r_[-1, second[order][:-1]])
    return rows[np.sort(order[second[order] > least])].astype(float)


PAIR = 2
"""Of so many counts the most are found in a row: with less of the first there must be more of the second."""


FUSED, SPLIT = ("F", "BW"), ("F", "B", "W")
"""The acts of actions, where backward is one, and where it is run in two parts."""


@cache
def named(schedule: str) -> tuple[str, ...]:
    """The acts of a schedule's actions."""
    ranks = alive(schedule or DEFAULT, 2, 2, (0, 1)).values()
    return (FUSED, SPLIT)[any(place.now[1] == "B" for rank in ranks for place in rank)]
