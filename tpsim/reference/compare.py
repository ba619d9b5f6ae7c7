"""Two runs of one program held against each other, and the gradients of one against its own loss on either side."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from tpsim.algebra.sharding import unpacked
from tpsim.program.op import Array, Index, Join, Leaf, Lin, Op, Phase, Program, Reshard, is_cast
from tpsim.program.update import CLIP
from tpsim.reference.execute import execute, reruns
from tpsim.reference.routing import reordered
from tpsim.reference.run import Run, label

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from tpsim.reference.blocks import Block, Device

FLOOR = 1e-4
"""Arrays below this size are compared absolutely: a cotangent that is zero but for rounding has no relative error.

What is left of values near one that cancel is off by their rounding: 2e-16 over this must stay far below what counts.
"""

TOLERANCE = 1e-10
"""Relative difference of float64 values that only ordering explains; what lies further apart is looked at again."""

STIRRED = 1e-12
"""By which share of itself every value that a run begins with is moved, to see how far its arrays move.

What is zero but for rounding moves by as much as rounding comes to: over this, a difference a hundred times as large
is still within `TOLERANCE`.
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """One array of the sharded run beside its counterpart.

    name        label and type, as ``0.mlp.out.1[b, s, h]``
    difference  the largest over all devices, relative to the array's largest value, or, where that explains it,
                to how far it moves if the run's inputs do; infinite for a wrong shape
    device      where it is largest, as ``data 0, tensor 3``; "" for an array that owes: its parts are paid first
    blocks      blocks held against their window of the unsharded array
    again       True for a result that was compared before, under its label
    """

    phase: Phase
    name: str
    difference: float
    device: str
    blocks: int
    again: bool


class Misaligned(ValueError):  # noqa: N818  # it says how the programs stand to each other
    """The sharded program is not the unsharded one with moves between its ops."""


def compared(sharded: Run, whole: Run) -> Iterator[Compared]:
    """Every array of `sharded` but leaves, held against `whole`, a run of the same model on one device.

    Raises Misaligned if an op has no counterpart.
    """
    judge = _Judge(sharded, _Stirred(whole))
    labelled = set()
    twins = _twins(sharded.program, whole.program)
    for op in sharded.program.ops:
        if isinstance(op, Leaf | Index | Join):
            continue
        name = f"{label(op.output, op)}{op.output.type}"
        if isinstance(op, Reshard) or is_cast(op):
            (x,) = op.inputs
            expected = sharded.grid.relaid(judge.expected(x), x.type, op.output.type, sharded.sizes)
            judge.like[op.output] = judge.like.get(x)
        elif op in twins:
            judge.like[op.output] = twins[op].output
            expected = _as(op.output, twins[op].output, sharded, whole)
        else:
            continue
        labelled.add(op.output)
        yield judge.judged(op.output, expected, op.where.phase, name)
    for name, array in sharded.program.results.items():
        judge.like[array] = whole.program.results[name]
        expected = _as(array, whole.program.results[name], sharded, whole)
        phase: Phase = "backward" if name.startswith("grad.") else "update" if name.startswith("new.") else "forward"
        yield judge.judged(array, expected, phase, f"{name}{array.type}", again=array in labelled)
        labelled.add(array)


def _twins(sharded: Program, whole: Program) -> dict[Op, Op]:
    """The unsharded counterpart of every op that has one: of what runs once more that of its first run.

    On one device other things may be missing in backward: what is gathered is kept, though its shards are dropped.
    """
    ran = [op for op in sharded.ops if _comparable(op)]
    ops, again = ([op for op in ran if (op.where.again == "replay") == more] for more in (False, True))
    others = [op for op in whole.ops if _comparable(op) and op.where.again != "replay"]
    for left, right in zip(ops, others, strict=False):
        if label(left.output, left) != label(right.output, right):
            raise Misaligned(f"{label(left.output, left)} stands where one device has {label(right.output, right)}")
    if len(ops) != len(others):
        raise Misaligned(f"{len(ops)} ops stand where one device has {len(others)}")
    twins, first = dict(zip(ops, others, strict=True)), {_made(op): op for op in others if op.where.act == "F"}
    if missing := [op for op in again if _made(op) not in first]:
        raise Misaligned(f"{label(missing[0].output, missing[0])} runs once more, and one device has no such op")
    return twins | {op: first[_made(op)] for op in again}


