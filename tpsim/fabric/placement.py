"""Which wires carry which mesh axis: as bound by the user, or by one stated rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING

from tpsim.fabric.slices import AxisPiece, Bound, Carrier, LaidLevel, lay, members, parted, wanted_on
from tpsim.fabric.wires import ANY, PAIR, Route, Segment, Slices, Wires, axis_names, capacity, joined
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import product

if TYPE_CHECKING:
    from tpsim.algebra.mesh import Mesh
    from tpsim.algebra.moves import Move
    from tpsim.fabric.change import Change


INNERMOST = "minor mesh axes innermost"
"""How axes are placed that the user does not bind."""

RULE = (
    f"{INNERMOST}; on a torus each gets physical axes of its own where possible, "
    "then as many closed rings as possible, on as few physical axes as possible"
)
"""How they are on a machine that has a torus."""

SOLD = f"in the smallest slice that is sold, {RULE}"
"""How they are where the mesh has a torus to itself whose slices are known."""

Binding = Mapping[str, Sequence[str]]
"""Mesh axis -> carriers: a level (``nvlink``, ``ici``), or a physical axis (``ici.0``).

``nvlink:4`` lays so many devices there, ``ici.0:ring`` insists on a ring.
"""


@dataclass(frozen=True, slots=True)
class Placement:
    """A mesh on wires.

    pieces    per mesh axis where it lies, innermost first; nothing for an axis of 1
    carriers  every physical axis or level in use, innermost first
    rule      how the axes that the user did not bind were placed; "" if there are none
    remarks   what the wraparound rule came to, per level
    idle      chips that are paid for and not used, since no slice of just the mesh is sold, per level
    share     of the chips that are paid for the mesh has
    """

    mesh: Mesh
    levels: tuple[str, ...]
    pieces: Mapping[str, tuple[AxisPiece, ...]]
    carriers: Mapping[str, Carrier]
    rule: str
    remarks: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    share: Fraction = Fraction(1)

    @property
    def binding(self) -> dict[str, tuple[str, ...]]:
        """Every mesh axis with its carriers, as `place` would take them."""
        return {axis: tuple(piece.carrier for piece in self.pieces[axis]) for axis in self.mesh.axes}

    def route(self, axes: Sequence[str]) -> Route:
        """The wires that a collective over these mesh axes together runs on, innermost first.

        Raises InputError if the axes lie apart on one physical axis: no closed form is known for that.
        """
        pieces: dict[str, list[AxisPiece]] = {}
        for axis in axes:
            for piece in self.pieces[axis]:
                pieces.setdefault(piece.carrier, []).append(piece)
        used = [carrier for name, carrier in self.carriers.items() if name in pieces]
        return tuple(self._shared(_segment(self.levels, carrier, pieces[carrier.name]), carrier) for carrier in used)

    def _shared(self, segment: Segment, carrier: Carrier, alike: Sequence[str] = ()) -> Segment:
        """The segment with the devices of a node that use it at once, where they share a way into its level.

        Those are all that the mesh has in a node, as all groups do alike; of them those that are on the same place of
        the axes that are `alike`.
        """
        if not carrier.shared:
            return segment
        others = (piece for axis, pieces in self.pieces.items() if axis not in alike for piece in pieces)
        inside = (piece.n for piece in others if self.carriers[piece.carrier].level < carrier.level)
        return replace(segment, sharing=prod(inside))

    def hop(self, axes: Sequence[str], source: int, target: int) -> Route:
        """The wires between two devices that differ by their places on some mesh axes alone, as a stretch of two.

        Of several levels it is the outermost that they differ on: what goes there leaves by its own port. Raises
        InputError for devices that are not neighbours where only neighbours are joined.
        """
        apart, inside = [], 1
        for piece in (piece for axis in reversed(axes) for piece in self.pieces[axis]):
            here, there = (place // inside % piece.n for place in (source, target))
            inside *= piece.n
            apart += [(piece, there - here)] if here != there else []
        piece, onward = apart[-1]
        carrier = self.carriers[piece.carrier]
        level = self.levels[carrier.level]
        if joined(carrier.topology):
            groups = carrier.extent // PAIR if carrier.topology == "host" else 1
            return (self._shared(Segment(level, carrier.name, carrier.topology, PAIR, groups), carrier, axes),)
        one_way, whole = carrier.topology == "one_way_ring", piece.n * piece.stride == carrier.extent
        ways = {1, 1 - piece.n} if carrier.closed and whole else {1}
        ways |= {-way for way in ways if not one_way}
        if len(apart) > 1 or onward not in ways:
            named = ", ".join(axes)
            several = f"mesh ax{'i' if len(axes) == 1 else 'e'}s {named}"
            message = f"places {source} and {target} of {several} are no neighbours on {carrier.name}"
            message += " in that direction" * one_way
            axis = f"one physical axis, --placement {named}={carrier.name}" if len(apart) > 1 else "an axis that closes"
            remedy = f"lay {named} on {axis}, or on a level whose devices all reach each other"
            raise InputError.one("no-closed-form", message, remedy=remedy)
        return (Segment(level, carrier.name, "line", PAIR, piece.stride),)

    def change(self, move: Move) -> Change | None:
        """Where the blocks go that a permute moves, or each hop of a streamed move; None for any other move."""
        if move.streamed:
            from tpsim.fabric.change import Shift

            return Shift(tuple(self.pieces[axis] for axis in move.axes), tuple(range(len(move.axes))))
        if move.kind != "permute":
            return None
        from tpsim.fabric.change import Change

        return Change(tuple(self.pieces[axis] for axis in move.axes), tuple(map(move.axes.index, move.reordered)))

    def describe(self) -> list[str]:
        """One line per mesh axis of more than one device, then what the wraparound rule came to."""
        width = max((len(axis) for axis in self.mesh.axes), default=0)
        lines = [
            f"{axis:<{width}} {size} = {' x '.join(map(str, self.route([axis])))}"
            for axis, size in self.mesh.axes.items()
            if size > 1
        ]
        return [*lines, *self.remarks]


def in_one_line(described: Iterable[str]) -> str:
    """What `Placement.describe` says, in one line."""
    return "; ".join(" ".join(line.split()) for line in described)


def place(
    levels: Sequence[Wires],
    mesh: Mesh,
    binding: Binding | None = None,
    *,
    alone: bool = False,
    parents: Mapping[str, str] = MappingProxyType({}),
) -> Placement:
    """Put every mesh axis on wires.

    levels   innermost first
    binding  mesh axis -> its carriers; axes without one are placed by `RULE`, or `SOLD`
    parents  axis -> the one that it is a part of, which `binding` names
    alone    True: the mesh is all that runs on the machine, so a torus gives it a slice that is sold; False: its axes
             are looked at by themselves and may lie in any larger slice

    Raises InputError for unknown names, a mesh that does not fit, and wraparound that the machine has not.
    """
    bound = parted(checked(levels, mesh.unsplit(parents), binding or {}), parents, mesh.axes)
    slices = [level.slices if alone else ANY for level in levels]
    laid = _laid_out(levels, mesh, bound, slices, [capacity(level) for level in levels])
    pieces = {axis: tuple(piece for level in laid for piece in level.pieces.get(axis, ())) for axis in mesh.axes}
    carriers = {name: carrier for level in laid for name, carrier in level.carriers.items()}
    loose = any(axis not in bound for axis, size in mesh.axes.items() if size > 1)
    rule = _rule(levels, slices) if loose else ""
    remarks = tuple(remark for level in laid for remark in level.remarks)
    idle = tuple(text for level in laid for text in level.idle)
    share = prod((level.share for level in laid), start=Fraction(1))
    return Placement(mesh, tuple(level.name for level in levels), pieces, carriers, rule, remarks, idle, share)


def _rule(levels: Sequence[Wires], slices: Sequence[Slices]) -> str:
    if any(per_slice.known for per_slice in slices):
        return SOLD
    return RULE if any(level.topology == "torus" for level in levels) else INNERMOST


# Names and sizes -------------------------------------------------------------------------------------------------


def checked(levels: Sequence[Wires], mesh: Mesh, binding: Binding) -> dict[str, tuple[Bound, ...]]:
    """The carriers that a binding names, whatever lies there. Raises InputError for those that there are not."""
    for axis in binding:
        if axis not in mesh.axes:
            raise unknown(axis, "mesh axis", mesh.axes)
    several = {axis: carriers_of(stated) for axis, stated in binding.items()}
    for axis, carriers in several.items():
        names = [text.partition(":")[0] for text in carriers]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            known = ", ".join(name for level in levels for name in axis_names(level))
            message = f"{axis} is laid on {twice} twice"
            raise InputError.one("named-twice", message, remedy=f"name each once: {known}")
    return {axis: tuple(_carrier(levels, text) for text in carriers) for axis, carriers in several.items()}


PAIRS = re.compile(r",(?=[^,]*=)")
"""What parts a text of several axes with their carriers: ``data=network,tensor=ici.0,ici.1`` has two of them."""


def carriers_of(stated: str | Sequence[str]) -> list[str]:
    """The carriers of a mesh axis one by one, however a file or a flag joins them.

    A map of YAML in one line takes no comma within a value.

    >>> carriers_of("nvlink,network"), carriers_of("nvlink+network"), carriers_of(["nvlink", "network"])
    (['nvlink', 'network'], ['nvlink', 'network'], ['nvlink', 'network'])
    """
    texts = [stated] if isinstance(stated, str) else stated
    return [carrier.strip() for text in texts for carrier in re.split("[,+]", text)]


SHAPES = ("ring", "line")
"""What a physical axis can be asked to be."""


def _carrier(levels: Sequence[Wires], text: str) -> Bound:
    name, _, wish = text.partition(":")
    known: dict[str, tuple[int, int | None]] = {}
    for at, level in enumerate(levels):
        known[level.name] = (at, None)
        if level.topology == "torus":
            known |= {axis: (at, index) for index, axis in enumerate(axis_names(level))}
    if name not in known:
        raise unknown(name, "level of the machine", known)
    n = int(wish) if wish.isdecimal() and wish.strip("0") else None
    wish = wish if n is None else ""
    if wish not in {"", *SHAPES}:
        raise unknown(wish, "shape of an axis", SHAPES, remedy="or say how many devices lie there: nvlink:4")
    return Bound(text, *known[name], wish, n)


Bindings = Mapping[str, tuple[Bound, ...]]
"""Mesh axis -> the carriers that the user named for it."""

Shares = dict[str, list[int]]
"""Mesh axis -> how many of its devices lie along each level; their product is the axis."""


def _laid_out(
    levels: Sequence[Wires], mesh: Mesh, bound: Bindings, slices: Sequence[Slices], room: Sequence[int | None]
) -> list[LaidLevel]:
    """Every level with the mesh axes on it.

    slices  to choose from on each level
    room    chips that each level may take: less than its capacity once that many turned out not to form a slice
    """
    shares = _shares(levels, mesh, bound, room)
    laid = []
    for at, level in enumerate(levels):
        parts = {axis: share[at] for axis, share in shares.items() if share[at] > 1}
        on_level = lay(at, level, parts, bound, slices[at]) if parts else LaidLevel({}, {})
        if on_level is None:
            less = [*room[:at], prod(parts.values()) - 1, *room[at + 1 :]]
            try:
                return _laid_out(levels, mesh, bound, slices, less)
            except InputError:
                raise _no_slice(level, parts, bound, slices[at]) from None
        laid.append(on_level)
    return laid


def _shares(levels: Sequence[Wires], mesh: Mesh, bound: Bindings, room: Sequence[int | None]) -> Shares:
    """How each mesh axis is split over the levels: axes bound to one level first, then minor ones first."""
    allowed = {
        axis: sorted({share.level for share in bound[axis]}) if axis in bound else list(range(len(levels)))
        for axis in mesh.axes
    }
    left_in = list(room)
    shares: Shares = {axis: [1] * len(levels) for axis in mesh.axes}
    minor_first = list(reversed(mesh.order))
    for axis in sorted(minor_first, key=lambda name: len(allowed[name]) > 1):
        left, wanted = mesh.axes[axis], wanted_on(bound.get(axis, ()))
        for index in allowed[axis]:
            most = left_in[index]
            divisors = (share for share in range(left if most is None else min(left, most), 0, -1) if not left % share)
            share = wanted.get(index) or next(divisors)
            if left % share or (most is not None and share > most):
                so = f", {share} of them on {levels[index].name},"
                raise _does_not_fit(levels, mesh, axis, allowed[axis], wanted={}, so=so)
            shares[axis][index] = share
            left //= share
            left_in[index] = None if most is None else most // share
        if left > 1:
            raise _does_not_fit(levels, mesh, axis, allowed[axis], wanted=wanted)
    return shares


def _does_not_fit(
    levels: Sequence[Wires], mesh: Mesh, axis: str, allowed: Sequence[int], *, wanted: Mapping[int, int], so: str = ""
) -> InputError:
    """What an axis does not fit on; wanted: how many of it were asked for on a level."""
    sizes = " x ".join(f"{levels[index].name} {wanted.get(index) or members(levels[index])}" for index in allowed)
    factors = " x ".join(f"{name} {size}" for name, size in mesh.axes.items())
    beside = " beside the other axes" if len(mesh.axes) > 1 else ""
    message = f"mesh axis {axis} of {mesh.axes[axis]}{so} does not fit on {sizes}{beside}"
    more = [index for index in (*allowed, max(allowed) + 1) if index < len(levels)]
    names = (f"{levels[index].name}:{wanted[index]}" if wanted.get(index) else levels[index].name for index in more)
    bind = f"bind it to {'+'.join(names) if len(more) > len(allowed) else 'more levels'}, or "
    remedy = f"{bind if len(allowed) < len(levels) else ''}make it smaller"
    if so:
        remedy = "lay a number there that divides it, and for which there is room"
    return InputError.one("does-not-fit", message, remedy=remedy, note=f"mesh: {factors}" if beside else "")


def _no_slice(level: Wires, parts: Mapping[str, int], bound: Bindings, slices: Slices) -> InputError:
    axes = " x ".join(f"{axis} {n}" for axis, n in parts.items())
    message = f"{axes} cannot be laid on {level.name} of {members(level)} evenly"
    sold = f"slices that are sold: {slices}" if slices.known else ""
    named = any(wish.axis is not None for axis in parts for wish in bound.get(axis, ()))
    bind = "name another physical axis of it, or one more" if named else "bind the axes to physical axes"
    return InputError.one("does-not-fit", message, remedy=f"{bind}, or change a size", note=sold)


def _segment(levels: Sequence[str], carrier: Carrier, pieces: Sequence[AxisPiece]) -> Segment:
    """The pieces on one carrier as one stretch."""
    level, n = levels[carrier.level], product(piece.n for piece in pieces)
    if joined(carrier.topology):
        groups = carrier.extent // n if carrier.topology == "host" else 1
        return Segment(level, carrier.name, carrier.topology, n, groups)
    ordered = sorted(pieces, key=lambda piece: piece.stride)
    stride = reach = ordered[0].stride
    for piece in ordered:
        if piece.stride != reach:
            message = f"the mesh axes lie apart on {carrier.name}: no closed form is known for such groups"
            remedy = "bind them to neighbouring places, or to axes of their own"
            raise InputError.one("no-closed-form", message, remedy=remedy)
        reach *= piece.n
    whole = reach == carrier.extent
    if carrier.topology == "one_way_ring" and not (whole and carrier.closed):
        message = f"part of the one-way ring {carrier.name} is no ring, and no line either: nothing goes back"
        raise InputError.one("no-closed-form", message, remedy="take all of it, as a ring")
    return Segment(level, carrier.name, carrier.topology if whole else "line", n, stride)
