"""The mesh that a scenario states: its axes and their sizes, one of which may be left to the number of chips."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import Mesh
from tpsim.quantity.errors import InputError, Problem
from tpsim.question.divisibility import tp_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpsim.program.model import Model
    from tpsim.quantity.errors import Place
    from tpsim.question.divisibility import At
    from tpsim.question.scenario_file import ScenarioFile


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
    factors = " x ".join(f"{name} {size}" for name, size in file.mesh.items())
    stated, slug = _stated_chips(file), "mesh-product"
    if unfilled := _open_axes(file):
        message = f"the mesh is {factors} = a multiple of {stated} chips, but chips is {file.chips}"
        return Problem(slug, message, at("mesh", unfilled[0]), "change chips or an axis")
    message = f"the mesh is {factors} = {stated} chips, but chips is {file.chips}"
    return Problem(slug, message, _last_said(file, at), f"make the product {file.chips}; -1 on one axis fills it")


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


def tp_place(tp: tuple[str, ...], at: At) -> Place | None:
    """Where the size of tp is stated: in the mesh if it is one axis, else where its axes are listed."""
    return at("mesh", tp[0]) if len(tp) == 1 else at("layout", "tp")
