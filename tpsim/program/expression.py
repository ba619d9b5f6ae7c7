"""An expression as a program: what comes from outside, the moves and the product of one way to compute it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpsim.algebra.sharding import Sharding
from tpsim.program.op import Array, Einsum, Leaf, Max, Op, Program, Reshard, Where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.planner import PlannedStep

WHERE = Where("F", "")

Named = tuple[str, Sharding]
"""An array of the expression in one of its types."""


def expression_program(
    arrays: Sequence[Named], steps: Sequence[PlannedStep], order: tuple[str, ...], dtype: str
) -> Program:
    """The program of these steps; what the last one leaves is its ``result``.

    arrays  what comes from outside
    order   mesh axes, major first
    """
    ops: list[Op] = []
    known: dict[Named, Array] = {}
    for name, type_ in arrays:
        ops += _from_outside(Array(name, type_, "", dtype))
        known[name, type_] = ops[-1].output
    for step in steps:
        inputs, made = tuple(known[array] for array in step.inputs), Array(*step.output, "", dtype)
        moves = (step.move,) if step.move else ()
        ops.append(
            Reshard(inputs, made, WHERE, step.because, moves=moves)
            if moves
            else Einsum(inputs, made, WHERE, step.because)
        )
        known[step.output] = made
    return Program(tuple(ops), order, {}, {}, {"result": ops[-1].output})


def _from_outside(array: Array) -> Iterator[Op]:
    """A leaf; one that owes is the sum (or maximum) of parts that all differ, of which each device holds one."""
    dims, on, owed = array.dims, array.type.on, sorted(array.type.owes)
    parts = Sharding((*(_parts_over(axis) for axis, _ in owed), *dims), (*((axis,) for axis, _ in owed), *on))
    made = replace(array, type=parts)
    yield Leaf((), made, WHERE)
    for paid, (axis, kind) in enumerate(owed, 1):
        before = made
        made = replace(array, type=Sharding(before.dims[1:], before.type.on[1:], frozenset(owed[:paid])))
        yield (Einsum((before,), made, WHERE) if kind == "sum" else Max((before,), made, WHERE, dim=_parts_over(axis)))


def _parts_over(axis: str) -> str:
    """The dim over which the parts of an owed sum are told apart; no expression can name it."""
    return f"parts over {axis}"


def part_sizes(arrays: Sequence[Named], mesh: Mesh) -> Mapping[str, int]:
    """The sizes of the dims that stand for the parts of arrays that owe."""
    return {_parts_over(axis): mesh.axes[axis] for _, type_ in arrays for axis, _ in type_.owes}


def unsharded(program: Program) -> Program:
    """The same on one device: nothing is split, nothing is owed, nothing moves."""
    ops: list[Op] = []
    whole: dict[Array, Array] = {}
    for op in program.ops:
        inputs, dims = tuple(whole[x] for x in op.inputs), op.output.dims
        if isinstance(op, Reshard):
            (whole[op.output],) = inputs
            continue
        whole[op.output] = replace(op.output, type=Sharding(dims, ((),) * len(dims)))
        ops.append(replace(op, inputs=inputs, output=whole[op.output]))
    results = {name: whole[array] for name, array in program.results.items()}
    return replace(program, ops=tuple(ops), axes=(), results=results)
