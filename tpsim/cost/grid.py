"""A million layouts at once: the same program and the same costs, evaluated on float64 arrays of sizes.

Sequence parallelism and the ZeRO stage change the program, so each pair is a trace of its own (`Traced`); how many
chips an axis has, and the batch, are only sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, reduce
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from tpsim.cost.actions import Actions
from tpsim.cost.clock import piece_s
from tpsim.cost.collectives import Collective, alike, collectives
from tpsim.cost.compute import kernel_s
from tpsim.cost.kernels import kernels
from tpsim.cost.memory import standing
from tpsim.cost.piece import step_share
from tpsim.cost.rollup import Pricer, Row, price, wires_s
from tpsim.cost.timed import Timed
from tpsim.program.kinds import ALIKE, stack
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import largest, total, whole

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from tpsim.cost.kernel import Kernel
    from tpsim.cost.memory import Standing
    from tpsim.cost.piece import Piece
    from tpsim.cost.sizes import Sizes
    from tpsim.machine.parts import Machine
    from tpsim.program.kinds import Layers
    from tpsim.program.op import Op, Program
    from tpsim.program.practice import Practice


@dataclass(frozen=True, slots=True)
class Priced:
    """Seconds and bytes of one step on one chip, each a number or an array over layouts."""

    compute_s: Any
    communication_s: Any
    exposed_s: Any
    wire_bytes: Any
    static_bytes: Any
    stragglers_s: Any

    @property
    def time_s(self) -> Any:
        """Compute, exposed communication and waiting for stragglers."""
        return self.compute_s + self.exposed_s + self.stragglers_s


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
    standing: Standing

    def priced(
        self,
        sizes: Sizes,
        pricer: Pricer,
        machine: Machine,
        dtype: str,
        efficiency: float | None = None,
        *,
        tied: Any = 1,
    ) -> Priced:
        """The step at `sizes`; every layout of the arrays has this program's structure.

        efficiency  share of peak that products reach, None for the machine's own figure
        tied        ranks that wait for each other where weights are gathered and gradients summed

        Raises InputError where the practice counts elements, of which every layout has others.
        """
        only, buckets = self._only(sizes), self.actions.buckets
        joined = ([buckets.sent(call, only) for call in group] for group in self.groups)
        sent = [alike for each in joined for alike in zip(*each, strict=True)]
        often = [buckets.often(calls[0], only, 0) * calls[0].repeats(sizes) * len(calls) for calls in sent]
        rows = price([calls[0] for calls in sent], sizes, pricer, often)
        works = [kernel_s(group[0], sizes, machine, dtype, efficiency) for group in self.kernels]
        compute_s = total(s * count for s, count in zip(works, self._counts(sizes), strict=True))
        priced = {id(call): row for row, calls in zip(rows, sent, strict=True) for call in calls}
        step_s, stragglers_s = self._step_s(priced, works, sizes, machine, tied)
        return Priced(
            compute_s=compute_s,
            communication_s=total(row.busy_s for row in rows),
            exposed_s=step_s - stragglers_s - compute_s,
            wire_bytes=total(row.wire_bytes_per_device * row.count for row in rows),
            static_bytes=self.standing.memory(sizes).static_bytes,
            stragglers_s=stragglers_s,
        )

    def _only(self, sizes: Sizes) -> Stages:
        """The stack as one chunk."""
        return Stages(1, (Chunk(0, stack(self.actions.practice, whole(sizes.loops[ALIKE]), self.of), True, True),))

    def _counts(self, sizes: Sizes) -> list[Any]:
        """Runs per step and device of the kernels of each group together."""
        alike = {kernel.loops: kernel for kernel in chain.from_iterable(self.kernels)}
        runs = {loops: kernel.count(sizes) for loops, kernel in alike.items()}
        return [total(runs[kernel.loops] for kernel in group) for group in self.kernels]

    def _step_s(
        self, calls: Mapping[int, Row], works: Sequence[Any], sizes: Sizes, machine: Machine, tied: Any
    ) -> tuple[Any, Any]:
        """Seconds of the step: microbatch after microbatch, what is left of gradients then, and what runs once.

        Of these, those of stragglers.
        """
        pairs = [(kernel, s) for s, group in zip(works, self.kernels, strict=True) for kernel in group]
        seconds_of = {id(kernel.ops[0]): s for kernel, s in pairs}

        def share(call: Collective) -> Any:
            return step_share(calls[id(call)].ranks, calls[id(call)].timing)

        def call_s(call: Collective) -> Any:
            return calls[id(call)].timing.time_s

        def op_s(op: Op) -> Any:
            return seconds_of.get(id(op), 0)

        @cache
        def seconds(piece: Piece) -> Any:
            return piece_s(piece, call_s, op_s, share)

        microbatches, actions = whole(sizes.loops["microbatches"]), self.actions
        (only,) = self._only(sizes).chunks
        rows = {id(row): row for row in calls.values()}.values()
        timed = Timed()
        turns = [(j == 0, j == microbatches - 1) for j in range(microbatches)]
        for (first, last), same in groupby(turns):
            acts = [actions.action(only, "F", first=first)]
            if any(group[0].where.phase == "backward" for group in self.kernels):
                acts.append(actions.action(only, "BW", last=last))
            each = (act.timed(seconds, attributed=False).waiting(act.late_s(seconds, machine, tied)) for act in acts)
            both = reduce(Timed.then, each)
            timed = timed.then(both.times(len(list(same))))
        once = [row for row in rows if not row.call.per_microbatch and not actions.beside_once(row.call)]
        updates = [s * kernel.count(sizes) for kernel, s in pairs if kernel.where.microbatch is None]
        ended = largest(timed.through.seconds, timed.tail.seconds) + total([*(row.busy_s for row in once), *updates])
        return largest(ended, *wires_s(rows).values()), timed.stragglers_s


def _elements(_call: Collective) -> Any:
    raise InputError.one(
        "unsupported-grid",
        "layouts that gather or reduce by numbers of elements beside compute cannot be priced in arrays",
        remedy="write bucket: layer, and ahead: {layers: 1}, or plan the layouts one by one",
    )


def traced(program: Program, practice: Practice, of: Layers) -> Traced:
    """`program` with its equal collectives and equal kernels merged; of: the model's stack of layers."""
    groups = alike(collectives(program, coalesce=practice.coalesce, apart=practice.units == "ends")).values()
    works: dict[Hashable, list[Kernel]] = {}
    for kernel in kernels(program, practice):
        works.setdefault(kernel.shape, []).append(kernel)
    calls = [call for group in groups for call in group]
    actions = Actions(program.ops, Stages(1, ()), calls, practice, 1, _elements)
    return Traced(program, tuple(map(tuple, groups)), tuple(map(tuple, works.values())), actions, of, standing(program))
