"""The moves: what may change an array's type, how many bytes take part (V) and how many a device must inject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tpsim.quantity.size import Size, over, product, where_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpsim.algebra.sharding import Sharding

MoveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "slice"]
MOVES: tuple[MoveKind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "slice")


@dataclass(frozen=True, slots=True)
class Move:
    """One collective (or the free slice) that turns an array of type `before` into type `after`.

    axes    the mesh axes that take part together, major first
    dim     the dim gathered, scattered onto, sliced, or given up by an all-to-all; None for all-reduce and permute
    to_dim  the dim that an all-to-all shards instead
    """

    kind: MoveKind
    axes: tuple[str, ...]
    before: Sharding
    after: Sharding
    dim: str | None = None
    to_dim: str | None = None

    @property
    def reordered(self) -> tuple[str, ...]:
        """`axes` in the order in which they shard afterwards, major first: what a permute changes."""
        for have, want in zip(self.before.on, self.after.on, strict=True):
            if self.kind == "permute" and have != want:
                return tuple(axis for axis in want if axis in self.axes)
        return self.axes

    def ranks(self, axes: Mapping[str, Size]) -> Any:
        """Devices that take part in one such collective."""
        return product(axes[axis] for axis in self.axes)

    def logical_elements(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """Elements of the full array taking part, per remaining shard of the other axes (V in elements).

        An all-to-all and a permute count the whole array over their axes too.
        """
        held = self.before.local_elements(dims, axes)
        return held * self.ranks(axes) if self.kind in GATHERED else held


GATHERED = frozenset({"all_gather", "all_to_all", "permute"})
"""Moves that start from a shard: V is what a device holds before, times the ranks."""


def _gather_wire(V: Size, n: Size) -> Any:
    return over(V * (n - 1), n)


def _all_reduce_wire(V: Size, n: Size) -> Any:
    return over(2 * V * (n - 1), n)


def _all_to_all_wire(V: Size, n: Size) -> Any:
    return over(V * (n - 1), n * n)


def _permute_wire(V: Size, n: Size) -> Any:
    return where_many(n, over(V, n))


def _nothing(V: Size, n: Size) -> Any:
    return 0 * V * n


WIRE: Mapping[MoveKind, Callable[[Size, Size], Any]] = {
    "all_gather": _gather_wire,
    "reduce_scatter": _gather_wire,
    "all_reduce": _all_reduce_wire,
    "all_to_all": _all_to_all_wire,
    "permute": _permute_wire,
    "slice": _nothing,
}


def wire(kind: MoveKind, V: Size, n: Size) -> Any:
    """Bytes that one device must inject, whatever algorithm runs.

    V  bytes of the full array taking part; n devices on the axis
    all-gather, reduce-scatter V(n-1)/n; all-reduce 2V(n-1)/n; all-to-all V(n-1)/n^2; permute V/n
    slice 0; one device injects nothing
    Source: How to Scale Your Model, chapter 3, with the finite factor (n-1)/n; proved by execution in tests/reference.

    >>> wire("all_reduce", 50_331_648, 8)
    88080384
    """
    return WIRE[kind](V, n)
