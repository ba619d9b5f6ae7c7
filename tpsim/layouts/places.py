"""Where the mesh of a layout lies: by the rule, and with some axes outside the innermost level, so that others go in.

Looked at where experts have axes of their own. Rows go over these, keys and values over those that split sequences,
and gradients of experts over what is left of the data shards: which of them should lie inside nodes hangs on all three.
What splits layers lies innermost in any case, and stages outermost; without experts what lies on data shards goes over
those that split sequences, too.
"""

from __future__ import annotations

from itertools import chain, combinations
from math import prod
from typing import TYPE_CHECKING

from tpsim.fabric.placement import place
from tpsim.quantity.errors import InputError
from tpsim.question.edits import EXPERTS, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpsim.fabric.placement import Binding, Placement
    from tpsim.fabric.wires import Wires
    from tpsim.layouts.layout import Bound
    from tpsim.question.layout import Cut


def placed(levels: Sequence[Wires], laid: Cut, binding: Binding) -> Placement:
    """A mesh on wires, its axes that are cut in two as the whole ones are bound. Raises InputError."""
    wholes = {axis: laid.parents.get(axis, axis) for axis in laid.mesh.axes}
    stated = {axis: binding[whole] for axis, whole in wholes.items() if whole in binding}
    return place(levels, laid.mesh, stated or None, alone=True)


def otherwise(levels: Sequence[Wires], laid: Cut, usual: Placement) -> Iterator[tuple[Bound, Placement]]:
    """Axes that are bound to outer levels, and the mesh on wires then: inside as full as usual, and no two alike."""
    roles, mesh = laid.layout.roles, laid.mesh
    if mesh.size(*roles.get(EXPERTS, ())) == 1 or len(levels) == 1:
        return
    fixed = [axis for axis in mesh.axes if axis in {*roles.get("tp", ()), *roles.get(STAGES, ())}]
    within = [axis for axis in mesh.axes if axis not in fixed and _inside(usual, [axis]) > 1]
    free = [*dict.fromkeys(laid.parents.get(axis, axis) for axis in within)]
    known = [usual.pieces]
    for outside in chain.from_iterable(combinations(free, n) for n in range(1, len(free) + 1)):
        try:
            bound = dict.fromkeys(outside, tuple(level.name for level in levels[1:]))
            found = placed(levels, laid, bound)
        except InputError:
            continue
        alike = all(found.pieces[axis] == usual.pieces[axis] for axis in fixed)
        if alike and _inside(found, mesh.axes) == _inside(usual, mesh.axes) and found.pieces not in known:
            known.append(found.pieces)
            yield (*bound.items(),), found


def _inside(placement: Placement, axes: Sequence[str] | Mapping[str, int]) -> int:
    """Devices of some axes that lie on the innermost level together."""
    pieces = (piece for axis in axes for piece in placement.pieces[axis])
    return prod(piece.n for piece in pieces if placement.carriers[piece.carrier].level == 0)
