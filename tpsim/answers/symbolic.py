"""The steps of `shard` with symbols for sizes: what formulas are printed from and break-evens are asked of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpsim.algebra.contract import Contraction, flops
from tpsim.algebra.moves import wire
from tpsim.algebra.planner import StepKind
from tpsim.quantity.size import over, product
from tpsim.report.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.algebra.planner import Plan, Step
    from tpsim.answers.pricing import Clock
    from tpsim.fabric.placement import Placement
    from tpsim.fabric.wires import Route


@dataclass(frozen=True, slots=True)
class StepFormulas(Record):
    """A step's costs in symbols."""

    op: StepKind
    wire_bytes_per_device: str
    flops_per_device: str


@dataclass(frozen=True, slots=True)
class SymbolicStep:
    """One step of a plan as sympy expressions in its dims and axes; seconds are None without a machine.

    flops_of_mesh  of all devices together, repeated work included
    latency_s      of a move: launch and steps
    bandwidth_s    of a move: what its bytes take
    """

    op: StepKind
    axes: tuple[str, ...]
    output: str
    logical_bytes: Any
    wire_bytes_per_device: Any
    flops_per_device: Any
    flops_of_mesh: Any
    latency_s: Any = None
    bandwidth_s: Any = None
    time_s: Any = None

    def texts(self) -> StepFormulas:
        """Wire bytes and FLOPs of one device, each as one line with common factors in front."""
        import sympy

        wire, work = (str(sympy.factor(cost)) for cost in (self.wire_bytes_per_device, self.flops_per_device))
        return StepFormulas(self.op, wire, work)


def symbols(dims: Sequence[str], mesh: Mesh) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """A symbol per dim and per axis; an axis that bears a dim's name is written ``n_`` and its name."""
    import sympy

    names = {dim: sympy.Symbol(dim, positive=True) for dim in dims}
    axes = {axis: sympy.Symbol(f"n_{axis}" if axis in names else axis, positive=True) for axis in mesh.axes}
    return names, axes


def symbolic(plan: Plan, mesh: Mesh, width: int, clock: Clock | None) -> list[SymbolicStep]:
    """Every step of `plan`; the mesh's numbers decide only where its axes are placed and what is closed there.

    width  bytes of an element
    """
    dims = tuple(dict.fromkeys(dim for step in plan.steps for _, type_ in step.inputs for dim in type_.dims))
    naming = _Naming(*symbols(dims, mesh), width, clock)
    return [naming.moved(step, step.move) if step.move else naming.multiplied(step) for step in plan.steps]


@dataclass(frozen=True, slots=True)
class _Naming:
    """Steps priced in symbols: their dims, their axes, bytes of an element, and a machine if there is one."""

    dims: Mapping[str, Any]
    axes: Mapping[str, Any]
    width: int
    clock: Clock | None

    def moved(self, step: Step, move: Move) -> SymbolicStep:
        """A move."""
        volume = self.width * move.logical_elements(self.dims, self.axes)
        sent = wire(move.kind, volume, move.ranks(self.axes))
        found = SymbolicStep(move.kind, move.axes, step.output[0], volume, sent, 0, 0)
        if self.clock is None:
            return found
        if move.kind == "slice":
            return replace(found, latency_s=0, bandwidth_s=0, time_s=0)
        timing = self.clock.timed(move, symbolic_route(self.clock.placement, move.axes, self.axes), volume)
        spent = (timing.launch_s + timing.latency_s, timing.bandwidth_s, timing.time_s)
        latency, bandwidth, total = map(_of_several, spent)
        return replace(found, latency_s=latency, bandwidth_s=bandwidth, time_s=total)

    def multiplied(self, step: Step) -> SymbolicStep:
        """A product."""
        left, right = step.inputs
        ask = Contraction(left, right, step.output[0], step.output[1].dims)
        work = flops(ask, self.dims, self.axes)
        found = SymbolicStep(step.op, (), step.output[0], 0, 0, work, work * product(self.axes.values()))
        return (
            found if self.clock is None else replace(found, latency_s=0, bandwidth_s=0, time_s=self.clock.product(work))
        )


def _of_several(cost: Any) -> Any:
    """`cost` for axes of more than one device: what is paid only then is paid."""
    import sympy

    cost = sympy.sympify(cost)
    return cost.subs(dict.fromkeys(cost.atoms(sympy.StrictGreaterThan), sympy.true))


def symbolic_route(placement: Placement, axes: Sequence[str], sizes: Mapping[str, Any]) -> Route:
    """The route of these mesh axes with symbols for their sizes: same wires, same shapes, any length.

    An axis that lies on several physical axes keeps its numbers on all but the outermost.
    """
    pieces: dict[str, list[Any]] = {}
    for axis in axes:
        *inner, last = placement.pieces[axis] or (None,)
        for piece in inner:
            pieces.setdefault(piece.carrier, []).append(piece.n)
        if last is not None:
            pieces.setdefault(last.carrier, []).append(over(sizes[axis], product(piece.n for piece in inner)))
    return tuple(replace(segment, n=product(pieces[segment.axis])) for segment in placement.route(axes))
