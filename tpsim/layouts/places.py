"""Where the mesh of a layout lies: by the rule, and with some axes outside the innermost level, so that others go in.

On a torus also along other axes of it, each along one or several: what lies along a whole one goes round a ring, and
what splits layers has what is left. Which of several that share one lie side by side there follows from the mesh, and
is not looked at.

Looked at where experts have axes of their own. Rows go over these, keys and values over those that split sequences,
and gradients of experts over what is left of the data shards: which of them should lie inside nodes hangs on all three.
What splits layers lies innermost in any case, and stages outermost; without experts what lies on data shards goes over
those that split sequences, too.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, combinations, permutations, product
from math import prod
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import Placement, place
from tpsim.fabric.wires import Wires, axis_names, joined
from tpsim.quantity.errors import InputError
from tpsim.question.edits import EXPERTS, STAGES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from tpsim.layouts.layout import Bound
    from tpsim.question.layout import Cut

    Spread = Mapping[str, Mapping[str, tuple[int, int]]]
    Lies = tuple[Bound, Placement]


def otherwise(levels: Sequence[Wires], laid: Cut, usual: Placement) -> Iterator[Lies]:
    """Axes that are bound to levels, and the mesh on wires then: no two alike, nor with more chips idle than usual.

    As in all orders of its axes, and of a torus as with each of these bound to some of its physical axes.
    """
    roles, mesh = laid.layout.roles, laid.mesh
    reached = len(levels) == 1 and joined(levels[0].topology)  # each by each: no order is another
    if mesh.size(*roles.get(EXPERTS, ())) == 1 or reached:
        return
    fixed = {*roles.get("tp", ()), *roles.get(STAGES, ())}
    parts = defaultdict(list)
    for axis in mesh.order:
        parts[laid.parents.get(axis, axis)].append(axis)
    sizes = {whole: mesh.size(*axes) for whole, axes in parts.items() if not fixed & {*axes}}
    free = {whole: n for whole, n in sizes.items() if n > 1}
    known = {_image(usual)}
    for bound, placement in chain(_by_order(levels, laid, usual, parts, free), _by_axis(levels, laid, free)):
        if (lies := _image(placement)) not in known and placement.share >= usual.share:
            known.add(lies)
            yield bound, placement


def _by_order(
    levels: Sequence[Wires], laid: Cut, usual: Placement, parts: Mapping[str, Sequence[str]], free: Mapping[str, int]
) -> Iterator[Lies]:
    """As the mesh lies in every order of the axes that are free."""
    mesh, known = laid.mesh, [_spread(usual)]
    for order in permutations(free):
        turns = iter(order)
        names = (part for whole in parts for part in parts[next(turns) if whole in free else whole])
        try:
            asked = _spread(place(levels, Mesh({axis: mesh.axes[axis] for axis in names}), alone=True))
            if asked in known:
                continue
            known.append(asked)
            moved = [whole for whole in free if any(asked[axis] != known[0][axis] for axis in parts[whole])]
            yield from _bound(levels, laid, asked, parts, moved)
        except InputError:
            continue  # an order that no slice has takes nothing from those that one has


def _by_axis(levels: Sequence[Wires], laid: Cut, free: Mapping[str, int]) -> Iterator[Lies]:
    """With every axis that is free bound to some of the physical axes of the innermost level, if that is a torus."""
    names, shape = axis_names(levels[0]), levels[0].shape
    if levels[0].topology != "torus" or len(names) == 1:
        return
    several = [*chain(*(combinations(range(len(names)), many) for many in range(1, len(names) + 1)))]
    for choice in product([(), *several], repeat=len(free)):
        lie = {whole: indices for whole, indices in zip(free, choice, strict=True) if indices}
        on = [{*indices} for indices in lie.values()]
        room = all(
            prod(n for whole, n in free.items() if {*lie.get(whole, names)} <= own) <= prod(shape[at] for at in own)
            for own in on
        )
        if on and room:
            bound = {whole: tuple(names[at] for at in indices) for whole, indices in lie.items()}
            try:
                yield (*bound.items(),), laid.placed(levels, bound)
            except InputError:
                continue  # no slice has them so


def _bound(
    levels: Sequence[Wires], laid: Cut, asked: Spread, parts: Mapping[str, Sequence[str]], moved: Sequence[str]
) -> Iterator[Lies]:
    """The fewest axes of those that move, or all, with levels, by which the mesh lies as is asked; none if none do."""
    every = {whole: tuple(dict.fromkeys(chain(*(asked[axis] for axis in axes)))) for whole, axes in parts.items()}
    lies = {whole: every[whole] for whole in moved}
    outside = {whole: names for whole, names in lies.items() if levels[0].name not in names}
    for bound in (outside, lies, {whole: names for whole, names in every.items() if names}):
        try:
            found = laid.placed(levels, bound)
        except InputError:
            continue  # what is left has no room for the others
        if _spread(found) == asked:
            yield (*bound.items(),), found
            return


def _spread(placement: Placement) -> Spread:
    """How many devices of every axis lie on which level, or along which axis of a torus, and how far apart there."""
    spread: dict[str, dict[str, tuple[int, int]]] = {axis: {} for axis in placement.mesh.axes}
    for axis, pieces in placement.pieces.items():
        for piece in pieces:
            carrier = placement.carriers[piece.carrier]
            level = placement.levels[carrier.level]
            name, stride = (level, 1) if joined(carrier.topology) else (piece.carrier, piece.stride)
            spread[axis][name] = spread[axis].get(name, (1, 1))[0] * piece.n, stride
    return spread


def _image(placement: Placement) -> Hashable:
    """What lies along each physical axis, whichever it is called: mirror images of each other are alike.

    Of an axis that lies along several it matters which of them is the inner one.
    """
    along = defaultdict[str, list[tuple[str, int, int, int]]](list)
    for axis, pieces in placement.pieces.items():
        for at, piece in enumerate(pieces):
            apart = 1 if joined(placement.carriers[piece.carrier].topology) else piece.stride
            along[piece.carrier].append((axis, at, piece.n, apart))
    carriers = ((placement.carriers[name], several) for name, several in along.items())
    return tuple(sorted((carrier.level, carrier.closed, tuple(several)) for carrier, several in carriers))
