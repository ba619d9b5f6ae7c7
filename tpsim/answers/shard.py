"""The verb `shard`: the algebra on one expression. What each device holds, what must move, what it costs, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tpsim import __version__
from tpsim.algebra.because import joined
from tpsim.algebra.contract import Contraction, cases, flops, free_dims
from tpsim.algebra.legality import OwedError
from tpsim.algebra.notation import (
    Expression,
    NamedArray,
    NotationError,
    Product,
    Reshard,
    format_array,
    parse_expression,
)
from tpsim.algebra.planner import Plan, Planner, Step, plans, reshard_plans
from tpsim.algebra.sharding import ShardingError
from tpsim.answers.pricing import Clock, Pricing, fits
from tpsim.answers.symbolic import SymbolicStep, symbolic, symbols
from tpsim.program.layout import DTYPE_BYTES
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import over, total
from tpsim.quantity.units import show
from tpsim.question.options import chosen, read_binding, read_dims, read_mesh
from tpsim.question.question import Assumption
from tpsim.report.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import CostModel

SCHEMA = "tpsim.shard/1"

NOT_MODELLED = (
    "overlap of moves with the product",
    "reading and writing the device's own memory",
    "mesh axes that the expression does not name: they repeat the same work",
)
"""What the prices leave out."""


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
    planner     whose steps are the answer: ``cheapest`` or ``book``. All ways are in `alternatives`
    Price: seconds of the moves plus seconds of the product's FLOPs, work that replicas repeat included. Without a
    machine the price is wire bytes, and FLOPs only break ties.
    Raises NotationError for an expression that cannot be read, is illegal, or does not split evenly.
    """
    grid = read_mesh(mesh)
    read = parse_expression(expr, grid.order)
    sizes = None if dims is None else read_dims(dims, read)
    if sizes is not None:
        for array in read.arrays:
            _even(read.text, array, sizes, grid)
    chosen(dtype, "dtype", DTYPE_BYTES)
    chosen(planner, "planner", ("book", "cheapest"))
    chosen(cost_model, "cost model", ("additive", "book"))
    if placement is not None and hw is None:
        raise InputError.one("missing-machine", "a placement needs a machine", remedy="add it: --hw tpu-v5p")
    clock = None if hw is None else _clock(hw, placement, grid, dtype, cost_model)
    pricing = Pricing(grid, sizes, DTYPE_BYTES[dtype], None if sizes is None else clock)
    found = _plans(read, grid, pricing)
    files = () if clock is None else _files(clock.machine)
    return ShardResult(read, grid, sizes, dtype, planner, cost_model, hw, files, pricing, found, clock)


