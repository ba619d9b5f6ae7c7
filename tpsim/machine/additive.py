"""The cost model `additive`: launch + steps*latency + bytes/bandwidth, the least over the algorithms on offer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tpsim.machine.algorithms import (
    FORMS,
    ROUTE_ALGORITHMS,
    TORUS_FORMS,
    TorusAxis,
    Traffic,
    direct_all_to_all_nic,
    direct_all_to_all_port,
    flat_ring_gather,
    strided,
)
from tpsim.machine.cost import FREE, Cost, Link, chained, least, single, twice, where_more
from tpsim.machine.profile import Level, Tuning
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import Size, largest, over, product, where_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.wires import Segment

Launch = float | str | None
"""Seconds, the name of a harness, or the profile's default."""


@dataclass(frozen=True, slots=True)
class Group:
    """Segments of one level that an algorithm uses together: one axis, or the axes of a torus."""

    level: Level
    segments: tuple[Segment, ...]

    @property
    def n(self) -> Any:
        """Devices along the group."""
        return product(segment.n for segment in self.segments)

    @property
    def switched(self) -> bool:
        """True for a level of switches."""
        return self.segments[0].topology == "switch"

    @property
    def torus(self) -> tuple[TorusAxis, ...]:
        """The group's axes; those whose ends are open first, so that they gather the smallest parts."""
        axes = [TorusAxis(segment.n, segment.topology == "ring") for segment in self.segments]
        return tuple(sorted(axes, key=lambda axis: axis.closed))


def groups(levels: Mapping[str, Level], route: Sequence[Segment]) -> tuple[Group, ...]:
    """The route in groups, innermost first; an axis whose links others share is a group of its own.

    On one level such an axis comes last, where the least is left to move over it.
    """
    found: list[Group] = []
    place = {name: at for at, name in enumerate(levels)}
    for segment in sorted(route, key=lambda one: (place[one.level], not _joins(one))):
        level, own = levels[segment.level], (segment,)
        if found and found[-1].level is level and _joins(segment) and all(map(_joins, found[-1].segments)):
            found[-1] = Group(level, (*found[-1].segments, segment))
        else:
            found.append(Group(level, own))
    return tuple(found)


def _joins(segment: Segment) -> bool:
    return segment.topology in {"ring", "line"} and segment.stride == 1


def cost(found: Sequence[Group], kind: MoveKind, V: Size, launch: Launch, algorithm: str | None) -> Cost:
    """The least way to run a collective over these groups, or the least one with the algorithm that is forced."""
    if not found:
        return FREE
    run = _Run(found, kind, launch, algorithm)
    ways = list(run.ways(V))
    if not ways or (algorithm is not None and not run.known(algorithm)):
        raise run.unknown()
    return least(ways)


@dataclass(frozen=True, slots=True)
class _Run:
    """One collective over several groups."""

    groups: Sequence[Group]
    kind: MoveKind
    launch: Launch
    forced: str | None

    def ways(self, V: Size) -> Iterator[Cost]:
        """Every way on offer."""
        if self.forced not in ACROSS:
            yield self._level_by_level(V)
        for name, way in ACROSS.items():
            if self.forced in {None, name} and self._offers(name):
                yield way(self, V)

    def known(self, algorithm: str) -> bool:
        """True if some part of the run can use the algorithm."""
        return algorithm in self.names()

    def names(self) -> list[str]:
        """Every algorithm that could be forced."""
        own = [name for group in self.groups for kind in self._kinds() for name in forms(group, kind)]
        across = [name for name in ACROSS if self._offers(name)]
        return list(dict.fromkeys([*own, *across, *([HIERARCHICAL] if len(self.groups) > 1 else [])]))

    def unknown(self) -> InputError:
        """The refusal of an algorithm that no part of the run has."""
        return unknown(self.forced or "", f"algorithm of {self.kind} on {_wires(self.groups)}", self.names())

    def _kinds(self) -> tuple[MoveKind, ...]:
        """The moves that the parts of the run make."""
        several = self.kind == "all_reduce" and len(self.groups) > 1
        return (self.kind, "all_gather") if several else (self.kind,)

    def _offers(self, name: str) -> bool:
        """True if the route is two levels of switches and the way is among those on offer for it."""
        if len(self.groups) != PAIR_OF_LEVELS or not all(group.switched for group in self.groups):
            return False
        if name in ROUTE_ALGORITHMS:
            rings = {"all_gather", "reduce_scatter", "all_reduce"}
            return self.kind in rings and name in self.groups[1].level.algorithms
        return self.kind == "all_to_all"

    def _level_by_level(self, V: Size) -> Cost:
        """Each group in turn on the part of the array that reaches it."""
        return chained([self._part(at, V) for at in range(len(self.groups))], HIERARCHICAL)

    def _part(self, at: int, V: Size) -> Cost:
        """One group's share of the run.

        Gathers come from outside in, scatters go from inside out: a level sees what is left per inner shard. An
        all-to-all exchanges the same bytes at every level. An all-reduce scatters and gathers on all but the
        outermost level, which reduces. A permuted shard goes through every level.
        """
        group = self.groups[at]
        if self.kind in {"all_to_all", "permute"}:
            everyone = product(one.n for one in self.groups)
            return self._least(group, self.kind, over(V * group.n, everyone))
        here = over(V, product(one.n for one in self.groups[:at]))
        outside = self.groups[at + 1 :]
        if self.kind != "all_reduce" or not outside:
            return self._least(group, self.kind, here)
        both = twice(self._least(group, "all_gather", here))
        return where_more(product(one.n for one in outside), both, self._least(group, self.kind, here))

    def _least(self, group: Group, kind: MoveKind, V: Size) -> Cost:
        offered = forms(group, kind)
        names = [self.forced] if self.forced in offered else on_offer(group, kind)
        return least([self._single(group, name, offered[name](V)) for name in names if name])

    def _single(self, group: Group, name: str, traffic: Traffic) -> Cost:
        level = group.level
        return single(level, name, traffic, where_many(group.n, self.launch_s(level, level.algorithms.get(name))))

    def launch_s(self, level: Level, tuning: Tuning | None = None) -> float:
        """What one call on a level costs before anything moves."""
        if isinstance(self.launch, int | float):
            return float(self.launch)
        if self.launch is not None and level.launch and self.launch not in level.launch:
            raise unknown(self.launch, f"launch of {level.name}", level.launch)
        if self.launch is None and tuning is not None and tuning.launch is not None:
            return tuning.launch.value
        stated = level.launch.get(self.launch) if self.launch else next(iter(level.launch.values()), None)
        return 0.0 if stated is None else stated.value

    def flat_ring(self, V: Size) -> Cost:
        """One ring over all devices of all nodes; ports and NICs work at once."""
        inner, outer = self.groups
        ring = flat_ring_gather(V, inner.n, outer.n)
        halves = 2 if self.kind == "all_reduce" else 1
        port, nic = halves * ring.port, halves * ring.nic
        links = self._links("flat-ring")
        latency = halves * (ring.inner_steps * links[0].hop_s + ring.outer_steps * links[1].hop_s)
        bandwidth = largest(over(port, links[0].bandwidth), over(nic, links[1].bandwidth))
        return self._across("flat-ring", latency, bandwidth, (port, nic), halves)

    def pairwise(self, V: Size) -> Cost:
        """All-to-all with one peer after the other, those in the node by the ports, the others by the NICs."""
        inner, outer = self.groups
        port = direct_all_to_all_port(V, inner.n, outer.n)
        nic = direct_all_to_all_nic(V, inner.n, outer.n)
        links = self._links("pairwise")
        latency = (inner.n - 1) * links[0].hop_s + inner.n * (outer.n - 1) * links[1].hop_s
        bandwidth = over(port, links[0].bandwidth) + over(nic, links[1].bandwidth)
        return self._across("pairwise", latency, bandwidth, (port, nic))

    def _links(self, name: str) -> list[Link]:
        return [Link(group.level, group.level.algorithms.get(name, Tuning())) for group in self.groups]

    def _across(self, name: str, latency: Any, bandwidth: Any, sent: tuple[Any, Any], halves: int = 1) -> Cost:
        """A way over both levels; `sent` are the bytes of a device's port and of its NIC."""
        inner, outer = self.groups
        launch = largest(*(where_many(group.n, self.launch_s(group.level)) for group in (inner, outer)))
        steps = halves * (inner.n * outer.n - 1)
        busiest = largest(*sent)
        work = latency + bandwidth
        return Cost(name, launch, latency, bandwidth, work, work, steps, sum(sent), busiest, busiest)


