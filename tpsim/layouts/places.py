"""Where the mesh of a layout lies: by the rule, and with some axes outside the innermost level, so that others go in.

Looked at where experts have axes of their own. Rows go over these, keys and values over those that split sequences,
and gradients of experts over what is left of the data shards: which of them should lie inside nodes hangs on all three.
What splits layers lies innermost in any case, and stages outermost; without experts what lies on data shards goes over
those that split sequences, too.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, permutations
from typing import TYPE_CHECKING

from tpsim.algebra.mesh import Mesh
from tpsim.fabric.placement import place
from tpsim.quantity.errors import InputError
from tpsim.question.edits import EXPERTS, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.fabric.placement import Binding, Placement
    from tpsim.fabric.wires import Wires
    from tpsim.layouts.layout import Bound
    from tpsim.question.layout import Cut

    Spread = Mapping[str, Mapping[str, int]]
    Lies = tuple[Bound, Placement]


def placed(levels: Sequence[Wires], laid: Cut, binding: Binding) -> Placement:
    """A mesh on wires, its axes that are cut in two as the whole ones are bound. Raises InputError."""
    wholes = {axis: laid.parents.get(axis, axis) for axis in laid.mesh.axes}
    stated = {axis: binding[whole] for axis, whole in wholes.items() if whole in binding}
    return place(levels, laid.mesh, stated or None, alone=True)


def otherwise(levels: Sequence[Wires], laid: Cut, usual: Placement) -> Iterator[Lies]:
    """Axes that are bound to levels, and the mesh on wires then: as in all orders of its axes, no two alike."""
    roles, mesh = laid.layout.roles, laid.mesh
    if mesh.size(*roles.get(EXPERTS, ())) == 1 or len(levels) == 1:
        return
    fixed = {*roles.get("tp", ()), *roles.get(STAGES, ())}
    parts = defaultdict(list)
    for axis in mesh.order:
        parts[laid.parents.get(axis, axis)].append(axis)
    free = [whole for whole, axes in parts.items() if mesh.size(*axes) > 1 and not fixed & {*axes}]
    known = [_spread(usual)]
    for order in permutations(free):
        turns = iter(order)
        names = (part for whole in parts for part in parts[next(turns) if whole in free else whole])
        try:
            asked = _spread(place(levels, Mesh({axis: mesh.axes[axis] for axis in names}), alone=True))
            if asked in known:
                continue
            known.append(asked)
            moved = [whole for whole in free if any(asked[axis] != known[0][axis] for axis in parts[whole])]
            yield from _bound(levels, laid, asked, {whole: parts[whole] for whole in moved})
        except InputError:
            continue  # an order that no slice has takes nothing from those that one has


def _bound(levels: Sequence[Wires], laid: Cut, asked: Spread, moved: Mapping[str, Sequence[str]]) -> Iterator[Lies]:
    """The fewest axes of those that move, with levels, by which the mesh lies as is asked; none if no binding does."""
    lies = {whole: tuple(dict.fromkeys(chain(*(asked[axis] for axis in axes)))) for whole, axes in moved.items()}
    outside = {whole: names for whole, names in lies.items() if levels[0].name not in names}
    for bound in (outside, lies):
        found = placed(levels, laid, bound)
        if _spread(found) == asked:
            yield (*bound.items(),), found
            return


def _spread(placement: Placement) -> Spread:
    """How many devices of every axis lie on which level."""
    spread: dict[str, dict[str, int]] = {axis: {} for axis in placement.mesh.axes}
    for axis, pieces in placement.pieces.items():
        for piece in pieces:
            level = placement.levels[placement.carriers[piece.carrier].level]
            spread[axis][level] = spread[axis].get(level, 1) * piece.n
    return spread
