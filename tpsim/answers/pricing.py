"""What a product's or reshard's moves cost on one mesh: volumes from sizes, seconds from a machine if there is one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.contract import flops
from tpsim.algebra.moves import reordered, wire
from tpsim.algebra.planner import Prices
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import Size

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.fabric.placement import Placement
    from tpsim.fabric.wires import Route
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import CostModel, Timing


@dataclass(frozen=True, slots=True)
class Clock:
    """A machine on which the mesh is placed: what turns bytes and FLOPs into seconds."""

    machine: Machine
    placement: Placement
    dtype: str
    cost_model: CostModel

    def move(self, move: Move, volume: Any) -> Timing:
        """The timing of one move of `volume` logical bytes."""
        return self.timed(move, self.placement.route(move.axes), volume)

    def timed(self, move: Move, route: Route, volume: Any) -> Timing:
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

    dims      None: formulas only; plans are then ranked as if all dims were of one size
    width     bytes of an element
    unpriced  moves that planners could not price, by their kind and the reason: the first of each
    """

    mesh: Mesh
    dims: Mapping[str, int] | None
    width: int
    clock: Clock | None
    unpriced: dict[tuple[MoveKind, str], Move] = field(default_factory=dict, compare=False)
    _known: dict[Hashable, Timing] = field(default_factory=dict, repr=False, compare=False)

    @property
    def axes(self) -> Mapping[str, Size]:
        """Sizes of the mesh axes."""
        return self.mesh.axes

    @property
    def ranking_dims(self) -> Mapping[str, Size]:
        """The dims that plans are compared with."""
        return _Alike() if self.dims is None else self.dims

    def volume(self, move: Move) -> Any:
        """Logical bytes of a move."""
        return self.width * move.logical_elements(self.ranking_dims, self.axes)

    def wire(self, move: Move) -> Any:
        """Bytes that each device injects."""
        return wire(move.kind, self.volume(move), move.ranks(self.axes))

    def timing(self, move: Move) -> Timing | None:
        """Latency, bandwidth and seconds of a move, worked out once for moves that take as long; None for a slice.

        Raises InputError where no closed form is known.
        """
        if self.clock is None or move.kind == "slice":
            return None
        volume, among = self.volume(move), reordered(move.before, move.after) if move.kind == "permute" else move.axes
        alike = (move.kind, among, volume)
        if alike not in self._known:
            self._known[alike] = self.clock.move(move, volume)
        return self._known[alike]

    def prices(self) -> Prices:
        """What the planners compare: seconds with a machine, else wire bytes."""
        return Prices(
            self.wire if self.clock is None else self._seconds,
            (lambda _: 0) if self.clock is None else self.clock.product,
            lambda ask: flops(ask, self.ranking_dims, self.axes),
            lambda type_: self.dims is None or all(self.mesh.divides(type_, dim, self.dims) for dim in type_.dims),
        )

    def _seconds(self, move: Move) -> Any:
        """Infinity where no closed form is known: that is no way to offer, and `unpriced` says so."""
        try:
            timing = self.timing(move)
        except InputError as error:
            self.unpriced.setdefault((move.kind, error.problems[0].message), move)
            return inf
        return 0 if timing is None else timing.time_s


class _Alike(Mapping[str, Size]):
    """Every dim has the same size: what ranks plans when no dims are given."""

    def __getitem__(self, dim: str) -> Size:
        return 1

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0
