"""Expressions as questions: sizes, choices and bindings as a user types them, and the program of a way."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.algebra.notation import Expression, NamedArray, NotationError
from tpsim.algebra.sharding import Sharding, joined
from tpsim.fabric.placement import PAIRS, carriers_of
from tpsim.program.dtypes import DTYPE_BYTES
from tpsim.program.op import Array, Einsum, Leaf, Max, Op, Program, Reshard, Where
from tpsim.quantity import arguments
from tpsim.quantity.errors import did_you_mean
from tpsim.question.divisibility import next_multiple

if TYPE_CHECKING:
    from tpsim.algebra.planner import PlannedStep

_PAIR = re.compile(r"\s*([A-Za-z][A-Za-z0-9_']*)\s*=\s*([0-9](?:_?[0-9]){0,17})\s*(?:,|$)")


def _sizes(given: str | Mapping[str, int], noun: str, example: str) -> dict[str, int]:
    return _pairs(given, noun, example) if isinstance(given, str) else arguments.sizes(noun, given, example)


def _pairs(text: str, noun: str, example: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    slug = f"bad-{noun}"
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None or int(match[2]) < 1:
            raise NotationError(f"the {noun} cannot be read", text, (at, len(text)), f"write sizes as {example}", slug)
        if match[1] in sizes:
            raise NotationError(f"{match[1]} has two sizes", text, match.span(1), f"drop one {match[1]}", slug)
        sizes[match[1]] = int(match[2])
        at = match.end()
    return sizes


def read_mesh(mesh: str | Mapping[str, int] | Mesh) -> Mesh:
    """The mesh, axes major first."""
    return mesh if isinstance(mesh, Mesh) else Mesh(_sizes(mesh, "mesh", "X=4,Y=2"))


def read_dims(dims: str | Mapping[str, int], read: Expression) -> dict[str, int]:
    """The size of every dim in the expression, and of no other."""
    sizes = _sizes(dims, "dims", "I=8192,J=4096")
    known = {dim: array for array in reversed(read.arrays) for dim in array.type.dims}
    for dim, array in known.items():
        if dim not in sizes:
            span, remedy = array.spans["dim", dim], f"add {dim}=... to the dims"
            raise NotationError(f"dim {dim} has no size", read.text, span, remedy, "missing-size")
    for dim in sizes:
        if dim not in known:
            raise _unknown(dim, dims if isinstance(dims, str) else dim, "dim of the expression", tuple(known))
    return sizes


def chosen(word: str, noun: str, known: Collection[str]) -> str:
    """`word`, if it is one of the known ones."""
    if word not in known:
        raise _unknown(word, word, noun, tuple(known))
    return word


def _unknown(word: str, text: str, noun: str, known: Sequence[str]) -> NotationError:
    start = text.index(word)
    hint = f"{did_you_mean(word, known)} ".lstrip() if len(word) > 1 else ""
    remedy = f"{hint}there are: {', '.join(known)}"
    slug = f"unknown-{noun.partition(' of ')[0].replace(' ', '-')}"
    return NotationError(f'"{word}" is not a {noun}', text, (start, start + len(word)), remedy, slug)


def read_binding(placement: str | Mapping[str, Any] | None) -> dict[str, tuple[str, ...]] | None:
    """``X=ici.0,Y=ici.1+ici.2`` as a mapping from mesh axis to levels."""
    if placement is None:
        return None
    if isinstance(placement, Mapping):
        for axis, to in placement.items():
            for carrier in to if isinstance(to, list | tuple) else [to]:
                arguments.text(f"placement.{axis}", carrier)
        return {axis: tuple(carriers_of(to)) for axis, to in placement.items()}
    arguments.text("placement", placement)
    bound: dict[str, tuple[str, ...]] = {}
    for pair in PAIRS.split(placement):
        axis, equals, levels = (part.strip() for part in pair.partition("="))
        if not (axis and equals and levels):
            start = placement.index(pair)
            span, remedy = (start, start + len(pair)), "write it as X=ici.0,Y=ici.1"
            raise NotationError("the placement cannot be read", placement, span, remedy, "bad-placement")
        bound[axis] = tuple(carriers_of(levels))
    return bound


def without_single(read: Expression, mesh: Mesh) -> Expression:
    """The expression without the mesh axes of one device: they split nothing, and no order of axes turns on them."""
    single = {axis for axis, devices in mesh.axes.items() if devices == 1}

    def named(array: NamedArray) -> NamedArray:
        type_ = array.type
        on = tuple(tuple(axis for axis in axes if axis not in single) for axes in type_.on)
        owes = frozenset(owed for owed in type_.owes if owed[0] not in single)
        return replace(array, type=Sharding(type_.dims, on, owes))

    stated = {slot.name: getattr(read, slot.name) for slot in fields(read)}
    arrays = {name: named(array) for name, array in stated.items() if isinstance(array, NamedArray)}
    return replace(read, **arrays)  # type: ignore[arg-type]  # its own fields


def refuse_uneven(text: str, array: NamedArray, dims: Mapping[str, int], mesh: Mesh) -> None:
    """Refuse a dim that its axes do not divide."""
    for dim in array.type.dims:
        axes = array.type.axes(dim)
        shards = mesh.size(*axes)
        if not mesh.divides(array.type, dim, dims):
            more = next_multiple(dims[dim], shards)
            raise NotationError(
                f"{dim} = {dims[dim]} of {array.name} does not split evenly over {joined(axes)} = {shards} devices",
                text,
                array.spans["dim", dim],
                f"pad {dim} to {more}, the next multiple of {shards}, or split another dim",
                "not-divisible",
            )


def refuse_dtypes(read: Expression, dtype: str) -> None:
    """Refuse an array that is called as another dtype than it has: ``f32[I, J]`` is the book's way to state one."""
    for array in read.arrays:
        if array.name in DTYPE_BYTES and array.name != dtype:
            message = f"{array.name} is a dtype, but stands here as the name of an array of {dtype}"
            remedy = f"name the array, and state its dtype beside: --dtype {array.name}"
            raise NotationError(message, read.text, array.spans["array", array.name], remedy, "dtype-as-name")


SIMULATED = 64
"""Devices that a run simulates at most, where no more are asked for."""

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
        inputs, output = tuple(known[array] for array in step.inputs), Array(*step.output, "", dtype)
        moves = (step.move,) if step.move else ()
        ops.append(
            Reshard(inputs, output, WHERE, step.because, moves=moves)
            if moves
            else Einsum(inputs, output, WHERE, step.because)
        )
        known[step.output] = output
    return Program(tuple(ops), order, {}, {}, {"result": ops[-1].output})


def _from_outside(array: Array) -> Iterator[Op]:
    """A leaf; one that owes is the sum (or maximum) of parts that all differ, of which each device holds one."""
    dims, on, owed = array.dims, array.type.on, sorted(array.type.owes)
    parts = Sharding((*(_parts_over(axis) for axis, _ in owed), *dims), (*((axis,) for axis, _ in owed), *on))
    leaf = replace(array, type=parts)
    yield Leaf((), leaf, WHERE)
    for paid, (axis, kind) in enumerate(owed, 1):
        before = leaf
        leaf = replace(array, type=Sharding(before.dims[1:], before.type.on[1:], frozenset(owed[:paid])))
        yield (Einsum((before,), leaf, WHERE) if kind == "sum" else Max((before,), leaf, WHERE, dim=_parts_over(axis)))


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
