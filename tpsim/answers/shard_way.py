"""The ways to an expression's result: ops, each a move with its row of the ledger or the product that it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tpsim.algebra import expression
from tpsim.algebra.contract import Contraction, flops, free_dims
from tpsim.algebra.planner import Planner, StepKind, Ways, product_ways, reshard_ways
from tpsim.algebra.sharding import ShardingError
from tpsim.cost import formula
from tpsim.frozen import dataclass
from tpsim.program.op import Einsum, Reshard
from tpsim.quantity.size import total
from tpsim.report.record import Bytes, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.algebra.mesh import Mesh
    from tpsim.answers.pricing import Pricing
    from tpsim.cost.rollup import Row
    from tpsim.cost.sizes import Sizes
    from tpsim.program.op import Op, Program


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


def contraction(read: expression.Product) -> Contraction:
    """The product asked for; a result without a name is called C, or after its operands if one of them is."""
    left, right = (read.left.name, read.left.type), (read.right.name, read.right.type)
    if read.out:
        return Contraction(left, right, read.out.name, read.out.type.dims, read.out.type)
    name = "C" if "C" not in (left[0], right[0]) else f"{left[0]}{right[0]}"
    return Contraction(left, right, name, free_dims(left[1].dims, right[1].dims))


def ways_of(read: expression.Expression, mesh: Mesh, pricing: Pricing) -> Ways:
    """Every plan; what the algebra refuses is shown in the user's own text."""
    named = {axis for array in read.arrays for axis in (*array.type.sharded_axes, *array.type.owed_axes)}
    order = tuple(axis for axis in mesh.order if axis in named)
    try:
        if isinstance(read, expression.Conversion):
            return reshard_ways(read.before.name, read.before.type, read.after.type, order, pricing.prices())
        if isinstance(read, expression.Product):
            return product_ways(contraction(read), order, pricing.prices())
    except ShardingError as error:
        target = read.arrays[-1]
        remedy = f"ask for another type of {target.name}"
        raise expression.NotationError(str(error), read.text, target.spans["array", target.name], remedy) from error
    return Ways(())


def _sum(values: Any) -> Any:
    """The sum, or None if any part is not known."""
    known = list(values)
    return None if any(value is None for value in known) else total(known)
