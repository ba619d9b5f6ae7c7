"""Where a question's mesh lies on its machine: as the scenario says, else packed level by level."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import Placement, place
from tpsim.quantity.errors import InputError, Place
from tpsim.question.layout import Cut, known_axis

if TYPE_CHECKING:
    from tpsim.machine.profile import Machine
    from tpsim.question.stated import Stated


@contextmanager
def pointing_at(place: Place | None, remedy: str = "") -> Iterator[None]:
    """Problems that know no place, because they were found far from the scenario, point at `place`.

    remedy  of those that have none
    """
    try:
        yield
    except InputError as error:
        raise InputError(
            problem if problem.place else replace(problem, place=place, remedy=problem.remedy or remedy)
            for problem in error.problems
        ) from None


BIND_NOTHING = "name one of these, or leave it to tpsim: --set placement={}"
"""What to do about a level that a machine has not, as when a scenario is asked of another machine."""


def placement_of(read: Stated, machine: Machine, split: Cut) -> Placement:
    """The mesh on the machine; a split axis is placed where the axis it came from is.

    Each stated axis is placed alone first, so that an unknown level is shown where it is written.
    """
    binds = read.file.placement
    if binds is None:
        with pointing_at(read.at("mesh")):
            return _placed(machine, split, None, None)
    original = Mesh(dict.fromkeys(split.parents.get(axis, axis) for axis in split.mesh.axes))  # type: ignore[arg-type]
    for axis in binds:
        known_axis(axis, original, read.at_key, "placement", axis)
        with pointing_at(read.at("placement", axis), BIND_NOTHING):
            place(machine.levels, Mesh({axis: 1}), {axis: binds[axis]})
    parents = {axis: split.parents.get(axis, axis) for axis in split.mesh.axes}
    binding = {axis: binds[parent] for axis, parent in parents.items() if parent in binds}
    with pointing_at(read.at("placement") if binds else read.at("mesh")):
        return _placed(machine, split, binding, binds)


def _placed(machine: Machine, split: Cut, binding: Any, stated: Any) -> Placement:
    """The mesh on the machine; what does not fit is said of the axes that the scenario names, not of their parts."""
    try:
        return place(machine.levels, split.mesh, binding, alone=True)
    except InputError:
        sizes: dict[str, int] = {}
        for axis, size in split.mesh.axes.items():
            whole = split.parents.get(axis, axis)
            sizes[whole] = sizes.get(whole, 1) * size
        place(machine.levels, Mesh(sizes), stated, alone=True)
        raise
