"""The ways to an expression's result: ops, each a move with its row of the ledger or the product that it computes.

Sizes make volumes of the moves, and a machine on which the mesh is placed makes seconds of these.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tpsim.algebra import notation
from tpsim.algebra.contract import Contraction, flops, free_dims
from tpsim.algebra.moves import Move, MoveKind, reordered, wire
from tpsim.algebra.planner import Planner, Prices, ProductWays, StepKind, product_ways, reshard_ways
from tpsim.algebra.sharding import ShardingError
from tpsim.cost import formula
from tpsim.cost.collectives import moves
from tpsim.cost.rollup import Row, price
from tpsim.cost.sizes import Sizes
from tpsim.machine import chip_seconds, cost, timing
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.op import Einsum, Op, Program, Reshard
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import total
from tpsim.report.record import Bytes, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.fabric.placement import Placement
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import CostModel, Timing


@dataclass(frozen=True, slots=True)
class StepFormulas(Record):
    """A step's costs in symbols."""

    op: StepKind
    wire_bytes_per_device: str
    flops_per_device: str


@dataclass(frozen=True, slots=True)
class ShardStep(Record):
    """One move or product; costs are null without dims, seconds also without a machine.

    made  the op of the program
    row   a move's in the ledger; None for the product
    """

    told: ClassVar[tuple[str, ...]] = (
        *("op", "axes", "input", "output", "logical_bytes", "wire_bytes_per_device", "flops_per_device"),
        *("latency_s", "bandwidth_s", "time_s", "because"),
    )

    made: Op
    row: Row | None
    at: Pricing

    because = Of[str]("made.because", "why it is made")

    @property
    def op(self) -> StepKind:
        """A move, or the product that every device does alone."""
        return self.row.collective if self.row else "matmul"

    @property
    def axes(self) -> tuple[str, ...]:
        """Mesh axes that a move is over, major first."""
        return self.row.call.axes if self.row else ()

    @property
    def input(self) -> str:
        """What goes in, in the notation."""
        return " . ".join(map(str, self.made.inputs))

    @property
    def output(self) -> str:
        """What comes out, in the notation."""
        return str(self.made.output)

    @property
    def logical_bytes(self) -> Bytes | None:
        """Of a move: bytes of the full array taking part."""
        return self._known(self.row.logical_bytes if self.row else 0)

    @property
    def wire_bytes_per_device(self) -> Bytes | None:
        """What a device must inject."""
        return self._known(self.row.wire_bytes_per_device if self.row else 0)

    @property
    def flops_per_device(self) -> Number | None:
        """What a device computes, work that others repeat included."""
        return self._known(self._flops(self.at.sizes))

    @property
    def latency_s(self) -> Seconds | None:
        """Of a move: launch and steps."""
        return self._timed(self.row.latency_s if self.row else 0)

    @property
    def bandwidth_s(self) -> Seconds | None:
        """Of a move: what its bytes take."""
        return self._timed(self.row.bandwidth_s if self.row else 0)

    @property
    def time_s(self) -> Seconds | None:
        """All of it."""
        if self.row or self.at.clock is None:
            return self._timed(self.row.time_s if self.row else 0)
        return self.at.clock.product(self.flops_per_device)

    @property
    def formulas(self) -> StepFormulas:
        """Wire bytes and FLOPs of one device, each as one line with common factors in front. Loads sympy."""
        wire = self.row.formula if self.row else "0"
        return StepFormulas(self.op, wire, formula.text(self._flops(self.at.sizes.symbols)))

    def _flops(self, sizes: Sizes) -> Any:
        if self.row:
            return 0
        (left, right), out = ((array.name, array.type) for array in self.made.inputs), self.made.output
        return flops(Contraction(left, right, out.name, out.dims), sizes.dims, sizes.axes)

    def _known(self, value: Any) -> Any:
        return value if self.at.given else None

    def _timed(self, value: Any) -> Any:
        return value if self.at.clock else None

    def __str__(self) -> str:
        return f"{self.op}({','.join(self.axes)})" if self.axes else self.op


def steps_of(program: Program, at: Pricing) -> Iterator[ShardStep]:
    """The moves and products of a way, in order, each move with its row."""
    rows = iter(at.rows(program))
    for op in program.ops:
        if isinstance(op, Reshard):
            yield ShardStep(op, next(rows), at)
        elif isinstance(op, Einsum) and len(op.inputs) > 1:
            yield ShardStep(op, None, at)


@dataclass(frozen=True, slots=True)
class Way(Record):
    """One way to the result.

    planners  all who choose it
    program   what devices run
    timed     True with a machine
    """

    told: ClassVar[tuple[str, ...]] = (
        *("planner", "planners", "steps", "total_time_s", "wire_bytes_per_device", "flops_per_device"),
    )

    planners: tuple[Planner, ...]
    program: Program
    steps: tuple[ShardStep, ...]
    timed: bool

    @property
    def rows(self) -> list[Row]:
        """The ledger: its moves but for free slices."""
        return [step.row for step in self.steps if step.row and step.op != "slice"]

    @property
    def ops(self) -> str:
        """What is done, in order."""
        return " -> ".join(step.op for step in self.steps)

    @property
    def planner(self) -> Planner | Literal["other"]:
        """Whose it is."""
        return self.planners[-1] if self.planners else "other"

    @property
    def total_time_s(self) -> Seconds | None:
        """Seconds of all steps; null without a machine or dims."""
        return _sum(step.time_s for step in self.steps) if self.timed else None

    @property
    def wire_bytes_per_device(self) -> Bytes | None:
        """What a device must inject in all steps; null without dims."""
        return _sum(step.wire_bytes_per_device for step in self.steps)

    @property
    def flops_per_device(self) -> Number | None:
        """What a device computes in all steps; null without dims."""
        return _sum(step.flops_per_device for step in self.steps)

    def __str__(self) -> str:
        return " -> ".join(map(str, self.steps))


def contraction(read: notation.Product) -> Contraction:
    """The product asked for; a result without a name is called C, or after its operands if one of them is."""
    left, right = (read.left.name, read.left.type), (read.right.name, read.right.type)
    if read.out:
        return Contraction(left, right, read.out.name, read.out.type.dims, read.out.type)
    name = "C" if "C" not in (left[0], right[0]) else f"{left[0]}{right[0]}"
    return Contraction(left, right, name, free_dims(left[1].dims, right[1].dims))


def ways_of(read: notation.Expression, mesh: Mesh, pricing: Pricing) -> ProductWays:
    """Every plan; what the algebra refuses is shown in the user's own text."""
    named = {axis for array in read.arrays for axis in (*array.type.sharded_axes, *array.type.owed_axes)}
    order = tuple(axis for axis in mesh.order if axis in named)
    try:
        if isinstance(read, notation.Conversion):
            return reshard_ways(read.before.name, read.before.type, read.after.type, order, pricing.prices())
        if isinstance(read, notation.Product):
            return product_ways(contraction(read), order, pricing.prices())
    except ShardingError as error:
        target = read.arrays[-1]
        remedy = f"ask for another type of {target.name}"
        raise notation.NotationError(str(error), read.text, target.spans["array", target.name], remedy) from error
    return ProductWays(())


def _sum(values: Any) -> Any:
    """The sum, or None if any part is not known."""
    known = list(values)
    return None if any(value is None for value in known) else total(known)


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
