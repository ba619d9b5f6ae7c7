"""Matrix products: the FLOPs and the memory traffic of one chip, and the seconds that they take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpsim.cost.memory import local_bytes
from tpsim.machine.timing import compute_s, memory_s
from tpsim.program.op import Array, Einsum, Phase, Program
from tpsim.quantity.size import largest, total

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from tpsim.cost.sizes import Sizes
    from tpsim.machine.profile import Machine
    from tpsim.program.op import Where

PHASES: tuple[Phase, ...] = ("forward", "backward", "update")
SCORES = frozenset({"s", "t"})
"""Dims that only attention's scores have together: query tokens and key tokens."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """One traced matrix product."""

    op: Einsum
    program: Program = field(repr=False)

    @property
    def where(self) -> Where:
        """Where it stands in the step."""
        return self.op.where

    def count(self, sizes: Sizes) -> Any:
        """Runs per step and device."""
        return self.program.times(self.where, sizes.loops)

    def flops(self, sizes: Sizes) -> Any:
        """FLOPs of one device and one run, replication included."""
        return self.op.flops(sizes.dims, sizes.axes)

    def useful_flops(self, sizes: Sizes) -> Any:
        """FLOPs of one run of the whole product, counted once however many devices repeat it."""
        return self.op.flops(sizes.dims, dict.fromkeys(sizes.axes, 1))

    @property
    def shape(self) -> Hashable:
        """What its cost depends on: products of equal shape cost the same at all sizes, and repeat alike."""
        where, arrays = self.where, (*self.op.inputs, self.op.output)
        held = sorted((sorted(array.dims), sorted(array.type.sharded_axes), array.dtype) for array in arrays)
        return (where.phase, tuple(loop for loop, _ in where.loops), where.again, repr(held))

    def memory_bytes(self, sizes: Sizes) -> Any:
        """Bytes read and written in one run; attention's scores are taken to stay on the chip."""
        arrays = (*self.op.inputs, self.op.output)
        return total(local_bytes(array, sizes) for array in arrays if not _stays_on_chip(array))


def _stays_on_chip(array: Array) -> bool:
    return set(array.dims) >= SCORES


def matmuls(program: Program) -> tuple[Matmul, ...]:
    """Every matrix product of `program`, in order."""
    return tuple(Matmul(op, program) for op in program.ops if isinstance(op, Einsum) and is_matrix_product(op))


def is_matrix_product(op: Einsum) -> bool:
    """True for a product whose operands each have a dim that the other has not: rows and columns.

    A sum of elementwise products (a gain's gradient, softmax backward) is pointwise work, which is not modelled.
    """
    if not op.is_matmul:
        return False
    left, right = (set(array.dims) for array in op.inputs)
    return bool(left - right and right - left)


@dataclass(frozen=True, slots=True)
class Compute:
    """What one chip computes in a step.

    flops         of one chip, repeated work included
    useful_flops  of all chips together, without repetition by replication and without recompute
    seconds       per phase; a product takes the longer of its FLOPs and its memory traffic
    """

    flops: Any
    useful_flops: Any
    seconds: Mapping[Phase, Any]

    @property
    def time_s(self) -> Any:
        """Seconds of the whole step."""
        return total(self.seconds.values())


def product_s(one: Matmul, sizes: Sizes, machine: Machine, dtype: str, efficiency: float | None) -> Any:
    """Seconds of one run: the slower of matrix unit and memory; arguments as of `compute`."""
    work = compute_s(machine, one.flops(sizes), dtype, efficiency)
    return largest(work, memory_s(machine, one.memory_bytes(sizes)))


def compute(
    products: Sequence[Matmul], sizes: Sizes, machine: Machine, dtype: str, efficiency: float | None = None
) -> Compute:
    """The FLOPs and seconds of `products` by a roofline per product.

    dtype       whose peak counts, a key of the chip's peaks
    efficiency  share of the peak that a matrix product reaches; None takes the machine's own
    """
    runs = [(one, one.flops(sizes), one.count(sizes)) for one in products]

    def seconds(phase: Phase) -> Any:
        return total(
            product_s(one, sizes, machine, dtype, efficiency) * count
            for one, _, count in runs
            if one.where.phase == phase
        )

    return Compute(
        flops=total(work * count for _, work, count in runs),
        useful_flops=total(one.useful_flops(sizes) * count for one, _, count in runs if not one.where.again),
        seconds={phase: seconds(phase) for phase in PHASES},
    )
