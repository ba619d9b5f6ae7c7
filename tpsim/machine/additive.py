"""The cost model `additive`: launch + steps*latency + bytes/bandwidth of the way that a library takes, or the least."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from tpsim.algebra.moves import wire
from tpsim.fabric.wires import joined
from tpsim.machine.algorithms import (
    BUSIEST,
    FORMS,
    ROUTE_ALGORITHMS,
    TORUS_FORMS,
    TorusAxis,
    Traffic,
    direct_all_to_all_nic,
    direct_all_to_all_port,
    flat_ring_gather,
    on_one_host,
    own_share,
    strided,
    switch_in_network,
    switch_in_switch,
    switch_tree,
)
from tpsim.machine.choice import Question, taken
from tpsim.machine.cost import FREE, SIMPLE, Cost, Link, chained, least, single, tuned, twice, where_more
from tpsim.machine.permutes import changing
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import Size, largest, over, product, total, where_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.change import Change
    from tpsim.fabric.wires import Segment
    from tpsim.machine.profile import Level

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
    def wires(self) -> str:
        """How its devices are joined; several axes together are a torus."""
        return self.segments[0].topology if len(self.segments) == 1 else "torus"

    @property
    def switched(self) -> bool:
        """True for a level where every member reaches every other one directly."""
        return joined(self.segments[0].topology) is not None

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


@dataclass(frozen=True, slots=True)
class Choice:
    """What is forced instead of chosen; None leaves it to the library, and the launch to the profile."""

    launch: Launch = None
    algorithm: str | None = None
    protocol: str | None = None

    @property
    def forced(self) -> tuple[str, ...]:
        """Algorithm and protocol, as far as they are not left to the library."""
        return tuple(word for word in (self.algorithm, self.protocol) if word is not None)


def cost(found: Sequence[Group], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None) -> Cost:
    """The way that a library takes over these groups, or the one with what is forced.

    Where an array or a symbol says how many devices a group has, all other groups may have one: then it is alone.
    change  where a permute's blocks go; None: each to the device beside it
    """
    if not found:
        return FREE
    whole = _over(found, kind, V, choice, change)
    for group, others in () if change is not None else _alone(found, kind, choice):
        whole = where_more(others, whole, _over([group], kind, V, choice))
    return whole


def _alone(found: Sequence[Group], kind: MoveKind, choice: Choice) -> Iterator[tuple[Group, Any]]:
    """The groups that may be the only ones of more than one device, each with how many devices all others have."""
    for group in found if len(found) > 1 else ():
        others = product(one.n for one in found if one is not group)
        several = isinstance(others, int) and others > 1
        if not several and (choice.algorithm is None or choice.algorithm in algorithms([group], kind)):
            yield group, others


def formulas(
    found: Sequence[Group], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None
) -> Iterator[str]:
    """Every closed form that `cost` compares, by its name in a lock: ``form.switch.all_gather.ring``; some twice.

    A change of axes, whose blocks are summed one by one, is ``form.ring.permute.change``.
    """
    if change is not None:
        yield from (f"form.{one.topology}.permute.change" for group in found for one in group.segments)
        return
    for part in (found, *((group,) for group, _ in _alone(found, kind, choice))):
        runs = _runs(part, kind, choice)
        across = {way.algorithm for run in runs for way in run.ways(V)}
        yield from (f"form.{part[at].wires}.{of}.{name}" for (at, of), forms in runs[0].moved.items() for name in forms)
        yield from (f"form.switch.{kind}.{name}" for way in across for name in MADE_OF.get(way, ()))


def _over(found: Sequence[Group], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None) -> Cost:
    """The way that a library takes over groups of more than one device."""
    known = protocols(found)
    if choice.protocol not in {None, *known}:
        raise unknown(choice.protocol or "", f"protocol of {_wires(found)}", known)
    runs = _runs(found, kind, choice, change)
    ways = [way for run in runs for way in run.ways(V)]
    if choice.algorithm is not None and not runs[0].known(choice.algorithm):
        raise runs[0].unknown()
    if not ways:
        raise _not_together(choice)
    return taken(ways, _question(found[0], kind, V, choice, change)) if len(found) == 1 else least(ways)


def _runs(found: Sequence[Group], kind: MoveKind, choice: Choice, change: Change | None = None) -> list[_Run]:
    """The collective with each protocol that may be taken."""
    wanted = protocols(found) if choice.protocol is None else (choice.protocol,)
    moved: dict[tuple[int, MoveKind], Mapping[str, tuple[Traffic, Any]]] = {}
    return [_Run(found, kind, choice.launch, choice.algorithm, protocol, moved, change) for protocol in wanted]


def _question(group: Group, kind: MoveKind, V: Size, choice: Choice, change: Change | None) -> Question:
    def again(way: Cost, size: Size) -> Cost:
        run = _Run((group,), kind, choice.launch, way.algorithm, way.protocol, {}, change)
        (found,) = run.ways(size)
        return found

    return Question(V, group.n, wire(kind, 1, group.n), again)


def algorithms(found: Sequence[Group], kind: MoveKind) -> list[str]:
    """Every algorithm that could be forced."""
    return _Run(found, kind, None, None, SIMPLE, {}).names() if found else []


def protocols(found: Sequence[Group]) -> tuple[str, ...]:
    """The protocols that the levels name, innermost first; a single one where none does."""
    named = (name for group in found for name in group.level.protocols)
    return tuple(dict.fromkeys(named)) or (SIMPLE,)


def _not_together(choice: Choice) -> InputError:
    message = f"{choice.algorithm or 'what the profile offers'} does not run with the protocol {choice.protocol}"
    return InputError.one("no-such-way", message, remedy="force one of the two only")


@dataclass(frozen=True, slots=True)
class _Run:
    """One collective over several groups with one protocol.

    moved   per group and move, what each algorithm puts on the wires and what stays: the same for all protocols
    change  where a permute's blocks go; None: each to the device beside it
    """

    groups: Sequence[Group]
    kind: MoveKind
    launch: Launch
    forced: str | None
    protocol: str
    moved: dict[tuple[int, MoveKind], Mapping[str, tuple[Traffic, Any]]]
    change: Change | None = None

    def ways(self, V: Size) -> Iterator[Cost]:
        """Every way on offer with this protocol."""
        if self.change is not None and len(self.groups) > 1:
            yield from self.changing(V, self.change)
            return
        if len(self.groups) == 1 or self.forced not in ACROSS:
            yield from self._level_by_level(V)
        for name, way in ACROSS.items():
            if self.forced in {None, name} and self._offers(name):
                yield from way(self, V)

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
        if name not in ROUTE_ALGORITHMS:
            return self.kind == "all_to_all"
        inner, outer = (group.level.algorithms for group in self.groups)
        return self.kind in ROUTE_ALGORITHMS[name] and name in outer and (name not in NEEDS or NEEDS[name] in inner)

    def _level_by_level(self, V: Size) -> Iterator[Cost]:
        """Each group in turn on the part of the array that reaches it."""
        if len(self.groups) == 1:
            yield from self._ways(0, self.kind, V)
            return
        every = (self._part(at, V) for at in range(len(self.groups)))
        parts = [part for part in takewhile(lambda part: part is not None, every) if part]
        if len(parts) == len(self.groups):
            hidden = self.groups[-1].level.pipelined
            levels = [group.level.name for group in self.groups]
            yield chained(parts, HIERARCHICAL, levels, 0.0 if hidden is None else hidden.value)

    def _part(self, at: int, V: Size) -> Cost | None:
        """One group's share of the run; None if its level cannot do it with this protocol.

        Gathers come from outside in, scatters go from inside out: a level sees what is left per inner shard. An
        all-to-all exchanges the same bytes at every level. An all-reduce scatters and gathers on all but the
        outermost level, which reduces. A permuted shard goes through every level.
        """
        group = self.groups[at]
        if self.kind in {"all_to_all", "permute"}:
            everyone = product(one.n for one in self.groups)
            return self._least(at, self.kind, over(V * group.n, everyone))
        here = over(V, product(one.n for one in self.groups[:at]))
        outside = self.groups[at + 1 :]
        if self.kind != "all_reduce" or not outside:
            return self._least(at, self.kind, here)
        both = forms(group, "all_reduce")
        halves = [
            twice(half, both[half.algorithm](here).link_total)
            for half in self._ways(at, "all_gather", here)
            if half.algorithm in both
        ]
        whole = self._least(at, self.kind, here)
        if not halves or whole is None:
            return None
        return where_more(product(one.n for one in outside), least(halves), whole)

    def _least(self, at: int, kind: MoveKind, V: Size) -> Cost | None:
        ways = self._ways(at, kind, V)
        return least(ways) if ways else None

    def _ways(self, at: int, kind: MoveKind, V: Size) -> list[Cost]:
        """Every algorithm of one level that runs with this protocol."""
        group = self.groups[at]
        if (at, kind) not in self.moved:
            self.moved[at, kind] = self._moved(group, kind, V)
        moved = self.moved[at, kind]
        return [
            self._single(group, self._sending(at, link, traffic), name, traffic, own)
            for name, (traffic, own) in moved.items()
            if self._serves(group, name) and (link := tuned(group.level, name, self.protocol)) is not None
        ]

    def _sending(self, at: int, link: Link, traffic: Traffic) -> Link:
        """A level with its messages: a small one is not spread over a node's cards, so that all of it goes by one."""
        return link.sending(lambda: traffic.message * product(one.n for one in self.groups[:at]))

    def _moved(self, group: Group, kind: MoveKind, V: Size) -> dict[str, tuple[Traffic, Any]]:
        """Per algorithm on offer its traffic, and the bytes that a device sends to itself beside it."""
        if self.change is not None:
            return {CHANGE: (changing([group.segments], V, self.change).whole, None)}
        offered, own = forms(group, kind), own_share(kind, V, group.n)
        names = [self.forced] if self.forced in offered else on_offer(group, kind)
        return {name: (offered[name](V), None if name in IN_HARDWARE else own) for name in names if name}

    def _single(self, group: Group, link: Link, name: str, traffic: Traffic, own: Any) -> Cost:
        launch = where_many(group.n, self.launch_s(link, group.n))
        return single(link, (name, self.protocol), traffic, own, launch)

    def _serves(self, group: Group, name: str) -> bool:
        """False for a way that serves one level only where there are two, unless it is forced."""
        tuning = group.level.algorithms.get(name)
        alone = tuning is not None and tuning.alone
        return not alone or self.forced is not None or len(self.groups) != PAIR_OF_LEVELS

    def launch_s(self, link: Link, n: Any) -> Any:
        """What one call among n devices costs before anything moves: the harness's launch, and what the way adds."""
        return self._harness_s(link) + link.latency_s(n)

    def _harness_s(self, link: Link) -> float:
        level = link.level
        if isinstance(self.launch, int | float):
            return float(self.launch)
        if self.launch is None and link.default_launch_s is not None:
            return link.default_launch_s
        launch = level.launched(self.launch)
        if launch is None:
            raise unknown(str(self.launch), f"launch of {level.name}", level.launch)
        return launch.value

    def flat_ring(self, V: Size) -> Iterator[Cost]:
        """One ring over all devices of all nodes; ports and NICs work at once."""
        inner, outer = self.groups
        links = self._links("flat-ring", lambda: over(V, inner.n * outer.n))
        if links is None:
            return
        ring = flat_ring_gather(V, inner.n, outer.n)
        halves = 2 if self.kind == "all_reduce" else 1
        sent = (halves * ring.port, halves * ring.nic)
        port, nic = self._busiest(sent)
        latency = halves * (ring.inner_steps * links[0].hop_s + ring.outer_steps * links[1].hop_s)
        bandwidth = largest(over(port, links[0].bandwidth), over(nic, links[1].bandwidth))
        own = own_share(self.kind, V, inner.n * outer.n)
        steps = halves * (ring.inner_steps + ring.outer_steps)
        yield self._across(
            "flat-ring", links, Crossing(latency, bandwidth, steps, total(sent), largest(port, nic), own)
        )

    def changing(self, V: Size, change: Change) -> Iterator[Cost]:
        """Every block the shortest way to its place; the levels work at once."""
        run = changing([group.segments for group in self.groups], V, change)
        links = self._links(CHANGE, lambda: run.whole.message)
        if links is None:
            return
        spent = zip(run.parts, links, strict=True)
        bandwidth = largest(*(over(part.link_total, link.bandwidth) for part, link in spent))
        latency, whole = run.latency_s([link.hop_s for link in links]), run.whole
        yield self._across(
            CHANGE, links, Crossing(latency, bandwidth, whole.steps, whole.carried, whole.link_total, None)
        )

    def in_switch_tree(self, V: Size) -> Iterator[Cost]:
        """Sums inside the nodes' switches and over trees between them, all of it streamed: NCCL's NVLSTree."""
        return self._under("in-switch-tree", V, switch_tree)

    def in_switch_network(self, V: Size) -> Iterator[Cost]:
        """Sums inside the nodes' switches and in those of the network, all of it streamed: NCCL's NVLS over SHARP."""
        return self._under("in-switch-network", V, switch_in_network)

    def _under(self, name: str, V: Size, between: Callable[[Size, Size], Traffic]) -> Iterator[Cost]:
        """Sums inside the nodes' switches, and what each device then holds summed `between` the nodes."""
        inner, outer = self.groups
        reducing = tuned(inner.level, NEEDS[name], self.protocol)
        climbing = tuned(outer.level, name, self.protocol)
        if reducing is None or climbing is None:
            return
        climbing = climbing.sending(lambda: V)
        summed, above = switch_in_switch(V, inner.n), between(over(V, inner.n), outer.n)
        sent = (summed.link_total, above.link_total)
        latency = summed.steps * reducing.hop_s + above.steps * climbing.hop_s
        bandwidth = largest(over(sent[0], reducing.bandwidth), over(sent[1], climbing.bandwidth))
        steps, carried = summed.steps + above.steps, summed.carried + above.carried
        crossing = Crossing(latency, bandwidth, steps, carried, largest(*self._busiest(sent)), None)
        yield self._across(name, (reducing, climbing), crossing)

    def pairwise(self, V: Size) -> Iterator[Cost]:
        """All-to-all with one peer after the other, those in the node by the ports, the others by the NICs."""
        inner, outer = self.groups
        links = self._links("pairwise", lambda: over(V, (inner.n * outer.n) ** 2))
        if links is None:
            return
        sent = (direct_all_to_all_port(V, inner.n, outer.n), direct_all_to_all_nic(V, inner.n, outer.n))
        port, nic = self._busiest(sent)
        if inner.segments[0].topology == "mesh":
            port = sent[0]  # one cable after another
        latency = (inner.n - 1) * links[0].hop_s + inner.n * (outer.n - 1) * links[1].hop_s
        bandwidth = over(port, links[0].bandwidth) + over(nic, links[1].bandwidth)
        n = inner.n * outer.n
        own = own_share(self.kind, V, n)
        busiest = largest(*self._busiest(sent))
        crossing = Crossing(latency, bandwidth, n - 1, total(sent), busiest, own, largest(port, nic))
        yield self._across("pairwise", links, crossing)

    def _links(self, name: str, message: Callable[[], Any]) -> tuple[Link, ...] | None:
        """All levels as the algorithm meets them; None if one cannot run it with this protocol."""
        found = [tuned(group.level, name, self.protocol) for group in self.groups]
        usable = tuple(link.sending(message) for link in found if link is not None)
        return usable if len(usable) == len(found) else None

    def _busiest(self, sent: tuple[Any, Any]) -> tuple[Any, Any]:
        """Bytes on the busiest link of either level."""
        inner, outer = (
            BUSIEST[group.segments[0].topology](part, group.n) * group.segments[0].stride
            for group, part in zip(self.groups, sent, strict=True)
        )
        return inner, outer

    def _across(self, name: str, links: tuple[Link, ...], crossing: Crossing) -> Cost:
        launch = largest(
            *(where_many(group.n, self.launch_s(link, group.n)) for group, link in zip(self.groups, links, strict=True))
        )
        serial = crossing.busiest if crossing.serial is None else crossing.serial
        ramp = links[0].ramp(crossing.own, crossing.bandwidth)
        work = crossing.latency + crossing.bandwidth + ramp
        seconds = (launch, crossing.latency, crossing.bandwidth, work, work)
        totals = (crossing.steps, crossing.carried, crossing.busiest, serial)
        return Cost(name, *seconds, *totals, ramp_s=ramp, protocol=self.protocol)