def _made(op: Op) -> Hashable:
    """What an op makes, whichever run of it this is."""
    where = op.where
    kernel = where.kernel.removesuffix(".again")
    return type(op), label(op.output, op), op.output.dims, where.block, kernel, where.loops


def _comparable(op: Op) -> bool:
    return not isinstance(op, Leaf | Index | Reshard | Join) and not (
        isinstance(op, Lin) and (op.where.phase == "backward" or op.where.block == CLIP or is_cast(op))
    )


def _as(array: Array, other: Array, sharded: Run, whole: Run) -> Block:
    """The value of `other` on one device, its dims, its tokens and the rows of experts in the order of `array`."""
    (block,) = whole.blocks[other].values()
    plain = unpacked(array.type)
    value = sharded.placed(block.transpose([other.dims.index(dim) for dim in plain.dims]), plain.dims)
    value = sharded.grid.relaid(value, plain, array.type, sharded.sizes)
    return reordered(sharded, array, whole, other, value) if array.filled else value


@dataclass
class _Stirred:
    """A run on one device, and how far its arrays move if its inputs do: far where large values cancel."""

    whole: Run

    @cached_property
    def _again(self) -> Run:
        """The same run with every input but numbers of tokens moved a little, by chance."""
        whole, counted = self.whole, {"int32", "int64"}
        fixed = {label(op.output, op) for op in whole.program.ops if op.output.dtype in counted}

        def stirred(name: str, shape: tuple[int, ...]) -> Block:
            value, rng = whole.inputs(name, shape), np.random.default_rng(crc32(f"stirred {name}".encode()))
            return value if name in fixed else value * (1 + STIRRED * rng.uniform(-1, 1, shape))

        return execute(whole.program, whole.grid.mesh, whole.sizes, stirred, choose=whole.choose)

    def size(self, array: Array) -> float:
        """By how much an array moves, over the share of themselves by which the inputs do."""
        (value,), (moved,) = (run.blocks[array].values() for run in (self.whole, self._again))
        return float(np.abs(moved - value).max(initial=0.0)) / STIRRED


@dataclass(slots=True)
class _Judge:
    """What each array of a run should be, so far.

    like  the array on one device that it is like
    """

    run: Run
    stirred: _Stirred
    known: dict[Array, Block] = field(default_factory=dict)
    like: dict[Array, Array | None] = field(default_factory=dict)

    def expected(self, array: Array) -> Block:
        """What an array should be: as its counterpart is, else as its own blocks say."""
        if array not in self.known:
            self.known[array], _ = self.run.grid.assemble(self.run.blocks[array], array.type, self.run.sizes)
        return self.known[array]

    def judged(self, array: Array, expected: Block, phase: Phase, name: str, *, again: bool = False) -> Compared:
        """The blocks of `array` against `expected`."""
        self.known[array] = expected
        blocks, tiling = self.run.blocks[array], self.run.grid.tiling(array.type, self.run.sizes)
        for device, block in blocks.items():
            if block.shape != tiling.shape:
                return Compared(phase, name, np.inf, self._place(device), len(blocks), again)
        paid = self.run.grid.paid(blocks, array.type)
        split = tiling.shape != expected.shape  # elsewhere every device has all of it
        apart = np.abs(
            np.array([*paid.values()])
            - (np.array([expected[tiling.windows[device]] for device in paid]) if split else expected)
        )
        gaps = apart.reshape(len(paid), -1).max(axis=1, initial=0.0)
        gaps[np.isnan(gaps)] = np.inf
        worst = int(gaps.argmax())
        size = max(float(np.abs(expected).max(initial=0.0)), FLOOR)
        where = self._place([*paid][worst]) if array.type.complete else ""
        relative = float(gaps[worst]) / size
        if TOLERANCE < relative < np.inf and (like := self.like.get(array)):
            to_moves = float(gaps[worst]) / max(size, self.stirred.size(like))
            relative = to_moves if to_moves <= TOLERANCE else relative
        return Compared(phase, name, np.inf if np.isnan(relative) else relative, where, len(blocks), again)

    def _place(self, device: Device) -> str:
        place = zip(self.run.grid.mesh.order, device, strict=True)
        return ", ".join(f"{axis} {at}" for axis, at in place) or "the only one"


STEPS = (1e-5, 1e-6, 1e-7)
"""How far each parameter is moved along its direction, both ways; less far where the loss is sharply curved or bent."""

NEAR = 1e-6
"""Slopes as near to each other as this are not looked at again; what is wrong stays wrong at any step."""

