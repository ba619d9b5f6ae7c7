"""One way to compute an expression as a program that `reference` can run: leaves, moves, the product."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Sharding
from tpsim.program.op import Array, Einsum, Leaf, Max, Op, Program, Reshard, Where

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.planner import Step
    from tpsim.algebra.sharding import Owed

WHERE = Where("F", "expression")

Named = tuple[str, Sharding]
"""An array of the expression in one of its types."""


def expression_program(
    arrays: Sequence[Named], steps: Sequence[Step], order: tuple[str, ...], dtype: str, *, sharded: bool
) -> Program:
    """The program of these steps; its result is ``result``.

    arrays   what comes from outside
    sharded  False: for one device, without moves
    Raises InputError for an array that owes sums and maxima: its value depends on which are paid first.
    """
    writer = _Writer(dtype, sharded)
    for name, type_ in arrays:
        writer.leaf(name, type_)
    for step in steps:
        writer.step(step)
    last = steps[-1].output if steps else arrays[-1]
    return Program(tuple(writer.ops), order if sharded else (), {}, {}, {"result": writer.held[last]})


def part_sizes(arrays: Sequence[Named], mesh: Mesh) -> Mapping[str, int]:
    """The sizes of the dims that stand for the parts of arrays that owe."""
    return {_parts_over(axis): mesh.axes[axis] for _, type_ in arrays for axis, _ in type_.owes}


def _parts_over(axis: str) -> str:
    """The dim over which the parts of an owed sum are told apart; no expression can name it."""
    return f"parts over {axis}"


@dataclass(slots=True)
class _Writer:
    """A program being written; `held` are its arrays by their names and types in the expression."""

    dtype: str
    sharded: bool
    ops: list[Op] = field(default_factory=list)
    held: dict[Named, Array] = field(default_factory=dict)

    def leaf(self, name: str, type_: Sharding) -> None:
        """An array from outside. One that owes is the sum (or maximum) of parts that all differ."""
        owed = sorted(type_.owes)
        dims = (*(_parts_over(axis) for axis, _ in owed), *type_.dims)
        array = self._array(name, Sharding(dims, (*((axis,) for axis, _ in owed), *type_.on)))
        self.ops.append(Leaf((), array, WHERE))
        for one in owed:
            array = self._paid(array, one)
        self.held[name, type_] = array

    def _paid(self, x: Array, owed: Owed) -> Array:
        """The parts over one axis together; on many devices each holds one part, so that the rest is owed."""
        axis, kind = owed
        dims, on = x.dims[1:], x.type.on[1:]
        made = self._array(x.name, Sharding(dims, on, x.type.owes | {owed}))
        op = Einsum((x,), made, WHERE) if kind == "sum" else Max((x,), made, WHERE, dim=_parts_over(axis))
        self.ops.append(op)
        return made

    def step(self, step: Step) -> None:
        """A move, or the product; one device needs no move."""
        inputs = tuple(self.held[one] for one in step.inputs)
        if step.move is not None and not self.sharded:
            self.held[step.output] = inputs[0]
            return
        made = self._array(*step.output)
        if step.move is None:
            self.ops.append(Einsum(inputs, made, WHERE))
        else:
            self.ops.append(Reshard(inputs, made, WHERE, step.because, moves=(step.move,)))
        self.held[step.output] = made

    def _array(self, name: str, type_: Sharding) -> Array:
        on_one = Sharding(type_.dims, ((),) * len(type_.dims))
        return Array(name, type_ if self.sharded else on_one, "", self.dtype)
