"""The mesh that a scenario states, its axes and their sizes, and where it lies on its machine.

One size may be left to the number of chips; what is not placed is packed level by level.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

from tpsim.algebra.mesh import Mesh, sized
from tpsim.fabric.placement import Placement, checked, place
from tpsim.quantity.errors import At, InputError, Place, Problem
from tpsim.question.divisibility import tp_place, tp_problems
from tpsim.question.layout import Cut, known_axis

if TYPE_CHECKING:
    from tpsim.machine.parts import Machine
    from tpsim.program.model import Model
    from tpsim.question.scenario_file import ScenarioFile
    from tpsim.question.stated import Stated


def mesh_of(file: ScenarioFile, model: Model, at: At) -> Mesh:
    """The mesh with its -1 filled.

    Raises InputError unless its product is the number of chips; a tp that `model` cannot take is shown with it.
    """
    problems = list(_axis_problems(file, at))
    if not problems:
        mesh = _filled(file)
        if mesh is not None:
            return mesh
        problems = [*_known_tp_problems(file, model, at), _product_problem(file, at)]
    raise InputError(problems)


def _axis_problems(file: ScenarioFile, at: At) -> Iterator[Problem]:
    for name, size in file.mesh.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            remedy = "use letters, digits and _, a letter first"
            yield Problem("bad-axis-name", f'"{name}" cannot name a mesh axis', at("mesh", name), remedy)
        if size == 0:
            yield Problem("bad-mesh", f"axis {name} has size 0", at("mesh", name), "write 1, or leave it out")
    first, *others = _open_axes(file) or [""]
    if others:
        message = "more than one mesh axis is -1"
        yield Problem("bad-mesh", message, at("mesh", others[0]), f"give {others[0]} a size")
    elif first and file.chips is None:
        message = f"axis {first} is -1 and the number of chips is not stated"
        yield Problem("missing-chips", message, at("mesh", first), "add chips, or give the axis a size")


def _open_axes(file: ScenarioFile) -> list[str]:
    return [name for name, size in file.mesh.items() if size == -1]


def _stated_chips(file: ScenarioFile) -> int:
    """The product of the axes whose sizes are stated."""
    return prod(size for size in file.mesh.values() if size > 0)


def _filled(file: ScenarioFile) -> Mesh | None:
    """The mesh with its -1 filled; None if that is impossible or the product is not the chips."""
    stated = _stated_chips(file)
    chips = stated if file.chips is None else file.chips
    rest = chips // stated
    if rest * stated != chips or (rest != 1 and not _open_axes(file)):
        return None
    return Mesh({name: rest if size == -1 else size for name, size in file.mesh.items()})


def _product_problem(file: ScenarioFile, at: At) -> Problem:
    factors = sized(file.mesh)
    stated, slug = _stated_chips(file), "mesh-product"
    if unfilled := _open_axes(file):
        message = f"the mesh is {factors} = a multiple of {stated} chips, but chips is {file.chips}"
        return Problem(slug, message, at("mesh", unfilled[0]), "change chips or an axis")
    message = f"the mesh is {factors} = {stated} chip{'s'[: stated - 1]}, but chips is {file.chips}"
    place, fill = _last_said(file, at), _mended(file)
    return Problem(slug, message, place, fill if stated > 1 else f"size the mesh: --dp {file.chips}, or --mesh data=-1")


def _mended(file: ScenarioFile) -> str:
    """What makes the product the chips: the size of the axis of data shards, as a flag, or other chips."""
    axes = file.layout.dp if file.layout else ()
    rest, chips = prod(size for axis, size in file.mesh.items() if axis not in axes), file.chips or 0
    if len(axes) != 1 or axes[0] not in file.mesh:
        return f"make the product {chips}; -1 on one axis fills it"
    multiple = f"make chips a multiple of {rest}, or change an axis"
    return multiple if chips % rest else f"make the product {chips}: --dp {chips // rest}"


def _last_said(file: ScenarioFile, at: At) -> Place | None:
    """Where the mesh or its chips were set last: a flag or an override, else the mesh in the file."""
    mesh = at("mesh")
    places = [at("chips"), *(at("mesh", axis) for axis in file.mesh)]
    changed = (place for place in places if place and mesh and place.file != mesh.file)
    return next(changed, mesh)


def _known_tp_problems(file: ScenarioFile, model: Model, at: At) -> Iterator[Problem]:
    """What is wrong with tp in a mesh that is wrong itself, if the sizes of its axes are stated."""
    tp = file.layout.tp if file.layout else ()
    sizes = [file.mesh.get(axis, 0) for axis in tp]
    if all(size > 0 for size in sizes):
        yield from tp_problems(model, prod(sizes), tp_place(tp, at))


@contextmanager
def pointing_at(place: Place | None, remedy: str = "") -> Iterator[None]:
    """Problems that know no place, because they were found far from the scenario, point at `place`.

    remedy  of those that have none
    """
    try:
        yield
    except InputError as error:
        raise error.at(place, remedy) from None


BIND_NOTHING = "name one of these, or leave it to tpsim: --set placement={}"
"""What to do about a level that a machine has not, as when a scenario is asked of another machine."""


def placement_of(read: Stated, machine: Machine, split: Cut) -> Placement:
    """The mesh on the machine; a split axis is placed where the axis it came from is.

    What each stated axis names is looked up first, so that an unknown level is shown where it is written.
    """
    binds = read.file.placement
    if binds is None:
        with pointing_at(read.at("mesh")):
            return _placed(machine, split, None)
    original = split.mesh.unsplit(split.parents)
    for axis in binds:
        known_axis(axis, original, read.at_key, "placement", axis)
        with pointing_at(read.at("placement", axis), BIND_NOTHING):
            checked(machine.levels, original, {axis: binds[axis]})
    with pointing_at(read.at("placement") if binds else read.at("mesh")):
        return _placed(machine, split, binds)


def _placed(machine: Machine, split: Cut, stated: Any) -> Placement:
    """The mesh on the machine; what does not fit is said of the axes that the scenario names, not of their parts."""
    try:
        return split.placed(machine.levels, stated)
    except InputError:
        place(machine.levels, split.mesh.unsplit(split.parents), stated, alone=True)
        raise
