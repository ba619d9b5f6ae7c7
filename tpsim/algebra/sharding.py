"""The array type: which mesh axes shard each dim, which sums are still owed; everything else is replicated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Any, Literal, Self

from tpsim.quantity.size import Size, ceil_over, narrowed, over, product

OwedKind = Literal["sum", "max"]
Owed = tuple[str, OwedKind]
Portion = tuple[tuple[str, ...], tuple[str, ...]]


class ShardingError(ValueError):
    """A type or an operation on types that the algebra forbids; the message says why in the notation."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """One array's type over a mesh. Sizes are not part of it: dims and axes are names.

    dims  names of the dims, in the array's own order
    on    per dim the ORDERED mesh axes that shard it, major first; ``I_XY`` is X-major
    owes  (axis, kind) pairs: each device holds a part, the array is the sum (or max) over that axis

    Raises ShardingError when one axis is used twice (it may shard one dim or carry one sum), and when both a sum and a
    max are owed: paid in the other order they give another array.

    >>> str(Sharding(("I", "J"), (("X", "Y"), ()), frozenset({("Z", "sum")})))
    '[I_XY, J]{U_Z}'
    """

    dims: tuple[str, ...]
    on: tuple[tuple[str, ...], ...]
    owes: frozenset[Owed] = frozenset()
    _portion: Portion | None = field(init=False, repr=False, compare=False)
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse an axis that occurs twice and a dim list that does not fit."""
        object.__setattr__(self, "_portion", None)
        object.__setattr__(self, "_text", "")
        if len(self.dims) != len(self.on) or len(set(self.dims)) != len(self.dims):
            raise ShardingError(f"dims {self.dims} and their axes {self.on} do not fit together")
        used = list(chain.from_iterable(self.on))
        if self.owes:
            used += [axis for axis, _ in self.owes]
        if len(used) > 1 and len(set(used)) < len(used):
            twice = min(axis for axis in used if used.count(axis) > 1)
            remedy = "an axis may shard one dim or carry one sum"
            raise ShardingError(f"mesh axis {twice} is used twice in {self}; {remedy}")
        if len(self.owes) > 1 and len({kind for _, kind in self.owes}) > 1:
            raise ShardingError(f"{self} owes a sum and a max, which do not commute; settle one of them first")

    @property
    def sharded_axes(self) -> tuple[str, ...]:
        """Every axis that shards a dim, in the order of the dims."""
        return tuple(chain.from_iterable(self.on))

    @property
    def portion(self) -> Portion:
        """What a device's number of elements follows from: the dims and the axes that shard them, each in one order."""
        if self._portion is None:
            object.__setattr__(self, "_portion", (tuple(sorted(self.dims)), tuple(sorted(self.sharded_axes))))
        return self._portion  # type: ignore[return-value]  # it was just put there

    @property
    def owed_axes(self) -> frozenset[str]:
        """Every axis over which a sum or a max is still owed."""
        return frozenset(axis for axis, _ in self.owes)

    @property
    def complete(self) -> bool:
        """True if nothing is owed: the values are the array's own."""
        return not self.owes

    def axes(self, dim: str) -> tuple[str, ...]:
        """The axes that shard `dim`, major first."""
        return self.on[self.dims.index(dim)]

    def with_axes(self, dim: str, axes: Iterable[str]) -> Sharding:
        """The same type with `dim` sharded by `axes`."""
        place = self.dims.index(dim)
        return Sharding(self.dims, (*self.on[:place], tuple(axes), *self.on[place + 1 :]), self.owes)

    def owing(self, owes: Iterable[Owed]) -> Sharding:
        """The same type with exactly these sums owed."""
        owed = frozenset(owes)
        return self if owed == self.owes else Sharding(self.dims, self.on, owed)

    def renamed(self, names: Mapping[str, str]) -> Sharding:
        """The same type with dims renamed."""
        return Sharding(tuple(names.get(dim, dim) for dim in self.dims), self.on, self.owes)

    def local(self, dim: str, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """Elements of `dim` that one device holds."""
        shards = self.axes(dim)
        whole = extent(dim, dims, axes)
        return over(whole, product(axes[axis] for axis in shards)) if shards else whole

    def local_elements(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """Elements that one device holds; an owed array is held whole by each device that owes."""
        return split(product(extent(dim, dims, axes) for dim in self.dims), self.sharded_axes, axes)

    def __str__(self) -> str:
        """The type in the notation, without an array's name."""
        if not self._text:
            object.__setattr__(self, "_text", self._told())
        return self._text

    def _told(self) -> str:
        inside = ", ".join(subscript(dim, axes) for dim, axes in zip(self.dims, self.on, strict=True))
        sums = subscript("U", sorted(axis for axis, kind in self.owes if kind == "sum"))
        maxima = subscript("M", sorted(axis for axis, kind in self.owes if kind == "max"))
        owed = ", ".join(text for text in (sums, maxima) if "_" in text)
        return f"[{inside}]" + (f"{{{owed}}}" if owed else "")


class FlatDim(str):
    """A dim in which others lie one behind the other: of each device its own part of them, filled up.

    of      the type whose parts are laid out; it owes nothing
    merged  those of its dims that are laid out; the others stay behind the line as they are
    ways    the axes that split the line further: it is filled up until each gets as much

    >>> line = FlatDim("flat", Sharding(("h", "f"), ((), ("tensor",))), ("h", "f"), ("data",))
    >>> str(line.type), str(line.begun), line.extent({"h": 5, "f": 8}, {"tensor": 2, "data": 3})
    ('[flat(h,f)_{tensor,data}]', '[flat(h,f)_{tensor}]', 42)
    """

    __slots__ = ("merged", "of", "ways")

    of: Sharding
    merged: tuple[str, ...]
    ways: tuple[str, ...]

    def __new__(cls, name: str, of: Sharding, merged: Sequence[str], ways: Sequence[str]) -> Self:
        """Named by how it came about and what it is made of."""
        line = super().__new__(cls, f"{name}({','.join(merged)})")
        line.of, line.merged, line.ways = of, tuple(merged), tuple(ways)
        return line

    @property
    def shards(self) -> tuple[str, ...]:
        """The axes that split what is laid out: they split the line before `ways` do."""
        return tuple(axis for dim in self.merged for axis in self.of.axes(dim))

    @property
    def rest(self) -> tuple[str, ...]:
        """The dims that stay."""
        return tuple(dim for dim in self.of.dims if dim not in self.merged)

    @property
    def begun(self) -> Sharding:
        """The type of what lies in the line before `ways` split it: each device has what it had."""
        return Sharding((self, *self.rest), (self.shards, *(self.of.axes(dim) for dim in self.rest)))

    @property
    def type(self) -> Sharding:
        """The type of what lies in the line, split by `ways`, too."""
        return self.begun.with_axes(self, (*self.shards, *self.ways))

    def extent(self, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
        """Elements of the whole line, with what fills it up."""
        shards, ways = (product(axes[axis] for axis in some) for some in (self.shards, self.ways))
        own = over(product(dims[dim] for dim in self.merged), shards)
        return shards * ways * ceil_over(own, ways)


def split(whole: Any, by: Iterable[str], axes: Mapping[str, Size]) -> Any:
    """What one device has of `whole` that these axes split; of a grid, once for all layouts that have as much."""
    return reduce(lambda rest, axis: narrowed(over(rest, axes[axis])), by, whole)


def extent(dim: str, dims: Mapping[str, Size], axes: Mapping[str, Size]) -> Any:
    """Elements of a dim; a line follows from what lies in it."""
    return dim.extent(dims, axes) if isinstance(dim, FlatDim) else dims[dim]


def flat_dim(type_: Sharding) -> FlatDim | None:
    """The line that is a dim of a type; None without one."""
    return next((dim for dim in type_.dims if isinstance(dim, FlatDim)), None)


def unpacked(type_: Sharding) -> Sharding:
    """The type as it was before it was laid out in a line, whatever it owes; any other as it is."""
    line = flat_dim(type_)
    return line.of.owing(type_.owes) if line else type_


def subscript(name: str, axes: Iterable[str]) -> str:
    """`name` with axes as the book writes them: ``I_XY`` for one-letter axes, ``I_{dp,tp}`` for longer names."""
    axes = tuple(axes)
    if not axes:
        return name
    if all(len(axis) == 1 for axis in axes):
        return f"{name}_{''.join(axes)}"
    return f"{name}_{{{','.join(axes)}}}"


def joined(axes: Iterable[str]) -> str:
    """Axes as they are spoken of: ``XY``, or ``dp,tp`` for longer names."""
    return subscript("", axes).removeprefix("_").strip("{}")
