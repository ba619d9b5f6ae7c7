"""One layout of a search, and the mesh that it needs."""

from __future__ import annotations

from typing import NamedTuple

from tpsim.layouts.vary import ROLES

Roles = tuple[str, ...]


class Ways(NamedTuple):
    """How many ways each role splits what it does; experts lie on as many devices of dp."""

    pp: int
    dp: int
    cp: int
    ep: int
    tp: int


class Layout(NamedTuple):
    """One layout. What is held has the value that it is held at.

    schedule, chunks  how stages take turns; "" and 1 without stages
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
    microbatches: int

    @property
    def ways(self) -> Ways:
        """How many ways each role splits."""
        return Ways(self.pp, self.dp, self.cp, self.ep, self.tp)

    def mesh(self, also: Roles = ()) -> dict[str, int]:
        """The axes that it needs, with their sizes; also: roles that get one, though it be of one device."""
        sizes = {**self.ways._asdict(), "dp": self.dp // self.ep}
        needed = {"dp", "tp", *also, *(role for role, n in sizes.items() if n > 1)}
        return {axis: sizes[role] for role, axis in ROLES.items() if role in needed}

    def roles(self, also: Roles = ()) -> dict[str, tuple[str, ...]]:
        """The axes of each role that has any."""
        mesh = self.mesh(also)
        found = {role: (axis,) for role, axis in ROLES.items() if axis in mesh}
        return {**found, "dp": (*found["dp"], *found.get("ep", ()))}
