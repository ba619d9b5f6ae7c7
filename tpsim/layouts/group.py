"""The legal layouts of one program: meshes, each with so many microbatches, and how their stages take turns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tpsim.layouts.layout import Layout, Order, Site
    from tpsim.layouts.space import Space
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question

ALONE = 1
"""Ways of a role of one device: what is split over it makes no difference, so one of them is looked at."""


class Turns(NamedTuple):
    """Layouts that differ in the number of microbatches alone.

    mesh   its number
    split  the layers of each chunk; none without stages
    cells  their numbers
    """

    mesh: int
    order: Order
    split: Split
    cells: Any


@dataclass(frozen=True)
class Group:
    """Legal layouts of one traced program.

    program  what tells it from others of spaces that differ in their chips alone
    base     what is asked of such a space, its layout left open
    spaces   of each mesh the one that it is of
    first    one of them: of several stages if any is
    resolve  gives its question, and one of each mesh
    sites    the meshes
    on, microbatches  of every cell: the number of its mesh, and its microbatches
    """

    program: Hashable
    base: Question
    spaces: Sequence[Space]
    first: Layout
    resolve: Callable[[], tuple[Question, list[Question]]]
    sites: list[Site]
    on: Any
    microbatches: Any
    turns: list[Turns]

    @cached_property
    def _resolved(self) -> tuple[Question, list[Question]]:
        return self.resolve()

    @property
    def example(self) -> Question:
        """The question of the first."""
        return self._resolved[0]

    @property
    def meshes(self) -> list[Question]:
        """A question of each mesh, that its wires are read off."""
        return self._resolved[1]

    def layout(self, cell: int, order: Order) -> Layout:
        """The layout of a cell whose stages take turns so."""
        (ways, bound), m = self.sites[self.on[cell]], int(self.microbatches[cell])
        return self.first._replace(**ways._asdict(), placement=bound, **order._asdict(), microbatches=m)


def joined(groups: Sequence[Group]) -> Group:
    """Groups of one program whose spaces differ in their chips alone, as one."""
    first, *others = groups
    if not others:
        return first
    meshes = [0, *np.cumsum([len(group.sites) for group in groups]).tolist()]
    cells = [0, *np.cumsum([len(group.on) for group in groups]).tolist()]
    staged = next((group for group in groups if group.first.pp > ALONE), first)
    return replace(
        staged,
        resolve=lambda: (staged.example, [mesh for group in groups for mesh in group.meshes]),
        spaces=[space for group in groups for space in group.spaces],
        sites=[site for group in groups for site in group.sites],
        on=np.concatenate([group.on + start for group, start in zip(groups, meshes, strict=False)]),
        microbatches=np.concatenate([group.microbatches for group in groups]),
        turns=[
            turns._replace(mesh=turns.mesh + mesh, cells=turns.cells + cell)
            for group, mesh, cell in zip(groups, meshes, cells, strict=False)
            for turns in group.turns
        ],
    )
