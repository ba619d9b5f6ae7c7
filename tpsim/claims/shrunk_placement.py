"""The placement of a question that is run small: every piece of an axis with as few devices as tell its wires."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import Placement
from tpsim.fabric.slices import AxisPiece
from tpsim.fabric.wires import joined
from tpsim.quantity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpsim.fabric.wires import SegmentTopology


POWER, OTHER = 4, 3
"""The least sizes above a pair that are a power of two, and that are odd and no power of two."""

DEVICES, MOST = 64, 256
"""Devices of a mesh that is run, and of one whose axes cannot be shrunk to that."""


PAIR = 2
"""The fewest devices that have anything to say to each other, and the fewest elements of which a shard has several."""


def shrunk_placement(placement: Placement, stages: Mapping[str, int] | None = None) -> Placement:
    """The same mesh axes on the same carriers with fewer members.

    stages  the axis of them, and how many show all that several do

    Each part of an axis becomes the least size of its kind (`telling`); while those are more than 64 devices together,
    the largest part becomes the least that its carrier can be: a pair, or a third of a ring that it fills alone.
    Strides follow from the parts inside. Raises InputError where that leaves more than 256.
    """
    sizes = {
        (axis, place): max(_least(placement, axis, place), min(piece.n, stages[axis]))
        if stages and axis in stages
        else telling(piece.n, placement.carriers[piece.carrier].topology)
        for axis, pieces in placement.pieces.items()
        for place, piece in enumerate(pieces)
    }
    while prod(sizes.values()) > DEVICES:
        wide = [key for key, n in sizes.items() if n > _least(placement, *key)]
        if not wide:
            break
        key = max(wide, key=lambda piece: sizes[piece])
        sizes[key] = _least(placement, *key)
    if prod(sizes.values()) > MOST:
        raise _too_many(placement)
    return _laid(placement, sizes)


def telling(n: int, topology: SegmentTopology) -> int:
    """The least size that is like `n`: itself up to 3, else 3 or 4.

    A ring and a line stay odd or even, which decides what the antipodal and the middle chunk do; a switch stays a power
    of two or none, which decides how doubling and trees come out.

    >>> [telling(n, "ring") for n in (1, 2, 3, 8, 15, 48)], telling(48, "switch")
    ([1, 2, 3, 4, 3, 4], 3)
    """
    even = not n & (n - 1) if topology == "switch" else not n % PAIR
    return min(n, POWER if even else OTHER)


def _least(placement: Placement, axis: str, place: int) -> int:
    """The fewest members that a part can have: a ring that it fills alone needs three."""
    piece = placement.pieces[axis][place]
    carrier = placement.carriers[piece.carrier]
    return OTHER if carrier.closed and piece.n == carrier.extent else PAIR


def _laid(placement: Placement, sizes: Mapping[tuple[str, int], int]) -> Placement:
    """The placement with these members per (axis, place)."""
    extents = dict.fromkeys(placement.carriers, 1)
    pieces = {axis: list(parts) for axis, parts in placement.pieces.items()}
    inside_first = sorted(sizes, key=lambda key: placement.pieces[key[0]][key[1]].stride)
    for axis, place in inside_first:
        name, n = placement.pieces[axis][place].carrier, sizes[axis, place]
        stride = 1 if joined(placement.carriers[name].topology) else extents[name]
        pieces[axis][place] = AxisPiece(name, n, stride)
        extents[name] *= n
    mesh = Mesh({axis: prod(piece.n for piece in pieces[axis]) for axis in placement.mesh.axes})
    carriers = {name: replace(carrier, extent=extents[name]) for name, carrier in placement.carriers.items()}
    laid = {axis: tuple(parts) for axis, parts in pieces.items()}
    return Placement(mesh, placement.levels, laid, carriers, placement.rule)


def _too_many(placement: Placement) -> InputError:
    axes = " x ".join(f"{axis} {n}" for axis, n in placement.mesh.axes.items() if n > 1)
    message = f"{axes} cannot be shrunk to {MOST} devices with every axis kept"
    return InputError.one("too-many-axes", message, remedy="verify a scenario with fewer mesh axes")
