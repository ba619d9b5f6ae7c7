"""Sizes, choices and bindings as a user types them beside an expression: ``X=4,Y=2``, ``X=ici.0``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tpsim.algebra.expression import NotationError
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.sharding import joined
from tpsim.quantity.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tpsim.algebra.expression import Expression, NamedArray


_PAIR = re.compile(r"\s*([A-Za-z][A-Za-z0-9_']*)\s*=\s*([0-9](?:_?[0-9]){0,17})\s*(?:,|$)")


def _pairs(text: str, what: str, example: str) -> dict[str, int]:
    """``X=4,Y=2`` as a mapping."""
    sizes: dict[str, int] = {}
    slug = f"bad-{what}"
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None or int(match[2]) < 1:
            raise NotationError(f"the {what} cannot be read", text, (at, len(text)), f"write sizes as {example}", slug)
        if match[1] in sizes:
            raise NotationError(f"{match[1]} has two sizes", text, match.span(1), f"drop one {match[1]}", slug)
        sizes[match[1]] = int(match[2])
        at = match.end()
    return sizes


def read_mesh(mesh: str | Mapping[str, int] | Mesh) -> Mesh:
    """The mesh, axes major first."""
    if isinstance(mesh, Mesh):
        return mesh
    return Mesh(_pairs(mesh, "mesh", "X=4,Y=2") if isinstance(mesh, str) else dict(mesh))


def read_dims(dims: str | Mapping[str, int], read: Expression) -> dict[str, int]:
    """The size of every dim in the expression, and of no other."""
    given = _pairs(dims, "dims", "I=8192,J=4096") if isinstance(dims, str) else dict(dims)
    known = {dim: array for array in reversed(read.arrays) for dim in array.type.dims}
    for dim, array in known.items():
        if dim not in given:
            span, remedy = array.spans["dim", dim], f"add {dim}=... to the dims"
            raise NotationError(f"dim {dim} has no size", read.text, span, remedy, "missing-size")
    for dim in given:
        if dim not in known:
            raise _unknown(dim, dims if isinstance(dims, str) else dim, "dim of the expression", tuple(known))
    return given


def chosen(word: str, what: str, known: Collection[str]) -> str:
    """`word`, if it is one of the known ones."""
    if word not in known:
        raise _unknown(word, word, what, tuple(known))
    return word


def _unknown(word: str, text: str, what: str, known: Sequence[str]) -> NotationError:
    start = text.index(word)
    hint = f"{did_you_mean(word, known)} ".lstrip() if len(word) > 1 else ""
    remedy = f"{hint}there are: {', '.join(known)}"
    slug = f"unknown-{what.partition(' of ')[0].replace(' ', '-')}"
    return NotationError(f'"{word}" is not a {what}', text, (start, start + len(word)), remedy, slug)


def read_binding(placement: str | Mapping[str, Any] | None) -> dict[str, tuple[str, ...]] | None:
    """``X=ici.0,Y=ici.1+ici.2`` as a mapping from mesh axis to levels."""
    if placement is None:
        return None
    if not isinstance(placement, str):
        return {axis: (to,) if isinstance(to, str) else tuple(to) for axis, to in placement.items()}
    bound: dict[str, tuple[str, ...]] = {}
    for pair in placement.split(","):
        axis, equals, levels = (part.strip() for part in pair.partition("="))
        if not (axis and equals and levels):
            start = placement.index(pair)
            span, remedy = (start, start + len(pair)), "write it as X=ici.0,Y=ici.1"
            raise NotationError("the placement cannot be read", placement, span, remedy, "bad-placement")
        bound[axis] = tuple(level.strip() for level in levels.split("+"))
    return bound


def refuse_uneven(text: str, array: NamedArray, dims: Mapping[str, int], mesh: Mesh) -> None:
    """Refuse a dim that its axes do not divide."""
    for dim in array.type.dims:
        axes = array.type.axes(dim)
        shards = mesh.size(*axes)
        if not mesh.divides(array.type, dim, dims):
            more = -(-dims[dim] // shards) * shards
            raise NotationError(
                f"{dim} = {dims[dim]} of {array.name} does not split evenly over {joined(axes)} = {shards} devices",
                text,
                array.spans["dim", dim],
                f"pad {dim} to {more}, the next multiple of {shards}, or split another dim",
                "not-divisible",
            )