@dataclass(frozen=True)
class ShardResult(Answer):
    """The answer: steps of the planner asked for, every alternative, and what each device holds."""

    expression: Expression
    mesh: Mesh
    dims: Mapping[str, int] | None
    dtype: str
    planner: Planner
    cost_model: str
    hardware: str | None
    inputs: tuple[tuple[str, str], ...]
    pricing: Pricing
    plans: tuple[Plan, ...]
    clock: Clock | None = None

    @property
    def chosen(self) -> Plan | None:
        """The plan of the planner asked for; None for an array alone."""
        if not self.plans:
            return None
        known = [plan for plan in self.plans if plan.planner == "book"]
        if self.planner == "book" and not known:
            raise NotationError(
                "the book's way cannot be taken: a split would not come out even, or its seconds are not known",
                self.expression.text,
                (0, len(self.expression.text)),
                "ask for the cheapest planner, make the dims multiples of the mesh axes, or place the axes otherwise",
            )
        return known[0] if self.planner == "book" else self.plans[0]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the chosen plan."""
        return [self._step(step) for step in self.chosen.steps] if self.chosen else []

    @cached_property
    def symbolic(self) -> list[SymbolicStep]:
        """The steps of the chosen plan with symbols for the sizes of dims and axes, seconds too. Loads sympy."""
        return symbolic(self.chosen, self.mesh, self.pricing.width, self.clock) if self.chosen else []

    @property
    def repetition(self) -> Any:
        """How often the mesh computes each multiplication of the product: 1 if no device repeats another's work.

        None without dims, and for what is no product.
        """
        if self.dims is None or not isinstance(self.expression, Product) or self.chosen is None:
            return None
        once = flops(_contraction(self.expression), self.dims, dict.fromkeys(self.mesh.axes, 1))
        return over(self.chosen.flops * self.mesh.devices, once)

    @property
    def formulas(self) -> list[dict[str, str]]:
        """Wire bytes and FLOPs of each step as text. Loads sympy."""
        steps = symbolic(self.chosen, self.mesh, self.pricing.width, None) if self.chosen else []
        return [step.texts() for step in steps]

    @cached_property
    def alternatives(self) -> list[dict[str, Any]]:
        """Every plan, cheapest first: `planner` says whose it is, `planners` all who choose it."""
        return [self._plan(place, plan) for place, plan in enumerate(self.plans)]

    @property
    def cases(self) -> tuple[int, ...]:
        """The book's cases that a product is in; empty for anything else."""
        return cases(_contraction(self.expression)) if isinstance(self.expression, Product) else ()

    @property
    def arrays(self) -> list[dict[str, Any]]:
        """What each device holds of every array in the expression."""
        return [self._array(array) for array in self.expression.arrays]

    @property
    def total_time_s(self) -> float | None:
        """Seconds of all steps; None without a machine and dims."""
        return self._plan(0, self.chosen)["total_time_s"] if self.chosen else None

    @property
    def assumptions(self) -> list[Assumption]:
        """What the answer takes for granted."""
        return [Assumption(text, "derived") for text in self._assumed()]

    def _assumed(self) -> Iterator[str]:
        if self.chosen and self.dims is None:
            yield "no dims given: formulas only, and plans are ranked as if every dim had the same size"
        if self.chosen and self.dims is not None and self.pricing.clock is None:
            yield "no machine given: plans are ranked by wire bytes per device, then by FLOPs"
        if self.pricing.clock is not None:
            yield from map(str, self.pricing.clock.placement.describe())
        if isinstance(self.expression, Product) and self.expression.out is None:
            yield "no result type given: the product's own is taken, and what it owes stays owed"

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        if self.chosen is None:
            return self._array_verdict()
        ops = " -> ".join(f"{row['op']}({','.join(row['axes'])})" if row["axes"] else row["op"] for row in self.steps)
        if not ops:
            return "the types are the same: nothing to do"
        case = f"case {' and '.join(map(str, self.cases))}: " if self.cases else ""
        last = self.chosen.steps[-1].output
        return f"{case}{ops} gives {format_array(*last)}"

    def _array_verdict(self) -> str:
        row = self.arrays[0]
        if self.dims is None:
            return f"each device holds {row['local_formula']} elements of {row['array']}"
        shape = " x ".join(str(size) for size in row["local_shape"])
        return f"each device holds {shape} of {row['array']}: {show(row['local_bytes'], 'bytes')}"

    def records(self) -> list[dict[str, Any]]:
        """One flat row per step of every alternative; for an array alone, one row per array."""
        if not self.plans:
            return [{**row, "local_shape": _shape_text(row["local_shape"])} for row in self.arrays]
        return [
            {"alternative": place, "planner": plan["planner"], "step": number, **row, "axes": ",".join(row["axes"])}
            for place, plan in enumerate(self.alternatives)
            for number, row in enumerate(plan["steps"])
        ]

    def to_json(self) -> dict[str, Any]:
        """The whole document as the interface states it."""
        chosen = self._plan(0, self.chosen) if self.chosen else None
        return {
            "schema": SCHEMA,
            "tpsim": __version__,
            "inputs": [{"path": path, "sha256": digest} for path, digest in self.inputs],
            "resolved": {
                "expression": self.expression.text,
                "mesh": dict(self.mesh.axes),
                "dims": None if self.dims is None else dict(self.dims),
                "dtype": self.dtype,
                "hardware": self.hardware,
                "cost_model": self.cost_model,
                "planner": self.planner,
            },
            "result": {
                "verdict": self.verdict,
                "planner": self.planner,
                "cases": list(self.cases),
                "arrays": self.arrays,
                "steps": chosen["steps"] if chosen else [],
                "total_time_s": chosen["total_time_s"] if chosen else None,
                "wire_bytes_per_device": chosen["wire_bytes_per_device"] if chosen else 0,
                "flops_per_device": chosen["flops_per_device"] if chosen else 0,
                "formulas": self.formulas,
                "alternatives": self.alternatives,
            },
            "assumptions": [asdict(one) for one in self.assumptions],
            "not_modelled": list(NOT_MODELLED),
        }

    def _plan(self, place: int, plan: Plan) -> dict[str, Any]:
        names = [name for name, holds in (("cheapest", place == 0), ("book", plan.planner == "book")) if holds]
        steps = [self._step(step) for step in plan.steps]
        return {
            "planner": names[-1] if names else "other",
            "planners": names,
            "steps": steps,
            "total_time_s": _sum(step["time_s"] for step in steps) if self.pricing.clock else None,
            "wire_bytes_per_device": _sum(step["wire_bytes_per_device"] for step in steps),
            "flops_per_device": _sum(step["flops_per_device"] for step in steps),
        }

    def _step(self, step: Step) -> dict[str, Any]:
        return {
            "op": step.op,
            "axes": list(step.move.axes) if step.move else [],
            "input": " . ".join(format_array(*array) for array in step.inputs),
            "output": format_array(*step.output),
            **(self._move_costs(step.move) if step.move else self._product_costs(step)),
            "because": step.because,
        }

    def _move_costs(self, move: Move) -> dict[str, Any]:
        costs: dict[str, Any] = dict.fromkeys(COSTS)
        if self.dims is not None:
            costs["logical_bytes"] = _number(self.pricing.volume(move))
            costs["wire_bytes_per_device"] = _number(self.pricing.wire(move))
            costs["flops_per_device"] = 0
        if self.pricing.clock and move.kind == "slice":
            costs.update(dict.fromkeys(TIMES, 0.0))
        elif self.pricing.clock:
            timing = self.pricing.clock.move(move, self.pricing.volume(move))
            spent = (timing.launch_s + timing.latency_s, timing.bandwidth_s, timing.time_s)
            costs.update(zip(TIMES, map(float, spent), strict=True))
        return costs

    def _product_costs(self, step: Step) -> dict[str, Any]:
        costs: dict[str, Any] = dict.fromkeys(COSTS)
        if self.dims is not None:
            work = flops(_product_of(step), self.dims, self.mesh.axes)
            costs.update(logical_bytes=0, wire_bytes_per_device=0, flops_per_device=_number(work))
            if self.pricing.clock:
                costs.update(zip(TIMES, (0.0, 0.0, float(self.pricing.clock.product(work))), strict=True))
        return costs

    def _array(self, array: NamedArray) -> dict[str, Any]:
        """What each device holds, and how often the whole array is stored in the mesh."""
        type_, axes = array.type, self.mesh.axes
        copies = self.mesh.devices // self.mesh.size(*type_.sharded_axes)
        row: dict[str, Any] = {
            "array": str(array),
            "shards": self.mesh.size(*type_.sharded_axes),
            "replication": copies,
            "local_shape": None,
            "local_bytes": None,
            "total_bytes": None,
            "local_formula": None,
        }
        if self.dims is None:
            names, degrees = symbols(type_.dims, self.mesh)
            return {**row, "local_formula": str(type_.local_elements(names, degrees))}
        held = self.pricing.width * type_.local_elements(self.dims, axes)
        shape = [_number(type_.local(dim, self.dims, axes)) for dim in type_.dims]
        return {**row, "local_shape": shape, "local_bytes": held, "total_bytes": held * self.mesh.devices}


