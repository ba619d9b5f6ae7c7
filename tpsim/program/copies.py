"""Copies of a token: one for each node, or rank, that its experts lie on, instead of a row for each of them.

How many that is hangs on what tokens choose. By chance it is an exact sum, which knows no size: a part of the experts
is missed by a token with the probability that none of those it chooses, one after another, is of that part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tpsim.quantity.size import Size, ceil_over, over, product, smallest, total

Of = Literal["node", "rank"]
"""What a token has one copy for, however many of its experts lie there."""

Dispatch = Literal["flat", "rank", "node", "node_rank"]
"""How tokens go to experts: a row for each expert, a copy for each rank, for each node, for each node and then rank."""

DEDUPLICATED: Mapping[Dispatch, tuple[Of, ...]] = {
    "flat": (),
    "rank": ("rank",),
    "node": ("node",),
    "node_rank": ("node", "rank"),
}

DIMS_OF: Mapping[Of, tuple[str, str, str]] = {"node": ("nn", "cn", "kn"), "rank": ("nr", "cr", "kr")}
"""The dims of nodes or ranks, of the copies that each gets, and how many of them a token has copies for."""


class Level(NamedTuple):
    """One step of tokens on their way to experts: over which axes, and what has one copy of a token then."""

    of: Of
    axes: tuple[str, ...]


def parts_of(levels: Sequence[Level], axes: Mapping[str, Size]) -> Iterator[tuple[Of, Any]]:
    """Of each level how many nodes or ranks there are: the axes of all levels so far tell them apart."""
    so_far: tuple[str, ...] = ()
    for level in levels:
        so_far += level.axes
        yield level.of, product(axes[axis] for axis in so_far)


class Router(NamedTuple):
    """How a token chooses: so many experts, no two alike, of the best of the groups that they are in.

    Without groups they are all in one.
    """

    experts: Size
    top: int
    groups: int = 1
    best: int = 1


def reached(parts: Size, router: Router) -> Any:
    """How many of the `parts` that experts lie on a token reaches, on average, if it chooses by chance.

    parts  nodes or ranks, which have as many experts each

    Groups are taken for their best expert (DeepSeek-V2 2024, 2.2.2): then it is exact where groups are parts of nodes,
    or nodes of groups. DeepSeek-V3 takes those whose two best have the largest sum: simulated, within 0.8 % of this.
    Without groups it is parts * (1 - C(n - n/parts, k) / C(n, k)).

    >>> round(float(reached(8, Router(256, 8))), 4), round(float(reached(8, Router(256, 8, groups=8, best=4))), 4)
    (5.2947, 3.9831)
    """
    group_size, part_size = over(router.experts, router.groups), over(router.experts, parts)
    whole = ceil_over(part_size, group_size) - 1  # groups that lie on the part entirely, but for one
    miss = _Miss(router, group_size, whole, part_size - group_size * whole)
    odds: Mapping[tuple[int, bool], Any] = {(0, False): 1}
    for drawn in range(router.top):
        odds = miss.after(odds, drawn)
    return parts * (1 - total(odds.values()))


class _Miss(NamedTuple):
    """The odds that a token chooses no expert of a part.

    each    experts of a group
    whole   groups that lie on the part entirely, but for one
    inside  experts of that one that lie on it
    """

    router: Router
    each: Any
    whole: Any
    inside: Any

    def after(self, odds: Mapping[tuple[int, bool], Any], drawn: int) -> Mapping[tuple[int, bool], Any]:
        """Odds by how many groups have appeared, and whether that one has, after one more choice.

        Experts come in the order of their scores. Until the best groups have appeared any may be next, then theirs.
        """
        chances: dict[tuple[int, bool], Any] = defaultdict(int)
        for (appeared, partly), odd in odds.items():
            more = appeared < self.router.best
            left = (self.router.groups if more else appeared) * self.each - drawn
            old = appeared * self.each - drawn - (self.inside if partly else 0)
            chances[appeared, partly] += over(odd * old, left)
            if more:
                others = self.router.groups - self.whole - 1 - (appeared - partly)
                chances[appeared + 1, partly] += over(odd * others * self.each, left)
            if more and not partly:
                chances[appeared + 1, True] += over(odd * (self.each - self.inside), left)
        return chances


def most_reached(parts: Size, router: Router) -> Any:
    """The most of the parts that a token can reach: one for each expert, and all those of the groups that it chooses.

    >>> most_reached(8, Router(256, 8, groups=8, best=4)), most_reached(64, Router(256, 8))
    (4, 8)
    """
    limits = [router.best * ceil_over(parts, router.groups)] if router.groups > 1 else []
    return smallest(router.top, parts, *limits)
