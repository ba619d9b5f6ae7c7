"""The sizes and seconds of layouts of one program, as arrays: the same kernels and collectives that `plan` prices.

An array has one number per cell: a mesh with so many microbatches. A collective over axes of one device takes no time,
and a plan leaves it out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.cost.actions import Actions
from tpsim.cost.compute import kernel_s
from tpsim.cost.memory import memory, spare_bytes
from tpsim.cost.piece import step_share
from tpsim.cost.pieces import piece_s
from tpsim.cost.rollup import travelling
from tpsim.cost.sizes import Sizes
from tpsim.cost.timed import Action
from tpsim.program.kinds import ALIKE
from tpsim.program.layout import Ahead, Bucket
from tpsim.program.lives import in_microbatch
from tpsim.program.stages import Chunk, Stages
from tpsim.quantity.errors import InputError
from tpsim.quantity.size import total
from tpsim.question.prices import pricer, route_of, route_over, sent
from tpsim.question.routing import routed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.cost.piece import Piece
    from tpsim.cost.rollup import Collective
    from tpsim.cost.segments import Segment
    from tpsim.fabric.wires import Route
    from tpsim.machine.timing import Timing
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
    wrong    mesh, by number -> the reason why it has no price
    """

    seconds: Any
    shares: Any
    wrong: Mapping[int, str]


