"""The collectives of a compiled program in tpsim's words, one per array.

Normalised: an all-reduce of which each device of a group then keeps another part is the reduce-scatter that XLA's
partitioner does not emit on CPU; a call that carries several arrays counts once for each; what is counted is elements,
whatever dtype XLA promotes them to; an all-to-all with one operand per peer is one array.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product as every
from math import prod
from typing import TYPE_CHECKING

from tests.oracle.hlo import groups, pairs, read
from tests.oracle.parts import starts
from tpsim.algebra.moves import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.oracle.hlo import Body, Line, Program
    from tpsim.algebra.moves import Move, MoveKind

KINDS: Mapping[str, MoveKind] = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}

UNREAD = ("-start", "broadcast-", "-broadcast", "ragged-", "send", "recv", "while", "conditional", "custom-call")
"""Parts of names of operations that might move data, or repeat moves, in a way that this reader does not count."""

PASSING = ("bitcast", "reshape", "copy", "convert", "transpose", "get-tuple-element")
"""Operations that hand on what they are given."""


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """One array through one collective.

    axes  the mesh axes that take part; ``X/2`` is a part of axis X, two devices wide
    V     elements of the whole array taking part
    n     devices
    """

    kind: MoveKind
    axes: tuple[str, ...]
    V: int
    n: int

    @property
    def wire(self) -> int:
        """Elements that one device must inject."""
        return int(wire(self.kind, self.V, self.n))

    def __str__(self) -> str:
        return f"{self.kind}_{''.join(self.axes)}({self.V})"


@dataclass(frozen=True, slots=True)
class Run:
    """What one device does: its collectives, and the FLOPs of its products of matrices."""

    calls: Counter[Call]
    flops: int

    @property
    def wire(self) -> int:
        """Elements that a device injects in all collectives."""
        return sum(call.wire * count for call, count in self.calls.items())

    def __str__(self) -> str:
        calls = [f"{count} x {call}" for call, count in sorted(self.calls.items())]
        return f"{', '.join(calls) or 'nothing moves'}: {self.wire:,} elements, {self.flops:,} FLOPs"


def compiled(text: str, mesh: Mapping[str, int]) -> Run:
    """What the HLO in `text` does on each device of `mesh`, whose devices are numbered major axis first.

    Raises ValueError for an operation that might move data in a way that is not counted here.
    """
    program = read(text)
    _refuse_unread(program)
    collectives = (line for line in program.main.values() if line.op in KINDS)
    calls = Counter(call for line in collectives for call in _calls(line, program.main, mesh))
    bodies = (program.main, *program.bodies.values())
    return Run(calls, sum(_flops(line, body) for body in bodies for line in body.values()))


def called(moves: Iterable[Move], dims: Mapping[str, int], mesh: Mapping[str, int]) -> Counter[Call]:
    """tpsim's moves in the same form: axes in the order of the mesh, free slices left out."""
    return Counter(
        Call(
            move.kind,
            tuple(axis for axis in mesh if axis in move.axes),
            int(move.logical_elements(dims, mesh)),
            int(move.ranks(mesh)),
        )
        for move in moves
        if move.kind != "slice"
    )


def _calls(line: Line, main: Body, mesh: Mapping[str, int]) -> Iterator[Call]:
    """One call per array of a collective."""
    kind, (axes, n) = KINDS[line.op], _taking_part(line, mesh)
    held = [main[name].elements for name in line.operands]
    if kind == "all_to_all":
        held = [sum(held)]
    for place, elements in enumerate(held):
        if kind == "all_reduce" and _scattered(line, place, main, mesh):
            yield Call("reduce_scatter", axes, elements, n)
        else:
            yield Call(kind, axes, elements if "reduce" in kind else elements * n, n)


def _taking_part(line: Line, mesh: Mapping[str, int]) -> tuple[tuple[str, ...], int]:
    """The axes along which data moves, and how many devices that are."""
    if line.op == "collective-permute":
        moving = pairs(line)
    else:
        moving = [(group[0], other) for group in groups(line, prod(mesh.values())) for other in group]
    axes = _axes(moving, mesh)
    n = prod(size for _, size in axes)
    if line.op != "collective-permute" and n != len(groups(line, prod(mesh.values()))[0]):
        raise ValueError(f"{line} does not run along axes of {mesh}")
    return tuple(axis if size == mesh[axis] else f"{axis}/{size}" for axis, size in axes), n


def _axes(moving: Iterable[tuple[int, int]], mesh: Mapping[str, int]) -> list[tuple[str, int]]:
    """Per mesh axis that any of these pairs of devices differ on: its name and how many devices of it take part."""
    names = [axis for axis, size in mesh.items() for _ in range(size.bit_length() - 1)]
    places = list(every(*([range(2)] * len(names))))  # sizes are powers of two: each axis in its factors
    differ = [any(places[a][at] != places[b][at] for a, b in moving) for at in range(len(names))]
    count = Counter(name for name, differs in zip(names, differ, strict=True) if differs)
    return [(axis, 2 ** count[axis]) for axis in mesh if count[axis]]


def _scattered(line: Line, place: int, main: Body, mesh: Mapping[str, int]) -> bool:
    """True if of an all-reduced array every use is a slice, and the devices of a group take different ones."""
    uses = list(_uses(line.name, place if len(line.operands) > 1 else None, main))
    together = groups(line, prod(mesh.values()))
    return bool(uses) and all(
        use.op == "dynamic-slice" and len({starts(use, main, device) for device in group}) == len(group)
        for use in uses
        for group in together
    )


def _uses(name: str, place: int | None, main: Body) -> Iterator[Line]:
    """What reads an array in the end, past what only hands it on; `place` among the results of a call on several."""
    for line in main.values():
        other = place is not None and line.op == "get-tuple-element" and f"index={place}" not in line.attributes
        if name not in line.operands or other:
            continue
        if line.op in PASSING:
            yield from _uses(line.name, None, main)
        else:
            yield line


def _flops(line: Line, body: Body) -> int:
    """2 per multiplied pair of a product of matrices; nothing else is counted."""
    if line.op != "dot":
        return 0
    left = body[line.operands[0]].shapes[0]
    return 2 * line.elements * prod(left[dim] for dim in line.numbers("lhs_contracting_dims"))


def _refuse_unread(program: Program) -> None:
    for body in (program.main, *program.bodies.values()):
        for line in body.values():
            hidden = body is not program.main and line.op in KINDS
            if hidden or any(part in line.op for part in UNREAD):
                raise ValueError(f"{line} might move data in a way that is not counted here")
