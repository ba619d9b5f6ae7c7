"""What a product's or reshard's moves cost on one mesh: volumes from sizes, seconds from a machine if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.contract import flops
from tpsim.algebra.moves import wire
from tpsim.algebra.planner import Prices
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import Size

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.algebra.sharding import Sharding
    from tpsim.fabric.placement import Placement
    from tpsim.fabric.wires import Route
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import CostModel


@dataclass(frozen=True, slots=True)
class Clock:
    """A machine on which the mesh is placed: what turns bytes and FLOPs into seconds."""

    machine: Machine
    placement: Placement
    dtype: str
    cost_model: CostModel

    def move(self, move: Move, volume: Any) -> Any:
        """The timing of one move of `volume` logical bytes."""
        return self.timed(move, self.placement.route(move.axes), volume)

    def timed(self, move: Move, route: Route, volume: Any) -> Any:
        """The same on another route. Raises InputError where no closed form is known."""
        from tpsim.machine import timing

        change = self.placement.change(move)
        return timing.time(self.machine, route, move.kind, volume, cost_model=self.cost_model, change=change)

    def product(self, work: Any) -> Any:
        """Seconds of so many FLOPs on one device; the book takes the peak as reached."""
        from tpsim.machine import timing

        efficiency = 1.0 if self.cost_model == "book" else None
        return timing.compute_s(self.machine, work, self.dtype, efficiency)


@dataclass(frozen=True)
class Pricing:
    """Sizes and, if there is a machine, seconds.

    dims   None: formulas only; plans are then ranked as if all dims were of one size
    width  bytes of an element
    """

    mesh: Mesh
    dims: Mapping[str, int] | None
    width: int
    clock: Clock | None

    @property
    def ranking_dims(self) -> Mapping[str, Size]:
        """The dims that plans are compared with."""
        return _Alike() if self.dims is None else self.dims

    def volume(self, move: Move) -> Any:
        """Logical bytes of a move."""
        return self.width * move.logical_elements(self.ranking_dims, self.mesh.axes)

    def wire(self, move: Move) -> Any:
        """Bytes that each device injects."""
        return wire(move.kind, self.volume(move), move.ranks(self.mesh.axes))

    def prices(self) -> Prices:
        """What the planners compare: seconds with a machine, else wire bytes."""
        clock = self.clock
        return Prices(
            self._price,
            (lambda _: 0) if clock is None else clock.product,
            lambda ask: flops(ask, self.ranking_dims, self.mesh.axes),
        )

    def _price(self, move: Move) -> Any:
        if self.dims is not None and not all(fits(move.after, dim, self.dims, self.mesh) for dim in move.after.dims):
            return inf
        if self.clock is None:
            return self.wire(move)
        try:
            return 0 if move.kind == "slice" else self.clock.move(move, self.volume(move)).time_s
        except InputError:
            return inf  # no closed form is known for these axes on this fabric: not a way to offer


class _Alike(Mapping[str, Size]):
    """Every dim has the same size: what ranks plans when no dims are given."""

    def __getitem__(self, dim: str) -> Size:
        return 1

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def fits(type_: Sharding, dim: str, dims: Mapping[str, int], mesh: Mesh) -> bool:
    """True if the axes on `dim` divide it."""
    return dims[dim] % mesh.size(*type_.axes(dim)) == 0
