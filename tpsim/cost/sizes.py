"""What a cost is evaluated at: sizes of dims, mesh axes and loops, as numbers, arrays or symbols."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tpsim.program.dims import CAPACITY, DIMS, ROLES, completed, loop
from tpsim.quantity.size import Size, over, product, smallest

if TYPE_CHECKING:
    from tpsim.algebra.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a cost is evaluated at.

    dims   sizes of the program's dims; b counts sequences per microbatch over all data shards
    axes   sizes of the mesh axes
    loops  how often each loop of the program runs on a device: layers, microbatches, chunks
    roles  the axes of tp and dp, which formulas call t and d
    stack  layers of the whole stack where a device has a stage of it; 0 where it has all
    peaks  dim -> what the fullest device has of it over the mean, where that is not one
    letters  True: formulas call dims and axes as models do; False: by their own names, as expressions do
    """

    dims: Mapping[str, Size]
    axes: Mapping[str, Size]
    loops: Mapping[str, Size]
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stack: int = 0
    letters: bool = True
    peaks: Mapping[str, Size] = field(default_factory=dict)
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _symbols: list[Sizes] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def repeats(self) -> Any:
        """Runs of what stands in every loop: once per layer and microbatch."""
        return self.loops["layers"] * self.loops["microbatches"]

    @property
    def unpadded(self) -> Mapping[str, Size]:
        """Its dims where experts have no more rows than tokens choose them, whatever their capacity."""
        if CAPACITY not in self.dims:
            return self.dims
        fewer = {**self.dims, CAPACITY: smallest(1, self.dims[CAPACITY])}
        return self.once(CAPACITY, lambda: completed(fewer))  # type: ignore[no-any-return]  # dims

    def of_stage(self, layers: Mapping[str, int]) -> Sizes:
        """The same on a device with so many layers of each kind; what is evaluated once knows none of these."""
        if layers.items() <= self.loops.items():
            return self
        stage = replace(self, loops={**self.loops, **layers})
        object.__setattr__(stage, "_known", self._known)
        return stage

    @property
    def symbols(self) -> Sizes:
        """The same as symbols, for formulas. Loads sympy."""
        if not self._symbols:
            self._symbols.append(_symbols(self) if self.letters else _by_name(self))
        return self._symbols[0]

    @property
    def known(self) -> dict[str, Any]:
        """The number that each symbol of its formulas stands for. Loads sympy."""
        letters = self.symbols
        pairs = ((letters.dims, self.dims), (letters.loops, self.loops), (letters.axes, self.axes))
        bound = ((named[key], size) for named, sizes in pairs for key, size in sizes.items())
        return {str(symbol): size for symbol, size in bound if getattr(symbol, "is_Symbol", False)}

    def local_elements(self, type_: Sharding) -> Any:
        """Elements of an array of this type on one device; types that hold as many are evaluated once."""
        return self.once(type_.portion, lambda: type_.local_elements(self.dims, self.axes))

    def peak(self, dims: Iterable[str]) -> Any:
        """What the fullest device has over the mean, of arrays with these dims."""
        return product(self.peaks[dim] for dim in dims if dim in self.peaks) if self.peaks else 1

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """What `compute` gives of dims and axes, evaluated once for equal keys."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = compute()
        return known


def _symbols(sizes: Sizes) -> Sizes:
    """Sizes made of symbols where `sizes` has numbers.

    An axis of one device stays 1, and what has no symbol of its own (a pair of two) stays its number. Where a role
    takes several axes, all but the last have symbols of their own and the last is the role's symbol over theirs, so
    that whatever takes part over the whole role shows t or d. One of tp as long as there are kv heads is kv_heads: tp
    beyond the kv heads replicates them. An axis that bears the letter of something else is written ``n_`` and its name.
    """
    dims = completed({name: _symbol(DIMS[name].symbol) or size for name, size in sizes.dims.items()})
    loops = {name: _symbol(loop(name).symbol) or size for name, size in sizes.loops.items()}
    taken = {*(row.symbol for row in ROLES.values()), *map(str, dims.values()), *map(str, loops.values())}
    names = {axis: _symbol(f"n_{axis}" if axis in taken else axis) for axis in sizes.axes}
    axes: dict[str, Any] = {axis: size if size == 1 else names[axis] for axis, size in sizes.axes.items()}
    for role in ROLES:
        used = [axis for axis in sizes.roles.get(role, ()) if axis in sizes.axes and sizes.axes[axis] != 1]
        axes.update(_role_axes(used, role, sizes, dims, names))
    return replace(sizes, dims=dims, axes=axes, loops=loops)


def _by_name(sizes: Sizes) -> Sizes:
    """A symbol per dim and per axis; an axis that bears a dim's name is written ``n_`` and its name."""
    dims = {dim: _symbol(dim) for dim in sizes.dims}
    axes = {axis: _symbol(f"n_{axis}" if axis in dims else axis) for axis in sizes.axes}
    return replace(sizes, dims=dims, axes=axes)


def _role_axes(
    axes: Sequence[str], role: str, sizes: Sizes, dims: Mapping[str, Any], names: Mapping[str, Any]
) -> dict[str, Any]:
    """The symbol of the role over those of its other axes is that of the last one, or of the last without experts."""
    if not axes:
        return {}
    last = next((axis for axis in reversed(axes) if axis not in sizes.roles.get("ep", ())), axes[-1])
    heads = sizes.dims.get("g") if role == "tp" else None
    own = {axis: dims["g"] if sizes.axes[axis] == heads else names[axis] for axis in axes if axis != last}
    return {**own, last: over(_symbol(ROLES[role].symbol), product(own.values()))}


def _symbol(name: str) -> Any:
    """The symbol of a size; None for one without a name."""
    import sympy

    return sympy.Symbol(name, positive=True) if name else None
