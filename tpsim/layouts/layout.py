"""One layout of a search, the mesh that it needs, and how a model is cut over that."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tpsim.question.edits import EXPERTS, ROLES, STAGES

if TYPE_CHECKING:
    from tpsim.fabric.placement import Placement
    from tpsim.program.copies import Level
    from tpsim.program.stages import CutBy
    from tpsim.question.layout import Cut
    from tpsim.question.pipeline import Split
    from tpsim.question.question import Question

SHARDS, ZERO_OVER = "shards", "zero_over"
"""The data shards that ZeRO shards over, beside those with experts; and the field that names the axes of both."""

MESH: Mapping[str, str] = {STAGES: ROLES[STAGES], "dp": ROLES["dp"], SHARDS: "shard", **ROLES}
"""The axes of a mesh, major first."""

Roles = tuple[str, ...]

Parts = tuple[int, ...]
"""Numbers of microbatches."""

Bound = tuple[tuple[str, tuple[str, ...]], ...]
"""Mesh axes with the levels of a machine that they are bound to; the others lie as the rule has it."""


class Ways(NamedTuple):
    """How many ways each role splits what it does; experts lie on as many devices of dp.

    shards  devices of dp and cp together that ZeRO shards over, the others hold copies; 0: over all
    """

    pp: int
    dp: int
    cp: int
    ep: int
    tp: int
    shards: int = 0


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
    shards: int
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
        return Ways(self.pp, self.dp, self.cp, self.ep, self.tp, self.shards)

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
        inner = self.shards // self.cp or self.ep
        sizes = {**self.ways._asdict(), "dp": self.dp // inner, SHARDS: inner // self.ep}
        needed = {"dp", "tp", *also, *(role for role, n in sizes.items() if n > 1)}
        return {axis: sizes[role] for role, axis in MESH.items() if role in needed}

    def roles(self, also: Roles = ()) -> dict[str, tuple[str, ...]]:
        """The axes of each role that has any."""
        mesh = self.mesh(also)
        roles = {role: (axis,) for role, axis in MESH.items() if axis in mesh}
        experts, inner = roles.get(EXPERTS, ()), (*roles.pop(SHARDS, ()), *roles.get(EXPERTS, ()))
        over = {EXPERTS: (*experts, *roles["tp"])} if self.over_tp else {}
        over |= {ZERO_OVER: (*inner, *roles.get("cp", ()))} if self.shards else {}
        return {**roles, "dp": (*roles["dp"], *inner), **over}


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

    def asked_as(self, question: Question) -> Question:
        """The question of another layout on this mesh."""
        if self.levels != question.practice.levels:
            question = replace(question, practice=replace(question.practice, levels=self.levels))
        mesh, parents, layout = self.cut.mesh, self.cut.parents, self.cut.layout
        return replace(question, mesh=mesh, axis_parents=parents, placement=self.placement, layout=layout)
