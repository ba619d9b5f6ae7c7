"""One model on one machine for many layouts at once: what a benchmark and the tests of `tpsim.cost.grid` price."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from tpsim.cost.actions import Actions
from tpsim.cost.clock import Clock
from tpsim.cost.collectives import collectives
from tpsim.cost.grid import step_s
from tpsim.cost.kernels import kernels
from tpsim.cost.memory import standing
from tpsim.cost.pipeline import Work
from tpsim.cost.rollup import price
from tpsim.cost.sizes import Sizes
from tpsim.fabric.wires import Segment, joined
from tpsim.machine.timing import time
from tpsim.program.kinds import ALIKE, counted, stack
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.schedules import DEFAULT, pipeline_schedule
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import over, smallest, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.cost.collectives import Collective
    from tpsim.cost.kernel import Kernel
    from tpsim.cost.memory import Standing
    from tpsim.fabric.wires import Route, Wires
    from tpsim.machine.parts import Machine
    from tpsim.machine.timing import CostModel, Timing
    from tpsim.program.dtypes import Dtypes
    from tpsim.program.model import Model
    from tpsim.program.practice import Practice
    from tpsim.quantity.size import Size


def packed_routes(machine: Machine, axes: Mapping[str, Size], minor_first: Sequence[str]) -> dict[str, Route]:
    """Each mesh axis on the machine's switched levels, innermost first, packed: an axis fills what is left of a level.

    axes         sizes, numbers or arrays
    minor_first  the axes in the order in which they are packed, e.g. tensor, then data
    The top level takes the rest, however many. A level that an axis does not reach has a segment of one device,
    which costs nothing.
    Raises InputError for a machine with a level that is no switch: on a torus the place of an axis is a choice; and for
    an axis that fills part of a level and goes on beyond it: how a plan spreads it follows from all sizes.
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
            if not (_is_whole(here) and _is_whole(left[axis])):
                raise _uneven(f"{axis} does not fill {level.name} of {machine.name} evenly")
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
            raise _uneven(
                f"a grid of layouts needs switched levels; {level.name} of {machine.name} is a {level.topology}"
            )


def _uneven(message: str) -> InputError:
    return InputError.one("unsupported-grid", message, remedy="plan the layouts one by one")


def _is_whole(size: Size) -> bool:
    """True for a whole number, or an array of these."""
    whole = size % 1 == 0
    return whole if isinstance(whole, bool) else bool(whole.all())


@dataclass(frozen=True, slots=True)
class Priced:
    """Seconds and bytes of one step on one chip, each a number or an array over layouts."""

    time_s: Size
    compute_s: Size
    communication_s: Size
    stragglers_s: Size
    wire_bytes: Size
    static_bytes: Size

    @property
    def exposed_s(self) -> Size:
        """Seconds of communication that no compute hides."""
        return self.time_s - self.compute_s - self.stragglers_s


@dataclass(frozen=True, slots=True)
class Traced:
    """A program made ready for many evaluations."""

    calls: Sequence[Collective]
    kernels: Sequence[Kernel]
    actions: Actions
    stages: Stages
    standing: Standing


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

    def traced(self, *, zero: int, sequence_parallel: bool, tensor: bool = True) -> Traced:
        """The program of one structure; its sizes are still open.

        tensor  False for layouts of tp 1, which have no such axis in a plan, and nothing to gather or sum over it; with
                it kernels are joined otherwise there. Data shards are several: a plan has no ZeRO over one of them.
        """
        tp = (TENSOR,) if tensor else ()
        besides = [dim for dim in LATENTS if dim in self.model.dims(sequences=1, seq=self.seq)]
        besides += ["y"] if self.model.experts and self.model.experts.bias else []
        laid = {"tp": tp, "etp": tp if self.model.experts else (), "besides": besides}
        placed = layout(dp=(DATA,), zero=zero, sequence_parallel=sequence_parallel and tensor, **laid)
        practice = replace(self.practice, overlap=self.practice.overlap.at(zero))
        program = lower(self.model, placed, practice, self.dtypes, (DATA, TENSOR))
        calls = collectives(program, coalesce=practice.coalesce, apart=practice.units == "ends")
        only = Stages(1, (Chunk(0, stack(practice, self.model.layers, self.model.stack), True, True),))
        actions = Actions(program.ops, only, calls, practice, 1, _elements)
        return Traced(calls, kernels(program, practice), actions, only, standing(program))

    def priced(self, found: Traced, *, tp: Size, dp: Size, batch: Size) -> Priced:
        """The step of every layout (tp, dp, batch): three numbers, or three arrays of one shape.

        batch  sequences per step, a multiple of dp x microbatches
        Raises InputError where tp or dp does not divide what it splits of parameters and states, which a plan fills up.
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
        for array in (*found.standing.parameters, *found.standing.optimizer):
            for dim, on in zip(array.type.dims, array.type.on, strict=True):
                if on and not _is_whole(over(dims[dim], prod(axes[axis] for axis in on))):
                    raise _uneven(f"{dim} of {array.name}, {dims[dim]}, is not divisible by {' x '.join(on)}")
        calls, dtype = found.actions.buckets.priced(found.stages), self.dtypes.activations
        rows = price(calls, sizes, seconds)
        clock = Clock(rows, found.kernels, sizes, self.machine, dtype, None, tied=dp * tp, attributed=False)
        turns = pipeline_schedule(DEFAULT, 1, 1, self.microbatches)
        work = Work(turns, found.stages, clock, found.actions, lambda _, __: 0)
        (time_s, late_s), (own,) = step_s(work), work.own
        return Priced(
            time_s=time_s,
            compute_s=own.compute.time_s,
            communication_s=total(row.busy_s for row in own.rows),
            stragglers_s=late_s,
            wire_bytes=total(row.wire_bytes_per_device * row.count for row in own.rows),
            static_bytes=found.standing.memory(sizes).static_bytes,
        )


def _elements(_call: Collective) -> Size:
    """What gathers or reduces by numbers of elements beside compute does so otherwise in every layout."""
    raise _uneven("layouts that gather or reduce by numbers of elements beside compute cannot be priced in arrays")


DATA, TENSOR = "data", "tensor"
"""The names of a study's mesh axes."""

LATENTS = ("u", "x")
"""Dims that weights may have in the place of the hidden size, which ZeRO shards then."""
