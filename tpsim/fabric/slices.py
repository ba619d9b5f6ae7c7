"""Ways to lay mesh axes on the physical axes of one level, and the best of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product as choices
from math import gcd, prod
from typing import Any

from tpsim.fabric.wires import SegmentTopology, Slices, Wires, axis_names, by, joined
from tpsim.quantity.errors import InputError


@dataclass(frozen=True, slots=True)
class Carrier:
    """A physical axis or a switched level as the mesh uses it.

    extent   members in use; `closed` if the whole axis is a ring
    shared   True if the devices of a node share a way into it
    """

    level: int
    name: str
    topology: SegmentTopology
    extent: int
    closed: bool
    shared: bool = False


@dataclass(frozen=True, slots=True)
class AxisPiece:
    """The part of a mesh axis that lies on one carrier: `n` members, `stride` apart."""

    carrier: str
    n: int
    stride: int


@dataclass(frozen=True, slots=True)
class Bound:
    """One carrier that the user named: the level, a physical axis of it or None.

    asked  the shape that the axis is to have, or ""
    n      how many devices are to lie there; None: as many as there is room for
    whole  the mesh axis that it was named for, where what lies there is a part of that; else ""
    """

    text: str
    level: int
    axis: int | None
    asked: str
    n: int | None = None
    whole: str = ""


def wanted_on(bound: Sequence[Bound]) -> dict[int, int]:
    """How many devices the user puts on a level: on all of its axes that are named, if that is said of each."""
    sizes: dict[int, list[int | None]] = {}
    for wish in bound:
        sizes.setdefault(wish.level, []).append(wish.n)
    return {level: prod(n or 1 for n in several) for level, several in sizes.items() if None not in several}


def parted(
    bound: Mapping[str, tuple[Bound, ...]], parents: Mapping[str, str], sizes: Mapping[str, int]
) -> dict[str, tuple[Bound, ...]]:
    """What mesh axes are bound to, some of which are parts of one that the user bound.

    Of the devices that are to lie on a carrier each part, the minor one first, has as many as divide it. Numbers that
    do not come to the whole are left to all parts, to be refused.
    parents  part -> the axis that it is a part of
    sizes    of all axes, major first
    """
    own: dict[str, tuple[Bound, ...]] = {}
    for whole, stated in bound.items():
        parts = {axis: sizes[axis] for axis in reversed([*sizes]) if parents.get(axis, axis) == whole}
        left = _counted(stated, prod(parts.values()))
        for axis, size in parts.items():
            own[axis], left = _taken(left, size)
        if whole in parts or any((wish.n or 1) > 1 for wish in left):
            own |= dict.fromkeys(parts, stated)
    return {axis: tuple(replace(wish, whole=parents.get(axis, "")) for wish in wishes) for axis, wishes in own.items()}


def _counted(stated: Sequence[Bound], size: int) -> tuple[Bound, ...]:
    """Carriers innermost first, that which alone has no number with what the others leave it."""
    open_ = [wish for wish in stated if wish.n is None]
    known = prod(wish.n or 1 for wish in stated)
    if len(open_) == 1 < len(stated) and not size % known:
        stated = [replace(wish, n=size // known) if wish.n is None else wish for wish in stated]
    return tuple(sorted(stated, key=lambda wish: wish.level))


def _taken(left: tuple[Bound, ...], size: int) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
    """What a part of so many devices has of what is left, and what is left behind it."""
    own, others = [], []
    for wish in left:
        share = wish.n and gcd(size, wish.n)
        size //= share or 1
        own.append(replace(wish, n=share))
        others.append(replace(wish, n=wish.n and share and wish.n // share))
    return tuple(own), tuple(others)


def members(level: Wires) -> str:
    """What a level joins at most, in words."""
    return by(level.shape) or "any"


@dataclass(frozen=True, slots=True)
class LaidLevel:
    """A level with the mesh axes on it.

    remarks  what the wraparound rule came to
    idle     chips of the slice that the mesh leaves idle, in words
    share    of its chips that the mesh has
    """

    carriers: Mapping[str, Carrier]
    pieces: Mapping[str, tuple[AxisPiece, ...]]
    remarks: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    share: Fraction = Fraction(1)


def lay(
    place_of: int, level: Wires, parts: Mapping[str, int], bound: Mapping[str, tuple[Bound, ...]], slices: Slices
) -> LaidLevel | None:
    """Put `parts` (mesh axis -> devices along this level, major first) on the level; None if no slice holds them.

    slices  those that there are to choose from
    """
    wishes = {axis: tuple(wish for wish in bound.get(axis, ()) if wish.level == place_of) for axis in parts}
    if topology := joined(level.topology):
        used = prod(parts.values())
        carrier = Carrier(place_of, level.name, topology, used, closed=False, shared=level.shared)
        return LaidLevel({level.name: carrier}, {axis: (AxisPiece(level.name, n, 1),) for axis, n in parts.items()})
    rings = [(wish, axis) for axis in parts for wish in wishes[axis] if wish.asked == "ring"]
    ways = _slices(level, parts, wishes, slices)
    best = min(ways, key=lambda way: (len(way.opened(rings)), *way.score), default=None)
    if best is None:
        return None
    if refused := best.opened(rings):
        raise _no_ring(level, refused[0], best.whole)
    return best.laid(place_of, {wish.axis or 0 for axis in parts for wish in wishes[axis] if wish.asked == "line"})


@dataclass(frozen=True, slots=True)
class _Slice:
    """One way to lay mesh axes on a torus.

    on     per mesh axis its (physical axis, devices), minor mesh axes first
    shape  devices along each physical axis
    whole  chips along each physical axis of the slice that they lie in
    """

    level: Wires
    on: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    shape: tuple[int, ...]
    whole: tuple[int, ...]

    def closes(self, index: int) -> bool:
        """True if physical axis `index` is a closed ring."""
        extent = self.shape[index]
        if self.level.topology in {"ring", "one_way_ring"}:
            return extent == self.level.shape[index]
        full = extent == self.whole[index]
        return full and self.level.topology == "torus" and self.level.wrap.closes(extent, self.whole)

    def opened(self, rings: Sequence[tuple[Bound, str]]) -> list[Bound]:
        """Those of the carriers asked to be rings, each with its mesh axis, that it does not fill or that are none.

        Parts of one axis fill them together.
        """
        filled: Counter[tuple[int, str]] = Counter()
        for bound, axis in rings:
            key = bound.axis or 0, bound.whole or axis
            filled[key] = (filled[key] or 1) * dict(dict(self.on)[axis]).get(key[0], 1)
        none = {(at, of) for (at, of), n in filled.items() if not self.closes(at) or n != self.shape[at] or n == 1}
        return [bound for bound, axis in rings if (bound.axis or 0, bound.whole or axis) in none]

    @property
    def score(self) -> tuple[Any, ...]:
        """Less is better: chips, partial axes, open axes, axes in use, their longest, and the given order."""
        partial = sum(n != self.shape[index] for _, pieces in self.on for index, n in pieces)
        rings = sum(self.closes(index) for index in range(len(self.shape)))
        used = sum(extent > 1 for extent in self.shape)
        return prod(self.whole), partial, -rings, used, max(self.shape), tuple(-extent for extent in self.shape)

    def laid(self, place_of: int, lines: set[int]) -> LaidLevel:
        """The carriers and pieces; physical axes in `lines` are not closed though they could be."""
        names = axis_names(self.level)
        closed = [self.closes(index) and index not in lines for index in range(len(self.shape))]
        carriers = {
            names[index]: Carrier(place_of, names[index], self._joined(closed[index]), extent, closed[index])
            for index, extent in enumerate(self.shape)
            if extent > 1
        }
        reached = [1] * len(self.shape)
        pieces = {}
        for axis, placed in self.on:
            pieces[axis] = tuple(AxisPiece(names[index], n, reached[index]) for index, n in placed)
            for index, n in placed:
                reached[index] *= n
        share = Fraction(prod(self.shape), prod(self.whole))
        return LaidLevel(carriers, pieces, _remarks(self.level, self.whole, closed), tuple(self._idle()), share)

    def _joined(self, closed: bool) -> SegmentTopology:
        """How the devices along an axis are joined; where nothing goes back, an open one is no line."""
        if self.level.topology == "one_way_ring":
            return "one_way_ring"
        return "ring" if closed else "line"

    def _idle(self) -> Iterator[str]:
        chips = prod(self.whole)
        if unused := chips - prod(self.shape):
            slice_ = f"{self.level.name} slice {by(self.whole)}"
            yield f"{unused} of the {chips} chips of {slice_} idle: none is sold as {by(self.shape)}"


def _remarks(level: Wires, shape: Sequence[int], closed: Sequence[bool]) -> tuple[str, ...]:
    if level.topology != "torus":
        return ()
    rings = [name for name, ring in zip(axis_names(level), closed, strict=True) if ring]
    joined = f"closed: {', '.join(rings)}" if rings else "no closed axis"
    return (f"{level.name} slice {by(shape)}, {joined} ({level.wrap})",)


def _slices(
    level: Wires, parts: Mapping[str, int], wishes: Mapping[str, tuple[Bound, ...]], slices: Slices
) -> Iterator[_Slice]:
    """Every way to lay the parts on the level's physical axes that respects what the user asked for.

    What is not bound lies on axes that nothing is bound to, or, where there are none, on what is left of all.
    """
    minor_first = list(reversed(list(parts)))
    fixed = {axis: [wish.axis for wish in wishes[axis] if wish.axis is not None] for axis in minor_first}
    taken = {index for indices in fixed.values() for index in indices}
    free = [index for index in range(len(level.shape)) if index not in taken] or [*range(len(level.shape))]
    bound = [axis for axis in minor_first if fixed[axis]]
    loose = [axis for axis in minor_first if not fixed[axis]]
    ways = [[way for way in _splits(parts[axis], fixed[axis]) if _as_asked(way, wishes[axis])] for axis in bound]
    around = cache(lambda shape: [*slices.around(shape, level.shape)])
    for split, packed in choices(choices(*ways), _packings([parts[axis] for axis in loose], free, level.shape)):
        on = dict(zip(bound, split, strict=True)) | dict(zip(loose, packed, strict=True))
        shape = [1] * len(level.shape)
        for pieces in on.values():
            for index, n in pieces:
                shape[index] *= n
        if all(extent <= most for extent, most in zip(shape, level.shape, strict=True)):
            laid = tuple((axis, on[axis]) for axis in minor_first)
            yield from (_Slice(level, laid, tuple(shape), whole) for whole in around(tuple(shape)))


Pieces = tuple[tuple[int, int], ...]
"""(physical axis, devices) pairs of one mesh axis."""


def _splits(n: int, indices: Sequence[int]) -> Iterator[Pieces]:
    """Every way to write `n` as a product over these physical axes."""
    for shape in _shapes(n, [n] * len(indices)):
        yield tuple(piece for piece in zip(indices, shape, strict=True) if piece[1] > 1)


def _as_asked(way: Pieces, wishes: Sequence[Bound]) -> bool:
    """True if as many devices lie along each physical axis as were asked for there."""
    laid = dict(way)
    return all(wish.n in {None, laid.get(wish.axis, 1)} for wish in wishes if wish.axis is not None)


def _packings(sizes: Sequence[int], free: Sequence[int], most: Sequence[int]) -> Iterator[tuple[Pieces, ...]]:
    """Every way to lay axes of these sizes, minor first, one after the other over the free physical axes."""
    if not free:
        if not sizes:
            yield ()
        return
    for extents in _shapes(prod(sizes), [most[index] for index in free]):
        packed = _packed(sizes, free, extents)
        if packed is not None:
            yield packed


def _shapes(chips: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every shape of so many chips within `most` per axis."""
    if len(most) == 1:
        if chips <= most[0]:
            yield (chips,)
        return
    for first in range(1, min(chips, most[0]) + 1):
        if not chips % first:
            for rest in _shapes(chips // first, most[1:]):
                yield (first, *rest)


def _packed(sizes: Sequence[int], free: Sequence[int], extents: Sequence[int]) -> tuple[Pieces, ...] | None:
    """Mixed radix: the axes fill the extents from the first on; None if one does not come out even."""
    left = list(extents)
    result = []
    for size in sizes:
        rest, pieces = size, []
        for at, index in enumerate(free):
            share = min(rest, left[at])
            if share > 1:
                if rest % share or left[at] % share:
                    return None
                pieces.append((index, share))
                rest //= share
                left[at] //= share
        result.append(tuple(pieces))
    return tuple(result)


def _no_ring(level: Wires, bound: Bound, shape: Sequence[int]) -> InputError:
    message = f"{bound.text}: the ends of this axis are not joined in a slice of {by(shape)}"
    remedy = "leave :ring out, or fill an axis that closes"
    return InputError.one("no-wraparound", message, remedy=remedy, note=f"{level.name}: {level.wrap}")
