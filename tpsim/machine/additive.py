"""The cost model `additive`: launch + steps*latency + bytes/bandwidth of the way that a library takes, or the least."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from tpsim.algebra.moves import wire
from tpsim.fabric.wires import joined
from tpsim.machine.algorithm import Crossing, Levels
from tpsim.machine.algorithms import ACROSS, ALGORITHMS, FORMS, HIERARCHICAL, TORUS_FORMS
from tpsim.machine.cable_forms import on_one_host
from tpsim.machine.choice import ChoiceQuestion, taken
from tpsim.machine.combined import chained, least, twice, where_more
from tpsim.machine.cost import FREE, SIMPLE, Cost, Link, single, tuned
from tpsim.machine.forms import Traffic, strided
from tpsim.machine.level_forms import own_share
from tpsim.machine.permutes import changing
from tpsim.machine.torus_forms import TorusAxis
from tpsim.quantity.errors import InputError, unknown
from tpsim.quantity.size import Size, largest, over, product, where_many

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from tpsim.algebra.moves import MoveKind
    from tpsim.fabric.change import Change
    from tpsim.fabric.wires import Segment
    from tpsim.machine.parts import Level, Machine

Launch = float | str | None
"""Seconds, the name of a harness, or the profile's default."""


@dataclass(frozen=True)
class Group:
    """Segments of one level that an algorithm uses together: one axis, or the axes of a torus.

    links  where the machine remembers its levels as algorithms meet them
    """

    level: Level
    segments: tuple[Segment, ...]
    links: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def link(self, algorithm: str, protocol: str) -> Link | None:
        """The level as an algorithm meets it with a protocol, looked up once; None if it cannot run it."""
        key = (self.level.name, algorithm, protocol)
        if key not in self.links:
            self.links[key] = tuned(self.level, algorithm, protocol)
        found: Link | None = self.links[key]
        sharing = self.segments[0].sharing
        return found if found is None or sharing is None else replace(found, sharing=sharing)

    @cached_property
    def n(self) -> Any:
        """Devices along the group."""
        return product(segment.n for segment in self.segments)

    @cached_property
    def wires(self) -> str:
        """How its devices are joined; several axes together are a torus."""
        return self.segments[0].topology if len(self.segments) == 1 else "torus"

    @cached_property
    def switched(self) -> bool:
        """True for a level where every member reaches every other one directly."""
        return joined(self.segments[0].topology) is not None

    @property
    def torus(self) -> tuple[TorusAxis, ...]:
        """The group's axes; those whose ends are open first, so that they gather the smallest parts."""
        axes = [TorusAxis(segment.n, segment.topology == "ring") for segment in self.segments]
        return tuple(sorted(axes, key=lambda axis: axis.closed))


def groups(machine: Machine, route: Sequence[Segment]) -> tuple[Group, ...]:
    """The route in groups, innermost first; an axis whose links others share is a group of its own.

    On one level such an axis comes last, where the least is left to move over it.
    """
    found: list[Group] = []
    levels = {level.name: level for level in machine.levels}
    place = {name: at for at, name in enumerate(levels)}
    for segment in sorted(route, key=lambda one: (place[one.level], not _joins(one))):
        level, own = levels[segment.level], (segment,)
        if found and found[-1].level is level and _joins(segment) and all(map(_joins, found[-1].segments)):
            found[-1] = Group(level, (*found[-1].segments, segment), machine.links)
        else:
            found.append(Group(level, own, machine.links))
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
    if change is not None:
        return _over(found, kind, V, choice, change)
    (first, _), *others = _alternatives(found, kind, choice)
    whole = _over(first, kind, V, choice)
    for alone, rest in others:
        whole = where_more(rest, whole, _over(alone, kind, V, choice))
    return whole


def _alternatives(found: Sequence[Group], kind: MoveKind, choice: Choice) -> list[tuple[Sequence[Group], Any]]:
    """All groups, then those that may be the only ones of more than one device, with how many devices the others have.

    A group that is known to be the only one is all there is.
    """
    every: list[tuple[Sequence[Group], Any]] = [(found, 1)]
    for group in found if len(found) > 1 else ():
        others = product(one.n for one in found if one is not group)
        known = isinstance(others, int)
        several = known and others > 1
        if not several and (choice.algorithm is None or choice.algorithm in algorithms([group], kind)):
            every = [((group,), others)] if known else [*every, ((group,), others)]
    return every


