"""The moves: what may change an array's type, how many bytes take part (V) and how many a device must inject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tpsim.quantity.size import Size, over, product, where_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpsim.algebra.sharding import Sharding

MoveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "slice", "send"]
MOVES: tuple[MoveKind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "slice")


Cuts = tuple[tuple[str, tuple[str, ...]], ...]
"""Dims with the mesh axes by which one type splits them further than another, major first."""


@dataclass(frozen=True, slots=True)
class Move:
    """One collective (or the free slice) that turns an array of type `before` into type `after`.

    axes     the mesh axes that take part together, major first; of several dims those of the first dim come first
    members  how many of the devices along them take part; None: all
    streamed  block after block by hops to the next device, beside what is made of each; what it moves is the same. A
              permute that changes nothing is one such hop: it brings home the sums of a scatter that began there

    A send goes from each device to its like on another rank of a pipeline: V is what one device holds.
    """

    kind: MoveKind
    axes: tuple[str, ...]
    before: Sharding
    after: Sharding
    members: int | None = None
    streamed: bool = False

    @property
    def gathered(self) -> Cuts:
        """The dims that give up minor axes: in a gather each device ends with the whole of what these split."""
        return cut(self.before, self.after)

    @property
    def scattered(self) -> Cuts:
        """The dims that take up minor axes: in a slice, a scatter or an all-to-all a device keeps one part of these."""
        return cut(self.after, self.before)

    @property
    def reordered(self) -> tuple[str, ...]:
        """`axes` in the order in which they shard afterwards, major first: what a permute changes."""
        return reordered(self.before, self.after)[1] if self.kind == "permute" and not self.streamed else self.axes

    def ranks(self, axes: Mapping[str, Size]) -> Any:
        """Devices that take part in one such collective."""
        return self.members or product(axes[axis] for axis in self.axes)

    def logical_elements(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """Elements of the full array taking part, per remaining shard of the other axes (V in elements).

        An all-to-all and a permute count the whole array over their axes too.
        """
        elements = self.before.local_elements(dims, axes)
        return elements * self.ranks(axes) if self.kind in GATHERED else elements


def cut(fine: Sharding, coarse: Sharding) -> Cuts:
    """The dims that `fine` splits by more axes than `coarse`, with the minor axes that it has more."""
    dims = zip(fine.dims, fine.on, coarse.on, strict=True)
    return tuple((dim, axes[len(kept) :]) for dim, axes, kept in dims if len(axes) > len(kept))


def reordered(before: Sharding, after: Sharding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The run of axes that change places on one dim, from the first to the last of them, as it was and as it comes."""
    ((have, want),) = ((have, want) for have, want in zip(before.on, after.on, strict=True) if have != want)
    changed = [place for place, (old, new) in enumerate(zip(have, want, strict=True)) if old != new]
    run = slice(changed[0], changed[-1] + 1)
    return have[run], want[run]


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
    "send": lambda V, n: V,  # noqa: ARG005 - from one device to another, however many there are
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
