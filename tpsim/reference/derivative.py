"""The derived backward held against central finite differences of the loss, which know no transpose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from tpsim.reference.execute import execute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.op import Array, Program
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
    forward = replace(whole.program, ops=tuple(op for op in whole.program.ops if op.where.phase == "forward"))
    for name, array in whole.program.results.items():
        if name.startswith("grad."):
            label = name.removeprefix("grad.")
            yield _slope(whole, forward, label, array, whole.program.results[f"new.{label}"])


def _slope(whole: Run, forward: Program, label: str, derived: Array, parameter: Array) -> Slope:
    """One parameter, moved both ways along a direction that its name decides."""
    gradient = whole.value(derived).transpose([derived.dims.index(dim) for dim in parameter.dims])
    value = whole.inputs(label, gradient.shape)
    direction = np.random.default_rng(crc32(label.encode())).normal(size=gradient.shape)
    length, difference = max(float(np.linalg.norm(gradient)), FLOOR), inf
    for step in STEPS:
        above, below = (_loss(whole, forward, label, value + sign * step * direction) for sign in (1.0, -1.0))
        gap = abs((above - below) / (2 * step) - float(np.sum(gradient * direction)))
        difference = min(difference, gap / length)
        if difference < NEAR:
            break
    return Slope(label, difference)


def _loss(whole: Run, forward: Program, label: str, value: Block) -> float:
    """The loss with one parameter replaced."""

    def inputs(name: str, shape: tuple[int, ...]) -> Block:
        return value if name == label else whole.inputs(name, shape)

    moved = execute(forward, whole.grid.mesh, whole.sizes, inputs)
    return float(moved.value(forward.results["loss"]))
