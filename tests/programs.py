"""Programs as text, to hold one against the other."""

from __future__ import annotations

from tpsim.algebra.sharding import flat_dim


def told(program):
    """Every op with what it reads, by number, and what lies in the line of what it makes."""
    numbers = {op.output: number for number, op in enumerate(program.ops)}
    ops = [
        (type(op), *of(op.output), op.where, op.because, *(numbers.get(x, str(x)) for x in op.inputs))
        for op in program.ops
    ]
    return ops, {name: numbers[x] for name, x in program.results.items()}, program.table


def of(x):
    """All of an array but what it is filled by."""
    return str(x), x.region, x.dtype, x.role, x.active, lies(x.type)


def lies(type_):
    """What lies in the line of a type."""
    line = flat_dim(type_)
    return line and (line.of, line.merged, line.ways)
