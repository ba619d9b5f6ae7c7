"""What the collectives of layouts of one program take, as arrays: those on the same wires are priced together.

An array has one number per cell: a mesh with so many microbatches.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpsim.cost.piece import step_share
from tpsim.layouts.reason import Reason, reason
from tpsim.quantity.errors import InputError
from tpsim.question.prices import pricer, route_of, route_over, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from tpsim.algebra.moves import Move
    from tpsim.cost.collectives import Collective
    from tpsim.cost.sizes import Sizes
    from tpsim.fabric.wires import Route
    from tpsim.machine.timing import Timing
    from tpsim.question.memo import Lowered
    from tpsim.question.question import Question


class _Priced(NamedTuple):
    """A call, per cell.

    seconds  of one; 0 where it has no price
    shares   what one step of it brings of all
    wrong    mesh, by number -> the reason why it has no price
    timings  cells that are priced together, and what that came to
    """

    seconds: Any
    shares: Any
    wrong: Mapping[int, Reason]
    timings: Sequence[tuple[Any, Timing]]


@dataclass
class Calls:
    """The collectives of a program in the cells of a group of layouts.

    meshes  a question of each mesh
    on      the number of the mesh of every cell
    microbatches  of every cell
    lowered  the program
    prices  known to other groups of the same search, too
    """

    meshes: Sequence[Question]
    on: Any
    microbatches: Any
    lowered: Lowered
    sizes: Sizes
    prices: dict[Hashable, Any]
    _wrong: dict[int, Reason] = field(default_factory=dict)
    _known: dict[Hashable, _Priced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.axes = [tuple(question.mesh.axes.items()) for question in self.meshes]
        first, placed = self.meshes[0], [mesh.placement.pieces.items() for mesh in self.meshes]
        self.sites = [self._numbered("site", axes, *site) for axes, site in zip(self.axes, placed, strict=True)]
        rows = (*first.layout.at_experts, first.layout.routed, first.practice.levels) if first.model.experts else ()
        self.number = self._numbered("cells", *self.sites, self.on.tobytes(), self.microbatches.tobytes(), rows)

    def _numbered(self, *key: Hashable) -> int:
        """A number for what is alike for several groups."""
        return self.prices.setdefault(key, len(self.prices))  # type: ignore[no-any-return]  # put there by it

    def call_s(self, call: Collective, layers: Any = 1) -> Any:
        """Seconds of one call, of so many layers in every cell; of messages none."""
        if call.kind == "send":
            return 0
        priced = self._priced(call, layers)
        self._wrong |= priced.wrong
        return priced.seconds

    def wires_s(self, call: Collective) -> Mapping[str, Any]:
        """Seconds in which one call fills the links of each level, in every cell."""
        by_links: dict[str, Any] = {}
        for here, timing in self._priced(call).timings:
            for links, seconds in timing.wires_s.items():
                by_links.setdefault(links, np.zeros(len(self.on)))[here] = seconds
        return by_links

    def share(self, call: Collective) -> Any:
        """What one step of a call brings of all."""
        return self._priced(call).shares

    def _volumes(self, call: Collective, layers: Any = 1) -> Any:
        return np.broadcast_to(call.logical_bytes(self.sizes) * layers, len(self.on)).astype(float)

    def _priced(self, call: Collective, layers: Any = 1) -> _Priced:
        many = np.asarray(layers).tobytes()
        if (id(call), many) not in self._known:
            key = ("call", call.shape, many, self.number)
            if key not in self.prices:
                self.prices[key] = self._in_cells(call, layers)
            self._known[id(call), many] = self.prices[key]
        return self._known[id(call), many]

    def _in_cells(self, call: Collective, layers: Any) -> _Priced:
        """A call in all cells: those whose wires are the same are priced together."""
        move, volumes = call.parts[0].move, self._volumes(call, layers)
        seconds, shares, wrong = np.zeros(len(self.on)), np.zeros(len(self.on)), {}
        timings: list[tuple[Any, Timing]] = []
        ways: defaultdict[Any, list[int]] = defaultdict(list)
        for at, mesh in enumerate(self.meshes):
            if mesh.mesh.size(*move.axes) > 1:
                there = self._between(at, move) if call.shared else self._way(at, move)
                if isinstance(there, InputError):
                    wrong[at] = reason(there)
                else:
                    ways[there].append(at)
        for way, meshes in ways.items():
            for here in self._alike(move, self._cells(meshes), volumes):
                timing = self._timing(self.meshes[meshes[0]], move, way, volumes[here])
                if isinstance(timing, InputError):
                    wrong |= dict.fromkeys(meshes, reason(timing))
                else:
                    seconds[here] = timing.time_s
                    shares[here] = step_share(self.meshes[meshes[0]].mesh.size(*move.axes), timing)
                    timings.append((here, timing))
        return _Priced(seconds, shares, wrong, timings)

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
        key = ("wires", self.sites[at], move.axes)
        if key not in self.prices:
            self.prices[key] = _found(lambda: self.meshes[at].placement.route(move.axes))
        return self.sites[at] if _to_neighbours(move) else self.prices[key]

    def _between(self, at: int, move: Move) -> Any:
        """The wires of what stages have together on a mesh; or why there are none."""
        key = ("between", self.sites[at], move.axes, move.members)
        if key not in self.prices:
            self.prices[key] = _found(lambda: route_over(self.meshes[at], move))
        return self.prices[key]

    def _timing(self, mesh: Question, move: Move, way: Any, volumes: Any) -> Timing | InputError:
        """A move of so many bytes, or why it is refused."""
        alike = (volumes == volumes[0]).all()
        volume = float(volumes[0]) if alike else volumes
        key = (move.kind, move.streamed, move.reordered, way, volume if alike else volumes.tobytes())
        if key not in self.prices:
            self.prices[key] = _found(lambda: pricer(mesh)(move, volume))
        return self.prices[key]  # type: ignore[no-any-return]  # put there above

    @cached_property
    def wrong(self) -> Mapping[int, Reason]:
        """Mesh, by number -> the reason why it has no price: every price is asked for."""
        for call in self.lowered.collectives:
            self.call_s(call)
        np.add(self.hop_s, 0)
        return self._wrong

    @cached_property
    def hop_s(self) -> Any:
        """Seconds of the quickest message between neighbours; 0 without stages."""
        seconds = np.zeros(len(self.on))
        cut = next((call for call in self.lowered.collectives if call.where.place == "cut"), None)
        if cut is not None:
            volumes = self._volumes(cut)
            for at, mesh in enumerate(self.meshes):
                if mesh.mesh.size(*mesh.layout.stages) > 1:
                    here = self._cells([at])
                    seconds[here] = self._hop_s(at, volumes[here])
        return seconds

    def _hop_s(self, at: int, volumes: Any) -> Any:
        mesh = self.meshes[at]
        key = ("hops", self.sites[at])
        if key not in self.prices:
            ranks = mesh.mesh.size(*mesh.layout.stages)
            ahead = [_found(lambda rank=rank: self._hop(mesh, rank, rank + 1)) for rank in range(ranks - 1)]  # type: ignore[misc]
            wrong = next((error for error in ahead if isinstance(error, InputError)), None)
            self.prices[key] = wrong or list(dict.fromkeys(ahead))
            self.prices["around", self.sites[at]] = _found(lambda: self._hop(mesh, ranks - 1, 0))
        routes = self.prices[key]
        if isinstance(routes, InputError):
            self._wrong[at] = reason(routes)
            return 0
        way = ("sent", self.sites[at], volumes.tobytes())
        if way not in self.prices:
            self.prices[way] = reduce(np.minimum, (sent(mesh, route, volumes).time_s for route in routes))
        return self.prices[way]

    def _hop(self, mesh: Question, source: int, target: int) -> Route:
        return route_of(mesh, mesh.layout.stages, source, target)

    def refused(self, at: int, *, around: bool) -> Reason | None:
        """The reason why a mesh has no price; None if it has.

        around  True if the last stage sends to the first, too
        """
        if at in self.wrong or not around:
            return self.wrong.get(at)
        back = self.prices.get(("around", self.sites[at]))  # put there with all that may be wrong
        return reason(back) if isinstance(back, InputError) else None


def _to_neighbours(move: Move) -> bool:
    """True for a move of which it matters who is beside whom."""
    return move.kind == "permute" or move.streamed


def _found(compute: Callable[[], Any]) -> Any:
    """What is made, or why it is refused."""
    try:
        return compute()
    except InputError as error:
        return error
