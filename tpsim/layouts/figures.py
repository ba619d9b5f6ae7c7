"""The sizes and seconds of layouts of one program, as arrays: the same kernels and collectives that `plan` prices.

An array has one number per cell: a mesh with so many microbatches. What it says of layouts whose axes have one device
is nothing: such a collective takes no time, and is left out of a plan.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.cost.actions import Actions
from tpsim.cost.compute import kernel_s
from tpsim.cost.memory import memory, spare_bytes
from tpsim.cost.piece import step_share
from tpsim.cost.pieces import piece_s
from tpsim.cost.sizes import Sizes
from tpsim.cost.timed import Action
from tpsim.layouts.walk import chunk_of
from tpsim.program.layout import Ahead, Bucket
from tpsim.program.lives import in_microbatch
from tpsim.program.stages import Stages
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import total
from tpsim.question.prices import pricer, route_of, route_over, sent
from tpsim.question.routing import routed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from tpsim.cost.piece import Piece
    from tpsim.cost.rollup import Collective
    from tpsim.cost.segments import Segment
    from tpsim.fabric.wires import Route
    from tpsim.program.op import Where
    from tpsim.question.question import Question
    from tpsim.question.shelf import Shelf

ANYWHERE = Stages(1, ())
"""What runs at a place of a chunk hangs on the chunk alone."""

FEW = 3
"""Layers of which an action is issued one by one."""

FAR = 10**9
"""Layers ahead: where a distance is counted in elements, weights come no later than if they were gathered at once."""


class _Priced(NamedTuple):
    """A call, per cell.

    seconds  of one; 0 where it has no price
    shares   what one step of it brings of all
    wrong    cell -> the reason why it has no price
    """

    seconds: Any
    shares: Any
    wrong: Mapping[int, str]


@dataclass
class Figures:
    """The program of a group of layouts at the sizes of its cells.

    wrong  cell -> the reason why it has no price
    prices known to other groups of the same search, too
    """

    example: Question
    cells: Sequence[Question]
    shelf: Shelf
    prices: dict[Hashable, Any]
    wrong: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lowered = self.shelf.lowered(self.example)
        self.meshes = [tuple(one.mesh.axes.items()) for one in self.cells]
        cells = ("cells", *zip(self.meshes, (one.workload.microbatches for one in self.cells), strict=True))
        self.number = self.prices.setdefault(cells, len(self.prices))  # alike for groups that have the same cells
        self._segments: dict[Segment, Any] = {}
        self._acted: dict[str, Sequence[tuple[Where, Any]]] = {}
        self._kernels = {id(one.ops[0]): one for one in self.lowered.kernels}

    def column(self, of: Callable[[Question], float]) -> Any:
        """A number of every cell."""
        return np.array([of(one) for one in self.cells], dtype=float)

    def _axis(self, axis: str) -> Any:
        return self.column(lambda one: one.mesh.axes[axis])

    @cached_property
    def microbatches(self) -> Any:
        """Of every cell."""
        return self.column(lambda one: one.workload.microbatches)

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of dims and axes; layers are those of a rank."""
        work, model = self.example.workload, self.example.model
        each = self.column(lambda one: one.workload.sequences)
        axes = {axis: self._axis(axis) for axis in self.example.mesh.order}
        dims, peaks = routed(self.example, {**model.dims(sequences=work.sequences, seq=work.seq), "b": each}, axes)
        pipe = self.column(lambda one: one.mesh.size(*one.layout.stages))
        loops = {"layers": model.layers / pipe, "microbatches": self.microbatches, "chunks": 1}
        return Sizes(dims, axes, loops, self.example.layout.roles, peaks=peaks)

    # Seconds ------------------------------------------------------------------------------------------------------

    @cached_property
    def actions(self) -> Actions:
        """The actions of all layouts: those that count elements issue no later than here."""
        practice = self.example.practice
        ahead = practice.ahead if practice.ahead.elements is None else Ahead(layers=FAR)
        practice = replace(practice, ahead=ahead, bucket=Bucket())
        return Actions(self.lowered.program.ops, ANYWHERE, self.lowered.collectives, practice, 1, lambda _: 1)

    def action_s(self, sort: str, acts: str, layers: int) -> Any:
        """Seconds of an action, as the timeline says; what new weights and gradients add once is not in it."""
        found = total(n * self._segment_s(segment) for segment, n in self._runs(sort, acts, layers))
        return np.broadcast_to(found, len(self.cells))

    def _segment_s(self, segment: Segment) -> Any:
        if segment not in self._segments:
            self._segments[segment] = Action(((segment, 1),)).timed(self.piece_s, attributed=False).through.seconds
        return self._segments[segment]

    def _runs(self, sort: str, acts: str, layers: int) -> Sequence[tuple[Segment, int]]:
        """What a chunk does: of many layers what a few do, and what one layer more repeats, so many times."""
        if layers <= FEW + 1:
            return self.actions.action(chunk_of(sort, layers), acts).runs
        few, more = (self.actions.action(chunk_of(sort, some), acts).runs for some in (FEW, FEW + 1))
        if [segment for segment, _ in few] != [segment for segment, _ in more]:
            return self.actions.action(chunk_of(sort, layers), acts).runs
        pairs = zip(few, more, strict=True)
        return [(segment, n + (one_more - n) * (layers - FEW)) for (segment, n), (_, one_more) in pairs]

    def piece_s(self, piece: Piece) -> Any:
        """Seconds of a kernel, of a part of a product, or of one call."""
        return piece_s(
            piece,
            self.call_s,
            lambda op: self.kernel_s(self._kernels[id(op)]) if id(op) in self._kernels else 0,
            lambda call: self._priced(call).shares,
        )

    def kernel_s(self, one: Any) -> Any:
        """Seconds of one run of a kernel."""
        key = ("kernel", one.shape, self.number)
        if key not in self.prices:
            asked = self.example
            self.prices[key] = kernel_s(one, self.sizes, asked.machine, asked.products, asked.matmul_efficiency)
        return self.prices[key]

    def call_s(self, call: Collective) -> Any:
        """Seconds of one call; of messages, and of what stages have together, none."""
        if call.kind == "send":
            return 0
        priced = self._priced(call)
        self.wrong |= priced.wrong
        return priced.seconds

    def _priced(self, call: Collective) -> _Priced:
        key = ("call", call.shape, self.number)
        if key not in self.prices:
            volumes = np.broadcast_to(call.logical_bytes(self.sizes), len(self.cells)).tolist()
            found = [self._cell(at, call, V) for at, V in enumerate(volumes)]
            self.prices[key] = _Priced(
                np.array([one[0] if isinstance(one, tuple) else 0 for one in found]),
                np.array([one[1] if isinstance(one, tuple) else 0 for one in found]),
                {at: one.problems[0].slug for at, one in enumerate(found) if isinstance(one, InputError)},
            )
        return self.prices[key]  # type: ignore[no-any-return]  # put there above

    def _cell(self, at: int, call: Collective, volume: float) -> tuple[float, float] | InputError:
        """Seconds of a call in a cell, and what one step of it brings; or why it is refused."""
        move, cell = call.parts[0].move, self.cells[at]
        n = cell.mesh.size(*move.axes)
        if n == 1:
            return 0, 0
        axes = self.meshes[at]
        if call.shared:
            there = _found(lambda: route_over(cell, move))
            return there if isinstance(there, InputError) else (0, 0)
        key = ("wires", axes, move.axes)
        if key not in self.prices:
            self.prices[key] = _found(lambda: cell.placement.route(move.axes))
        route = self.prices[key] if move.kind != "permute" else axes
        priced = (move.kind, move.reordered, route, volume)
        if priced not in self.prices:
            self.prices[priced] = _found(lambda: pricer(cell)(move, volume))
        timing = self.prices[priced]
        return timing if isinstance(timing, InputError) else (float(timing.time_s), float(step_share(n, timing)))

    def price_all(self) -> None:
        """Ask for every price, so that cells without one are known."""
        for call in self.lowered.collectives:
            self.call_s(call)
        np.add(self.hop_s, 0)

    @cached_property
    def hop_s(self) -> Any:
        """Seconds of the quickest message between neighbours."""
        cut = next((one for one in self.lowered.collectives if one.where.place == "cut"), None)
        if cut is None:
            return 0
        volumes = np.broadcast_to(cut.logical_bytes(self.sizes), len(self.cells)).tolist()
        return np.array([self._hop_s(at, volume) for at, volume in enumerate(volumes)])

    def _hop_s(self, at: int, volume: float) -> float:
        cell = self.cells[at]
        key = ("hop", self.meshes[at], volume)
        if key not in self.prices:
            ranks = cell.mesh.size(*cell.layout.stages)
            ahead = [_found(lambda rank=rank: self._hop(cell, rank, rank + 1)) for rank in range(ranks - 1)]  # type: ignore[misc]
            wrong = next((one for one in ahead if isinstance(one, InputError)), None)
            self.prices[key] = wrong or min(float(sent(cell, one, volume).time_s) for one in {*ahead})
            self.prices["around", self.meshes[at]] = _found(lambda: self._hop(cell, ranks - 1, 0))
        found = self.prices[key]
        if isinstance(found, InputError):
            self.wrong[at] = found.problems[0].slug
            return 0
        return found  # type: ignore[no-any-return]  # seconds

    def _hop(self, cell: Question, source: int, target: int) -> Route:
        return route_of(cell, cell.layout.stages, source, target)

    def refused(self, at: int, *, around: bool) -> str:
        """The reason why a cell has no price; "" if it has.

        around  True if the last stage sends to the first, too
        """
        back = self.prices.get(("around", self.meshes[at])) if around else None
        return self.wrong.get(at, "") or (back.problems[0].slug if isinstance(back, InputError) else "")

    def once_s(self, sort: str) -> Any:
        """Seconds that a rank of that sort works and waits once per step, alone."""
        works = [(one.where, self.kernel_s(one)) for one in self.lowered.kernels if not in_microbatch(one.where)]
        calls = [(one.where, self.call_s(one)) for one in self.lowered.collectives if self._waits_once(one)]
        return _stacked((*works, *calls), sort, self.sizes.loops["layers"])

    def worked_s(self, sort: str, acts: str, layers: int) -> Any:
        """Seconds of the kernels of an action, which it takes at least."""
        return np.broadcast_to(_stacked(self.works(acts), sort, layers), len(self.cells))

    def works(self, acts: str) -> Sequence[tuple[Where, Any]]:
        """Where kernels of such acts stand, and their seconds: those of one place together."""
        if acts not in self._acted:
            found: defaultdict[Where, Any] = defaultdict(int)
            for one in self.lowered.kernels:
                if in_microbatch(one.where) and one.where.act in acts:
                    found[one.where] += self.kernel_s(one)
            self._acted[acts] = list(found.items())
        return self._acted[acts]

    def _waits_once(self, call: Collective) -> bool:
        """True for a call of the whole step that holds its rank up."""
        return not (call.per_microbatch or call.shared or self.actions.beside_once(call))

    # Bytes --------------------------------------------------------------------------------------------------------

    def standing_bytes(self, sort: str) -> Any:
        """What a chip of such a rank holds from step to step, and what its stack holds beside that all the time."""
        chunk, layers, program = chunk_of(sort, 1), self.sizes.loops["layers"], self.lowered.program

        def here(where: Where) -> bool:
            return ANYWHERE.times(where, chunk) > 0

        spare = spare_bytes(
            program,
            self.sizes,
            dict(self.example.practice.keeps),
            here,
            lambda where: layers if where.index("layers") is not None else ANYWHERE.times(where, chunk),
            last=chunk.last,
            tied=self.example.model.tie_embeddings,
            copied=np.logical_and(
                not self.example.layout.zero, self.column(lambda one: one.mesh.size(*one.layout.data)) > 1
            ),
        )
        return np.broadcast_to(memory(program, self.sizes, here).static_bytes + spare, len(self.cells))


def _stacked(seconds: Iterable[tuple[Where, Any]], sort: str, layers: Any) -> Any:
    """Of what stands at some places: all that a chunk of that sort with so many layers runs."""
    one = chunk_of(sort, 1)
    here = ((where, s) for where, s in seconds if ANYWHERE.times(where, one))
    return total(s * layers if where.index("layers") is not None else s for where, s in here)


def _found(made: Callable[[], Any]) -> Any:
    """What is made, or why it is refused."""
    try:
        return made()
    except InputError as error:
        return error