TIMES = ("latency_s", "bandwidth_s", "time_s")
COSTS = ("logical_bytes", "wire_bytes_per_device", "flops_per_device", *TIMES)


def _product_of(step: Step) -> Contraction:
    left, right = step.inputs
    return Contraction(left, right, step.output[0], step.output[1].dims)


def _contraction(read: Product) -> Contraction:
    """The product asked for; a result without a name is called C, or after its operands if one of them is."""
    left, right = (read.left.name, read.left.type), (read.right.name, read.right.type)
    if read.out:
        return Contraction(left, right, read.out.name, read.out.type.dims, read.out.type)
    name = "C" if "C" not in (left[0], right[0]) else f"{left[0]}{right[0]}"
    return Contraction(left, right, name, free_dims(left[1].dims, right[1].dims))


def _plans(read: Expression, mesh: Mesh, pricing: Pricing) -> tuple[Plan, ...]:
    """Every plan; what the algebra refuses is shown in the user's own text."""
    named = {axis for array in read.arrays for axis in (*array.type.sharded_axes, *array.type.owed_axes)}
    order = tuple(axis for axis in mesh.order if axis in named)
    try:
        if isinstance(read, Reshard):
            return reshard_plans(read.before.name, read.before.type, read.after.type, order, pricing.prices())
        return plans(_contraction(read), order, pricing.prices()) if isinstance(read, Product) else ()
    except OwedError as error:
        array = next(array for array in read.arrays if array.name == error.array)
        fact, _, remedy = str(error).rpartition("; ")
        raise NotationError(fact, read.text, array.spans["axis", error.axis], remedy) from error
    except ShardingError as error:
        target = read.arrays[-1]
        remedy = f"ask for another type of {target.name}"
        raise NotationError(str(error), read.text, target.spans["array", target.name], remedy) from error


def _even(text: str, array: NamedArray, dims: Mapping[str, int], mesh: Mesh) -> None:
    """Refuse a dim that its axes do not divide."""
    for dim in array.type.dims:
        axes = array.type.axes(dim)
        shards = mesh.size(*axes)
        if not fits(array.type, dim, dims, mesh):
            more = -(-dims[dim] // shards) * shards
            raise NotationError(
                f"{dim} = {dims[dim]} of {array.name} does not split evenly over {joined(axes)} = {shards} devices",
                text,
                array.spans["dim", dim],
                f"pad {dim} to {more}, the next multiple of {shards}, or split another dim",
                "not-divisible",
            )


def _files(machine: Machine) -> tuple[tuple[str, str], ...]:
    """What was read, as outputs name it."""
    from tpsim.question.inputs import inputs

    return tuple(inputs(machine))


def _clock(hw: str, placement: str | Mapping[str, Any] | None, mesh: Mesh, dtype: str, cost_model: CostModel) -> Clock:
    from tpsim.fabric.placement import place
    from tpsim.machine.profile import load

    machine = load(hw)
    return Clock(machine, place(machine.levels, mesh, read_binding(placement)), dtype, cost_model)


def _number(value: Any) -> int | float:
    """An int where the value is whole, else a float."""
    return int(value) if value == int(value) else float(value)


def _sum(values: Any) -> Any:
    """The sum, or None if any part is not known."""
    known = list(values)
    return None if any(value is None for value in known) else total(known)


def _shape_text(shape: list[int] | None) -> str | None:
    return None if shape is None else "x".join(map(str, shape))
