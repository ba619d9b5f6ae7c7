"""The sizes and seconds of layouts of one program, as arrays: the same kernels and collectives that `plan` prices.

An array has one number per cell: a mesh with so many microbatches. A collective over axes of one device takes no time,
and a plan leaves it out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tpsim.cost.actions import Actions
from tpsim.cost.clock import piece_s
from tpsim.cost.collectives import GRADIENTS, ROWS, TENSOR, WEIGHTS, travelling
from tpsim.cost.compute import kernel_s
from tpsim.cost.meeting import behind
from tpsim.cost.sizes import Sizes
from tpsim.layouts.calls import Calls
from tpsim.layouts.in_line import InLine
from tpsim.layouts.sent import Sent, SentCalls
from tpsim.layouts.stacked import ANYWHERE, Stacked
from tpsim.layouts.stragglers import Stragglers
from tpsim.program.kinds import ALIKE
from tpsim.program.lifetimes import in_microbatch
from tpsim.program.stages import Chunk
from tpsim.quantity.once import Once
from tpsim.quantity.size import total
from tpsim.question.routing import routed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from tpsim.cost.collectives import Collective
    from tpsim.cost.kernel import Kernel
    from tpsim.cost.meeting import Behind
    from tpsim.cost.piece import Piece
    from tpsim.program.op import Op, Where
    from tpsim.question.memo import Lowered, Memo
    from tpsim.question.question import Question


@dataclass
class Figures(Once):
    """The program of a group of layouts at the sizes of its cells.

    meshes  a question of each mesh
    on      the number of the mesh of every cell
    microbatches  of every cell
    prices  known to other groups of the same search, too
    """

    example: Question
    meshes: Sequence[Question]
    on: Any
    microbatches: Any
    memo: Memo
    prices: dict[Hashable, Any]

    @cached_property
    def lowered(self) -> Lowered:
        """The program, traced when it is asked for: of layouts that no chip holds what stands there may tell."""
        return self.memo.lowered(self.example)

    @cached_property
    def calls(self) -> Calls:
        """Its collectives."""
        return Calls(self.meshes, self.on, self.microbatches, self.lowered, self.sizes, self.prices)

    @cached_property
    def _kernels(self) -> Mapping[int, Kernel]:
        """By the first op of each."""
        return {id(kernel.ops[0]): kernel for kernel in self.lowered.kernels}

    @cached_property
    def alone(self) -> list[frozenset[str]]:
        """Of every mesh the axes of one device over which the program moves arrays for others, where they are more.

        And stages whose microbatches share copies of weights, which that of one alone has each for itself.
        """
        roles, parents = self.example.layout.roles, self.example.axis_parents
        kept = {*roles.get("cp", ()), *(roles["dp"] if "ep" in roles else ()), *parents}
        moved = [{*call.parts[0].move.axes} for call in self.lowered.collectives if call.kind != "all_reduce"]
        shared = self.example.layout.stages if self.lowered.standing.copies else ()
        over = sorted({*shared}.union(*(axes for axes in moved if axes <= kept)))
        return [frozenset(axis for axis in over if case.mesh.axes[axis] == 1) for case in self.meshes]

    def column(self, of: Callable[[Question], float]) -> Any:
        """A number of every cell's mesh."""
        return np.array([of(case) for case in self.meshes], dtype=float)[self.on]

    def whole(self, value: Any) -> Any:
        """A number, or one of every cell, as one of every cell."""
        return value if np.shape(value) == self.on.shape else np.broadcast_to(value, len(self.on))

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of dims and axes; layers are counted apart."""
        work, model = self.example.workload, self.example.model
        batch = work.global_batch / self.microbatches
        axes = {axis: self.column(lambda case, axis=axis: case.mesh.axes[axis]) for axis in self.example.mesh.order}  # type: ignore[misc]  # mypy sees no default
        dims, peaks = routed(self.example, {**work.dims(model), "b": batch}, axes)
        loops = {ALIKE: 1, "microbatches": self.microbatches, "chunks": 1}
        return Sizes(dims, axes, loops, self.example.layout.roles, peaks=peaks)

    # Seconds ------------------------------------------------------------------------------------------------------

    @cached_property
    def _parties(self) -> Any:
        """Of every mesh the number of the first one in which the same calls are issued in microbatches."""
        issued = [*map(id, self._actions)]
        return np.array([issued.index(actions) for actions in issued])

    @cached_property
    def _actions(self) -> list[Actions]:
        """The actions on every mesh: with the calls that have somebody to talk to, but for messages."""
        often = [call for call in self.lowered.collectives if call.per_microbatch and call.where.place != "cut"]
        issued = [call for call in often if not call.shared]
        known = {axes: self._with([*travelling(issued, dict(axes))]) for axes in dict.fromkeys(self.calls.axes)}
        return [known[axes] for axes in self.calls.axes]

    def _with(self, calls: Sequence[Collective]) -> Actions:
        ops, practice = self.lowered.program.ops, self.example.practice
        actions = partial(Actions, ops, ANYWHERE, calls, practice, 1, lambda _: 1)
        return self._once(("actions", *map(id, calls)), actions)

    def piece_s(self, piece: Piece) -> Any:
        """Seconds of a kernel, of a part of a product, or of one call."""

        def op_s(op: Op) -> Any:
            return self.kernel_s(self._kernels[id(op)]) if id(op) in self._kernels else 0

        return self._once(piece, lambda: piece_s(piece, self._sent_calls.alone_s, op_s, self.calls.share))

    def kernel_s(self, kernel: Any) -> Any:
        """Seconds of one run of a kernel; none of casts that backward runs again, where some moves are of one device.

        What was cast to be moved so is there already: how much of that there is a plan knows.
        """
        if kernel.where.again == "gather" and any(self.alone):
            return self._known_s(kernel) * np.array([not axes for axes in self.alone])[self.on]
        return self._known_s(kernel)

    def _known_s(self, kernel: Any) -> Any:
        key = ("kernel", kernel.shape, self.calls.number)
        if key not in self.prices:
            question = self.example
            seconds = kernel_s(kernel, self.sizes, question.machine, question.products, question.matmul_efficiency)
            self.prices[key] = np.asarray(seconds, dtype=float)  # shares of rows make them objects
        return self.prices[key]

    def once_s(self, rank: Chunk, chunks: Sequence[Chunk], *, ends: bool, late: bool) -> Any:
        """Seconds that a rank with all of these works, and waits, once per step, alone; ends: see `worked_s`.

        late  True for what is behind all that it has together with others, else what is before that
        """
        calls = [call for call in self._sent_calls.joined("", beside=False) if self._behind.call(call) == late]
        many = Counter(chunks).items()
        joined = total(often * self._sent_calls.bucketed_s(call, chunk) for chunk, often in many for call in calls)
        each = partial(self._once_each, ends=ends, late=late)
        return self.stacked(f"once {ends} {late}", each, [rank])[0] + joined

    def _once_each(self, *, ends: bool, late: bool) -> Iterator[tuple[Where, Any]]:
        for kernel in self.lowered.kernels:
            once = not in_microbatch(kernel.where) and (ends or kernel.where.place != "step")
            if once and self._behind.kernel(kernel) == late:
                yield kernel.where, self.kernel_s(kernel)
        for call in self.lowered.collectives:
            if (ends or call.per_layer) and self._waits_once(call) and self._behind.call(call) == late:
                yield call.where, self._sent_calls.alone_s(call)

    @cached_property
    def _behind(self) -> Behind:
        """What is made behind what ranks have together."""
        calls = (call for call in self.lowered.collectives if call.shared and not call.per_microbatch)
        return behind(self.lowered.program.ops, calls, self._actions[0].beside_once)

    def shared_s(self, rank: Chunk, _: Sequence[Chunk], *, ends: bool) -> Any:
        """Seconds of what it has together with other ranks, behind all that they do alone."""
        return self.stacked(f"shared {ends}", lambda: self._shared_each(ends=ends), [rank])[0]

    def _shared_each(self, *, ends: bool) -> Iterator[tuple[Where, Any]]:
        for call in self.lowered.collectives:
            if ends and call.shared and not self._actions[0].beside_once(call):
                yield call.where, self.calls.call_s(call)

    def links_s(self, rank: Chunk, _: Sequence[Chunk], *, ends: bool) -> Any:
        """Seconds in which a rank with all of these fills the links that it fills longest, by what it sends alone."""
        links, axes = partial(self._sent_calls.fills_s, ends=ends), self._sent_calls.filling_s
        each = (self.stacked(f"links {axis} {ends}", partial(links, axis), [rank])[0] for axis in axes)
        return reduce(np.maximum, each, np.zeros(len(self.on)))

    def worked_s(self, chunks: Sequence[Chunk], acts: str, *, ends: bool) -> Any:
        """Seconds that an action takes at least: its kernels with what holds them up, or all calls on one lane.

        ends  True: calls on weights and gradients of both ends count; without stages these may be joined otherwise

        [chunk, cell], as is all that is asked of several chunks.
        """
        compute, *lanes = (self._lane_s(chunks, acts, lane, ends=ends) for lane in self._lanes)
        for at, chunk in enumerate(chunks):
            compute[at] += self._sent_calls.joined_s(chunk, acts, beside=False)
        if "F" in acts:
            compute += self._entered_s(chunks)
        return reduce(np.maximum, lanes, compute)

    def least_s(self, chunk: Chunk, acts: str, *, ends: bool) -> Any:
        """Seconds that an action takes at least; see `in_line_s`."""
        return self.in_line_s(chunk, acts, ends=ends) + self.stragglers.late_s(chunk, acts)

    def in_line_s(self, chunk: Chunk, acts: str, *, ends: bool) -> Any:
        """Seconds that an action takes if no rank is late, calls beside compute that it waits for among them."""
        (worked,) = self.worked_s([chunk], acts, ends=ends)
        return np.maximum(worked, self._chain_s(chunk, acts)) if self._waits and acts != "W" else worked

    @cached_property
    def stragglers(self) -> Stragglers:
        """What its actions wait for the last rank."""

        def works_s(chunk: Chunk, acts: str) -> Any:
            return self.stacked(f"kernels {acts}", lambda: self.works(acts), [chunk])[0]

        ranks = self.column(lambda case: case.tied)
        return Stragglers(self.example.machine, self._sent, self.calls.call_s, works_s, self._sent_calls.buckets, ranks)

    def _chain_s(self, chunk: Chunk, acts: str) -> Any:
        (ends,) = self._lane_s([Chunk(0, (), chunk.first, chunk.last)], acts, "", ends=False)
        (entered,) = self._entered_s([chunk]) if acts == "F" else (0,)
        return ends + entered + self.in_line.layers_s(chunk, acts)

    def _entered_s(self, chunks: Sequence[Chunk]) -> Any:
        """What the first kernel of all waits for: a table of embeddings that microbatches gather beside compute."""
        gathers = partial(self._sent_calls.own_s, "F", WEIGHTS, ends=True, beside=True, place="embedding")
        return self.stacked("entered", gathers, chunks)

    @cached_property
    def in_line(self) -> InLine:
        """Its actions in line."""
        return InLine(self._actions, self._parties[self.on], self.piece_s)

    @cached_property
    def _waits(self) -> bool:
        """True if calls that microbatches wait for run beside compute."""
        return any(sent.often and sent.beside and sent.lane in (TENSOR, ROWS, WEIGHTS) for sent in self._sent)

    def _lane_s(self, chunks: Sequence[Chunk], acts: str, lane: str, *, ends: bool) -> Any:
        return self.stacked(f"{acts} {lane} {ends}", partial(self._acts_s, acts, lane, ends=ends), chunks)

    def _acts_s(self, acts: str, lane: str, *, ends: bool) -> Iterator[tuple[Where, Any]]:
        if lane:
            return self._sent_calls.own_s(acts, lane, ends=ends)
        return chain(self.works(acts), self._sent_calls.own_s(acts, ends=ends, beside=False))

    @cached_property
    def _lanes(self) -> list[str]:
        """Compute with what holds it up, and each lane of calls that its actions wait for."""
        sent = {sent.lane for sent in self._sent if sent.often}
        return ["", *(lane for lane in (TENSOR, ROWS, WEIGHTS) if lane in sent)]

    def beside_s(self, chunk: Chunk, name: str, *, ends: bool) -> Any:
        """Seconds of the calls on a lane beside compute.

        name  "fresh": new weights, and all others that its first microbatch waits for; "reduced": gradients of each
              microbatch; "last": those of all, behind the last one
        """
        lanes = {
            "fresh": (("F", WEIGHTS, None), ("", WEIGHTS, True)),
            "reduced": (("W", GRADIENTS, True),),
            "last": (("", GRADIENTS, True),),
        }[name]
        calls = (self._sent_calls.own_s(acts, lane, ends=ends, beside=beside) for acts, lane, beside in lanes)
        joined = total(self._sent_calls.joined_s(chunk, acts, lane, beside=beside) for acts, lane, beside in lanes)
        return self.stacked(f"{name} {ends}", lambda: chain.from_iterable(calls), [chunk])[0] + joined

    @cached_property
    def _sent_calls(self) -> SentCalls:
        shards = self.column(lambda case: case.mesh.size(*case.layout.data))
        return SentCalls(self.calls, self._sent, self.example.practice, shards)

    @cached_property
    def _sent(self) -> list[Sent]:
        """The calls of ranks alone, at some part of the stack."""
        actions, rows = self._actions[0], list[Sent]()
        for call in self.lowered.collectives:
            if not call.shared and call.where.place not in ("cut", "step"):
                beside = actions.beside(call) if call.per_microbatch else actions.beside_once(call)
                inside = call.per_layer or not actions.counts(call)
                rows.append(Sent(call, call.sort, call.where.act, call.per_microbatch, beside, inside))
        return rows

    def works(self, acts: str) -> Iterator[tuple[Where, Any]]:
        """Where kernels of such acts stand, and their seconds."""
        return ((where, seconds) for where, seconds in self._works if where.act in acts)

    @cached_property
    def _works(self) -> list[tuple[Where, Any]]:
        kernels = (kernel for kernel in self.lowered.kernels if in_microbatch(kernel.where))
        return [(kernel.where, self.kernel_s(kernel)) for kernel in kernels]

    def _waits_once(self, call: Collective) -> bool:
        """True for a call of the whole step that holds its rank up."""
        return not (call.per_microbatch or call.shared or self._actions[0].beside_once(call))

    @cached_property
    def stacked(self) -> Callable[[str, Callable[[], Iterable[tuple[Where, Any]]], Sequence[Chunk]], Any]:
        """Of what stands at some places all that chunks run: [chunk, cell]."""
        return Stacked(len(self.on)).of
