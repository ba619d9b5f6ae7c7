"""Tokens of a sequence that devices share: in which order each has them, and how much of a masked square that makes.

Tokens are born in that order, so nothing moves for it; masks, rotations and labels read positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tpsim.program.dims import HELD, STEPS
from tpsim.quantity.size import Size, floor_over, over, smallest

Order = Literal["contiguous", "zigzag", "striped"]

Counted = Literal["full", "causal"]
"""What is counted of a masked square of scores: all of it, or what the mask lets through."""

TOKENS = frozenset({"s", "t"})
"""The dims that have a token of a sequence each: as queries, as keys."""


def keys_of(dims: Iterable[str]) -> str:
    """The dim of keys of what has one for each query: of attention's scores; "" of anything else."""
    there = {*dims}
    return next((dim for dim in ("t", HELD) if {"s", dim} <= there), "")


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


def _causal(rows: Size, _: Size) -> Any:
    return over(rows * (rows + 1), 2)


def _window(rows: Size, w: Size) -> Any:
    inside = smallest(rows, w)
    return _causal(inside, w) + (rows - inside) * w


def _chunk(rows: Size, w: Size) -> Any:
    full = floor_over(rows, w)
    return full * _causal(w, w) + _causal(rows - full * w, w)


INDEXER = "index"
"""The kernel that scores all tokens for a query; another one behind it chooses the best of them."""

SELECTED = "selected_mask"
"""The mask of what an indexer chooses: as many keys of every query as a window has, wherever they stand."""

MASKS: Mapping[str, Callable[[Size, Size], Any]] = {
    "causal_mask": _causal,
    "window_mask": _window,
    "chunk_mask": _chunk,
    "held_window_mask": _window,
    "held_chunk_mask": _chunk,
    SELECTED: _window,
}
"""Index function of a mask -> the pairs that it lets through, of the first so many queries; w: of its window."""


def pairs(mask: str, s: Size, w: Size = 0) -> Any:
    """Pairs of a query and a key, of s by s, that a mask lets through.

    Of s*s these are: causal (s + 1)/(2*s); a window (w - w*(w - 1)/(2*s))/s; chunks (w + 1)/(2*s) where they fill s.
    """
    return MASKS[mask](s, w)


def last_pairs(mask: str, s: Size, t: Size, w: Size = 0) -> Any:
    """The same of the last s of t queries by all t: of one token itself and those before it."""
    return MASKS[mask](t, w) - MASKS[mask](t - s, w)


def longest(dims: Mapping[str, Any]) -> Any:
    """Tokens as keys of the last of the steps that dims are the mean of."""
    return dims["t"] + over(dims.get(STEPS, 1) - 1, 2)


def seen_pairs(mask: str, dims: Mapping[str, Any]) -> Any:
    """Pairs that a mask lets through of a step's new tokens and all; of several steps, a token apart, their mean.

    Of several steps of several tokens it is that of all tokens that any of them has new, as if each were in as many.
    """
    s, steps = dims["s"], dims.get(STEPS, 1)
    among = s + steps - 1
    return over(s * last_pairs(mask, among, longest(dims), dims.get("w", 0)), among)


def wide_keys(mask: str, dims: Mapping[str, Any]) -> Any:
    """Keys of a token where later ones are not hidden: all, or as many as a window or a chunk has."""
    keys = dims["t"]
    return smallest(keys, dims["w"]) if mask in ("window_mask", "chunk_mask", SELECTED) else keys


def held_keys(dims: Mapping[str, Any], *, cached: bool) -> Any:
    """Tokens that a window's cache holds: what the first of the new tokens reads and those behind it, as far as there.

    cached  False for a prompt from nothing, which reads its own keys
    Of several steps the mean.
    """
    behind, steps = (dims["s"] - 1 if cached else 0), dims.get(STEPS, 1)
    return over(last_pairs("window_mask", steps, longest(dims), dims["w"] + behind), steps)


def read_keys(dims: Mapping[str, Any]) -> Any:
    """Tokens of a chunk's cache that the new tokens of a step read: those since the chunk of the first of them began.

    Of several steps the mean.
    """
    s, w, steps = dims["s"], dims["w"], dims.get(STEPS, 1)
    return s - 1 + over(last_pairs("chunk_mask", steps, longest(dims) - s + 1, w), steps)


def selected_keys(dims: Mapping[str, Any]) -> Any:
    """Cached tokens that a step reads of those that an indexer chooses: each new token others, as far as there are."""
    return smallest(dims["t"], dims["s"] * dims["w"])


def peak(mask: str, order: Order, s: Size, *, ring: Size, devices: Size, w: Size = 0) -> Any:
    """Pairs of a mask on the busiest device over their mean.

    ring     shards of the queries, or of the keys, where the pairs are made
    devices  that share the tokens; more than these where the rest of them split heads there

    Contiguous: the last one is, with (2*n - 1)/n times the mean under a causal mask as s grows. Zigzag: the one whose
    two pieces meet in the middle; under a causal mask, and under chunks that pieces fill or are filled by, all are
    alike. Striped, under a causal mask: the last is a token ahead of the next (Brandon et al. 2023, arXiv 2311.09431).
    """
    if order == "striped":
        return over(s + 1 + devices - over(devices, ring), s + 1)
    if order == "zigzag" and mask != "window_mask":
        return 1
    end = over(s * (ring + 1), 2 * ring) if order == "zigzag" else s
    busiest = MASKS[mask](end, w) - MASKS[mask](end - over(s, ring), w)
    return over(busiest * ring, pairs(mask, s, w))
