"""The steps of `shard` with symbols for sizes: what formulas are printed from and break-evens are asked of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tpsim.answers.pricing import Pricing
from tpsim.answers.shard_step import ShardStep, costed
from tpsim.quantity.size import over, product

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.algebra.planner import Plan
    from tpsim.answers.pricing import Clock
    from tpsim.fabric.placement import Placement
    from tpsim.fabric.wires import Route
    from tpsim.machine.timing import Timing


def symbols(dims: Sequence[str], mesh: Mesh) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """A symbol per dim and per axis; an axis that bears a dim's name is written ``n_`` and its name."""
    import sympy

    names = {dim: sympy.Symbol(dim, positive=True) for dim in dims}
    axes = {axis: sympy.Symbol(f"n_{axis}" if axis in names else axis, positive=True) for axis in mesh.axes}
    return names, axes


def symbolic(plan: Plan, mesh: Mesh, width: int, clock: Clock | None) -> list[ShardStep]:
    """Every step of `plan`; the mesh's numbers decide only where its axes are placed and what is closed there.

    width  bytes of an element
    """
    dims = tuple(dict.fromkeys(dim for step in plan.steps for _, type_ in step.inputs for dim in type_.dims))
    names, axes = symbols(dims, mesh)
    at = _InSymbols(mesh, names, width, clock, symbolic_axes=axes)
    return [_several(costed(step, at)) for step in plan.steps]


@dataclass(frozen=True)
class _InSymbols(Pricing):
    """Moves priced in symbols for the sizes of dims and axes."""

    symbolic_axes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def axes(self) -> Mapping[str, Any]:
        """A symbol per mesh axis."""
        return self.symbolic_axes

    def timing(self, move: Move) -> Timing | None:
        """Seconds of a move on the wires where the mesh lies, of any length; None for a slice."""
        if self.clock is None or move.kind == "slice":
            return None
        return self.clock.timed(move, symbolic_route(self.clock.placement, move.axes, self.axes), self.volume(move))


def _several(step: ShardStep) -> ShardStep:
    """A move between axes of more than one device: what is paid only then is paid."""
    if step.time_s is None or step.op in FREE:
        return step
    seconds = (_of_several(cost) for cost in (step.latency_s, step.bandwidth_s, step.time_s))
    return replace(step, **dict(zip(("latency_s", "bandwidth_s", "time_s"), seconds, strict=True)))


FREE = ("matmul", "slice")
"""Steps of one device alone."""


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