class Crossing(NamedTuple):
    """A way over several levels together.

    latency, bandwidth  seconds
    carried             bytes that a device sends, on average
    busiest             bytes on the busiest link of any level
    own                 bytes that it sends to itself; None where it never does
    serial              bytes that are waited for on the level where that is most; None: those of its busiest link
    """

    latency: Any
    bandwidth: Any
    steps: Any
    carried: Any
    busiest: Any
    own: Any
    serial: Any = None


CHANGE = "permute"
"""What a change of axes is called, which runs over all levels together."""

HIERARCHICAL = "hierarchical"
"""What a run is called that takes the levels in turn."""

PAIR_OF_LEVELS = 2

ACROSS: Mapping[str, Callable[[_Run, Size], Iterator[Cost]]] = {
    "flat-ring": _Run.flat_ring,
    "in-switch-tree": _Run.in_switch_tree,
    "in-switch-network": _Run.in_switch_network,
    "pairwise": _Run.pairwise,
}
"""Ways that use two levels together."""

MADE_OF: Mapping[str, tuple[str, str]] = {
    "in-switch-tree": ("in-switch", "tree"),
    "in-switch-network": ("in-switch", "in-network"),
}
"""The closed forms on either level that a way over two levels is made of."""

NEEDS = {"in-switch-tree": "in-switch", "in-switch-network": "in-switch"}
"""What the inner level must offer for a way over two levels."""


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