def formulas(
    found: Sequence[Group], kind: MoveKind, V: Size, choice: Choice, change: Change | None = None
) -> Iterator[str]:
    """Every closed form that `cost` compares, by its name in a lock: ``form.switch.all_gather.ring``; some twice.

    A change of axes, whose blocks are summed one by one, is ``form.ring.permute.change``.
    """
    if change is not None:
        yield from (f"form.{one.topology}.permute.change" for group in found for one in group.segments)
        return
    for part, _ in _alternatives(found, kind, choice):
        runs = _runs(part, kind, choice)
        across = {way.algorithm for run in runs for way in run.ways(V)} & ACROSS.keys()
        yield from (
            f"form.{part[at].wires}.{of}.{name}" for (at, of, _), forms in runs[0].moved.items() for name in forms
        )
        yield from (f"form.switch.{kind}.{name}" for way in across for name in ACROSS[way].made_of)


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
    moved: Moved = {}
    return [_Run(found, kind, choice.launch, choice.algorithm, protocol, moved, change) for protocol in wanted]


def _question(group: Group, kind: MoveKind, V: Size, choice: Choice, change: Change | None) -> ChoiceQuestion:
    def again(way: Cost, size: Size) -> Cost:
        run = _Run((group,), kind, choice.launch, way.algorithm, way.protocol, {}, change)
        (found,) = run.ways(size)
        return found

    return ChoiceQuestion(V, group.n, wire(kind, 1, group.n), again)


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


