"""A mesh on a small machine: arrays of any type on its devices, and moves held against what the machine claims."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product as every
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tpsim.algebra.moves import wire
from tpsim.fabric.placement import Placement, place
from tpsim.machine import parts, profile, timing
from tpsim.reference.collectives import Stretch
from tpsim.reference.devices import Devices
from tpsim.reference.linkload import load
from tpsim.reference.network import Network

BYTES, DTYPE = 2, "bf16"


@cache
def machine(text):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "machine.yaml"
        path.write_text(text, encoding="utf-8")
        return profile.load(path)


@dataclass(frozen=True)
class Site:
    """A mesh on a machine: its devices, and what the machine says of every move."""

    machine: parts.Machine
    placement: Placement
    devices: Devices
    sizes: dict[str, int]

    @classmethod
    def of(cls, machine, mesh, sizes):
        axes = {axis: (f"ici.{at}",) for at, axis in enumerate(mesh.order)} if machine.name == "torus" else {}
        placement = place(machine.levels, mesh, axes)
        return cls(machine, placement, Devices(Network.of(placement)), sizes)

    def claim(self, move):
        """What the machine says of a move."""
        V = BYTES * move.logical_elements(self.sizes, self.placement.mesh.axes)
        route, change = self.placement.route(move.axes), self.placement.change(move)
        found = timing.time(self.machine, route, move.kind, V, change=change)
        assert found.wire == wire(move.kind, V, move.ranks(self.placement.mesh.axes))
        return found

    def played(self, blocks, move):
        """The blocks after a move and what was counted, with the bytes injected held against the claim."""
        route, claim = self.placement.route(move.axes), self.claim(move)
        moved, sent = self.devices.play(move, blocks, [Stretch(route, claim.algorithm)])
        call = sent.in_bytes(DTYPE)
        if move.kind == "permute":  # a shard that stays where it is travels nowhere
            assert set(call.injected) <= {0, claim.wire}
        else:
            assert call.injected.sum() == claim.wire * self.placement.mesh.devices
        assert call.sent.sum() == call.received.sum()
        return moved, call


def loads_as_claimed(site, move, call):
    """Hold steps and links of a call against the machine's forms.

    Of a change of axes whose blocks wait for nobody the busiest link's total counts; a block that stays sends nothing.
    On unlike axes the parts of a torus are cut unevenly, so they are counted exactly; and they keep no common step: the
    form's serial load is what streams of small chunks come near.
    """
    claim, route = site.claim(move), site.placement.route(move.axes)
    assert call.steps == claim.steps
    if move.kind == "permute":
        assert (call.link_total, call.sent.sum()) == (claim.link_total, claim.carried * len(call.sent))
        return
    assert set(call.injected) == {claim.wire}
    alike = len({(segment.n, segment.topology) for segment in route}) <= 1
    V = BYTES * move.logical_elements(site.sizes, site.placement.mesh.axes)
    counted = call if alike or not route else load(move.kind, [Stretch(route, claim.algorithm)], V)
    assert counted.link_total == claim.link_total
    assert counted.link_serial == claim.link_serial if alike else counted.link_serial >= claim.link_serial


def spread(grid, whole, type_, seed=0):
    """The blocks of an array of this type; where a sum or a max is owed, parts that make it up."""
    rng = np.random.default_rng(seed)
    owed = [axis for axis in grid.mesh.order if axis in type_.owed_axes]
    places = [*every(*(range(grid.mesh.axes[axis]) for axis in owed))]
    less = {place: rng.integers(0, 9, whole.shape) for place in places}
    if {kind for _, kind in type_.owes} == {"sum"}:
        parts = less | {places[0]: whole - sum(less[place] for place in places[1:])}
    else:
        parts = {place: whole - less[place] for place in places} | {places[-1]: whole}
    sizes = dict(zip(type_.dims, whole.shape, strict=True))
    held = {place: grid.placed(part, type_, sizes) for place, part in parts.items()}
    return {
        device: held[tuple(device[grid.mesh.order.index(axis)] for axis in owed)][device] for device in grid.devices
    }


def hold(grid, blocks, type_, whole):
    """True if the devices hold exactly the blocks of `whole` that the type declares, what is owed taken together."""
    sizes = dict(zip(type_.dims, whole.shape, strict=True))
    paid = blocks
    for kind in {kind for _, kind in type_.owes}:
        paid = grid.reduced(paid, sorted(type_.owed_axes), kind)
    return all(np.array_equal(block, whole[grid.window(at, type_, sizes)]) for at, block in paid.items())
