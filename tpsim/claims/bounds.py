"""How large an expression may be to be run on simulated devices, and which smaller one shows the same."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import Mesh
from tpsim.claims.shrunk_placement import DEVICES, PAIR, POWER, telling
from tpsim.program.expression import part_sizes
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpsim.answers.shard import ShardResult
    from tpsim.answers.shard_way import Way

WORK, HELD = 2**24, 2**27
"""The most multiplications of a product on one device, and the most elements, of 8 bytes, that devices hold at once."""


class TooLarge(Exception):  # noqa: N818  # it says what was found
    """Why an expression is not run."""


def refuse_devices(mesh: Mesh) -> None:
    """Raise TooLarge for a mesh of more devices than are simulated."""
    if mesh.devices > DEVICES:
        raise TooLarge(f"a mesh of {mesh.devices} devices is too large to run")


def refuse_sizes(asked: ShardResult) -> None:
    """Raise TooLarge for dims that take too long on one device, or too much memory on all of them on any way."""
    dims = asked.dims or {}
    if prod(dims.values()) > WORK:
        raise TooLarge(f"{' x '.join(f'{dim} {size}' for dim, size in dims.items())} is too much to run")
    for way in asked.alternatives or (asked.way,):
        elements = _held(asked, way)
        if elements > HELD:
            path = f" on the way {way.ops}" if way.steps else ""
            room = f"{8 * elements / 1e9:.1f} GB{path}, of {8 * HELD / 1e9:.1f} that are allowed"
            raise TooLarge(f"{asked.mesh.devices} devices would take {room}")


def _held(asked: ShardResult, way: Way) -> int:
    """Elements at once: what comes from outside, every array on the way, and twice the flat arrays of a move."""
    dims, axes = asked.dims or {}, asked.mesh.axes
    parts = prod(part_sizes(asked.leaves, asked.mesh).values())
    outside = 2 * parts * sum(prod(dims[dim] for dim in type_.dims) for _, type_ in asked.leaves)
    moved = [row.call.parts[0].move.logical_elements(dims, axes) for row in way.rows]
    made = [step.made.output.type.local_elements(dims, axes) for step in way.steps]
    return int(outside + asked.mesh.devices * (sum(made) + 2 * max(moved, default=0)))


def smaller(runs: Callable[[Mesh], object], mesh: Mesh, dims: str | Mapping[str, int] | None) -> str:
    """What to ask instead: without the dims if some were given, else a mesh of fewer devices, whose rings are alike.

    runs  raises TooLarge or InputError for a mesh that cannot be run with the least dims
    """
    if dims is not None and _can(runs, mesh):
        return "leave --dims out: the least sizes show the same"
    also = " without --dims" if dims is not None else ""
    fits = next((less for less in _smaller_meshes(mesh) if _can(runs, less)), None)
    if fits is None:
        return "write it with fewer mesh axes"
    return f"take fewer devices{also}: --mesh {','.join(f'{axis}={n}' for axis, n in fits.axes.items())}"


def _can(runs: Callable[[Mesh], object], mesh: Mesh) -> bool:
    try:
        runs(mesh)
    except (TooLarge, InputError):
        return False
    return True


def _smaller_meshes(mesh: Mesh) -> Iterator[Mesh]:
    """The longest axis at the least size that is like it, then as a pair; and so on until all are pairs."""
    sizes = dict(mesh.axes)
    while (n := max(sizes.values(), default=0)) > PAIR:
        axis = next(name for name, size in sizes.items() if size == n)
        sizes[axis] = telling(n, "ring") if n > POWER else PAIR
        yield Mesh(dict(sizes))