HIERARCHICAL = "hierarchical"
"""What a run is called that takes the levels in turn."""

PAIR_OF_LEVELS = 2

ACROSS: Mapping[str, Callable[[_Run, Size], Cost]] = {"flat-ring": _Run.flat_ring, "pairwise": _Run.pairwise}
"""Ways that use two levels of switches together."""


def forms(group: Group, kind: MoveKind) -> Mapping[str, Callable[[Size], Traffic]]:
    """Every closed form of a move on a group, by the algorithm's name, as a function of the bytes.

    Raises InputError where none is known.
    """
    if len(group.segments) > 1:
        return _torus_forms(group, kind)
    (segment,) = group.segments
    known = FORMS[segment.topology].get(kind)
    if known is None:
        raise _no_form(group, kind)
    offered = group.level.algorithms
    usable = {name: form for name, form in known.items() if name not in IN_HARDWARE or name in offered}
    return {name: _on_segment(form, segment) for name, form in usable.items()}


IN_HARDWARE = frozenset({"in-switch"})
"""Algorithms that need more than wires: no level has them whose profile does not offer them."""


def _on_segment(form: Callable[[Size, Size], Traffic], segment: Segment) -> Callable[[Size], Traffic]:
    if segment.topology == "switch":
        return lambda V: form(V, segment.n)
    return lambda V: strided(form(V, segment.n), segment.stride)


def _torus_forms(group: Group, kind: MoveKind) -> Mapping[str, Callable[[Size], Traffic]]:
    halves = TORUS_FORMS.get("all_gather" if kind == "all_reduce" else kind)
    if halves is None:
        raise _no_form(group, kind)
    runs = {name: partial(_on_torus, form, group.torus) for name, form in halves.items()}
    return {name: _twice(run) for name, run in runs.items()} if kind == "all_reduce" else runs


def _on_torus(form: Callable[[Size, Sequence[TorusAxis]], Traffic], axes: Sequence[TorusAxis], V: Size) -> Traffic:
    return form(V, axes)


def _twice(half: Callable[[Size], Traffic]) -> Callable[[Size], Traffic]:
    return lambda V: half(V).then(half(V))


def _no_form(group: Group, kind: MoveKind) -> InputError:
    return InputError.one("no-closed-form", f"no closed form of {kind} is known on {_wires([group])}")


def _wires(found: Sequence[Group]) -> str:
    return " x ".join(str(segment) for group in found for segment in group.segments)


PLAIN = ("ring", "line", "shortest", "farthest-first", "lockstep", "pairwise", "rotated", "permute")
"""Algorithms that every fabric offers that has them; a profile may offer others."""


def on_offer(group: Group, kind: MoveKind) -> list[str]:
    """The algorithms that the profile offers for the move; the plain ones where it names none."""
    known = forms(group, kind)
    return [name for name in known if name in group.level.algorithms] or [name for name in known if name in PLAIN]