Moved = dict[tuple[int, "MoveKind", str], "Mapping[str, tuple[Traffic, Any]]"]
"""By group, move and the algorithm that it must be: what algorithms put on the wires, and what stays."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One collective over several groups with one protocol.

    moved   what is the same for all protocols
    change  where a permute's blocks go; None: each to the device beside it
    each    the algorithm of every group, where these are told apart
    """

    groups: Sequence[Group]
    kind: MoveKind
    launch: Launch
    forced: str | None
    protocol: str
    moved: Moved
    change: Change | None = None
    each: tuple[str, ...] = ()

    def ways(self, V: Size) -> Iterator[Cost]:
        """Every way on offer with this protocol."""
        if self.change is not None and len(self.groups) > 1:
            yield from self.changing(V, self.change)
            return
        if len(self.groups) == 1 or self.forced not in ACROSS:
            yield from self.level_by_level(V)
        for name in self._across:
            if self._takes(name):
                yield from self._over_both(name, V)

    def known(self, algorithm: str) -> bool:
        """True if some part of the run can use the algorithm."""
        return algorithm in self.names()

    def names(self) -> list[str]:
        """Every algorithm that could be forced."""
        own = [name for group in self.groups for kind in self._kinds() for name in forms(group, kind)]
        return list(dict.fromkeys([*own, *self._across, *([HIERARCHICAL] if len(self.groups) > 1 else [])]))

    def unknown(self) -> InputError:
        """The refusal of an algorithm that no part of the run has."""
        return unknown(self.forced or "", f"algorithm of {self.kind} on {_wires(self.groups)}", self.names())

    def _kinds(self) -> tuple[MoveKind, ...]:
        """The moves that the parts of the run make."""
        several = self.kind == "all_reduce" and len(self.groups) > 1
        return (self.kind, "all_gather") if several else (self.kind,)

    @property
    def _across(self) -> list[str]:
        """The ways over both levels that are possible, if the route is two levels of switches."""
        if len(self.groups) != PAIR_OF_LEVELS or not all(group.switched for group in self.groups):
            return []
        offers = [{"", *group.level.algorithms} for group in self.groups]
        return [
            name
            for name, way in ACROSS.items()
            if self.kind in way.moves and all(need in has for need, has in zip(way.needs, offers, strict=True))
        ]

    def _takes(self, name: str) -> bool:
        """True for a way that is forced; of ways that are not, for plain ones and those of the outer level."""
        return self.forced == name or (
            self.forced is None and (ALGORITHMS[name].plain or name in self.groups[-1].level.algorithms)
        )

    def level_by_level(self, V: Size, name: str = HIERARCHICAL) -> Iterator[Cost]:
        """Each group in turn on the part of the array that reaches it."""
        if len(self.groups) == 1:
            yield from self._ways(0, self.kind, V)
            return
        every = (self._part(at, V) for at in range(len(self.groups)))
        parts = [part for part in takewhile(lambda part: part is not None, every) if part]
        if len(parts) == len(self.groups):
            hidden = self.groups[-1].level.pipelined
            levels = [group.level.name for group in self.groups]
            yield chained(parts, name, levels, 0.0 if hidden is None else hidden.value)

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
        both = _names(group, "all_reduce")
        halves = [
            twice(half, traffic(group, "all_reduce", half.algorithm, here).link_total)
            for half in self._ways(at, "all_gather", here)
            if half.algorithm in both
        ]
        rest = product(one.n for one in outside)
        if not halves or (isinstance(rest, int) and rest > 1):
            return least(halves) if halves else None
        whole = self._least(at, self.kind, here)
        return None if whole is None else where_more(rest, least(halves), whole)

    def _least(self, at: int, kind: MoveKind, V: Size) -> Cost | None:
        ways = self._ways(at, kind, V)
        return least(ways) if ways else None

    def _ways(self, at: int, kind: MoveKind, V: Size) -> list[Cost]:
        """Every algorithm of one level that runs with this protocol."""
        group = self.groups[at]
        only = self.each[at] if self.each else self.forced or ""
        if (at, kind, only) not in self.moved:
            self.moved[at, kind, only] = self._moved(group, kind, V, only)
        moved = self.moved[at, kind, only]
        return [
            self._single(group, self._sending(at, link, traffic), name, traffic, own)
            for name, (traffic, own) in moved.items()
            if self._serves(group, name) and (link := group.link(name, self.protocol)) is not None
        ]

    def _sending(self, at: int, link: Link, traffic: Traffic) -> Link:
        """A level with its messages: a small one is not spread over a node's cards, so that all of it goes by one."""
        return link.sending(lambda: traffic.message * product(one.n for one in self.groups[:at]))

    def _moved(self, group: Group, kind: MoveKind, V: Size, only: str) -> dict[str, tuple[Traffic, Any]]:
        """Per algorithm on offer its traffic, and the bytes that a device sends to itself beside it."""
        if self.change is not None:
            return {CHANGE: (changing([group.segments], V, self.change).whole, None)}
        own, forced = own_share(kind, V, group.n), only in _names(group, kind)
        names = [only] if forced else [] if self.each else on_offer(group, kind)
        return {name: (traffic(group, kind, name, V), None if ALGORITHMS[name].hardware else own) for name in names}

    def _single(self, group: Group, link: Link, name: str, traffic: Traffic, own: Any) -> Cost:
        launch = where_many(group.n, self.launch_s(link, group.n))
        return single(link, (name, self.protocol), traffic, own, launch)

    def _serves(self, group: Group, name: str) -> bool:
        """False for a way that serves one level only where there are two, unless it is forced."""
        tuning = group.level.algorithms.get(name)
        alone = tuning is not None and tuning.alone
        return not alone or self.forced is not None or bool(self.each) or len(self.groups) != PAIR_OF_LEVELS

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

    def _over_both(self, name: str, V: Size) -> Iterator[Cost]:
        """One way over two levels."""
        way, (inner, outer) = ACROSS[name], self.groups
        if way.in_turn is not None:
            yield from replace(self, forced=None, each=way.in_turn).level_by_level(V, name)
        if way.run is None:
            return
        n = inner.n * outer.n
        met_as = [algorithm or name for algorithm in way.met_as]
        links = self._links(met_as, lambda: way.message(V, n))
        if links is not None:
            at = Levels(self.kind, V, inner.segments[0], outer.segments[0], (links[0], links[1]))
            yield self._crossed(name, links, way.run(at))

    def changing(self, V: Size, change: Change) -> Iterator[Cost]:
        """Every block the shortest way to its place; the levels work at once."""
        run = changing([group.segments for group in self.groups], V, change)
        links = self._links([CHANGE] * len(self.groups), lambda: run.whole.message)
        if links is None:
            return
        spent = zip(run.parts, run.uplinks, links, strict=True)
        bandwidth = largest(*(link.level.passing_s(part.link_total, up, link.share) for part, up, link in spent))
        latency, whole = run.latency_s([link.hop_s for link in links]), run.whole
        totals = (whole.steps, whole.carried, whole.link_total)
        yield self._crossed(CHANGE, links, Crossing(latency, bandwidth, *totals, None, uplink=largest(*run.uplinks)))

    def _links(self, names: Sequence[str], message: Callable[[], Any]) -> tuple[Link, ...] | None:
        """All levels as algorithms meet them; None if one cannot run its own with this protocol."""
        met = zip(self.groups, names, strict=True)
        found = [group.link(name, self.protocol) for group, name in met]
        usable = tuple(link.sending(message) for link in found if link is not None)
        return usable if len(usable) == len(found) else None

    def _crossed(self, name: str, links: tuple[Link, ...], crossing: Crossing) -> Cost:
        launch = largest(
            *(where_many(group.n, self.launch_s(link, group.n)) for group, link in zip(self.groups, links, strict=True))
        )
        serial = crossing.busiest if crossing.serial is None else crossing.serial
        ramp = links[0].ramp(crossing.own, crossing.bandwidth)
        work = crossing.latency + crossing.bandwidth + ramp
        seconds = (launch, crossing.latency, crossing.bandwidth, work, work)
        totals = (crossing.steps, crossing.carried, crossing.busiest, serial)
        return Cost(name, *seconds, *totals, ramp_s=ramp, protocol=self.protocol, uplink=crossing.uplink)


