"""The verb `shard`: the algebra on one expression. What each device holds, what must move, what it costs, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from tpsim.algebra.contract import cases
from tpsim.algebra.notation import Expression, NamedArray, NotationError, Product, parse_expression
from tpsim.algebra.planner import Plan, Planner, ProductWays
from tpsim.answers.shard_way import PlacedMachine, Pricing, ShardStep, StepFormulas, Way, contraction, steps_of, ways_of
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.quantity.arguments import checked
from tpsim.quantity.errors import InputError
from tpsim.quantity.units import show
from tpsim.question.expression import (
    Named,
    chosen,
    expression_program,
    read_binding,
    read_dims,
    read_mesh,
    refuse_dtypes,
    refuse_uneven,
    without_single,
)
from tpsim.question.inputs import inputs
from tpsim.report.answer import Answer, noted
from tpsim.report.record import Bytes, Count, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.machine.timing import CostModel

NOT_MODELLED = (
    "overlap of moves with the product",
    "reading and writing the device's own memory",
    "mesh axes that the expression does not name: they repeat the same work",
)
"""What the prices leave out."""


@checked
def shard(
    expr: str,
    mesh: str | Mapping[str, int] | Mesh = "X=4,Y=2",
    *,
    dims: str | Mapping[str, int] | None = None,
    hw: str | None = None,
    placement: str | Mapping[str, Any] | None = None,
    dtype: str = "bf16",
    planner: Planner = "cheapest",
    cost_model: CostModel = "additive",
) -> ShardResult:
    """Plan one product, one reshard, or show one array.

    expr        ``A[I_X, J] . B[J, K] -> C[I, K]``, ``A[I_X, J] -> A[I, J_X]``, or ``A[I_XY, J]``
    mesh        sizes of the mesh axes, major first
    dims        sizes of the dims; without them there are formulas only
    hw          a machine profile; without it there are volumes only
    placement   which level or physical axis carries which mesh axis, ``X=ici.0``; without it tpsim chooses
    dtype       of every array
    cost_model  ``additive`` or ``book``
    planner     whose steps are the answer: ``cheapest`` or ``book``. All ways are in `alternatives`
    Price: seconds of the moves plus seconds of the product's FLOPs, work that replicas repeat included. Without a
    machine the price is wire bytes, and FLOPs only break ties.
    Raises NotationError for an expression that cannot be read, is illegal, or does not split evenly.
    """
    grid = read_mesh(mesh)
    read = without_single(parse_expression(expr, grid.order), grid)
    sizes = None if dims is None else read_dims(dims, read)
    if sizes is not None:
        for array in read.arrays:
            refuse_uneven(read.text, array, sizes, grid)
    chosen(dtype, "dtype", DTYPE_BYTES)
    refuse_dtypes(read, dtype)
    chosen(planner, "planner", ("book", "cheapest"))
    chosen(cost_model, "cost model", ("additive", "book"))
    if placement is not None and hw is None:
        raise InputError.one("missing-machine", "a placement needs a machine", remedy="add it: --hw tpu-v5p")
    clock = None if hw is None else _clock(hw, placement, grid, dtype, cost_model)
    alike = dict.fromkeys((dim for array in read.arrays for dim in array.type.dims), 1)
    pricing = Pricing(grid, sizes or alike, dtype, clock if sizes is not None else None, given=sizes is not None)
    ways = ways_of(read, grid, pricing)
    files = () if clock is None else tuple(inputs(clock.machine))
    return ShardResult(read, grid, sizes, dtype, planner, cost_model, hw, placement, pricing, ways, clock, files)


@dataclass(frozen=True, slots=True)
class HeldArray(Record):
    """What each device holds of an array; sizes are null without dims, and the formula with them.

    shards, replication  parts that it is in, and how often the whole is stored in the mesh
    """

    array: str
    shards: Count
    replication: Count
    local_shape: list[int] | None = None
    local_bytes: Bytes | None = None
    total_bytes: Bytes | None = None
    local_formula: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut(Record):
    """Ways that were not compared with the others: a move that they make or what they cost, and why."""

    way: str
    because: str


@dataclass(frozen=True)
class ShardResult(Answer):
    """The chosen planner's way, every way, cheapest first, and what each device holds."""

    schema = "tpsim.shard/1"
    not_modelled = NOT_MODELLED
    told: ClassVar[tuple[str, ...]] = (
        *("verdict", "planner", "cases", "arrays", "steps", "total_time_s", "wire_bytes_per_device"),
        *("flops_per_device", "formulas", "alternatives", "left_out"),
    )

    expression: Expression
    mesh: Mesh
    dims: Mapping[str, int] | None
    dtype: str
    planner: Planner
    cost_model: str
    hardware: str | None
    placement: str | Mapping[str, Any] | None
    pricing: Pricing
    ways: ProductWays
    clock: PlacedMachine | None = None
    files: tuple[tuple[str, str], ...] = ()

    plans = Of[tuple[Plan, ...]]("ways.plans", "every plan, cheapest first; none for an array alone")
    steps = Of[tuple[ShardStep, ...]]("way.steps", "the steps of the chosen plan")
    total_time_s = Of[Seconds | None]("way.total_time_s", "seconds of all steps; null without a machine and dims")
    wire_bytes_per_device = Of[Bytes | None](
        "way.wire_bytes_per_device", "what a device must inject in all steps; null without dims"
    )
    assumptions = noted("taken_for_granted", "what the answer takes for granted")
    flops_per_device = Of[Number | None](
        "way.flops_per_device", "what a device computes in all steps; null without dims"
    )

    @property
    def chosen(self) -> Plan | None:
        """The plan of the planner asked for; None for an array alone."""
        if not self.plans:
            return None
        if self.planner == "cheapest":
            return self.plans[0]
        if self.ways.refused:
            target, text = self.expression.arrays[-1], self.expression.text
            message, remedy = f"the book's way cannot be taken: {self.ways.refused}", "ask for the cheapest planner"
            raise NotationError(message, text, target.spans["array", target.name], remedy)
        return next(plan for plan in self.plans if plan.planner == "book")

    @cached_property
    def way(self) -> Way:
        """The chosen plan with its costs; of no steps for an array alone."""
        return self._way(self.chosen)

    @property
    def formulas(self) -> list[StepFormulas]:
        """Wire bytes and FLOPs of each step as text. Loads sympy."""
        return [step.formulas for step in self.steps]

    @cached_property
    def alternatives(self) -> list[Way]:
        """Every plan, cheapest first."""
        return [self._way(plan) for plan in self.plans]

    @property
    def left_out(self) -> list[LeftOut]:
        """Ways that were not compared with the others."""
        unpriced = self.pricing.unpriced.items()
        reasons = [LeftOut(f"{kind}({','.join(move.axes)})", why) for (kind, why), move in unpriced]
        if self.ways.refused:
            reasons.append(LeftOut("the book's", str(self.ways.refused)))
        if self.ways.horizon != inf:
            least = show(self.ways.horizon, "seconds" if self.pricing.clock else "bytes")
            proven = self.ways.horizon >= self.plans[0].price
            end = "none is cheaper than the first way" if proven else "one may be cheaper than the first way"
            way = "dearer ways" if self.dims is None else f"ways of {least} and more"
            reasons.append(LeftOut(way, f"there are too many to price them all; {end}"))
        return reasons

    @property
    def cases(self) -> tuple[int, ...]:
        """The book's cases that a product is in, 1 to 4; empty for anything else."""
        return cases(contraction(self.expression)) if isinstance(self.expression, Product) else ()

    @property
    def arrays(self) -> list[HeldArray]:
        """What each device holds of every array in the expression."""
        return [self._array(array) for array in self.expression.arrays]

    @property
    def taken_for_granted(self) -> Iterator[str]:
        """What the answer takes for granted, in words."""
        if self.chosen and self.dims is None:
            yield "no dims given: formulas only, and plans are ranked as if every dim had the same size"
        if self.chosen and self.dims is not None and self.pricing.clock is None:
            yield "no machine given: plans are ranked by wire bytes per device, then by FLOPs"
        if self.pricing.clock is not None:
            yield from map(str, self.pricing.clock.placement.describe())
        if isinstance(self.expression, Product) and self.expression.out is None:
            yield "no result type given: the product's own is taken, and what it owes stays owed"
        single = [axis for axis, devices in self.mesh.axes.items() if devices == 1]
        if single:
            yield f"one device along {' and '.join(single)}: nothing is split, or owed, over it"

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        if self.chosen is None:
            return self._array_verdict()
        if not self.steps:
            return "the types are the same: nothing to do"
        case = f"case {' and '.join(map(str, self.cases))}: " if self.cases else ""
        name, type_ = self.chosen.steps[-1].output
        seconds = "" if self.total_time_s is None else f" in {show(self.total_time_s, 'seconds')}"
        return f"{case}{self.way} gives {name}{type_}{seconds}"

    def _array_verdict(self) -> str:
        row = self.arrays[0]
        if self.dims is None:
            return f"each device holds {row.local_formula} elements of {row.array}"
        shape = " x ".join(map(str, row.local_shape or ()))
        return f"each device holds {shape} of {row.array}: {show(row.local_bytes or 0, 'bytes')}"

    def records(self) -> list[dict[str, Any]]:
        """One flat row per step of every alternative; for an array alone, one row per array."""
        if not self.plans:
            shapes = [row.local_shape and "x".join(map(str, row.local_shape)) for row in self.arrays]
            return [{**row, "local_shape": shape} for row, shape in zip(self.arrays, shapes, strict=True)]
        return [
            {"alternative": place, "planner": way.planner, "step": number, **row, "axes": ",".join(row.axes)}
            for place, way in enumerate(self.alternatives)
            for number, row in enumerate(way.steps)
        ]

    @property
    def resolved(self) -> Mapping[str, Any]:
        """What files, flags and defaults came to."""
        return {
            "expression": self.expression.text,
            "mesh": self.mesh.axes,
            "dims": self.dims,
            "dtype": self.dtype,
            "hardware": self.hardware,
            "cost_model": self.cost_model,
            "planner": self.planner,
        }

    def _way(self, plan: Plan | None) -> Way:
        planners: list[Planner] = ["cheapest"] if plan and plan is self.plans[0] else []
        planners += ["book"] if plan and plan.planner == "book" else []
        program = expression_program(self.leaves, plan.steps if plan else (), self.mesh.order, self.dtype)
        return Way(
            tuple(planners), program, tuple(steps_of(program, self.pricing)), timed=self.pricing.clock is not None
        )

    @property
    def leaves(self) -> tuple[Named, ...]:
        """What comes from outside: both operands, or the one array."""
        operands = 2 if isinstance(self.expression, Product) else 1
        return tuple((array.name, array.type) for array in self.expression.arrays[:operands])

    def _array(self, array: NamedArray) -> HeldArray:
        type_, sizes = array.type, self.pricing.sizes
        shards = self.mesh.size(*type_.sharded_axes)
        row = HeldArray(str(array), shards, self.mesh.devices // shards)
        if self.dims is None:
            return replace(row, local_formula=str(sizes.symbols.local_elements(type_)))
        local_bytes = DTYPE_BYTES[self.dtype] * sizes.local_elements(type_)
        shape = [type_.local(dim, self.dims, self.mesh.axes) for dim in type_.dims]
        return replace(row, local_shape=shape, local_bytes=local_bytes, total_bytes=local_bytes * self.mesh.devices)


def _clock(
    hw: str, placement: str | Mapping[str, Any] | None, mesh: Mesh, dtype: str, cost_model: CostModel
) -> PlacedMachine:
    from tpsim.fabric.placement import place
    from tpsim.machine.profile import load

    machine = load(hw)
    return PlacedMachine(machine, place(machine.levels, mesh, read_binding(placement)), dtype, cost_model)
