"""A million layouts at once: the same program and the same costs, evaluated on float64 arrays of sizes.

Sequence parallelism and the ZeRO stage change the program, so each pair is a trace of its own (`Traced`); how many
chips an axis has, and the batch, are only sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any

from tpsim.cost.actions import Actions
from tpsim.cost.collectives import Collective, alike, collectives
from tpsim.cost.compute import kernel_s
from tpsim.cost.kernels import kernels
from tpsim.cost.memory import standing
from tpsim.cost.piece import step_share
from tpsim.cost.pieces import piece_s
from tpsim.cost.rollup import Pricer, Row, price, wires_s
from tpsim.cost.sizes import Sizes
from tpsim.cost.timed import Timed
from tpsim.fabric.wires import Segment, joined
from tpsim.machine.timing import time
from tpsim.program.kinds import ALIKE, counted, stack
from tpsim.program.layout import layout
from tpsim.program.lower import lower
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import largest, over, smallest, total, whole

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.cost.kernel import Kernel
    from tpsim.cost.memory import Standing
    from tpsim.cost.piece import Piece
    from tpsim.fabric.wires import Route
    from tpsim.machine.profile import Machine
    from tpsim.machine.timing import CostModel, Timing
    from tpsim.program.dtypes import Dtypes
    from tpsim.program.kinds import Layers
    from tpsim.program.model import Model
    from tpsim.program.op import Program
    from tpsim.program.practice import Practice
    from tpsim.quantity.size import Size


@dataclass(frozen=True, slots=True)
class Priced:
    """Seconds and bytes of one step on one chip, each a number or an array over layouts."""

    compute_s: Any
    communication_s: Any
    exposed_s: Any
    wire_bytes: Any
    static_bytes: Any

    @property
    def time_s(self) -> Any:
        """Compute and exposed communication."""
        return self.compute_s + self.exposed_s


@dataclass(frozen=True, slots=True)
class Traced:
    """A program made ready for many evaluations: equal collectives and equal kernels are merged.

    of  the model's stack of layers, by their kinds
    """

    program: Program
    groups: tuple[tuple[Collective, ...], ...]
    kernels: tuple[tuple[Kernel, ...], ...]
    actions: Actions
    of: Layers
    held: Standing

    def priced(
        self, sizes: Sizes, pricer: Pricer, machine: Machine, dtype: str, efficiency: float | None = None
    ) -> Priced:
        """The step at `sizes`; every layout of the arrays has this program's structure.

        efficiency  share of peak that products reach, None for the machine's own figure

        Raises InputError where the practice counts elements, of which every layout has others.
        """
        rows = merged_rows(self.groups, sizes, pricer)
        works = [kernel_s(group[0], sizes, machine, dtype, efficiency) for group in self.kernels]
        compute_s = total(
            s * total(one.count(sizes) for one in group) for s, group in zip(works, self.kernels, strict=True)
        )
        return Priced(
            compute_s=compute_s,
            communication_s=total(row.busy_s for row in rows),
            exposed_s=self._step_s(rows, works, sizes) - compute_s,
            wire_bytes=total(row.wire_bytes_per_device * row.count for row in rows),
            static_bytes=self.held.memory(sizes).static_bytes,
        )

    def _step_s(self, rows: Sequence[Row], works: Sequence[Any], sizes: Sizes) -> Any:
        """Seconds of the step: microbatch after microbatch, what is left of gradients then, and what runs once."""
        calls = {id(one): row for row, group in zip(rows, self.groups, strict=True) for one in group}
        each = [(one, s) for s, group in zip(works, self.kernels, strict=True) for one in group]
        found = {id(one.ops[0]): s for one, s in each}

        def share(call: Collective) -> Any:
            return step_share(calls[id(call)].ranks, calls[id(call)].timing)

        def seconds(piece: Piece) -> Any:
            call_s, op_s = (lambda call: calls[id(call)].timing.time_s), (lambda op: found.get(id(op), 0))
            return piece_s(piece, call_s, op_s, share)

        layers, microbatches = whole(sizes.loops[ALIKE]), whole(sizes.loops["microbatches"])
        actions = self.actions
        only = Chunk(0, stack(actions.practice, layers, self.of), True, True)
        timed = Timed()
        turns = [(j == 0, j == microbatches - 1) for j in range(microbatches)]
        for (first, last), same in groupby(turns):
            acts = [actions.action(only, "F", first=first)]
            if any(op.where.phase == "backward" for op in self.program.ops):
                acts.append(actions.action(only, "BW", last=last))
            both = reduce(Timed.then, (one.timed(seconds, attributed=False) for one in acts))
            timed = timed.then(both.times(len(list(same))))
        once = [row for row in rows if not row.call.per_microbatch and not actions.beside_once(row.call)]
        updates = [s * one.count(sizes) for one, s in each if one.where.index("microbatches") is None]
        ended = largest(timed.through.seconds, timed.tail.seconds) + total([*(row.busy_s for row in once), *updates])
        return largest(ended, *wires_s(rows).values())


def _elements(_call: Collective) -> Any:
    raise InputError.one(
        "unsupported-grid",
        "layouts that gather or reduce by numbers of elements beside compute cannot be priced in arrays",
        remedy="write bucket: layer, and ahead: {layers: 1}, or plan the layouts one by one",
    )


def traced(program: Program, practice: Practice, of: Layers) -> Traced:
    """`program` with its equal collectives and equal kernels merged; of: the model's stack of layers."""
    groups = alike(collectives(program, coalesce=practice.coalesce)).values()
    works: dict[Hashable, list[Kernel]] = {}
    for one in kernels(program, practice):
        works.setdefault(one.shape, []).append(one)
    calls = [one for group in groups for one in group]
    actions = Actions(program.ops, Stages(1, ()), calls, practice, 1, _elements)
    return Traced(program, tuple(map(tuple, groups)), tuple(map(tuple, works.values())), actions, of, standing(program))


def merged_rows(groups: Iterable[Sequence[Collective]], sizes: Sizes, pricer: Pricer) -> list[Row]:
    """One row per group of equal collectives, counting the calls of all."""
    groups = tuple(groups)
    rows = price([group[0] for group in groups], sizes, pricer)
    counted = []
    for row, group in zip(rows, groups, strict=True):
        count = row.count * len(group)
        counted.append(replace(row, count=count, exposed_s=row.timing.time_s * count))
    return counted


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
        for axis in minor_first:
            here = smallest(left[axis], over(prod(level.shape), used))
            sharing = inside if level.shared else None
            routes[axis] += (Segment(level.name, level.name, joined(level.topology) or "switch", here, used, sharing),)
            left[axis], used = over(left[axis], here), used * here
        inside = inside * used
    sharing = inside if top.shared else None
    return {
        axis: (*routes[axis], Segment(top.name, top.name, joined(top.topology) or "switch", left[axis], 1, sharing))
        for axis in minor_first
    }


def _together(several: Iterable[Route]) -> Route:
    """The wires of several axes, the innermost first, as those of one: each level once."""
    return tuple(replace(same[0], n=prod(segment.n for segment in same)) for same in zip(*several, strict=True))


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

        At tp 1 it has a sum of norms over one device of its own, which a plan, without that axis, joins to another.
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
        return found.priced(sizes, seconds, self.machine, self.dtypes.activations)


DATA, TENSOR = "data", "tensor"
"""The names of a study's mesh axes."""
