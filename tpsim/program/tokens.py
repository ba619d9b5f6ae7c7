"""Tokens of a sequence that devices share: in which order each has them, and how much of a masked square that makes.

Tokens are born in that order, so nothing moves for it; masks, rotations and labels read positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tpsim.quantity.size import over

if TYPE_CHECKING:
    from tpsim.quantity.size import Size

Order = Literal["contiguous", "zigzag", "striped"]


TOKENS = frozenset({"s", "t"})
"""The dims that have a token of a sequence each: as queries, as keys."""


def positions(order: Order, s: int, n: int) -> list[int]:
    """The position in the sequence of each of `s` tokens, as `n` devices have them one after another.

    >>> positions("zigzag", 8, 2), positions("striped", 8, 2)
    ([0, 1, 6, 7, 2, 3, 4, 5], [0, 2, 4, 6, 1, 3, 5, 7])
    """
    if order == "zigzag":
        half = s // (2 * n)
        chunks = [chunk for device in range(n) for chunk in (device, 2 * n - 1 - device)]
        return [chunk * half + token for chunk in chunks for token in range(half)]
    if order == "striped":
        return [token for device in range(n) for token in range(device, s, n)]
    return list(range(s))


def split(order: Order, n: int) -> int:
    """What the tokens of a sequence must divide by, for `n` devices to have them in that order."""
    return 2 * n if order == "zigzag" else n


def causal_pairs(rows: Size) -> Any:
    """Pairs of a query and a key not behind it, of the first so many queries."""
    return over(rows * (rows + 1), 2)


MASKS: Mapping[str, Callable[[Size], Any]] = {"causal_mask": causal_pairs}
"""Index function of a mask -> the pairs that it lets through, of the first so many queries."""


def pairs(mask: str, s: Size, t: Size) -> Any:
    """Pairs of a query and a key that a mask lets through, of the last s of t tokens by all of them.

    Causal: a share of (s + 1)/(2*s) of s by s, and all of one by t.
    """
    return MASKS[mask](t) - MASKS[mask](t - s)


def peak(order: Order, s: Size, ring: Size, devices: Size) -> Any:
    """Pairs of a causal mask on the busiest device over their mean.

    ring     shards of the queries, or of the keys, where the pairs are made
    devices  that share the tokens; more than these where the rest of them split heads there

    Contiguous: the last of n has s*s/n - s*s/(2*n*n) of s*s/2, which is (2n - 1)/n times the mean as s grows; zigzag:
    all alike; striped: the last is one token ahead of the next (Brandon et al. 2023, arXiv 2311.09431).
    """
    if order == "zigzag":
        return 1
    if order == "striped":
        return over(s + 1 + devices - over(devices, ring), s + 1)
    return over(over(s * (2 * ring - 1), ring) + 1, s + 1)