@dataclass
class Figures:
    """The program of a group of layouts at the sizes of its cells.

    meshes  a question of each mesh
    on      the number of the mesh of every cell
    microbatches  of every cell
    wrong   mesh, by number -> the reason why it has no price
    prices  known to other groups of the same search, too
    """

    example: Question
    meshes: Sequence[Question]
    on: Any
    microbatches: Any
    shelf: Shelf
    prices: dict[Hashable, Any]
    wrong: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lowered = self.shelf.lowered(self.example)
        self.axes = [tuple(one.mesh.axes.items()) for one in self.meshes]
        cells = ("cells", *self.axes, self.on.tobytes(), self.microbatches.tobytes())
        self.number = self.prices.setdefault(cells, len(self.prices))  # alike for groups that have the same cells
        self._known: dict[Hashable, Any] = {}
        self._kernels = {id(one.ops[0]): one for one in self.lowered.kernels}

    def _once(self, key: Hashable, found: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = found()
        return self._known[key]

    def column(self, of: Callable[[Question], float]) -> Any:
        """A number of every cell's mesh."""
        return np.array([of(one) for one in self.meshes], dtype=float)[self.on]

    def whole(self, found: Any) -> Any:
        """A number, or one of every cell, as one of every cell."""
        return np.broadcast_to(found, len(self.on))

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of dims and axes; layers are counted apart."""
        work, model = self.example.workload, self.example.model
        each = work.global_batch / self.microbatches
        axes = {axis: self.column(lambda one, axis=axis: one.mesh.axes[axis]) for axis in self.example.mesh.order}  # type: ignore[misc]  # mypy sees no default
        dims, peaks = routed(self.example, {**model.dims(sequences=work.sequences, seq=work.seq), "b": each}, axes)
        loops = {ALIKE: 1, "microbatches": self.microbatches, "chunks": 1}
        return Sizes(dims, axes, loops, self.example.layout.roles, peaks=peaks)

    # Seconds ------------------------------------------------------------------------------------------------------

    def action_s(self, cells: Any, chunk: Chunk, acts: str) -> Any:
        """Seconds of an action in some cells, as the timeline says, without what new weights and gradients add once.

        What nobody takes part in is not issued: it would hold up what is behind it.
        """
        found = np.zeros(len(cells))
        parties = self._parties[self.on[cells]]
        for party in np.unique(parties).tolist():
            here = parties == party
            found[here] = self._once(("action", chunk, acts, party), partial(self._action_s, chunk, acts, party))[
                cells[here]
            ]
        return found

    def _action_s(self, chunk: Chunk, acts: str, party: int) -> Any:
        return self.whole(total(n * self._segment_s(one) for one, n in self._runs(self._actions(party), chunk, acts)))

    @cached_property
    def _parties(self) -> Any:
        """Of every mesh the number of the first one in which axes of several devices are the same."""
        several = [frozenset(axis for axis, size in axes if size > 1) for axes in self.axes]
        return np.array([several.index(one) for one in several])

    def _actions(self, party: int) -> Actions:
        """The actions of all layouts on such meshes: those that count elements issue no later than here."""
        practice = self.example.practice
        ahead = practice.ahead if practice.ahead.elements is None else Ahead(layers=FAR)
        practice = replace(practice, ahead=ahead, bucket=Bucket())
        calls = travelling(self.lowered.collectives, self.meshes[party].mesh.axes)
        made = partial(Actions, self.lowered.program.ops, ANYWHERE, calls, practice, 1, lambda _: 1)
        return self._once(("actions", party), made)  # type: ignore[no-any-return]  # put there above

    def _segment_s(self, segment: Segment) -> Any:
        return self._once(
            ("segment", segment),
            lambda: Action(((segment, 1),)).timed(self.piece_s, attributed=False).through.seconds,
        )

    def _runs(self, actions: Actions, chunk: Chunk, acts: str) -> Sequence[tuple[Segment, int]]:
        """What a chunk does: of many layers what a few do, and what one layer more repeats, so many times."""
        layers = chunk.layers
        if layers > FEW + 1 and len(chunk.stack) == 1:
            ((kind, _),) = chunk.stack
            some = (replace(chunk, stack=((kind, few),)) for few in (FEW, FEW + 1))
            few, more = (actions.action(one, acts).runs for one in some)
            if [segment for segment, _ in few] == [segment for segment, _ in more]:
                pairs = zip(few, more, strict=True)
                return [(segment, n + (one_more - n) * (layers - FEW)) for (segment, n), (_, one_more) in pairs]
        return actions.action(chunk, acts).runs

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
            self.prices[key] = self._in_cells(call)
        return self.prices[key]  # type: ignore[no-any-return]  # put there above

    def _in_cells(self, call: Collective) -> _Priced:
        """A call in all cells: those whose wires are the same are priced together."""
        move, volumes = call.parts[0].move, self.whole(call.logical_bytes(self.sizes)).astype(float)
        seconds, shares, wrong = np.zeros(len(self.on)), np.zeros(len(self.on)), {}
        ways: defaultdict[Any, list[int]] = defaultdict(list)
        for at, mesh in enumerate(self.meshes):
            if mesh.mesh.size(*move.axes) > 1:
                there = _found(lambda mesh=mesh: route_over(mesh, move)) if call.shared else self._way(at, move)  # type: ignore[misc]  # no default
                if isinstance(there, InputError):
                    wrong[at] = there.problems[0].slug
                elif not call.shared:
                    ways[there].append(at)
        for way, meshes in ways.items():
            for here in self._alike(move, self._cells(meshes), volumes):
                timing = self._timing(self.meshes[meshes[0]], move, way, volumes[here])
                if isinstance(timing, InputError):
                    wrong |= dict.fromkeys(meshes, timing.problems[0].slug)
                else:
                    seconds[here] = timing.time_s
                    shares[here] = step_share(self.meshes[meshes[0]].mesh.size(*move.axes), timing)
        return _Priced(seconds, shares, wrong)

    def _alike(self, move: Move, cells: Any, volumes: Any) -> list[Any]:
        """Cells that are priced together: of blocks that go to a neighbour those where these are as large."""
        if not _to_neighbours(move):
            return [cells]
        return [cells[volumes[cells] == volume] for volume in np.unique(volumes[cells])]

    def _cells(self, meshes: Sequence[int]) -> Any:
        """The cells of some meshes."""
        among = np.zeros(len(self.meshes), dtype=bool)
        among[meshes] = True
        return np.flatnonzero(among[self.on])

    def _way(self, at: int, move: Move) -> Any:
        """The wires of a move on a mesh, of one that asks who is beside whom the whole mesh; or why there are none."""
        key = ("wires", self.axes[at], move.axes)
        if key not in self.prices:
            self.prices[key] = _found(lambda: self.meshes[at].placement.route(move.axes))
        return self.axes[at] if _to_neighbours(move) else self.prices[key]

    def _timing(self, mesh: Question, move: Move, way: Any, volumes: Any) -> Timing | InputError:
        """A move of so many bytes, or why it is refused."""
        alike = (volumes == volumes[0]).all()
        volume = float(volumes[0]) if alike else volumes
        key = (move.kind, move.streamed, move.reordered, way, volume if alike else volumes.tobytes())
        if key not in self.prices:
            self.prices[key] = _found(lambda: pricer(mesh)(move, volume))
        return self.prices[key]  # type: ignore[no-any-return]  # put there above

    def price_all(self) -> None:
        """Ask for every price, so that meshes without one are known."""
        for call in self.lowered.collectives:
            self.call_s(call)
        np.add(self.hop_s, 0)

    @cached_property
    def hop_s(self) -> Any:
        """Seconds of the quickest message between neighbours; 0 without stages."""
        seconds = np.zeros(len(self.on))
        cut = next((one for one in self.lowered.collectives if one.where.place == "cut"), None)
        if cut is not None:
            volumes = self.whole(cut.logical_bytes(self.sizes)).astype(float)
            for at, mesh in enumerate(self.meshes):
                if mesh.mesh.size(*mesh.layout.stages) > 1:
                    here = self._cells([at])
                    seconds[here] = self._hop_s(at, volumes[here])
        return seconds

    def _hop_s(self, at: int, volumes: Any) -> Any:
        mesh = self.meshes[at]
        key = ("hops", self.axes[at])
        if key not in self.prices:
            ranks = mesh.mesh.size(*mesh.layout.stages)
            ahead = [_found(lambda rank=rank: self._hop(mesh, rank, rank + 1)) for rank in range(ranks - 1)]  # type: ignore[misc]
            wrong = next((one for one in ahead if isinstance(one, InputError)), None)
            self.prices[key] = wrong or list(dict.fromkeys(ahead))
            self.prices["around", self.axes[at]] = _found(lambda: self._hop(mesh, ranks - 1, 0))
        routes = self.prices[key]
        if isinstance(routes, InputError):
            self.wrong[at] = routes.problems[0].slug
            return 0
        return reduce(np.minimum, (sent(mesh, one, volumes).time_s for one in routes))

    def _hop(self, mesh: Question, source: int, target: int) -> Route:
        return route_of(mesh, mesh.layout.stages, source, target)

    def refused(self, at: int, *, around: bool) -> str:
        """The reason why a mesh has no price; "" if it has.

        around  True if the last stage sends to the first, too
        """
        back = self.prices.get(("around", self.axes[at])) if around else None
        return self.wrong.get(at, "") or (back.problems[0].slug if isinstance(back, InputError) else "")

    def once_s(self, rank: Chunk, *, waits: bool = True) -> Any:
        """Seconds that a rank with all of this works, and waits, once per step, alone."""
        return self._stacked(f"once {waits}", lambda: self._once_each(waits=waits), rank)

    def _once_each(self, *, waits: bool) -> Iterator[tuple[Where, Any]]:
        yield from ((one.where, self.kernel_s(one)) for one in self.lowered.kernels if not in_microbatch(one.where))
        calls = (one for one in self.lowered.collectives if waits and self._waits_once(one))
        yield from ((one.where, self.call_s(one)) for one in calls)

    def worked_s(self, chunk: Chunk, acts: str) -> Any:
        """Seconds of the kernels of an action, which it takes at least."""
        return self._stacked(acts, lambda: self.works(acts), chunk)

    def works(self, acts: str) -> Iterator[tuple[Where, Any]]:
        """Where kernels of such acts stand, and their seconds."""
        for one in self.lowered.kernels:
            if in_microbatch(one.where) and one.where.act in acts:
                yield one.where, self.kernel_s(one)

    def _waits_once(self, call: Collective) -> bool:
        """True for a call of the whole step that holds its rank up."""
        return not (call.per_microbatch or call.shared or self._actions(0).beside_once(call))

    def _stacked(self, name: str, seconds: Callable[[], Iterable[tuple[Where, Any]]], chunk: Chunk) -> Any:
        """Of what stands at some places: all that a chunk runs, its ends and its layers."""
        each = self._once(("each", name), lambda: _by_place(seconds()))
        ends = Chunk(0, (), chunk.first, chunk.last)
        around = self._once(
            ("ends", name, ends), lambda: total(s * ANYWHERE.times(where, ends) for where, s in each[""])
        )
        layers = total(n * s for kind, n in chunk.stack if n for _, s in each[kind])
        return self.whole(around + layers)

    # Bytes --------------------------------------------------------------------------------------------------------

    def standing_bytes(self, rank: Chunk) -> Any:
        """What a chip of a rank with all of this holds from step to step, its stack's copies among them."""
        keeps, layout = dict(self.example.practice.keeps), self.example.layout
        spare = spare_bytes(
            self.lowered.program,
            self.sizes,
            keeps,
            lambda where: ANYWHERE.times(where, rank) > 0,
            lambda where: ANYWHERE.times(where, rank),
            last=rank.last,
            tied=self.example.model.tie_embeddings,
            copied=np.logical_and(not layout.zero, self.column(lambda one: one.mesh.size(*one.layout.data)) > 1),
        )
        ends = self._states(Chunk(0, (), rank.first, rank.last))
        layers = total(n * self._states(Chunk(0, ((kind, 1),), False, False)) for kind, n in rank.stack if n)
        return self.whole(ends + layers + spare)

    def _states(self, part: Chunk) -> Any:
        """States of the ends of a rank, or of one layer."""

        def here(where: Where) -> bool:
            layer = where.index(ALIKE) is not None
            return layer == bool(part.stack) and ANYWHERE.times(where, part) > 0

        loops = {**dict(part.stack), ALIKE: 1}
        return self._once(
            ("states", part), lambda: memory(self.lowered.program, self.sizes.of_stage(loops), here).static_bytes
        )


def _by_place(seconds: Iterable[tuple[Where, Any]]) -> Mapping[str, list[tuple[Where, Any]]]:
    """What stands in layers of each kind, as one; beside them, under no name, what stands at each other place."""
    found: defaultdict[Where, Any] = defaultdict(int)
    for where, s in seconds:
        found[where] += s
    placed: defaultdict[str, list[tuple[Where, Any]]] = defaultdict(list)
    for where, s in found.items():
        placed[where.kind if where.index(ALIKE) is not None else ""].append((where, s))
    return placed


def _to_neighbours(move: Move) -> bool:
    """True for a move of which it matters who is beside whom."""
    return move.kind == "permute" or move.streamed


def _found(made: Callable[[], Any]) -> Any:
    """What is made, or why it is refused."""
    try:
        return made()
    except InputError as error:
        return error
