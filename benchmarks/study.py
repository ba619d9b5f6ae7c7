"""One model on one machine for many layouts at once: what a benchmark and the tests of `tpsim.cost.grid` price."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from tpsim.cost.grid import Priced, Traced, traced
from tpsim.cost.sizes import Sizes
from tpsim.fabric.wires import Segment, joined
from tpsim.machine.timing import time
from tpsim.program.kinds import ALIKE, counted, stack
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import over, smallest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.fabric.wires import Route, Wires
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import CostModel, Timing
    from tpsim.program.dtypes import Dtypes
    from tpsim.program.model import Model
    from tpsim.program.practice import Practice
    from tpsim.quantity.size import Size


def packed_routes(machine: Machine, axes: Mapping[str, Size], minor_first: Sequence[str]) -> dict[str, Route]:
    """Each mesh axis on the machine's switched levels, innermost first, packed: an axis fills what is left of a level.

    axes         sizes, numbers or arrays; each must divide, or be divided by, the room that is left on a level
    minor_first  the axes in the order in which they are packed, e.g. tensor, then data
    The top level takes the rest, however many. A level that an axis does not reach has a segment of one device,
    which costs nothing.
    Raises InputError for a machine with a level that is no switch: on a torus the place of an axis is a choice.
    """
    _refuse_unswitched(machine)
    routes: dict[str, Route] = dict.fromkeys(minor_first, ())
    inside: Size = 1
    left: dict[str, Size] = {axis: axes[axis] for axis in minor_first}
    *inner, top = machine.levels
    for level in inner:
        used: Size = 1
        parts: dict[str, Size] = {}
        for axis in minor_first:
            parts[axis] = here = smallest(left[axis], over(prod(level.shape), used))
            left[axis], used = over(left[axis], here), used * here
        sharing = inside if level.shared else None
        for axis, here in parts.items():
            routes[axis] += (_segment(level, here, used, sharing),)
        inside = inside * used
    sharing = inside if top.shared else None
    used = prod(left.values())
    return {axis: (*routes[axis], _segment(top, left[axis], used, sharing)) for axis in minor_first}


def _segment(level: Wires, n: Size, used: Size, sharing: Size | None) -> Segment:
    """A stretch of n devices of the level, of which as many are used: on a host their groups share its links."""
    topology = joined(level.topology) or "switch"
    return Segment(level.name, level.name, topology, n, over(used, n) if topology == "host" else 1, sharing)


def _together(several: Iterable[Route]) -> Route:
    """The wires of several axes, the innermost first, as those of one: each level once, and all that is used of it."""
    return tuple(
        replace(same[0], n=prod(segment.n for segment in same), stride=1 if len(same) > 1 else same[0].stride)
        for same in zip(*several, strict=True)
    )


def _refuse_unswitched(machine: Machine) -> None:
    for level in machine.levels:
        if not joined(level.topology):
            raise InputError.one(
                "unsupported-grid",
                f"a grid of layouts needs switched levels; {level.name} of {machine.name} is a {level.topology}",
                remedy="plan the layouts one by one",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One model on one machine, for many layouts: data parallel outside, tensor parallel inside, experts' too.

    seq, microbatches  of every layout; the global batch is a layout's own
    """

    model: Model
    machine: Machine
    practice: Practice
    dtypes: Dtypes
    seq: int
    microbatches: int = 1
    cost_model: CostModel = "additive"

    def traced(self, *, zero: int, sequence_parallel: bool) -> Traced:
        """The program of one structure; its sizes are still open.

        At tp 1 it has a sum of norms over one device of its own, which a plan, without that axis, joins to another; a
        plan fills up what dp does not divide, and this does not.
        """
        each = (TENSOR,) if self.model.experts else ()
        placed = layout(tp=(TENSOR,), dp=(DATA,), etp=each, zero=zero, sequence_parallel=sequence_parallel)
        practice = replace(self.practice, overlap=self.practice.overlap.at(zero))
        program = lower(self.model, placed, practice, self.dtypes, (DATA, TENSOR))
        return traced(program, practice, self.model.stack)

    def priced(self, found: Traced, *, tp: Size, dp: Size, batch: Size) -> Priced:
        """The step of every layout (tp, dp, batch): three numbers, or three arrays of one shape.

        batch  sequences per step, a multiple of dp x microbatches
        """
        axes: dict[str, Size] = {DATA: dp, TENSOR: tp}
        dims = self.model.dims(sequences=over(batch, self.microbatches), seq=self.seq)
        routes = packed_routes(self.machine, axes, (TENSOR, DATA))

        def seconds(move: Move, volume: Size) -> Timing:
            route = _together([routes[axis] for axis in reversed(move.axes)])
            return time(self.machine, route, move.kind, volume, cost_model=self.cost_model)

        layers = counted(stack(self.practice, self.model.layers, self.model.stack))
        loops: dict[str, Size] = {ALIKE: self.model.layers, **layers, "microbatches": self.microbatches, "chunks": 1}
        sizes = Sizes(dims, axes, loops)
        return found.priced(sizes, seconds, self.machine, self.dtypes.activations, tied=dp * tp)


DATA, TENSOR = "data", "tensor"
"""The names of a study's mesh axes."""
