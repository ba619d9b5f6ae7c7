"""One layout of a search, the mesh that it needs, and how a model is cut over that."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tpsim.question.edits import EXPERTS, ROLES

if TYPE_CHECKING:
    from tpsim.fabric.placement import Placement
    from tpsim.program.copies import Level
    from tpsim.program.stages import CutBy
    from tpsim.question.layout import Cut
    from tpsim.question.pipeline import Split

Roles = tuple[str, ...]

Parts = tuple[int, ...]
"""Numbers of microbatches."""

Bound = tuple[tuple[str, tuple[str, ...]], ...]
"""Mesh axes with the levels of a machine that they are bound to; the others lie as the rule has it."""


class Ways(NamedTuple):
    """How many ways each role splits what it does; experts lie on as many devices of dp."""

    pp: int
    dp: int
    cp: int
    ep: int
    tp: int


class Site(NamedTuple):
    """A mesh as it lies on wires."""

    ways: Ways
    placement: Bound


class Order(NamedTuple):
    """How stages take turns, and how the stack is cut into them; as it stands here without stages.

    schedule, chunks  "" and 1 of inference, too
    layers            as a scenario says it; None where all chunks have as many
    """

    schedule: str = ""
    chunks: int = 1
    layers: CutBy | Split | None = None


class Layout(NamedTuple):
    """One layout. What is held has the value that it is held at.

    schedule, chunks, layers  those of its `Order`
    cache             what the axes of tp split of the cache of inference; "" of training, and where a table says it
    over_tp           True if experts lie over tp beside their part of dp
    placement         axes that do not lie as the rule has it
    """

    pp: int
    dp: int
    cp: int
    ep: int
    tp: int
    zero: int
    sequence_parallel: bool
    recompute: str
    schedule: str
    chunks: int
    layers: CutBy | Split | None
    microbatches: int
    cache: str = ""
    over_tp: bool = False
    placement: Bound = ()

    @property
    def ways(self) -> Ways:
        """How many ways each role splits."""
        return Ways(self.pp, self.dp, self.cp, self.ep, self.tp)

    @property
    def site(self) -> Site:
        """Its mesh as it lies on wires."""
        return Site(self.ways, self.placement)

    @property
    def order(self) -> Order:
        """How its stages take turns."""
        return Order(self.schedule, self.chunks, self.layers)

    @property
    def experts(self) -> int:
        """Devices that experts lie on."""
        return self.ep * (self.tp if self.over_tp else 1)

    def mesh(self, also: Roles = ()) -> dict[str, int]:
        """The axes that it needs, with their sizes; also: roles that get one, though it be of one device."""
        sizes = {**self.ways._asdict(), "dp": self.dp // self.ep}
        needed = {"dp", "tp", *also, *(role for role, n in sizes.items() if n > 1)}
        return {axis: sizes[role] for role, axis in ROLES.items() if role in needed}

    def roles(self, also: Roles = ()) -> dict[str, tuple[str, ...]]:
        """The axes of each role that has any."""
        mesh = self.mesh(also)
        roles = {role: (axis,) for role, axis in ROLES.items() if axis in mesh}
        shards = roles.get(EXPERTS, ())
        over = {EXPERTS: (*shards, *roles["tp"])} if self.over_tp else {}
        return {**roles, "dp": (*roles["dp"], *shards), **over}


@dataclass(frozen=True)
class Laid:
    """A layout on its mesh, which lies on wires: how the model is cut, and axes that copies of tokens go over."""

    cut: Cut
    bound: Bound
    placement: Placement
    levels: tuple[Level, ...]

    @cached_property
    def table(self) -> Hashable:
        """What its program is made from, but for what is recomputed."""
        table = self.cut.layout.table
        return self.levels, self.cut.mesh.order, tuple((region, tuple(dims.items())) for region, dims in table.items())
