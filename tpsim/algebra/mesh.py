"""The mesh: a named grid of devices whose axes can be split into factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tpsim.algebra.sharding import Sharding, extent


def sized(sizes: Mapping[str, int], between: str = " x ") -> str:
    """Axes, or dims, with their sizes, in words.

    >>> sized({"data": 32, "tensor": 8})
    'data 32 x tensor 8'
    """
    return between.join(f"{name} {size}" for name, size in sizes.items())


def as_flag(sizes: Mapping[str, int]) -> str:
    """The same as the command line takes them.

    >>> as_flag({"data": 32, "tensor": 8})
    'data=32,tensor=8'
    """
    return ",".join(f"{name}={size}" for name, size in sizes.items())


@dataclass(frozen=True, slots=True)
class Mesh:
    """A named grid of devices, axes major first, e.g. ``Mesh({"X": 4, "Y": 2})``: 8 devices.

    >>> Mesh({"X": 4, "Y": 2}).size("X", "Y")
    8
    """

    axes: Mapping[str, int]

    def size(self, *names: str) -> int:
        """Devices along `names` together; 1 for no names."""
        return prod(self.axes[name] for name in names)

    @property
    def devices(self) -> int:
        """Devices in the whole mesh."""
        return prod(self.axes.values())

    @property
    def order(self) -> tuple[str, ...]:
        """Axis names, major first."""
        return tuple(self.axes)

    def split(self, name: str, factors: Mapping[str, int]) -> Mesh:
        """The same devices with axis `name` written as `factors`, major first.

        Raises ValueError if the factors do not multiply to the axis.

        >>> Mesh({"D": 4, "T": 16}).split("T", {"kv": 8, "rep": 2}).axes
        {'D': 4, 'kv': 8, 'rep': 2}
        """
        if prod(factors.values()) != self.axes[name]:
            raise ValueError(f"{dict(factors)} does not multiply to axis {name} of {self.axes[name]}")
        split: dict[str, int] = {}
        for axis, size in self.axes.items():
            split.update(factors if axis == name else {axis: size})
        return Mesh(split)

    def unsplit(self, parents: Mapping[str, str]) -> Mesh:
        """The mesh whose axes were split: `parents` maps a part to the axis that it came from.

        >>> Mesh({"D": 4, "kv": 8, "rep": 2}).unsplit({"kv": "T", "rep": "T"}).axes
        {'D': 4, 'T': 16}
        """
        whole: dict[str, int] = {}
        for axis, size in self.axes.items():
            parent = parents.get(axis, axis)
            whole[parent] = whole.get(parent, 1) * size
        return Mesh(whole)

    def divides(self, type_: Sharding, dim: str, dims: Mapping[str, int]) -> bool:
        """True if the axes on `dim` of an array of this type divide it.

        dims  sizes by name
        """
        return extent(dim, dims, self.axes) % self.size(*type_.axes(dim)) == 0  # type: ignore[no-any-return]  # a size
