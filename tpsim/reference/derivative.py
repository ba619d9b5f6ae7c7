"""The derived backward held against central finite differences of the loss, which know no transpose."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from tpsim.program.op import Leaf
from tpsim.reference.execute import label, rerun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.op import Array, Op
    from tpsim.reference.blocks import Block
    from tpsim.reference.execute import Run

STEPS = (1e-5, 1e-6)
"""How far each parameter is moved along its direction, both ways; less far where the loss is sharply curved."""

NEAR = 1e-6
"""Slopes as near to each other as this are not looked at again; what is wrong stays wrong at any step."""

FLOOR = 1e-4
"""Gradients below this length are compared absolutely; that of a key's bias is zero but for rounding."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How the loss changes along one random direction of one parameter.

    difference  of the two slopes, relative to the length of the derived gradient
    """

    parameter: str
    difference: float


def slopes(whole: Run) -> Iterator[Slope]:
    """Every parameter of a run on one device: its derived gradient against the loss on either side."""
    for name, array in whole.program.results.items():
        if name.startswith("grad."):
            label = name.removeprefix("grad.")
            yield _slope(whole, label, array, whole.program.results[f"new.{label}"])


def _slope(whole: Run, name: str, derived: Array, parameter: Array) -> Slope:
    """One parameter, moved both ways along a direction that its name decides."""
    gradient = whole.value(derived).transpose([derived.dims.index(dim) for dim in parameter.dims])
    value = whole.inputs(name, gradient.shape)
    direction = np.random.default_rng(crc32(name.encode())).normal(size=gradient.shape)
    length, difference = max(float(np.linalg.norm(gradient)), FLOOR), inf
    leaf, hanging = _hanging(whole, name)
    for step in STEPS:
        above, below = (_loss(whole, leaf, hanging, value + sign * step * direction) for sign in (1.0, -1.0))
        gap = abs((above - below) / (2 * step) - float(np.sum(gradient * direction)))
        difference = min(difference, gap / length)
        if difference < NEAR:
            break
    return Slope(name, difference)


def _hanging(whole: Run, name: str) -> tuple[Array, list[Op]]:
    """The array of a parameter, and the ops of forward that hang on it: it moves no other."""
    forward = [op for op in whole.program.ops if op.where.phase == "forward"]
    leaf = next(op.output for op in forward if isinstance(op, Leaf) and label(op.output, op) == name)
    reached, hanging = {leaf}, []
    for op in forward:
        if not reached.isdisjoint(op.inputs):
            reached.add(op.output)
            hanging.append(op)
    return leaf, hanging


def _loss(whole: Run, leaf: Array, hanging: list[Op], value: Block) -> float:
    """The loss with one parameter replaced."""
    moved = rerun(whole, {leaf: whole.grid.scatter(value, leaf.type)}, hanging)
    return float(moved.value(whole.program.results["loss"]))