SHORT = 1e-4
"""Gradients below this length are compared absolutely; that of a key's bias is zero but for rounding."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How the loss changes along one random direction of one parameter.

    difference  of the two slopes, relative to the length of the derived gradient
    """

    parameter: str
    difference: float


TOGETHER = 16
"""Parameters that are moved in runs side by side: enough to outweigh what begins each op, and few for caches."""

ALIKE = 100
"""The longest gradient of parameters moved in one run, by the shortest: of a longer one rounding would count."""


def slopes(whole: Run) -> Iterator[Slope]:
    """Every parameter of a run on one device: its derived gradient against the loss on either side.

    Parameters whose gradients are about as long are moved at once, each as far as counts alike; where the loss does not
    go as all their gradients say together, each is moved alone.
    """
    results = whole.program.results
    moved = [_moved(whole, name.removeprefix("grad."), results[name]) for name in results if name.startswith("grad.")]
    for group, difference in _differences(whole, _groups(moved), STEPS[0]) if moved else ():
        for change in group:
            change.difference = difference if difference < NEAR else inf
    for step in STEPS:
        far = [[change] for change in moved if change.difference >= NEAR]
        for first in range(0, len(far), TOGETHER):
            for (change,), difference in _differences(whole, far[first : first + TOGETHER], step):
                change.difference = min(change.difference, difference)
    return (Slope(change.name, change.difference) for change in moved)


def _groups(moved: Sequence[_Moved]) -> list[list[_Moved]]:
    """The parameters by the length of their gradients, the shortest of each group first."""
    groups: list[list[_Moved]] = []
    for change in sorted(moved, key=lambda change: change.length):
        if groups and change.length <= ALIKE * groups[-1][0].length:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


@dataclass(slots=True, eq=False)
class _Moved:
    """A parameter that is moved both ways along a direction that its name decides.

    leaf        where it enters the program
    value       what it is
    slope       of the loss along the direction, by the derived gradient
    length      of that gradient
    difference  of the slope from that of the loss so far
    """

    name: str
    leaf: Array
    value: Block
    direction: Block
    slope: float
    length: float
    difference: float = inf


def _moved(whole: Run, name: str, derived: Array) -> _Moved:
    parameter = whole.program.results[f"new.{name}"]
    gradient = whole.value(derived).transpose([derived.dims.index(dim) for dim in parameter.dims])
    direction = np.random.default_rng(crc32(name.encode())).normal(size=gradient.shape)
    slope, length = float(np.sum(gradient * direction)), max(float(np.linalg.norm(gradient)), SHORT)
    leaves = (op for op in whole.program.ops if isinstance(op, Leaf) and op.where.phase == "forward")
    leaf = next(op.output for op in leaves if label(op.output, op) == name)
    return _Moved(name, leaf, whole.inputs(name, gradient.shape), direction, slope, length)


def _differences(whole: Run, groups: list[list[_Moved]], step: float) -> Iterator[tuple[list[_Moved], float]]:
    """Of each group, moved while all others stay, how far off the slope of the loss is, by the shortest gradient."""
    hanging = _hanging(whole, {change.leaf for group in groups for change in group})
    losses = reruns(whole, _either_side(groups, step), hanging, whole.program.results["loss"])
    for group, (above, below) in zip(groups, np.broadcast_to(losses, 2 * len(groups)).reshape(-1, 2), strict=True):
        slope = sum(change.slope / change.length for change in group)
        yield group, abs(float(above - below) / (2 * step) / group[0].length - slope)


def _either_side(groups: list[list[_Moved]], step: float) -> dict[Array, Block]:
    """Of each parameter a value per run: two runs for each group, in which all of it is moved."""
    blocks = {}
    for at, group in enumerate(groups):
        for change in group:
            ends = np.multiply.outer([step, -step], change.direction * (group[0].length / change.length))
            blocks[change.leaf] = np.repeat(change.value[None], 2 * len(groups), axis=0)
            blocks[change.leaf][2 * at : 2 * at + 2] += ends
    return blocks


def _hanging(whole: Run, leaves: set[Array]) -> list[Op]:
    """The ops of forward that hang on some parameters: these move no other."""
    reached, hanging = {*leaves}, []
    for op in whole.program.ops:
        if op.where.phase == "forward" and not reached.isdisjoint(op.inputs):
            reached.add(op.output)
            hanging.append(op)
    return hanging
