"""One step of a way, a move or a product, with what it costs: the same for numbers and for symbols of sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tpsim.algebra.contract import Contraction, flops
from tpsim.algebra.notation import format_array
from tpsim.algebra.planner import StepKind
from tpsim.quantity.size import product
from tpsim.report.record import Bytes, Number, Of, Record, Seconds

if TYPE_CHECKING:
    from tpsim.algebra.moves import Move
    from tpsim.algebra.planner import Step
    from tpsim.answers.pricing import Pricing


@dataclass(frozen=True, slots=True)
class StepFormulas(Record):
    """A step's costs in symbols."""

    op: StepKind
    wire_bytes_per_device: str
    flops_per_device: str


@dataclass(frozen=True, slots=True)
class ShardStep(Record):
    """One move or product; costs are null without dims, seconds also without a machine.

    flops_of_mesh  of all devices together, repeated work included
    latency_s      of a move: launch and steps
    bandwidth_s    of a move: what its bytes take
    """

    told: ClassVar[tuple[str, ...]] = (
        *("op", "axes", "input", "output", "logical_bytes", "wire_bytes_per_device", "flops_per_device"),
        *("latency_s", "bandwidth_s", "time_s", "because"),
    )

    step: Step
    logical_bytes: Bytes | None = None
    wire_bytes_per_device: Bytes | None = None
    flops_per_device: Number | None = None
    flops_of_mesh: Number | None = None
    latency_s: Seconds | None = None
    bandwidth_s: Seconds | None = None
    time_s: Seconds | None = None

    op = Of[StepKind]("step.op", "a move, or the product that every device does alone")
    because = Of[str]("step.because", "why it is made")

    @property
    def axes(self) -> tuple[str, ...]:
        """Mesh axes that a move is over, major first."""
        return self.step.move.axes if self.step.move else ()

    @property
    def input(self) -> str:
        """What goes in, in the notation."""
        return " . ".join(format_array(*array) for array in self.step.inputs)

    @property
    def output(self) -> str:
        """What comes out, in the notation."""
        return format_array(*self.step.output)

    @property
    def formulas(self) -> StepFormulas:
        """Wire bytes and FLOPs of one device, each as one line with common factors in front. Loads sympy."""
        import sympy

        wire, work = (str(sympy.factor(cost)) for cost in (self.wire_bytes_per_device, self.flops_per_device))
        return StepFormulas(self.op, wire, work)

    def __str__(self) -> str:
        return f"{self.op}({','.join(self.axes)})" if self.axes else self.op


def costed(step: Step, at: Pricing) -> ShardStep:
    """A step with its costs; those that `at` does not know are None."""
    told = ShardStep(step)
    if at.dims is None:
        return told
    return _moved(told, step.move, at) if step.move else _multiplied(told, at)


def _moved(told: ShardStep, move: Move, at: Pricing) -> ShardStep:
    volume, wire = at.volume(move), at.wire(move)
    sent = replace(told, logical_bytes=volume, wire_bytes_per_device=wire, flops_per_device=0, flops_of_mesh=0)
    if timing := at.timing(move):
        latency_s = timing.launch_s + timing.latency_s
        return replace(sent, latency_s=latency_s, bandwidth_s=timing.bandwidth_s, time_s=timing.time_s)
    free = at.clock and move.kind == "slice"
    return replace(sent, latency_s=0, bandwidth_s=0, time_s=0) if free else sent


def _multiplied(told: ShardStep, at: Pricing) -> ShardStep:
    (left, right), (name, type_) = told.step.inputs, told.step.output
    work = flops(Contraction(left, right, name, type_.dims), at.ranking_dims, at.axes)
    every = work * product(at.axes.values())
    done = replace(told, logical_bytes=0, wire_bytes_per_device=0, flops_per_device=work, flops_of_mesh=every)
    return replace(done, latency_s=0, bandwidth_s=0, time_s=at.clock.product(work)) if at.clock else done
