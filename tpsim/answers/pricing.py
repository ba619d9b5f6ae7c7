"""What an expression's moves cost on one mesh: volumes from sizes, seconds from a machine if there is one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

from tpsim.algebra.contract import flops
from tpsim.algebra.moves import reordered, wire
from tpsim.algebra.planner import Prices
from tpsim.cost.collectives import moves
from tpsim.cost.rollup import Row, price
from tpsim.cost.sizes import Sizes
from tpsim.frozen import dataclass
from tpsim.machine import chip_seconds, cost, timing
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move, MoveKind
    from tpsim.fabric.placement import Placement
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import CostModel, Timing
    from tpsim.program.op import Program


@dataclass(frozen=True, slots=True)
class PlacedMachine:
    """A machine on which the mesh is placed: what turns bytes and FLOPs into seconds."""

    machine: Machine
    placement: Placement
    dtype: str
    cost_model: CostModel

    def move(self, move: Move, volume: Any) -> Timing:
        """The timing of one move of `volume` logical bytes. Raises InputError where no closed form is known."""
        route, change = self.placement.route(move.axes), self.placement.change(move)
        return timing.time(self.machine, route, move.kind, volume, cost_model=self.cost_model, change=change)

    def product(self, work: Any) -> Any:
        """Seconds of so many FLOPs on one device; the book takes the peak as reached."""
        efficiency = 1.0 if self.cost_model == "book" else None
        return chip_seconds.compute_s(self.machine, work, self.dtype, efficiency)


@dataclass(frozen=True)
class Pricing:
    """Sizes and, if there is a machine, seconds.

    dims      of every array; where none are given plans are ranked as if all dims were of one size
    given     False: they are not given, and whatever depends on them is not known
    clock     None without a machine
    unpriced  moves that planners could not price, by their kind and the reason: the first of each
    """

    mesh: Mesh
    dims: Mapping[str, int]
    dtype: str
    clock: PlacedMachine | None = None
    given: bool = True
    unpriced: dict[tuple[MoveKind, str], Move] = field(default_factory=dict, compare=False)
    _known: dict[Hashable, Timing] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def sizes(self) -> Sizes:
        """What rows are evaluated at: formulas call dims and axes by their names."""
        return Sizes(self.dims, self.mesh.axes, {}, letters=False)

    def rows(self, program: Program) -> tuple[Row, ...]:
        """The ledger of a way: a row per move, free slices too."""
        return price(tuple(moves(program)), self.sizes, self._timing)

    def prices(self) -> Prices:
        """What the planners compare: seconds with a machine, else wire bytes."""
        return Prices(
            self._wire if self.clock is None else self._seconds,
            (lambda _: 0) if self.clock is None else self.clock.product,
            lambda ask: flops(ask, self.dims, self.mesh.axes),
            lambda type_: not self.given or all(self.mesh.divides(type_, dim, self.dims) for dim in type_.dims),
        )

    def _volume(self, move: Move) -> Any:
        return DTYPE_BYTES[self.dtype] * move.logical_elements(self.dims, self.mesh.axes)

    def _wire(self, move: Move) -> Any:
        return wire(move.kind, self._volume(move), move.ranks(self.mesh.axes))

    def _seconds(self, move: Move) -> Any:
        """Infinity where no closed form is known: that is no way to offer, and `unpriced` says so."""
        try:
            return self._timing(move, self._volume(move)).time_s
        except InputError as error:
            self.unpriced.setdefault((move.kind, error.problems[0].message), move)
            return inf

    def _timing(self, move: Move, volume: Any) -> Timing:
        """Worked out once for moves that take as long; of no seconds without a machine."""
        if self.clock is None or move.kind == "slice":
            return FREE
        among = reordered(move.before, move.after) if move.kind == "permute" else move.axes
        alike = (move.kind, among, volume)
        if alike not in self._known:
            self._known[alike] = self.clock.move(move, volume)
        return self._known[alike]


FREE = timing.Timing(cost.FREE, None)
"""What takes no time."""