CHANGE = "permute"
"""What a change of axes is called, which runs over all levels together."""

PAIR_OF_LEVELS = 2


def forms(group: Group, kind: MoveKind) -> Mapping[str, Callable[[Size], Traffic]]:
    """Every closed form of a move on a group, by the algorithm's name, as a function of the bytes.

    Raises InputError where none is known.
    """
    return {name: partial(traffic, group, kind, name) for name in _names(group, kind)}


def traffic(group: Group, kind: MoveKind, name: str, V: Size) -> Traffic:
    """What an algorithm puts on the wires of a group."""
    if len(group.segments) > 1:
        return TORUS_FORMS[kind][name](V, group.torus)
    (segment,) = group.segments
    return _on_segment(FORMS[segment.topology][kind][name], segment, V)


def _on_segment(form: Callable[[Size, Size], Traffic], segment: Segment, V: Size) -> Traffic:
    if segment.topology == "host":
        return on_one_host(form(V, segment.n), segment.stride)
    return form(V, segment.n) if joined(segment.topology) else strided(form(V, segment.n), segment.stride)


def _names(group: Group, kind: MoveKind) -> list[str]:
    """The algorithms that have a form on the group's wires. Raises InputError where there is none."""
    known = TORUS_FORMS.get(kind) if group.wires == "torus" else FORMS[group.wires].get(kind)
    if known is None:
        raise _no_form(group, kind)
    offered = group.level.algorithms
    return [name for name in known if not ALGORITHMS[name].hardware or name in offered]


def _no_form(group: Group, kind: MoveKind) -> InputError:
    return InputError.one("no-closed-form", f"no closed form of {kind} is known on {_wires([group])}")


def _wires(found: Sequence[Group]) -> str:
    return " x ".join(str(segment) for group in found for segment in group.segments)


def on_offer(group: Group, kind: MoveKind) -> list[str]:
    """The algorithms that the profile offers for the move; the plain ones where it names none."""
    key = (group.level.name, group.wires, kind)
    if key not in group.links:
        known = _names(group, kind)
        offered = [name for name in known if name in group.level.algorithms]
        group.links[key] = offered or [name for name in known if ALGORITHMS[name].plain] or known
    return group.links[key]  # type: ignore[no-any-return]  # names
