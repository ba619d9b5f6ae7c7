"""Small networks and moves on them, for tests that play collectives."""

from __future__ import annotations

import numpy as np

from tests.levels import WireLevel
from tpsim.algebra.mesh import Mesh
from tpsim.algebra.moves import Move
from tpsim.algebra.sharding import Sharding
from tpsim.fabric.placement import place
from tpsim.fabric.wires import Wrap
from tpsim.reference.collectives import Stretch
from tpsim.reference.devices import Devices
from tpsim.reference.network import Network
from tpsim.reference.network import on_rings as parts_on_rings

CHUNK = 12
"""Elements per device and dim: halves, thirds and quarters of a chunk are whole."""


def level(topology, *shape, name="wires", shared=False):
    """A level of the network; a torus closes every axis longer than two."""
    return WireLevel(name, topology, shape, Wrap(always=topology == "torus"), shared=shared)


def placed(mesh, *levels, binding=None):
    """The devices of a mesh, and the wires of all its axes together."""
    placement = place(levels, Mesh(mesh), binding)
    return Devices(Network.of(placement)), placement


def parts(placement, axes, *algorithms):
    """The route of these axes, one algorithm per segment, or one for all segments together."""
    segments = placement.route(axes)
    if len(algorithms) == 1:
        return [Stretch(segments, algorithms[0])]
    return [Stretch((segment,), algorithm) for segment, algorithm in zip(segments, algorithms, strict=True)]


def on_rings(mesh, change, blocks):
    """The blocks after a move over closed rings, one per mesh axis."""
    network = Network.rings(Mesh(mesh))
    return Devices(network).play(change, blocks, parts_on_rings(Mesh(mesh), change))[0]


def move(kind, axes, owed="sum"):
    """A move of a two-dimensional array over these axes."""
    whole, first, second = (), (axes, ()), ((), axes)
    owes = frozenset((axis, owed) for axis in axes)
    replicated, rows, columns = (Sharding(("I", "J"), on or ((), ())) for on in (whole, first, second))
    owing = replicated.owing(owes)
    return {
        "all_gather": Move("all_gather", axes, rows, replicated),
        "reduce_scatter": Move("reduce_scatter", axes, owing, rows),
        "all_reduce": Move("all_reduce", axes, owing, replicated),
        "all_to_all": Move("all_to_all", axes, rows, columns),
        "permute": Move("permute", axes, rows, Sharding(("I", "J"), (axes[::-1], ()))),
    }[kind]


def start(devices, change, rows, columns, seed=0):
    """Every device's block before a move, and what it must hold after it: said by types alone."""
    grid, rng = devices.grid, np.random.default_rng(seed)
    sizes = {"I": rows, "J": columns}
    if change.before.complete:
        whole = rng.normal(size=(rows, columns))
        before = grid.placed(whole, change.before, sizes)
    else:
        before = {device: rng.normal(size=(rows, columns)) for device in grid.devices}
        whole = None
    after = {}
    for device in grid.devices:
        value = whole
        if value is None:
            fixed = [place for place, axis in enumerate(grid.mesh.order) if axis not in change.axes]
            owed = [before[other] for other in grid.devices if all(other[at] == device[at] for at in fixed)]
            value = (
                np.max(owed, axis=0) if ("max" in {kind for _, kind in change.before.owes}) else np.sum(owed, axis=0)
            )
        after[device] = value[grid.window(device, change.after, sizes)]
    return before, after