IN_HARDWARE = frozenset({"in-switch", "in-network"})
"""Algorithms that need more than wires: no level has them whose profile does not offer them.

What a device sends to itself goes through the switch with everything else.
"""


def _on_segment(form: Callable[[Size, Size], Traffic], segment: Segment) -> Callable[[Size], Traffic]:
    if segment.topology == "host":
        return lambda V: on_one_host(form(V, segment.n), segment.stride)
    if joined(segment.topology):
        return lambda V: form(V, segment.n)
    return lambda V: strided(form(V, segment.n), segment.stride)


def _torus_forms(group: Group, kind: MoveKind) -> Mapping[str, Callable[[Size], Traffic]]:
    known = TORUS_FORMS.get(kind)
    if known is None:
        raise _no_form(group, kind)
    return {name: partial(_on_torus, form, group.torus) for name, form in known.items()}


def _on_torus(form: Callable[[Size, Sequence[TorusAxis]], Traffic], axes: Sequence[TorusAxis], V: Size) -> Traffic:
    return form(V, axes)


def _no_form(group: Group, kind: MoveKind) -> InputError:
    return InputError.one("no-closed-form", f"no closed form of {kind} is known on {_wires([group])}")


def _wires(found: Sequence[Group]) -> str:
    return " x ".join(str(segment) for group in found for segment in group.segments)


PLAIN = ("ring", "line", "shortest", "farthest-first", "lockstep", "all-peers", "pairwise", "rotated", "permute")
"""Algorithms that every fabric offers that has them; a profile may offer others."""


def on_offer(group: Group, kind: MoveKind) -> list[str]:
    """The algorithms that the profile offers for the move; the plain ones where it names none."""
    known = forms(group, kind)
    offered = [name for name in known if name in group.level.algorithms]
    return offered or [name for name in known if name in PLAIN] or list(known)
